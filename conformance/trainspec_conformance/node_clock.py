"""Gives commands of a node a clock of their own, by a library that they preload; it is sent there with the agent.

It needs Linux and Python 3.8.
"""

from __future__ import annotations

import base64
import os
import subprocess
import sys
from pathlib import Path

from trainspec_conformance.privileges import NotAllowedError

FILE = "TRAINSPEC_CLOCK"
"""Variable of a command: the file with the offset of its clock."""
PRELOAD = "LD_PRELOAD"
_LIBRARY, _OFFSET = "offset-clock.so", "clock"
_NUM_BYTES = 8
_PROBE_SECONDS = 30


class Clock:
    """The clock of commands that preload the library: the time of day can be offset; time that only passes is not."""

    def __init__(self, library: Path, file: Path) -> None:
        """Let it be right at first."""
        self._library, self._file = library.resolve(), file
        file.write_bytes(bytes(_NUM_BYTES))

    @property
    def variables(self) -> dict[str, str]:
        """Variables of a command that uses it."""
        return {PRELOAD: os.fspath(self._library), FILE: os.fspath(self._file)}

    def probe(self) -> None:
        """See that commands load the library.

        Raises:
            NotAllowedError: they do not.
        """
        words = ["env", *(f"{name}={value}" for name, value in self.variables.items()), "cat", "/proc/self/maps"]
        try:
            done = subprocess.run(words, capture_output=True, timeout=_PROBE_SECONDS, check=False)  # noqa: S603
        except (OSError, subprocess.TimeoutExpired) as error:
            raise NotAllowedError(f"a command with an offset clock cannot be started: {error}") from error
        if os.fsencode(self._library) not in done.stdout:
            raise NotAllowedError(f"commands do not load the library that offsets a clock: {done.stderr!r}")

    def offset(self, seconds: float) -> None:
        """Set it so far ahead of the true time, or behind it, at once."""
        with self._file.open("r+b", buffering=0) as file:  # commands have it in their memory: it stays the same
            file.write(round(seconds * 1e6).to_bytes(_NUM_BYTES, sys.byteorder, signed=True))

    def holds(self, pid: int) -> bool:
        """Whether a process has this clock."""
        try:
            variables = Path(f"/proc/{pid}/environ").read_bytes().split(b"\0")
            maps = Path(f"/proc/{pid}/maps").read_bytes()
        except OSError:
            return False
        return f"{FILE}={self._file}".encode() in variables and os.fsencode(self._library) in maps


def variables_of(directory: Path) -> dict[str, str]:
    """Variables of a command that uses the clock of a node, below the directory of its agent."""
    return {PRELOAD: os.fspath((directory / _LIBRARY).resolve()), FILE: os.fspath(directory / _OFFSET)}


def receive(directory: Path, library: str) -> Clock:
    """The clock of a node, with a library in base64 that the suite has compiled.

    Raises:
        NotAllowedError: commands of this node do not load it.
    """
    (directory / _LIBRARY).write_bytes(base64.b64decode(library))
    found = Clock(directory / _LIBRARY, directory / _OFFSET)
    found.probe()
    return found
