# SPDX-License-Identifier: Apache-2.0
"""Whatever text, flags and bytes a command is given: lines or a sentence come out.

``KVNMT_FUZZ=1000`` tries so many cases.
"""

import json
import os
from collections.abc import Sequence
from pathlib import Path
from unittest.mock import Mock

import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from kvnmt.errors import UserError
from tests.helpers import WORDS, Said, contents, toy_data, trained

CASES = int(os.environ.get("KVNMT_FUZZ", "25"))  # in five tests
GREEDY = ["--search.beam", "1", "--search.batch-size", "8", "--max-input", "7"]

fuzzed = settings(
    max_examples=max(CASES // 5, 1),
    suppress_health_check=[HealthCheck.function_scoped_fixture],
)
SEPARATORS = ["\r", "\t", "\x0b", "\x0c", "\x1c", "\x85", "\u2028", "\u2029", "\xa0"]
ODD = ["\x00", "\u200b", "\ufeff", "\u0301", "\U0001d518", "</s>", "<unk>", "\u2581"]
MARKUP = ["[red]", "[/]", "|||", "{0}", "%s", "\x1b[31m", "--json", "\\", '"']
word = st.sampled_from([*WORDS, *WORDS.upper(), *SEPARATORS, *ODD, *MARKUP])
sentence = st.lists(word, max_size=7).map(" ".join) | st.text(max_size=7)
line = sentence.map(lambda text: text.replace("\n", "").encode())
broken = st.binary(max_size=6).map(lambda raw: raw.replace(b"\n", b""))
lines = st.lists(line | line | line | broken, max_size=12)
end = st.sampled_from([b"\n", b""])
HUGE = "9" * 20
no_number = st.sampled_from(["-1", "nan", "inf", "1e999", "x", "", HUGE])


def flags(**values: list[str]) -> st.SearchStrategy[list[str]]:
    """Some of these flags, each with one of its values or with what is no number."""
    names = st.sampled_from(sorted(values))
    one = names.flatmap(
        lambda name: st.tuples(
            st.just(f"--{name.replace('__', '.').replace('_', '-')}"),
            st.sampled_from(values[name]) | no_number if values[name] else no_number,
        )
    )
    return st.lists(one, max_size=3).map(lambda pairs: [x for p in pairs for x in p])


def check_told(said: Said, *statuses: int) -> None:
    """The status is one of these; a mistake is told, and by no traceback."""
    assert said.status in (0, 2, *statuses), said.err
    assert "Traceback" not in said.err and "Error:" not in said.err, said.err
    if said.status == 2:
        assert said.err.strip()


def split(content: bytes) -> list[bytes]:
    found = content.split(b"\n")
    return found[:-1] if found[-1] == b"" else found


def is_utf8(content: bytes) -> bool:
    try:
        content.decode()
    except UnicodeDecodeError:
        return False
    return True


@pytest.fixture(scope="module")
def run(tmp_path_factory) -> Path:
    return trained(tmp_path_factory.getbasetemp())


@fuzzed
@given(
    lines,
    end,
    st.lists(st.sampled_from(["--json", "--replace-unknown", "--too-long=truncate"])),
    flags(
        # Numbers of the program; all else would be compiled anew.
        search__alpha=["0", "0.5"],
        search__min_length=["3"],
        search__temperature=["2"],
        search__seed=["7"],
        search__normalization=["none", "length"],
        search__batch_tokens=["1", "4096"],
        max_input=["5"],
        search__nbest=["0", "2"],
        search__beam=[],
        search__top_k=[],
        search__top_p=["2"],
        search__length_ratio=[],
        search__length_extra=["0"],
        search__max_length=["0"],
        search__coverage=[],
        search__diversity=[],
        prefix=["nowhere"],
        shortlist=["nowhere"],
        dictionary=["nowhere"],
        ensemble=["nowhere"],
        nothing=["1"],
    ),
)
@example([b"a"], b"", [], ["--search.seed", HUGE])
@example([b"a"], b"", [], ["--search.beam", HUGE])
@example([b"a"], b"", [], ["--search.min-length", HUGE])
@example([b"a"], b"", [], ["--search.length-ratio", "inf"])
def test_a_line_comes_out_for_every_line(kvnmt, run, content, last, switches, options):
    given = b"\n".join(content) + last
    said = kvnmt("translate", run, *GREEDY, *switches, *options, given=given)
    check_told(said)
    expected = split(given)
    if said.status == 2 and all(map(is_utf8, expected)):
        assert said.out == b""  # a flag was wrong
        return
    found = split(said.out)
    if said.status == 2:
        bad = next(n for n, one in enumerate(expected) if not is_utf8(one))
        assert len(found) in (0, bad)
    else:
        assert len(found) == len(expected)
        assert said.out.endswith(b"\n") or not expected
    if "--json" in switches:
        assert all("translation" in json.loads(one) for one in found)
    else:
        bare = [one.removesuffix(b"\r").strip(b" ") for one in expected]
        assert not any(ours for ours, theirs in zip(found, bare) if not theirs)


@fuzzed
@given(
    st.sampled_from(["score", "align"]),
    st.lists(st.tuples(line, line), max_size=8),
    st.just([]) | st.lists(broken, max_size=2),
    st.booleans(),
    flags(round=["1", "2"], heuristic=["union", "x"], nothing=["1"], reverse=["."]),
)
def test_pairs_are_scored_or_refused(
    kvnmt, tmp_path, run, command, pairs, more, as_json, options
):
    source, target = tmp_path / "source", tmp_path / "target"
    source.write_bytes(b"".join(x + b"\n" for x, _ in pairs))
    target.write_bytes(b"".join(y + b"\n" for _, y in pairs) + b"\n".join(more))
    before = contents(tmp_path)
    switches = ["--json"] if as_json else []
    said = kvnmt(
        *(command, run, "--source", source, "--target", target), *switches, *options
    )
    check_told(said)
    assert contents(tmp_path) == before
    assert len(split(said.out)) == (len(pairs) if said.status == 0 else 0)


link = st.sampled_from(
    ["0-0", "1-0", "0-1", "2-3", "0?1", "1", "x-y", "-1-0", "0-0 1-1"]
)
linked = st.lists(link, max_size=3).map(" ".join).map(str.encode)


@fuzzed
@given(
    st.sampled_from(["evaluate", "shortlist", "explore", "average"]),
    st.lists(st.tuples(line, line, line, linked), max_size=8),
    st.just([]) | st.lists(broken, max_size=2),
    flags(
        measures=["score", "significance", "adequacy", "alignment", "all", "x"],
        tokenize=["13a", "none", "char", "x"],
        stem=["3"],
        best=["1", "5"],
        common=["2"],
        first=["1", "0"],
        last=["1", "9"],
        gold=["nowhere"],
        links=["nowhere"],
        nothing=["1"],
    ),
)
def test_files_are_measured_and_linked_or_refused(
    kvnmt, tmp_path_factory, run, command, rows, more, options
):
    """Only what was asked for is written, and only where all is well."""
    folder = tmp_path_factory.mktemp("fuzz")
    names = ("source", "reference", "hypothesis", "links")
    paths = {name: folder / name for name in names}
    for number, path in enumerate(paths.values()):
        path.write_bytes(b"".join(row[number] + b"\n" for row in rows))
    paths["hypothesis"].write_bytes(
        b"".join(row[2] + b"\n" for row in rows) + b"\n".join(more)
    )
    source, reference, hypothesis, links = paths.values()
    output, text = folder / "output", ["--source", source]
    given = {
        "evaluate": [hypothesis, *text, "--reference", reference, "--json"],
        "shortlist": [run, *text, "--target", reference, "--links", links],
        "explore": [run, *text, "--reference", reference, "--forced"],
        "average": [run],
    }[command]
    if command != "evaluate":
        given += ["--output", output]
    before = contents(folder)
    said = kvnmt(command, *given, *options)
    check_told(said)
    after = contents(folder)
    assert before.items() <= after.items()
    assert output.exists() == (said.status == 0 and command != "evaluate")
    if command != "average":  # a folder
        assert after.keys() - before.keys() <= {output}
    if command == "evaluate" and said.status == 0:
        json.loads(said.out)


TEXT = flags(
    data__vocabulary=["words", "bpe", "characters"],
    data__subwords=["5", "8", "20"],
    data__vocabulary_size=["2", "3", "10"],
    data__min_count=["1", "2"],
    data__max_length=["1", "5"],
    data__max_ratio=["1", "2.5"],
    data__faulty=["skip", "stop"],
    data__subword_sentences=["1", "3"],
    data__normalization=["nfkc", "identity"],
)


def write_parts(
    folder: Path, content: Sequence[Sequence[bytes]], ends: bytes
) -> list[Path]:
    """Training and validation text of both sides."""
    names = ("source", "target", "valid-source", "valid-target")
    paths = [folder / name for name in names]
    for path, part in zip(paths, content):
        path.write_bytes(b"\n".join(part) + ends)
    return paths


@fuzzed
@given(st.sampled_from(["validate", "prepare"]), lines, lines, end, st.booleans(), TEXT)
def test_text_is_looked_over_and_prepared(
    kvnmt, tmp_path_factory, run, command, source, target, last, even, options
):
    """What is prepared is there whole, or not at all."""
    folder = tmp_path_factory.mktemp("fuzz")
    if even:
        count = min(len(source), len(target))
        source, target = source[:count], target[:count]
    paths = write_parts(folder, (source, target), last)
    if command == "validate":
        given = ["--source", paths[0], "--target", paths[1], "--run", run]
        check_told(kvnmt("validate", *given), 1)
        return
    given = ["--data.source", paths[0], "--data.target", paths[1]]
    cache = folder / "cache"
    said = kvnmt("prepare", *given, "--data.cache", cache, *options)
    check_told(said)
    made = [path for path in cache.glob("*") if path.is_dir()]
    assert len(made) == (said.status == 0)
    if made:
        before = contents(cache)
        check_told(kvnmt("prepare", *given, "--data.cache", cache, *options))
        assert contents(cache) == before


@fuzzed
@given(
    lines,
    lines,
    end,
    st.booleans(),
    TEXT,
    flags(
        training__epochs=["0"],
        training__shapes=["0", "1"],
        training__accumulate=["0", "3"],
        training__seed=["7", "4294967295"],
        training__batch_tokens=[],
        training__validate_every=["3"],
        training__metric=["loss", "x"],
        training__bleu_tokenize=["none", "x"],
        training__model_axis=["3"],
        training__warm_start=["nowhere"],
        optimizer__name=["sgd", "x"],
        optimizer__learning_rate=["0"],
        optimizer__warmup=["5"],
        model__state=[],
        model__decoder__rounds=[],
        model__dropout__output=["0.5", "1"],
        objective__atteos=["1"],
        objective__subtractive=["1"],
        system=["kvmematt-r2", "no-such"],
        attention=["kv_memory", "no-such"],
        process=["1"],
        nothing=["1"],
    ),
)
@example([], [], b"", True, [], ["--model.decoder.rounds", HUGE])
def test_a_training_that_cannot_be_leaves_nothing(
    kvnmt, tmp_path_factory, source, target, last, toy, text, options
):
    """All is read, whatever it is; then none of them begins."""
    folder = tmp_path_factory.mktemp("fuzz")
    names = ("source", "target", "valid-source", "valid-target")
    if toy:
        data = toy_data(folder / "text")
        paths = [data.source, data.target, data.valid_source, data.valid_target]
    else:
        paths = write_parts(folder, (source, target, target, source), last)
    given = [x for name, path in zip(names, paths) for x in (f"--data.{name}", path)]
    sizes = ["--model.embedding", 4, "--model.encoder", 4, "--training.batch-size", 12]
    before = contents(folder)
    refused = Mock(side_effect=UserError("it would train."))
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr("kvnmt.runs.train.fit", refused)
        said = kvnmt("train", folder / "run", *given, *sizes, *text, *options)
    check_told(said)
    assert (said.status, said.out) == (2, b"")
    assert contents(folder) == before
