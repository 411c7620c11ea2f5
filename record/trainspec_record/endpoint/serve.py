"""Opens the endpoint that a command line asks for; where it cannot, training goes without."""

from __future__ import annotations

import socket
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import NamedTuple

from trainspec_record import printing
from trainspec_record.endpoint.live import Live
from trainspec_record.endpoint.server import PATH, Server
from trainspec_record.identity import identity

LOOPBACK = "127.0.0.1"
EVERYWHERE = frozenset({"", "*"})


class Address(NamedTuple):
    """Where the endpoint listens."""

    host: str
    port: int

    def __str__(self) -> str:
        """As it is written in a URL."""
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"


def address(text: str) -> Address:
    """The address that a text names; a port alone is one of the loopback interface.

    Raises:
        ValueError: it names none.

    >>> str(address("9464")), str(address("[::1]:9464"))
    ('127.0.0.1:9464', '[::1]:9464')
    """
    host, colon, port = text.rpartition(":")
    host = host if colon else LOOPBACK
    if host in EVERYWHERE:
        raise ValueError(f"{text!r} names no interface: {LOOPBACK}:{port} for this host alone, 0.0.0.0:{port} for all")
    bare = host[1:-1] if host.startswith("[") and host.endswith("]") else host
    is_port = port.isascii() and port.isdecimal() and len(port) <= 5 and int(port) < 65_536
    if not is_port or (":" in bare) != (bare != host):
        raise ValueError(f"{text!r} is no address to listen at, such as {LOOPBACK}:9464 or [::1]:9464")
    return Address(bare, int(port))


@contextmanager
def endpoint(wanted: Address | None, environment: Mapping[str, str], *, all_hosts: bool = False) -> Iterator[None]:
    """Serve the run of an environment while the block lasts, from the first process of the launcher on a node."""
    who = identity(environment) if wanted is not None else None
    server = None
    if wanted is not None and who is not None and not who.local_rank:
        live = Live(who, all_hosts=all_hosts)
        try:
            listener = _listen(wanted)
            server = Server(listener, live.page, live.follow)
            server.start()
        except (OSError, RuntimeError) as error:
            why = (error.strerror or str(error)).lower() if isinstance(error, OSError) else str(error)
            printing.tell(f"nothing is served at {wanted}: {why}; the run continues without")
            server = None
        else:
            found = Address(*listener.getsockname()[:2])
            printing.tell(f"metrics for Prometheus are at http://{found}{PATH}")
    try:
        yield
    finally:
        if server is not None:
            server.stop()


def _listen(wanted: Address) -> socket.socket:
    """A socket that listens.

    Raises:
        OSError: the address is taken, or none of this host.
    """
    family, _, _, _, place = socket.getaddrinfo(*wanted, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)[0]
    is_dual = wanted.host == "::" and socket.has_dualstack_ipv6()
    return socket.create_server(place[:2], family=family, dualstack_ipv6=is_dual)
