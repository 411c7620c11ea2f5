"""Threads of this process: as many as it has processors and memory for.

Below a limit of memory a thread that finds none while it begins never says that it began, and `Thread.start` waits for
that forever (https://github.com/python/cpython/issues/140746). So none is started where the room below `ulimit -v` or
`ulimit -d` is too small for what all of them can take: the work is then done by the thread that asks for it.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from concurrent.futures import Executor, Future, ThreadPoolExecutor
from pathlib import Path
from typing import ParamSpec, TypeVar

try:
    import resource
except ImportError:  # on Windows
    resource = None  # type: ignore[assignment]

THREAD_BYTES = (8 + 128) << 20
"""Address space of a thread: its stack, and the arena that glibc places in twice its 64 MiB (malloc/arena.c)."""
_RESERVE_BYTES = 512 << 20
"""For what is read meanwhile."""
_STATUS = Path("/proc/self/status")
Parameters = ParamSpec("Parameters")
Result = TypeVar("Result")


def num_processors() -> int:
    """Processors that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def num_threads() -> int:
    """Twice the processors: half of the threads wait for the storage while the others work."""
    return 2 * num_processors()


def has_limit_of_memory() -> bool:
    """Whether `ulimit -v` or `ulimit -d` bounds what this process can allocate; Windows has neither."""
    return bool(_limits())


def num_affordable(num_wanted: int, each_bytes: int = THREAD_BYTES) -> int:
    """How many of the wanted things fit below the limits of memory, each with so many bytes of address space."""
    if not (limits := _limits()):
        return num_wanted
    try:
        used = _used_bytes()
        room = min(limit - used[name] for name, limit in limits.items())
    except (OSError, KeyError, ValueError):  # A system that does not tell how much is in use
        return 0
    return max(0, min(num_wanted, (room - _RESERVE_BYTES) // each_bytes))


def pool(num_wanted: int) -> Executor:
    """Threads that work side by side, or the one that hands in the work where there is no memory for more."""
    num = num_affordable(num_wanted)
    return ThreadPoolExecutor(num) if num else _Here()


class _Here(Executor):
    """Does what is handed in at once, in the thread that hands it in."""

    def submit(
        self, fn: Callable[Parameters, Result], /, *args: Parameters.args, **kwargs: Parameters.kwargs
    ) -> Future[Result]:
        """What came of it, which is there already."""
        future = Future[Result]()
        try:
            future.set_result(fn(*args, **kwargs))
        except Exception as error:
            future.set_exception(error)
        return future


def _limits() -> dict[str, int]:
    """The limits of memory in bytes, by the line of the system that tells how much of it is in use."""
    if resource is None:
        return {}
    limits = {"VmSize": resource.RLIMIT_AS, "VmData": resource.RLIMIT_DATA}
    found = {name: resource.getrlimit(kind)[0] for name, kind in limits.items()}
    return {name: limit for name, limit in found.items() if limit != resource.RLIM_INFINITY}


def _used_bytes() -> dict[str, int]:
    """Memory of this process as the system tells it (``/proc/self/status``, proc(5))."""
    lines = (line.partition(":") for line in _STATUS.read_text(encoding="ascii", errors="replace").splitlines())
    return {name: int(value.removesuffix("kB")) << 10 for name, _, value in lines if name in {"VmSize", "VmData"}}
