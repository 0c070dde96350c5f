# SPDX-License-Identifier: Apache-2.0
"""From the parameter tree of kvnmt to dicts of the papers' matrices."""

from typing import Any

import numpy as np

from tests.references.blocks import Theta, Vector


def plain(params: Any) -> dict[str, Any]:
    """Translates the parameters of a whole model."""
    return {
        "E_x": _array(params.source_embedding),
        "E_y": _array(params.target_embedding),
        "forward": gru(params.encoder.forward),
        "backward": gru(params.encoder.backward),
        "project": _linear(params.encoder.project),
        "init": _linear(params.decoder.initial),
        "GRU1": gru(params.decoder.query),
        "rounds": [
            {"theta": attention(r.attention), "GRU2": gru(r.advance)}
            for r in params.decoder.rounds
        ],
        "readout": _linear(params.readout),
        "output": _linear(params.output),
    }


def attention(params: Any) -> dict[str, Theta]:
    """Translates one round of any mechanism of the additive family."""
    theta = {"theta_r": address(params.address)}
    if hasattr(params, "forget"):
        forget, add = _linear(params.forget), _linear(params.add)
        theta["gates"] = {
            "W_F": forget["W"],
            "b_F": forget["b"],
            "W_A": add["W"],
            "b_A": add["b"],
        }
        if params.write_address is not None:
            theta["theta_w"] = address(params.write_address)
    return theta


def _array(x: Any) -> Vector:
    return np.asarray(x, np.float64)


def address(params: Any) -> Theta:
    return {
        "v": _array(params.v_energy),
        "W": _array(params.W_query).T,
        "U": _array(params.U_key).T,
        "b": _array(params.b),
    }


def _linear(params: Any) -> Theta:
    if params is None:
        return {}
    return {"W": np.vstack([_array(W) for W in params.W]).T, "b": _array(params.b)}


def gru(params: Any) -> Theta:
    W = np.vstack([_array(W) for W in params.W]).T
    U, b, n = _array(params.U).T, _array(params.b), params.U.shape[0]
    theta = {}
    for place, gate in enumerate("run"):
        rows = slice(place * n, (place + 1) * n)
        theta |= {f"W_{gate}": W[rows], f"U_{gate}": U[rows], f"b_{gate}": b[rows]}
    return theta
