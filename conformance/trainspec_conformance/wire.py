"""Carries packets between hosts of a trial: late, in part, or not at all."""

from __future__ import annotations

import contextlib
import heapq
import os
import random
import selectors
import socket
import threading
import time
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

_MOST_BYTES = 1 << 16
_IDLE_SECONDS = 1.0


@dataclass(frozen=True)
class _State:
    """How packets are treated now; replaced as a whole, so that the thread sees all of a change or none of it."""

    cut: frozenset[tuple[bytes, bytes]] = frozenset()
    """Ways that are closed, from an address to another."""
    slow: frozenset[bytes] = frozenset()
    """Addresses whose packets are late, to them and from them."""
    delay_seconds: float = 0.0
    loss: float = 0.0
    """Share of their packets that is lost."""


class Wire:
    """Reads packets from the devices of hosts, and writes each to the device that has its address.

    Dropped packets raise no error: to both ends the other end looks silent.
    """

    def __init__(self, devices: Mapping[str, int]) -> None:
        self._devices = {socket.inet_aton(address): device for address, device in devices.items()}
        self._state = _State()
        self.num_touched = 0
        """Packets that were dropped, lost or late."""
        self._late: list[tuple[float, int, int, bytes]] = []
        self._num_late = 0
        self._chance = random.Random(7)  # noqa: S311 - repeatable losses, nothing secret
        self._ending, self._ended = socket.socketpair()
        self._thread = threading.Thread(target=self._run, name="wire", daemon=True)
        self._thread.start()

    def cut(self, hosts: Iterable[str], others: Iterable[str]) -> None:
        """Drop from now on what is sent between one of some addresses and one of some others."""
        ways = {(socket.inet_aton(one), socket.inet_aton(other)) for one in hosts for other in others}
        state = self._state
        cut = state.cut | ways | {(other, one) for one, other in ways}
        self._state = _State(cut, state.slow, state.delay_seconds, state.loss)

    def delay(self, hosts: Iterable[str], seconds: float, loss: float) -> None:
        """Keep packets to and from addresses for so long on each way, and lose a share of them."""
        slow = frozenset(socket.inet_aton(host) for host in hosts)
        self._state = _State(self._state.cut, slow, seconds, loss)

    def mend(self) -> None:
        """Carry everything at once again."""
        self._state = _State()

    def close(self) -> None:
        """Carry nothing more."""
        self._ending.close()
        self._thread.join(timeout=5)
        self._ended.close()

    # --- the thread -----------------------------------------------------------------------------------------

    def _run(self) -> None:
        with selectors.DefaultSelector() as selector:
            selector.register(self._ended, selectors.EVENT_READ)
            for source, device in self._devices.items():
                selector.register(device, selectors.EVENT_READ, source)
            while True:
                for key, _ in selector.select(self._seconds_to_wait()):
                    if key.data is None:
                        return
                    self._carry(key.fd, key.data)
                self._deliver_late()

    def _seconds_to_wait(self) -> float:
        return max(0.0, self._late[0][0] - time.monotonic()) if self._late else _IDLE_SECONDS

    def _carry(self, device: int, source: bytes) -> None:
        try:
            packet = os.read(device, _MOST_BYTES)
        except OSError:
            return
        target = packet[16:20]  # https://www.rfc-editor.org/rfc/rfc791#section-3.1
        if packet[:1] and packet[0] >> 4 == 4 and target in self._devices:
            self._pass_on(packet, source, target)

    def _pass_on(self, packet: bytes, source: bytes, target: bytes) -> None:
        state = self._state
        if (source, target) in state.cut:
            self.num_touched += 1
            return
        if not {source, target} & state.slow:
            _write(self._devices[target], packet)
            return
        self.num_touched += 1
        if self._chance.random() >= state.loss:
            self._num_late += 1
            due = time.monotonic() + state.delay_seconds
            heapq.heappush(self._late, (due, self._num_late, self._devices[target], packet))

    def _deliver_late(self) -> None:
        while self._late and self._late[0][0] <= time.monotonic():
            _, _, device, packet = heapq.heappop(self._late)
            _write(device, packet)


def _write(device: int, packet: bytes) -> None:
    with contextlib.suppress(OSError):  # a device that takes no more loses a packet, as any network does
        os.write(device, packet)
