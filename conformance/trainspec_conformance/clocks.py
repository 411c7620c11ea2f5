"""Gives hosts of a trial wrong clocks, by a small library that commands preload.

No namespace of the kernel has a time of day of its own, see `time_namespaces(7)`. libfaketime 0.9.10 cannot be used:
with a monotonic clock that is left alone, each absolute sleep, as Python's, fails with EINVAL.
"""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Iterable
from pathlib import Path

from trainspec_conformance.node_clock import Clock
from trainspec_conformance.privileges import NotAllowedError

SOURCE = Path(__file__).with_name("offset_clock.c")
_COMPILE_SECONDS = 120


class Clocks:
    """A clock for each of some hosts: the time of day can be offset; time that only passes is left alone."""

    def __init__(self, names: Iterable[str], directory: Path) -> None:
        """Let all be right at first.

        Raises:
            NotAllowedError: there is no compiler, or it fails.
        """
        self.library = _compiled(directory / "offset-clock.so")
        self._clocks = {name: Clock(self.library, directory / f"clock-{name}") for name in names}
        next(iter(self._clocks.values())).probe()

    def enter(self, name: str) -> tuple[str, ...]:
        """Words before a command that make it use the clock of a host."""
        return ("env", *(f"{key}={value}" for key, value in self._clocks[name].variables.items()))

    def offset(self, name: str, seconds: float) -> None:
        """Set the clock of a host so far ahead of the true time, or behind it, at once."""
        self._clocks[name].offset(seconds)

    def holds(self, name: str, pid: int) -> bool:
        """Whether a process has the clock of a host."""
        return self._clocks[name].holds(pid)


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
