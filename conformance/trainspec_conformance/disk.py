"""Gives a trial a small disk of its own, which can be filled and can refuse writes."""

from __future__ import annotations

import contextlib
import os
import subprocess
import time
from collections.abc import Callable
from pathlib import Path

from trainspec_conformance.privileges import NotAllowedError
from trainspec_conformance.processes import is_gone

_PATIENCE_SECONDS = 10.0
_PAUSE_SECONDS = 0.02
_NAME = "trainspec-"
"""Of the device that a mount names; the number of the process follows that made it."""
_MOUNTS = Path("/proc/self/mounts")


class CannotMountError(NotAllowedError):
    """This machine does not let the suite mount a file system."""


class SmallDisk:
    """A file system in memory below the directory of a trial."""

    def __init__(self, directory: Path, size_bytes: int) -> None:
        """Mount it.

        Raises:
            CannotMountError: the privilege or the program is missing.
        """
        self.directory, self._size_bytes = directory, size_bytes
        directory.mkdir(parents=True, exist_ok=True)
        self._mount("-t", "tmpfs", "-o", f"size={size_bytes},mode=0755", f"{_NAME}{os.getpid()}", os.fspath(directory))
        self._whole_bytes = self._total_bytes()

    @staticmethod
    def _mount(*arguments: str, program: str = "mount") -> None:
        try:
            done = subprocess.run([program, *arguments], capture_output=True, text=True, timeout=20, check=False)  # noqa: S603
        except (OSError, subprocess.TimeoutExpired) as error:
            raise CannotMountError(f"{program} could not be run: {error}") from error
        if done.returncode:
            raise CannotMountError(done.stderr.strip() or f"{program} ended with {done.returncode}")

    def fill_disk(self) -> None:
        """Leave no byte free, at once: a stack that still saves while a large file is written would look untouched.

        Raises:
            CannotMountError: what it holds grows faster than its size can be set to that.
        """
        _as_soon_as_allowed(lambda: self._resize(self._held_bytes()))
        self._require("fill-disk", self._total_bytes() < self._whole_bytes)

    def free_disk(self) -> None:
        """Give the room back."""
        self._resize(self._size_bytes)
        self._require("free-disk", self._total_bytes() == self._whole_bytes)

    def _total_bytes(self) -> int:
        now = os.statvfs(self.directory)
        return now.f_blocks * now.f_frsize

    def _is_read_only(self) -> bool:
        return bool(os.statvfs(self.directory).f_flag & os.ST_RDONLY)

    def _require(self, kind: str, is_seen: bool) -> None:
        if not is_seen:
            raise RuntimeError(f"{self.directory.name}: {kind} has not arrived")

    def _held_bytes(self) -> int:
        now = os.statvfs(self.directory)
        return max(now.f_blocks - now.f_bfree, 1) * now.f_frsize

    def _resize(self, size_bytes: int) -> None:
        self._mount("-o", f"remount,size={size_bytes}", os.fspath(self.directory))

    def fail_writes(self) -> None:
        """Refuse to open files for writing from now on.

        Raises:
            CannotMountError: a file stays open for writing, and while one is the kernel refuses too.
        """
        _as_soon_as_allowed(lambda: self._mount("-o", "remount,ro", os.fspath(self.directory)))
        self._require("fail-writes", self._is_read_only())

    def mend_writes(self) -> None:
        """Let files be written again."""
        self._mount("-o", "remount,rw", os.fspath(self.directory))
        self._require("mend-writes", not self._is_read_only())

    def close(self) -> None:
        """Unmount as soon as killed processes have let go of it; what it held is gone, unless it was copied before.

        Raises:
            CannotMountError: the disk stays in use.
        """
        try:
            _as_soon_as_allowed(lambda: self._mount(os.fspath(self.directory), program="umount"))
        except CannotMountError:
            self._mount("-l", os.fspath(self.directory), program="umount")
            raise


def _as_soon_as_allowed(attempt: Callable[[], None]) -> None:
    """Do what the kernel refuses while a file is in use."""
    deadline = time.monotonic() + _PATIENCE_SECONDS
    while True:
        try:
            return attempt()
        except CannotMountError:
            if time.monotonic() > deadline:
                raise
        time.sleep(_PAUSE_SECONDS)


def unmount_abandoned(mounts: Path = _MOUNTS) -> list[Path]:
    """Unmount disks of processes that were killed before they could; gives where they lay."""
    found = []
    with contextlib.suppress(OSError):
        for device, directory, *_ in (line.split(" ") for line in mounts.read_text(encoding="utf-8").splitlines()):
            maker = device.removeprefix(_NAME)
            if maker != device and maker.isdecimal() and is_gone(int(maker)):
                path = directory.encode("ascii", "backslashreplace").decode("unicode_escape")  # a space is `\040`
                found.append(Path(path))
                subprocess.run(["umount", "-l", path], capture_output=True, timeout=20, check=False)  # noqa: S603, S607
    return found
