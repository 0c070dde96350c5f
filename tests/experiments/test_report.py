# SPDX-License-Identifier: Apache-2.0
"""Tables of the pages: every figure comes from a result that is kept."""

import json
import re
from dataclasses import replace

import pytest

from experiments import report
from experiments.harness import results
from experiments.harness.results import KEPT, kept_results
from experiments.harness.summaries import Grid, grid_of, mean_and_spread
from experiments.report import ReportOptions, all_tables, latex, written
from kvnmt.errors import UserError
from kvnmt.evaluation.latex import tabular
from tests.experiments.kept import SUMMARY, keep, row


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


def test_a_bar_in_a_cell_begins_no_other_cell():
    grid = Grid(["signature"], [False], [["nrefs:1|tok:13a"]], "")
    assert r"| nrefs:1\|tok:13a |" in report.markdown(grid)


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
