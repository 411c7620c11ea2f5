"""Gives each start of a stack an empty temporary directory and empty shared memory of its own."""

from __future__ import annotations

import shutil
import subprocess
import tempfile
from functools import cache
from pathlib import Path

_SECONDS = 20


@cache
def memory_words() -> tuple[str, ...]:
    """Words before a command that give it an empty /dev/shm of its own; none where the machine does not allow that.

    Programs are named by their paths, as the stack may have another PATH than the suite.
    """
    unshare, shell, mount = (shutil.which(name) for name in ("unshare", "sh", "mount"))
    if unshare is None or shell is None or mount is None:
        return ()
    words = (unshare, "--mount", "--propagation", "slave", shell, "-c")
    empty = f"{mount} -t tmpfs -o mode=1777 tmpfs /dev/shm"
    try:
        done = subprocess.run([*words, empty], capture_output=True, timeout=_SECONDS, check=False)  # noqa: S603
    except (OSError, subprocess.TimeoutExpired):
        return ()
    return () if done.returncode else (*words, f'{empty} && exec "$@"', shell)


class TemporaryDirectories:
    """A temporary directory for each start of one trial."""

    def __init__(self) -> None:
        self._made: list[Path] = []

    def new(self) -> Path:
        """An empty one; its path is short, as some stacks put sockets below it."""
        self._made.append(Path(tempfile.mkdtemp(prefix="t")))
        return self._made[-1]

    def close(self) -> None:
        """Remove them."""
        for path in self._made:
            shutil.rmtree(path, ignore_errors=True)
