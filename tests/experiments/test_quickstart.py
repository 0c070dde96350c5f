# SPDX-License-Identifier: Apache-2.0
"""The quickstart, on very little text and for one epoch each."""

import json

from experiments import quickstart
from tests.experiments.fake import never, small

WIDTH = 80


def test_the_quickstart_trains_reports_draws_and_says_what_is_next(tmp_path, capsys):
    options = quickstart.Quickstart(
        workdir=tmp_path,
        epochs=1,
        warm_epochs=1,
        pairs=40,
        held_out=4,
        corpus_seed=11,  # all that is held out fits one padded shape
    )
    base = small(quickstart.BASE)
    quickstart.main(options, base=base)
    lines = capsys.readouterr().out.splitlines()
    for name in quickstart.SYSTEMS:
        metrics = (tmp_path / name / "metrics.jsonl").read_text().splitlines()
        assert len(metrics) == 1
        assert json.loads(metrics[0])["valid_loss"] > 0
    assert (tmp_path / "attention.png").read_bytes().startswith(b"\x89PNG")
    (headings,) = [line for line in lines if line.split()[:1] == ["system"]]
    assert headings.split() == [
        "system",
        *("parameters", "BLEU", "AER", "dropped", "repeated", "tokens/s"),
    ]
    place = lines.index(headings)
    rows, notes = lines[place + 1 : place + 3], lines[place + 3 : place + 5]
    assert [row.split()[0] for row in rows] == list(quickstart.SYSTEMS)
    assert notes[1].startswith("BLEU: nrefs:1|")
    assert all(len(line.rstrip()) <= WIDTH for line in [headings, *rows, *notes])
    extended = tmp_path / quickstart.EXTENDED
    assert any(f"kvnmt translate {extended}" in line for line in lines)
    assert any("kvnmt explore" in line for line in lines)
    quickstart.main(options, never, base)
    assert capsys.readouterr().out.splitlines() == lines[-len(lines) + place - 1 :]
