"""Checks whether the writer of a file is still alive."""

from __future__ import annotations

import os

try:
    import fcntl
except ImportError:  # the lock is one of POSIX
    fcntl = None  # type: ignore[assignment]


def claim(descriptor: int) -> bool:
    """Take a file for oneself until the process ends; whether no one else holds it.

    Where the file system has no such locks the answer is yes.
    """
    if fcntl is None:
        return True
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    except OSError:
        return True
    return True


def is_orphan(path: str | os.PathLike[str]) -> bool:
    """Whether the process that wrote a file is gone."""
    descriptor = os.open(path, os.O_RDWR)
    try:
        return claim(descriptor)
    finally:
        os.close(descriptor)
