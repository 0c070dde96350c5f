// SPDX-License-Identifier: Apache-2.0
// Source, hypotheses and reference, with the words that differ marked.

function showTexts() {
  const { number, source, reference } = DATA.sentences[state.sentence];
  const hypotheses = state.systems.map((system) =>
    unitsOf(outputOf(state.sentence, system).text),
  );
  const lines = [textLine('source', `source ${number}`, source)];
  state.systems.forEach((system, place) =>
    lines.push(hypothesisLine(system, place, hypotheses, reference)),
  );
  if (reference !== null) lines.push(referenceLine(reference, hypotheses));
  byId('texts').replaceChildren(...lines, explanation(reference));
}

// What a hypothesis is shown as; a live page has buttons in its place.
let hypothesisContent = (system, text, units, marks) => markedText(text, units, marks);

function hypothesisLine(system, place, hypotheses, reference) {
  const { text } = outputOf(state.sentence, system);
  const units = hypotheses[place];
  const marks = {};
  if (reference !== null) marks.unlike = differing(units, unitsOf(reference));
  if (hypotheses.length > 1) marks.apart = differing(units, hypotheses[1 - place]);
  const name = [
    element('abbr', { class: 'letter' }, letter(system)),
    DATA.systems[system].name,
  ];
  const content = hypothesisContent(system, text, units, marks);
  return textLine('hypothesis', name, text, content);
}

// With two systems a word is marked that neither of them has.
function referenceLine(reference, hypotheses) {
  const units = unitsOf(reference);
  const missing = hypotheses.map((others) => differing(units, others));
  const unlike = new Set(
    [...missing[0]].filter((start) => missing.every((set) => set.has(start))),
  );
  return textLine(
    'reference',
    'reference',
    reference,
    markedText(reference, units, { unlike }),
  );
}

function textLine(kind, name, text, content = [text]) {
  const empty = text.trim() ? null : element('em', {}, '(empty)');
  return element(
    'div',
    { class: `text ${kind}` },
    element('h2', {}, name),
    element('p', { dir: 'auto' }, empty, content),
  );
}

function markedText(text, units, marks) {
  const parts = [];
  let end = 0;
  for (const { start, stop, kinds } of markedRuns(units, marks)) {
    parts.push(
      text.slice(end, start),
      element('mark', { class: kinds }, text.slice(start, stop)),
    );
    end = stop;
  }
  return [...parts, text.slice(end)];
}

// Neighbours that are marked alike become one, with the space between them.
function markedRuns(units, marks) {
  const runs = [];
  let last = null;
  for (const { text, start } of units) {
    const kinds = Object.keys(marks)
      .filter((kind) => marks[kind].has(start))
      .join(' ');
    if (kinds && last?.kinds === kinds) last.stop = start + text.length;
    else runs.push((last = { start, stop: start + text.length, kinds }));
  }
  return runs.filter(({ kinds }) => kinds);
}

function explanation(reference) {
  const two = state.systems.length > 1;
  const notes = [];
  if (reference !== null)
    notes.push(
      element('mark', { class: 'unlike' }, 'dotted'),
      ' hypothesis and reference differ',
    );
  if (two)
    notes.push(
      element('mark', { class: 'apart' }, 'tinted'),
      ' the two systems differ',
    );
  return element('p', { class: 'legend' }, notes);
}
