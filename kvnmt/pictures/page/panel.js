// SPDX-License-Identifier: Apache-2.0
// What one system did with the sentence: its words, and every picture of them.

// Returns the element and `mark`, which moves all of it to a step.
function createPanel(system, width) {
  const output = outputOf(state.sentence, system);
  const figures = [];
  const add = (group, figure) => {
    figures.push({ ...figure, group });
    return figure.node;
  };
  // A column means a source word in one group of figures, an earlier word in another.
  const pointIn = (group) => (place) =>
    figures
      .filter((figure) => figure.group === group)
      .forEach((figure) => figure.aim(place));
  const strip = tokenStrip(output);
  const readout = element('div', {
    class: 'readout',
    'aria-live': 'polite',
    'aria-atomic': 'true',
  });
  const values = valuesOf(output);
  const ofSource = [pointIn('source'), (figure) => add('source', figure)];
  const ofTarget = [pointIn('target'), (figure) => add('target', figure)];
  const addOwn = (figure) => add('own', figure);
  const pictures = [
    alignmentSection(output, width, ...ofSource),
    output.weights && weightsSection(output, width, ...ofSource, addOwn),
    output.memory && memorySection(output, width, ...ofSource),
    output.self_attention && selfSection(output, width, ...ofTarget),
  ];
  const node = element(
    'section',
    { class: 'panel', 'aria-label': DATA.systems[system].name },
    panelHeading(system, output),
    strip,
    readout,
    element('div', {}, pictures, values.node),
  );

  function mark() {
    const t = clampedStep(output);
    showChip(strip, t);
    readout.replaceChildren(...sayStep(output, t));
    figures.forEach((figure) => figure.mark(t));
    values.mark(t);
  }

  return { node, mark };
}

function panelHeading(system, { log_prob: log, score, target }) {
  const facts = [
    score === null ? null : `chrF ${sayScore(score)}`,
    `log-prob ${sayLog(log)}, ${sayLog(log === null ? null : log / target.length)} per token`,
    plural(target.length, 'token'),
  ];
  return element(
    'header',
    {},
    element(
      'h2',
      {},
      element('abbr', { class: 'letter' }, letter(system)),
      DATA.systems[system].name,
    ),
    element('p', {}, facts.filter(Boolean).join(' · ')),
    ensembleNote(DATA.systems[system]),
  );
}

function ensembleNote({ members }) {
  if (!(members > 1)) return null;
  const note =
    `${members} models as one: an alignment is a mean of theirs. ` +
    'What each of them keeps in a memory or looks back at is not shown.';
  return element('p', { class: 'note members' }, note);
}

// --- words of the target ----------------------------------------------------

// A click is a shortcut for the pointer; with keys the slider does the same.
function tokenStrip({ target, token_log_probs: logs }) {
  const chips = target.map((word, t) =>
    element(
      'span',
      { class: 'chip', onclick: () => goTo(t) },
      element('bdi', {}, word || '\u00a0'),
      element('i', { style: `width: ${100 * Math.exp(logs[t] ?? 0)}%` }),
    ),
  );
  chips.forEach((chip, t) => {
    chip.addEventListener('pointermove', (event) =>
      showTip(event, `${t + 1} ${isolated(target[t])}`, [
        ['log-prob', sayLog(logs[t])],
        ['probability', sayProbability(logs[t])],
      ]),
    );
    chip.addEventListener('pointerleave', hideTip);
  });
  return element('div', { class: 'chips', 'aria-hidden': 'true' }, chips);
}

function showChip(strip, t) {
  [...strip.children].forEach((chip, i) => chip.classList.toggle('current', i === t));
  scrollToNode(strip, strip.children[t]);
}

// --- pictures ---------------------------------------------------------------

const DOES_NOT_ALIGN =
  'This system does not align: it reads the source without attending to its words.';

function alignmentSection(output, width, point, add) {
  if (!output.rounds.length)
    return section('Alignment', [element('p', { class: 'none' }, DOES_NOT_ALIGN)]);
  const { source, target, rounds } = output;
  const tell = (t, s) => [
    lookOf(target[t], source[s]),
    rounds.map((matrix, r) => [`round ${r + 1}`, sayWeight(matrix[t][s])]),
  ];
  return state.view === 'links'
    ? linksSection(output, tell, add)
    : matrixSection(output, width, tell, point, add);
}

const roundCaption = (rounds, r) => `round ${r + 1} of ${rounds.length}`;

function linksSection(output, tell, add) {
  const { source, target, rounds } = output;
  const r = shownOf(output.rounds.length);
  const caption = roundCaption(rounds, r);
  const figure = linksFigure({ caption, source, target, values: rounds[r], tell });
  return section('Alignment', [add(figure)], ['weights below 0.050 are not drawn']);
}

function matrixSection({ source, target, rounds }, width, tell, point, add) {
  const labels = rowLabelWidth(target);
  const cell = cellSize(width, rounds.length, source.length, target.length, labels);
  const shared = { rows: target, columns: source, cell, labels, tell, point };
  const moves = rounds.map((_, r) => movedCells(rounds, r));
  const figures = rounds.map((values, r) => {
    const caption = roundCaption(rounds, r);
    return add(matrixFigure({ ...shared, caption, values, dots: moves[r] }));
  });
  const key = element(
    'span',
    { class: 'key moved-dot' },
    'strongest word moved since the round before',
  );
  const isMoved = moves.some((dots) => dots.length);
  return section('Alignment', figures, [
    heatScale('alignment', '1'),
    isMoved ? key : null,
  ]);
}

function memorySection({ source, target, memory }, width, point, add) {
  const most = memoryScale(memory);
  const labels = rowLabelWidth(target);
  const cell = cellSize(width, memory.length, source.length, target.length, labels);
  const shared = { source, target, most, cell, labels, point };
  const figures = memory.map((round, r) => {
    const tell = (t, s) => [
      `${isolated(source[s])} as ${isolated(target[t])} is predicted`,
      KINDS.map((kind) => [kind, sayNorm(round[kind][t][s])]),
    ];
    const caption = `write of round ${r + 1}`;
    return add(memoryFigure({ ...shared, caption, round, tell }));
  });
  const note =
    'Size (L2 norm) of what the write of a step did to the key of each source word: of the step that predicts the target word, after its look. What a round writes, the next one reads.';
  return section('Key memory', figures, null, [
    element('p', { class: 'note' }, note),
    memoryLegend(most),
  ]);
}

function selfSection({ target, self_attention: looks }, width, point, add) {
  const columns = earlierWords(target);
  const labels = rowLabelWidth(target);
  const cell = cellSize(width, looks.length, columns.length, target.length, labels);
  const tell = (t, i) => [
    lookOf(target[t], columns[i]),
    looks.map((values, n) => [nameOfLook(looks, n), sayWeight(values[t][i])]),
  ];
  const shared = { rows: target, columns, cell, labels, tell, point };
  const figures = looks.map((values, n) =>
    add(
      matrixFigure({
        ...shared,
        values,
        caption: `${nameOfLook(looks, n)}: target words by earlier target words`,
        isBlank: (t, i) => i > t,
      }),
    ),
  );
  return section('Self-attention', figures, [heatScale('alignment', '1')]);
}

// A decoder and a target context may both look back, in this order.
const nameOfLook = (looks, n) =>
  looks.length > 1 ? `self-attention ${n + 1}` : 'self-attention';

function section(title, figures, legend = null, before = []) {
  return element(
    'section',
    {},
    element('h3', {}, title),
    before,
    element('div', { class: 'figures' }, figures),
    legend && legend.some(Boolean) ? element('p', { class: 'legend' }, legend) : null,
  );
}
