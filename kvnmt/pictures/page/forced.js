// SPDX-License-Identifier: Apache-2.0
// Words of a translation to force: each can be replaced; only in a live page.

const WORD = new RegExp(`[${CJK}]|(?:(?![${CJK}])\\S)+`, 'gu');
const HAS_CJK = new RegExp(`[${CJK}]`, 'u');

let edited = null; // system and place of the word that is being replaced
let restore = () => {}; // puts that word back
let isPressed = false; // whether a pointer is down

for (const kind of ['pointerdown', 'pointerup', 'pointercancel'])
  addEventListener(kind, () => (isPressed = kind === 'pointerdown'), true);

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
