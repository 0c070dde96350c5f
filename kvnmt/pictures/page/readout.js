// SPDX-License-Identifier: Apache-2.0
// What happens at one step, said in words and numbers.

function sayStep(output, t) {
  const { source, target, rounds, memory, weights, self_attention: looks } = output;
  const lines = rounds.map((_, round) => sayRound(rounds, round, t, source));
  (weights ?? []).forEach((read, r) => lines.push(saySigns(read, r, t, source)));
  (memory ?? []).forEach((write, r) => lines.push(sayWrite(write, r, t, source)));
  (looks ?? []).forEach((earlier) =>
    lines.push(sayLine('looks back at', topWords(earlier[t], earlierWords(target)))),
  );
  return [sayWord(output, t), ...(lines.length ? [element('dl', {}, lines)] : [])];
}

function sayWord({ target, token_log_probs: logs }, t) {
  const facts = [
    `word ${t + 1} of ${target.length}`,
    `log-prob ${sayLog(logs[t])}`,
    `probability ${sayProbability(logs[t])}`,
  ];
  const word = element('bdi', {}, element('b', {}, target[t]));
  return element('p', { class: 'word' }, word, element('span', {}, facts.join(' · ')));
}

function sayRound(rounds, round, t, source) {
  const words = topWords(rounds[round][t], source);
  const before = rounds[Math.max(round - 1, 0)][t];
  const moved = hasMoved(before, rounds[round][t]);
  return sayLine(
    `round ${round + 1}`,
    words,
    moved ? `moved from ${isolated(source[strongest(before)])}` : null,
  );
}

function saySigns({ signed, own }, r, t, source) {
  const ofWord = source.map((_, s) => signed.map((head) => head[t][s]));
  const sizes = ofWord.map((weights) => weights.reduce((a, b) => a + Math.abs(b), 0));
  const order = [...sizes.keys()].sort((a, b) => sizes[b] - sizes[a]).slice(0, 4);
  const words = order.map((s) => [source[s], ofWord[s].map(saySigned).join(' ')]);
  const note = own[t] > 0 ? `${OWN} ${sayWeight(own[t])}` : null;
  return sayLine(`signed ${r + 1}`, words, note);
}

function sayWrite(write, r, t, source) {
  const s = strongest(write.changed[t]);
  const norms = KINDS.map((kind) => `${kind} ${sayNorm(write[kind][t][s])}`).join(', ');
  return sayLine(`write ${r + 1}`, [[source[s], norms]]);
}

function sayLine(name, pairs, note = null) {
  const words = pairs.map(([word, value]) =>
    element('span', {}, element('bdi', {}, word), ` ${value}`),
  );
  return element(
    'div',
    {},
    element('dt', {}, name),
    element('dd', {}, words, note && element('span', { class: 'moved' }, note)),
  );
}
