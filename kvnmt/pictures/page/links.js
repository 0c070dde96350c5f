// SPDX-License-Identifier: Apache-2.0
// The alignment of one round as curves between two lines of words.

const LINKS = { size: 14, gap: 18, height: 210, margin: 10, least: 50 }; // least: per mille

function linksFigure({ caption, source, target, values, tell }) {
  const width = Math.max(lineWidth(source), lineWidth(target));
  const above = spread(source, width);
  const below = spread(target, width);
  const rows = target.map((_, t) => curvesOf(t, values[t], above, below, tell));
  const tops = source.map((word, s) => linkWord(word, above[s], 18, 'source-word'));
  const bottoms = target.map((word, t) =>
    linkWord(word, below[t], LINKS.height - 8, 'target-word', () => goTo(t)),
  );
  const picture = svg(
    'svg',
    {
      width: width + 2 * LINKS.margin,
      height: LINKS.height,
      role: 'img',
      'aria-label': `${caption}: links from source to target words`,
    },
    svg('g', { class: 'curves' }, rows),
    svg('g', {}, tops),
    svg('g', {}, bottoms),
  );
  const scroller = element('div', { class: 'scroller wide', tabindex: '-1' }, picture);
  let current = 0;

  const spotlight = (chosen) => {
    rows.forEach((row, t) => {
      for (const curve of row.children)
        curve.classList.toggle('lit', chosen(t, Number(curve.dataset.s)));
    });
  };
  const rest = () => {
    hideTip();
    spotlight((t) => t === current);
  };
  tops.forEach((node, s) =>
    hoverWord(node, rest, (event) => {
      spotlight((_, other) => other === s);
      showTip(event, isolated(source[s]), readers(values, s, target));
    }),
  );
  bottoms.forEach((node, t) =>
    hoverWord(node, rest, (event) => {
      spotlight((other) => other === t);
      const heading = `${t + 1} ${isolated(target[t])}`;
      showTip(event, heading, topWords(values[t], source.map(isolated)));
    }),
  );

  function mark(t) {
    current = t;
    rest();
    rows[t].parentNode.append(rows[t]);
    bottoms.forEach((node, i) => node.classList.toggle('current', i === t));
    tops.forEach((node, s) => {
      node.classList.toggle('read', values[t][s] >= LINKS.least);
      node.classList.toggle('strong', s === strongest(values[t]));
    });
    const centre = below[t] + LINKS.margin - scroller.clientWidth / 2;
    if (Math.abs(centre - scroller.scrollLeft) > scroller.clientWidth / 2 - 40)
      scroller.scrollLeft = centre;
  }

  const node = element(
    'figure',
    { class: 'links' },
    element('figcaption', {}, caption),
    scroller,
  );
  return { node, mark, aim: () => {} };
}

// --- places of words --------------------------------------------------------

const widths = (words) => words.map((word) => textWidth(word, LINKS.size));

const lineWidth = (words) =>
  widths(words).reduce((sum, width) => sum + width + LINKS.gap, -LINKS.gap);

// Centres of the words; a shorter line is given wider gaps to end with the longer one.
function spread(words, width) {
  const sizes = widths(words);
  const taken = sizes.reduce((sum, size) => sum + size, 0);
  if (words.length === 1) return [width / 2];
  const gap = (width - taken) / (words.length - 1);
  let left = -gap;
  return sizes.map((size) => {
    left += gap + size;
    return left - size / 2;
  });
}

function linkWord(word, x, y, kind, onclick = null) {
  const text = svg(
    'text',
    { class: kind, x: x + LINKS.margin, y, 'text-anchor': 'middle' },
    isolated(word),
  );
  if (onclick) text.addEventListener('click', onclick);
  return text;
}

// --- curves -----------------------------------------------------------------

function curvesOf(t, row, above, below, tell) {
  const curves = [];
  row.forEach((weight, s) => {
    if (weight >= LINKS.least)
      curves.push(curve(t, s, weight / 1000, above[s], below[t], tell));
  });
  return svg('g', {}, curves);
}

function curve(t, s, weight, from, to, tell) {
  const [x, y] = [from + LINKS.margin, to + LINKS.margin];
  const [top, bottom] = [28, LINKS.height - 26];
  const middle = (top + bottom) / 2;
  const path = svg('path', {
    d: `M${x.toFixed(1)} ${top}C${x.toFixed(1)} ${middle} ${y.toFixed(1)} ${middle} ${y.toFixed(1)} ${bottom}`,
    'stroke-width': (1 + 3.5 * weight).toFixed(2),
    'stroke-opacity': (0.12 + 0.88 * weight).toFixed(3),
    'data-s': s,
  });
  path.addEventListener('pointermove', (event) => showTip(event, ...tell(t, s)));
  path.addEventListener('pointerleave', hideTip);
  return path;
}

function hoverWord(node, rest, show) {
  node.addEventListener('pointermove', show);
  node.addEventListener('pointerleave', rest);
}

// Target words that look at source word s, those that look most first.
function readers(values, s, target) {
  const found = target
    .map((word, t) => [`${t + 1} ${isolated(word)}`, values[t][s]])
    .filter(([, weight]) => weight >= LINKS.least);
  if (!found.length) return ['read by no word with 0.050 or more'];
  return found
    .sort((a, b) => b[1] - a[1])
    .slice(0, 6)
    .map(([word, weight]) => [word, sayWeight(weight)]);
}
