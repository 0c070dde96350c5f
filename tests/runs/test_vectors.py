# SPDX-License-Identifier: Apache-2.0
"""Embeddings that start as vectors of a file."""

import dataclasses
import gzip

import numpy as np
import pytest

from kvnmt.data.subwords import build_subwords
from kvnmt.data.vocabulary import Words
from kvnmt.errors import UserError
from kvnmt.runs import train as experiment
from kvnmt.runs.directory import load_run
from kvnmt.runs.vectors import with_vectors
from tests.helpers import quiet, tiny, toy_data, write_untrained

WORDS = Words(("the", "cat", "sat", "3"))
TABLE = np.linspace(-2, 1, 18, dtype=np.float32).reshape(6, 3)
TEXT = "dog 9 9 9\ncat 1 2 -2\nof course 7 7 7\n3 0 0 3 \ncat 5 5 5\n\n"


def read(tmp_path, text: str | bytes, table=TABLE, side="source"):
    path = tmp_path / "vectors.txt"
    path.write_bytes(text if isinstance(text, bytes) else text.encode())
    return with_vectors(table, WORDS, path, side)


@pytest.mark.parametrize("header", ["", "4 3\n"])
@pytest.mark.parametrize("packed", [False, True])
def test_known_words_start_as_their_vectors(tmp_path, header, packed):
    text = (header + TEXT).encode()
    table, words = read(tmp_path, gzip.compress(text) if packed else text)
    assert words == 2
    rows = np.array([[1, 2, -2], [0, 0, 3]])
    scale = np.sqrt(np.mean(TABLE**2) / np.mean(rows**2))
    np.testing.assert_allclose(table[np.array([3, 5])], scale * rows, rtol=1e-6)
    others = np.array([0, 1, 2, 4])
    np.testing.assert_array_equal(table[others], TABLE[others])


def test_vectors_may_be_nought(tmp_path):
    table, _ = read(tmp_path, "cat 0 0 0\n")
    assert np.isfinite(table).all() and not table[3].any()


@pytest.mark.parametrize(
    ("text", "parts"),
    [
        ("the 1 2\n", ["line 1", "2 numbers", "3", "model.embedding"]),
        ("the 1 2 1e300\n", ["line 1", "0 numbers", "3", "target_vectors"]),
        ("dog 1 2 3\nthe 1e300 2 3\n", ["line 2", "2 finite numbers"]),
        ("2 4\nthe 1 2 3 4\n", ["line 2", "4 numbers", "3", "target_vectors"]),
        ("the 1 2 3\ncat 1 2\n", ["line 2", "2 finite numbers", "not 3"]),
        ("the 1 2 3\ncat 1 nan 3\n", ["line 2", "2 finite numbers", "not 3"]),
        ("the 1 2 3\ncat\n", ["line 2", "0 finite numbers", "not 3"]),
        ("dog 1 2 3\n", ["none of the 6 words", "target side", "target_vectors"]),
        ("", ["none of the 6 words"]),
    ],
)
def test_other_files_are_refused(tmp_path, text, parts):
    with pytest.raises(UserError) as error:
        read(tmp_path, text, side="target")
    for part in parts:
        assert part in str(error.value)


def test_words_are_no_pieces_within_words(tmp_path):
    """Whole words begin with a mark, and a file of words has none of them."""
    words = build_subwords(["the cat sat on the mat"] * 9, 30)
    (inner, *_) = (
        piece for piece in words.pieces(range(2, 30)) if "\u2581" not in piece
    )
    path, table = tmp_path / "vectors", np.ones((30, 3), np.float32)
    path.write_text(f"{inner} 1 2 3\n")
    with pytest.raises(
        UserError, match="1 piece within words and for none that begins"
    ):
        with_vectors(table, words, path, "source")
    path.write_text(f"{inner} 1 2 3\n\u2581the 4 5 6\n")
    assert with_vectors(table, words, path, "source")[1] == 2
    lines = ["\u4e2d\u56fd\u6211\u4eec", "\u6211\u4eec\u4e2d\u56fd"] * 9
    unspaced = build_subwords(lines, 9)  # of which few begin with a mark
    (inner, *_) = (p for p in unspaced.pieces(range(2, 9)) if "\u2581" not in p)
    path.write_text(f"{inner} 1 2 3\n")
    assert with_vectors(table[:9], unspaced, path, "source")[1] == 1


@pytest.mark.parametrize(
    ("data", "part"),
    [
        (b"the 1 2 3\n", "line 1 is a word and 3 numbers"),
        (b"1 3\nthe 1 2 3\n", "line 2 is a word and 3 numbers"),
        (b"PK\x03\x04\n", "is no text: it is compressed"),
        (b"3 300\nthe \x00\x80\x3f", "is no text, as a model of another program"),
    ],
)
def test_other_widths_are_told_before_text_is_read(tmp_path, data, part):
    exp = tiny(toy_data(tmp_path / "text"))
    exp.data.source.unlink()
    path = tmp_path / "vectors"
    path.write_bytes(data)
    training = dataclasses.replace(exp.training, source_vectors=path)
    with pytest.raises(UserError, match=part):
        experiment.run(
            dataclasses.replace(exp, training=training),
            *(tmp_path / "run",),
            console=quiet(),
        )


def test_a_run_starts_from_vectors(tmp_path, monkeypatch):
    exp = tiny(toy_data(tmp_path / "text"))
    width, starts = exp.model.embedding, []

    def fit(job, draw, *, resume, begin):
        starts.append(np.asarray(draw().target_embedding))

    monkeypatch.setattr(experiment, "fit", fit)
    experiment.run(exp, tmp_path / "run", console=quiet())
    (tmp_path / "vectors").write_text(f"A {' '.join(map(str, range(width)))}\n")
    training = dataclasses.replace(exp.training, target_vectors=tmp_path / "vectors")
    exp, console = dataclasses.replace(exp, training=training), quiet()
    experiment.run(exp, tmp_path / "other", console=console)
    assert "1 of 10 target words start as vectors of" in console.file.getvalue()
    before, after = starts
    (row,) = np.flatnonzero((before != after).any(1))
    np.testing.assert_allclose(after[row] / after[row, 1], range(width), rtol=1e-5)


def test_vectors_are_for_words_that_a_trained_model_lacks(tmp_path, monkeypatch):
    exp = tiny(toy_data(tmp_path / "text"))
    width = exp.model.embedding
    folder = tmp_path / "trained"
    write_untrained(exp, folder)
    trained = load_run(folder)
    data = toy_data(tmp_path / "more")
    assert data.target
    data.target.write_text(data.target.read_text().replace("B", "NEW"))
    rows = (f"{word} {' '.join(['7'] * width)}\n" for word in ("A", "NEW"))
    (tmp_path / "vectors").write_text("".join(rows))
    training = dataclasses.replace(
        exp.training,
        warm_start=folder,
        new_words=True,
        target_vectors=tmp_path / "vectors",
    )
    exp, starts = dataclasses.replace(exp, data=data, training=training), []
    monkeypatch.setattr(
        experiment, "fit", lambda job, draw, **_: starts.append((job, draw()))
    )
    experiment.run(exp, tmp_path / "run", console=quiet())
    ((job, params),) = starts
    words, before = job.corpora.vocabularies.target, trained.vocabularies.target
    known, new = words.encode("A NEW")
    (old,) = before.encode("A")
    table = np.asarray(params.target_embedding)
    np.testing.assert_array_equal(table[known], trained.params.target_embedding[old])
    assert len({*table[new].tolist()}) == 1 < len({*table[known].tolist()})


def test_source_vectors_need_a_table_of_source_words(tmp_path):
    exp = tiny(toy_data(tmp_path / "text", vocabulary="bpe", subwords=20, joint=True))
    model = dataclasses.replace(exp.model, tie="all")
    training = dataclasses.replace(exp.training, source_vectors=tmp_path / "vectors")
    exp = dataclasses.replace(exp, model=model, training=training)
    with pytest.raises(UserError, match="training.source_vectors"):
        experiment.run(exp, tmp_path / "run", console=quiet())
    assert not (tmp_path / "run").exists()
