"""Finds, before workers form up, which hosts do not reach all others."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

import msgspec
from trainspec_reference.common import channel
from trainspec_reference.common.channel import free_address
from trainspec_reference.common.crew import Worker
from trainspec_reference.common.messages import FromController, FromWorker, Message, Text

_WAITED_SECONDS = 4.0
"""For the answer of a worker."""


class Bell(Message, frozen=True, kw_only=True, tag="bell"):
    """A worker reports the address at which peers can reach it."""

    address: Text
    """`host:port`."""


class Reached(Message, frozen=True, kw_only=True, tag="reached"):
    """Which peers a worker has reached, as it was asked."""

    addresses: tuple[Text, ...]
    free: Text
    """`host:port` on its host that is free now."""


class Reach(Message, frozen=True, kw_only=True, tag="reach"):
    """Say which of these peers you reach."""

    addresses: tuple[Text, ...]


channel._from_worker = msgspec.json.Decoder(FromWorker | Bell | Reached)
channel._from_controller = msgspec.json.Decoder(FromController | Reach)


class Muster:
    """Asks each worker which of the others it reaches. A controller that reaches all of them knows nothing of that."""

    def __init__(self, members: Sequence[Worker], now: Callable[[], float]) -> None:
        self._members = list(members)
        self._answers: dict[int, Reached] = {}
        self._now = now
        self._end = now() + _WAITED_SECONDS
        addresses = tuple(member.notes["address"] for member in members)
        for member in members:
            member.tell(Reach(addresses=addresses))  # type: ignore[arg-type]

    def hear(self, worker: Worker, answer: Reached) -> None:
        """A worker reports the peers that it reaches."""
        self._answers[worker.number] = answer

    @property
    def is_over(self) -> bool:
        """Whether all have answered, or will not."""
        return len(self._answers) == len(self._members) or self._now() > self._end

    @property
    def address(self) -> str:
        """`host:port` at which the first worker can wait for the others."""
        answer = self._answers.get(self._members[0].number)
        return answer.free if answer else free_address()

    def outside(self) -> list[Worker]:
        """Workers that are not of the largest group of hosts that all reach each other."""
        hosts = tuple(dict.fromkeys(member.host or "" for member in self._members))
        reach = {host: self._reach(host) for host in hosts}
        inside = largest_group(reach)
        return [member for member in self._members if (member.host or "") not in inside]

    def _reach(self, host: str) -> set[str]:
        """Hosts of which each worker is reached by each worker of a host."""
        mine = [member for member in self._members if (member.host or "") == host]
        found = {member.host or "" for member in self._members}
        for member in mine:
            answer = self._answers.get(member.number)
            reached = set(answer.addresses) if answer else set()
            found -= {other.host or "" for other in self._members if other.notes["address"] not in reached}
        return found


def largest_group(reach: Mapping[str, set[str]]) -> frozenset[str]:
    """The largest group that is found of hosts that all reach each other; the earlier one of two of the same size.

    It grows from each host by those that reach the most others, which finds the largest where a network falls apart
    into parts, and a large one in any case.
    """
    both = {host: {other for other in reach if other in reach[host] and host in reach[other]} for host in reach}
    best: frozenset[str] = frozenset()
    for first in reach:
        group = {first}
        for other in sorted(both[first], key=lambda one: -len(both[one])):
            if group <= both[other]:
                group.add(other)
        if len(group) > len(best):
            best = frozenset(group)
    return best
