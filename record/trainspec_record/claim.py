"""Opens files that other processes wrote, and checks whether the writer of one is still alive."""

from __future__ import annotations

import errno
import os
import stat

try:
    import fcntl
except ImportError:  # the lock is one of POSIX
    fcntl = None  # type: ignore[assignment]


def open_regular(path: str | os.PathLike[str], flags: int = os.O_RDONLY, *, follow: bool = False) -> int:
    """Open a regular file: a pipe would keep its reader waiting, and a link could lead out of the run.

    Raises:
        OSError: it is something else, a link that is not to be followed, or cannot be opened.
    """
    plain = getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_CLOEXEC", 0)
    descriptor = os.open(path, flags | plain | (0 if follow else getattr(os, "O_NOFOLLOW", 0)))
    if not stat.S_ISREG(os.fstat(descriptor).st_mode):
        os.close(descriptor)
        raise OSError(errno.EINVAL, "no regular file", str(path))
    return descriptor


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
    descriptor = open_regular(path, os.O_RDWR)
    try:
        return claim(descriptor)
    finally:
        os.close(descriptor)


def is_held(descriptor: int) -> bool | None:
    """Whether another process has claimed a file and still runs; None where the file system has no such locks.

    A file is asked about only after its writer has claimed it: the answer takes a shared lock for a moment.
    """
    if fcntl is None:
        return None
    try:
        fcntl.flock(descriptor, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    except OSError:
        return None
    fcntl.flock(descriptor, fcntl.LOCK_UN)
    return False
