# SPDX-License-Identifier: Apache-2.0
"""A model of other words takes over the rows of those that a trained one knows."""

import dataclasses
from functools import partial

import jax
import numpy as np
import pytest

from kvnmt.data.subwords import build_subwords
from kvnmt.data.vocabularies import Vocabularies
from kvnmt.data.vocabulary import SPACE, SPECIAL, Words
from kvnmt.errors import UserError
from kvnmt.model import assembly
from kvnmt.model.config import ModelConfig
from kvnmt.runs import train as experiment
from kvnmt.runs.directory import load_vocabularies
from kvnmt.runs.shared_words import shared_words
from kvnmt.runs.warm_start import warm_start
from kvnmt.systems.named import system
from tests.helpers import SIZES, quiet, tiny, toy_data, untrained

OLD = Vocabularies(Words(("a", "b", "c", "d")), Words(("A", "B", "C")))
# Both know the old words, and one more at each side, all in another order.
NEW = Vocabularies(Words(("d", "x", "a", "c", "b")), Words(("C", "A", "X", "B")))
OLD_WORDS = Words(("on", "the", "e"))
# Tied tables are of one vocabulary.
JOINT = Words(("a", "b", "A")), Words(("A", "x", "b", "a"))


def both(config: ModelConfig, old: Vocabularies, new: Vocabularies):
    """A trained model, and another of new words that starts from it."""
    models = [assembly.build(config, *map(len, words)) for words in (old, new)]
    trained, fresh = (m.init(jax.random.key(n)) for n, m in enumerate(models))
    started = warm_start(fresh, trained, shared_words(new, old))
    return partial(models[0].forward, trained), partial(
        models[1].forward, started.params
    )


@pytest.mark.parametrize("tie", ["none", "output", "all"])
def test_known_words_are_translated_as_before(tie):
    """Of a system that has each kind of table by words."""
    config = dataclasses.replace(system("past-future-losses").model(SIZES), tie=tie)
    old, new = OLD, NEW
    if tie == "all":
        old, new = (Vocabularies(words, words) for words in JOINT)
    before, after = both(config, old, new)
    sentences = "a b a", "A A"
    if tie != "all":
        sentences = "d a c b", "B C A"

    def predict(forward, words):
        source, target = (
            np.array([side.encode(line)]) for side, line in zip(words, sentences)
        )
        return forward(source, target)

    known = old.target.pieces(range(2, len(old.target)))
    places = [0, 1, *new.target.encode(" ".join(known))]
    for head, want in zip(predict(after, new).heads, predict(before, old).heads):
        np.testing.assert_allclose(
            head.logits[..., places], want.logits, rtol=1e-5, atol=1e-6
        )


def test_new_words_start_as_they_would():
    model = assembly.build(SIZES, *map(len, NEW))
    fresh = model.init(jax.random.key(1))
    trained = assembly.build(SIZES, *map(len, OLD)).init(jax.random.key(0))
    params = warm_start(fresh, trained, shared_words(NEW, OLD)).params
    x, X = NEW.source.encode("x"), NEW.target.encode("X")
    for name, rows in (("source_embedding", x), ("target_embedding", X)):
        ours, its = getattr(params, name), getattr(fresh, name)
        np.testing.assert_array_equal(ours[np.array(rows)], its[np.array(rows)])
    np.testing.assert_array_equal(params.output.W[0][:, X], fresh.output.W[0][:, X])


def test_a_run_says_how_many_words_it_knows(tmp_path_factory, tmp_path, monkeypatch):
    monkeypatch.setattr(
        experiment, "fit", lambda job, draw, *, resume, begin: draw() and begin(True)
    )
    base = untrained(tmp_path_factory.getbasetemp(), "rnnsearch-star")
    data = toy_data(tmp_path / "text")
    data.source.write_text(data.source.read_text().replace("a", "x"))
    exp = tiny(data, warm_start=base, new_words=True)
    console = quiet()
    experiment.run(exp, tmp_path / "run", console=console)
    ours, its = map(load_vocabularies, (tmp_path / "run", base))
    assert "x" in ours.source.words and "x" not in its.source.words
    known = f"{len(ours.source) - 1} of {len(ours.source)} source and "
    known += f"{len(ours.target)} of {len(ours.target)} target words are known to"
    assert known in console.file.getvalue()
    assert "no word is new" not in console.file.getvalue()
    same = dataclasses.replace(data, vocabularies=base)  # as --like hands it on
    experiment.run(
        dataclasses.replace(exp, data=same), tmp_path / "same", console=console
    )
    assert "warning: no word is new, since the vocabula" in console.file.getvalue()


def test_other_widths_are_refused_with_new_words_too():
    trained = assembly.build(SIZES, *map(len, OLD)).init(jax.random.key(0))
    wide = dataclasses.replace(SIZES, embedding=SIZES.embedding + 1)
    fresh = assembly.build(wide, *map(len, NEW)).init(jax.random.key(1))
    with pytest.raises(UserError, match="source_embedding"):
        warm_start(fresh, trained, shared_words(NEW, OLD))


def test_a_word_is_the_piece_that_is_a_whole_word():
    """Not the piece of the same letters that goes on inside of a word."""
    text = ["on the lemon the melon on"] * 9
    pieces = build_subwords(text, size=30)
    (word,), (piece,) = (s.encode("the") for s in (OLD_WORDS, pieces))
    places = shared_words(
        Vocabularies(pieces, pieces), Vocabularies(OLD_WORDS, OLD_WORDS)
    )
    pairs = dict(zip(places.source.here, places.source.there))
    assert pairs.pop(piece) == word
    names = pieces.pieces(pairs)
    assert all(name.startswith(SPACE) for name in names[len(SPECIAL) :])
