"""Measures the round trip of a small message between two nodes."""

from __future__ import annotations

import hashlib
import os
import secrets
import selectors
import socket
import threading
import time
from collections.abc import Iterator, Mapping
from typing import Any

from trainspec_record.guard import never_raises
from trainspec_record.node.source import Reading, Source
from trainspec_record.values import histogram, key

NODES, PORT = "TRAINSPEC_PROBE_NODES", "TRAINSPEC_PROBE_PORT"
DEFAULT_PORT = 29_460
SIZE_BYTES = 64
INTERVAL_SECONDS = 1.0
TIMEOUT_SECONDS = 2.0
MAX_VALUES = 1_000
BOUNDS = tuple(factor * 10.0**power for power in (-6, -5, -4, -3, -2) for factor in (1, 1.5, 2, 3, 5, 7))
PLAN = "ring: each node probes the next one of the declared nodes once a second"
LATENCY = "train.network.latency"
_PROBE, _ANSWER = b"P", b"A"


class Probe:
    """Answers probes of other nodes, and probes the next one; one thread, and no answer is larger than its probe."""

    def __init__(self, run: str, source: str, target: str, address: tuple[str, int], port: int) -> None:
        self.key = key(LATENCY, train__network__source=source, train__network__target=target)
        self.num_lost = 0
        """Probes without an answer."""
        self._secret = hashlib.sha256(f"trainspec-probe/{run}".encode()).digest()[:16]
        self._address = address
        self._socket = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        try:
            self._socket.bind(("", port))
        except OSError:
            self._socket.close()
            raise
        self._socket.setblocking(False)  # noqa: FBT003, RUF100
        self._lock = threading.Lock()
        self._values: list[float] = []
        self._sent: tuple[bytes, float] | None = None
        self._is_first = True
        self._is_alive = True
        self._thread = threading.Thread(target=self._loop, name="trainspec-probe", daemon=True)

    @property
    def port(self) -> int:
        """Port that it answers on."""
        found: int = self._socket.getsockname()[1]
        return found

    def start(self) -> None:
        """Begin to answer and to probe."""
        self._thread.start()

    def stop(self) -> None:
        """End, and close the socket."""
        self._is_alive = False
        self._thread.join(2 * INTERVAL_SECONDS)

    def window(self) -> list[float]:
        """Round trips in seconds since the question before."""
        with self._lock:
            found, self._values = self._values, []
        return found

    def _loop(self) -> None:
        with selectors.DefaultSelector() as selector, self._socket:
            selector.register(self._socket, selectors.EVENT_READ)
            due = time.monotonic()
            while self._is_alive:
                if time.monotonic() >= due:
                    due += INTERVAL_SECONDS
                    self._send()
                if selector.select(max(0.0, min(INTERVAL_SECONDS, due - time.monotonic()))):
                    self._receive()

    @never_raises(None)
    def _send(self) -> None:
        if self._sent is not None and time.monotonic() - self._sent[1] < TIMEOUT_SECONDS:
            return
        self.num_lost += self._sent is not None
        token = secrets.token_bytes(8)
        message = (_PROBE + self._secret + token).ljust(SIZE_BYTES, b"\0")
        self._sent = (token, time.monotonic())
        self._socket.sendto(message, self._address)

    @never_raises(None)
    def _receive(self) -> None:
        message, sender = self._socket.recvfrom(SIZE_BYTES + 1)
        now = time.monotonic()
        if len(message) != SIZE_BYTES or message[1:17] != self._secret:
            return
        if message[:1] == _PROBE:
            self._socket.sendto(_ANSWER + message[1:], sender)
        elif self._sent is not None and message[17:25] == self._sent[0]:
            sent, self._sent = self._sent, None
            if self._is_first:
                self._is_first = False  # the first one finds the way
                return
            with self._lock:
                if len(self._values) < MAX_VALUES:
                    self._values.append(now - sent[1])


def probe_source(run: str, host: str, environment: Mapping[str, str] = os.environ) -> Source:
    """Latency to the next of the nodes that `TRAINSPEC_PROBE_NODES` declares: names, or `name=address`."""
    entries = [entry.strip().partition("=") for entry in environment.get(NODES, "").split(",") if entry.strip()]
    nodes = [(name, address or name) for name, _, address in entries]
    names = [name for name, _ in nodes]
    if not nodes:
        return Source(unsupported={LATENCY: f"no nodes are declared to probe: {NODES} is not set"})
    if host not in names or len(nodes) < 2:
        return Source(unsupported={LATENCY: f"{NODES} does not name this node and another one"})
    target, address = nodes[(names.index(host) + 1) % len(nodes)]
    told = environment.get(PORT, "")
    port = int(told) if told.isdecimal() and 0 < int(told) < 65_536 else DEFAULT_PORT
    try:
        probe = Probe(run, host, target, (address, port), port)
    except OSError as error:
        return Source(unsupported={LATENCY: f"the port {port} of the probe cannot be used: {error.strerror}"})
    probe.start()
    return _source(probe)


def _source(probe: Probe) -> Source:
    def read() -> Iterator[Reading]:
        found = probe.window()
        if found:
            yield Reading({probe.key: histogram(found, BOUNDS)})

    declared: dict[str, Any] = {
        "train.probe.size": SIZE_BYTES,
        "train.probe.transport": "udp",
        "train.probe.plan": PLAN,
    }
    return Source(frozenset({"pair"}), read, declared=declared, close=probe.stop)
