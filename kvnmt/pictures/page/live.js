// SPDX-License-Identifier: Apache-2.0
// A line to type in, and what the service answers; only in a live page.

const PAUSE = 150; // milliseconds without a key, after which the line is translated
const SLOW = 1200; // ... after which it is told why it takes long

let draft = newSentence(); // what is being typed
let kept = null; // the line that was kept last
let latest = null; // cancels the question that was asked last
let pause = 0;
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

startLive();
