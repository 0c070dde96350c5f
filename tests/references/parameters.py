# SPDX-License-Identifier: Apache-2.0
"""From the parameter tree of kvnmt to dicts of the papers' matrices."""

from collections.abc import Callable
from typing import Any

import numpy as np

from tests.references.blocks import Theta, Vector
from tests.references.sentence import Setting


def plain(params: Any, setting: Setting) -> dict[str, Any]:
    """Translates the parameters of a whole model."""
    readout = params.readout
    return {
        "E_x": _maybe(array, params.source_table),
        "E_y": array(params.target_embedding),
        "encoder": encoder(params.encoder, setting.merge, setting.cell),
        "decoder": decoder(params.decoder, *setting.decoder),
        "target_context": target_context(
            params.target_context, setting.target_context[0]
        ),
        "readout": {name: matrix(W) for name, W in readout.W.items()}
        | {"b": _maybe(array, readout.b)},
        "low_rank": _maybe(matrix, readout.low_rank),
        "output": _output(params),
        "lexicon": _maybe(lexicon, params.lexicon),
        "auxiliary": [linear(head) for head in params.auxiliary],
    }


def _output(params: Any) -> Theta:
    if params.output.W:
        return linear(params.output)
    return {"W": array(params.target_embedding), "b": array(params.output.b)}


def lexicon(params: Any) -> dict[str, Any]:
    return {"hidden": linear(params.hidden), "W_o": matrix(params.W)}


def encoder(params: Any, merge: str, cell_name: str) -> dict[str, Any]:
    if merge == "none":
        return {}
    if cell_name == "transformer":
        return {"forward": stack(params.forward)}
    own: dict[str, Any] = {
        "forward": [cell(layer) for layer in params.forward],
        "backward": [cell(layer) for layer in params.backward],
    }
    names = {"project": ["project"], "halves": ["W_f", "W_g"]}.get(merge, [])
    return own | dict(zip(names, map(linear, params.project), strict=True))


def decoder(params: Any, name: str, options: dict[str, Any]) -> dict[str, Any]:
    own: dict[str, Any] = {}
    if name == "transformer":
        return stack(params)
    if params.initial is not None:
        own["init"] = linear(params.initial)
    if name == "stacked_lstm":
        own["rounds"] = [{"theta": attention(params.attention), "transitions": []}]
        own["layers"] = [cell(layer) for layer in params.layers]
        if params.attentional is not None:
            own["W_d"] = linear(params.attentional)
        return own
    advance = "GRU" if name in ("single", "mem_dec") else "GRU2"
    cells = [r.advance for r in params.rounds]
    if advance == "GRU":  # the papers put the word before the context
        cells = [_word_first(g) for g in cells]
    own["rounds"] = [
        {
            "theta": attention(r.attention),
            "transitions": [gru(cell) for cell in r.transitions],
            advance: gru(g),
        }
        for r, g in zip(params.rounds, cells)
    ]
    return own | DECODERS[name](params, options)


def _word_first(cell: Any) -> Any:
    swap = lambda W: (W[1], W[0], *W[2:])  # noqa: E731
    if cell.gains is not None:
        cell = cell.replace(gains=cell.gains.replace(W=swap(cell.gains.W)))
    return cell.replace(W=swap(cell.W))


def _conditional(params: Any, options: dict[str, Any]) -> dict[str, Any]:
    return {"GRU1": gru(params.query)}


def _single(params: Any, options: dict[str, Any]) -> dict[str, Any]:
    if params.query is None:
        return {}
    W_q, W_e = matrix(params.query.W_state), matrix(params.query.W_word)
    return {"query": {"W_q": W_q, "W_e": W_e}}


def _mem_dec(params: Any, options: dict[str, Any]) -> dict[str, Any]:
    memory = params.memory
    return {
        "W_r": matrix(params.query.W_state),
        "W_y": matrix(params.query.W_word),
        "W_a": matrix(memory.W_cell),
        "U_a": matrix(memory.U_state),
        "v": array(memory.v),
        "w_g": array(memory.gate),
        "W_ers": matrix(memory.erase),
        "W_add": matrix(memory.add),
        "W_ini": matrix(memory.initial),
    }


def _past_future(params: Any, options: dict[str, Any]) -> dict[str, Any]:
    own: dict[str, Any] = {"GRU1": gru(params.query), "GRU3": gru(params.adjust)}
    if options["past"]:
        own["GRU_P"] = gru(params.past)
    if options["future"]:
        own["future"] = _future(params.future, options["cell"])
    for name, delta in params.deltas.items():
        new, old = matrix(delta.W_new), matrix(delta.W_old)
        W_1, W_2 = (new, old) if name == "past" else (old, new)
        own[f"{name}_head"] = linear(delta.squash) | {"W_1": W_1, "W_2": W_2}
    return own


def _future(params: Any, kind: str) -> dict[str, Theta]:
    gates = gru(params.gates)
    if kind == "gru":
        return {"GRU_F": gates}
    W = matrix(params.W)
    if kind == "outside":
        W_a, W_b = map(matrix, params.subtract)
        sub = {"W": W, "W_a": W_a, "W_b": W_b, "b": array(params.b)}
        return {"GRU_F": gates, "sub": sub}
    return {"gates": gates, "sub": {"W": W}}


def _memory_rnn(params: Any, options: dict[str, Any]) -> dict[str, Any]:
    W_1, W_2, W_3 = map(matrix, params.own.W.W)
    b, v = array(params.own.W.b), array(params.own.v)
    history = {"W_1": W_1, "W_2": W_2, "W_3": W_3, "b": b, "v": v}
    return {"GRU1": gru(params.query), "history": history}


DECODERS = {
    "conditional": _conditional,
    "single": _single,
    "mem_dec": _mem_dec,
    "past_future": _past_future,
    "memory_rnn": _memory_rnn,
}


def stack(params: Any) -> dict[str, Any]:
    """Translates a stack of Transformer layers, with or without looks at a source."""
    layers = []
    for layer in params.layers:
        Q, K, V = np.split(array(layer.own.W), 3, axis=1)
        feed = layer.feed_forward
        own = {"LN_own": norm(layer.own.norm), "LN_feed": norm(feed.norm)}
        own |= {"W_Q": Q.T, "W_K": K.T, "W_V": V.T, "W_O": matrix(layer.own.W_out)}
        for n, affine in enumerate((feed.inner, feed.outer), start=1):
            own |= {f"W_{n}": linear(affine)["W"], f"b_{n}": linear(affine)["b"]}
        own["rounds"] = [
            {
                "LN": norm(r.norm),
                "theta": attention(r.attention),
                "W_c": matrix(r.W_context),
            }
            for r in getattr(layer, "rounds", ())
        ]
        layers.append(own)
    P = _maybe(matrix, params.project)
    return {"P": P, "layers": layers, "LN": norm(params.norm)}


def norm(params: Any) -> Theta:
    return {"g": array(params.gain), "b": array(params.b)}


def attention(params: Any) -> dict[str, Theta]:
    """Translates one round of any mechanism, told by what its parameters hold."""
    theta: dict[str, Theta] = {}
    if _has(params, "address"):
        theta["theta_r"] = address(params.address)
    if _has(params, "project"):
        theta["V"] = linear(params.project)
    if _has(params, "W"):
        theta["general"] = {"W": matrix(params.W)}
    if _has(params, "W_key"):
        names = {"W_Q": "W_query", "W_K": "W_key", "W_V": "W_value"}
        theta["heads"] = {k: matrix(getattr(params, n)) for k, n in names.items()}
    if _has(params, "query"):
        theta["Q"] = linear(params.query)
    if _has(params, "moves"):
        theta["shift"] = linear(params.moves)
    if _has(params, "G"):
        theta |= _coverage(params)
    if _has(params, "forget"):
        theta |= _memory(params)
    if _has(params, "W_query"):
        theta["query"] = {"W": matrix(params.W_query)}
    if _has(params, "source"):
        theta["write"] = writer(params.source)
    if _has(params, "decoder"):
        theta["own"] = writer(params.decoder)
    if _has(params, "writer"):
        theta["write"] = writer(params.writer)
    return theta


def _has(params: Any, name: str) -> bool:
    return getattr(params, name, None) is not None


def _coverage(params: Any) -> dict[str, Theta]:
    theta = {"cover": {"G": matrix(params.G)}}
    if _has(params, "fertility"):
        own = linear(params.fertility)
        theta["fertility"] = {"U": own["W"], "b": own["b"]}
    if not _has(params, "cell"):
        return theta
    if hasattr(params.cell, "b"):
        return theta | {"GRU_cov": gru(params.cell)}
    W_a, W_h, W_s = map(matrix, params.cell.W)
    cov = {"W_c": matrix(params.cell.U), "W_a": W_a, "W_h": W_h, "W_s": W_s}
    return theta | {"cov": cov}


def _memory(params: Any) -> dict[str, Theta]:
    forget, add = linear(params.forget), linear(params.add)
    gates = {"W_F": forget["W"], "b_F": forget["b"], "W_A": add["W"], "b_A": add["b"]}
    if params.write_address is None:
        return {"gates": gates}
    return {"gates": gates, "theta_w": address(params.write_address)}


def writer(params: Any) -> Theta:
    """Of a linear memory or of slots."""
    theta = {"W_k": matrix(params.W_key), "W_v": matrix(params.W_value)}
    if _has(params, "W_gate"):
        return theta | {"W_m": matrix(params.W_gate)}
    gates = {"b": params.erase, "w": params.write}
    if params.decay is not None:
        gates["a"], theta["A"] = params.decay.gate, array(params.decay.A)
    for letter, gate in gates.items():
        if gate is not None:
            own = linear(gate)
            theta |= {f"W_{letter}": own["W"], f"b_{letter}": own["b"]}
    return theta


def target_context(params: Any, name: str) -> Theta:
    if name in ("delta_memory", "slots"):
        return writer(params.writer) | {"W_q": matrix(params.W_query)}
    if name == "self_attentive":
        W_z = {"W_z": matrix(params.W.W[1])} if len(params.W.W) > 1 else {}
        W_y, b = matrix(params.W.W[0]), array(params.W.b)
        return {"v": array(params.v), "W_y": W_y, "b": b} | W_z
    if name == "self_attentive_rnn":
        W_1, W_2 = map(matrix, params.W.W)
        return {"v": array(params.v), "W_1": W_1, "W_2": W_2, "b": array(params.W.b)}
    if name == "key_value_predict":
        return {
            "w": array(params.w),
            "W_Y": matrix(params.W_key),
            "W_h": matrix(params.W_query),
            "W_r": matrix(params.W_read),
            "W_x": matrix(params.W_predict),
        }
    if name == "n_gram":
        return {"W_N": matrix(params.W)}
    return {}


def _maybe(translate: Callable[[Any], Vector], x: Any) -> Vector | None:
    return None if x is None else translate(x)


def array(x: Any) -> Vector:
    return np.asarray(x, np.float64)


def matrix(x: Any) -> Vector:
    return array(x).T


def address(params: Any) -> Theta:
    return {
        "v": array(params.v_energy),
        "W": matrix(params.W_query),
        "U": matrix(params.U_key),
        "b": array(params.b),
    }


def linear(params: Any) -> Theta:
    return {"W": np.vstack([array(W) for W in params.W]).T, "b": array(params.b)}


def gru(params: Any) -> Theta:
    return _gates(params, "run")


def cell(params: Any) -> Theta:
    """One layer, GRU or LSTM."""
    packed = params.U.shape[1] // params.U.shape[0]
    return _gates(params, {3: "run", 4: "ifog"}[packed])


def _gates(params: Any, order: str) -> Theta:
    none = np.zeros((0, len(params.b)))  # where nothing is read
    W = np.vstack([none, *(array(W) for W in params.W)]).T
    U, b, n = matrix(params.U), array(params.b), params.U.shape[0]
    theta = {}
    for place, gate in enumerate(order):
        rows = slice(place * n, (place + 1) * n)
        theta |= {f"W_{gate}": W[rows], f"U_{gate}": U[rows], f"b_{gate}": b[rows]}
        if params.gains is not None:
            theta[f"gains_{gate}"] = [array(gain)[rows] for gain in params.gains.W]
            theta[f"gain_{gate}"] = array(params.gains.U)[rows]
            theta["widths"] = [len(W) for W in params.W]
    return theta
