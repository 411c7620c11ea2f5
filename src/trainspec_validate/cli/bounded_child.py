"""Runs a program of this package in a child with bounded time and output, for a server that must not stop."""

from __future__ import annotations

import subprocess
import sys
import threading
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Literal

MAX_SECONDS = 300.0
MAX_OUTPUT_BYTES = 4_000_000
MAX_ERROR_BYTES = 100_000
_BLOCK_BYTES = 1 << 16
_PROGRAM = """\
try:
    from trainspec_validate.cli.{program} import main
except ImportError as error:
    raise SystemExit(3) from error
main()
"""
"""A program that cannot start ends with 3, its own failure; Python would end it with 1, which means findings."""


@dataclass(frozen=True, slots=True)
class Ended:
    """Output of a child, and how it ended."""

    code: int
    output: str
    errors: str


class NotEnded(Exception):  # noqa: N818 - said of the child
    """A child that was stopped, and why."""


class _Reader(threading.Thread):
    """Reads a pipe up to a bound; a child that writes more is stopped."""

    def __init__(self, pipe: IO[bytes], most_bytes: int, process: subprocess.Popen[bytes]) -> None:
        super().__init__(daemon=True)
        self._pipe, self._most_bytes, self._process = pipe, most_bytes, process
        self.text = bytearray()
        self.is_cut = False
        self.start()

    def run(self) -> None:
        """Read until the end of the pipe."""
        while block := self._pipe.read(_BLOCK_BYTES):
            if len(self.text) + len(block) > self._most_bytes:
                self.is_cut = True
                self._process.kill()
                break
            self.text += block


def run_child(program: Literal["toolbox", "validate"], arguments: Sequence[str], directory: Path) -> Ended:
    """Run a program of this package with arguments in a directory, without standard input.

    Raises:
        NotEnded: it took too long, or printed too much.
    """
    command = [sys.executable, "-P", "-c", _PROGRAM.format(program=program), *arguments]
    with subprocess.Popen(  # noqa: S603 - no shell, and only programs of this package
        command, cwd=directory, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE
    ) as process:
        if process.stdout is None or process.stderr is None:
            raise NotEnded("the program has no standard output")
        output = _Reader(process.stdout, MAX_OUTPUT_BYTES, process)
        errors = _Reader(process.stderr, MAX_ERROR_BYTES, process)
        try:
            status = process.wait(MAX_SECONDS)
        except subprocess.TimeoutExpired as error:
            raise NotEnded(f"it was stopped after {MAX_SECONDS:g} s; ask for less at once") from error
        finally:
            process.kill()
        output.join()
        errors.join()
    if output.is_cut or errors.is_cut:
        raise NotEnded(f"the answer has more than {MAX_OUTPUT_BYTES:,} bytes; ask for less at once")
    return Ended(status, output.text.decode(errors="replace"), errors.text.decode(errors="replace"))
