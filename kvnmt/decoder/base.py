# SPDX-License-Identifier: Apache-2.0
"""The contract of every decoder.

``step`` is the same function in training, where `scanned` runs it over the
target, and in search, which calls it word by word. What does not feed the
recurrence is kept out of it: ``inputs`` projects the embedded previous words before
the scan, ``attend`` does after the scan whatever no later step depends on. What a GRU
or LSTM takes is multiplied by `kvnmt.layers.recurrent_inputs` or ``input_product``,
which normalise it where the model has ``layer_norm``. A decoder
that is not recurrent has ``over_time`` too: it computes all words at once, as far as no
word waits for what was written at the one before. A member of the catalogue has
``build(options, attention)``, of its `Options` and of an `Attention` that is built.

To explain a translation, `kvnmt.inference.recording` puts notes into the attention's
State, one more with every ``write``. So a ``step`` makes its looks in Python, not in a
scan, and carries the State that each ``write`` gives, neither gated nor left out.
"""

from collections.abc import Callable, Mapping
from functools import partial
from typing import NamedTuple, Protocol

import jax
import jax.numpy as jnp
from flax import struct

from kvnmt.encoder import Encoded
from kvnmt.initializers import Init
from kvnmt.layers import Scanning, scan
from kvnmt.typing import Array, Float, Key, PyTree, Sizes

SCAN = "decoder_scan"  # what a scan over target words is called in a traced program


class Options:
    """Base of the static choices of a decoder, so that a config can hold any."""


@struct.dataclass
class Features:
    """What one step gives to the readout, the losses and the reader of alignments.

    Leading axes are ``B`` out of ``step`` and ``B T`` after the scan.
    """

    state: Float[Array, "*N D"]  # what the readout takes for s_t
    context: Float[Array, "*N _"] | None = None  # c_t of the last round;
    # None out of a ``step`` whose ``attend`` reads it
    alignments: tuple[Float[Array, "*N S"], ...] = ()  # one per round
    extras: Mapping[str, Float[Array, "*N _"]] = struct.field(default_factory=dict)
    # further inputs of the readout, by name
    auxiliary: tuple[Float[Array, "*N _"], ...] = ()  # each predicts y_t on its own
    # to what came before, as `self_attention` of a prediction has it
    self_attention: Float[Array, "*N _"] | None = None
    waiting: PyTree = None  # what ``step`` leaves for ``attend``, which takes it away


class Prepare(Protocol):  # noqa: D101
    def __call__(self, params: PyTree, encoded: Encoded) -> PyTree:
        """Computes the Source: all that is constant while a sentence is decoded."""
        ...


class InitialState(Protocol):  # noqa: D101
    def __call__(
        self,
        params: PyTree,
        source: PyTree,
        length: int,
        key: Key[Array, "*B"] | None = None,
    ) -> PyTree:
        """Returns the State before the first of at most ``length`` words.

        A key is given in training: a decoder whose start is random draws from it,
        and without one starts the same every time.
        """
        ...


class Inputs(Protocol):  # noqa: D101
    def __call__(self, params: PyTree, embedded: Float[Array, "*N E"]) -> PyTree:
        """Computes from the embedded previous words what ``step`` takes of them."""
        ...


class Step(Protocol):  # noqa: D101
    def __call__(
        self, params: PyTree, source: PyTree, state: PyTree, inputs: PyTree
    ) -> tuple[PyTree, Features]:
        """Advances by one word."""
        ...


class OverTime(Protocol):  # noqa: D101
    def __call__(
        self,
        params: PyTree,
        source: PyTree,
        state: PyTree,
        inputs: PyTree,
        key: Key[Array, "*B"] | None = None,
        scanning: Scanning = Scanning(),
    ) -> Features:
        """Computes the features ``B T`` of given words, of inputs ``B T``.

        The features equal those of ``step``, word by word from the State before the
        first word, except for what a key drops in training.
        """
        ...


class Attend(Protocol):  # noqa: D101
    def __call__(self, params: PyTree, source: PyTree, features: Features) -> Features:
        """Completes features with leading axes ``B T`` after the scan.

        It finds ``features.state`` after dropout, and in ``features.waiting`` what
        ``step`` left.
        """
        ...


def scanned(
    step: Callable[[PyTree, PyTree], tuple[PyTree, PyTree]],
    state: PyTree,
    inputs: PyTree,
    scanning: Scanning = Scanning(),
) -> PyTree:
    """What a step gives at every word, ``B T``, from a State and inputs ``B T``."""
    with jax.named_scope(SCAN):
        return _swap_time(scan(step, state, _swap_time(inputs), scanning))


def features_over_time(
    decoder: "Decoder",
    params: PyTree,
    source: PyTree,
    state: PyTree,
    inputs: PyTree,
    key: Key[Array, "*B"] | None = None,
    scanning: Scanning = Scanning(),
) -> Features:
    """The features ``B T`` of given words, before ``attend``."""
    if decoder.over_time is not None:
        return decoder.over_time(params, source, state, inputs, key, scanning)
    step = partial(decoder.step, params, source)
    return scanned(step, state, inputs, scanning)


def whole_step(
    decoder: "Decoder", params: PyTree, source: PyTree, state: PyTree, inputs: PyTree
) -> tuple[PyTree, Features]:
    """Advances by one word, ``attend`` included."""
    state, features = decoder.step(params, source, state, inputs)
    if decoder.attend is None:
        return state, features
    alone = jax.tree.map(lambda x: x[:, None], features)  # a time axis of one step
    features = decoder.attend(params, source, alone)
    return state, jax.tree.map(lambda x: x[:, 0], features)


def _swap_time(tree: PyTree) -> PyTree:
    return jax.tree.map(lambda x: jnp.swapaxes(x, 0, 1), tree)


class Decoder(NamedTuple):
    """One decoder: pure functions over Params, Source and State."""

    init: Init  # of its attention, too
    prepare: Prepare
    initial_state: InitialState
    inputs: Inputs
    step: Step
    feature_sizes: Callable[[Sizes], dict[str, int]]  # of "context" and the extras
    attend: Attend | None = None  # None: nothing waits until after the scan
    # The widths of what predicts y_t by itself.
    auxiliary_sizes: Callable[[Sizes], tuple[int, ...]] = lambda sizes: ()
    # What ``inputs`` multiplies embedded words by.
    gain: Callable[[Sizes], float] = lambda sizes: 1.0
    over_time: OverTime | None = None  # None: ``step`` is scanned
    state_reads: bool = True  # whether ``features.state`` has read c_t
    looks_itself: bool = False  # whether it looks at the source beside the attention
    # Whether all its ``rounds`` but the last are idle where the attention does not
    # write. A Transformer's are not: they read what those before added to the state.
    rounds_need_writes: bool = False
