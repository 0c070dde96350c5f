# SPDX-License-Identifier: Apache-2.0
"""Runs and corpora whose words are cut by merges of subword-nmt."""

import dataclasses

import pytest

from kvnmt.data.corpus import load_corpora
from kvnmt.data.vocabularies import load_vocabularies
from kvnmt.data.vocabulary import UNK
from kvnmt.inference.forced import force_lines
from kvnmt.inference.translate import translate_lines
from kvnmt.runs import train
from kvnmt.runs.directory import load_run
from tests.helpers import quiet, tiny, toy_data


def test_a_run_reads_and_writes_whole_words(words, tmp_path):
    """Text, links and translations are of words; only ids are of pieces."""
    exp = tiny(words, epochs=1)
    train.run(exp, tmp_path / "run", console=quiet())
    run = load_run(tmp_path / "run")
    ours, theirs = run.vocabularies
    assert ours.pieces(ours.encode("aaa bbb")) == ["aa@@", "a", "b@@", "bb"]
    assert theirs.pieces(theirs.encode("AAA BBB")) == ["AAA", "BB@@", "B"]
    (pair,) = force_lines(run, ["aaa bbb"], ["AAA BBB"])
    assert pair.counts == (2, 2) and pair.source == [0, 0, 1, 1]
    assert pair.matrix().shape == (2, 2)
    lines = translate_lines(run, ["aaa bbb ccc"] * 3)
    assert not any("@@" in line for line in lines)
    again = dataclasses.replace(exp.training, epochs=2)
    words.codes.unlink()  # the run has the merges
    train.run(dataclasses.replace(exp, training=again), tmp_path / "run", resume=True)
    assert load_vocabularies(tmp_path / "run") == run.vocabularies


@pytest.mark.parametrize("kind", ["words", "characters"])
def test_words_and_characters_may_be_joint(words, kind):
    joint = dataclasses.replace(words, vocabulary=kind, joint=True)
    ours, theirs = load_corpora(joint, None, quiet()).vocabularies
    assert ours == theirs and UNK not in ours.encode("aaa AAA")
    trimmed = dataclasses.replace(joint, trimmed=True)
    ours, theirs = load_corpora(trimmed, None, quiet()).vocabularies
    assert UNK in ours.encode("AAA") and UNK in theirs.encode("aaa")


def test_merges_of_each_side_make_two_vocabularies(words):
    joint = dataclasses.replace(words, joint=True)
    ours, theirs = load_corpora(joint, None, quiet()).vocabularies
    assert ours.merges != theirs.merges


def test_both_sides_may_have_one_vocabulary(words):
    """As subword-nmt learns it, for a table that both share."""
    joint = dataclasses.replace(words, target_codes=None, joint=True)
    ours, theirs = load_corpora(joint, None, quiet()).vocabularies
    assert ours == theirs and ours.encode("aaa") != [UNK] != theirs.encode("AAA")
    trimmed = dataclasses.replace(joint, trimmed=True)
    ours, theirs = load_corpora(trimmed, None, quiet()).vocabularies
    assert theirs.encode("aaa") == [UNK] * 3


def test_other_merges_are_another_entry_of_the_cache(words, tmp_path):
    kept = dataclasses.replace(words, cache=tmp_path / "cache")
    first = load_corpora(kept, None, quiet()).vocabularies
    assert load_corpora(kept, None, quiet()).vocabularies == first
    words.codes.write_text("#version: 0.2\na a\n")
    other = load_corpora(kept, None, quiet()).vocabularies
    assert len({v.source.data for v in (first, other)}) == 2
    assert len([p for p in kept.cache.iterdir() if p.is_dir()]) == 2
    assert load_corpora(kept, first, quiet()).vocabularies == first


@pytest.mark.parametrize(
    ("choices", "part"),
    [
        (["--data.vocabulary", "codes"], "with --data.vocabulary codes, --data.codes"),
        (["--data.codes", "merges"], "--data.codes is for --data.vocabulary codes"),
        (
            ["--data.vocabulary", "codes", "--data.codes", "merges"],
            "--data.codes 'merges' holds no merges of subword-nmt or fastBPE: No such "
            "file",
        ),
        (
            ["--recipe", "papers", "--data.trimmed"],
            "--data.trimmed is of one vocabulary of both sides; leave it out, or give "
            "--data.joint too",
        ),
    ],
)
def test_flags_that_do_not_go_together_are_told(kvnmt, tmp_path, choices, part):
    text = toy_data(tmp_path)
    flags = [
        word
        for name in ("source", "target", "valid_source", "valid_target")
        for word in (f"--data.{name.replace('_', '-')}", getattr(text, name))
    ]
    said = kvnmt("train", tmp_path / "run", *flags, *choices)
    assert said.status == 2 and part in " ".join(said.err.split()), said.err
    assert not (tmp_path / "run").exists()
