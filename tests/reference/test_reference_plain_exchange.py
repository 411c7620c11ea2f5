"""Connections of plain workers: peers that do not come, go away, or are strangers."""

from __future__ import annotations

import socket
import threading
from dataclasses import replace

import pytest
from trainspec_conformance.testbed.plain.exchange import Exchange
from trainspec_reference.common.backend import PeerLostError

from tests.reference.plain_crew import formations


def test_a_peer_that_does_not_come_is_told() -> None:
    place = replace(next(formations(2)), timeout_seconds=0.2)
    with pytest.raises(PeerLostError, match="did not come together"):
        Exchange(place)
    with pytest.raises(PeerLostError, match="did not come together"):
        Exchange(replace(place, rank=1))


def test_a_peer_that_is_gone_or_silent_is_told() -> None:
    places = [replace(place, timeout_seconds=0.3) for place in formations(2)]
    found: list[Exchange] = []
    thread = threading.Thread(target=lambda: found.append(Exchange(places[1])))
    thread.start()
    first = Exchange(places[0])
    thread.join(5)
    with pytest.raises(PeerLostError, match="rank 1 says nothing"):
        first.gather(b"")
    found[0].close()
    with pytest.raises(PeerLostError, match="rank 1 says nothing"):
        first.gather(b"")
    first.close()


def test_a_worker_of_another_formation_is_not_let_in() -> None:
    place = replace(next(formations(2)), timeout_seconds=0.5)
    host, _, port = place.address.partition(":")

    def intrude() -> None:
        with socket.create_connection((host, int(port)), timeout=5) as stranger:
            stranger.sendall(bytes([1, 0, 0, 0, 9, 0, 0, 0]))
            stranger.settimeout(5)
            assert stranger.recv(1) == b""

    errors: list[PeerLostError] = []

    def serve() -> None:
        try:
            Exchange(place)
        except PeerLostError as error:
            errors.append(error)

    server = threading.Thread(target=serve)
    server.start()
    for _ in range(100):
        try:
            intrude()
            break
        except ConnectionRefusedError:
            threading.Event().wait(0.01)
    server.join(10)
    assert len(errors) == 1
