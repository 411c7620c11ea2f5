"""Gives a trial the nodes of a run as its hosts, and damages their network, their writes and their clock."""

from __future__ import annotations

import base64
import errno
from collections.abc import Callable, Iterable, Set
from contextlib import ExitStack, suppress
from pathlib import Path

from trainspec_conformance.clocks import Clocks
from trainspec_conformance.failing_device import FailingDevice
from trainspec_conformance.host_faults import (
    CLOCK,
    COMMAND,
    DEVICE,
    DISK,
    NETWORK,
    UNDOING,
    damage_network,
    take_device,
)
from trainspec_conformance.links import Links
from trainspec_conformance.node_network import INTERFACE
from trainspec_conformance.nodes import NodeError, Nodes
from trainspec_conformance.privileges import NotAllowedError
from trainspec_validate.documents.types.conformance import TaskHost
from trainspec_validate.documents.types.scenario import Inject, Scenario
from trainspec_validate.model.units import counted

NEEDED = "separate-hosts"
"""Capability of a stack that places its ranks on the hosts of a task."""
POSSIBLE = (
    frozenset({"kill", "stop", "continue", "slow", "terminate", "limit-memory"}) | NETWORK | DEVICE | DISK | CLOCK
)
"""Injections into nodes."""
_ERRORS = {"fill-disk": errno.ENOSPC, "fail-writes": errno.EIO, "fail-device": errno.EIO}
"""With which writes to the store end: it is a file system of others, which the suite neither fills nor mounts."""
_TRACES = {
    "network": "no packet of the trial was dropped or late, as ranks exchange none over the addresses of their hosts",
    "writes": "no write to the store was refused, as no process that was started through `enter` writes there",
}


class NodeHosts:
    """The hosts of a trial, where they are nodes that others have made."""

    def __init__(self, scenario: Scenario, nodes: Nodes, directory: Path, store: Path) -> None:
        """Take as many as the scenario needs, and make there what it damages.

        Raises:
            NotAllowedError: there are too few, or the scenario does to them what cannot be done there.
            NodeError: one does not answer.
        """
        kinds = {act.kind for act in scenario.acts if isinstance(act, Inject)}
        if missing := sorted(kinds - POSSIBLE):
            raise NotAllowedError(f"the agent of a node cannot do this: {', '.join(missing)}")
        num_needed = scenario.job.num_hosts
        if num_needed > len(nodes.names):
            raise NotAllowedError(f"{counted(num_needed, 'node', 'are')} needed, --node names {len(nodes.names)}")
        self._nodes = nodes
        self.names = nodes.names[:num_needed] if num_needed > 1 else nodes.names
        self._links: Links | None = None
        self._parts: tuple[str, ...] = ()
        self._here: FailingDevice | None = None
        """Answers for writes of the command."""
        self._clocks: Clocks | None = None
        """Of the command."""
        self._watched: list[tuple[str, Callable[[], int], int]] = []
        """Injections that are in force: kind with the reason if it has no traces, their number, and that before."""
        self._missed: list[str] = []
        with ExitStack() as made:
            self._make(kinds, directory, store, made)
            self._made = made.pop_all()

    def _make(self, kinds: Set[str], directory: Path, store: Path, made: ExitStack) -> None:
        if kinds & NETWORK:
            self._links = Links({name: self._nodes[name] for name in self.names})
            made.callback(self._links.close)
            self._parts += ("network",)
        if kinds & DISK:
            self._here = take_device(store, made)
        if kinds & (DISK | DEVICE):
            made.callback(self._leave_writes)
            self._nodes.call("watch_writes", directory=str(store))
            self._parts += ("writes",)
        if kinds & CLOCK:
            self._clocks = Clocks([COMMAND], directory)
            library = base64.b64encode(self._clocks.library.read_bytes()).decode()
            self._nodes.call("make_clock", library=library)
            self._parts += ("clock",)

    def for_task(self, num_ranks: int) -> tuple[TaskHost, ...]:
        """Their description in a task with so many ranks: no node is without one."""
        found = [(name, self._nodes[name]) for name in self.names[:num_ranks]]
        return tuple(
            TaskHost(
                name=name,
                address=self._links.addresses[name] if self._links else node.about.address,
                interface=INTERFACE if self._links else node.about.interface,
                enter=node.enter(*self._parts),
            )
            for name, node in found
        )

    def address(self) -> str:
        """Address of the machine of the suite, as the nodes see it."""
        if self._links:
            return self._links.addresses[COMMAND]
        return self._nodes[self.names[0]].about.address_of_suite

    def enter(self) -> tuple[str, ...]:
        """Words before the command: it runs on the machine of the suite."""
        return (*(self._clocks.enter(COMMAND) if self._clocks else ()), *(self._here.enter if self._here else ()))

    def holds(self, name: str, pid: int) -> bool:
        """Whether there is such a process on a node.

        Raises:
            NotAllowedError: there is, and the injection would not reach it.
        """
        node = self._nodes[name]
        if not node.call("alive", pids=[pid]):
            return False
        if self._links and not node.call("in_network", pids=[pid]):
            raise NotAllowedError(
                f"process {pid} on {name} is outside of the network of the trial: it was not started through `enter`"
            )
        if "writes" in self._parts and not node.call("ask", pids=[pid]):
            raise NotAllowedError(f"writes of process {pid} on {name} cannot fail: it was not started through `enter`")
        if self._clocks and not node.call("on_clock", pids=[pid]):
            raise NotAllowedError(f"process {pid} on {name} has another clock: it was not started through `enter`")
        return True

    def inject(self, act: Inject, names: Iterable[str]) -> float:
        """Do to hosts what an act says, at once; gives its measure.

        Raises:
            NotAllowedError: it cannot be done on nodes.
        """
        chosen = set(names)
        if self._links and act.kind in NETWORK:
            wire = self._links.wire
            self._watch(act.kind, _TRACES["network"], lambda: wire.num_touched)
            return damage_network(wire, act, chosen, self.names, self._links.addresses.__getitem__)
        if "writes" in self._parts and act.kind in DISK | DEVICE:
            self._watch(act.kind, _TRACES["writes"], self._num_failed)
            before = self._num_failed()
            self._damage_writes(act, chosen)
            return float(before) if act.kind.startswith(UNDOING) else 0.0
        if self._clocks and act.kind in CLOCK:
            seconds = act.offset_seconds or 0.0
            for name in chosen:
                if name == COMMAND:
                    self._clocks.offset(name, seconds)
                else:
                    self._nodes[name].call("offset_clock", seconds=seconds)
            return seconds
        raise NotAllowedError(f"{', '.join(chosen)}: the agent of a node cannot do this: {act.kind}")

    def _damage_writes(self, act: Inject, chosen: set[str]) -> None:
        """Let the writes of nodes fail or succeed, and those of the command, where the store itself is damaged."""
        number = _ERRORS.get(act.kind, 0)
        for name in chosen:
            if number:
                self._nodes[name].call("fail_writes", number=number)
            else:
                self._nodes[name].call("mend_writes")
        if self._here:
            self._here.fail(number)

    def _num_failed(self) -> int:
        """Writes that have failed, of ranks and of the command."""
        on_nodes: int = sum(self._nodes.call("num_failed").values())
        return on_nodes + (self._here.num_failed if self._here else 0)

    def _leave_writes(self) -> None:
        with suppress(NodeError):  # a node that is lost asks no more
            self._nodes.call("leave_writes")

    def _watch(self, kind: str, reason: str, count: Callable[[], int]) -> None:
        """Count from now on what an injection does; one that undoes another ends the count of that."""
        self._look()
        if not kind.startswith(UNDOING):
            self._watched.append((f"{kind} has not arrived: {reason}", count, count()))

    def _look(self) -> None:
        self._missed += [words for words, count, before in self._watched if count() == before]
        self._watched.clear()

    def require_arrived(self) -> None:
        """See that each injection has met something of the trial, and that the network was whole.

        Raises:
            NodeError: it was not, so that the trial says nothing of the stack.
        """
        self._look()
        if self._links and self._links.is_broken:
            raise NodeError("a node has lost its connection with the network of the trial")
        if self._missed:
            raise NodeError(self._missed[0])

    def close(self) -> None:
        """Take down what was made; the nodes stay."""
        self._made.close()
