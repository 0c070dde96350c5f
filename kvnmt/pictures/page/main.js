// SPDX-License-Identifier: Apache-2.0
// Puts the parts together: what is shown when, and what buttons and keys do.

let panels = [];

function start() {
  readState();
  buildList();
  buildControls();
  document.addEventListener('keydown', pressed);
  showAll();
  addEventListener('hashchange', () => {
    readState();
    arrangeList();
    showAll();
  });
  systemDark.addEventListener('change', showDrawn);
  watchWidth();
}

// --- showing ----------------------------------------------------------------

function showAll() {
  const isEmpty = !DATA.sentences.length;
  byId('nothing').hidden = !isEmpty;
  byId('main').hidden = isEmpty;
  byId('single-keys').checked = state.hasSingleKeys;
  if (isEmpty) showTheme();
  else show();
}

function show() {
  state.step = Math.min(state.step, stepCount() - 1);
  showTheme();
  showControls();
  showTexts();
  showPanels();
  showStep();
}

// Without the texts, in which a word may just be typed.
function showDrawn() {
  showTheme();
  if (!DATA.sentences.length) return;
  showPanels();
  showStep();
}

function showTheme() {
  if (state.theme) document.documentElement.dataset.theme = state.theme;
  else delete document.documentElement.dataset.theme;
  byId('theme').textContent = isDark() ? 'Light' : 'Dark';
}

function showPanels() {
  hideTip();
  const room = byId('panels').clientWidth;
  const columns = state.systems.length > 1 && room >= 700 ? 2 : 1;
  const inner = (room - (columns - 1) * 16) / columns - 34;
  byId('panels').style.setProperty('--columns', columns);
  const boxes = () => [...byId('panels').querySelectorAll('summary')];
  const focused = boxes().indexOf(document.activeElement);
  panels = state.systems.map((system) => createPanel(system, inner));
  byId('panels').replaceChildren(...panels.map(({ node }) => node));
  boxes()[focused]?.focus({ preventScroll: true });
}

function showStep() {
  const count = stepCount();
  Object.assign(byId('step'), { max: count, value: state.step + 1 });
  byId('step').setAttribute('aria-valuetext', sayWords());
  byId('where').textContent = `word ${state.step + 1} of ${count}`;
  byId('back').disabled = state.step === 0;
  byId('on').disabled = state.step === count - 1;
  panels.forEach(({ mark }) => mark());
  keepAddress();
}

const sayWords = () =>
  state.systems
    .map((system) => {
      const output = outputOf(state.sentence, system);
      return output.target[clampedStep(output)];
    })
    .join(', ');

function showControls() {
  const [system, other] = state.systems;
  byId('system').value = system;
  byId('other').value = other ?? '';
  for (const option of byId('other').options)
    option.disabled = option.value === String(system);
  for (const view of ['matrix', 'links'])
    byId(view).setAttribute('aria-pressed', state.view === view);
  const rounds = mostRounds(state.systems);
  byId('rounds').hidden = state.view !== 'links' || rounds < 2;
  showRounds(rounds);
  markChosen();
}

// Buttons stay where their number does: one of them may have the focus.
function showRounds(count) {
  const buttons = byId('rounds').children;
  if (buttons.length !== count)
    byId('rounds').replaceChildren(...Array.from({ length: count }, roundButton));
  [...buttons].forEach((button, r) =>
    button.setAttribute('aria-pressed', String(r === shownOf(count))),
  );
}

const roundButton = (_, r) =>
  element(
    'button',
    { type: 'button', onclick: () => change({ round: r }) },
    `Round ${r + 1}`,
  );

// --- changing ---------------------------------------------------------------

function change(part) {
  Object.assign(state, part);
  showAll();
}

const choose = (sentence) => change({ sentence, step: 0 });

function goTo(step) {
  state.step = Math.min(Math.max(step, 0), stepCount() - 1);
  showStep();
}

const moveStep = (by) => goTo(state.step + by);

const nextRound = () => {
  const rounds = mostRounds(state.systems);
  if (rounds > 1) change({ view: 'links', round: (shownOf(rounds) + 1) % rounds });
};

function chooseSystem(system) {
  const [before, other] = state.systems;
  if (other === undefined) return change({ systems: [system] });
  change({ systems: [system, other === system ? before : other] });
}

const chooseOther = (text) =>
  change({
    systems: text === '' ? [state.systems[0]] : [state.systems[0], Number(text)],
  });

function rearrange(part) {
  Object.assign(state, part);
  arrangeList();
  keepAddress();
}

// A tip would stay beneath, and the first Escape would be its.
const openManual = () => {
  hideTip();
  byId('manual').showModal();
  byId('close').focus();
};

const toggleTheme = () => {
  state.theme = isDark() ? 'light' : 'dark';
  showAll();
};

// --- controls ---------------------------------------------------------------

function buildControls() {
  const names = DATA.systems.map(({ name }, i) =>
    element('option', { value: i }, `${letter(i)}  ${name}`),
  );
  byId('system').append(...names);
  byId('other').append(
    element('option', { value: '' }, 'none'),
    ...names.map((name) => name.cloneNode(true)),
  );
  byId('versus').hidden = DATA.systems.length < 2;
  on('system', 'change', (event) => chooseSystem(Number(event.target.value)));
  on('other', 'change', (event) => chooseOther(event.target.value));
  on('matrix', 'click', () => change({ view: 'matrix' }));
  on('links', 'click', () => change({ view: 'links' }));
  on('theme', 'click', toggleTheme);
  on('help', 'click', openManual);
  on('single-keys', 'change', (event) => {
    state.hasSingleKeys = event.target.checked;
    keepAddress();
  });
  on('close', 'click', () => byId('manual').close());
  byId('sharing').hidden = !hasAddress;
  on('back', 'click', () => moveStep(-1));
  on('on', 'click', () => moveStep(1));
  on('step', 'input', (event) => goTo(Number(event.target.value) - 1));
  on('filter', 'input', (event) => rearrange({ filter: event.target.value }));
  on('sort', 'change', (event) =>
    rearrange({ sort: event.target.value, reversed: false }),
  );
  on('reverse', 'click', () => rearrange({ reversed: !state.reversed }));
}

const on = (id, kind, act) => byId(id).addEventListener(kind, act);

// Cells are as wide as the window allows.
function watchWidth() {
  let width = byId('panels').clientWidth;
  new ResizeObserver(() => {
    const now = byId('panels').clientWidth;
    if (now === width) return;
    width = now;
    showDrawn();
  }).observe(byId('panels'));
}

// --- keys -------------------------------------------------------------------

const KEYS = {
  ArrowUp: () => moveSentence(-1),
  ArrowDown: () => moveSentence(1),
  ArrowLeft: () => moveStep(-1),
  ArrowRight: () => moveStep(1),
  k: () => moveStep(-1),
  j: () => moveStep(1),
  Home: () => goTo(0),
  End: () => goTo(stepCount() - 1),
  m: () => change({ view: 'matrix' }),
  l: () => change({ view: 'links' }),
  r: nextRound,
  t: toggleTheme,
  '/': () => byId('filter').focus(),
  '?': openManual,
};
const KEYS_IN_FILTER = ['ArrowUp', 'ArrowDown'];

function pressed(event) {
  if (event.ctrlKey || event.metaKey || event.altKey || event.isComposing) return;
  if (event.shiftKey && event.key.length > 1) return; // selects text
  if (byId('manual').open) return;
  if (event.target === byId('filter') && event.key === 'Escape')
    return leaveFilter(event);
  if (event.key.length === 1 && !state.hasSingleKeys) return;
  const act = KEYS[event.key];
  if (!act || isNative(event) || !DATA.sentences.length) return;
  event.preventDefault();
  act();
}

// Otherwise the browser would empty the box.
function leaveFilter(event) {
  event.preventDefault();
  byId('filter').blur();
}

// Keys that the focused control needs itself.
function isNative({ target, key }) {
  if (target === byId('filter')) return !KEYS_IN_FILTER.includes(key);
  if (target.matches('textarea, input[type="text"]')) return true;
  if (target.matches('.values .scroller')) return /^(Arrow|Home|End)/.test(key);
  return target.tagName === 'SELECT' && key !== '?';
}

start();
