"""The only place that gives hosts of a trial clocks that are wrong: by the library libfaketime, where it is installed."""

from __future__ import annotations

import os
from collections.abc import Iterable
from pathlib import Path

from trainspec_conformance.privileges import NotAllowedError

_PLACES = ("/usr/lib", "/usr/lib64", "/usr/local/lib", "/usr/lib/*-linux-*")
_NAME = "faketime/libfaketimeMT.so.1"
FILE = "FAKETIME_TIMESTAMP_FILE"


def library() -> Path:
    """The library that answers questions for the time of day in place of the system's.

    Raises:
        NotAllowedError: it is not installed.
    """
    for place in _PLACES:
        for found in sorted(Path("/").glob(f"{place[1:]}/{_NAME}")):
            return found
    raise NotAllowedError("libfaketime, which offsets a clock, is not installed (Debian's package is `faketime`)")


class Clocks:
    """A clock for each of some hosts: the time of day can be offset; time that only passes is left alone."""

    def __init__(self, names: Iterable[str], directory: Path) -> None:
        """Let all be right at first.

        Raises:
            NotAllowedError: the library is not installed.
        """
        self._library = library()
        self._files = {name: directory / f"clock-{name}" for name in names}
        for name in self._files:
            self.offset(name, 0.0)

    def enter(self, name: str) -> tuple[str, ...]:
        """Words before a command that make it use the clock of a host."""
        variables = {
            "LD_PRELOAD": os.fspath(self._library),
            FILE: os.fspath(self._files[name]),
            "FAKETIME_NO_CACHE": "1",
            "FAKETIME_DONT_FAKE_MONOTONIC": "1",
            "NO_FAKE_STAT": "1",
        }
        return ("env", *(f"{key}={value}" for key, value in variables.items()))

    def offset(self, name: str, seconds: float) -> None:
        """Set the clock of a host so far ahead of the true time, or behind it, at once."""
        new = self._files[name].with_suffix(".new")
        new.write_text(f"{seconds:+.3f}\n", encoding="ascii")
        new.replace(self._files[name])

    def holds(self, name: str, pid: int) -> bool:
        """Whether a process was started with the clock of a host."""
        try:
            variables = Path(f"/proc/{pid}/environ").read_bytes().split(b"\0")
        except OSError:
            return False
        return f"{FILE}={self._files[name]}".encode() in variables
