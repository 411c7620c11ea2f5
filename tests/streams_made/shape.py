"""Declares the size of a made run, its pace, and the names of its parts."""

from __future__ import annotations

import math
import uuid
from dataclasses import dataclass
from functools import cached_property

PEAK_FLOPS_PER_SECOND = 989e12
NUM_PARAMETERS = 8.03e9
FLOPS_PER_TOKEN = 6 * NUM_PARAMETERS
SEQUENCE_LENGTH = 8192
SEQUENCES_PER_DEVICE_SECOND = 1
"""Gives a utilisation of about 0.4."""
MEMORY_BYTES = 80_000_000_000
START_US = 1_772_000_000_000_000


class ShapeError(ValueError):
    """Figures of a run that do not fit together."""


@dataclass(frozen=True)
class Shape:
    """Size, pace and habits of a made run; the default is small enough for a test and has one of everything."""

    num_nodes: int = 2
    devices_per_node: int = 4
    num_steps: int = 160
    step_seconds: float = 5.0
    seed: int = 1
    faults: bool = False
    evaluation_interval_steps: int = 60
    """0 for a run that does not evaluate."""
    evaluation_seconds: float = 12.0
    checkpoint_interval_steps: int = 48
    blocking_seconds: float = 0.05
    persist_seconds: float = 12.0
    gradient_interval_steps: int = 10
    device_interval_seconds: float = 10.0
    slow_interval_seconds: float = 40.0
    """Least time between values of metrics that are owed every minute."""
    restores_older: bool = False
    """Whether the save before the newest one is restored, which a policy does not allow."""
    start_us: int = START_US
    run: str = "r-7f3a"

    def __post_init__(self) -> None:
        if min(self.num_nodes, self.devices_per_node, self.num_steps) < 1:
            raise ShapeError("a run has at least one node, one device and one step")
        if self.longest_pause_seconds > 45:
            raise ShapeError("the rate of tokens is owed every 30 s: shorten the steps or the evaluation")
        if self.faults and self.num_steps < self.fault_step + 4:
            raise ShapeError("a run with a fault needs a save, and some steps after it")

    @property
    def world_size(self) -> int:
        """Ranks of the job, one for each device."""
        return self.num_nodes * self.devices_per_node

    @property
    def longest_pause_seconds(self) -> float:
        """Longest time between two completed steps of a healthy attempt."""
        return self.step_seconds * 1.1 + self.blocking_seconds + self.evaluation_seconds

    @property
    def rate_interval_seconds(self) -> float:
        """What the job declares as the interval of its rates."""
        return min(30.0, max(self.step_seconds * 1.2, self.longest_pause_seconds / 1.4))

    @property
    def fault_step(self) -> int:
        """Last step that is completed before the fault: some after the newest save, which is committed by then."""
        lost = max(7, math.ceil(self.persist_seconds / self.step_seconds) + 2)
        saves = max(1, (self.num_steps - lost - 4) // self.checkpoint_interval_steps)
        return saves * self.checkpoint_interval_steps + lost

    @property
    def sequences_per_device(self) -> int:
        """Sequences that a device works on in one step."""
        return max(1, round(self.step_seconds * SEQUENCES_PER_DEVICE_SECOND))

    @property
    def batch_sequences(self) -> int:
        """Sequences of one update."""
        return self.sequences_per_device * self.world_size

    @property
    def batch_tokens(self) -> int:
        """Tokens of one step, padding included."""
        return self.batch_sequences * SEQUENCE_LENGTH

    @cached_property
    def hosts(self) -> tuple[str, ...]:
        """Hosts of the job, and one spare at the end."""
        return tuple(f"h-{number:05}" for number in range(self.num_nodes + 1))

    def devices(self, host: str) -> tuple[str, ...]:
        """Accelerators of a host."""
        names = (f"{self.seed}/{host}/{local}" for local in range(self.devices_per_node))
        return tuple(f"GPU-{uuid.uuid5(uuid.NAMESPACE_OID, name)}" for name in names)

    def ports(self, host: str) -> tuple[str, ...]:
        """Ports of the interfaces of a host."""
        return tuple(f"{host}/mlx5_{local}" for local in range(self.devices_per_node))

    def hosts_of(self, attempt: int) -> tuple[str, ...]:
        """Hosts in order of their ranks; after the fault of a node the spare takes the last place."""
        hosts = self.hosts[:-1]
        return (*hosts[:-1], self.hosts[-1]) if attempt and self.num_nodes > 1 else hosts
