"""Injects into a worker the faults that a test has planted."""

from __future__ import annotations

import time
from collections import Counter
from dataclasses import dataclass, field

from trainspec_reference.common.backend import Backend, Formation
from trainspec_reference.common.job import PlantedFault
from trainspec_reference.common.loader import Loader


class PlantedExceptionError(Exception):
    """The exception that a test asked for."""


@dataclass(frozen=True, slots=True)
class PlantedFaults:
    """The faults of one worker in one formation."""

    faults: tuple[PlantedFault, ...]
    formation: Formation
    _num_done: Counter[PlantedFault] = field(default_factory=Counter)

    def before(self, step: int, backend: Backend, loader: Loader) -> float:
        """Do the damage that is planted before an update, and tell how many seconds are added to its computation.

        Raises:
            PlantedExceptionError: a test has planted it.
        """
        seconds = 0.0
        loader.added_delay_seconds = 0.0
        for fault in self.faults:
            if not self._is_due(fault, step):
                continue
            self._num_done[fault] += 1
            match fault.kind:
                case "exception":
                    raise PlantedExceptionError(f"planted before update {step + 1}")
                case "livelock":
                    while True:
                        time.sleep(0.01)
                case "slow":
                    seconds += fault.seconds
                case "data-delay":
                    loader.added_delay_seconds += fault.seconds
                case "long-pause":
                    time.sleep(fault.seconds)
                case _:
                    backend.corrupt(fault.kind)
        return seconds

    def _is_due(self, fault: PlantedFault, step: int) -> bool:
        is_here = fault.rank % self.formation.num_ranks == self.formation.rank
        # A step that is skipped is tried again with the same number, and the fault is not.
        is_now = fault.step <= step < fault.step + fault.num_steps and self._num_done[fault] < fault.num_steps
        return is_here and is_now and (fault.every_attempt or self.formation.number == 0)
