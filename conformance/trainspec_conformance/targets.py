"""Finds and reaches the processes of a trial: those on the machine of the suite, and those on the nodes of a run."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from trainspec_conformance.agent import ENDING, Agent, NoTargetError, machine
from trainspec_conformance.nodes import Nodes
from trainspec_conformance.processes import Session, describe, end_all, marked
from trainspec_validate.documents.types.trace import Process

HERE = ""
"""In place of the name of a node: the machine of the suite."""


class MisplacedError(Exception):
    """A process does not run where it says, so that nothing done there would reach it."""


@dataclass(frozen=True, order=True)
class Target:
    """A process that an injection is about."""

    node: str
    pid: int


class Targets:
    """Processes that carry the mark of a trial, and only those: a trace may name any number."""

    def __init__(self, mark: str, nodes: Nodes | None = None) -> None:
        self.mark = mark
        self._nodes = nodes
        self._here = Agent()

    @property
    def variables(self) -> dict[str, str]:
        """Variables of the suite with which a stack reaches the nodes, too."""
        return self._nodes.variables if self._nodes is not None else {}

    def of(self, process: Process) -> Target:
        """Where a process of the trace is.

        Raises:
            MisplacedError: it names none of the nodes.
        """
        if self._nodes is None or process.role != "rank":
            return Target(HERE, process.pid)
        if process.host not in self._nodes.names:
            raise MisplacedError(
                f"rank {process.rank} says that it is on {process.host!r}, which is none of the nodes of the run"
            )
        return Target(process.host, process.pid)

    def alive(self, targets: Sequence[Target]) -> set[Target]:
        """Those that there are."""
        return {Target(node, pid) for node, pids in _by_node(targets) for pid in self._call(node, "alive", pids=pids)}

    def belonging(self, targets: Sequence[Target]) -> set[Target]:
        """Those that belong to the trial and run where they say."""
        told = ((node, self._call(node, "belonging", pids=pids, mark=self.mark)) for node, pids in _by_node(targets))
        return {Target(node, pid) for node, pids in told for pid in pids}

    def act(self, what: str, targets: Sequence[Target], **fields: Any) -> None:
        """Let the agents do something to processes of the trial; it has arrived when the call returns.

        Raises:
            NoTargetError: one of them does not belong to the trial, or has ended.
            RuntimeError: it is not seen in a time that is ample.
        """
        for node, pids in _by_node(targets):
            self._call(node, what, pids=pids, mark=self.mark, **fields)

    def reach(self, targets: Sequence[Target], number: int) -> None:
        """Signal processes of the trial on all of their nodes, as `Agent.reach` does on one.

        Raises:
            NoTargetError: one of them does not belong to the trial, or has ended.
            RuntimeError: the signal is not seen at a process in a time that is ample.
        """
        is_reached = False
        missing: NoTargetError | None = None
        for node, pids in _by_node(targets):
            try:
                self._call(node, "reach", pids=pids, number=number, mark=self.mark)
                is_reached = True
            except NoTargetError as error:
                missing = error
                if number not in ENDING:
                    break
        if missing is not None and not (is_reached and number in ENDING):
            raise missing

    def _call(self, node: str, what: str, **fields: Any) -> Any:
        if node == HERE or self._nodes is None:
            return getattr(self._here, what)(**fields)
        return self._nodes[node].call(what, **fields)

    def left(self) -> list[str]:
        """Every living process of the trial, as `pid name`, on a node behind its name."""
        found = [describe(process) for process in marked(self.mark)]
        return found + self._told("marked")

    def on_nodes(self) -> list[Target]:
        """Every living process of the trial on a node that is not the machine of the suite."""
        if self._nodes is None:
            return []
        numbers, found = {_numbering(machine())}, []
        for node, marked_there in self._nodes.call("marked", mark=self.mark).items():
            if (seen := _numbering(self._nodes[node].about.machine)) not in numbers:
                numbers.add(seen)
                found += [Target(node, pid) for pid, _ in marked_there]
        return found

    def kill(self) -> None:
        """Kill them all on the nodes; those on the machine of the suite are the launcher's."""
        self._told("end_all")

    def rest(self) -> None:
        """Let all of them run as before."""
        self._here.rest()
        if self._nodes is not None:
            self._nodes.call("rest")

    def end(self, sessions: Sequence[Session]) -> list[str]:
        """Kill all and wait until they are gone; gives those that would not go."""
        return self._told("end_all") + end_all(self.mark, sessions) + self._told("marked")

    def _told(self, what: str) -> list[str]:
        answers = self._nodes.call(what, mark=self.mark) if self._nodes is not None else {}
        return [f"{node}: {pid} {name}" for node, found in answers.items() for pid, name in found]


def _numbering(machine: str) -> str:
    """Part of the text of a machine that is the same where numbers of processes mean the same."""
    return machine.rpartition(" ")[0]


def _by_node(targets: Iterable[Target]) -> list[tuple[str, list[int]]]:
    found: dict[str, list[int]] = {}
    for one in targets:
        found.setdefault(one.node, []).append(one.pid)
    return list(found.items())
