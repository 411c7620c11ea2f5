"""Gives a trial the nodes of a run as its hosts."""

from __future__ import annotations

from collections.abc import Iterable

from trainspec_conformance.nodes import Nodes
from trainspec_conformance.privileges import NotAllowedError
from trainspec_validate.documents.types.conformance import TaskHost
from trainspec_validate.documents.types.scenario import Inject, Scenario
from trainspec_validate.model.units import counted

NEEDED = "separate-hosts"
"""Capability of a stack that places its ranks on the hosts of a task."""
POSSIBLE = frozenset({"kill", "stop", "continue", "slow", "terminate", "limit-memory"})
"""Injections into nodes."""


class NodeHosts:
    """The hosts of a trial, where they are nodes that others have made."""

    def __init__(self, scenario: Scenario, nodes: Nodes) -> None:
        """Take as many as the scenario needs.

        Raises:
            NotAllowedError: there are too few, or the scenario does to them what cannot be done there.
        """
        kinds = sorted({act.kind for act in scenario.acts if isinstance(act, Inject)} - POSSIBLE)
        if kinds:
            raise NotAllowedError(f"the agent of a node cannot do this: {', '.join(kinds)}")
        num_needed = scenario.job.num_hosts
        if num_needed > len(nodes.names):
            raise NotAllowedError(f"{counted(num_needed, 'node', 'are')} needed, --node names {len(nodes.names)}")
        self._nodes = nodes
        self.names = nodes.names[:num_needed] if num_needed > 1 else nodes.names

    def for_task(self, num_ranks: int) -> tuple[TaskHost, ...]:
        """Their description in a task with so many ranks: no node is without one."""
        found = [(name, self._nodes[name]) for name in self.names[:num_ranks]]
        return tuple(
            TaskHost(name=name, address=node.about.address, interface=node.about.interface, enter=node.enter)
            for name, node in found
        )

    def address(self) -> str:
        """Address of the machine of the suite, as the nodes see it."""
        return self._nodes[self.names[0]].about.address_of_suite

    def enter(self) -> tuple[str, ...]:
        """Words before the command: it runs on the machine of the suite."""
        return ()

    def holds(self, name: str, pid: int) -> bool:
        """Whether there is such a process on a node."""
        return bool(self._nodes[name].call("alive", pids=[pid]))

    def inject(self, act: Inject, names: Iterable[str]) -> float:
        """Refuse: none of the injections that are about hosts is possible.

        Raises:
            NotAllowedError: always.
        """
        raise NotAllowedError(f"{', '.join(names)}: the agent of a node cannot do this: {act.kind}")

    def close(self) -> None:
        """Nothing: the nodes stay."""
