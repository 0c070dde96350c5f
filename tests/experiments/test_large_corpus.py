# SPDX-License-Identifier: Apache-2.0
"""The measurement of the data path runs on little text and tells its figures."""

from experiments import large_corpus as data


def test_every_figure_is_told(tmp_path, capsys):
    options = data.Data(
        folder=tmp_path,
        pairs=2000,
        workers=0,
        words=500,
        tokens_per_second=10**8,
        batches=5,
    )
    data.main(options)
    said = capsys.readouterr().out
    for part in ("pairs/s", "real tokens", "of the time", "tokens without", "MiB"):
        assert part in said
    before = (tmp_path / "2000.source").read_bytes()
    assert before.count(b"\n") == 2000
    data.write_text(options)
    assert (tmp_path / "2000.source").read_bytes() == before
