# SPDX-License-Identifier: Apache-2.0
"""Languages without a model, and slow searches over them.

The next word depends on all words before it, by a table with a row for every
history: a hypothesis that is given the state of another one is found out.
"""

import itertools
from dataclasses import dataclass

import jax.numpy as jnp
import numpy as np

from kvnmt.search import Ranking, Sentences, Words, last_tokens, length_divisors
from kvnmt.typing import Array, PyTree

EOS, PAD = 0, -1

Ranked = tuple[float, float, tuple[int, ...]]  # score, log-probability, words


def normalised(log_probs: Array) -> Words:
    """All words may be written."""
    zero = jnp.zeros(log_probs.shape[:-1], log_probs.dtype)
    return Words(log_probs, zero, zero)


@dataclass(frozen=True)
class World:
    """``table[b, history]`` holds log-probabilities of the next word."""

    table: np.ndarray  # [B, histories, V]
    length: int

    @property
    def words(self) -> int:
        return self.table.shape[2]

    def rows(self, rows: slice) -> "World":
        return World(self.table[rows], self.length)

    def sentences(self, beam: int, limits: np.ndarray, **keys: Array) -> Sentences:
        """Every hypothesis remembers its words; the leaves differ in shape."""
        rows = len(self.table)
        shape = rows, beam, 1, self.length + 1
        state = {
            "place": jnp.zeros((rows, beam), jnp.int32),
            "history": [jnp.full(shape, PAD, jnp.int32)],
        }
        return Sentences(
            {"table": jnp.asarray(self.table)}, state, jnp.asarray(limits), **keys
        )

    def step(
        self, source: PyTree, state: PyTree, written: Array, t: Array
    ) -> tuple[PyTree, Words]:
        """Appends the last words and looks the whole history up."""
        tokens = last_tokens(written, t, -1)
        place, (history,) = state["place"], state["history"]
        here = jnp.arange(self.length + 1) == place[..., None, None]
        history = jnp.where(here, tokens[..., None, None], history)
        code = jnp.zeros_like(place)
        for i in range(self.length + 1):  # the oldest word counts most
            digit = history[..., 0, i] + 1
            code = jnp.where(i <= place, code * (self.words + 1) + digit, code)
        rows = jnp.arange(len(source["table"]))[:, None]
        state = {"place": place + 1, "history": [history]}
        return state, normalised(source["table"][rows, code])

    def log_prob(self, row: int, words: tuple[int, ...]) -> float:
        """The probability of these words in this order."""
        total, code = 0.0, 0
        for word in words:
            total += float(self.table[row, code, word])
            code = code * (self.words + 1) + word + 1
        return total

    def next(self, row: int, words: tuple[int, ...]) -> np.ndarray:
        """Log-probabilities behind these words."""
        code = 0
        for word in words:
            code = code * (self.words + 1) + word + 1
        return self.table[row, code]


def random_world(seed: int, rows: int, words: int, length: int) -> World:
    """Every history of every row has its own next words."""
    histories = (words + 1) ** length
    logits = np.random.default_rng(seed).normal(0, 2, (rows, histories, words))
    logits -= np.log(np.sum(np.exp(logits), axis=-1, keepdims=True))
    return World(logits.astype(np.float32), length)


def markov_world(chain: dict[str, dict[str, float]], length: int) -> World:
    """One row; the next word depends on the last one. ``chain[""]`` starts.

    The words are the keys of the chain, in order, from id 1; "." is EOS.
    """
    names = [".", *(name for name in chain if name)]
    words = len(names)
    table = np.full((1, (words + 1) ** length, words), -np.inf, np.float32)
    for size in range(length):
        for history in itertools.product(range(1, words), repeat=size):
            code = 0
            for word in history:
                code = code * (words + 1) + word + 1
            last = names[history[-1]] if history else ""
            for name, probability in chain[last].items():
                table[0, code, names.index(name)] = np.log(probability)
    return World(table, length)


def divisor(length: int, alpha: float, offset: float = 5.0) -> float:
    return ((offset + length) / (offset + 1)) ** alpha


def ranking(length: int, alpha: float, offset: float = 5.0) -> Ranking:
    return Ranking(length_divisors(length, alpha, offset))


def every_sentence(world: World, row: int, limit: int, alpha: float) -> list[Ranked]:
    """All that can be said in at most ``limit`` words, best first."""
    found = []
    for size in range(limit):
        for words in itertools.product(range(1, world.words), repeat=size):
            said = (*words, EOS)
            log_prob = world.log_prob(row, said)
            found.append((log_prob / divisor(len(said), alpha), log_prob, said))
    return sorted(found, reverse=True)


def slow_beam(
    world: World,
    row: int,
    limit: int,
    beam: int,
    alpha: float,
    offset: float = 5.0,
    diverse: float = 0.0,
) -> list[Ranked]:
    """The beam search in so many words: no array, no early stop."""
    live: list[tuple[float, tuple[int, ...]]] = [(0.0, ())]
    ended: list[Ranked] = []
    for t in range(1, limit + 1):
        going = []  # with what the choice is made by
        for total, words in live:
            gains = world.next(row, words)
            log_prob = total + float(gains[EOS])
            ended.append((log_prob / divisor(t, alpha, offset), log_prob, (*words, 0)))
            better = sorted(range(1, world.words), key=lambda w: -float(gains[w]))
            for rank, word in enumerate(better):
                log_prob = total + float(gains[word])
                going.append((log_prob - diverse * rank, log_prob, (*words, word)))
        ended = sorted(ended, reverse=True)[:beam]
        live = [(total, words) for _, total, words in sorted(going)[: -beam - 1 : -1]]
    return ended


def slow_greedy(world: World, row: int, limit: int) -> tuple[float, tuple[int, ...]]:
    """The best next word until it is EOS."""
    words: tuple[int, ...] = ()
    while len(words) < limit - 1:
        words = (*words, int(np.argmax(world.next(row, words))))
        if words[-1] == EOS:
            return world.log_prob(row, words), words
    return world.log_prob(row, (*words, EOS)), (*words, EOS)


def said(tokens: np.ndarray) -> tuple[int, ...]:
    """The words of one hypothesis; behind EOS there must be padding alone."""
    words = tuple(int(token) for token in tokens)
    end = words.index(EOS) + 1
    assert set(words[end:]) <= {PAD}
    return words[:end]
