"""Hashes files in a process of its own that works where no other wants the core, for seals behind training.

A thread of low priority would hold up training: it takes the lock of the interpreter after each block, and keeps the
lock while another program has its core. The process imports nothing of this package, and ends when its parent does.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path

BLOCK_BYTES = 4 << 20
NOT_FOLLOWED = os.O_RDONLY | getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_NONBLOCK", 0)
_NICENESS = 19
Hash = Callable[[Sequence[Path]], tuple[list[str], float]]
"""Gives the digests of files, and the seconds that a processor of another process worked."""


def digest(path: str | os.PathLike[str], buffer: memoryview, between: Callable[[], object] | None = None) -> str:
    """SHA-256 of a file in hexadecimal digits; no link is followed, and `between` is called after each block.

    Raises:
        OSError: it cannot be read.
    """
    found = hashlib.sha256()
    with os.fdopen(os.open(path, NOT_FOLLOWED), "rb", buffering=0) as file:
        while count := file.readinto(buffer):
            found.update(buffer[:count])
            if between is not None:
                between()
    return found.hexdigest()


class Hasher:
    """One process at a time, which hashes files one after the other."""

    def __init__(self) -> None:
        self._child: subprocess.Popen[bytes] | None = None

    def digests(self, paths: Sequence[Path], is_urgent: Callable[[], bool] = bool) -> tuple[list[str], float]:
        """SHA-256 of the first files, up to one that cannot be read, and the seconds that a processor worked.

        There are none where no process can be started, and where they are urgent once it has started. The process gets
        the number of bytes and not their end, which a fork of this program could hold open.
        """
        found: list[str] = []
        names = b"\0".join(os.fsencode(path.absolute()) for path in paths)
        with contextlib.suppress(OSError, ValueError), self._started() as child:
            self._child = child
            if is_urgent():  # a stop before now had no process to end
                child.kill()
            if child.stdin is not None and child.stdout is not None:
                child.stdin.write(b"%d\n%s" % (len(names), names))
                child.stdin.flush()
                while len(found) < len(paths) and (line := child.stdout.readline()):
                    found.append(line.decode("ascii").strip())
                return found, float(child.stdout.readline() or 0)
        return found, 0.0

    def stop(self) -> None:
        """End the process, if there is one."""
        if self._child is not None:
            with contextlib.suppress(OSError):
                self._child.kill()

    @staticmethod
    def _started() -> subprocess.Popen[bytes]:
        if not sys.executable:
            raise OSError("the interpreter is a part of another program")
        command = [sys.executable, "-I", "-S", __file__]
        pipe, nothing = subprocess.PIPE, subprocess.DEVNULL
        return subprocess.Popen(command, cwd="/", stdin=pipe, stdout=pipe, stderr=nothing)  # noqa: S603


def _yield_cores() -> None:
    """Work where no other process wants the core, which Linux has a policy for."""
    with contextlib.suppress(OSError, AttributeError):
        os.nice(_NICENESS)
    with contextlib.suppress(OSError, AttributeError):
        os.sched_setscheduler(0, os.SCHED_IDLE, os.sched_param(0))


def _main() -> None:
    """Print the digest of each file whose path is in the input, and at the end the processor time in seconds."""
    parent = os.getppid()

    def end_with_parent() -> None:
        if os.getppid() != parent:
            raise SystemExit(1)

    _yield_cores()
    buffer = memoryview(bytearray(BLOCK_BYTES))
    num_bytes = int(sys.stdin.buffer.readline())
    for path in sys.stdin.buffer.read(num_bytes).split(b"\0"):
        sys.stdout.write(f"{digest(os.fsdecode(path), buffer, end_with_parent)}\n")
        sys.stdout.flush()
    sys.stdout.write(f"{time.process_time()}\n")


if __name__ == "__main__":
    _main()
