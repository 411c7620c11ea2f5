"""Implements collective operations between plain workers, through rank 0, over TCP."""

from __future__ import annotations

import contextlib
import socket
import struct
import time
from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
from trainspec_reference.common.backend import Formation, PeerLostError

from trainspec_conformance.testbed.plain.formats import summed

_HELLO = struct.Struct("<II")
_LENGTH = struct.Struct("<Q")
_RETRY_SECONDS = 0.02
Array = npt.NDArray[Any]


class Exchange:
    """The connections of one formation. Every operation is called by all ranks, in the same order.

    Raises:
        PeerLostError: a peer did not come, is gone, or does not answer in the time of the formation.
    """

    def __init__(self, formation: Formation) -> None:
        self.rank, self.num_ranks = formation.rank, formation.num_ranks
        self._formation = formation
        self._sockets: dict[int, socket.socket] = {}
        host, _, port = formation.address.rpartition(":")
        if self.num_ranks > 1:
            try:
                self._listen(host, int(port)) if self.rank == 0 else self._connect(host, int(port))
            except OSError as error:
                self.close()
                raise PeerLostError(f"formation {formation.number} did not come together: {error}") from error

    def _listen(self, host: str, port: int) -> None:
        deadline = time.monotonic() + self._formation.timeout_seconds
        with socket.create_server((host, port), backlog=self.num_ranks) as server:
            while len(self._sockets) < self.num_ranks - 1:
                server.settimeout(max(deadline - time.monotonic(), 0.001))
                connection, _ = server.accept()
                self._prepare(connection)
                rank, number = _HELLO.unpack(_received(connection, _HELLO.size))
                if number == self._formation.number and 0 < rank < self.num_ranks:
                    self._sockets[rank] = connection
                else:
                    connection.close()

    def _connect(self, host: str, port: int) -> None:
        deadline = time.monotonic() + self._formation.timeout_seconds
        while True:
            try:
                connection = socket.create_connection((host, port), timeout=_RETRY_SECONDS * 50)
                break
            except OSError:
                if time.monotonic() > deadline:
                    raise
                time.sleep(_RETRY_SECONDS)
        self._prepare(connection)
        self._sockets[0] = connection
        connection.sendall(_HELLO.pack(self.rank, self._formation.number))

    def _prepare(self, connection: socket.socket) -> None:
        connection.settimeout(self._formation.timeout_seconds)
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)

    def close(self) -> None:
        """Give all connections up, so that waiting peers get an error."""
        for connection in self._sockets.values():
            with contextlib.suppress(OSError):
                connection.shutdown(socket.SHUT_RDWR)
            connection.close()
        self._sockets.clear()

    # --- operations -----------------------------------------------------------------------------------------

    def gather(self, payload: bytes) -> list[bytes]:
        """The payload of each rank, in order of rank."""
        if self.num_ranks == 1:
            return [payload]
        if self.rank != 0:
            self._send(0, payload)
            return [self._receive(0) for _ in range(self.num_ranks)]
        found = [payload, *(self._receive(rank) for rank in range(1, self.num_ranks))]
        for rank in range(1, self.num_ranks):
            for each in found:
                self._send(rank, each)
        return found

    def gather_numbers(self, values: Sequence[float]) -> list[list[float]]:
        """The numbers of each rank, in order of rank."""
        payload = np.asarray(values, np.float64).tobytes()
        return [np.frombuffer(each, np.float64).tolist() for each in self.gather(payload)]

    def total(self, vector: Array, number_format: str) -> Array:
        """Sum of the vectors of all ranks, added in order of rank in a format; the same bits on every rank."""
        if self.num_ranks == 1:
            return summed([vector], number_format)
        if self.rank != 0:
            self._send(0, vector.tobytes())
            width = np.float64 if number_format == "fp64" else np.float32
            return np.frombuffer(self._receive(0), width).copy()
        others = (np.frombuffer(self._receive(rank), vector.dtype) for rank in range(1, self.num_ranks))
        found = summed([vector, *others], number_format)
        for rank in range(1, self.num_ranks):
            self._send(rank, found.tobytes())
        return found

    def copy_from(self, source: int, payload: bytes) -> bytes:
        """The payload of one rank, on every rank."""
        return self.gather(payload if self.rank == source else b"")[source]

    def _send(self, rank: int, payload: bytes) -> None:
        try:
            self._sockets[rank].sendall(_LENGTH.pack(len(payload)) + payload)
        except (OSError, KeyError) as error:
            raise PeerLostError(f"rank {rank} takes nothing: {error}") from error

    def _receive(self, rank: int) -> bytes:
        try:
            (length,) = _LENGTH.unpack(_received(self._sockets[rank], _LENGTH.size))
            return _received(self._sockets[rank], length)
        except (OSError, KeyError) as error:
            raise PeerLostError(f"rank {rank} says nothing: {error}") from error


def _received(connection: socket.socket, num_bytes: int) -> bytes:
    found = bytearray()
    while len(found) < num_bytes:
        part = connection.recv(min(num_bytes - len(found), 1 << 20))
        if not part:
            raise ConnectionError("it has closed the connection")
        found += part
    return bytes(found)
