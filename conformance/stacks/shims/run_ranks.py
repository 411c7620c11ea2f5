"""Starts ranks for stacks that bring no launcher: if one ends with an error, all end."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import time
from contextlib import ExitStack
from pathlib import Path
from types import FrameType

from tracing import read_task

POLL_SECONDS = 0.05


def free_ports(num: int) -> list[str]:
    """Ports of this host, all different, that are free now."""
    with ExitStack() as kept:
        found = [kept.enter_context(socket.socket()) for _ in range(num)]
        for one in found:
            one.bind(("127.0.0.1", 0))
        return [str(one.getsockname()[1]) for one in found]


def end_all(ranks: list[subprocess.Popen[bytes]], seconds: float) -> None:
    """End all ranks; those that live may first say for so long what they lost."""
    end = time.monotonic() + seconds
    while time.monotonic() < end and any(one.poll() is None for one in ranks):
        time.sleep(POLL_SECONDS)
    for one in ranks:
        one.kill()
        one.wait()


def main(arguments: list[str]) -> int:
    """Run a shim with as many ranks as the task wants; the platform starts the job again."""
    shim, path, port = arguments
    num_ranks = read_task(path)["job"]["num_ranks"]
    command = [sys.executable, str(Path(__file__).with_name(shim)), path]
    kept = {key: value for key, value in os.environ.items() if key != "TRAINSPEC_RUN"}
    kept |= {"WORLD_SIZE": str(num_ranks), "PORT": port, "PORTS": ",".join(free_ports(num_ranks))}
    ranks = [
        subprocess.Popen(command, env={**kept, "RANK": str(rank)})  # noqa: S603
        for rank in range(num_ranks)
    ]

    def forward(number: int, _frame: FrameType | None) -> None:
        for one in ranks:
            one.send_signal(number)

    signal.signal(signal.SIGTERM, forward)
    while True:
        statuses = [one.poll() for one in ranks]
        if all(status == 0 for status in statuses):
            return 0
        if any(statuses):
            end_all(ranks, float(os.environ.get("SURVIVOR_SECONDS", "0")))
            return 1
        time.sleep(POLL_SECONDS)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
