# SPDX-License-Identifier: Apache-2.0
"""Attention functions side by side on text of one's own, over seeds."""

import json
from dataclasses import replace

import pytest

from experiments import compare
from experiments.compare import Compare
from experiments.parts.ingredients import WITHOUT
from kvnmt.attention import delta_memory, dot, kv_memory
from kvnmt.errors import UserError
from tests.experiments.fake import never, untrained, write_captions

LINES = [f"d e f g {n}" for n in range(9)]


@pytest.fixture
def options(tmp_path, monkeypatch) -> Compare:
    write_captions(tmp_path)
    text = {
        f"{part}{side}": tmp_path / f"{part.strip('_') or 'train'}.{name}"
        for part in ("", "valid_")
        for side, name in (("source", "de"), ("target", "en"))
    }
    plain = WITHOUT["joint pieces"](compare.RECIPE)
    recipe = replace(plain, data=replace(plain.data, **text))
    monkeypatch.setattr(compare, "RECIPE", recipe)
    return Compare(
        test_source=tmp_path / "test2016.de",
        test_target=tmp_path / "test2016.en",
        workdir=tmp_path / "runs",
        seeds=(1, 2),
        attentions=("kv_memory",),
    )


def test_attentions_stand_beside_the_first_system_with_tests(options, capsys):
    compare.main(options, train=untrained)
    table = capsys.readouterr().out
    lines = {
        line.split("  ")[0].strip(): line
        for line in table.splitlines()
        if "rnnsearch" in line
    }
    base, other = lines["rnnsearch-star"], lines["rnnsearch-star with kv_memory"]
    assert "1 2" in base and "1 2" in other
    assert other.count("1.000") == 2 and "1.000" not in base  # they say the same
    folder = options.workdir / "rnnsearch-star-with-kv_memory-2"
    result = json.loads((folder / "result.json").read_text())
    assert result["seed"] == 2 and "tok:13a" in result["signature"]
    assert len((folder / "test.txt").read_text().splitlines()) == 4
    config = json.loads((folder / "config.json").read_text())
    assert config["model"]["attention"]["name"] == "kv_memory"
    compare.main(options, train=never)
    assert capsys.readouterr().out in table


def test_links_that_people_drew_tell_what_is_aligned_and_dropped(
    options, tmp_path, capsys, monkeypatch
):
    monkeypatch.setattr("kvnmt.evaluation.base.FEW", 1)
    lines = options.test_target.read_text().splitlines()
    words = [len(line.split()) for line in lines]
    systems = "rnnsearch-star", "rnnencdec"
    options = replace(options, seeds=(1,), systems=systems, attentions=())
    compare.main(options, train=untrained)
    assert "AER" not in capsys.readouterr().out
    gold = tmp_path / "gold"
    gold.write_text("".join(f"1-1 1-{n - 1}\n" for n in words))
    given = replace(options, gold=gold)
    with pytest.raises(UserError, match="other text"):  # those figures lack it
        compare.main(given, train=never)
    given = replace(given, workdir=tmp_path / "others")
    compare.main(given, train=untrained)
    table = capsys.readouterr().out
    for heading in ("AER", "dropped", "repeated", "invented", "unread"):
        assert heading in table
    assert "say --from-one if they count from 1" in " ".join(table.split())
    folders = [given.workdir / f"{name}-1" for name in options.systems]
    one, two = [json.loads((f / "result.json").read_text()) for f in folders]
    assert 0 <= one["aer"] <= 1 and "aer" not in two  # it has no attention
    assert 0 <= one["dropped"] <= 1 and two["system"] == "rnnencdec"
    with pytest.raises(UserError, match="other text"):  # the same files, read anew
        compare.main(replace(given, from_one=True), train=never)
    gold.write_text("")
    with pytest.raises(UserError, match="gold' holds no links"):
        compare.main(given, train=never)


def test_figures_of_seeds_are_told_by_mean_and_spread():
    def result(system: str, seed: int, bleu: float) -> dict:
        said = [f"a b c d {seed}", *(["x y z q"] * 9 if system == "two" else LINES)]
        counts = compare.packed_counts(said, ["a b c d e", *LINES])
        figures = {"chrf": 50.0, "valid_loss": 2.0, "minutes": 1.0, "parameters": 9}
        figures |= {"system": system, "seed": seed, "bleu": bleu}
        return figures | {compare.COUNTS: counts}

    scores = {"one": (30.0, 31.0, 32.0), "two": (40.0, 41.0, 42.0), "three": (5.0,)}
    results = [
        result(name, seed, bleu)
        for name, group in scores.items()
        for seed, bleu in enumerate(group, 1)
    ]
    one, two, three = compare.summarised("one", results)
    assert (one["bleu"], two["bleu"], three["bleu"]) == (
        "31.00 ± 1.00",
        "41.00 ± 1.00",
        "5.00",
    )
    assert "p_seeds" not in one and two["p_seeds"] < 0.001
    assert three["p_seeds"] is None and three["p_sentences"] == "1.000"
    assert max(map(float, two["p_sentences"].split(", "))) < 0.05
    assert "p_holm" not in two  # the only test
    four = [result("four", seed, 31.5 + seed) for seed in (1, 2, 3)]
    *_, two, three, four = compare.summarised("one", [*results, *four])
    assert two["p_holm"] == 2 * two["p_both"] < four["p_holm"] == four["p_both"]
    assert "p_holm" not in three
    _, two = compare.summarised("one", [*results[:2], *results[3:6]])
    assert two["p_sentences"].endswith(" (2 of 3 seeds)") and two["p_both"] is None
    two, three = compare.summarised("one", results[3:])  # the first is not done yet
    assert "p_seeds" not in two and "p_sentences" not in three
    assert compare.summarised("one", []) == []


def test_what_is_compared_is_named_well(options):
    row = compare.configure(options, "rnnsearch-star", "delta_memory", 1, None)
    chosen = delta_memory.Options(update="kda", write="decoder")
    words = "delta_memory:update=kda,write=decoder"
    other = compare.configure(options, "rnnsearch-star", words, 1, None)
    assert other.experiment.model.attention == chosen
    assert other.folder != row.folder and words in other.system
    assert "model.attention.update" in other.named_for
    alike = compare.configure(
        options, "kvmematt-r2", "kv_memory:share_addresses=True", 1, None
    )
    assert alike.experiment.model.attention == kv_memory.Options(share_addresses=True)
    unlike = compare.with_attention(alike.experiment, "kv_memory:share_addresses=false")
    assert unlike.model.attention == kv_memory.Options()
    for words, said in (
        ("dot:rat=2", "no option of dot 'rat'"),
        ("delta_memory:updat=kda", "'updat'; did you mean 'update'"),
        ("delta_memory:update", "gives update no value; write update=VALUE"),
        ("delta_memory:heads=0", "heads"),
    ):
        with pytest.raises(UserError, match=said):
            compare.configure(options, "rnnsearch-star", words, 1, None)
    row = compare.configure(options, "rnnsearch-star", "dot", 1, None)
    assert isinstance(row.experiment.model.attention, dot.Options)
    assert row.system == "rnnsearch-star with dot"
    plain = compare.configure(options, "kvmematt-r2", "", 1, None)
    assert isinstance(plain.experiment.model.attention, kv_memory.Options)
    with pytest.raises(UserError, match="no attention 'kv_memor'; did you mean"):
        compare.main(replace(options, attentions=("kv_memor",)), train=never)
    for changes, said in (
        ({"systems": ("lm-lstm",)}, "lm-lstm is a language model"),
        ({"systems": ("kvmematt-r2",), "attentions": ("additive",)}, "for nothing"),
    ):
        with pytest.raises(UserError, match=said):
            compare.main(replace(options, **changes), train=never)
    same = replace(
        options,
        systems=("mematt",),
        config=("--model.attention.values", "rewritten"),
    )
    with pytest.raises(UserError, match="values is .* row '.*kv_memory"):
        compare.main(same, train=never)
    alone = replace(options, attentions=(), seeds=(1,))
    with pytest.raises(UserError, match="nothing to compare"):
        compare.main(alone, train=never)
