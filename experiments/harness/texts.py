# SPDX-License-Identifier: Apache-2.0
"""Text that the rows of a table read, written once by one of its processes."""

from collections.abc import Callable
from dataclasses import dataclass
from itertools import chain
from pathlib import Path

from experiments.harness.results import RESULT
from kvnmt.errors import UserError, reason_of
from kvnmt.files import locked, make_folder, write_whole


@dataclass(frozen=True)
class Text:
    """Files that rows read, written once by one of the processes."""

    key: str | None  # what they are made of; None: files that are away
    write: Callable[[], object]
    name: str = "text"  # tells several of a table apart

    def mark(self, workdir: Path) -> Path:
        """The file that says what is there."""
        return workdir / f"{self.name}.key"


def prepare(workdir: Path, text: Text) -> None:
    """Writes the files that rows read, unless they are there; others wait for it.

    Raises:
        UserError: They cannot be written, or runs were made with others.
    """
    make_folder(workdir)
    try:
        with locked(workdir / f"{text.name}.lock"):
            _write_text(workdir, text)
    except OSError as error:
        path, why = error.filename or workdir, reason_of(error)
        raise UserError(f"'{path}' cannot be written: {why}.") from None


def _write_text(workdir: Path, text: Text) -> None:
    if check_key(workdir, text):
        return
    mark = text.mark(workdir)
    mark.unlink(missing_ok=True)  # until it is written, no text is there
    text.write()
    assert text.key is not None, "what is away cannot be read"
    write_whole(mark, text.key)


def check_key(workdir: Path, text: Text) -> bool:
    """Whether the text is there; refuses a workdir with runs on another.

    Where what it is made of is away, whatever is there counts.
    """
    try:
        former = text.mark(workdir).read_bytes().decode(errors="replace")
    except FileNotFoundError:
        former = None
    except OSError as error:
        raise UserError(f"'{workdir}' cannot be read: {reason_of(error)}.") from None
    if text.key is None:
        return former is not None
    is_other = former not in (None, text.key)
    if is_other and any(chain(workdir.glob(f"*/{RESULT}"), workdir.glob("claims/*"))):
        raise UserError(
            f"'{workdir}' has runs on other text than these flags make, or its folder "
            "'claims' tells of some; choose another --workdir."
        )
    return former == text.key
