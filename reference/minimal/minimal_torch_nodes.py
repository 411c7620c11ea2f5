"""Runs the ranks of `minimal_torch.py` on the hosts of a task, which may be nodes of a cluster, without torchrun."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

import minimal_torch
from task import Fields
from torch.distributed.elastic.multiprocessing import SignalException
from torch.distributed.elastic.multiprocessing.errors import ChildFailedError, ProcessFailure

POLL_SECONDS, END_SECONDS = 0.02, 5.0


def start(task: Fields, *arguments: str) -> None:
    """Run all ranks of an attempt, each through the words of its host; all have ended when the call returns.

    Raises:
        ChildFailedError: a rank has failed.
        SignalException: this process was asked to end, and the ranks have saved and ended.
    """
    asked: list[int] = []
    before = signal.signal(signal.SIGTERM, lambda number, _: asked.append(number))
    with socket.socket() as found:
        found.bind(("", 0))
        port = str(found.getsockname()[1])  # free here, and taken to be free on the host of rank 0
    ranks = [_started(task, rank, port, arguments) for rank in range(task["job"]["num_ranks"])]
    num_passed_on, failed = 0, list[int]()
    while not failed and any(one.poll() is None for one in ranks):
        for one in ranks if len(asked) > num_passed_on else ():
            one.terminate()
        num_passed_on = len(asked)
        failed = [number for number, one in enumerate(ranks) if one.poll()]
        time.sleep(POLL_SECONDS)
    failed = failed or [number for number, one in enumerate(ranks) if one.poll()]
    status = ranks[failed[0]].returncode if failed else 0
    _end(ranks)
    signal.signal(signal.SIGTERM, before)
    if failed:
        failure = ProcessFailure(failed[0], ranks[failed[0]].pid, status, _error_file(task, failed[0]))
        raise ChildFailedError("ranks", {failed[0]: failure})
    if asked:
        raise SignalException("asked to end", signal.Signals(asked[0]))


def _started(task: Fields, rank: int, port: str, arguments: Sequence[str]) -> subprocess.Popen[bytes]:
    hosts, num_ranks = task["hosts"], task["job"]["num_ranks"]
    host = hosts[rank * len(hosts) // num_ranks]
    place = {"MASTER_ADDR": task["hosts"][0]["address"], "MASTER_PORT": port, "GLOO_SOCKET_IFNAME": host["interface"]}
    world = {"RANK": str(rank), "WORLD_SIZE": str(num_ranks), "LOCAL_RANK": str(rank), "TRAINSPEC_HOST": host["name"]}
    variables = {**os.environ, **place, **world, "TORCHELASTIC_ERROR_FILE": _error_file(task, rank)}
    command = [*host["enter"], sys.executable, os.fspath(minimal_torch.__file__), *arguments]
    return subprocess.Popen(command, env=variables, stdin=subprocess.DEVNULL)  # noqa: S603 - the words of the task


def _error_file(task: Fields, rank: int) -> str:
    """File in which a rank leaves its exception, seen by all hosts."""
    return os.fspath(Path(task["trace_directory"]).with_name(f"error-{task['attempt']}-{rank}.json"))


def _end(ranks: Sequence[subprocess.Popen[bytes]]) -> None:
    """End those that are left, by a signal that the words of a host pass on, and wait until they have ended."""
    for one in ranks:
        one.send_signal(signal.SIGUSR1)  # ends a process that does not handle it
    until = time.monotonic() + END_SECONDS
    for one in ranks:
        with suppress(subprocess.TimeoutExpired):
            one.wait(max(until - time.monotonic(), 0))
    for one in ranks:
        one.kill()
        one.wait()


if __name__ == "__main__":
    sys.exit(minimal_torch.launch(sys.argv[1], start))
