"""Assembles the hosts of a trial, and damages their network, clock or device."""

from __future__ import annotations

from collections.abc import Iterable
from contextlib import ExitStack
from pathlib import Path

from trainspec_conformance.clocks import Clocks
from trainspec_conformance.failing_device import FailingDevice
from trainspec_conformance.host_faults import CLOCK, COMMAND, DEVICE, KINDS, NETWORK, damage_network, take_device
from trainspec_conformance.network import Network, NetworkHost
from trainspec_conformance.node_hosts import NodeHosts
from trainspec_conformance.node_network import INTERFACE
from trainspec_validate.documents.types.conformance import TaskHost
from trainspec_validate.documents.types.scenario import Inject, Scenario


class Hosts:
    """The hosts of a trial, each with what the scenario damages and nothing else of its own."""

    def __init__(self, scenario: Scenario, directory: Path, store: Path) -> None:
        """Make what the scenario needs; where it needs nothing, there are none.

        Raises:
            NotAllowedError: the machine does not allow it.
        """
        kinds = {act.kind for act in scenario.acts if isinstance(act, Inject)}
        self.names = tuple(f"node-{number}" for number in range(scenario.job.num_hosts)) if kinds & KINDS else ()
        everywhere = (*self.names, COMMAND)
        self._clocks: Clocks | None = None
        self._device: FailingDevice | None = None
        self._networked: dict[str, NetworkHost] = {}
        with ExitStack() as made:
            if kinds & CLOCK:
                self._clocks = Clocks(everywhere, directory)
            if kinds & DEVICE:
                self._device = take_device(store, made)
            if kinds & NETWORK:
                self._network = Network(len(everywhere))
                made.callback(self._network.close)
                self._networked = dict(zip(everywhere, self._network.hosts, strict=True))
            self._made = made.pop_all()

    def for_task(self, _num_ranks: int) -> tuple[TaskHost, ...]:
        """Their description in a task."""
        return tuple(
            TaskHost(
                name=name,
                address=self.address(name),
                interface=INTERFACE if self._networked else "lo",
                enter=self.enter(name) or ("env",),
            )
            for name in self.names
        )

    def address(self, name: str = COMMAND) -> str:
        """Address of a host."""
        return self._networked[name].address if self._networked else "127.0.0.1"

    def enter(self, name: str = COMMAND) -> tuple[str, ...]:
        """Words before a command that make it run on a host."""
        words: tuple[str, ...] = ()
        if self._networked:
            words += self._networked[name].enter
        if self._clocks:
            words += self._clocks.enter(name)
        if self._device and name == self.names[-1]:
            words += self._device.enter
        return words

    def holds(self, name: str, pid: int) -> bool:
        """Whether a process really runs on a host, and not only says so."""
        if self._networked and not self._networked[name].holds(pid):
            return False
        if self._clocks and not self._clocks.holds(name, pid):
            return False
        return self._device is None or name != self.names[-1] or self._device.holds(pid)

    def inject(self, act: Inject, names: Iterable[str]) -> float:
        """Do to hosts what an act says, at once; gives its measure."""
        chosen = set(names)
        match act.kind:
            case "cut-network" | "mend-network" | "delay-network":
                return damage_network(self._network.wire, act, chosen, self.names, self.address)
            case "offset-clock" if self._clocks:
                for name in chosen:
                    self._clocks.offset(name, act.offset_seconds or 0.0)
                return act.offset_seconds or 0.0
            case "fail-device" if self._device:
                self._device.fail()
            case "mend-device" if self._device:
                self._device.mend()
                return float(self._device.num_failed)
        return 0.0

    def require_arrived(self) -> None:
        """Nothing: each rank was seen on its host, and nothing of it leaves the host in another way."""

    def close(self) -> None:
        """Take them down."""
        self._made.close()


AnyHosts = Hosts | NodeHosts
"""Hosts that the suite makes, or nodes that others have made."""
