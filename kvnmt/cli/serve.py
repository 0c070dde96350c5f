# SPDX-License-Identifier: Apache-2.0
"""The command that answers over HTTP."""

import os
from dataclasses import dataclass, field, replace
from importlib.util import find_spec
from pathlib import Path
from typing import Annotated, ClassVar

import tyro

from kvnmt.cli.ensembling import Ensembling
from kvnmt.cli.flags import check_coverage
from kvnmt.console import say
from kvnmt.data.outputs import claim
from kvnmt.devices import use_cores
from kvnmt.errors import UserError
from kvnmt.fields import between, check_fields
from kvnmt.inference.config import (
    DRAWING,
    SearchConfig,
    check_asked,
    check_search,
    shape_of,
)
from kvnmt.inference.shortlist import Shortlist
from kvnmt.inference.shortlist_file import read_shortlist
from kvnmt.runs.directory import Run
from kvnmt.serve.guard import VARIABLE, guard_of
from kvnmt.serve.limits import MOST_ROWS, Limits

NEEDED = ("starlette", "uvicorn")


@dataclass(frozen=True, kw_only=True)
class Serve(Ensembling):
    """Serve runs over HTTP: a page to type in, and addresses for scripts.

    GET / is the explorer's page, live; POST /translate and /score take JSON; GET
    /health tells whether it is ready.
    """

    runs: tyro.conf.Positional[tuple[Path, ...]]  # run directories
    search: SearchConfig
    limits: Limits = field(default_factory=Limits)
    shortlist: Path | None = None  # table of kvnmt shortlist, used for all runs
    host: str = "127.0.0.1"  # address to listen at; any other needs a token
    port: Annotated[int, between(0, 65535)] = 8000  # 0: a free one
    token: str | None = None  # what clients must send; better: KVNMT_TOKEN
    origins: tuple[str, ...] = ()  # other origins allowed, as https://example.org
    compile_first: bool = True  # compile at the start what short lines need
    log: Path | None = None  # file that gets a line of JSON for every request
    is_asked_later: ClassVar = True  # by requests

    def __call__(self) -> None:
        """Serves."""
        check_fields(self)
        missing = [name for name in NEEDED if find_spec(name) is None]
        if missing:
            raise UserError(
                f"serving needs {' and '.join(missing)}; install what is missing with: "
                'pip install "kvnmt[serve]"'
            )
        check_search(self.search)
        name = "nbest" if self.search.sample else "beam"
        if (width := shape_of(self.search).width) > self.limits.beam:
            raise UserError(
                f"--search.{name} is {width} but --limits.beam {self.limits.beam}; "
                "raise the second or lower the first."
            )
        token = os.environ.get(VARIABLE) if self.token is None else self.token
        guard = guard_of(self.host, token, self.origins)
        if self.log:
            claim(self.log, [self.shortlist])
        use_cores()
        from kvnmt.serve import server  # here, since the extra may be missing

        with server.listen(self.host, self.port) as listening:
            runs = self.load(self.runs)
            check_coverage(self.search.coverage, runs)
            words = self._shortlists(runs)
            serving = server.make_serving(
                runs, self.search, self.limits, guard, words, self.log
            )
            del runs  # every device has a copy of their arrays
            first = self.search if self.compile_first else None
            server.serve(serving, listening, first, say)

    def check_given(self, start: "Serve") -> None:
        """Refuses what does nothing, and a size of batches that no service makes."""
        # How to draw words is also for requests that draw.
        drawing = {name: getattr(self.search, name) for name in DRAWING}
        check_asked(self.search, start.search, replace(start.search, **drawing))
        size = self.search.batch_size
        if size != start.search.batch_size and size > MOST_ROWS:
            raise UserError(
                f"--search.batch-size is {size} but a service answers {MOST_ROWS} "
                "lines at a time at most, so that nobody waits long; lower it."
            )

    def _shortlists(self, runs: dict[str, Run]) -> dict[str, Shortlist]:
        """The table as each system reads it, if there is one."""
        table = self.shortlist
        if table is None:
            return {}
        return {n: read_shortlist(table, run.vocabularies) for n, run in runs.items()}
