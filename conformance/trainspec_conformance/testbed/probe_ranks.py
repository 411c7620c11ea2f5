"""Starts real ranks for a probe, and takes the answer of the first."""

from __future__ import annotations

import multiprocessing
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from queue import Empty
from typing import Any, TypeVar

from trainspec_reference.common.backend import Formation
from trainspec_reference.common.channel import free_address

from trainspec_conformance.testbed.rehearsal import TIMEOUT_SECONDS

MAX_RANKS = 16
_WAIT_SECONDS = 240.0
_POLL_SECONDS = 0.5
_LEAVING_SECONDS = 5.0
Share = TypeVar("Share")
Told = TypeVar("Told")


@dataclass(slots=True)
class Member:
    """One rank in its own process."""

    rank: int
    _mail: Sequence[Any]
    """A queue for each rank."""
    _number: int = 0

    def next_formation(self) -> Formation:
        """The next formation of all ranks: rank 0 chooses an address, and sends it to the others."""
        if self.rank == 0:
            address = free_address()
            for queue in self._mail[1:]:
                queue.put(address)
        else:
            address = self._mail[self.rank].get(timeout=TIMEOUT_SECONDS)
        self._number += 1
        return Formation(self._number, self.rank, ("localhost",) * len(self._mail), address, TIMEOUT_SECONDS)


def on_ranks(work: Callable[[Member, Share], Told], shares: Sequence[Share]) -> Told:
    """Run a function of a module on as many ranks as there are shares; gives what it returns on rank 0.

    Raises:
        RuntimeError: a rank failed, or it took too long.
    """
    context = multiprocessing.get_context("spawn")
    results, mail = context.Queue(), [context.Queue() for _ in shares]
    processes = [
        context.Process(target=_work, args=(work, Member(rank, mail), share, results), daemon=True)
        for rank, share in enumerate(shares)
    ]
    try:
        for process in processes:
            process.start()
        return _first(results, processes)  # type: ignore[no-any-return]
    finally:
        for process in processes:
            process.kill()
            process.join()


def _work(work: Callable[[Member, Any], Any], member: Member, share: Any, results: Any) -> None:
    found = work(member, share)
    if member.rank == 0:
        results.put(found)


def _first(results: Any, processes: Sequence[Any]) -> Any:
    deadline = time.monotonic() + _WAIT_SECONDS
    while time.monotonic() < deadline:
        try:
            return results.get(timeout=_POLL_SECONDS)
        except Empty:
            failed = [rank for rank, process in enumerate(processes) if process.exitcode]
            if failed:
                return _last(results, f"rank {failed[0]} of {len(processes)} failed")
    raise RuntimeError(f"{len(processes)} ranks gave no answer in {_WAIT_SECONDS:g} s")


def _last(results: Any, reason: str) -> Any:
    """What rank 0 returns although another one failed, as one of JAX may that leaves after rank 0, which serves it."""
    try:
        return results.get(timeout=_LEAVING_SECONDS)
    except Empty:
        raise RuntimeError(reason) from None
