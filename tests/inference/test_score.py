# SPDX-License-Identifier: Apache-2.0
"""Forced decoding scores as the model does, and aligns words."""

import io
import json
import math
import os
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path

import jax
import numpy as np
import pytest

from kvnmt import cli
from kvnmt.cli import pairs
from kvnmt.data.config import DataConfig
from kvnmt.data.text import read_lines
from kvnmt.data.vocabulary import EOS
from kvnmt.devices import split_rows
from kvnmt.inference import score as scores
from kvnmt.inference.score import score, score_lines
from kvnmt.metrics.alignment import hard_links
from kvnmt.metrics.links import format_pharaoh, parse_pharaoh, symmetrize
from kvnmt.runs import directory
from kvnmt.runs.directory import load_ensemble, load_run
from tests.helpers import DEVICES, tiny, toy_lines, untrained, write_untrained

IDS = [[2, 3, 4], [], [5, 2, 3, 3, 6], [4]]


@pytest.fixture(scope="module", name="run")
def _run(folder) -> directory.Run:
    return load_run(folder)


def test_scores_are_the_models(run):
    target = [[3, 2], [4], [2, 2, 5, 6], []]
    found = score(run.model, run.params, IDS, target)
    forward = jax.jit(run.model.forward)
    for x, y, one in zip(IDS, target, found):
        words = np.array([[*y, EOS]])
        source = np.array([[*x, EOS]])
        logits = forward(run.params, source, words).logits
        log_probs = jax.nn.log_softmax(logits)[0]
        want = [log_probs[t, word] for t, word in enumerate(words[0])]
        np.testing.assert_allclose(one.token_log_probs, want, atol=1e-5)
        assert one.log_prob == sum(one.token_log_probs)


def test_neither_order_nor_batch_matters(run):
    source, target = IDS * 5, [[3, 2], [4], [2, 2, 5, 6], []] * 5
    want = score(run.model, run.params, source, target)
    told = []
    alone = score(
        run.model,
        run.params,
        source[::-1],
        target[::-1],
        limits=(8, 4096),  # two rows for each device
        advance=told.append,
    )
    for one, other in zip(want, alone[::-1]):
        np.testing.assert_allclose(
            one.token_log_probs, other.token_log_probs, atol=1e-5
        )
    assert told == [8, 8, 4]


def test_a_long_translation_counts_as_a_long_source_does(run, monkeypatch):
    """Logits of a batch are as large as its rows times the longest target."""
    source, target = [[4, 5]] * 40, [[3]] * 39 + [[2] * 150]
    shapes = []

    def noted(arrays, mesh):
        shapes.append([array.shape for array in arrays])
        return split_rows(arrays, mesh)

    monkeypatch.setattr(scores, "split_rows", noted)
    results = score(run.model, run.params, source, target, limits=(64, 400))
    assert [len(pair.token_log_probs) for pair in results] == [2] * 39 + [151]
    rows = {shape[0] for shape in shapes[0]}
    assert rows == {DEVICES}  # the long one, and what devices need beside it
    assert all(b * t <= max(400, 200 * DEVICES) for _, (b, t) in shapes)


def test_what_is_kept_of_a_pair_is_no_more_than_its_own(run):
    for pair in score(run.model, run.params, [[4], [4] * 40], [[3], [3] * 40]):
        assert all(matrix.base is None for matrix in pair.alignments)


def write(path: Path, lines: list[str]) -> Path:
    path.write_text("".join(f"{line}\n" for line in lines))
    return path


@pytest.fixture(name="pair")
def _pair(tmp_path) -> tuple[Path, Path]:
    source = write(tmp_path / "source", ["a b c", "", "d zzz"])
    return source, write(tmp_path / "target", ["A B", "", "D"])


def test_the_score_command(folder, run, pair, capsys):
    source, target = pair
    given = ["score", str(folder), "--source", str(source), "--target", str(target)]
    cli.main(given)
    said = capsys.readouterr()
    numbers = [float(line) for line in said.out.splitlines()]
    want = score_lines(run, ["a b c", "", "d zzz"], ["A B", "", "D"])
    np.testing.assert_allclose(numbers, [one.log_prob for one in want], atol=1e-5)
    perplexity = math.exp(-sum(numbers) / 6)
    assert f"3 pairs, 6 tokens, log-probability {sum(numbers):.2f}" in said.err
    assert f"perplexity {perplexity:.3f}" in said.err
    assert "warning: 1 pair with an empty side;" in said.err
    cli.main([*given, "--json"])
    lines = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert [line["tokens"] for line in lines] == [
        *(["A", "B", "</s>"], ["</s>"], ["D", "</s>"]),
    ]
    for line, one in zip(lines, want):
        np.testing.assert_allclose(
            line["token_log_probs"], one.token_log_probs, atol=1e-5
        )


def test_results_go_where_they_are_asked_for_though_a_bar_is_shown(folder, pair):
    source, target = pair
    ours, theirs = os.openpty()  # standard error is a terminal, and somebody looks
    given = ["align", folder, "--source", source, "--target", target]
    shown = bytearray()

    def look() -> None:
        with suppress(OSError):  # the other end is closed
            while part := os.read(ours, 4096):
                shown.extend(part)

    with ThreadPoolExecutor(1) as threads:
        looking = threads.submit(look)
        done = subprocess.run(
            [sys.executable, "-m", "kvnmt", *map(str, given)],
            stdout=subprocess.PIPE,
            stderr=theirs,
            check=True,
            env=os.environ | {"TERM": "xterm"},
        )
        os.close(theirs)
        looking.result(60)
    os.close(ours)
    assert len(done.stdout.splitlines()) == 3
    assert b"aligning" in shown


def test_runs_score_as_one(folder, pair, tmp_path_factory, capsys):
    other = untrained(tmp_path_factory.getbasetemp(), "rnnsearch-star")
    source, target = pair
    given = "score", folder, "--source", source, "--target", target
    cli.main([str(word) for word in (*given, "--ensemble", other)])
    numbers = [float(line) for line in capsys.readouterr().out.splitlines()]
    sides = [read_lines(side) for side in pair]
    want = score_lines(load_ensemble([folder, other]), *sides)
    np.testing.assert_allclose(numbers, [one.log_prob for one in want], atol=1e-5)


@pytest.mark.parametrize("command", ["score", "align"])
def test_parts_of_a_text_make_the_whole(
    folder, pair, tmp_path_factory, capsys, monkeypatch, command
):
    source, target = pair
    other = untrained(tmp_path_factory.getbasetemp(), "rnnsearch-star", turned=True)
    given = [command, str(folder), "--source", str(source), "--target", str(target)]
    given += ["--reverse", str(other)] if command == "align" else ["--json"]
    cli.main(given)
    whole = capsys.readouterr()
    read = pairs.parallel_blocks
    sizes = []

    def blocks(*given):
        for block in read(*given):
            sizes.append(len(block.source))
            yield block

    monkeypatch.setattr(pairs, "WINDOW", 2)
    monkeypatch.setattr(pairs, "parallel_blocks", blocks)
    cli.main([*given, "--batch-size", "2"])
    assert sizes == [3, 2, 1]  # looked at, then read again in parts
    parts = capsys.readouterr()
    assert parts.err.splitlines()[-1:] == whole.err.splitlines()[-1:]
    assert len(parts.out.splitlines()) == 3
    if command == "align":
        assert parts.out == whole.out
        return
    for ours, theirs in zip(parts.out.splitlines(), whole.out.splitlines()):
        ours, theirs = json.loads(ours), json.loads(theirs)
        assert ours["tokens"] == theirs["tokens"]
        logs = ours["token_log_probs"], theirs["token_log_probs"]
        np.testing.assert_allclose(*logs, atol=1e-5)


@pytest.mark.parametrize("command", ["score", "align"])
def test_nothing_is_printed_of_text_with_a_faulty_line(
    folder, tmp_path, capsys, monkeypatch, command
):
    paths = tmp_path / "source", tmp_path / "target"
    paths[0].write_bytes(b"a b\nb\na\n")
    paths[1].write_bytes(b"A\nB\n\xe4\n")
    monkeypatch.setattr(pairs, "WINDOW", 1)
    given = [command, str(folder), "--batch-size", "1"]
    with pytest.raises(SystemExit):
        cli.main([*given, "--source", str(paths[0]), "--target", str(paths[1])])
    said = capsys.readouterr()
    assert not said.out and "target, line 3: byte 1 (0xe4) is not UTF-8" in said.err


def test_the_align_command(folder, run, pair, capsys):
    source, target = pair
    given = ["align", str(folder), "--source", str(source), "--target", str(target)]
    cli.main(given)
    plain = capsys.readouterr().out.split("\n")
    assert len(plain) == 4 and plain[1] == plain[3] == ""
    cli.main([*given, "--json"])
    lines = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    for line, links in zip(lines, plain):
        assert line["links"] == links
        soft = np.array(line["alignment"])
        assert soft.shape == (len(line["target"]), len(line["source"]))
        np.testing.assert_allclose(soft.sum(axis=1), 1, atol=1e-4)
        best = {
            f"{soft[j].argmax()}-{j}"
            for j in range(len(line["target"]) - 1)
            if soft[j].argmax() < len(line["source"]) - 1
        }
        assert set(links.split()) == best


def test_the_last_round_is_aligned_by_unless_another_is_named(
    tmp_path_factory, pair, capsys
):
    base = tmp_path_factory.getbasetemp()
    folder = untrained(base, "kvmematt-r2")
    given = ["align", folder, "--source", pair[0], "--target", pair[1], "--json"]
    told = []
    for number in ([], ["--round", 2], ["--round", 1]):
        cli.main([str(word) for word in (*given, *number)])
        told.append([json.loads(x) for x in capsys.readouterr().out.splitlines()])
    run = load_run(folder)
    scored = score_lines(run, *(read_lines(side) for side in pair))
    for place, lines in zip((-1, 1, 0), told):
        for line, one in zip(lines, scored, strict=True):
            np.testing.assert_allclose(
                line["alignment"], one.alignments[place], atol=1e-5
            )
            size = len(line["source"]) - 1, len(line["target"]) - 1
            links = hard_links(one.alignments[place], *size)
            assert line["links"] == format_pharaoh(links)
    assert told[0] == told[1] != told[2]


def test_both_directions_joined(folder, pair, tmp_path_factory, capsys):
    """The other run reads the target; its links count from the source all the same."""
    lines = toy_lines(12, 4)
    source = write(pair[0].parent / "longer", lines)
    target = write(pair[0].parent / "capitals", [line.upper() for line in lines])
    base = tmp_path_factory.getbasetemp()
    other = untrained(base, "rnnsearch-star", turned=True)

    def aligned(run: Path, *arguments: object) -> list[set[str]]:
        cli.main(["align", str(run), *map(str, arguments)])
        return [set(line.split()) for line in capsys.readouterr().out.split("\n")]

    given = "--source", source, "--target", target
    forward = aligned(folder, *given)
    backward = [
        {"-".join(reversed(link.split("-"))) for link in links}
        for links in aligned(other, "--source", target, "--target", source)
    ]
    both = (*given, "--reverse", other, "--heuristic")
    union = [a | b for a, b in zip(forward, backward)]
    assert aligned(folder, *both, "union") == union
    assert aligned(folder, *both, "intersection") == [
        a & b for a, b in zip(forward, backward)
    ]
    assert forward != union != backward
    grown = []
    for sides in zip(forward, backward):
        both = (parse_pharaoh(" ".join(links)).possible for links in sides)
        joined = symmetrize(*both, heuristic="grow-diag-final-and")
        grown.append(set(format_pharaoh(joined).split()))
    assert aligned(folder, *given, "--reverse", other) == grown != union


def refused(capsys, *arguments: object) -> str:
    with pytest.raises(SystemExit) as end:
        cli.main([str(argument) for argument in arguments])
    assert end.value.code == 2
    said = capsys.readouterr()
    assert said.out == "" and said.err.startswith("kvnmt: ")
    return said.err


def test_mistakes_are_told(folder, pair, tmp_path, capsys):
    source, target = pair
    short = write(tmp_path / "short", ["a"])
    assert "--source" in refused(capsys, "score", folder, "--target", target)
    both = ("--source", short, "--target", target)
    assert "short" in refused(capsys, "score", folder, *both)
    both = ("--source", source, "--target", target)
    assert "--round is 2" in refused(capsys, "align", folder, *both, "--round", 2)
    assert "no run directory" in refused(capsys, "align", tmp_path, *both)


def test_a_language_model_scores_and_aligns_nothing(
    tmp_path, pair, capsys, monkeypatch
):
    text = write(tmp_path / "text", toy_lines(1, 40))
    data = DataConfig(
        source=text, target=text, valid_source=text, valid_target=text, min_count=1
    )
    folder = tmp_path / "lm"
    write_untrained(tiny(data, "lm-lstm"), folder)
    cli.main(["score", str(folder), "--target", str(text)])
    said = capsys.readouterr()
    assert len(said.out.splitlines()) == 40 and "perplexity" in said.err
    both = ("--source", text, "--target", text)
    assert "language model" in refused(capsys, "align", folder, *both)
    monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(b"a\n")))
    assert "language model" in refused(capsys, "translate", folder)
