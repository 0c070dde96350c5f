# SPDX-License-Identifier: Apache-2.0
"""The command that compiles for devices which need not be there."""

import json

import pytest

from kvnmt.attention import delta_memory, kv_memory
from kvnmt.compiling import targets
from kvnmt.errors import UserError
from kvnmt.runs.recipes import RECIPES

FLAGS = (
    "--model.embedding 4 --model.encoder 4 --model.state 4 --vocabulary 9 "
    "--source-length 3 --what search --search.beam 2 --search.batch-size 2"
).split()


def test_a_line_of_json_and_the_program(kvnmt, tmp_path):
    said = kvnmt("compile", *FLAGS, "--json", "--kernels", 3, "--hlo", tmp_path / "hlo")
    assert (said.status, said.err) == (0, "")
    line = json.loads(said.out)
    assert (line["for"], line["device"], line["devices"]) == ("cpu", "cpu", 1)
    assert line["config"]["search"]["beam"] == 2
    assert line["memory"]["fits"] is True
    names = [section["name"] for section in line["sections"]]
    assert names[0] == "outside loops" and "search" in names
    assert all(len(section["largest"]) == 3 for section in line["sections"])
    assert line["compile_seconds"] >= 0 and line["trials"] == []
    assert (tmp_path / "hlo").read_text().startswith("HloModule")


def test_the_model_is_the_one_that_training_with_the_flags_has(kvnmt, monkeypatch):
    """A system is where flags start from, mechanisms and their options among them."""
    configs = []

    def compile_for(config, target):
        configs.append(config)
        raise UserError("enough.")

    monkeypatch.setattr("kvnmt.cli.compile.compile_for", compile_for)
    flags = "--system kvmematt-r2-atteos --model.layers 3 --model.decoder.rounds 3"
    assert kvnmt("compile", *flags.split()).err == "kvnmt: enough.\n"
    model = configs[-1].model
    rounds = model.decoder.rounds, model.attention == kv_memory.Options()
    assert (model.layers, *rounds) == (3, 3, True)
    assert configs[-1].objective.atteos == 1
    modern = RECIPES["modern"]
    assert configs[-1].batch_size == modern.training.batch_size
    assert (configs[-1].ema, configs[-1].search) == (modern.training.ema, modern.search)
    flags = "--recipe papers --attention delta_memory --model.attention.update kda"
    kvnmt("compile", *flags.split(), "--dtype", "bfloat16")
    assert configs[-1].model.attention == delta_memory.Options(update="kda")
    assert configs[-1].dtype == "bfloat16" and configs[-1].ema == 0
    assert configs[-1].objective == RECIPES["papers"].objective


def test_tables_for_people(kvnmt):
    said = kvnmt("compile", *FLAGS, "--kernels", 1)
    assert said.status == 0
    out = said.out.decode()
    assert out.startswith("rnnsearch-star on 1 x cpu, search: sizes 4 / 4 / 4")
    for part in ("parameters", "available: fits", "encoder, forward", "largest of:"):
        assert part in out
    assert "compiled in" in out


def test_the_largest_batch_needs_to_know_what_there_is(kvnmt, monkeypatch):
    here = targets.target("cpu")
    monkeypatch.setattr(targets, "target", lambda name: here._replace(memory=None))
    said = kvnmt("compile", *FLAGS, "--largest-batch")
    assert (said.status, said.out) == (2, b"")
    assert said.err == "kvnmt: nobody knows how much memory cpu has.\n"


@pytest.mark.parametrize(
    ("flags", "part"),
    [
        (["--for", "gpu:h10"], "did you mean 'h100'?"),
        (["--system", "kvmemat-r2"], "did you mean 'kvmematt-r2'?"),
        (["--model-axis", "2"], "must divide the 1 devices"),
        (["--model-axis", "2", "--largest-batch"], "must divide the 1 devices"),
        (["--what", "search", "--batch-size", "3"], "--batch-size is of training"),
        (
            ["--what", "search", "--optimizer.clip", "2"],
            "--optimizer.clip is of training",
        ),
        (["--what", "search", "--ema", "0.5"], "--ema is of training"),
        (["--what", "search", "--dtype", "bfloat16"], "--dtype is of training"),
        (["--candidates", "5"], "--candidates is of a search"),
        (["--search.beam", "3"], "--search.beam is of a search"),
        (["--kernels", "-1"], "--kernels"),
        (["--search.beam", "0"], "--search.beam"),
        (["--decoder", "past_future"], "give --objective.subtractive 1"),
        ([*FLAGS, "--hlo", "/nowhere/hlo"], "/nowhere"),
    ],
)
def test_mistakes_are_told_in_a_sentence(kvnmt, flags, part):
    said = kvnmt("compile", *flags)
    assert (said.status, said.out) == (2, b"")
    assert said.err.startswith("kvnmt: ") and said.err.endswith(".\n")
    assert part in said.err
