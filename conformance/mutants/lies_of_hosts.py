"""Mutants of isolated hosts, clock jumps, failing devices and running out of memory."""

from __future__ import annotations

import contextlib
import errno
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

from registry import mutant
from trainspec_conformance.testbed import muster, places
from trainspec_conformance.testbed.plain.backend import PlainBackend
from trainspec_conformance.testbed.plain.exchange import Exchange
from trainspec_reference.common import channel, checkpoints, controller, worker
from trainspec_reference.common import messages as say
from trainspec_reference.common.backend import PeerLostError
from trainspec_reference.common.checkpoints import Vault, name_of
from trainspec_reference.common.saver import WorkerPorts
from trainspec_reference.common.state import TrainerState

from trainspec_record.clock import Clock

PATIENCE_SECONDS, MOST_SECONDS = 3.0, 30.0
SLOW_SECONDS, NUM_SLOW = 0.15, 5
Result = TypeVar("Result")
_heard = [0.0]
"""When the controller was heard."""


@mutant("returns-to-silent-host", "TS-CNF-105", "Starts ranks again on the host that does not answer.",
        also={"TS-CNF-106": "half of the hosts does not answer there"})  # fmt: skip
def returns_to_silent_host() -> None:
    places.Places.cut_off = lambda self, host: None  # type: ignore[method-assign]


@mutant(
    "trusts-its-own-reach", "TS-CNF-106", "Takes a rank that answers the controller for one that reaches its peers."
)
def trusts_its_own_reach() -> None:
    muster.Muster.outside = lambda self: []  # type: ignore[method-assign]


class _AloneError(Exception):
    """Neither the peers nor the controller say anything."""


@mutant("minority-goes-on", "TS-CNF-106", "Lets ranks that are cut off train on alone.",
        also={"TS-CNF-105": "a host is cut off there, too"})  # fmt: skip
def minority_goes_on() -> None:
    alone = threading.Event()
    worker._lease_seconds = lambda: None
    channel.Link.say, channel.Link._read = _say_or_not, _read_or_not  # type: ignore[method-assign]
    save, receive = WorkerPorts.save, Exchange._receive
    WorkerPorts.save = lambda self, state: None if alone.is_set() else save(self, state)  # type: ignore[method-assign]

    def receive_or_not(self: Exchange, rank: int) -> bytes:
        began = time.monotonic()
        self._sockets[rank].settimeout(PATIENCE_SECONDS)
        while True:
            try:
                return receive(self, rank)
            except PeerLostError as error:
                if not isinstance(error.__cause__, TimeoutError) or time.monotonic() - began > MOST_SECONDS:
                    raise
                if self.rank and time.monotonic() - _heard[-1] > PATIENCE_SECONDS:
                    raise _AloneError from error

    def lonely(operation: Callable[..., Result]) -> Callable[..., Result]:
        def alone_if_need_be(self: Exchange, *arguments: Any) -> Result:
            time.sleep(0.3 if alone.is_set() else 0)
            try:
                return operation(self, *arguments)
            except _AloneError:
                self.num_ranks = 1
                alone.set()
                return operation(self, *arguments)

        return alone_if_need_be

    Exchange._receive = receive_or_not  # type: ignore[method-assign]
    Exchange.gather, Exchange.total = lonely(Exchange.gather), lonely(Exchange.total)  # type: ignore[method-assign]


def _say_or_not(self: channel.Link, message: say.FromWorker) -> None:
    with contextlib.suppress(OSError), self._lock:
        self._connection.sendall(channel._encoder.encode(message) + b"\n")


def _read_or_not(self: channel.Link, heard: Callable[[say.FromController], None]) -> None:
    lines = channel.Lines()
    with contextlib.suppress(OSError):
        while content := self._connection.recv(1 << 16):
            _heard.append(time.monotonic())
            for line in lines.feed(content):
                heard(channel._from_controller.decode(line))


@mutant("hasty", "TS-CNF-133", "Gives a peer up that was slow to answer five times in a row.")
def hasty() -> None:
    receive = Exchange._receive
    slow: list[float] = []

    def in_haste(self: Exchange, rank: int) -> bytes:
        began = time.monotonic()
        found = receive(self, rank)
        took = time.monotonic() - began
        slow.append(took) if took > SLOW_SECONDS else slow.clear()
        if len(slow) >= NUM_SLOW:
            raise PeerLostError(f"rank {rank} is slow")
        return found

    Exchange._receive = in_haste  # type: ignore[method-assign]


@mutant("trusts-the-clock", "TS-CNF-118", "Measures the time of a step by the time of day.")
def trusts_the_clock() -> None:
    Clock.now_us = lambda self: time.time_ns() // 1000  # type: ignore[method-assign]


@mutant("newest-by-date", "TS-CNF-118", "Resumes from the checkpoint with the latest date.")
def newest_by_date() -> None:
    commit, names = Vault.commit, Vault.names

    def dated(self: Vault, save_id: str, state: TrainerState, *more: Any) -> int:
        with _dates(self).open("a", encoding="ascii") as file:
            file.write(f"{name_of(state.step)} {time.time()}\n")
        return commit(self, save_id, state, *more)

    def by_date(self: Vault) -> list[str]:
        with contextlib.suppress(OSError):
            lines = (line.split() for line in _dates(self).read_text(encoding="ascii").splitlines())
            dates = {name: float(date) for name, date in lines}
            return sorted(names(self), key=lambda name: dates.get(name, 0.0), reverse=True)
        return names(self)

    Vault.commit, Vault.names = dated, by_date  # type: ignore[method-assign]


def _dates(vault: Vault) -> Path:
    return vault.root.parent / "dates"


@mutant("swallows-device-error", "TS-CNF-134", "Reports its part of a save as written, whatever the device said.")
def swallows_device_error() -> None:
    write, fsync = PlainBackend.write, checkpoints.os.fsync

    def writes(self: PlainBackend, snapshot: Any, directory: Path) -> None:
        with _no_word_of_it():
            write(self, snapshot, directory)

    def syncs(descriptor: int) -> None:
        with _no_word_of_it():
            fsync(descriptor)

    PlainBackend.write, checkpoints.os.fsync = writes, syncs  # type: ignore[method-assign]


@contextlib.contextmanager
def _no_word_of_it() -> Any:
    try:
        yield
    except OSError as error:
        if error.errno != errno.EIO:
            raise


@mutant("calls-it-a-crash", "TS-CNF-135", "Reports a rank that the kernel has killed for memory as any lost rank.")
def calls_it_a_crash() -> None:
    controller.MemoryKills.there_was_one = lambda self: False  # type: ignore[method-assign]
