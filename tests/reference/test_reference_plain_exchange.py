"""Connections of plain workers: peers that do not come, go away, or are strangers."""

from __future__ import annotations

import socket
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace

import pytest
from trainspec_conformance.testbed.plain.exchange import Exchange
from trainspec_reference.common.backend import Formation, PeerLostError

from tests.reference.plain_crew import formations

PATIENCE_SECONDS = 600.0


def test_a_peer_that_does_not_come_is_told() -> None:
    place = replace(next(formations(2)), timeout_seconds=0.2)
    with pytest.raises(PeerLostError, match="did not come together"):
        Exchange(place)
    with pytest.raises(PeerLostError, match="did not come together"):
        Exchange(replace(place, rank=1))


def joined(places: list[Formation]) -> tuple[Exchange, Exchange]:
    """Two peers that have come together."""
    with ThreadPoolExecutor() as pool:
        second = pool.submit(Exchange, places[1])
        return Exchange(places[0]), second.result()


def test_a_peer_that_is_gone_or_silent_is_told() -> None:
    first, second = joined([*formations(2)])
    first._sockets[1].settimeout(0.3)
    with pytest.raises(PeerLostError, match="rank 1 says nothing"):
        first.gather(b"")
    second.close()
    with pytest.raises(PeerLostError, match="rank 1 says nothing"):
        first.gather(b"")
    first.close()


def test_a_worker_of_another_formation_is_not_let_in() -> None:
    """It is the first to come; the peer of this formation, which comes after it, is."""
    places = [*formations(2)]
    host, _, port = places[0].address.partition(":")
    with ThreadPoolExecutor() as pool:
        first = pool.submit(Exchange, places[0])
        with connected(host, int(port)) as stranger:
            stranger.sendall(bytes([1, 0, 0, 0, 9, 0, 0, 0]))
            assert stranger.recv(1) == b""
        second = Exchange(places[1])
        answer = pool.submit(first.result().gather, b"of 0")
        assert second.gather(b"of 1") == answer.result() == [b"of 0", b"of 1"]
    for each in (first.result(), second):
        each.close()


def connected(host: str, port: int) -> socket.socket:
    """A connection to a server that may still have to start."""
    until = time.monotonic() + PATIENCE_SECONDS
    while True:
        try:
            return socket.create_connection((host, port), timeout=PATIENCE_SECONDS)
        except ConnectionRefusedError:
            assert time.monotonic() < until, "nobody listens"
            time.sleep(0.01)
