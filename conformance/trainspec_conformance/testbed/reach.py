"""Finds which peers a worker reaches, and makes the worker reachable."""

from __future__ import annotations

import contextlib
import selectors
import socket
import threading
import time
from collections.abc import Iterable

_TRIED_SECONDS = 1.5
"""Time that a peer has to answer: a packet may be lost, and is sent again after a second."""


class Doorbell:
    """Answers each connection by taking it, and says nothing."""

    def __init__(self, address: str) -> None:
        self._socket = socket.create_server((address, 0), backlog=64)
        threading.Thread(target=self._answer, name="doorbell", daemon=True).start()

    @property
    def address(self) -> str:
        """`host:port` to connect to."""
        host, port = self._socket.getsockname()
        return f"{host}:{port}"

    def _answer(self) -> None:
        with contextlib.suppress(OSError):
            while True:
                self._socket.accept()[0].close()


def reached(addresses: Iterable[str], seconds: float = _TRIED_SECONDS) -> tuple[str, ...]:
    """Those of some addresses that take a connection in time; all are tried at once."""
    found: list[str] = []
    end = time.monotonic() + seconds
    with selectors.DefaultSelector() as selector:
        for address in addresses:
            host, _, port = address.rpartition(":")
            one = socket.socket()
            one.setblocking(False)
            one.connect_ex((host, int(port)))
            selector.register(one, selectors.EVENT_WRITE, address)
        while selector.get_map() and (left := end - time.monotonic()) > 0:
            for key, _ in selector.select(left):
                one = key.fileobj  # type: ignore[assignment]
                if one.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR) == 0:
                    found.append(key.data)
                selector.unregister(one)
                one.close()
        for key in list(selector.get_map().values()):
            key.fileobj.close()  # type: ignore[union-attr]
    return tuple(found)
