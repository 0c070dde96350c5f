# SPDX-License-Identifier: Apache-2.0
"""The contract of every way to look at the source.

Three kinds of arrays, never mixed:

* **Params**, trained;
* **Source**, constant while one sentence is translated (annotations, projected
  keys, mask). The leading axis of every array is the row, and a beam search never
  reorders it. What belongs to no row is among the Params;
* **State**, carried from step to step. The leading axis of every array is the
  hypothesis; a beam search reorders only the State. It holds numbers; a random key is
  held as its `jax.random.key_data`. A mechanism that carries nothing has ``()``.

Types. Contexts have the type of the annotations, be it bfloat16 or float64. A State
keeps its types, which may be finer (`kvnmt.layers.precise`).

One call of ``read`` and ``write`` is one round. A decoder that looks several times
per target word calls them in a loop, with parameters and Source of each round and
one State for all. A decoder may run ``read`` after the scan, for all steps at once,
where nothing is written and its own recurrence does not need the context.

Names for a warm start. A trained baseline starts a model that extends it wherever the
paths of their parameters agree (`kvnmt.runs.warm_start`). A mechanism that extends
additive attention therefore holds the `Address` of its reading query under the name
``address``, and what it adds under any other name.
"""

from collections.abc import Callable
from typing import NamedTuple, Protocol

from flax import struct

from kvnmt.initializers import Init
from kvnmt.typing import Array, Bool, Float, PyTree, Sizes


class Options:
    """Base of the static choices of a mechanism, so that a config can hold any."""


# What a write that is called by hand lacks.
NO_STATE = "write needs moment.replace(decoder_state=...), the new decoder state"
NO_LOOK = "write needs moment.replace(attended=...), what read gave"


@struct.dataclass
class Attended:
    """What one look at the source gives."""

    context: Float[Array, "B _"]
    alignment: Float[Array, "B S"] | None  # None: the mechanism has no alignment


@struct.dataclass
class Change:
    """What one write did to every slot: lengths (L2) of vectors, for people to see."""

    changed: Float[Array, "B S"]  # of new - old
    forgotten: Float[Array, "B S"]  # of what was taken away
    added: Float[Array, "B S"]  # of what was put in its place


@struct.dataclass
class Weighed:
    """What one read consisted of, where its weights have signs: for people to see."""

    signed: Float[Array, "B N S"]  # of each source word, exact, of N heads or one
    own: Float[Array, " B"]  # share of what the decoder wrote itself, from 0 to 1


@struct.dataclass
class Moment:
    """What is known at one point of a target step; fields fill as it goes on."""

    previous_state: Float[Array, "B D"]  # s_{t-1}, or what a decoder has in its place
    embedded: Float[Array, "B E"]  # x_t, embedding of y_{t-1}
    query: Float[Array, "B D"]  # q_t
    decoder_state: Float[Array, "B D"] | None = None  # s^r, once advanced
    attended: Attended | None = None  # (c^r, a^r), once read


class Prepare(Protocol):  # noqa: D101
    def __call__(
        self,
        params: PyTree,
        annotations: Float[Array, "B S C"],
        mask: Bool[Array, "B S"],
    ) -> PyTree:
        """Computes all that depends on the sentence only: the Source.

        Annotations are 0 at padding: where their lengths divide, gradients are NaN.
        """
        ...


class Read(Protocol):  # noqa: D101
    def __call__(
        self, params: PyTree, source: PyTree, state: PyTree, moment: Moment
    ) -> Attended:
        """Looks at the source."""
        ...


class Write(Protocol):  # noqa: D101
    def __call__(
        self, params: PyTree, source: PyTree, state: PyTree, moment: Moment
    ) -> PyTree:
        """Returns the next State."""
        ...


class Explain(Protocol):  # noqa: D101
    def __call__(
        self, params: PyTree, source: PyTree, state: PyTree, moment: Moment
    ) -> Change:
        """Tells what ``write`` would do to every slot."""
        ...


class Weigh(Protocol):  # noqa: D101
    def __call__(
        self, params: PyTree, source: PyTree, state: PyTree, moment: Moment
    ) -> Weighed:
        """Tells what ``read`` mixes; the alignment shows sizes alone."""
        ...


class InitialState(Protocol):  # noqa: D101
    def __call__(self, params: PyTree, source: PyTree) -> PyTree:
        """Returns the State before the first target word."""
        ...


class Attention(NamedTuple):
    """One mechanism: pure functions over the three kinds of arrays.

    Only the first three are needed. What is left out does nothing, and the context is
    then a mixture of annotations.
    """

    init: Init  # of one round
    prepare: Prepare
    read: Read
    initial_state: InitialState = lambda params, source: ()
    write: Write | None = None  # None: the State never changes
    explain: Explain | None = None  # None: there is no memory of slots to tell of
    weigh: Weigh | None = None  # None: the alignment is what `read` mixes with
    weighed_heads: int = 1  # N of what `weigh` tells
    needs_source: bool = True  # False: a model that reads no source may have it
    # The width of the context that `read` gives, and how many of its leading columns
    # start with zero weight in the readout.
    context_size: Callable[[Sizes], int] = lambda sizes: sizes.annotation
    unread: Callable[[Sizes], int] = lambda sizes: 0
