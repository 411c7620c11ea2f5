"""Starts, finds and ends processes of a stack."""

from __future__ import annotations

import contextlib
import os
import subprocess
import time
import uuid
from collections.abc import Mapping, Sequence
from functools import cache
from pathlib import Path

import psutil

from trainspec_conformance.agent import MARK

KEPT_VARIABLES = frozenset({"PATH", "HOME", "LANG", "LC_ALL", "TMPDIR", "LD_LIBRARY_PATH", "VIRTUAL_ENV", "TZ", "USER"})
"""Variables of the suite that a stack gets; all others stay out, secrets of a CI among them."""
_BOOT = Path("/proc/sys/kernel/random/boot_id")
GIVEN = "TRAINSPEC_STACK_"
"""Before the name of such a variable: its value for the stack, where the suite itself runs with another one."""


def inherited(environment: Mapping[str, str]) -> dict[str, str]:
    """Environment variables that a stack inherits from the suite."""
    values = {name: environment.get(GIVEN + name, environment.get(name)) for name in KEPT_VARIABLES}
    return {name: value for name, value in values.items() if value is not None}


class Session:
    """The processes that one start of the stack has brought about."""

    def __init__(self, command: Sequence[str], *, mark: str, directory: Path, log: Path, variables: Mapping[str, str]):
        self.mark = mark
        self.log = log
        self._log = log.open("ab")
        self.process = subprocess.Popen(  # noqa: S603 - launching what the descriptor names is what the suite is for
            list(command),
            cwd=directory,
            env={**inherited(os.environ), **variables, MARK: mark},
            stdin=subprocess.DEVNULL,
            stdout=self._log,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )

    @property
    def pid(self) -> int:
        """Process that the command became."""
        return self.process.pid

    def status(self) -> int | None:
        """Exit status of the command, or None while it runs."""
        return self.process.poll()

    def close(self) -> None:
        """Close the log."""
        self._log.close()


def marked(mark: str) -> list[psutil.Process]:
    """Every living process of a trial, wherever it went; none that has ended and is only not yet waited for."""
    found = []
    for process in psutil.process_iter():
        with contextlib.suppress(psutil.Error, OSError):
            if process.status() != psutil.STATUS_ZOMBIE and process.environ().get(MARK) == mark:
                found.append(process)
    return found


def end_all(mark: str, sessions: Sequence[Session], *, seconds: float = 10.0) -> list[str]:
    """Kill every process of a trial and wait until they are gone; gives `pid name` of those that would not go."""
    deadline = time.monotonic() + seconds
    while True:
        left = marked(mark)
        for process in left:
            with contextlib.suppress(psutil.Error):
                process.kill()
        for session in sessions:
            session.status()
        if not left or time.monotonic() > deadline:
            return [describe(process) for process in left]
        time.sleep(0.02)


def new_mark() -> str:
    """A mark for a trial; it names this process, by which a later one on this machine knows whether it is over."""
    return f"{os.getpid()}-{uuid.uuid4().hex}-{_start_of_machine()}"


@cache
def _start_of_machine() -> str:
    return _BOOT.read_text(encoding="ascii")[:8]


def end_abandoned() -> int:
    """Kill every process of a trial whose suite is gone: it was killed before it could clear up; gives how many."""
    num_killed = 0
    for process in psutil.process_iter():
        with contextlib.suppress(psutil.Error, OSError):
            parts = process.environ().get(MARK, "").split("-")
            maker, is_of_here = parts[0], parts[0].isdecimal() and parts[-1] == _start_of_machine()
            if is_of_here and is_gone(int(maker)) and _is_numbered_as_here(process.pid):
                process.kill()
                num_killed += 1
    return num_killed


def is_gone(pid: int) -> bool:
    """Whether a process has ended, zombies included."""
    try:
        return bool(psutil.Process(pid).status() in {psutil.STATUS_ZOMBIE, psutil.STATUS_DEAD})
    except psutil.NoSuchProcess:
        return True
    except psutil.Error:
        return False


def _is_numbered_as_here(pid: int) -> bool:
    """Whether numbers of processes mean the same to a process as to this one: those of a container differ."""
    return Path(f"/proc/{pid}/ns/pid").stat().st_ino == Path("/proc/self/ns/pid").stat().st_ino


def describe(process: psutil.Process) -> str:
    """Number and name of a process, also of one that has just ended."""
    try:
        return f"{process.pid} {process.name()}"
    except psutil.Error:
        return f"{process.pid} gone"
