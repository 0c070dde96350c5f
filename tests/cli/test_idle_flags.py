# SPDX-License-Identifier: Apache-2.0
"""Flags that would do nothing beside the others are refused."""

import pytest

from kvnmt.errors import OptionError
from tests.cli.starts import WAITING, read

DRAWING = "is for drawing words; give --search.sample too."
BUILDING = "builds vocabularies, and --data.vocabularies takes those of a run"
IDLE = [
    ("translate", "MINE --search.temperature 2", f"--search.temperature {DRAWING}"),
    ("translate", "MINE --search.top-k 5", f"--search.top-k {DRAWING}"),
    (
        "evaluate",
        "MINE --reference FILE --search.top-p .5",
        f"--search.top-p {DRAWING}",
    ),
    ("translate", "WAITING --search.seed 4", f"--search.seed {DRAWING}"),
    (
        "explore",
        "MINE --source FILE --search.beam 1 --search.diversity 1",
        "--search.diversity is for several hypotheses; widen --search.beam.",
    ),
    (
        "translate",
        "MINE --search.sample --search.beam 5",
        "--search.beam is of a beam, and --search.sample draws; --search.nbest says",
    ),
    (
        "translate",
        "MINE --search.normalization none --search.alpha 2",
        "--search.alpha is an exponent of --search.normalization, which is none",
    ),
    (
        "translate",
        "MINE --search.max-length 3 --search.min-length 4",
        "--search.min-length is 4 but --search.max-length 3; lower the first",
    ),
    ("train", "NEW --data.vocabularies MINE --data.vocabulary words", BUILDING),
    ("prepare", "--data.vocabularies MINE --data.subwords 9", BUILDING),
    ("train", "NEW --data.min-count 9", "is for --data.vocabulary words or characters"),
    (
        "train",
        "NEW --data.vocabulary words --data.normalization nfkc",
        "--data.normalization is for --data.vocabulary bpe, which is words; leave it",
    ),
    (
        "train",
        "NEW --data.vocabulary words --data.symbols <2de>",
        "--data.symbols is for --data.vocabulary bpe, which is words; leave it",
    ),
    (
        "prepare",
        "--data.vocabulary characters --data.subwords 9",
        "--data.subwords is for --data.vocabulary bpe, which is characters",
    ),
    ("train", "NEW --search.top-k 3", f"--search.top-k {DRAWING}"),
    (
        "train",
        "NEW --attention distortion --model.attention.weight 0 "
        "--model.attention.window 5",
        "--model.attention.window does nothing while --model.attention.weight is 0",
    ),
    (
        "train",
        "NEW --objective.atteos-rounds mean",
        "--objective.atteos-rounds does nothing while --objective.atteos is 0",
    ),
    (
        "train",
        "NEW --optimizer.plateau-patience 7",
        "--optimizer.plateau-patience does nothing while --optimizer.plateau is 1",
    ),
    (
        "train",
        "NEW --optimizer.decay 1 --optimizer.decay-after 9",
        "--optimizer.decay-after does nothing while --optimizer.decay is 1",
    ),
    (
        "train",
        "NEW --training.batch-tokens 300 --training.batch-size 8",
        "--training.batch-size counts pairs, and --training.batch-tokens counts tokens",
    ),
    (
        "train",
        "NEW --system transformer --training.remat 8",
        "--training.remat is of decoders that go from word to word, and this one",
    ),
    (
        "train",
        "NEW --system kvmematt-r2 --attention additive",
        "--model.decoder.rounds is 2, but the attention writes nothing between rounds",
    ),
    (
        "train",
        "NEW --system attn --model.alignment 512",
        "--model.alignment is of energies, and this model has none so wide",
    ),
    (
        "train",
        "NEW --recipe modern --data.subword-dropout 0.1",
        "--data.subword-dropout does nothing while --data.segmentations is 1; change",
    ),
    (
        "prepare",
        "--data.cache NEW --data.subword-dropout 0.1",
        "--data.subword-dropout does nothing while --data.segmentations is 1; change",
    ),
    (
        "prepare",
        "--data.cache NEW --data.segmentations 4",
        "--data.segmentations does nothing while --data.subword-dropout is 0",
    ),
    (
        "train",
        "NEW --recipe papers --system transformer --model.layer-norm",
        "--model.layer-norm is of GRUs and LSTMs, of which this model has none",
    ),
    (
        "train",
        "NEW --decoder transformer --attention multi_head --target-context state_only "
        "--model.readout none --training.residuals vectors",
        "--training.residuals is of decoders that go from word to word",
    ),
    (
        "train",
        "NEW --system kvmematt-r1-atteos --objective.atteos-rounds mean",
        "--objective.atteos-rounds is of several rounds, and this decoder has one",
    ),
    (
        "train",
        "NEW --model.forget-bias 1",
        "--model.forget-bias is of LSTMs, of which this model has none",
    ),
    (
        "train",
        "NEW --system transformer --training.residuals vectors",
        "--training.residuals is of decoders that go from word to word",
    ),
    (
        "train",
        "NEW --system rnnsearch --model.decoder.share-rounds",
        "--model.decoder.share-rounds does nothing while --model.decoder.rounds is 1",
    ),
    (
        "train",
        "NEW --system past --model.decoder.cell gru",
        "--model.decoder.cell does nothing while --model.decoder.future is False",
    ),
    (
        "train",
        "NEW --system transformer --model.decoder.layers 1 "
        "--model.decoder.attention-in each",
        "--model.decoder.attention-in does nothing while --model.decoder.layers is 1",
    ),
    (
        "compile",
        "--system transformer --remat 8",
        "--remat is of decoders that go from word to word, and this one computes all",
    ),
    (
        "compile",
        "--optimizer.plateau-patience 7",
        "--optimizer.plateau-patience does nothing while --optimizer.plateau is 1",
    ),
    ("compile", "--what search --search.top-k 3", f"--search.top-k {DRAWING}"),
    (
        "compile",
        "--system kvmematt-r2 --attention additive",
        "--model.decoder.rounds is 2, but the attention writes nothing between rounds",
    ),
    (
        "train",
        "NEW --optimizer.plateau 0.5 --optimizer.plateau-patience 10",
        "--optimizer.plateau-patience is 10, but training stops after 10 validations",
    ),
    (
        "train",
        "NEW --data.vocabulary codes --data.codes FILE --data.target-codes FILE "
        "--recipe papers --data.joint",
        "--data.joint makes one vocabulary, and --data.target-codes are codes of their",
    ),
    (
        "train",
        "NEW --system lm-4-gram --training.metric chrf",
        "--training.metric is of translations, and a language model makes none",
    ),
]


@pytest.mark.parametrize(("command", "line", "sentence"), IDLE)
def test_a_flag_that_does_nothing_is_refused(places, command, line, sentence):
    with pytest.raises(OptionError) as error:
        read(command, line, places)
    assert sentence in error.value.by_flag


@pytest.mark.parametrize(
    "line",
    [
        "--data.vocabulary words --data.no-joint --data.no-trimmed",
        "--data.vocabulary codes --data.codes FILE --data.target-codes FILE "
        "--data.no-joint",
    ],
)
def test_what_does_nothing_may_be_turned_off(places, line):
    assert not read("train", f"NEW {line}", places).experiment.data.joint


def test_a_rate_may_fall_before_the_least_number_of_epochs(places):
    line = "NEW --optimizer.plateau 0.5 --optimizer.plateau-patience 10"
    read("train", f"{line} --training.min-epochs 12", places)
    read("train", f"{line} --training.min-epochs 1 --training.validate-every 9", places)
    with pytest.raises(OptionError, match="so the rate would never fall"):
        read("train", f"{line} --training.min-epochs 11", places)


def test_rounds_of_a_transformer_see_what_the_others_read(places):
    typed = read("train", "NEW --system transformer --model.decoder.rounds 2", places)
    assert typed.experiment.model.decoder.rounds == 2
    read("train", "NEW --system transformer-kvmematt-r2 --attention additive", places)


@pytest.mark.parametrize("flags", ["", "--search.sample", "--search.batch-size 3"])
def test_what_a_run_holds_is_no_flag_that_does_nothing(places, flags):
    search = read("translate", f"WAITING {flags}", places).search
    assert {name: getattr(search, name) for name in WAITING} == WAITING
