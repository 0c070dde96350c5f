// SPDX-License-Identifier: Apache-2.0
// Weights with signs, of memories that are read without a softmax, and what of each
// look the decoder has written itself.

const OWN = "decoder's own writes";

// One scale for the sentence, the same on both sides of zero.
const weightScale = (weights) =>
  greatest(headsOf(weights).map(({ values }) => values.map((row) => row.map(Math.abs))));

// Every head of every round, and what it is called.
const headsOf = (weights) =>
  weights.flatMap(({ signed }, r) =>
    signed.map((values, n) => ({
      values,
      round: r,
      name: signed.length > 1 ? `${r + 1}, head ${n + 1}` : `${r + 1}`,
    })),
  );

const saySigned = (value) => `${value < 0 ? '\u2212' : '+'}${sayNorm(Math.abs(value))}`;

const hasOwn = (weights) => weights.some(({ own }) => own.some((share) => share > 0));

// The share of the decoder's own writes stands beside the weights, as one more column.
function weightsSection({ source, target, weights }, width, point, add, addOwn) {
  const most = weightScale(weights);
  const labels = rowLabelWidth(target);
  const room = width - (hasOwn(weights) ? weights.length * (labels + CELLS.most) : 0);
  const heads = headsOf(weights);
  const cell = cellSize(room, heads.length, source.length, target.length, labels);
  const shared = { rows: target, cell, labels };
  const tell = (t, s) => [
    lookOf(target[t], source[s]),
    heads.map(({ name, values }) => [`weight ${name}`, saySigned(values[t][s])]),
  ];
  const shade = (value) => (most > 0 ? (1 + value / most) / 2 : 0.5);
  const paint = { name: 'signed', shade };
  const readFigure = ({ name, values }) => {
    const words = { columns: source, values, tell, point, paint };
    return add(matrixFigure({ ...shared, ...words, caption: `read of round ${name}` }));
  };
  const figures = weights.flatMap(({ own }, r) => {
    const reads = heads.filter(({ round }) => round === r).map(readFigure);
    return hasOwn(weights) ? [...reads, addOwn(ownFigure(shared, own))] : reads;
  });
  const note =
    'Exact weight of what each source word wrote in what was read; below zero it is taken away';
  const ownScale = element('span', { class: 'apart' }, OWN, heatScale('alignment', '1'));
  return section('Signed weights', figures, null, [
    element('p', { class: 'note' }, note),
    element(
      'p',
      { class: 'legend' },
      heatScale('signed', saySigned(most), saySigned(-most)),
      hasOwn(weights) ? ownScale : null,
    ),
  ]);
}

function ownFigure(shared, own) {
  return matrixFigure({
    ...shared,
    caption: OWN,
    columns: ['own'],
    values: own.map((share) => [share]),
    tell: (t) => [shared.rows[t], [[OWN, sayWeight(own[t])]]],
    point: () => {},
  });
}
