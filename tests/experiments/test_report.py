# SPDX-License-Identifier: Apache-2.0
"""Tables of the pages: every figure comes from a result that is kept."""

import json
import re
import shutil
import subprocess
from contextlib import nullcontext
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from scipy import stats

from experiments import report
from experiments.harness import results
from experiments.harness.results import KEPT, collect, kept_results
from experiments.harness.significance import (
    Against,
    packed_counts,
    with_p,
)
from experiments.harness.summaries import Grid, Summary, grid_of, mean_and_spread
from experiments.report import PAGES, ReportOptions, all_tables, latex, written
from kvnmt.errors import UserError
from kvnmt.evaluation.base import Column
from kvnmt.evaluation.latex import tabular
from kvnmt.metrics.bleu import Settings
from kvnmt.metrics.significance import resample

COLUMNS = (Column("bleu", "BLEU", "{:.2f}"), Column("parameters", "size", "{:,}"))
SUMMARY = Summary("mine", COLUMNS, published={"rnnsearch-star, scratch": "36.53"})
AGAINST = Against({"system": "rnnsearch-star"}, "bleu", "counts")
MEASURED = {"measured": "2026-01-01", "device": "1 x cpu", "commit": "0123456789abcdef"}


def keep(kept: Path, name: str, **figures: object) -> None:
    folder = kept / "mine"
    folder.mkdir(parents=True, exist_ok=True)
    (folder / f"{name}.json").write_text(json.dumps(MEASURED | figures))


def row(seed: int, bleu: float, start: str = "scratch") -> dict[str, object]:
    named = {"system": "rnnsearch-star", "start": start, "seed": seed}
    return named | {"bleu": bleu, "parameters": 1234567}


@pytest.fixture(scope="module", name="text")
def _text() -> str:
    """That of all pages."""
    return "\n".join(page.read_text() for page in sorted(PAGES.glob("*.md")))


def test_the_pages_are_what_the_results_make_of_them(text):
    marked = re.compile(r"(<!-- table [\w-]+ -->\n).*?(?=<!-- end -->)", re.S)
    assert len(marked.findall(text)) == len(all_tables())
    assert written(marked.sub(r"\1", text), all_tables()) == text


def test_every_table_of_a_module_stands_on_a_page(text):
    names = re.findall(r"<!-- table ([\w-]+) -->", text)
    assert sorted(names) == sorted(all_tables())
    for summary in all_tables().values():
        # What was not run has published figures, and says so.
        assert kept_results(summary.place) or summary.published, summary.name
        # What others published was published with another setting, and says which.
        assert summary.published_with or summary.differences or not summary.published


def test_a_table_without_results_says_that_it_was_measured_once(text):
    text = re.sub(r"<!-- table .*?<!-- end -->", "", text, flags=re.S)
    tables = re.findall(r"(\n\n[^|]*)(\n\n\|.*?(?=\n\n))", text, flags=re.S)
    assert len(tables) == 12
    for above, table in tables:
        assert "measured once" in " ".join(above.lower().split()), table


def test_results_that_are_kept_say_what_they_were_measured_with():
    for path in KEPT.glob("*/*.json"):
        result = json.loads(path.read_text())
        assert {"measured", "device", "commit", "versions", "command"} <= set(result)


def test_seeds_are_put_together(tmp_path):
    keep(tmp_path, "a", **row(1, 20.0))
    keep(tmp_path, "b", rows=[row(2, 21.0), row(3, 22.0), row(1, 30.0, "warm")])
    grid = grid_of(SUMMARY, tmp_path)
    assert grid.headings == ["system", "start", "published", "BLEU", "size", "seeds"]
    scratch = ["`rnnsearch-star`", "scratch", "36.53", "21.00 ± 1.00", "1 234 567", "3"]
    warm = ["`rnnsearch-star`", "warm", "", "30.00", "1 234 567", "1"]
    assert grid.rows == [scratch, warm]
    assert grid.note == "Measured 2026-01-01 (commit 0123456789ab) on 1 x cpu."


def test_a_cell_of_fewer_seeds_says_so(tmp_path):
    keep(tmp_path, "a", **row(1, 20.0))
    keep(tmp_path, "b", **row(2, None))
    assert grid_of(SUMMARY, tmp_path).rows[0][3:] == ["20.00 (1)", "1 234 567", "2"]


def test_a_spread_has_no_sign_and_two_values_have_none():
    assert mean_and_spread([0.01, 0.02, 0.03], "{:+.2%}") == "+2.00% ± 1.00%"
    assert mean_and_spread([0.01, 0.03], "{:+.2%}") == "+1.00%; +3.00%"


def test_language_pairs_are_rows_of_their_own(tmp_path):
    """A result of a former version names no pair; published is but the first."""
    summary = replace(SUMMARY, data="de-en")
    keep(tmp_path, "a", **row(1, 20.0))
    keep(tmp_path, "b", **row(2, 22.0), data="de-en")
    keep(tmp_path, "c", **row(1, 30.0), data="cs-en")
    grid = grid_of(summary, tmp_path)
    assert grid.headings[:4] == ["system", "start", "data", "published"]
    assert grid.numeric == [False] * 3 + [True] * 4
    assert [line[2:5] for line in grid.rows] == [
        ["de-en", "36.53", "20.00; 22.00"],
        ["cs-en", "", "30.00"],
    ]


def test_what_was_not_run_is_said(tmp_path):
    keep(tmp_path, "a", **row(1, 30.0, "warm"))
    assert grid_of(SUMMARY, tmp_path).rows[0][2:] == ["36.53", "", "", "not run"]


def test_two_results_of_a_seed_are_refused(tmp_path):
    keep(tmp_path, "a", **row(1, 20.0))
    keep(tmp_path, "b", **row(1, 21.0))
    with pytest.raises(UserError, match=r"mine/a\.json' and 'mine/b\.json' .* seed 1"):
        grid_of(SUMMARY, tmp_path)


@pytest.mark.parametrize(
    ("values", "place"),
    [
        *((["31.2"], 0), (["31.2", 20.0], 0), ([20.0, "31.2"], 1)),
        *(([20.0, float("inf")], 1), ([20.0, float("nan")], 1)),
    ],
)
def test_a_figure_that_is_no_number_is_one_sentence(tmp_path, values, place):
    for seed, value in enumerate(values):
        keep(tmp_path, f"{seed}", **row(seed, value))
    said = rf"'bleu' of 'mine/{place}\.json' is no number but {values[place]!r}"
    with pytest.raises(UserError, match=said):
        grid_of(SUMMARY, tmp_path)


@pytest.mark.parametrize(
    "was", ["new", "new:t", "new:t::1.5", "old:t", "new:t::1.25", "new:u::1.5"]
)
def test_a_result_of_rows_that_are_no_longer_there_is_not_kept(tmp_path, was):
    """Its base was trained again, perhaps with the same config: neither is copied."""
    noted: dict = {"base": {"config": "new", "text": "t", "valid_loss": 1.5}}
    noted["read"] = {"based_on": {"base": was}}
    for name, figures in noted.items():
        (tmp_path / "runs" / name).mkdir(parents=True)
        text = json.dumps(MEASURED | row(1, 20.0) | figures)
        (tmp_path / "runs" / name / "result.json").write_text(text)
    is_kept = was in ("new", "new:t", "new:t::1.5")
    said = "runs/read' was measured before 'base' became"
    with nullcontext() if is_kept else pytest.raises(UserError, match=said):
        collect(tmp_path / "runs", "mine", tmp_path / "kept")
    assert (tmp_path / "kept").exists() == is_kept


@pytest.mark.parametrize("other", ["another", None])
@pytest.mark.parametrize("what", ["setting", "text"])
def test_seeds_of_two_settings_are_refused(tmp_path, what, other):
    """And one that does not tell its own beside those that do."""
    for seed, told in enumerate(("s", "s", other), 1):
        keep(tmp_path, str(seed), **row(seed, 20.0), **{what: told})
    sentence = rf"mine/1\.json' and 'mine/3\.json' .* different {what}s"
    with pytest.raises(UserError, match=sentence):
        grid_of(SUMMARY, tmp_path)


def test_a_kept_result_without_a_day_is_one_sentence(tmp_path):
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "a.json").write_text(json.dumps(row(1, 20.0)))
    with pytest.raises(UserError, match=r"mine/a\.json' does not say when"):
        grid_of(SUMMARY, tmp_path)


def test_latex_has_the_same_cells(tmp_path):
    keep(tmp_path, "a", **row(1, 20.0))
    keep(tmp_path, "b", **row(2, 22.0))
    keep(tmp_path, "c", **row(3, 24.0))
    lines = latex(grid_of(SUMMARY, tmp_path)).splitlines()
    assert lines[0] == r"\begin{tabular}{llrrrr}"
    name = r"\texttt{rnnsearch-star} & scratch & 36.53"
    assert lines[4] == name + r" & 22.00 $\pm$ 2.00 & 1 234 567 & 3 \\"
    (row_of_signs,) = tabular(["a"], [False], [["\\ ^~{$}%_&#|<>"]]).splitlines()[4:5]
    signs = row_of_signs.removesuffix(r" \\").split(" ")
    assert signs[0] == r"\textbackslash{}"
    assert signs[1].startswith(r"\textasciicircum{}\textasciitilde{}\{\$\}\%\_\&\#")


def test_results_of_a_workdir_are_kept(tmp_path):
    for seed in (1, 2):
        folder = tmp_path / "runs" / f"row-{seed}"
        folder.mkdir(parents=True)
        text = json.dumps(MEASURED | row(seed, 20.0 + seed))
        (folder / "result.json").write_text(text)
    paths = collect(tmp_path / "runs", "mine", tmp_path / "kept")
    assert [path.name for path in paths] == ["row-1.json", "row-2.json"]
    bleu = [result["bleu"] for result in kept_results("mine", tmp_path / "kept")]
    assert bleu == [21.0, 22.0]
    with pytest.raises(UserError, match="no result"):
        collect(tmp_path, "mine", tmp_path / "kept")


def test_a_kept_result_of_another_setting_is_not_overwritten(tmp_path):
    folder = tmp_path / "runs" / "row-1"
    folder.mkdir(parents=True)

    def measure(**figures: object) -> list[Path]:
        text = json.dumps(MEASURED | row(1, 20.0) | figures)
        (folder / "result.json").write_text(text)
        return collect(tmp_path / "runs", "mine", tmp_path / "kept")

    (path,) = measure()
    measure()
    for before, after in (({}, {"setting": "s"}), ({"text": "t"}, {"text": "u"})):
        path.unlink()
        measure(**before)
        kept = path.read_text()
        with pytest.raises(UserError, match=r"row-1\.json' is of another .* delete it"):
            measure(**after)
        assert path.read_text() == kept
    measure(text="t", bleu=21.0)
    assert json.loads(path.read_text())["bleu"] == 21.0


def test_only_the_tables_that_are_named_are_written(text):
    marked = re.compile(r"(<!-- table [\w-]+ -->\n).*?(?=<!-- end -->)", re.S)
    none = marked.sub(r"\1", text)
    some = written(none, all_tables(), only=["multi30k-5"])
    assert len(none) < len(some) < len(text) and "| 40.12 |" not in some
    with pytest.raises(UserError, match="multi30k"):
        report.main(ReportOptions(tables=("multi3k",)))


def test_what_a_result_was_measured_with(tmp_path, monkeypatch):
    """Code that was changed says so; a CPU has a name."""
    keep(tmp_path, "a", **row(1, 20.0), commit="0123456789abcdef-dirty")
    assert "0123456789ab with changes) on" in grid_of(SUMMARY, tmp_path).note
    cpus = tmp_path / "cpuinfo"
    cpus.write_text("processor\t: 0\nmodel name\t: Some CPU @ 2 GHz\n")
    monkeypatch.setattr(results, "CPUS", cpus)
    assert results.provenance()["device"].endswith("x cpu (Some CPU @ 2 GHz)")
    monkeypatch.setattr(results, "package_versions", lambda: {"device": "1 x Some GPU"})
    assert results.provenance()["device"] == "1 x Some GPU"


@pytest.mark.skipif(shutil.which("git") is None, reason="git is not here")
def test_a_new_module_makes_code_another(tmp_path, monkeypatch):
    """Though git knows nothing of it yet; a new text or a page does not."""
    home = tmp_path / "experiments"
    (home / "parts").mkdir(parents=True)
    monkeypatch.setattr(results, "HERE", home)
    for command in ("init -q", "commit -q --allow-empty -m first"):
        who = ["-c", "user.name=a", "-c", "user.email=b"]
        subprocess.run(["git", *who, *command.split()], cwd=tmp_path, check=True)
    for path in (tmp_path / "notes.txt", tmp_path / "peer.py", home / "page.md"):
        path.write_text("")
    clean = results.commit.__wrapped__()
    assert len(clean) == 40
    (home / "parts" / "new.py").write_text("")
    assert results.commit.__wrapped__() == f"{clean}-dirty"


def test_what_is_collected_stands_in_a_table(tmp_path, monkeypatch, capsys):
    """By the name of the folder of runs, or of a table's folder."""
    run = tmp_path / "alignment" / "row-1"
    run.mkdir(parents=True)
    (run / "result.json").write_text(json.dumps(MEASURED | {"system": "x"}))
    page, other = tmp_path / "alignment.md", tmp_path / "other.md"
    page.write_text("<!-- table alignment-fr-en -->\n<!-- end -->\n")
    other.write_text("nothing")
    monkeypatch.setattr(report, "PAGES", tmp_path)
    monkeypatch.setattr(report, "KEPT", tmp_path / "kept")
    report.main(ReportOptions(collect=tmp_path / "alignment"))
    assert (tmp_path / "kept" / "alignment" / "row-1.json").exists()
    assert "not run" in page.read_text() and other.read_text() == "nothing"
    assert capsys.readouterr().err.count("is written anew") == 1


def test_results_of_an_unknown_table_are_refused_before_any_is_kept(tmp_path):
    with pytest.raises(UserError, match="multi30k"):
        report.main(ReportOptions(collect=tmp_path, name="multi3k"))


def test_rows_are_tested_over_their_seeds_and_the_baseline_s(tmp_path):
    summary = replace(SUMMARY, against=AGAINST, published={})
    for seed, bleu in enumerate((36.0, 36.5, 35.8, 30.0), start=1):
        keep(tmp_path, f"baseline-{seed}", **row(seed, bleu))
        keep(tmp_path, f"control-{seed}", **row(seed, bleu + 9, "warm"))
    for seed, gain in ((1, 1.0), (2, 1.2)):
        other = row(seed, (36.0, 36.5)[seed - 1] + gain) | {"system": "kvmematt-r1"}
        keep(tmp_path, f"r1-{seed}", **other)
    heading = "p against rnnsearch-star, seeds"
    assert heading not in grid_of(summary, tmp_path).headings
    third = row(3, 35.8 + 0.8) | {"system": "kvmematt-r1"}
    keep(tmp_path, "r1-3", **third)
    grid = grid_of(summary, tmp_path)
    column = [r[grid.headings.index(heading)] for r in grid.rows]
    p = stats.ttest_ind([37, 37.7, 36.6], [36, 36.5, 35.8, 30], equal_var=False).pvalue
    assert sorted(column) == ["", "", f"{p:.3f}"]


def test_rows_are_tested_over_the_sentences_of_the_baseline_of_their_seed(tmp_path):
    """In whatever order they come; where references are others, nothing is said."""
    summary = replace(SUMMARY, against=AGAINST, published={})
    references = [f"a b c d {'e f ' * (n % 3)}g" for n in range(30)]
    texts = {
        ("rnnsearch-star", 1): [
            line[: 12 - n % 5] for n, line in enumerate(references)
        ],
        ("rnnsearch-star", 2): [line.replace("c", "x") for line in references],
        ("kvmematt-r1", 2): [line.replace("b c", "b") for line in references],
        ("kvmematt-r1", 1): [line.replace("g", "h") for line in references],
        ("kvmematt-r1", 3): references,
        ("mematt", 1): references[:20],
    }
    found = []
    for (system, seed), lines in texts.items():
        counts = packed_counts(lines, references[: len(lines)])
        found.append(row(seed, 20.0) | {"system": system, "counts": counts})
        keep(tmp_path, f"{system}-{seed}", **found[-1])
    expected = {
        seed: resample(
            [texts["rnnsearch-star", seed], texts["kvmematt-r1", seed]],
            references,
            "bootstrap",
            Settings("none"),
        ).p["BLEU"][0]
        for seed in (1, 2)
    }
    assert len({*expected.values(), 1.0}) == 3
    grid = grid_of(summary, tmp_path)
    place = grid.headings.index("p against rnnsearch-star, sentences")
    assert {line[0]: line[place] for line in grid.rows} == {
        "`rnnsearch-star`": "",
        "`mematt`": "",
        "`kvmematt-r1`": f"{expected[1]:.3f} / {expected[2]:.3f} (2)",  # of 3 seeds
    }
    lines = with_p(AGAINST, summary.by, found)
    told = {(line["system"], line["seed"]): line["p"] for line in lines if "p" in line}
    wanted = {("kvmematt-r1", seed): p for seed, p in expected.items()}
    assert told == pytest.approx(wanted)


def test_a_bar_in_a_cell_begins_no_other_cell():
    grid = Grid(["signature"], [False], [["nrefs:1|tok:13a"]], "")
    assert r"| nrefs:1\|tok:13a |" in report.markdown(grid)


@pytest.mark.parametrize(
    ("figures", "taken", "refused"),
    [
        (
            {"system": "two", "parameters": 2, "command": "x --seeds 1"},
            {"bleu": 2.0},
            {"parameters": 9},
        ),
        (
            {"config": "d-1", "command": "--workdir 0"},
            {"bleu": 2.0, "command": "--workdir 1"},
            {"config": "d-2"},
        ),
    ],
    ids=["speeds", "ensemble"],
)
def test_a_result_that_trains_nothing_takes_the_place_of_none(
    tmp_path, figures, taken, refused
):
    """Of another system, size or command; with a config, that tells it apart."""
    run, kept = tmp_path / "runs" / "row-1", tmp_path / "kept"
    run.mkdir(parents=True)
    for changes in ({}, taken):
        (run / "result.json").write_text(json.dumps(MEASURED | figures | changes))
        collect(tmp_path / "runs", "mine", kept)
    (run / "result.json").write_text(json.dumps(MEASURED | figures | refused))
    with pytest.raises(UserError, match="is of another setting, text or"):
        collect(tmp_path / "runs", "mine", kept)
    assert json.loads((kept / "mine/row-1.json").read_text())["bleu"] == 2.0


def test_what_cannot_be_reported_is_not_kept(tmp_path):
    run, kept = tmp_path / "runs" / "row-1", tmp_path / "kept"
    run.mkdir(parents=True)
    (run / "result.json").write_text('{"bleu": 1}')
    with pytest.raises(UserError, match="does not say when and on what"):
        collect(tmp_path / "runs", "mine", kept)
    (run / "result.json").unlink()
    (run / "result.json").mkdir()
    with pytest.raises(UserError, match="result.json' cannot be read: Is a directory"):
        collect(tmp_path / "runs", "mine", kept)
    assert not kept.exists()
    with pytest.raises(UserError, match="--name is that of the table of --collect"):
        report.main(ReportOptions(name="mine"))


def test_a_table_without_an_end_takes_no_prose(tmp_path):
    page = "<!-- table mine -->\nprose\n<!-- table mine -->\n<!-- end -->\n"
    with pytest.raises(UserError, match="table 'mine' has no '<!-- end"):
        written(page, {"mine": SUMMARY}, tmp_path)
    page = "<!-- table mine -->\n<!-- end -->\n<!-- table other -->\nprose\n"
    with pytest.raises(UserError, match="table 'other' has no '<!-- end"):
        written(page, {"mine": SUMMARY, "other": SUMMARY}, tmp_path)


def test_what_is_not_asked_for_is_not_read(tmp_path):
    """A result that cannot be read keeps no other table from being written."""
    (tmp_path / "other").mkdir()
    (tmp_path / "other" / "a.json").write_text("{")
    marks = "".join(f"<!-- table {n} -->\n<!-- end -->\n" for n in ("mine", "other"))
    tables = {"mine": SUMMARY, "other": replace(SUMMARY, name="other")}
    assert "not run" in written(marks, tables, tmp_path, ["mine"])
    with pytest.raises(UserError, match="a.json"):
        written(marks, tables, tmp_path)


@pytest.mark.parametrize(
    "mark",
    [
        *("<!-- table mine-->", "<!--table mine -->", "<!-- table mi.ne -->"),
        *("<!-- table mine --> ", "<!-- table mine --><!-- end -->"),
        "text <!-- table mine -->",
    ],
)
def test_a_mark_that_is_spelt_otherwise_is_told(mark, tmp_path):
    page = f"prose\n<!-- table mine -->\n<!-- end -->\n{mark}\n<!-- end -->\n"
    with pytest.raises(UserError, match=f"'{mark}' begins no table; write '<!-- table"):
        written(page, {"mine": SUMMARY}, tmp_path)


def test_pages_are_utf_8_in_any_locale(tmp_path, monkeypatch):
    """And a table must stand on one of them."""
    page = tmp_path / "page.md"
    page.write_bytes("Biçici ±\n<!-- table mine -->\n<!-- end -->\n".encode())
    monkeypatch.setattr(report, "PAGES", tmp_path)
    monkeypatch.setattr(report, "KEPT", tmp_path / "kept")
    monkeypatch.setattr(report, "all_tables", lambda: {"mine": SUMMARY, "b": SUMMARY})
    monkeypatch.setattr("io.text_encoding", lambda given, *_: given or "latin-1")
    report.main(ReportOptions(tables=("mine",)))
    assert page.read_bytes().startswith("Biçici ±\n<!-- table mine -->\n| ".encode())
    with pytest.raises(UserError, match="table 'b' stands on no page; put '<!-- table"):
        report.main(ReportOptions(tables=("b",)))


def test_two_tables_of_one_name_are_told(monkeypatch):
    monkeypatch.setattr("experiments.growth.TABLES", (replace(SUMMARY, name="wang"),))
    with pytest.raises(UserError, match="'wang' calls a table 'wang', as another"):
        all_tables()


@pytest.mark.parametrize("field", ["published", "differences"])
def test_rows_are_named_by_all_their_parts(field, tmp_path):
    with pytest.raises(UserError, match="names a row 'cited', but rows have 2 parts"):
        grid_of(replace(SUMMARY, **{field: {"cited": "1.0"}}), tmp_path)


def test_a_baseline_may_be_told_by_a_number(tmp_path):
    """The table of the module and that of the page find the same baseline."""
    random = np.random.default_rng(0)
    lines = [
        [" ".join("abcde"[i] for i in random.integers(0, 5, 6)) for _ in range(9)]
        for _ in range(3)
    ]
    results = [
        MEASURED | {"slots": n, "seed": 1, "c": packed_counts(lines[n], lines[2])}
        for n in (0, 1)
    ]
    against = Against({"slots": "1"}, "bleu", "c")
    first, second = with_p(against, ["slots"], results)
    assert 0 <= first["p"] <= 1 and "p" not in second
    for n, result in enumerate(results):
        keep(tmp_path, str(n), **result)
    summary = Summary("mine", COLUMNS, by=("slots",), against=against)
    grid = grid_of(summary, tmp_path)
    assert "p against slots 1, sentences" in grid.headings
    assert f"{first['p']:.3f}" in grid.rows[0]


def test_another_training_takes_no_results_place_unasked(tmp_path):
    """Others may have come of that: they are named."""
    runs, kept = tmp_path / "runs", tmp_path / "kept"
    for name, figures in (
        ("base", {"setting": "s", "text": "t", "valid_loss": 1.5}),
        ("made", {"setting": "u", "based_on": {"base": "c:t::1.5"}}),
        ("of_that", {"setting": "v", "based_on": {"made": "u:t::1.25"}}),
    ):
        (kept / "mine").mkdir(parents=True, exist_ok=True)
        (kept / "mine" / f"{name}.json").write_text(json.dumps(MEASURED | figures))
    (runs / "base").mkdir(parents=True)
    again = MEASURED | {"setting": "s", "text": "t", "valid_loss": 1.25}
    (runs / "base" / "result.json").write_text(json.dumps(again))
    with pytest.raises(UserError, match=r"it \('made.json', 'of_that.json'\)"):
        collect(runs, "mine", kept)
    (kept / "mine" / "base.json").unlink()
    collect(runs, "mine", kept)
