# SPDX-License-Identifier: Apache-2.0
"""The measurement of the data path runs on little text and prints its figures."""

from dataclasses import replace

import pytest

from experiments import large_corpus
from kvnmt.errors import OptionError


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
    capsys.readouterr()
    large_corpus.main(options)  # prepares it again
    assert not [*tmp_path.glob("cache*")]
    printed = capsys.readouterr().out
    for part in ("pairs/s", "real tokens", "of the time", "tokens without", "MiB"):
        assert part in printed
    with pytest.raises(OptionError, match="batches is 0 but must be at least 1"):
        large_corpus.main(replace(options, batches=0))
    source, target = large_corpus.write_text(options)
    before, times = source.read_bytes(), source.stat().st_mtime_ns
    assert before.count(b"\n") == target.read_bytes().count(b"\n") == 2000
    assert large_corpus.write_text(options) == (source, target)
    assert source.stat().st_mtime_ns == times  # it is there already
    other, _ = large_corpus.write_text(replace(options, seed=2))
    assert other.read_bytes() != before
    target.unlink()  # as where somebody stopped it
    assert large_corpus.write_text(options) == (source, target) and target.is_file()
    assert source.read_bytes() == before
