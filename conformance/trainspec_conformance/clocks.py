"""Gives hosts of a trial wrong clocks, by a small library that commands preload.

No namespace of the kernel has a time of day of its own, see `time_namespaces(7)`. libfaketime 0.9.10 cannot be used:
with a monotonic clock that is left alone, each absolute sleep, as Python's, fails with EINVAL.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Iterable
from pathlib import Path

from trainspec_conformance.privileges import NotAllowedError

SOURCE = Path(__file__).with_name("offset_clock.c")
FILE = "TRAINSPEC_CLOCK"
_COMPILE_SECONDS, _PROBE_SECONDS = 120, 30
_NUM_BYTES = 8


class Clocks:
    """A clock for each of some hosts: the time of day can be offset; time that only passes is left alone."""

    def __init__(self, names: Iterable[str], directory: Path) -> None:
        """Let all be right at first.

        Raises:
            NotAllowedError: there is no compiler, or it fails.
        """
        self._library = _compiled(directory / "offset-clock.so")
        self._files = {name: directory / f"clock-{name}" for name in names}
        for file in self._files.values():
            file.write_bytes(bytes(_NUM_BYTES))
        self._probe(next(iter(self._files)))

    def _probe(self, name: str) -> None:
        command = [*self.enter(name), "cat", "/proc/self/maps"]
        done = subprocess.run(command, capture_output=True, timeout=_PROBE_SECONDS, check=False)  # noqa: S603
        if os.fsencode(self._library) not in done.stdout:
            raise NotAllowedError(f"commands do not load the library that offsets a clock: {done.stderr!r}")

    def enter(self, name: str) -> tuple[str, ...]:
        """Words before a command that make it use the clock of a host."""
        return ("env", f"LD_PRELOAD={self._library}", f"{FILE}={self._files[name]}")

    def offset(self, name: str, seconds: float) -> None:
        """Set the clock of a host so far ahead of the true time, or behind it, at once."""
        with self._files[name].open("r+b", buffering=0) as file:  # commands have it in their memory: it stays the same
            file.write(round(seconds * 1e6).to_bytes(_NUM_BYTES, sys.byteorder, signed=True))

    def holds(self, name: str, pid: int) -> bool:
        """Whether a process has the clock of a host."""
        try:
            variables = Path(f"/proc/{pid}/environ").read_bytes().split(b"\0")
            maps = Path(f"/proc/{pid}/maps").read_bytes()
        except OSError:
            return False
        return f"{FILE}={self._files[name]}".encode() in variables and os.fsencode(self._library) in maps


def _compiled(library: Path) -> Path:
    compiler = shutil.which("cc") or shutil.which("gcc") or shutil.which("clang")
    if compiler is None:
        raise NotAllowedError("no C compiler is installed, which the library that offsets a clock is made with")
    command = [compiler, "-O2", "-shared", "-fPIC", "-o", os.fspath(library), os.fspath(SOURCE), "-ldl", "-pthread"]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=_COMPILE_SECONDS, check=False)  # noqa: S603
    except (OSError, subprocess.TimeoutExpired) as error:
        raise NotAllowedError(f"the library that offsets a clock cannot be made: {error}") from error
    if done.returncode:
        raise NotAllowedError(f"the library that offsets a clock cannot be made: {done.stderr.strip()[-500:]}")
    return library.resolve()
