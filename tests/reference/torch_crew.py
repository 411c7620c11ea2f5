"""Processes that stand by for the tests of the PyTorch backend: a task runs on several of them in one formation."""

from __future__ import annotations

import atexit
import functools
import multiprocessing
import os
import socket
import traceback
from collections.abc import Callable, Sequence
from multiprocessing.connection import Connection
from typing import Any

from trainspec_reference.common.backend import Formation

TASK_SECONDS = 600.0
"""Longest that a task may take before its processes are killed."""
FORMATION_SECONDS = 60.0


def free_port() -> int:
    """A port that nobody listens at."""
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        return int(listener.getsockname()[1])


def formation(rank: int, hosts: Sequence[str], port: int, number: int = 0) -> Formation:
    """A formation on this machine."""
    return Formation(number, rank, tuple(hosts), f"127.0.0.1:{port}", FORMATION_SECONDS)


@functools.cache
def crew() -> Crew:
    """The processes that all tests share."""
    found = Crew()
    atexit.register(found.close)
    return found


class Crew:
    """Processes with PyTorch loaded."""

    def __init__(self) -> None:
        self._members: list[tuple[multiprocessing.process.BaseProcess, Connection]] = []

    def run(self, task: Callable[..., Any], hosts: Sequence[str] | int, *arguments: Any) -> list[Any]:
        """What the task returns on each rank; it is called with the rank's formation and the arguments."""
        names = ["host"] * hosts if isinstance(hosts, int) else list(hosts)
        self.send(task, names, *arguments)
        return [self.answer(rank) for rank in range(len(names))]

    def send(self, task: Callable[..., Any], names: Sequence[str], *arguments: Any) -> None:
        """Let one process for each host name begin with a task."""
        port = free_port()
        new = [self._start() for _ in range(len(self._members), len(names))]
        self._members += new
        for rank in range(len(names) - len(new), len(names)):
            self.answer(rank)  # all have PyTorch loaded before the time-outs of a formation count
        for rank in range(len(names)):
            self._members[rank][1].send((task, formation(rank, names, port), arguments))

    def _start(self) -> tuple[multiprocessing.process.BaseProcess, Connection]:
        context = multiprocessing.get_context("spawn")
        ours, theirs = context.Pipe()
        process = context.Process(target=_serve, args=(theirs,), daemon=True)
        process.start()
        theirs.close()
        return process, ours

    def answer(self, rank: int) -> Any:
        """What the task returned on a rank.

        Raises:
            RuntimeError: it failed there, or the process is gone; all processes are then ended.
            TimeoutError: it takes too long; likewise.
        """
        process, connection = self._members[rank]
        if not connection.poll(TASK_SECONDS):
            self.close()
            raise TimeoutError(f"rank {rank} (process {process.pid}) has not ended its task")
        try:
            succeeded, answer = connection.recv()
        except EOFError:
            succeeded, answer = None, None
        if succeeded is None:
            self.close()
            raise RuntimeError(f"rank {rank} (process {process.pid}) is gone")
        if not succeeded:
            self.close()
            raise RuntimeError(f"rank {rank}: {answer}")
        return answer

    def lose(self, rank: int) -> None:
        """End the process of a rank and of all that follow."""
        for process, connection in self._members[rank:]:
            connection.close()
            process.kill()
            process.join(10)
        del self._members[rank:]

    def close(self) -> None:
        """End all processes."""
        self.lose(0)


def _serve(connection: Connection) -> None:
    os.environ["OMP_NUM_THREADS"] = "1"
    import torch
    import trainspec_reference.torch.backend  # noqa: F401

    torch.set_num_threads(1)
    connection.send((True, None))
    while True:
        try:
            task, place, arguments = connection.recv()
        except EOFError:
            return
        try:
            connection.send((True, task(place, *arguments)))
        except Exception:
            connection.send((False, traceback.format_exc()))
