# SPDX-License-Identifier: Apache-2.0
"""What a run writes down of its steps, and at every validation.

``metrics.jsonl`` has a line for each validation, ``steps.jsonl`` for so many steps
each, ``events/`` both for TensorBoard, ``validations/`` the translations, a file for
each step, and ``learning-curve.png`` shows the losses and the BLEU. ``train.log`` has
what people were told, with times.
"""

import errno
import json
import math
import os
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from tensorboardX.event_file_writer import EventsWriter
from tensorboardX.proto.event_pb2 import Event, SessionLog  # pyright: ignore
from tensorboardX.proto.summary_pb2 import Summary  # pyright: ignore

from kvnmt.errors import OptionError, UserError, reason_of
from kvnmt.files import write_whole

NAME = "metrics.jsonl"
STEPS, OF_STEPS = "steps.jsonl", "steps/"  # and how TensorBoard calls its figures
EVENTS = "events"
CURVE = "learning-curve.png"
TRANSLATIONS = "validations"
TOLD = "train.log"
FLUSH = 10.0  # seconds from which on events of steps are put on the disk


class Log:
    """The records of one run directory."""

    def __init__(self, folder: Path, step: int, validated: int):
        """Opens the records to go on; those of what will be done again are dropped.

        Args:
            folder: The run directory.
            step: The last that was made.
            validated: The step of the last validation.

        Raises:
            UserError: They cannot be written, or a line is no record.
        """
        self.folder = folder
        with _explaining(folder):
            places = {NAME: validated, STEPS: step}
            kept = {name: _until(last, folder, name) for name, last in places.items()}
            for name, those in kept.items():  # once all could be read
                _rewrite(folder / name, those)
            for path in (folder / TRANSLATIONS).glob("*.txt"):
                if path.stem.isdecimal() and int(path.stem) > validated:
                    path.unlink()
            (folder / EVENTS).mkdir(exist_ok=True)
            self._events = EventsWriter(str(folder / EVENTS / "events"))
            start = SessionLog(status=SessionLog.START)  # what comes later is void
            self._write(Event(step=validated + 1, session_log=start))
            for record in kept[STEPS]:
                if record["step"] > validated:
                    self._show(record, OF_STEPS)
            self._flush()

    def add(self, record: dict[str, Any], translations: Sequence[str] = ()) -> None:
        """Writes a line of a validation; a figure that is not finite is null there.

        Args:
            record: The step, and what was measured.
            translations: Of the validation text, a line each; none: no file.

        Raises:
            UserError: It cannot be written.
        """
        with _explaining(self.folder):
            if translations:
                (self.folder / TRANSLATIONS).mkdir(exist_ok=True)
                path = self.folder / TRANSLATIONS / f"{record['step']}.txt"
                write_whole(path, "".join(line + "\n" for line in translations))
            plain = _plain(record)
            _append(self.folder / NAME, plain)
            self._show(plain)
            self._flush()

    def add_steps(self, record: dict[str, Any]) -> None:
        """Writes a line of steps, of which the record's was the last.

        TensorBoard may see it some seconds later: training does not wait for the disk.

        Raises:
            OSError: It cannot be written; nothing of it is.
        """
        plain = _plain(record)
        _append(self.folder / STEPS, plain)
        with suppress(OSError):  # of a line that is written
            self._show(plain, OF_STEPS)
            if time.monotonic() - self._flushed >= FLUSH:
                self._flush()

    def close(self) -> None:
        """Ends the events and draws the learning curve, if there is one."""
        from kvnmt.pictures.charts import learning_curve  # slow to import

        # A full disk was told of, and neither is needed.
        with suppress(OSError, UserError):
            self._events.close()
            if records := read(self.folder):
                learning_curve(records, self.folder / CURVE)

    def _show(self, record: dict[str, Any], prefix: str = "") -> None:
        """Writes a record for TensorBoard."""
        figures = [
            Summary.Value(tag=prefix + name, simple_value=math.nan if v is None else v)
            for name, v in record.items()
            if name != "step"
        ]
        self._write(Event(step=record["step"], summary=Summary(value=figures)))

    def _write(self, event: Event) -> None:
        event.wall_time = time.time()
        self._events.write_event(event)

    def _flush(self) -> None:
        self._flushed = time.monotonic()
        self._events.flush()


def read(folder: str | Path, name: str = NAME) -> list[dict[str, Any]]:
    """The records of a run; a last line that was cut by a kill is none.

    Args:
        folder: The run directory.
        name: ``NAME`` for those of validations, ``STEPS`` for those of steps.

    Raises:
        UserError: Another line is no record.
    """
    path = Path(folder, name)
    lines = path.read_bytes().split(b"\n") if path.exists() else []
    records = []
    for number, line in enumerate(lines, 1):
        try:
            record = json.loads(line)
            _ = record["step"] + 0  # a record is of a step
            records.append(record)
        except (ValueError, TypeError, KeyError):
            if number == len(lines):
                break  # cut by a kill, or what is behind the last line feed: nothing
            raise OptionError(
                f"'{path}', line {number} is no record of a step; mend the line, "
                "or delete it, and go on with {0}.",
                "resume",
            ) from None
    return records


def score(metric: str, figures: Mapping[str, float | None]) -> tuple[float, str]:
    """What the best checkpoint has most of, and the figure that it is taken from.

    The loss decides where there is no translation, as of a language model, or where no
    word of any is right yet: the lower one is better then, and any BLEU above 0.

    Args:
        metric: That of the config of training.
        figures: Of a validation; None: not finite.
    """
    name = f"valid_{metric}"
    if metric != "loss" and (found := figures.get(name)):
        return found, name
    loss = figures.get("valid_loss")
    return (-math.inf if loss is None else -loss), "valid_loss"


def log_told(folder: Path, message: str) -> None:
    """Adds what people are told to the log of a run, with the time, if that can be.

    Not where standard error goes to this very file.
    """
    now = time.strftime("%Y-%m-%d %H:%M:%S")
    lines = "".join(f"{now}  {line}\n" for line in message.splitlines())
    with suppress(OSError), (folder / TOLD).open("ab", buffering=0) as file:
        is_here = False
        with suppress(OSError):  # it may be closed
            is_here = os.path.samestat(os.fstat(file.fileno()), os.fstat(2))
        if not is_here:
            file.write(lines.encode(errors="backslashreplace"))


def _until(step: int, folder: Path, name: str) -> list[dict[str, Any]]:
    """The records of no later steps."""
    return [record for record in read(folder, name) if record["step"] <= step]


def _rewrite(path: Path, records: list[dict[str, Any]]) -> None:
    """Leaves these records in a file, if there is one."""
    if path.exists():
        write_whole(path, "".join(json.dumps(one) + "\n" for one in records))


def _plain(record: dict[str, Any]) -> dict[str, Any]:
    return {k: v if math.isfinite(v) else None for k, v in record.items()}


def _append(path: Path, record: dict[str, Any]) -> None:
    """Adds a line; of one that a full disk cuts nothing stays.

    Raises:
        OSError: It cannot be written.
    """
    with path.open("ab", buffering=0) as file:
        size, line = file.tell(), json.dumps(record, allow_nan=False).encode() + b"\n"
        try:
            if file.write(line) < len(line):
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        except OSError:
            file.truncate(size)
            raise


@contextmanager
def _explaining(folder: Path) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise OptionError(
            f"the records of '{folder}' cannot be written: {reason_of(error)}; mend "
            "the cause and go on with {0}.",
            "resume",
        ) from None
