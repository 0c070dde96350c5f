# SPDX-License-Identifier: Apache-2.0
"""What people type by mistake is told in a sentence, and leaves nothing behind."""

import pytest

from tests.cli.commands import SIZES, check_sentence, filled, flags
from tests.helpers import DEVICES

# What stands for a folder of the test is written in capitals.
BAD_TRAINING = [
    (["--data.source", "NOWHERE"], "no file"),
    (["--data.source", "TEXT"], "cannot be read"),
    (
        ["--data.source", "TEXT/latin", "--data.target", "TEXT/latin"],
        "latin, line 2: byte 4 (0xe9)",
    ),
    (["--data.target", "TEXT/short.ref"], "has 1"),
    (["--data.valid-source", "TEXT/empty"], "empty' is empty"),
    (["--data.valid-source", "TEXT/hole"], "lines"),
    (
        ["--data.vocabulary", "bpe", "--data.subwords", "3", "--data.min-count", "2"],
        "--data.subwords 3",
    ),
    (["--training.batch-size", "0"], "--training.batch-size"),
    (["--training.batch-size", "9"], f"multiple of {DEVICES}"),
    (["--training.warm-start", "TEXT"], "is no run directory"),
    (["--training.new-words"], "give --training.warm-start, or leave"),
    (["--training.target-vectors", "NOWHERE"], "no file"),
    (["--training.target-vectors", "TEXT/short.ref"], "--model.embedding"),
    (
        ["--training.warm-start", "TEXT", "--training.target-vectors", "TEXT/hole"],
        "--training.warm-start copies them",
    ),
    (["--training.bleu-tokenize", "nono"], "did you mean 'none'?"),
    (
        ["--model.decoder.rounds", "2"],
        "--model.decoder.rounds is 2, but the attention writes nothing",
    ),
    (
        ["--model.readout", "none", "--model.readout-size", "9"],
        "--model.readout-size does nothing while --model.readout is none",
    ),
    (["--system", "attn", "--model.state", "10"], "attention.score general."),
    (["--system", "key-value-predict", "--model.state", "10"], "3 parts"),
    (["--system", "rnnencdec", "--objective.atteos", "1"], "--objective.atteos"),
    (["--system", "rnnencdec", "--objective.guided", "1"], "--objective.guided to 0"),
    (["--objective.guided", "1"], "name a file of them with --data.links"),
    (["--objective.risk-samples", "5"], "does nothing while --objective.risk is 0"),
    (["--data.links", "NOWHERE"], "such as 0.3"),
    (["--data.links", "NOWHERE", "--objective.guided", "1"], "no file"),
    (
        ["--data.links", "TEXT/hole", "--objective.guided", "1"],
        "sentence pairs; line n",
    ),
    (["--system", "rnnencdec", "--model.lexicon"], "--model.lexicon needs"),
    (["--objective.subtractive", "1"], "--objective.subtractive"),
    (["--model.average-auxiliary"], "--model.average-auxiliary"),
    (
        ["--model.tie", "all"],
        "a folder with the same one twice with --data.vocabularies",
    ),
    (["--system", "past", "--model.decoder.no-past"], "--model.decoder.past"),
    (["--system", "rnnserch-star"], "did you mean 'rnnsearch-star'?"),
    (["--system=kvmemat-r2"], "did you mean 'kvmematt-r2'?"),
    (["--attention", "aditive"], "did you mean 'additive'?"),
    (["--attention=kv-memory"], "did you mean 'kv_memory'?"),
    (["--decoder", "conditionl"], "did you mean 'conditional'?"),
    (["--target-context", "previous"], "did you mean 'previous_word'?"),
    (["--target_context=previous"], "did you mean 'previous_word'?"),
    (["--resume"], "is no run directory"),
]


@pytest.mark.parametrize(("arguments", "part"), BAD_TRAINING)
def test_training_mistakes_leave_nothing_behind(
    kvnmt, tmp_path, texts, arguments, part
):
    given = [*flags(tmp_path / "data"), *arguments]
    before = set(tmp_path.rglob("*"))
    places = {"TEXT": texts, "NOWHERE": tmp_path / "nowhere"}
    check_sentence(kvnmt("train", tmp_path / "new", *filled(given, **places)), part)
    assert set(tmp_path.rglob("*")) == before


def test_text_that_is_not_given_is_asked_for(kvnmt, tmp_path):
    check_sentence(kvnmt("train", tmp_path / "new"), "--data.source")
    assert not (tmp_path / "new").exists()


BAD_USE = [
    (["translate", "NOWHERE"], "is no run directory"),
    (["translate", "TEXT"], "is no run directory"),
    (["translate", "RUN", "--search.beam", "0"], "--search.beam"),
    (
        ["translate", "RUN", "--search.beam", "2", "--search.nbest", "3"],
        "--search.nbest is 3 but a beam of 2 holds no more than that; widen "
        "--search.beam or lower --search.nbest.",
    ),
    (
        ["translate", "RUN", "--search.sample", "--search.beam", "1"]
        + ["--search.diversity", "3"],
        "--search.diversity is of a beam, and --search.sample draws",
    ),
    (
        ["translate", "RUN", "--search.no-unknown", "--replace-unknown"],
        "give --search.unknown, or leave out --replace-unknown",
    ),
    (
        ["translate", "RUN", "--nearest", "TEXT/hole", "--dictionary", "TEXT/hole"],
        "--nearest chooses before unknown words are replaced",
    ),
    (
        ["translate", "RUN", "--ensemble", "NOWHERE", "--ensemble=OTHER"],
        "--ensemble stands twice, and the last alone would count",
    ),
    (
        ["evaluate", "RUN", "--source", "X", "--reference", "X"]
        + ["--more_references", "X", "--more-references", "X"],
        "--more-references stands twice",
    ),
    (
        ["prepare", "--data.symbols", "<a>", "--data.symbols", "<b>"],
        "--data.symbols stands twice",
    ),
    (
        ["benchmark", "--systems", "kvmematt-r1", "--systems", "rnnsearch-star"],
        "--systems stands twice",
    ),
    (["translate", "RUN", "--search.nbest", "5"], "one is written; give --json"),
    (["translate", "RUN", "--ensemble", "RUN"], "is named twice"),
    (["average", "RUN", "RUN/", "--output", "NOWHERE"], "is named twice"),
    (
        ["align", "RUN", "--source", "TEXT/hole", "--target", "TEXT/hole"]
        + ["--heuristic", "union"],
        "name the other with --reverse",
    ),
    (
        ["align", "RUN", "--source", "TEXT/hole", "--target", "TEXT/hole"]
        + ["--round", "2"],
        "--round is 2 but must be 1, the only one of this system",
    ),
    (
        ["align", "RUN", "--source", "TEXT/hole", "--target", "TEXT/hole"]
        + ["--round", "0"],
        "--round is 0 but must be 1, the only one of this system",
    ),
    (
        ["align", "RUN", "--source", "TEXT/hole", "--target", "TEXT/hole"]
        + ["--reverse", "RUN/"],
        "the run itself; name one that was trained in the other direction",
    ),
    (
        ["align", "RUN", "--source", "TEXT/hole", "--target", "TEXT/hole"]
        + ["--reverse", "RUN/checkpoints/80"],
        "the run itself; name one that was trained in the other direction",
    ),
    (
        ["validate", "--run", "RUN", "--source", "TEXT/hole", "--target", "TEXT/hole"]
        + ["--min-count", "3"],
        "--min-count is of words, and --run brings its own vocabularies",
    ),
    (["benchmark", "--turns", "2"], "--turns is for measuring beside another"),
    (["benchmark", "--ours", "RUN", "--theirs", "X"], "name it with --against"),
    (
        ["evaluate", "RUN", "--source", "TEXT/test.src", "--reference", "TEXT/test.src"]
        + ["--swap"],
        "--swap is of the links of --gold; give that, too",
    ),
    (
        ["evaluate", "RUN", "--source", "TEXT/test.src", "--reference", "TEXT/test.src"]
        + ["--swap-links", "--gold", "TEXT/hole"],
        "--swap-links is of the links of --links; give that, too",
    ),
    (
        ["evaluate", "RUN", "--source", "TEXT/test.src", "--reference", "TEXT/test.src"]
        + ["--gold", "TEXT/hole", "--measures", "alignment", "--search.beam", "50"],
        "--search.beam is for translating, and what is measured reads the references",
    ),
    (
        ["evaluate", "TEXT/hole", "--reference", "TEXT/hole", "--pictures", "NEW"]
        + ["--draw", "2"],
        "--draw chooses lines whose attention is drawn, and files of translations",
    ),
    (
        ["evaluate", "RUN", "--source", "TEXT/test.src", "--reference", "TEXT/test.src"]
        + ["--stem", "4"],
        "--stem is for adequacy by gold links",
    ),
    (
        ["evaluate", "RUN", "--source", "TEXT/test.src", "--reference", "TEXT/test.src"]
        + ["--reverse", "RUN/", "--gold", "TEXT/hole"],
        "the run itself; name one that was trained in the other direction",
    ),
    (
        ["evaluate", "TEXT", "--source", "TEXT/hole", "--reference", "TEXT/hole"],
        "no run directory",
    ),
    (["evaluate", "RUN", *["--source", "X", "--reference", "X"]], "no file"),
    (
        ["evaluate", "RUN", "--source", "TEXT/test.src"]
        + ["--reference", "TEXT/short.ref"],
        "has 7 lines",
    ),
    (
        ["evaluate", "RUN", "--source", "TEXT/empty", "--reference", "TEXT/empty"],
        "empty' is empty",
    ),
    (
        ["evaluate", "RUN", "--source", "TEXT/latin", "--reference", "TEXT/hole"],
        "latin, line 2",
    ),
    (
        ["evaluate", "RUN", "--source", "TEXT/hole", "--reference", "TEXT/hole"]
        + ["--tokenize", "13b"],
        "did you mean '13a'?",
    ),
    (
        ["evaluate", "RUN", "--source", "TEXT/hole", "--reference", "TEXT/hole"]
        + ["--output", "NOWHERE/below"],
        "below' cannot be written",
    ),
    (["benchmark", "--systems", "rnnsearch-sta"], "did you mean 'rnnsearch-star'?"),
    (["benchmark", "--systems", *["mematt"] * 2], "names mematt twice; name it once"),
    (["benchmark", "--batch-size", "9"], f"{DEVICES} devices"),
    (["benchmark", "--repeats", "0"], "--repeats"),
    (
        ["benchmark", "--systems", "transformer", "--remat", "8"],
        "--remat is of decoders that go from word to word",
    ),
    (["benchmark", "--model.residual"], "--model.residual does nothing while"),
    (["benchmark", "--no-train", "--decode", "--no-split"], "--split is of training"),
    (
        ["benchmark", "--against", "joeynmt", "--lines", "5"],
        "--lines is of what is translated; give --decode too",
    ),
    (
        ["compile", "--model.dropout.layers", "0.3"],
        "--model.dropout.layers is between layers of GRUs or LSTMs",
    ),
    (
        ["benchmark", "--frozen", "encodr", "--vocabulary", "9", *SIZES],
        "--frozen: there is no array 'encodr'",
    ),
    (["trian", "RUN"], "did you mean 'train'?"),
    (["evalute"], "did you mean 'evaluate'?"),
    (
        ["xyz"],
        "no command 'xyz'. Known: align, average, benchmark, compile, evaluate,",
    ),
]


@pytest.mark.parametrize(("arguments", "part"), BAD_USE)
def test_mistakes_are_told_in_a_sentence(
    kvnmt, tmp_path, folder, texts, arguments, part
):
    places = {"RUN": folder, "TEXT": texts, "NOWHERE": tmp_path / "nowhere"}
    check_sentence(kvnmt(*filled(arguments, **places)), part)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    "arguments",
    [
        ["evaluate", "LOOP", "--reference", "TEXT/test.src"],
        ["explore", "LOOP", "--source", "TEXT/test.src"],
        ["translate", "RUN", "--ensemble", "LOOP"],
        ["translate", "RUN", "--input", "TEXT/test.src", "--output", "LOOP"],
        ["translate", "RUN", "--input", "LOOP"],
        ["score", "RUN", "--source", "LOOP", "--target", "LOOP"],
        ["align", "RUN", "--source", "LOOP", "--target", "LOOP", "--reverse", "LOOP"],
    ],
)
def test_a_link_that_leads_to_itself_is_told(kvnmt, tmp_path, folder, texts, arguments):
    loop = tmp_path / "loop"
    loop.symlink_to(loop)
    check_sentence(kvnmt(*filled(arguments, RUN=folder, TEXT=texts, LOOP=loop)), "loop")
