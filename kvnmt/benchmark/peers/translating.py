# SPDX-License-Identifier: Apache-2.0
"""``python -m kvnmt.benchmark.peers.translating RUN BEAM BATCH LONGEST [SHORTLIST]``.

Translates standard input as ``kvnmt translate`` does, but twice, and says on standard
error how long the second time took: without loading and compiling.
"""

import sys
import time
from functools import partial
from pathlib import Path

from kvnmt.devices import use_cores
from kvnmt.errors import run_program
from kvnmt.inference.config import SearchConfig
from kvnmt.inference.shortlist_file import read_shortlist
from kvnmt.inference.translate import translate_lines
from kvnmt.runs.directory import load_translator


def main(
    folder: str, beam: str, batch_size: str, longest: str, shortlist: str | None = None
) -> None:
    """Translates."""
    use_cores()
    run = load_translator(Path(folder))
    table = read_shortlist(Path(shortlist), run.vocabularies) if shortlist else None
    config = SearchConfig(
        beam=int(beam),
        batch_size=int(batch_size),
        batch_tokens=2**24,  # sentences alone count, as in the others
        length_ratio=0.0,  # as in the others, the same bound for all sentences
        length_extra=int(longest) + 1,
    )
    lines = [line.removesuffix("\n") for line in sys.stdin]
    # A batch of one is latency: no line waits for the next one.
    windows = [[line] for line in lines] if config.batch_size == 1 else [lines]
    translate = partial(translate_lines, run, config=config, shortlist=table)
    for window in windows:
        translate(window)
    start = time.perf_counter()
    translations = [translate(window) for window in windows]
    seconds = time.perf_counter() - start
    sys.stdout.write("".join(f"{line}\n" for line in sum(translations, [])))
    print(f"translating took {seconds:.4f} seconds", file=sys.stderr)


if __name__ == "__main__":
    run_program("kvnmt", lambda: main(*sys.argv[1:]))
