// SPDX-License-Identifier: Apache-2.0
// Weights with signs, of memories that are read without a softmax, and what of each
// look the decoder has written itself.

const OWN = "decoder's own";

// One scale for the sentence, the same on both sides of zero.
const weightScale = (weights) =>
  greatest(weights.map(({ signed }) => signed.map((row) => row.map(Math.abs))));

const saySigned = (value) => `${value < 0 ? '\u2212' : '+'}${sayNorm(Math.abs(value))}`;

const hasOwn = (weights) => weights.some(({ own }) => own.some((share) => share > 0));

function weightsSection({ source, target, weights }, width, point, add) {
  const most = weightScale(weights);
  const labels = rowLabelWidth(target);
  const cell = cellSize(width, weights.length, source.length, target.length, labels);
  const shared = { rows: target, cell, labels };
  const tell = (t, s) => [
    `${target[t]} ← ${source[s]}`,
    weights.map(({ signed }, r) => [`weight ${r + 1}`, saySigned(signed[t][s])]),
  ];
  const figures = weights.map(({ signed }, r) => {
    const caption = `read of round ${r + 1}`;
    const shade = (value) => (most > 0 ? (1 + value / most) / 2 : 0.5);
    const paint = { name: 'signed', shade };
    const words = { columns: source, values: signed, caption, tell, point, paint };
    return add(matrixFigure({ ...shared, ...words }));
  });
  const note =
    'Exact weight of what each source word wrote in what was read; below zero it is taken away';
  return section('Signed weights', figures, null, [
    element('p', { class: 'note' }, note),
    element('p', { class: 'legend' }, signScale(most)),
  ]);
}

function ownSection({ target, weights }, width, point, add) {
  const labels = rowLabelWidth(target);
  const cell = cellSize(width, weights.length, 1, target.length, labels);
  const figures = weights.map(({ own }, r) =>
    add(
      matrixFigure({
        caption: `read of round ${r + 1}`,
        rows: target,
        columns: [OWN],
        values: own.map((share) => [share]),
        cell,
        labels,
        tell: (t) => [target[t], [[`${OWN} writes`, sayWeight(own[t])]]],
        point,
      }),
    ),
  );
  const note = "Share of what was read that the decoder's own writes had put there";
  return section('Own writes', figures, [heatScale('alignment', '1')], [
    element('p', { class: 'note' }, note),
  ]);
}

function signScale(most) {
  const colours = ramp('signed').join(', ');
  return element(
    'span',
    { class: 'scale', 'aria-hidden': 'true' },
    saySigned(-most),
    element('i', { style: `background: linear-gradient(to right, ${colours})` }),
    saySigned(most),
  );
}
