// SPDX-License-Identifier: Apache-2.0
// A matrix of weights: words on both axes, cells on a canvas, marks laid over it.

const LABEL = 12; // pixels of text beside rows and above columns
const CELLS = { least: 12, most: 24 };
const SEEN = 0.78; // of the window's height, in the style too
const GAP = 20; // pixels between figures
const LARGEST = { side: 16384, area: 8e6 }; // pixels of a device on a canvas

// Cells as large as fit, all figures side by side if that leaves them readable; no
// larger than lets all rows be seen at once, while that leaves them readable too.
function cellSize(width, figures, columns, rows, labels) {
  const inOneRow = (count) =>
    Math.floor((width - (count - 1) * GAP - count * labels) / (count * columns)) || 0;
  const together = inOneRow(figures);
  const cell = together >= CELLS.least ? together : inOneRow(1);
  const inHeight = Math.floor((SEEN * innerHeight - 130) / rows);
  return Math.min(Math.max(Math.min(cell, inHeight), CELLS.least), CELLS.most);
}

const rowLabelWidth = (words) =>
  Math.round(Math.min(Math.max(1.1 * widest(words, LABEL), 44), 120)) + 12;

/* A figure with `rows` x `columns` cells of `values[t][s]` per mille.

   `paint` names a ramp and gives a value's place on it, if values are no weights per
   mille; `dots` are cells to mark; `isBlank(t, s)` are cells that cannot be; `tell(t, s)` gives
   heading and lines of the tooltip; `point` is called with the cell under the pointer or
   with null. The figure can `mark` a row as the current one and `aim` at a cell. */
function matrixFigure(options) {
  const { caption, rows, columns, values, cell, labels } = options;
  const across = columnLabels(columns, cell);
  const down = rowLabels(rows, cell, labels);
  const canvas = weightCanvas(options);
  const row = element('div', { class: 'row-mark', style: `height: ${cell}px` });
  const size = `width: ${cell}px; height: ${cell}px`;
  const aimed = element('div', { class: 'cell-mark', style: size, hidden: true });
  const field = element('div', { class: 'cells' }, canvas, row, aimed);
  const corner = element('div', { class: 'corner' });
  const scroller = element(
    'div',
    { class: 'scroller', tabindex: '-1' },
    corner,
    across,
    down,
    field,
  );
  listen(field, canvas, cell, cell, options);

  function mark(t) {
    const s = strongest(values[t].map(Math.abs));
    row.style.top = `${t * cell}px`;
    emphasize(down, t, 'current');
    emphasize(across, s, 'strong');
    keepInView(scroller, down.offsetWidth, across.offsetHeight, [t, s], cell);
  }

  function aim(place) {
    const [t, s] = place ?? [-1, -1];
    aimed.hidden = !place;
    aimed.style.top = `${t * cell}px`;
    aimed.style.left = `${s * cell}px`;
    emphasize(down, t, 'aimed');
    emphasize(across, s, 'aimed');
  }

  const node = element('figure', {}, element('figcaption', {}, caption), scroller);
  return { node, mark, aim };
}

const PER_MILLE = { name: 'alignment', shade: (value) => value / 1000 };

function weightCanvas(options) {
  const { caption, rows, columns, values, cell, isBlank } = options;
  const { dots = [], paint = PER_MILLE } = options;
  const colourOf = (t, s, colour) =>
    isBlank?.(t, s) ? null : colour(paint.shade(values[t][s]));
  const canvas = cellCanvas(
    rows.length,
    columns.length,
    cell,
    cell,
    colourOf,
    paint.name,
  );
  drawDots(canvas, dots, cell);
  const size = `${rows.length} target words by ${columns.length} words`;
  canvas.setAttribute('aria-label', `${caption}: ${size}`);
  return canvas;
}

// --- labels -----------------------------------------------------------------

function columnLabels(words, cell) {
  const labels = words.map((word) =>
    element(
      'span',
      { class: isWide(word) ? 'upright' : 'turned', title: word, dir: 'auto' },
      word,
    ),
  );
  return element(
    'div',
    { class: 'across', style: `--cell: ${cell}px`, 'aria-hidden': 'true' },
    labels,
  );
}

function rowLabels(words, cell, width) {
  const labels = words.map((word, t) =>
    element('span', { title: word, dir: 'auto', onclick: () => goTo(t) }, word),
  );
  const style = `--cell: ${cell}px; width: ${width}px`;
  return element('div', { class: 'down', style, 'aria-hidden': 'true' }, labels);
}

function emphasize(labels, place, name) {
  for (const node of labels.querySelectorAll(`.${name}`)) node.classList.remove(name);
  labels.children[place]?.classList.add(name);
}

// --- cells ------------------------------------------------------------------

// `colourOf(t, s, colour)` returns a colour, or null to leave the cell out.
function cellCanvas(rows, columns, width, height, colourOf, name) {
  // Browsers draw nothing on a canvas that is larger.
  const side = LARGEST.side / Math.max(columns * width, rows * height);
  const area = Math.sqrt(LARGEST.area / (columns * width * rows * height));
  const ratio = Math.min(devicePixelRatio || 1, side, area);
  const canvas = element('canvas', {
    role: 'img',
    width: Math.round(columns * width * ratio),
    height: Math.round(rows * height * ratio),
    style: `width: ${columns * width}px; height: ${rows * height}px`,
  });
  const context = canvas.getContext('2d');
  context.scale(ratio, ratio);
  const colour = heat(name);
  const gap = height > 8 ? 1 : 0;
  for (let t = 0; t < rows; t++)
    for (let s = 0; s < columns; s++) {
      context.fillStyle = colourOf(t, s, colour) ?? 'transparent';
      context.fillRect(s * width, t * height, width - gap, height - gap);
    }
  return canvas;
}

function drawDots(canvas, dots, cell) {
  const context = canvas.getContext('2d');
  context.fillStyle = isDark() ? '#ff6fb5' : '#c51b7d';
  context.strokeStyle = isDark() ? '#14181d' : '#ffffff';
  context.lineWidth = 1.5;
  for (const [t, s] of dots) {
    context.beginPath();
    context.arc(
      (s + 0.5) * cell - 0.5,
      (t + 0.5) * cell - 0.5,
      cell * 0.17 + 0.5,
      0,
      2 * Math.PI,
    );
    context.stroke();
    context.fill();
  }
}

// --- pointing ---------------------------------------------------------------

function listen(field, canvas, width, height, { tell, point, isBlank }) {
  const place = (event) => {
    const box = canvas.getBoundingClientRect();
    const t = Math.floor((event.clientY - box.top) / height);
    const s = Math.floor((event.clientX - box.left) / width);
    const inside =
      event.clientX < box.right && event.clientY < box.bottom && t >= 0 && s >= 0;
    return inside && !isBlank?.(t, s) ? [t, s] : null;
  };
  const leave = () => {
    hideTip();
    point(null);
  };
  field.addEventListener('pointermove', (event) => {
    const cell = place(event);
    if (!cell) return leave();
    point(cell);
    showTip(event, ...tell(...cell));
  });
  field.addEventListener('pointerleave', leave);
  field.addEventListener('click', (event) => {
    const cell = place(event);
    if (cell) goTo(cell[0]);
  });
}

// `left` and `top` are what the labels cover.
function keepInView(scroller, left, top, [t, s], cell) {
  scroller.scrollTop = scrolledTo(
    scroller.scrollTop,
    t * cell,
    cell,
    scroller.clientHeight - top,
  );
  scroller.scrollLeft = scrolledTo(
    scroller.scrollLeft,
    s * cell,
    cell,
    scroller.clientWidth - left,
  );
}

// The least change of what is scrolled that shows a cell with a neighbour on each side.
const scrolledTo = (scrolled, start, cell, room) =>
  Math.min(Math.max(scrolled, start + 2 * cell - room), start - cell);

// Not by scrollIntoView: the Tab key would then go on from there.
function scrollToNode(box, node) {
  const top = node.offsetTop - box.offsetTop;
  box.scrollTop = scrolledTo(box.scrollTop, top, node.offsetHeight, box.clientHeight);
}
