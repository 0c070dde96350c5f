# SPDX-License-Identifier: Apache-2.0
"""The ``kvnmt`` command: train, translate, evaluate, score, align and more."""

import dataclasses
import json
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Union

import tyro
from rich.console import Console
from rich.progress import Progress
from rich.table import Table

from kvnmt import attention, decoder, experiment, target_context
from kvnmt.cli_pairs import Align, Score
from kvnmt.cli_tables import FLAT, Benchmark, Systems, print_table
from kvnmt.data.text import decode_lines, read_parallel
from kvnmt.ensemble import load_ensemble
from kvnmt.errors import UserError, check_ranges, run_program, unknown_name
from kvnmt.evaluation.bleu import check_tokenizer, corpus_bleu, corpus_chrf
from kvnmt.experiment import Experiment, Run
from kvnmt.output import describe, read_dictionary, replace_unknown
from kvnmt.systems import system
from kvnmt.translation import RANGES as SEARCH_RANGES
from kvnmt.translation import SearchConfig, translate, translate_lines

AXES = {
    "attention": attention.CATALOGUE,
    "decoder": decoder.CATALOGUE,
    "target_context": target_context.CATALOGUE,
}
BOOLEAN = ("--resume", "--json", "--lowercase", "--replace-unknown")
SEARCH = {f"search.{name}": bounds for name, bounds in SEARCH_RANGES.items()}


@dataclass(frozen=True)
class Train:
    """Train a system on parallel text.

    Every flag has the default of the system chosen; with --resume, of the run.
    """

    run: tyro.conf.Positional[Path]  # run directory to write
    experiment: Annotated[Experiment, FLAT]
    system: str = "rnnsearch-star"  # one of the named systems
    attention: str | None = None  # another attention mechanism, by name
    decoder: str | None = None  # another decoder
    target_context: str | None = None  # another target context
    resume: bool = False  # go on from the last checkpoint

    def __call__(self) -> None:
        """Trains."""
        result = experiment.run(self.experiment, self.run, resume=self.resume)
        _error_console().print(
            f"best checkpoint: step {result.best_step}, "
            f"BLEU {result.best.get('valid_bleu', 0):.2f} on the validation text; "
            f"{result.tokens_per_second:,.0f} target tokens/s, "
            f"{result.minutes:.1f} minutes"
            f"{'; stopped early' if result.stopped_early else ''}",
            highlight=False,
        )
        _error_console().print(
            f"translate with: kvnmt translate {self.run} < source > target",
            highlight=False,
            soft_wrap=True,
        )


@dataclass(frozen=True)
class Translate:
    """Translate standard input to standard output, one line out per line in."""

    run: tyro.conf.Positional[Path]  # run directory of a trained model
    search: SearchConfig
    ensemble: tuple[Path, ...] = ()  # further runs that translate with it as one
    json: bool = False  # JSON lines: scores, tokens, alignment, n-best
    replace_unknown: bool = False  # by the source word attended to, or its translation
    dictionary: Path | None = None  # for that: lines of word, tab, translation

    def __call__(self) -> None:
        """Translates."""
        check_ranges(self, SEARCH)
        if self.json and (self.replace_unknown or self.dictionary):
            raise UserError(
                "--json tells what the model wrote; leave out either it or "
                "--replace-unknown and --dictionary."
            )
        run = load_ensemble([self.run, *self.ensemble])
        known = read_dictionary(self.dictionary) if self.dictionary else {}
        lines = decode_lines(sys.stdin.buffer.read(), "standard input")
        for line in self._lines(run, lines, known):
            sys.stdout.buffer.write(line.encode() + b"\n")
        sys.stdout.buffer.flush()

    def _lines(self, run: Run, lines: list[str], known: dict[str, str]) -> list[str]:
        if self.json:
            with _progress(run, len(lines)) as advance:
                found = describe(run, lines, self.search, advance)
            return [json.dumps(one, ensure_ascii=False) for one in found]
        if not (self.replace_unknown or known):
            return _translate(run, lines, self.search)
        ids = [run.vocabularies.source.encode(line) for line in lines]
        with _progress(run, len(lines)) as advance:
            found = translate(run.model, run.params, ids, self.search, advance)
        return replace_unknown(run, lines, found, known)


@dataclass(frozen=True)
class Evaluate:
    """Translate a test set and score it with sacreBLEU."""

    run: tyro.conf.Positional[Path]  # run directory of a trained model
    source: Path  # source text
    reference: Path  # its translation by people
    search: SearchConfig
    ensemble: tuple[Path, ...] = ()  # further runs that translate with it as one
    tokenize: str | None = None  # sacreBLEU's tokenizer; default: that of the training
    lowercase: bool = False  # ignore case
    output: Path | None = None  # also write the translations there
    json: bool = False  # print a JSON object instead of a table

    def __call__(self) -> None:
        """Evaluates."""
        check_ranges(self, SEARCH)
        if self.tokenize:
            check_tokenizer(self.tokenize)
        run = load_ensemble([self.run, *self.ensemble])
        text = read_parallel(self.source, self.reference, empty="keep")
        if self.output:
            _write(self.output, [])  # fails now rather than after the work
        found = _translate(run, text.source, self.search)
        if self.output:
            _write(self.output, found)
        tokenize = self.tokenize or run.experiment.training.bleu_tokenize
        bleu = corpus_bleu(
            found, text.target, tokenize=tokenize, lowercase=self.lowercase
        )
        chrf = corpus_chrf(found, text.target, lowercase=self.lowercase)
        rows = {"BLEU": bleu, "chrF2": chrf}
        if self.json:
            plain = {name: dataclasses.asdict(score) for name, score in rows.items()}
            print(json.dumps(plain))
            return
        table = Table("metric", "score", "length ratio", "signature", box=None)
        for name, score in rows.items():
            figures = f"{score.score:.2f}", f"{score.length_ratio:.3f}"
            table.add_row(name, *figures, score.signature)
        print_table(table)


def main(
    arguments: Sequence[str] | None = None,
    *,
    command: str | None = None,
    base: Experiment = Experiment(),
) -> None:
    """Runs the command line; a user's mistake is one sentence and status 2.

    Args:
        arguments: What was typed; by default that of the process.
        command: Put before the arguments, for a program that is one command.
        base: Sizes and settings that the flags of training start from.
    """
    given = [command] if command else []
    given += sys.argv[1:] if arguments is None else arguments
    run_program("kvnmt", lambda: _parse(given, base)())


def _parse(arguments: list[str], base: Experiment) -> Any:
    commands = (
        *("train", "translate", "evaluate", "score", "align", "benchmark", "systems"),
    )
    if arguments and not arguments[0].startswith("-") and arguments[0] not in commands:
        raise unknown_name("command", arguments[0], commands)
    start = _defaults(arguments, base)
    search = start.search
    missing: Any = tyro.MISSING
    subcommand = tyro.conf.subcommand
    kinds = (
        Annotated[Train, subcommand("train", default=Train(missing, start))],
        Annotated[
            Translate, subcommand("translate", default=Translate(missing, search))
        ],
        Annotated[
            Evaluate,
            subcommand("evaluate", default=Evaluate(missing, missing, missing, search)),
        ],
        Annotated[Score, subcommand("score")],
        Annotated[Align, subcommand("align")],
        Annotated[Benchmark, subcommand("benchmark", default=Benchmark())],
        Annotated[Systems, subcommand("systems", default=Systems())],
    )
    union: Any = Union[kinds]  # noqa: UP007
    return tyro.cli(union, args=arguments, prog="kvnmt", description=__doc__)


def _defaults(arguments: list[str], base: Experiment) -> Experiment:
    """The config that the flags start from: the run's own, or that of a system."""
    command = arguments[0] if arguments else ""
    resumes = command == "train" and "--resume" in arguments
    if resumes or command in ("translate", "evaluate"):
        if run := _peek_run(arguments):
            base = experiment.load_experiment(Path(run))
            if not any(_peek(arguments, name) for name in ("system", *AXES)):
                return base
    chosen = system(_peek(arguments, "system") or "rnnsearch-star")
    model = chosen.model(base.model)
    for axis, catalogue in AXES.items():
        if name := _peek(arguments, axis):
            model = dataclasses.replace(model, **{axis: catalogue[name].Options()})
    objective = chosen.objective(base.objective)
    return dataclasses.replace(base, model=model, objective=objective)


def _peek_run(arguments: list[str]) -> str | None:
    """The run directory: what looks like one and is not the value of a flag."""
    for before, argument in zip(arguments, arguments[1:]):
        is_value = before.startswith("--") and "=" not in before
        if is_value and before not in BOOLEAN:
            continue
        if (Path(argument) / "config.json").is_file():
            return argument
    return None


def _peek(arguments: list[str], flag: str) -> str | None:
    """The value of a flag, before the flags that depend on it can be known."""
    names = f"--{flag}", f"--{flag.replace('_', '-')}"
    for argument, following in zip(arguments, [*arguments[1:], ""]):
        if argument in names:
            return following
        if argument.startswith(tuple(f"{name}=" for name in names)):
            return argument.split("=", 1)[1]
    return None


def _translate(run: Run, lines: list[str], search: SearchConfig) -> list[str]:
    with _progress(run, len(lines)) as advance:
        return translate_lines(
            run.vocabularies, run.model, run.params, lines, search, advance
        )


@contextmanager
def _progress(run: Run, total: int) -> Iterator[Callable[[int], None]]:
    """A bar over sentences; refuses a run that does not translate."""
    if not run.model.config.reads_source:
        raise UserError("the run holds a language model, which translates nothing.")
    console = _error_console()
    with Progress(console=console, transient=True, disable=not _is_terminal()) as bar:
        task = bar.add_task("translating", total=total)
        yield lambda count: bar.advance(task, count)


def _write(path: Path, lines: Sequence[str]) -> None:
    try:
        path.write_bytes("".join(f"{line}\n" for line in lines).encode())
    except OSError as error:
        raise UserError(f"'{path}' cannot be written: {error.strerror}.") from None


def _is_terminal() -> bool:
    return sys.stderr.isatty()


def _error_console() -> Console:
    return Console(stderr=True)
