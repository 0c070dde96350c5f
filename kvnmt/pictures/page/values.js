// SPDX-License-Identifier: Apache-2.0
// Every number of the current step as a table, for reading, copying and screen readers.

let valuesOpen = false;

function valuesOf(output) {
  const name = 'All values of this step';
  const body = element('div', {
    class: 'scroller wide',
    tabindex: 0, // to be scrolled by keys
    role: 'region',
    'aria-label': name,
  });
  const node = element(
    'details',
    { class: 'values', open: valuesOpen },
    element('summary', {}, name),
    body,
  );
  let step = 0;
  const update = () => node.open && body.replaceChildren(...valueTables(output, step));
  node.addEventListener('toggle', () => {
    valuesOpen = node.open;
    update();
  });
  const mark = (t) => {
    step = t;
    update();
  };
  return { node, mark };
}

function valueTables(output, t) {
  const { source, target, rounds, memory, weights, self_attention: looks } = output;
  const columns = rounds.map((matrix, r) => [
    `round ${r + 1}`,
    matrix[t].map(sayWeight),
  ]);
  headsOf(weights ?? []).forEach(({ name, values }) =>
    columns.push([`signed ${name}`, values[t].map(saySigned)]),
  );
  (memory ?? []).forEach((round, r) =>
    KINDS.forEach((kind) =>
      columns.push([`${kind} ${r + 1}`, round[kind][t].map(sayNorm)]),
    ),
  );
  const tables = [];
  if (columns.length) tables.push(valueTable('source word', source, columns));
  if (looks) {
    const words = earlierWords(target).slice(0, t + 1);
    const ofWords = looks.map((earlier, n) => [
      nameOfLook(looks, n),
      earlier[t].slice(0, t + 1).map(sayWeight),
    ]);
    tables.push(valueTable('earlier word', words, ofWords));
  }
  return tables.length
    ? tables
    : [element('p', { class: 'none' }, 'This system has no weights to tell.')];
}

function valueTable(name, words, columns) {
  const head = element(
    'tr',
    {},
    [name, ...columns.map(([title]) => title)].map((title) =>
      element('th', { scope: 'col' }, title),
    ),
  );
  const rows = words.map((word, i) =>
    element(
      'tr',
      {},
      element('th', { scope: 'row' }, element('bdi', {}, word)),
      columns.map(([, values]) => element('td', {}, values[i])),
    ),
  );
  return element('table', {}, element('thead', {}, head), element('tbody', {}, rows));
}
