// SPDX-License-Identifier: Apache-2.0
// A line to type in, and words of its translations to force; only in a live page.

const PAUSE = 150; // milliseconds without a key, after which the line is translated
const SLOW = 1200; // ... after which it is told why it takes long
const WORD = new RegExp(`[${CJK}]|(?:(?![${CJK}])\\S)+`, 'gu');

let draft = newSentence(); // what is being typed
let kept = null; // the line that was kept last
let latest = null; // cancels the question that was asked last
let pause = 0;
let edited = null; // system and place of the word that is being replaced
let restore = () => {}; // puts that word back
let isPressed = false; // whether a pointer is down
let later = null; // shows an answer once nobody types into a box

// `thread` cancels the question about a sentence that is under way, and knows which line
// and which forced words were asked for; copies share it.
function newSentence() {
  const prefixes = DATA.systems.map(() => '');
  return { index: null, line: '', prefixes, thread: { asking: null, asked: null } };
}

function startLive() {
  byId('nothing').replaceChildren(
    'Type a sentence above. Click a word of its translation to put another in its place: what comes after it is translated anew.',
  );
  byId('sharing').hidden = true; // an address has no sentence here
  byId('texts').ariaLive = 'polite'; // says what is translated
  on('line', 'input', () => {
    clearTimeout(pause);
    pause = setTimeout(translateDraft, PAUSE);
  });
  on('line', 'keydown', (event) => {
    if (event.key !== 'Enter' || composes(event)) return;
    event.preventDefault();
    keepDraft();
  });
  for (const kind of ['pointerdown', 'pointerup', 'pointercancel'])
    addEventListener(kind, () => (isPressed = kind === 'pointerdown'), true);
  on('ask', 'submit', (event) => {
    event.preventDefault();
    keepDraft();
  });
}

// Enter and Escape may be for an input method; Safari ends composing before them.
const composes = (event) => event.isComposing || event.keyCode === 229;

// Only a line feed ends a line, and a pasted text may hold some.
const typedLine = () => byId('line').value.replaceAll('\n', ' ');

function translateDraft() {
  const line = typedLine();
  if (line === draft.line) return;
  draft.line = line;
  draft.prefixes = DATA.systems.map(() => '');
  ask(draft);
}

// Its answer may still be under way; what is typed next does not cancel it.
function keepDraft() {
  clearTimeout(pause);
  if (draft.line || typedLine() !== kept) {
    translateDraft();
    kept = draft.line;
    if (draft.line) draft = newSentence();
  }
  byId('line').select();
}

// --- asking -----------------------------------------------------------------

async function ask(sentence) {
  const { line, prefixes, thread } = sentence;
  thread.asking?.abort();
  const mine = (latest = thread.asking = new AbortController());
  thread.asked = { line, prefixes };
  say('translating …');
  const slow = setTimeout(
    () =>
      latest === mine &&
      say('still translating: the first line of a length needs a program …'),
    SLOW,
  );
  try {
    // Not relative to the address of the page, which may hold a password.
    const reply = await fetch(new URL('explore', location.origin + location.pathname), {
      method: 'POST',
      headers: { 'Content-Type': 'application/json' },
      body: JSON.stringify({ line, prefixes }),
      signal: mine.signal,
    });
    const found = await reply.json();
    if (!reply.ok) throw new Error(found.error);
    if (latest === mine) say('');
    take(sentence, found, line, prefixes, latest === mine);
  } catch (error) {
    if (thread.asking !== mine) return;
    thread.asked = null;
    say(whyNot(error), true);
    for (const box of byId('texts').querySelectorAll('input')) box.readOnly = false;
    sentence.line = ''; // so that the same line is asked again
    if (kept === line) kept = null;
  } finally {
    clearTimeout(slow);
  }
}

const whyNot = (error) =>
  error instanceof TypeError || error instanceof SyntaxError
    ? 'The service does not answer.'
    : error.message;

function say(text, wrong = false) {
  byId('state').textContent = text;
  byId('state').classList.toggle('wrong', wrong);
}

// What is shown keeps the line that was answered: the draft's may be another by now.
function take(sentence, found, line, prefixes, isLatest) {
  sentence.index ??= DATA.sentences.length;
  const { index } = sentence;
  const shown = { ...sentence, line };
  DATA.sentences[index] = { ...found, number: index + 1, prefixes, sentence: shown };
  delete haystacks[index];
  buildList();
  if (!isLatest && index !== state.sentence) return;
  const show = () => {
    if (isLatest) state.sentence = index;
    showAll();
    if (isLatest) focusEdited();
  };
  later = null;
  if (!byId('texts').querySelector('input:not([readonly])')) return show();
  const seen = state.sentence; // who goes to another sentence meanwhile stays there
  later = () => state.sentence === seen && show();
}

function showLater() {
  const show = later;
  later = null;
  show?.();
}

// --- words that are forced --------------------------------------------------

const HAS_CJK = new RegExp(`[${CJK}]`, 'u');

const wordsOf = (text) =>
  [...text.matchAll(WORD)].map((match) => ({ text: match[0], start: match.index }));

// The words of a hypothesis, each of which can be clicked and replaced.
// What is under way may be answered meanwhile: a click is about what is shown.
hypothesisContent = function (system, text, units, marks) {
  const shown = DATA.sentences[state.sentence];
  const words = wordsOf(text);
  const parts = [];
  let end = 0;
  words.forEach((word, i) => {
    parts.push(
      text.slice(end, word.start),
      wordButton(shown, system, text, word, i, marksWithin(word, units, marks)),
    );
    end = endOf(word);
  });
  return [
    ...parts,
    text.slice(end),
    toolButton(
      '+',
      'Go on with other words (the end of the translation)',
      (button) => {
        const before = textBefore(shown, system, text, text.length);
        const between = HAS_CJK.test(before) && !text.includes(' ') ? '' : ' ';
        editWord(button, shown, system, before && before + between, '');
      },
      `${system} ${words.length}`,
    ),
    shown.prefixes[system]
      ? toolButton('free', 'Let the system choose all words again', () =>
          force(shown, system, ''),
        )
      : null,
  ];
};

const endOf = ({ text, start }) => start + text.length;

// What stands before a place. Of what was forced it is what was typed: an unknown word is
// shown otherwise, and would be read as yet another. The last one forced may go on.
function textBefore(shown, system, text, start) {
  const prefix = shown.prefixes[system];
  const { begun } = shown.outputs[system];
  if (!text.startsWith(begun)) return text.slice(0, start);
  if (start >= begun.length) return prefix + text.slice(begun.length, start);
  const [typed, spoken] = [wordsOf(prefix), wordsOf(begun)];
  const i = spoken.findIndex((word) => word.start === start);
  return typed.length === spoken.length && i >= 0
    ? prefix.slice(0, typed[i].start)
    : text.slice(0, start);
}

// No button of HTML: of these each stands alone, and words of another direction would
// not run that way.
function wordButton(shown, system, text, word, i, content) {
  const { begun } = shown.outputs[system];
  const edit = (event) => {
    const before = textBefore(shown, system, text, word.start);
    editWord(event.currentTarget, shown, system, before, word.text);
  };
  return element(
    'span',
    {
      role: 'button',
      tabindex: 0,
      class: word.start < begun.length ? 'spoken forced' : 'spoken',
      title: 'Put another word here',
      'data-place': `${system} ${i}`,
      onclick: edit,
      onkeydown: (event) => {
        if (event.key !== 'Enter' && event.key !== ' ') return;
        event.preventDefault();
        edit(event);
      },
    },
    content,
  );
}

const toolButton = (label, title, act, place = null) =>
  element(
    'button',
    {
      type: 'button',
      class: 'tool',
      title,
      'data-place': place,
      onclick: (event) => act(event.currentTarget),
    },
    label,
  );

// The marks of a hypothesis as they fall on one of its words.
function marksWithin({ text, start }, units, marks) {
  const inside = units
    .filter((unit) => unit.start >= start && unit.start < start + text.length)
    .map((unit) => ({ text: unit.text, start: unit.start - start }));
  const moved = Object.entries(marks).map(([kind, places]) => [
    kind,
    new Set([...places].map((place) => place - start)),
  ]);
  return markedText(text, inside, Object.fromEntries(moved));
}

// Puts a box in the place of a word; Enter forces what is in it and all before it.
function editWord(button, shown, system, before, word) {
  restore();
  const box = element('input', {
    type: 'text',
    value: word,
    size: Math.max(word.length, 6),
    dir: 'auto',
    'aria-label': 'Word to put here',
    onkeydown: (event) => {
      if (composes(event)) return;
      if (event.key === 'Escape') {
        restore();
        focusEdited();
        showLater();
      }
      if (event.key !== 'Enter') return;
      event.preventDefault();
      box.readOnly = true; // an answer may take its place
      force(shown, system, (before + box.value).trimEnd());
    },
    // Whoever leaves the window comes back to the box; a removed one is blurred, too.
    // Words stay where they are until a click on one is over.
    onblur: () => {
      if (!document.hasFocus()) return;
      if (isPressed) addEventListener('pointerup', leave, { once: true });
      else leave();
    },
  });
  const putBack = () => box.isConnected && box.replaceWith(button);
  const leave = () =>
    setTimeout(() => {
      putBack();
      if (!byId('texts').querySelector('input')) showLater();
    });
  restore = putBack;
  edited = button.dataset.place;
  button.replaceWith(box);
  box.select();
}

// Whoever uses keys goes on at the word, once its box is gone.
function focusEdited() {
  if (edited && document.activeElement === document.body)
    document.querySelector(`[data-place="${edited}"]`)?.focus();
  edited = null;
}

function force({ sentence, prefixes }, system, prefix) {
  const { asked } = sentence.thread; // words of another system may be under way
  // The line that was typed since is asked again, once somebody goes on with it.
  if (draft.thread === sentence.thread && draft.line !== sentence.line) draft.line = '';
  const others = asked?.line === sentence.line ? asked.prefixes : prefixes;
  ask({
    ...sentence,
    prefixes: others.map((other, i) => (i === system ? prefix : other)),
  });
}

startLive();
