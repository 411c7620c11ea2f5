"""The program that samples a node during training: `trainspec-record agent`."""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from trainspec_record.claim import open_regular
from trainspec_record.clock import Clock
from trainspec_record.guard import never_raises
from trainspec_record.identity import VARIABLE, Identity, identity
from trainspec_record.node.sampler import Sampler, start_sampler
from trainspec_record.past import TAIL_BYTES
from trainspec_record.pump import Pump

if TYPE_CHECKING:
    from trainspec_record.endpoint.serve import Address

POLL_SECONDS = 1.0
_END = b'"train.run.end"'


def newest_attempt(folder: Path) -> int | None:
    """The newest attempt that ranks of the run have begun; None where none has."""
    parts = (path.name.rsplit(".", 2) for path in folder.glob("*.jsonl"))
    numbers = [int(part[1]) for part in parts if len(part) == 3 and part[1].isdecimal() and _is_of_training(part[0])]
    return max(numbers, default=None)


def _is_of_training(emitter: str) -> bool:
    return emitter == "job" or emitter.startswith("rank-")


def has_ended(folder: Path, attempt: int) -> bool:
    """Whether the job says that the run is over."""
    try:
        with os.fdopen(open_regular(folder / f"job.{attempt}.jsonl"), "rb") as file:
            file.seek(max(0, file.seek(0, os.SEEK_END) - TAIL_BYTES // 100))
            return _END in file.read()
    except OSError:
        return False


class Agent:
    """Samples one node, in one stream for each attempt, until the run ends or the agent is asked to stop."""

    def __init__(self, who: Identity, environment: Mapping[str, str]) -> None:
        self._who, self._environment = who, environment
        self._clock = Clock()
        self._stop = threading.Event()
        self._sampler: Sampler | None = None
        self._pump: Pump | None = None

    def stop(self) -> None:
        """End soon."""
        self._stop.set()

    def run(self) -> int:
        """Follow the run; the exit code."""
        attempt: int | None = None
        while not self._stop.wait(0 if attempt is None else POLL_SECONDS):
            newest = never_raises(None)(newest_attempt)(self._who.folder)
            if newest is not None and newest != attempt:
                self._leave()
                attempt = newest
                self._join(attempt)
            elif attempt is None:
                self._stop.wait(POLL_SECONDS)
            elif has_ended(self._who.folder, attempt):
                break
        self._leave()
        return 0

    @never_raises(None)
    def _join(self, attempt: int) -> None:
        who = self._who._replace(attempt=attempt, world_size=None)
        self._pump = Pump()
        self._pump.start()
        self._sampler = start_sampler(who, self._pump, self._clock, self._environment, may_start_programs=True)

    @never_raises(None)
    def _leave(self) -> None:
        if self._sampler is not None and self._pump is not None:
            self._sampler.stop()
            self._pump.stop()
        self._sampler = self._pump = None


def run_agent(environment: Mapping[str, str], metrics_address: Address | None = None) -> int:
    """Sample the node of an environment until its run ends, and serve the latest values of it; the exit code.

    Raises:
        ValueError: the environment names no run.
    """
    who = identity(environment)
    if who is None:
        raise ValueError(f"name the directory of the run with --run, or set {VARIABLE}")
    found = Agent(who, environment)
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: found.stop())
    if metrics_address is None:
        return found.run()
    from trainspec_record.endpoint.serve import endpoint  # noqa: PLC0415 - nothing is loaded where nothing is served

    with endpoint(metrics_address, environment):
        return found.run()
