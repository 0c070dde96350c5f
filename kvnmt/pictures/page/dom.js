// SPDX-License-Identifier: Apache-2.0
// Making elements, measuring text, colours of heat, and the tooltip.

const byId = (id) => document.getElementById(id);

// Children that are strings become text nodes: data never becomes markup.
function element(tag, attributes = {}, ...children) {
  return fill(document.createElement(tag), attributes, children);
}

function svg(tag, attributes = {}, ...children) {
  return fill(
    document.createElementNS('http://www.w3.org/2000/svg', tag),
    attributes,
    children,
  );
}

function fill(node, attributes, children) {
  for (const [name, value] of Object.entries(attributes)) {
    if (value === null || value === false) continue;
    if (name.startsWith('on')) node.addEventListener(name.slice(2), value);
    else node.setAttribute(name, value === true ? '' : value);
  }
  node.append(...children.flat().filter((child) => child != null));
  return node;
}

// --- text -------------------------------------------------------------------

// Where words of a script from right to left stand beside others, each is by itself.
const isolated = (word) => `\u2068${word}\u2069`;

const lookOf = (word, at) => `${isolated(word)} ← ${isolated(at)}`;

const pen = document.createElement('canvas').getContext('2d');

function textWidth(text, size) {
  pen.font = `${size}px ${getComputedStyle(document.body).fontFamily}`;
  return pen.measureText(text).width;
}

const widest = (words, size) =>
  Math.max(0, ...words.map((word) => textWidth(word, size)));

const WIDE =
  /^[\u1100-\u11ff\u2e80-\u9fff\uac00-\ud7af\uf900-\ufaff\uff00-\uffef\u{20000}-\u{3ffff}]+$/u;

// Chinese, Japanese and Korean stand upright above a column; other words are turned.
const isWide = (word) => WIDE.test(word);

// --- colours of heat --------------------------------------------------------

// Darker is more on a light page, lighter is more on a dark one.
const RAMPS = {
  light: {
    alignment: ['#f1f4f8', '#c9ddf0', '#7fb4dc', '#2f7ebc', '#08407f', '#08264f'],
    changed: ['#f4f3f7', '#dcd6ec', '#b2a3d6', '#8568bb', '#5e3c99', '#3b1f6b'],
    signed: ['#8c3a00', '#d95f02', '#f6c99f', '#f1f4f8', '#a9cbe8', '#2f7ebc', '#08407f'],
  },
  dark: {
    alignment: ['#1f252d', '#1d3a5c', '#24609b', '#4a94d4', '#9accf2', '#eaf6ff'],
    changed: ['#23222b', '#3c3058', '#604a94', '#8f77cc', '#c4b3ef', '#f3edff'],
    signed: ['#ffc08a', '#e07b2e', '#6b3a14', '#1f252d', '#1d4470', '#4a94d4', '#b5dcf7'],
  },
};

const systemDark = matchMedia('(prefers-color-scheme: dark)');

const isDark = () => (state.theme ? state.theme === 'dark' : systemDark.matches);

const ramp = (name) => RAMPS[isDark() ? 'dark' : 'light'][name];

// A function of a value from 0 to 1.
function heat(name) {
  const stops = ramp(name).map(channels);
  return (value) => {
    const place = Math.min(Math.max(value, 0), 1) * (stops.length - 1);
    const low = Math.min(Math.floor(place), stops.length - 2);
    const mixed = stops[low].map(
      (from, i) => from + (stops[low + 1][i] - from) * (place - low),
    );
    return `rgb(${mixed.map(Math.round).join(' ')})`;
  };
}

const channels = (hex) => [1, 3, 5].map((i) => parseInt(hex.slice(i, i + 2), 16));

function heatScale(name, most, least = '0') {
  const colours = ramp(name).join(', ');
  return element(
    'span',
    { class: 'scale', 'aria-hidden': 'true' },
    least,
    element('i', { style: `background: linear-gradient(to right, ${colours})` }),
    most,
  );
}

// --- tooltip ----------------------------------------------------------------

// Each line is a string, or a pair of a name and a value.
function showTip(event, heading, lines) {
  const tip = byId('tip');
  const rows = lines.map((line) =>
    typeof line === 'string'
      ? element('p', {}, line)
      : element('p', {}, element('span', {}, line[0]), element('b', {}, line[1])),
  );
  tip.replaceChildren(element('strong', {}, heading), ...rows);
  tip.hidden = false;
  const box = tip.getBoundingClientRect();
  const x = Math.min(event.clientX + 14, innerWidth - box.width - 8);
  const below = event.clientY + 18;
  const y = below + box.height > innerHeight ? event.clientY - box.height - 12 : below;
  tip.style.transform = `translate(${Math.max(x, 4)}px, ${Math.max(y, 4)}px)`;
}

const hideTip = () => (byId('tip').hidden = true);

// Before all else that Escape does: the next one leaves a box, or a word typed into it.
function escapeTip(event) {
  if (event.key !== 'Escape' || event.isComposing || byId('tip').hidden) return;
  event.preventDefault();
  event.stopPropagation();
  hideTip();
}

document.addEventListener('keydown', escapeTip, true);
