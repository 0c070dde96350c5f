// SPDX-License-Identifier: Apache-2.0
// What is shown; it is kept in the address, so that a view can be linked and reloaded.

const state = {};

function readState() {
  const given = new URLSearchParams(location.hash.slice(1));
  const number = Number(given.get('sentence'));
  state.sort = readSort(given.get('sort'));
  state.reversed = given.has('reversed');
  state.filter = given.get('filter') || '';
  state.systems = readSystems(given.get('systems'));
  state.step = Math.max(0, (Number.parseInt(given.get('step'), 10) || 1) - 1);
  state.view = given.get('view') === 'links' ? 'links' : 'matrix';
  state.round = readRound(given.get('round'));
  state.theme = ['light', 'dark'].includes(given.get('theme'))
    ? given.get('theme')
    : null;
  state.hasSingleKeys = given.get('keys') !== 'off';
  state.sentence = DATA.sentences.findIndex((sentence) => sentence.number === number);
  if (state.sentence < 0) state.sentence = arranged()[0] ?? 0;
}

function readSort(key) {
  const known = sortings();
  return (known.find((one) => one.key === key) ?? known[0]).key;
}

function readSystems(text) {
  const known = (text || '').split(',').map((name) => Number(name) - 1);
  const chosen = known.filter(
    (system, i) => system in DATA.systems && known.indexOf(system) === i,
  );
  return chosen.length
    ? chosen.slice(0, 2)
    : [0, 1].filter((system) => system in DATA.systems);
}

// Counted from 0; null is the last round of each system, the one that is read.
function readRound(text) {
  const round = Number.parseInt(text, 10) - 1;
  return round >= 0 && round < mostRounds(DATA.systems.keys()) ? round : null;
}

const mostRounds = (systems) =>
  Math.max(0, ...[...systems].map((system) => DATA.systems[system].rounds));

function address() {
  const parts = {
    sentence: DATA.sentences[state.sentence]?.number ?? '',
    systems: state.systems.map((system) => system + 1).join(','),
    step: state.step + 1,
    view: state.view,
  };
  if (state.round !== null) parts.round = state.round + 1;
  if (state.sort !== sortings()[0].key) parts.sort = state.sort;
  if (state.reversed) parts.reversed = 1;
  if (state.filter) parts.filter = state.filter;
  if (state.theme) parts.theme = state.theme;
  if (!state.hasSingleKeys) parts.keys = 'off';
  return `#${new URLSearchParams(parts).toString().replaceAll('%2C', ',')}`;
}

// A page inside another, such as a notebook's cell, has no address of its own.
const hasAddress = location.protocol !== 'about:';
let saving = 0;

// Browsers refuse hundreds of changes of the address in a few seconds.
function keepAddress() {
  if (!hasAddress) return;
  clearTimeout(saving);
  saving = setTimeout(() => history.replaceState(null, '', address()), 120);
}

// --- steps ------------------------------------------------------------------

const stepCount = () =>
  Math.max(
    1,
    ...state.systems.map((system) => outputOf(state.sentence, system).target.length),
  );

const clampedStep = (output) => Math.min(state.step, output.target.length - 1);

const shownOf = (rounds) => Math.min(state.round ?? Infinity, rounds - 1);

// --- the order of the sentences ---------------------------------------------

// What sentences can be sorted by; `words` name the descending and the ascending order.
function sortings() {
  const difference = {
    key: 'difference',
    label: 'difference',
    value: (sentence) => sentence.difference,
    descending: true,
    words: ['largest first', 'smallest first'],
  };
  const number = {
    key: 'number',
    label: 'line number',
    value: (sentence) => sentence.number,
    descending: false,
    words: ['last first', 'in order'],
  };
  const length = {
    key: 'length',
    label: 'length of the source',
    value: ({ source, outputs }) => outputs[0]?.source.length ?? source.length,
    descending: false,
    words: ['longest first', 'shortest first'],
  };
  const scores = DATA.systems
    .map(scoreSorting)
    .filter(({ value }) => DATA.sentences.some((sentence) => value(sentence) !== null));
  return [...(DATA.systems.length > 1 ? [difference] : []), number, ...scores, length];
}

const scoreSorting = ({ name }, i) => ({
  key: `score-${i + 1}`,
  label: `score of ${letter(i)} ${name}`,
  value: (sentence) => sentence.outputs[i].score,
  descending: false,
  words: ['best first', 'worst first'],
});

const sorting = () => sortings().find(({ key }) => key === state.sort);

const isDescending = () => sorting().descending !== state.reversed;

// Indices of the sentences that pass the filter, sorted; without a score last.
function arranged() {
  const { value } = sorting();
  const sign = isDescending() ? -1 : 1;
  const wanted = state.filter.trim().toLowerCase();
  const found = DATA.sentences.map((sentence, index) => ({
    index,
    key: value(sentence),
  }));
  return found
    .filter(({ index }) => !wanted || haystack(index).includes(wanted))
    .sort((a, b) => compareKeys(a.key, b.key, sign) || a.index - b.index)
    .map(({ index }) => index);
}

function compareKeys(a, b, sign) {
  if (a === null || b === null) return (a === null) - (b === null);
  return sign * (a - b);
}

const haystacks = [];

function haystack(index) {
  const { source, reference, outputs } = DATA.sentences[index];
  haystacks[index] ??= [source, reference ?? '', ...outputs.map(({ text }) => text)]
    .join('\n')
    .toLowerCase();
  return haystacks[index];
}
