# SPDX-License-Identifier: Apache-2.0
"""What every search takes and gives, and the loop that they share.

A search never knows a model. It receives ``step(source, state, written, t)``, which
takes the t words [B, K, T] of every hypothesis so far and gives the next state and the
`Words` that may follow. Every leaf of the source begins with the axis ``[B]``
(sentences) and is constant; it is never copied or reordered among hypotheses. Every
leaf of the state begins with ``[B, K]`` (hypotheses). What may be written at all is the
step's business.
"""

from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple, TypeAlias, TypeVar

import jax
import jax.numpy as jnp
from flax import struct

from kvnmt.errors import UserError
from kvnmt.search.words import Words
from kvnmt.typing import Array, Float, Int, Key, PyTree

DecodeStep: TypeAlias = Callable[[PyTree, PyTree, Array, Array], tuple[PyTree, Words]]
Step: TypeAlias = Callable[[Any, Array], Any]  # what is carried, t -> the next rows
Rows = TypeVar("Rows", bound=Any)

LOOP = "search_loop"  # what a loop over steps is called in a traced program


class Sentences(NamedTuple):
    """What is decoded."""

    source: PyTree  # leaves [B, ...]
    state: PyTree  # leaves [B, K, ...], where the step starts
    limits: Int[Array, " B"]  # most words, EOS included; 0: a row that is no sentence
    keys: Key[Array, "B K"] | None = None  # for those who draw


class Ranking(NamedTuple):
    """How ended hypotheses are compared: ``log P / divisor(n) + reward``.

    A search stops early because two things hold: divisors never fall with n, counting
    EOS, and rewards are never above zero. As log P never rises, what is live with
    log-probability L ends at best with ``L / divisor(limit)``.
    """

    divisors: Float[Array, " T_1"]  # of length 0 (not used) to the longest
    reward: Callable[[PyTree, PyTree], Array] | None = None  # source, state -> [B, K]

    def scores(
        self, log_probs: Float[Array, "B K"], length: Array, source: Any, state: Any
    ) -> Float[Array, "B K"]:
        """Scores of hypotheses that end with this length."""
        scores = log_probs / self.divisors[length].astype(log_probs.dtype)
        if self.reward is None:
            return scores
        return scores + self.reward(source, state).astype(log_probs.dtype)

    def bound(
        self, log_probs: Float[Array, " B"], limits: Int[Array, " B"]
    ) -> Float[Array, " B"]:
        """The best that live hypotheses can still score."""
        return log_probs / self.divisors[limits].astype(log_probs.dtype)


@struct.dataclass
class Hypotheses:
    """The result, best first.

    Token ids end with EOS; the id for no word fills the rest. ``log_probs`` are sums
    in nats, EOS included; ``scores`` are what the search ranked by.
    """

    tokens: Int[Array, "B N T"]
    log_probs: Float[Array, "B N"]
    scores: Float[Array, "B N"]


class Loops(NamedTuple):
    """How steps are run, which changes nothing of what is found."""

    # How often the work may shrink: once three quarters of the rows are done, the last
    # quarter goes on alone. Each time adds a loop to compile.
    shrinks: int = 0
    # Takes out of a loop what no step changes: (step, what it is carried, t) -> step.
    lift: Callable[[Step, Any, Array], Step] = lambda step, carried, t: step


def length_divisors(length: int, alpha: Array | float, offset: Array | float) -> Array:
    """Divisors ``((offset + n) / (offset + 1)) ** alpha`` for n = 0 to ``length``.

    Offset 5 is the length penalty of Wu et al. (2016), alpha 0 no normalisation,
    offset 0 with alpha 1 the mean over words.

    Raises:
        UserError: ``alpha`` is below 0: a search could then not tell when to stop.
    """
    if isinstance(alpha, float | int) and alpha < 0:
        raise UserError(f"alpha is {alpha} but must be at least 0.")
    return length_divisor(jnp.maximum(jnp.arange(length + 1), 1), alpha, offset)


def length_divisor(n: Any, alpha: Any, offset: Any) -> Any:
    """What `length_divisors` has for n words: of numbers, or of arrays of them."""
    return ((offset + n) / (offset + 1)) ** alpha


def run_rows(
    advance: Callable[[Array, Sentences, Rows], Rows],
    sentences: Sentences,
    rows: Rows,
    length: int,
    loops: Loops = Loops(),
) -> Rows:
    """Advances rows until all of them are done, in one program of fixed shapes.

    Args:
        advance: From the step's number, the sentences and the rows to the rows; it
            leaves alone what is done.
        sentences: The state is not looked at.
        rows: Leaves ``[B, ...]``; has ``done [B]``, true once a row's limit is reached.
        length: Most steps.
        loops: How.
    """
    constants = sentences._replace(state=None)
    count = rows.done.shape[0]
    places, result, t = jnp.arange(count), rows, jnp.zeros((), jnp.int32)
    until = partial(_until, lambda carried, t: advance(t, *carried), loops.lift)
    for _ in range(loops.shrinks):
        left = count // 4
        if not left:
            break
        t, rows = until(constants, t, rows, length, left)
        result = _put(result, places, rows)
        going = jnp.argsort(rows.done, stable=True)[:left]
        constants, rows, places = jax.tree.map(
            lambda leaf, going=going: leaf[going], (constants, rows, places)
        )
        count = left
    _, rows = until(constants, t, rows, length, 0)
    return _put(result, places, rows)


def gather_beams(tree: PyTree, parents: Int[Array, "B K"]) -> PyTree:
    """Takes, for each sentence, the hypotheses with these indices."""

    def take(leaf: Array) -> Array:
        index = parents.reshape(parents.shape + (1,) * (leaf.ndim - 2))
        return jnp.take_along_axis(leaf, index, axis=1)

    return jax.tree.map(take, tree)


def last_tokens(tokens: Int[Array, "B K T"], t: Array, pad: int) -> Int[Array, "B K"]:
    """The words before step t; no word before the first."""
    last = jax.lax.dynamic_index_in_dim(
        tokens, jnp.maximum(t - 1, 0), axis=2, keepdims=False
    )
    return jnp.where(t > 0, last, pad)


def score_type(
    step: DecodeStep, sentences: Sentences, written: Int[Array, "B K T"]
) -> jnp.dtype:
    """The type of the step's log-probabilities."""
    t = jnp.zeros((), jnp.int32)
    given = sentences.source, sentences.state, written, t
    return jax.eval_shape(step, *given)[1].logits.dtype


def _until(
    step: Step,
    lift: Callable[[Step, Any, Array], Step],
    constants: Sentences,
    t: Array,
    rows: Rows,
    length: int,
    left: int,
) -> tuple[Array, Rows]:
    """Advances until at most ``left`` rows are not done."""
    step = lift(step, (constants, rows), t)

    def going(carry: tuple[Array, Rows]) -> Array:
        return (carry[0] < length) & (jnp.sum(~carry[1].done) > left)

    def once(carry: tuple[Array, Rows]) -> tuple[Array, Rows]:
        return carry[0] + 1, step((constants, carry[1]), carry[0])

    with jax.named_scope(LOOP):
        return jax.lax.while_loop(going, once, (t, rows))


def _put(whole: Rows, places: Array, part: Rows) -> Rows:
    return jax.tree.map(lambda rows, some: rows.at[places].set(some), whole, part)
