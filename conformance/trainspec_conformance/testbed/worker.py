"""Starts a worker of the reference trainers that does the damage which its job has planted, and knows its host."""

from __future__ import annotations

import os
import sys
import threading
from pathlib import Path
from typing import Any

from trainspec_reference.common import worker
from trainspec_reference.common.channel import free_address
from trainspec_reference.common.messages import FromController

from trainspec_conformance.testbed.muster import Bell, Reach, Reached
from trainspec_conformance.testbed.places import ADDRESS
from trainspec_conformance.testbed.planted import faults_in, with_faults
from trainspec_conformance.testbed.reach import Doorbell, reached

WORKER = (sys.executable, "-m", "trainspec_conformance.testbed.worker")
"""Command of such a worker; the file of its assignment follows."""


class HostsWorker(worker.WorkerProcess):
    """A worker on a host of its own, which reports the peers that it reaches."""

    def __init__(self, *arguments: Any) -> None:
        super().__init__(*arguments)
        self._link.say(Bell(address=Doorbell(os.environ[ADDRESS]).address))  # type: ignore[arg-type]

    def heard(self, message: FromController) -> None:
        """As `WorkerProcess.heard`."""
        if isinstance(message, Reach):
            threading.Thread(target=self._look_around, args=(message,), name="reach", daemon=True).start()
        else:
            super().heard(message)

    def _look_around(self, message: Reach) -> None:
        free = free_address(os.environ[ADDRESS])
        self._link.say(Reached(addresses=reached(message.addresses), free=free))  # type: ignore[arg-type]


def main(arguments: list[str]) -> None:
    """As `worker.main`."""
    worker.Trainer = with_faults(faults_in(Path(arguments[0])))  # type: ignore[attr-defined]
    if ADDRESS in os.environ:
        worker.WorkerProcess = HostsWorker  # type: ignore[misc, assignment]
    worker.main(arguments)


if __name__ == "__main__":
    main(sys.argv[1:])
