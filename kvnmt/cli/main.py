# SPDX-License-Identifier: Apache-2.0
"""The ``kvnmt`` command: a table of its commands, of which only the chosen one is read.

Nothing heavy is imported here, so that help comes at once.
"""

import gc
import importlib
import os
import sys
import textwrap
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

from kvnmt import __version__
from kvnmt.cli.flag_files import common_flags, expanded
from kvnmt.cli.own_code import run_first
from kvnmt.errors import UserError, run_program, short_of_memory, unknown_name

if TYPE_CHECKING:
    from kvnmt.runs.config import Experiment

WIDTH = 80  # of the list of commands
TOO_MUCH = (
    "the device ran short of memory; take smaller batches, a smaller beam, shorter "
    "lines or a smaller model."
)


class Command(NamedTuple):
    """One command."""

    place: str  # module:class
    summary: str  # the first line of the class's docstring
    # Its field of run directories, where flags start from their config; "": from a
    # recipe alone.
    runs: str | None = None
    compiles: bool = True  # whether its programs are kept for the next time
    trains: bool = False  # whether it goes over parameters again and again


COMMANDS = {
    "train": Command(
        "kvnmt.cli.train:Train",
        "Train a system on parallel text.",
        runs="run",
        trains=True,
    ),
    "translate": Command(
        "kvnmt.cli.translate:Translate",
        "Translate standard input to standard output, one line out per line in.",
        runs="run",
    ),
    "evaluate": Command(
        "kvnmt.cli.evaluate:Evaluate",
        "Measure systems on a test set: scores, significance, alignment, adequacy.",
        runs="systems",
    ),
    "explore": Command(
        "kvnmt.cli.explore:Explore",
        "Write a page to look at systems with: alignments, memories, differences.",
        runs="runs",
    ),
    "serve": Command(
        "kvnmt.cli.serve:Serve",
        "Serve runs over HTTP: a page to type in, and addresses for scripts.",
        runs="runs",
    ),
    "score": Command(
        "kvnmt.cli.score:Score",
        "Print the log-probability of given translations, one number per pair.",
    ),
    "align": Command(
        "kvnmt.cli.pairs:Align",
        "Print word alignments of given pairs, one line of ``source-target`` links "
        "each.",
    ),
    "shortlist": Command(
        "kvnmt.cli.shortlist:Shortlist",
        "Make a table of likely target tokens for every source token, to translate "
        "with.",
    ),
    "average": Command(
        "kvnmt.cli.train:Average",
        "Average checkpoints of one or several runs into a run directory of its own.",
    ),
    "runs": Command(
        "kvnmt.cli.runs:Runs",
        "List run directories: how far each is, its best score, whether it trains.",
        compiles=False,
    ),
    "benchmark": Command(
        "kvnmt.cli.benchmark:Benchmark",
        "Measure the speed of systems beside each other on this device.",
        compiles=False,  # it tells how long compiling takes
        trains=True,
    ),
    "compile": Command(
        "kvnmt.cli.compile:Compile",
        "Compile for devices that need not be there: memory, kernels, collectives.",
        runs="",
        compiles=False,
    ),
    "systems": Command(
        "kvnmt.cli.systems:Systems",
        "List the named systems and the mechanisms that they are made of.",
        compiles=False,
    ),
    "prepare": Command(
        "kvnmt.cli.text:Prepare",
        "Prepare training text once, for every run with the same flags.",
        runs="",
        compiles=False,
    ),
    "prepare-tfds": Command(
        "kvnmt.cli.text:PrepareTfds",
        "Prepare a TFDS dataset from parallel text, and print how to train from it.",
        compiles=False,
    ),
    "validate": Command(
        "kvnmt.cli.text:Validate",
        "Look parallel text over before training; status 1 if anything is serious.",
        compiles=False,
    ),
}

HEAD = """\
usage: kvnmt COMMAND ...

Train translation models with memory-augmented attention, and use them.

commands:
"""
FOOT = """
kvnmt COMMAND --help shows the flags of a command. Every command takes
  --program-cache FOLDER|none  where compiled programs are kept for the next run
                               (by default below ~/.cache)
  --import FILE.py             your own code, or a package's folder; it is run
                               first, and may list mechanisms
  @FILE                        the flags in a file; # is a comment
and kvnmt itself --help and --version.
"""


def main(
    arguments: Sequence[str] | None = None,
    *,
    command: str | None = None,
    base: "Experiment | None" = None,
) -> None:
    """Runs the command line, as `run_program` does.

    Args:
        arguments: What was typed; by default that of the process.
        command: Put before the arguments, for a program that is one command.
        base: Sizes and settings that the flags of training start from; None: those
            of the recipe.
    """
    # Tracing a program makes many small objects that live on: looking for dead ones
    # among them so often takes a twentieth of a start.
    gc.set_threshold(100_000, 20, 100)
    words = [command] if command else []
    words += sys.argv[1:] if arguments is None else arguments
    if arguments is None and any(COMMANDS[w].trains for w in words if w in COMMANDS):
        from kvnmt.cli.large_pages import use_large_pages

        use_large_pages()
    if sys.stdin is None:  # closed: there is nothing to read
        sys.stdin = open(os.devnull, encoding="utf-8")
    run_program("kvnmt", lambda: _run(words, base))


def listing() -> str:
    """The commands with their summaries, as people read them."""
    indent = max(map(len, COMMANDS)) + 4
    rows = [
        textwrap.fill(
            command.summary.replace("``", ""),
            WIDTH,
            initial_indent=f"  {name}".ljust(indent),
            subsequent_indent=" " * indent,
        )
        for name, command in COMMANDS.items()
    ]
    return HEAD + "\n".join(rows) + "\n" + FOOT


def load(name: str) -> Any:
    """The class of a command.

    Raises:
        UserError: There is no command of that name; the nearest is suggested.
    """
    if name not in COMMANDS:
        raise unknown_name("command", name, COMMANDS)
    module, _, kind = COMMANDS[name].place.partition(":")
    return getattr(importlib.import_module(module), kind)


def _run(words: Sequence[str], base: "Experiment | None") -> None:
    everything, filed = expanded(words)
    said = words, filed
    common, words = common_flags(everything)
    if not words:
        print(listing(), end="", file=sys.stderr)
        raise SystemExit(2)
    name, *arguments = words
    if name in ("-h", "--help"):
        print(listing(), end="")
    elif name == "--version":
        print(f"kvnmt {__version__}")
    else:
        run_first(common.own_code)
        work = _parse(name, arguments, said, base)
        if COMMANDS[name].compiles:
            from kvnmt.cli.program_cache import keep_programs  # imports JAX

            keep_programs(common.program_cache)
        try:
            work()
        except (RuntimeError, AssertionError) as error:
            _check_devices(error)
            if short_of_memory(error):
                raise UserError(TOO_MUCH) from None
            raise


def _check_devices(error: Exception) -> None:
    """Finds out whether work failed since there is no device to work on."""
    if "jax" in sys.modules:
        from kvnmt.devices import check_any

        check_any(error)


def _parse(
    name: str,
    arguments: list[str],
    said: Sequence[Sequence[str]],
    base: "Experiment | None",
) -> Any:
    """The command with its flags; called, it does its work.

    Args:
        name: Of the command.
        arguments: What stands behind it, the words of files among them.
        said: What was typed, and the words of files.
        base: What `Command.runs` starts from, if not from a recipe.
    """
    from kvnmt.cli.flags import check_lists

    kind = load(name)
    for words in said:
        check_lists(kind, words)
    runs = COMMANDS[name].runs
    if runs is not None:
        from kvnmt.cli.defaults import parse  # imports models

        return parse(kind, arguments, prog=f"kvnmt {name}", runs=runs, base=base)
    import tyro

    return tyro.cli(kind, args=arguments, prog=f"kvnmt {name}")
