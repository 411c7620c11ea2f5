"""Tracks the hosts on which workers can run, and those that are cut off from the others."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

ADDRESS = "TRAINSPEC_TESTBED_ADDRESS"
"""Variable with the address of a worker's host."""


@dataclass(frozen=True, slots=True)
class Place:
    """A host that workers run on, and not only represent."""

    address: str
    """Under which workers of other hosts reach it."""
    interface: str
    """Network interface that has the address."""
    enter: tuple[str, ...]
    """Words before a command that make it run there."""


class Places:
    """Hosts of a run. Without any, all workers run on the controller's, and nothing can be cut off."""

    def __init__(self, places: Mapping[str, Place]) -> None:
        self._places = dict(places)
        self._cut_off: set[str] = set()

    def of(self, host: str | None) -> Place | None:
        """Where workers of a host run; None for where the controller does."""
        return self._places.get(host or "")

    def cut_off(self, host: str | None) -> None:
        """A host is not reached any more; it gets no work for the rest of the run, even when it returns."""
        if host in self._places:
            self._cut_off.add(host)

    def for_worker(self, host: str | None, taken: Iterable[str | None]) -> str | None:
        """Where a worker of a host goes: to that one, or to the one with the fewest workers if it is cut off.

        Where all hosts are cut off, each may be tried again: there is nothing to lose.
        """
        if host not in self._cut_off:
            return host
        left = [name for name in self._places if name not in self._cut_off]
        if not left:
            self._cut_off.clear()
            return host
        count = Counter(taken)
        return min(left, key=lambda name: count[name])
