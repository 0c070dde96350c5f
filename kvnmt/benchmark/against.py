# SPDX-License-Identifier: Apache-2.0
"""Another program compared with this one: same text, sizes, batch and threads.

Both train with their own command and are measured by what they print themselves. Every
turn trains and translates with both; they alternate in which one begins. So the ratio
of a turn compares two runs, one right after the other.
"""

import json
import os
import sys
from collections import defaultdict
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, field, replace
from itertools import product
from pathlib import Path
from typing import NamedTuple

from kvnmt import __version__
from kvnmt.benchmark.config import AgainstConfig, BenchmarkConfig, check_against
from kvnmt.benchmark.parallel_text import make_text
from kvnmt.benchmark.peers import PEERS, ours
from kvnmt.benchmark.peers.base import Program, Search, Task
from kvnmt.benchmark.processes import Installed, run, version
from kvnmt.benchmark.rounds import Spread, spread
from kvnmt.data.text import read_lines
from kvnmt.machine import cores
from kvnmt.metrics.bleu import corpus_bleu

Advance = Callable[[str], None]
TRAIN, WHOLE = ("train", "target tokens/s"), ("train, whole run", "seconds")


@dataclass(frozen=True)
class Row:
    """One figure of both programs."""

    what: str
    unit: str
    ours: Spread
    theirs: Spread
    ratio: Spread  # turn by turn; above 1: ours is faster
    bleu: tuple[float, float] | None = None  # of the translations, the last turn's


@dataclass(frozen=True)
class Against:
    """What both programs were measured at."""

    version: str
    peer: str
    task: Task
    models: tuple[str, ...]  # of both, where they were there before
    text: str  # what was read, for people
    lines: int  # that were translated
    turns: int
    load: float  # of the machine before: programs that ran or waited for a core
    rows: tuple[Row, ...]


@dataclass
class Figures:
    """One figure of both programs, turn by turn."""

    ours: list[float] = field(default_factory=list)
    theirs: list[float] = field(default_factory=list)
    bleu: dict[str, float] = field(default_factory=dict)


class Turn(NamedTuple):
    """One turn of both programs."""

    programs: Mapping[str, Installed]  # ours and theirs, in the order of this turn
    models: Mapping[str, Path]
    logs: Path  # a folder
    task: Task


def measure(
    config: BenchmarkConfig,
    against: AgainstConfig,
    advance: Advance = lambda what: None,
    programs: tuple[Program, Program] | None = None,
) -> Against:
    """Measures both programs.

    Args:
        config: Sizes; of the systems the first is measured.
        against: Which program, on which text.
        advance: Told of every piece of work before it starts.
        programs: Ours and theirs, if not those of the configs.

    Raises:
        UserError: The program is not installed, or one of both fails.
    """
    check_against(config, against)
    mine, other = programs or (ours.PROGRAM, PEERS[str(against.against)])
    both = {
        "ours": Installed(mine, Path(sys.executable)),
        "theirs": Installed(other, against.peer_python),
    }
    peer = f"{other.name} {version(both['theirs'])}"
    if not against.ours:
        other.check(make_task(config, against, 0))
    pairs = make_text(against, against.work / "text", config.seed)
    before, task = os.getloadavg()[0], make_task(config, against, pairs)
    figures: defaultdict[tuple[str, str], Figures] = defaultdict(Figures)
    for number in range(1, against.turns + 1):
        advance(f"turn {number} of {against.turns}")
        turn = _turn(number, both, against, task)
        if config.train and not against.ours:
            _train(turn, figures)
        if config.decode:
            _translate(turn, config, against.shortlist, figures)
        _keep(figures, against.work / "figures.json")
    return Against(
        version=__version__,
        peer=peer,
        task=task,
        models=tuple(map(str, filter(None, (against.ours, against.theirs)))),
        text=f"'{against.text}'" if against.text else "a made-up language",
        lines=len(read_lines(task.text / f"test.{task.source}")),
        turns=against.turns,
        load=before,
        rows=tuple(row_of(*name, of_both) for name, of_both in figures.items()),
    )


def make_task(config: BenchmarkConfig, against: AgainstConfig, pairs: int) -> Task:
    """What both programs are asked to do with so many pairs of text."""
    sizes = config.model
    return Task(
        text=against.work / "text",
        source=against.languages[0],
        target=against.languages[1],
        pairs=pairs,
        longest=against.longest,
        system=config.systems[0],
        embedding=sizes.embedding,
        encoder=sizes.encoder,
        state=sizes.state,
        embedding_dropout=sizes.dropout.embedding,
        output_dropout=sizes.dropout.output,
        batch_size=config.batch_size,
        epochs=against.epochs,
        threads=min(against.threads or cores(), cores()),
        seed=config.seed,
    )


def row_of(what: str, unit: str, figures: Figures) -> Row:
    """The spread of a figure of both programs, and of its ratio turn by turn."""
    pairs = list(zip(figures.ours, figures.theirs))
    ratios = [b / a if unit == "seconds" else a / b for a, b in pairs]
    bleu = figures.bleu
    return Row(
        what=what,
        unit=unit,
        ours=spread(figures.ours),
        theirs=spread(figures.theirs),
        ratio=spread(ratios),
        bleu=(bleu["ours"], bleu["theirs"]) if bleu else None,
    )


def _turn(
    number: int, both: Mapping[str, Installed], against: AgainstConfig, task: Task
) -> Turn:
    """Makes the folder of a turn; every other turn the other program begins."""
    logs = against.work / f"turn-{number}"
    logs.mkdir(parents=True, exist_ok=True)
    order = dict(list(both.items())[:: 1 if number % 2 else -1])
    models = {side: logs / side for side in both}
    if against.ours and against.theirs:
        models = {"ours": against.ours, "theirs": against.theirs}
    return Turn(order, models, logs, task)


def _train(turn: Turn, figures: defaultdict[tuple[str, str], Figures]) -> None:
    for side, installed in turn.programs.items():
        program = installed.program
        done = run(
            installed,
            program.train(turn.task, turn.models[side]),
            threads=turn.task.threads,
            log=turn.logs / f"{side}-train.log",
        )
        getattr(figures[TRAIN], side).append(program.speed(done.log))
        getattr(figures[WHOLE], side).append(done.seconds)


def _translate(
    turn: Turn,
    config: BenchmarkConfig,
    shortlist: Path | None,
    figures: defaultdict[tuple[str, str], Figures],
) -> None:
    """Translates with both; given a shortlist, once more with ours to compare."""
    longest = turn.task.longest
    for beam, batch in product(config.beams, config.batches):
        name = f"translate, beam {beam}, batch {batch}"
        exact = Search(beam=beam, batch_size=batch, longest=longest)
        both = {side: _translated(turn, side, exact) for side in turn.programs}
        rows = {name: both}
        if shortlist:
            few = replace(exact, shortlist=shortlist)
            rows[f"{name}, shortlist"] = both | {"ours": _translated(turn, "ours", few)}
        for what, of_both in rows.items():
            for side, (speed, bleu) in of_both.items():
                found = figures[what, "sentences/s"]
                getattr(found, side).append(speed)
                found.bleu[side] = bleu


def _translated(turn: Turn, side: str, search: Search) -> tuple[float, float]:
    """Sentences a second, and BLEU."""
    task, installed = turn.task, turn.programs[side]
    name = f"{side}-translate-{search.beam}-{search.batch_size}"
    done = run(
        installed,
        [installed.program.translate(turn.models[side], search)],
        threads=task.threads,
        log=turn.logs / f"{name}{'-shortlist' if search.shortlist else ''}.log",
        lines=task.text / f"test.{task.source}",
    )
    references = read_lines(task.text / f"test.{task.target}")
    speed = len(references) / installed.program.seconds(done.log)
    return speed, corpus_bleu(done.lines, references, tokenize="none").score


def _keep(figures: Mapping[tuple[str, str], Figures], path: Path) -> None:
    """Writes the figures of all turns so far: the next may fail."""
    plain = {", ".join(name): asdict(turns) for name, turns in figures.items()}
    path.write_text(json.dumps(plain, indent=1), encoding="utf-8")
