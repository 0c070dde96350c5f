// SPDX-License-Identifier: Apache-2.0
// What the write of a step, which predicts a word, did to each source word's key.

const KINDS = ['changed', 'forgotten', 'added'];
const BARS = 76; // pixels, the height of the longest bar

// One scale for the sentence: the largest norm in any round, step and slot.
const memoryScale = (memory) =>
  Math.max(...KINDS.flatMap((kind) => memory.map((round) => greatest([round[kind]]))));

function memoryFigure({
  caption,
  source,
  target,
  round,
  most,
  cell,
  labels,
  tell,
  point,
}) {
  const across = columnLabels(source, cell);
  const bars = barChart(source.length, cell, caption);
  const strip = changeStrip({
    round,
    most,
    cell,
    target,
    source,
    tell,
    point,
    caption,
  });
  const axis = element(
    'div',
    {
      class: 'axis',
      style: `width: ${labels}px; height: ${BARS}px`,
      'aria-hidden': 'true',
    },
    element('span', {}, sayNorm(most)),
    element('span', {}, '0'),
  );
  const side = element(
    'div',
    { class: 'strip-label', style: `width: ${labels}px`, 'aria-hidden': 'true' },
    'all steps',
  );
  const scroller = element(
    'div',
    { class: 'scroller', tabindex: '-1' },
    element('div', { class: 'corner' }, element('span', {}, 'this step')),
    across,
    axis,
    bars.node,
    side,
    strip.node,
  );
  bars.node.addEventListener('pointerleave', () => {
    hideTip();
    point(null);
  });
  bars.node.addEventListener('pointermove', (event) => {
    const s = Math.floor(
      (event.clientX - bars.node.getBoundingClientRect().left) / cell,
    );
    if (s < 0 || s >= source.length) return;
    point([strip.step, s]);
    showTip(event, ...tell(strip.step, s));
  });

  function mark(t) {
    bars.set(
      KINDS.map((kind) => round[kind][t]),
      most,
    );
    strip.mark(t);
    const mostChanged = strongest(round.changed[t]);
    emphasize(across, mostChanged, 'strong');
    keepInView(scroller, axis.offsetWidth, 0, [0, mostChanged], cell);
  }

  function aim(place) {
    emphasize(across, place ? place[1] : -1, 'aimed');
    bars.aim(place ? place[1] : -1);
  }

  const node = element(
    'figure',
    { class: 'memory' },
    element('figcaption', {}, caption),
    scroller,
  );
  return { node, mark, aim };
}

// --- bars of one step -------------------------------------------------------

function barChart(slots, cell, caption) {
  const width = Math.max(2, Math.floor((cell - 4) / 3));
  const left = (cell - 3 * width) / 2;
  const band = svg('rect', {
    class: 'band',
    width: cell,
    height: BARS,
    y: 0,
    x: -cell,
  });
  const groups = Array.from({ length: slots }, (_, s) =>
    svg(
      'g',
      {},
      KINDS.map((kind, i) =>
        svg('rect', {
          class: kind,
          x: s * cell + left + i * width,
          width: width - 0.5,
          y: BARS,
          height: 0,
        }),
      ),
    ),
  );
  const node = svg(
    'svg',
    {
      class: 'bars',
      width: slots * cell,
      height: BARS + 1,
      role: 'img',
      'aria-label': `${caption}: what this step changed, forgot and added, a group of bars for each source word`,
    },
    band,
    groups,
    svg('line', { class: 'base', x2: slots * cell, y1: BARS + 0.5, y2: BARS + 0.5 }),
  );
  const aim = (s) => band.setAttribute('x', s * cell);
  const set = (values, most) =>
    groups.forEach((group, s) =>
      values.forEach((norms, i) => {
        const height = most > 0 ? (norms[s] / most) * BARS : 0;
        group.children[i].setAttribute('height', height.toFixed(2));
        group.children[i].setAttribute('y', (BARS - height).toFixed(2));
      }),
    );
  return { node, set, aim };
}

// --- all steps --------------------------------------------------------------

function changeStrip({ round, most, cell, target, source, tell, point, caption }) {
  const height = Math.min(Math.max(Math.round(150 / target.length), 3), 8);
  const canvas = cellCanvas(
    target.length,
    source.length,
    cell,
    height,
    (t, s, colour) => colour(most > 0 ? round.changed[t][s] / most : 0),
    'changed',
  );
  canvas.setAttribute(
    'aria-label',
    `${caption}: what each step changed, ${target.length} steps by ${source.length} source words`,
  );
  const row = element('div', { class: 'row-mark', style: `height: ${height}px` });
  const node = element('div', { class: 'cells strip' }, canvas, row);
  listen(node, canvas, cell, height, { tell, point });
  const strip = { node, step: 0 };
  strip.mark = (t) => {
    strip.step = t;
    row.style.top = `${t * height}px`;
  };
  return strip;
}

function memoryLegend(most) {
  const names = KINDS.map((kind) => element('span', { class: `key ${kind}` }, kind));
  return element(
    'p',
    { class: 'legend' },
    names,
    element('span', { class: 'apart' }, 'changed', heatScale('changed', sayNorm(most))),
  );
}
