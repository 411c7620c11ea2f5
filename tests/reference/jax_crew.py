"""Processes that stand by for the tests of the JAX backend: each group forms once, since JAX cannot form anew."""

from __future__ import annotations

import multiprocessing
import os
import socket
import traceback
from collections.abc import Callable, Sequence
from multiprocessing.connection import Connection
from multiprocessing.process import BaseProcess
from typing import Any

from trainspec_reference.common.backend import Formation

TASK_SECONDS = 600.0
"""Longest that a task may take before its processes are killed."""
Member = tuple[BaseProcess, Connection]


class JaxCrew:
    """Groups of processes with JAX loaded, one of each size that was asked for."""

    def __init__(self, timeout_seconds: float = 120.0) -> None:
        self._groups: dict[int, tuple[int, list[Member]]] = {}
        self._timeout_seconds = timeout_seconds

    def run(self, task: Callable[..., Any], hosts: Sequence[str] | int, *arguments: Any) -> list[Any]:
        """What the task returns on each rank; it is called with the rank's formation and the arguments."""
        self.send(task, hosts, *arguments)
        size = hosts if isinstance(hosts, int) else len(hosts)
        return [self.answer(size, rank) for rank in range(size)]

    def send(self, task: Callable[..., Any], hosts: Sequence[str] | int, *arguments: Any) -> list[BaseProcess]:
        """Let the ranks begin; gives their processes."""
        names = ("host",) * hosts if isinstance(hosts, int) else tuple(hosts)
        if len(names) not in self._groups:
            self._groups[len(names)] = (_free_port(), [_start() for _ in names])
        port, members = self._groups[len(names)]
        for rank, (_, connection) in enumerate(members):
            place = Formation(0, rank, names, f"127.0.0.1:{port}", self._timeout_seconds)
            connection.send((task, place, arguments))
        return [process for process, _ in members]

    def answer(self, size: int, rank: int) -> Any:
        """What the task returned on a rank."""
        process, connection = self._groups[size][1][rank]
        if not connection.poll(TASK_SECONDS):
            self._end(size)
            raise TimeoutError(f"rank {rank} (process {process.pid}) has not ended its task")
        try:
            failure, answer = connection.recv()
        except (EOFError, OSError):
            self._end(size)
            raise RuntimeError(f"rank {rank}: process {process.pid} is gone") from None
        if failure:
            if size > 1:  # the other ranks may wait for this one
                self._end(size)
            raise RuntimeError(f"rank {rank}: {failure}")
        return answer

    def close(self) -> None:
        """End all processes."""
        for size in list(self._groups):
            self._end(size)

    def _end(self, size: int) -> None:
        for process, connection in self._groups.pop(size)[1]:
            connection.close()
            process.kill()
            process.join(10)


def _free_port() -> int:
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        return int(listener.getsockname()[1])


def _start() -> Member:
    context = multiprocessing.get_context("spawn")
    ours, theirs = context.Pipe()
    process = context.Process(target=_serve, args=(theirs,), daemon=True)
    process.start()
    theirs.close()
    return process, ours


def _serve(connection: Connection) -> None:
    os.environ["OMP_NUM_THREADS"] = "1"
    os.environ["XLA_FLAGS"] = "--xla_backend_optimization_level=0"  # compiles in half of the time
    while True:
        try:
            task, place, arguments = connection.recv()
        except (EOFError, OSError):
            os._exit(0)
        try:
            connection.send((None, task(place, *arguments)))
        except Exception:
            connection.send((traceback.format_exc(), None))


CREW = JaxCrew()
"""Groups that the tests of all modules share; they end with the test process."""
