# SPDX-License-Identifier: Apache-2.0
"""The report on a whole corpus: nothing where nothing is wrong, and its figures."""

import gzip
import json
import lzma
import random
from codecs import BOM_UTF8

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from kvnmt.data.config import DataConfig
from kvnmt.data.corpus import load_corpora
from kvnmt.data.encoding import Dropped
from kvnmt.data.inspection.validate import ValidateConfig, validate
from kvnmt.data.lines import disguise
from kvnmt.data.subwords import build_subwords
from kvnmt.data.vocabularies import Vocabularies
from kvnmt.errors import UserError
from tests.data.helpers import words_of
from tests.data.inspection.helpers import look, look_bytes, names, only, toy, write


def test_a_clean_corpus_has_no_faults(tmp_path, clean):
    report = look(tmp_path, clean)
    assert report.findings == []
    assert not report.serious
    assert (report.pairs, report.dropped) == (1500, Dropped())
    assert [(file.part, file.side, file.lines) for file in report.files] == [
        *(("train", "source", 1500), ("train", "target", 1500)),
        *(("valid", "source", 150), ("valid", "target", 150)),
        *(("test", "source", 150), ("test", "target", 150)),
    ]


def test_gzipped_text_is_looked_over_as_it_is(tmp_path):
    plain = toy()
    paths = [tmp_path / f"text.{side}" for side in ("source", "target")]
    for path, text in zip(paths, plain):
        path.write_bytes(gzip.compress(text))
    report = validate(ValidateConfig(source=paths[0], target=paths[1]))
    assert [file.tokens for file in report.files] == [len(t.split()) for t in plain]
    paths[0].write_bytes(gzip.compress(plain[0])[:-20])
    with pytest.raises(UserError, match="cannot be decompressed"):
        validate(ValidateConfig(source=paths[0], target=paths[1]))
    paths[0].write_bytes(lzma.compress(plain[0]))
    with pytest.raises(UserError, match="source' is no text: .*xz -dc"):
        validate(ValidateConfig(source=paths[0], target=paths[1]))


def test_words_of_pairs_that_are_skipped_are_unknown(tmp_path):
    report = look_bytes(tmp_path, b"a\na\nb\nb\n", b"A\nA\n\nB\n", faulty="skip")
    assert [file.unknown for file in report.files] == [2, 1]


def test_figures_are_those_of_training(tmp_path):
    """Dropped pairs, tokens and unknown words as `load_corpora` has them."""
    rng = random.Random(1)
    lines = [
        " ".join(rng.choices("abcdefghijklmnop", k=rng.randint(0, 9)))
        for _ in range(80)
    ]
    sides = [lines, [line.upper() for line in lines[:-1]] + [""]]
    sides[0][3] = "q </s> a  "
    parts = {"train": sides, "valid": [["a b zz q", "c"], ["A ZZ", "</s>"]]}
    paths = write(tmp_path, parts)
    choices = {"max_length": 6, "faulty": "skip", "vocabulary_size": 12}
    report = validate(ValidateConfig(**paths, **choices))
    expected = load_corpora(DataConfig(**paths, **choices))
    assert report.pairs == len(expected.train.source)
    left_out = (
        f"{report.dropped.too_long} longer than 6 tokens, "
        f"{report.dropped.empty} with an"
    )
    assert left_out in expected.report
    for i, encoded in enumerate((expected.valid.source, expected.valid.target)):
        file = report.files[2 + i]
        ids = np.concatenate([sentence[:-1] for sentence in encoded])
        assert (file.tokens, file.unknown) == (len(ids), int(np.sum(ids == 1)))


def test_vocabularies_of_a_run_count_as_the_run_does(tmp_path, clean):
    words = words_of(clean["train"][0], size=60)
    pieces = build_subwords(clean["train"][1], 150)
    config = ValidateConfig(**write(tmp_path, clean))
    report = validate(config, Vocabularies(words, pieces))
    for side, vocabulary in enumerate((words, pieces)):
        ids = [i for line in clean["test"][side] for i in vocabulary.encode(line)]
        file = report.files[4 + side]
        assert (file.tokens, file.unknown) == (len(ids), ids.count(1))


def test_pairs_that_a_run_finds_uneven_are_left_out(tmp_path, clean):
    """As its training leaves them out; more than a warning of the command's own."""
    words = Vocabularies(words_of(clean["train"][0]), words_of(clean["train"][1]))
    sides = [["a b c d", "a", "b c"], ["A", "A", "B C"]]
    config = ValidateConfig(**write(tmp_path, {"train": sides}), max_ratio=9)
    for ratio, uneven in ((1.0, 1), (None, 0)):
        report = validate(config, words, ratio)
        assert report.pairs == 3 - uneven
        assert report.dropped == Dropped(uneven=uneven)


def test_test_text_in_the_text_of_validation_is_told(tmp_path, clean):
    same = clean | {"test": clean["valid"]}
    finding = only(look(tmp_path, same), "test-overlap")
    assert finding.count == 150 and "valid.source too" in finding.message


def test_many_unknown_words_are_a_warning(tmp_path, clean):
    shouted = [line.upper() for line in clean["test"][0]]
    report = look(tmp_path, clean | {"test": [shouted, clean["test"][1]]})
    finding = only(report, "unknown-words")
    assert finding.severity == "warning"
    assert "test.source: 100.0%" in finding.message


def test_no_word_and_no_pair_left_are_errors(tmp_path):
    report = look_bytes(tmp_path, b"a b\n", b"c d\n", max_length=1)
    assert {"no-vocabulary", "nothing-left"} <= names(report)
    assert report.serious
    single = look_bytes(tmp_path, b"a b\n", b"c d\n")  # of which pieces can be made
    assert only(single, "no-vocabulary", "a.src").severity == "warning"
    assert not single.serious


LINES = st.lists(st.binary(max_size=12), max_size=12).map(b"\n".join)


def is_plain(data: bytes) -> bool:
    """What packed text begins with is refused, behind a byte-order mark too."""
    return not disguise(data) and not disguise(data.removeprefix(BOM_UTF8))


PLAIN = (st.binary(max_size=60) | LINES).filter(is_plain)


SLOW = [HealthCheck.function_scoped_fixture, HealthCheck.too_slow]


@settings(suppress_health_check=SLOW)
@given(st.tuples(*[PLAIN] * 4))
def test_any_bytes_can_be_looked_at(tmp_path, contents):
    paths = [tmp_path / name for name in ("a", "b", "c", "d")]
    for path, data in zip(paths, contents):
        path.write_bytes(data)
    report = validate(ValidateConfig(*paths))
    json.dumps(report.as_plain())
    for file, data in zip(report.files, contents):
        lines = data.split(b"\n")
        assert file.lines == len(lines) - (lines[-1] == b"")


@settings(max_examples=10, suppress_health_check=SLOW)
@given(st.lists(st.binary(max_size=9), min_size=1, max_size=30), st.integers())
def test_many_lines_of_any_bytes_can_be_looked_at(tmp_path, words, seed):
    """Enough to look for shifts."""
    rng = random.Random(seed)
    paths = tmp_path / "a", tmp_path / "b"
    for path in paths:
        lines = (b" ".join([b"", *rng.choices(words, k=5)]) for _ in range(220))
        path.write_bytes(b"\n".join(line.replace(b"\n", b"") for line in lines))
    report = validate(ValidateConfig(*paths))
    json.dumps(report.as_plain())
