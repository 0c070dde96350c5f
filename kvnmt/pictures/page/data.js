// SPDX-License-Identifier: Apache-2.0
// The data as it was written, what follows from it, and how numbers are said.

const DATA = JSON.parse(document.getElementById('data').textContent);

const letter = (system) => String.fromCharCode(65 + (system % 26));

const outputOf = (sentence, system) => DATA.sentences[sentence].outputs[system];

// --- numbers ----------------------------------------------------------------

const NONE = '–';

const minus = (text) => text.replace('-', '\u2212');

const sayScore = (score) => (score === null ? NONE : score.toFixed(1));

const sayLog = (value) => (value === null ? NONE : minus(value.toFixed(2)));

const sayProbability = (log) => (log === null ? NONE : Math.exp(log).toFixed(3));

const sayWeight = (perMille) => (perMille / 1000).toFixed(3);

function sayNorm(value) {
  if (value === 0) return '0';
  if (value < 0.001) return '<0.001';
  return value.toFixed(value >= 100 ? 0 : value >= 10 ? 1 : value >= 1 ? 2 : 3);
}

const plural = (count, noun) => `${count} ${noun}${count === 1 ? '' : 's'}`;

// --- rows of weights --------------------------------------------------------

const strongest = (row) => row.indexOf(Math.max(...row));

// Weights are thousandths: of several that are alike here, who knows which is greatest.
function isTied(row) {
  const most = Math.max(...row);
  return row.indexOf(most) !== row.lastIndexOf(most);
}

function hasMoved(before, after) {
  return !isTied(before) && !isTied(after) && strongest(before) !== strongest(after);
}

// Where target word t looks at another word most than in the round before.
function movedCells(rounds, round) {
  if (round === 0) return [];
  const cells = rounds[round].map((row, t) => [t, strongest(row)]);
  return cells.filter(([t]) => hasMoved(rounds[round - 1][t], rounds[round][t]));
}

// The few words that most of the weight is on, the strongest first.
function topWords(row, words) {
  const order = [...row.keys()].sort((a, b) => row[b] - row[a]).slice(0, 4);
  return order
    .filter((i, rank) => rank === 0 || row[i] >= 50)
    .map((i) => [words[i], sayWeight(row[i])]);
}

const greatest = (matrices) =>
  matrices.flat(2).reduce((most, value) => Math.max(most, value), 0);

// Column 0 of self-attention stands before the first word.
const earlierWords = (target) => ['(start)', ...target.slice(0, -1)];

// --- words that differ ------------------------------------------------------

const CJK = '\\p{Script=Han}\\p{Script=Hiragana}\\p{Script=Katakana}';
const UNIT = new RegExp(`[${CJK}]|(?:(?![${CJK}])[\\p{L}\\p{M}\\p{N}'’-])+|\\S`, 'gu');

// The words of a text, each with its place; Chinese and Japanese by character.
const unitsOf = (text) =>
  [...text.matchAll(UNIT)].map((match) => ({ text: match[0], start: match.index }));

// Units of one text outside of a longest common subsequence with the other.
function differing(units, others) {
  const table = commonLengths(units, others);
  const different = new Set();
  let j = 0;
  for (let i = 0; i < units.length; i++) {
    while (
      j < others.length &&
      units[i].text !== others[j].text &&
      table[i][j + 1] >= table[i + 1][j]
    )
      j++;
    if (j < others.length && units[i].text === others[j].text) j++;
    else different.add(units[i].start);
  }
  return different;
}

// table[i][j]: length of the longest common subsequence of what begins at i and j.
function commonLengths(units, others) {
  const table = Array.from(
    { length: units.length + 1 },
    () => new Uint16Array(others.length + 1),
  );
  for (let i = units.length - 1; i >= 0; i--)
    for (let j = others.length - 1; j >= 0; j--)
      table[i][j] =
        units[i].text === others[j].text
          ? table[i + 1][j + 1] + 1
          : Math.max(table[i + 1][j], table[i][j + 1]);
  return table;
}
