"""Prints for the recorder, with texts of plans and file names made inert for terminals and logs.

`trainspec_validate.system.neutral` explains the escapes. The recorder does not import the validator, so it has its
own few lines; a test holds that both write the same.
"""

from __future__ import annotations

import os
import re
import sys
from contextlib import suppress
from typing import TextIO

PROGRAM = "trainspec-record"
READER_GONE = 141
_COMMANDS = (
    *("add-mask", "add-matcher", "add-path", "debug", "echo", "endgroup", "error", "group", "notice", "remove-matcher"),
    *("save-state", "set-env", "set-output", "stop-commands", "warning"),
)
_COMMAND = re.compile(
    r"^([^\S\n]*):(?=:(?!: ))"
    r"|#(?=#(?:\[|vso\[|teamcity\[))"
    rf"|:(?=:(?:{'|'.join(_COMMANDS)})(?:::| ))",
    re.IGNORECASE | re.MULTILINE,
)


class UndeliveredError(ValueError):
    """Standard output cannot be written."""


def printable(line: str) -> str:
    """One line of text that is not ours, line breaks included."""
    return "".join(char if char.isprintable() else _number(char) for char in line)


def neutral(text: str) -> str:
    """The lines without what a terminal or a build system obeys."""
    text = "".join(char if char.isprintable() or char in "\n\t" else _number(char) for char in text)
    return _COMMAND.sub(lambda found: (found[1] or "") + _number(found[0][-1]), text)


def emit(text: str) -> None:
    """Write lines to standard output; a reader that goes away ends the program, as SIGPIPE would.

    Raises:
        UndeliveredError: it is closed, or full.
    """
    if sys.stdout is None:
        raise UndeliveredError("standard output cannot be written: it is closed")
    try:
        sys.stdout.write(neutral(text))
        sys.stdout.flush()
    except BrokenPipeError:
        _drop(sys.stdout)
        sys.exit(READER_GONE)
    except OSError as error:
        _drop(sys.stdout)
        raise UndeliveredError(
            f"standard output cannot be written: {(error.strerror or str(error)).lower()}"
        ) from error


def tell(line: str) -> None:
    """Write one line to standard error, after the name of the program."""
    tell_lines(f"{PROGRAM}: {printable(line)}")


def tell_lines(text: str) -> None:
    """Write lines to standard error; where no one can read them, the exit code says the reason."""
    if sys.stderr is None:
        return
    try:
        sys.stderr.write(neutral(text) if text.endswith("\n") else f"{neutral(text)}\n")
        sys.stderr.flush()
    except OSError:
        _drop(sys.stderr)


def _drop(stream: TextIO) -> None:
    # The interpreter flushes once more at its end and would complain: https://docs.python.org/3/library/signal.html
    with suppress(OSError, ValueError):
        nowhere = os.open(os.devnull, os.O_WRONLY)
        os.dup2(nowhere, stream.fileno())
        os.close(nowhere)


def _number(char: str) -> str:
    written = char.encode("unicode_escape").decode("ascii")
    return written if written != char else f"\\x{ord(char):02x}"
