# SPDX-License-Identifier: Apache-2.0
"""The energy with coverage in it: what linguistic and neural coverage share.

Z. Tu, Z. Lu, Y. Liu, X. Liu, H. Li (2016), "Modeling Coverage for Neural Machine
Translation", section 3::

    e_j = v . tanh(W q_t + U h_j + G cov_{t-1,j} + b)        a = softmax(e)

How the coverage cov of a position is kept is said in the file of each form.
"""

from flax import struct

from kvnmt.attention import address, base
from kvnmt.attention.address import Source, read_values
from kvnmt.typing import Array, Float


@struct.dataclass
class Params(address.Params):
    """What the energy needs of the parameters."""

    G: Float[Array, "K A"]  # how coverage enters the energy


@struct.dataclass
class State:
    """Carried from step to step."""

    coverage: Float[Array, "B S K"]


def read(
    params: Params, source: Source, state: State, moment: base.Moment
) -> base.Attended:
    """Addresses the annotations by the query and their coverage, and reads them."""
    coverage = state.coverage.astype(params.G.dtype)
    keys = source.projected_keys + coverage @ params.G
    alignment = address.address(params.address, moment.query, keys, source.mask)
    return base.Attended(read_values(alignment, source.annotations), alignment)


def received(moment: base.Moment) -> Float[Array, "B S 1"]:
    """The attention a_j that every position has just received."""
    assert moment.attended is not None, base.NO_LOOK
    assert moment.attended.alignment is not None
    return moment.attended.alignment[..., None]
