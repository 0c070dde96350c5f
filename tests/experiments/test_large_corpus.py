# SPDX-License-Identifier: Apache-2.0
"""The measurement of the data path runs on little text and prints its figures."""

from experiments import large_corpus


def test_every_figure_is_printed(tmp_path, capsys):
    options = large_corpus.LargeCorpus(
        folder=tmp_path,
        pairs=2000,
        workers=0,
        words=500,
        tokens_per_second=10**8,
        batches=5,
    )
    large_corpus.main(options)
    printed = capsys.readouterr().out
    for part in ("pairs/s", "real tokens", "of the time", "tokens without", "MiB"):
        assert part in printed
    before = (tmp_path / "2000.source").read_bytes()
    assert before.count(b"\n") == 2000
    large_corpus.write_text(options)
    assert (tmp_path / "2000.source").read_bytes() == before
