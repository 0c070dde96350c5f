# SPDX-License-Identifier: Apache-2.0
"""Modifying initial weights: dot attention that starts out as key-value attention.

H. Mino, M. Utiyama, E. Sumita, T. Tokunaga (2017), section 3.3.

=============  ==============================================================
parameters     none
source         annotations h and their first halves, mask
state, carried none
result         context ``sum_j a_j h_j``, alignment a
=============  ==============================================================

::

    a = softmax_j(d . (h_j * u)),  u = [1 .. 1, 0 .. 0]        c = sum_j a_j h_j

u is fixed. The columns of the readout W_d that meet the first half of c start at
zero and are trained like any other: the first half of an annotation starts as a key,
the second as a value. This holds for the decoder of the paper: only its readout takes
c. A decoder that also feeds c to its state reads all of c there from the start.

Reading of the paper: the printed matrix shows the zero block in the first rows, then
dots. The text wants the first half of c to be unused; so all rows need the block.
"""

from dataclasses import dataclass

from kvnmt.attention import base
from kvnmt.attention.address import KeysAndValues, read_dot
from kvnmt.errors import OptionError
from kvnmt.initializers import Weights
from kvnmt.typing import Array, Bool, Float, Key, Sizes


@dataclass(frozen=True)
class Options(base.Options):
    """Modifying initial weights has no static choices."""


def init(key: Key[Array, ""], sizes: Sizes, weights: Weights) -> tuple[()]:
    """No parameters.

    Raises:
        OptionError: Annotations of odd width, or wider than two states.
    """
    C, D = sizes.annotation, sizes.state
    if C % 2 or D < C // 2:
        raise OptionError(
            "modifying-IW needs annotations of an even width of at most twice the "
            f"decoder state's, not {C} for a state of {D}; change {{0}}, {{1}} or "
            "{2}.",
            *("encoder", "merge", "state"),
            prefix="model.",
        )
    return ()


def prepare(
    params: tuple[()], annotations: Float[Array, "B S C"], mask: Bool[Array, "B S"]
) -> KeysAndValues:
    """The first halves are compared, the whole is read."""
    half = annotations.shape[-1] // 2  # where u is 1
    return KeysAndValues(annotations[..., :half], annotations, mask)


def read(
    params: tuple[()], source: KeysAndValues, state: tuple[()], moment: base.Moment
) -> base.Attended:
    """Scores the first halves by the first half of the query, reads the whole."""
    return read_dot(source, moment.query[:, : source.keys.shape[-1]])


def build(options: Options) -> base.Attention:
    """Modifying initial weights under the contract."""
    return base.Attention(
        init=init,
        prepare=prepare,
        read=read,
        unread=lambda sizes: sizes.annotation // 2,
    )
