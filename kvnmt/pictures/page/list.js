// SPDX-License-Identifier: Apache-2.0
// The list of sentences: built once, then only put in order and filtered.

let options = [];
let order = [];

function buildList() {
  byId('title').replaceChildren(DATA.title);
  options = DATA.sentences.map(sentenceOption);
  byId('sort').replaceChildren(
    ...sortings().map(({ key, label }) => element('option', { value: key }, label)),
  );
  arrangeList();
}

function sentenceOption(sentence, index) {
  const facts = [];
  if (DATA.systems.length > 1) facts.push(differenceBar(sentence.difference));
  if (sentence.outputs.some(({ score }) => score !== null))
    facts.push(element('span', { class: 'scores' }, sentence.outputs.map(scoreOf)));
  return element(
    'li',
    {
      id: `sentence-${index}`,
      role: 'option',
      'aria-selected': 'false',
      onclick: () => choose(index),
    },
    element('span', { class: 'number' }, String(sentence.number)),
    element(
      'span',
      { class: 'start', dir: 'auto' },
      sentence.source.slice(0, 120) || '(empty)',
    ),
    facts.length ? element('span', { class: 'facts' }, facts) : null,
  );
}

function differenceBar(difference) {
  const width = Math.min(Math.max(difference, 0), 100);
  return element(
    'span',
    {
      class: 'difference',
      title: `The outputs differ by ${difference.toFixed(1)} of 100`,
    },
    element('i', {}, element('i', { style: `width: ${width}%` })),
    element('span', {}, difference.toFixed(0)),
  );
}

const scoreOf = ({ score }, system) =>
  element(
    'span',
    { title: `chrF of ${DATA.systems[system].name}` },
    element('abbr', {}, letter(system)),
    ` ${sayScore(score)}`,
  );

function arrangeList() {
  order = arranged();
  byId('list').replaceChildren(...order.map((index) => options[index]));
  byId('sort').value = state.sort;
  if (byId('filter').value !== state.filter) byId('filter').value = state.filter;
  byId('reverse').textContent = sorting().words[isDescending() ? 0 : 1];
  byId('count').textContent = sayCount();
  markChosen();
}

function sayCount() {
  const total = DATA.sentences.length;
  if (!total) return 'no sentence';
  if (!order.length) return 'no sentence has this text';
  return order.length === total
    ? plural(total, 'sentence')
    : `${order.length} of ${plural(total, 'sentence')}`;
}

function markChosen() {
  for (const node of byId('list').querySelectorAll('[aria-selected="true"]'))
    node.setAttribute('aria-selected', 'false');
  const chosen = options[state.sentence];
  chosen?.setAttribute('aria-selected', 'true');
  byId('list').removeAttribute('aria-activedescendant');
  if (!chosen?.isConnected) return; // filtered out
  byId('list').setAttribute('aria-activedescendant', chosen.id);
  scrollToNode(byId('list'), chosen);
}

function moveSentence(by) {
  const place = order.indexOf(state.sentence);
  const next = place < 0 ? 0 : Math.min(Math.max(place + by, 0), order.length - 1);
  if (order.length && order[next] !== state.sentence) choose(order[next]);
}
