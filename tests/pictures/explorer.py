# SPDX-License-Identifier: Apache-2.0
"""A page of two systems, opened in a browser."""

import io
from base64 import b64decode

import numpy as np
from matplotlib.image import imread

from kvnmt.pictures.explorer import Explorer

MARKUP = "</script><script>alert(1)</script>"
LONG = (
    "the committee that was to look into the matter met again on Thursday evening and "
    "after hearing nine witnesses from four countries came to the view that nobody had "
    "known of the letter before the minister himself read it aloud"
)
TEXTS = [  # source, reference, a hypothesis of each system
    (
        "die alte Katze schläft unter dem Tisch",
        "the old cat is sleeping under the table",
        "the old cat sleeps under the table",
        "the old dog sleeps on a table",
    ),
    ("科学 者 は 星 を 見つけ た", "he found a star", "found a star", "a star"),
    (f"<b>fett</b> {MARKUP}", "<i>bold</i>", "<b>bold</b>", "<img src=x onerror=a()>"),
    (LONG, LONG, LONG.replace("nine", "ten"), " ".join(LONG.split()[:22])),
    ("ja .", None, "yes .", ""),
]
DIFFERENCES = [40.0, 90.0, 10.0, 70.0, 0.0]
KINDS = ("memory", "weights", "self_attention")


def _system(name: str, rounds: int, *kinds: str) -> dict:
    return {"name": name, "rounds": rounds} | {kind: kind in kinds for kind in KINDS}


SYSTEMS = [
    _system("kv-memory", 2, "memory"),
    _system("residual", 1, "self_attention"),
]
HEADS = 2
PLAIN, LINEAR = _system("plain", 0), _system("linear", 1, "weights")


def _alignment(rng, rows: int, columns: int, sharpness: float) -> np.ndarray:
    diagonal = np.arange(rows)[:, None] * (columns - 1) / max(rows - 1, 1)
    energies = -sharpness * np.abs(np.arange(columns) - diagonal)
    weights = np.exp(energies + rng.normal(size=(rows, columns)))
    return weights / weights.sum(axis=1, keepdims=True)


def _per_mille(weights: np.ndarray) -> list[list[int]]:
    return np.round(1000 * weights).astype(int).tolist()


def _write(rng, alignment: np.ndarray) -> dict[str, list[list[float]]]:
    def norms(size: float) -> list[list[float]]:
        return (size * alignment * rng.uniform(0.2, 1, alignment.shape)).tolist()

    return {"changed": norms(3), "forgotten": norms(2), "added": norms(2.5)}


def _read(rng, alignment: np.ndarray) -> dict[str, list]:
    """Signs, and what the decoder had written: nothing before the first word."""
    signed = 0.5 * alignment * rng.choice([-1, 1], (HEADS, *alignment.shape))
    own = np.round(1000 * rng.uniform(0.1, 0.9, len(alignment))).astype(int)
    own[0] = 0
    return {"signed": np.round(signed, 3).tolist(), "own": own.tolist()}


def _output(rng, system, source: str, text: str, score: float | None) -> dict:
    sources, targets = [*source.split(), "</s>"], [*text.split(), "</s>"]
    T, S = len(targets), len(sources)
    rounds = [_alignment(rng, T, S, 0.7 + r) for r in range(system["rounds"])]
    writes = [_write(rng, alignment) for alignment in rounds]
    earlier = np.tril(_alignment(rng, T, T, 0.3))
    earlier /= earlier.sum(axis=1, keepdims=True)
    log_probs = np.round(-rng.exponential(0.5, T), 3)
    return {
        "text": text,
        "score": score,
        "log_prob": float(log_probs.sum()),
        "source": sources,
        "target": targets,
        "token_log_probs": log_probs.tolist(),
        "rounds": [_per_mille(alignment) for alignment in rounds],
        "memory": writes if system["memory"] else None,
        "weights": [_read(rng, a) for a in rounds] if system["weights"] else None,
        "self_attention": [_per_mille(earlier)] if system["self_attention"] else None,
    }


def sample(systems=SYSTEMS, texts=TEXTS) -> dict:
    """Random but plausible data; system 2 scores sentence 1 worst, and so on."""
    rng = np.random.default_rng(0)
    sentences = []
    for i, (source, reference, *hypotheses) in enumerate(texts):
        outputs = []
        for j, (system, text) in enumerate(zip(systems, hypotheses, strict=False)):
            score = None if reference is None else 20.0 + 10 * i * (1 - 2 * j) + 40 * j
            outputs.append(_output(rng, system, source, text, score))
        sentences.append(
            {
                "number": i + 1,
                "source": source,
                "reference": reference,
                "difference": DIFFERENCES[i % 5] if len(systems) > 1 else 0.0,
                "outputs": outputs,
            }
        )
    told = [{"members": 1} | {k: s[k] for k in ("name", "rounds")} for s in systems]
    return {"title": f"KVMemAtt {MARKUP}", "systems": told, "sentences": sentences}


DATA = sample()


def show(page, written, hash_: str = "") -> None:
    page.goto(f"{written.as_uri()}#{hash_}")


def show_other(page, path, data) -> None:
    Explorer(data).write(path)
    page.goto(path.as_uri())


def numbers_of(page) -> list[str]:
    # Not the inner texts: rows that were not painted yet have none.
    return page.locator("#list .number").all_text_contents()


def values_of(page, selector: str, code: str) -> list:
    """What a JavaScript expression of `node` is for every element."""
    return page.locator(selector).evaluate_all(f"nodes => nodes.map(node => {code})")


def cells_of(page, number: int, shape: tuple[int, ...], place: float) -> np.ndarray:
    """Colours of a matrix' cells, near their corners (0.1) or centres (0.45)."""
    code = "canvas => canvas.toDataURL().split(',')[1]"
    picture = b64decode(page.locator("figure canvas").nth(number).evaluate(code))
    pixels = imread(io.BytesIO(picture), format="png")[..., :3]
    height, width = pixels.shape[0] // shape[0], pixels.shape[1] // shape[1]
    return pixels[int(place * height) :: height, int(place * width) :: width]
