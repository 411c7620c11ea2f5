"""Connects the loop of a worker to its controller: reports, requests, and the worker's part of each save."""

from __future__ import annotations

import queue
import threading
from pathlib import Path
from typing import TypeVar

from trainspec_record.silent import SilentSpan
from trainspec_record.spans import Save, Span
from trainspec_reference.common import messages as say
from trainspec_reference.common.backend import Backend, PeerLostError, Snapshot
from trainspec_reference.common.channel import Link
from trainspec_reference.common.checkpoints import name_of, sync
from trainspec_reference.common.ports import Surroundings, Wish
from trainspec_reference.common.state import TrainerState
from trainspec_validate.checkpoints.hashing import digests
from trainspec_validate.documents.types import trace

_POLL_SECONDS = 0.05
_SETTLE_SECONDS = 2.0
"""Longest wait for a record to be written: a disk that hangs must not stop a save for ever."""
_Order = say.Write | say.Hash | say.SaveEnded
_Wanted = TypeVar("_Wanted", say.Write, say.Hash, say.SaveEnded)


class _GivenUpError(Exception):
    """The save has ended without a commit."""


class WorkerPorts:
    """Surroundings of the loop in one formation. It does one save at a time; training waits for the copy alone."""

    def __init__(self, backend: Backend, link: Link, *, is_asynchronous: bool) -> None:
        self._backend, self._link, self._is_asynchronous = backend, link, is_asynchronous
        self._wish = Wish.NONE
        self._orders: queue.SimpleQueue[_Order | None] = queue.SimpleQueue()
        self._name: str | None = None
        """Checkpoint of the last save."""
        self._is_idle, self._is_over = threading.Event(), threading.Event()
        self._is_idle.set()
        self.surroundings: Surroundings | None = None

    # --- the thread of the channel --------------------------------------------------------------------------

    def wish(self, wish: Wish) -> None:
        """Have the loop do something at its next boundary."""
        self._wish |= wish

    def end(self) -> None:
        """Have the next call of the loop fail: the formation is over, and so is its save.

        A thread that still writes finds its directory gone.
        """
        self._is_over.set()
        self._orders.put(None)

    def heard(self, order: _Order) -> None:
        """Take what the controller says of a save."""
        if order.checkpoint == self._name:
            self._orders.put(order)

    # --- the thread of the loop -----------------------------------------------------------------------------

    def _around(self) -> Surroundings:
        if self._is_over.is_set() or self.surroundings is None:
            raise PeerLostError("the formation is over")
        return self.surroundings

    def wishes(self) -> Wish:
        """As `Ports.wishes`."""
        self._around()
        given, self._wish = self._wish, Wish.NONE
        return given

    def arrived(self, step: int) -> None:
        """As `Ports.arrived`."""
        self._link.say(say.Arrived(formation=self._around().formation.number, step=step))

    def done(self, step: int) -> None:
        """As `Ports.done`."""
        around = self._around()
        counters = around.recorder.state()
        if around.formation.rank == 0:  # concurrently with training, so that a killed rank 0 loses no step
            around.recorder.flush(0.0)
        self._link.say(say.Done(formation=around.formation.number, step=step, counters=counters or None))

    def save(self, state: TrainerState) -> None:
        """As `Ports.save`.

        Raises:
            PeerLostError: the formation is over.
        """
        self.wait()
        around, step = self._around(), state.step
        name, formation = name_of(step), around.formation.number
        self._tell(around, step, "begin")
        self._orders, self._name = queue.SimpleQueue(), name
        span = around.recorder.checkpoint(name, asynchronous=True)
        with span:
            digest = self._backend.digest()
            snapshot = self._backend.snapshot()
            self._tell(around, step, "snapshot", digest)
            self._is_idle.clear()
            threading.Thread(target=self._save, args=(around, step, snapshot, span), name="save", daemon=True).start()
            text = state.to_json().decode()
            self._link.say(say.Begun(formation=formation, checkpoint=name, step=step, digest=digest, state=text))
            if not self._is_asynchronous:
                self.wait()

    def wait(self) -> None:
        """Wait until the save that is under way is committed or given up.

        Raises:
            PeerLostError: the formation is over.
        """
        if not self._is_idle.is_set():
            self._link.say(say.Pausing(formation=self._around().formation.number))
        while not self._is_idle.wait(_POLL_SECONDS):
            if self._is_over.is_set():
                raise PeerLostError("the formation ended during a save")

    # --- the thread of one save -----------------------------------------------------------------------------

    def _save(self, around: Surroundings, step: int, snapshot: Snapshot, span: Span | SilentSpan) -> None:
        name, number, size_bytes, reason = name_of(step), around.formation.number, None, None
        try:
            directory = Path(self._next(say.Write).directory)
            self._backend.write(snapshot, directory)
            self._tell(around, step, "written")
            self._link.say(say.Written(formation=number, checkpoint=name))
            files = _read_back(directory, self._next(say.Hash).paths)
            self._link.say(say.Hashed(formation=number, checkpoint=name, files=files))
            size_bytes = self._next(say.SaveEnded).size_bytes
        except _GivenUpError as error:
            reason = str(error)
        except Exception as error:  # whatever a library raises: the save has failed, training has not
            reason = f"{type(error).__name__}: {error}"
            self._link.say(say.Unsaved(formation=number, checkpoint=name, reason=reason[:4096]))
        if isinstance(span, Save):
            span.fail(reason) if reason is not None else span.commit(size_bytes=size_bytes)
        around.recorder.flush(_SETTLE_SECONDS)  # whoever waits for the end of the save relies on the record of it
        self._is_idle.set()

    def _next(self, wanted: type[_Wanted]) -> _Wanted:
        order = self._orders.get()
        if order is None:
            raise _GivenUpError("the formation is over")
        if isinstance(order, say.SaveEnded) and order.reason is not None:
            raise _GivenUpError(order.reason)
        if not isinstance(order, wanted):
            raise _GivenUpError(f"received {type(order).__name__}, expected {wanted.__name__}")
        return order

    def _tell(self, around: Surroundings, step: int, stage: str, digest: str | None = None) -> None:
        rank = around.formation.rank
        around.trace.tell(trace.Save, checkpoint=name_of(step), step=step, stage=stage, rank=rank, digest=digest)


def _read_back(directory: Path, paths: tuple[str, ...]) -> tuple[say.File, ...]:
    """Force files to the storage, and read what is there.

    Raises:
        OSError: a file cannot be read.
    """
    for path in paths:
        sync(directory / path)
    found = []
    for path, digest in digests(directory, paths).items():
        if isinstance(digest, OSError):
            raise digest
        found.append(say.File(path=path, size_bytes=(directory / path).lstat().st_size, sha256=digest))
    return tuple(found)
