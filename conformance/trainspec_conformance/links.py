"""Joins the networks that a trial has on nodes with one on the machine of the suite, which carries all packets."""

from __future__ import annotations

import base64
import binascii
import contextlib
import os
import random
import secrets
import socket
import subprocess
import threading
from collections.abc import Mapping
from pathlib import Path

from trainspec_conformance.agent import lines_of
from trainspec_conformance.host_faults import COMMAND
from trainspec_conformance.node_network import NODE_MTU_BYTES, open_device
from trainspec_conformance.nodes import START_SECONDS, Node, NodeError
from trainspec_conformance.privileges import NotAllowedError
from trainspec_conformance.wire import Wire
from trainspec_validate.interop.collect import variables

DEVICE = "trainspec%d"
"""Name of the device of the suite; the kernel puts a number in."""
_SUBNETS = tuple(f"198.18.{number}" for number in range(256))
"""Addresses that no network may use but in tests of networks, https://www.rfc-editor.org/rfc/rfc2544#appendix-C.2.2"""
_ROUTES = Path("/proc/net/route")
_END_SECONDS = 5.0
_MOST_BYTES = 1 << 16


class Link:
    """A process on a node that holds a network with one device, and passes its packets to and from this one."""

    def __init__(self, node: Node, address: str) -> None:
        """Start it.

        Raises:
            NotAllowedError: the node does not allow it.
            NodeError: it does not begin.
        """
        self._node = node.name
        word = secrets.token_hex(16)
        self._process = subprocess.Popen(  # noqa: S603 - the words of a way, with a checked name of a node
            node.program("link", address, word),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            env=variables(),
            start_new_session=True,
        )
        assert self._process.stdin is not None and self._process.stdout is not None  # noqa: S101, PT018 - for the type checker
        self._to_it, self._lines = self._process.stdin, lines_of(self._process.stdout.fileno())
        ours, self._inner = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self._outer = ours
        self.device = ours.fileno()
        """File of which each read and write is a packet of the node."""
        self._threads = [threading.Thread(target=one, daemon=True) for one in (self._receive, self._send)]
        self._is_over = False
        self.is_broken = False
        """Whether it ended before it was closed."""
        try:
            self._begin(word.encode())
        except (NotAllowedError, NodeError):
            self.close()
            raise
        for one in self._threads:
            one.start()

    def _begin(self, word: bytes) -> None:
        late = threading.Timer(START_SECONDS, self._process.kill)
        late.start()
        try:
            said = next((line for line in self._lines if line.startswith(word)), None)
        finally:
            late.cancel()
        if said is None:
            raise NodeError(f"{self._node}: the process that carries its packets has not begun")
        if reason := said[len(word) :].strip().decode("utf-8", "replace"):
            raise NotAllowedError(f"{self._node}: {reason}")

    def _receive(self) -> None:
        for line in self._lines:
            with contextlib.suppress(OSError, binascii.Error):
                self._inner.send(base64.b64decode(line)[:_MOST_BYTES])
        self.is_broken = not self._is_over

    def _send(self) -> None:
        with contextlib.suppress(OSError):
            while packet := self._inner.recv(_MOST_BYTES):
                self._to_it.write(base64.b64encode(packet) + b"\n")
                self._to_it.flush()

    def close(self) -> None:
        """End it."""
        self._is_over = True
        self._inner.shutdown(socket.SHUT_RDWR)
        started = [one for one in self._threads if one.ident is not None]
        for one in started[1:]:
            one.join(_END_SECONDS)
        with contextlib.suppress(OSError, ValueError):
            self._to_it.close()
        try:
            self._process.wait(_END_SECONDS)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        for one in started:
            one.join(_END_SECONDS)
        if self._process.stdout is not None:
            self._process.stdout.close()
        self._inner.close()
        self._outer.close()


class Links:
    """One network of nodes and of the command: packets of the trial pass through this process, and no others do."""

    def __init__(self, nodes: Mapping[str, Node]) -> None:
        """Make it.

        Raises:
            NotAllowedError: this machine or a node does not allow it.
            NodeError: a node does not answer.
        """
        subnet = _free_subnet()
        self.addresses = {name: f"{subnet}.{number}" for number, name in enumerate((COMMAND, *nodes), start=1)}
        """Of each host, by its name."""
        with contextlib.ExitStack() as made:
            try:
                device = open_device(self.addresses[COMMAND], DEVICE, NODE_MTU_BYTES)
            except OSError as error:
                raise NotAllowedError(f"this machine: a device of the network cannot be made: {error}") from error
            made.callback(os.close, device)
            self._links: list[Link] = []
            for name, node in nodes.items():
                self._links.append(Link(node, self.addresses[name]))
                made.callback(self._links[-1].close)
            devices = [device, *(one.device for one in self._links)]
            self.wire = Wire(dict(zip(self.addresses.values(), devices, strict=True)))
            made.callback(self.wire.close)
            self._made = made.pop_all()

    @property
    def is_broken(self) -> bool:
        """Whether a node has left the network by itself."""
        return any(one.is_broken for one in self._links)

    def close(self) -> None:
        """Take all of it down."""
        self._made.close()


def _free_subnet() -> str:
    """Start of 254 addresses to which no route of this machine leads, but for one that leads everywhere.

    Raises:
        NotAllowedError: there are none.
    """
    routes = [line.split() for line in _ROUTES.read_text(encoding="ascii").splitlines()[1:]]
    taken = [(int(fields[1], 16), int(fields[7], 16)) for fields in routes]  # in the order of bytes of this machine
    free = [one for one in _SUBNETS if not any(mask and _number(one) & mask == to for to, mask in taken)]
    if not free:
        raise NotAllowedError("this machine: all addresses in 198.18.0.0/16 are taken by its routes")
    return random.choice(free)  # noqa: S311 - nothing secret


def _number(subnet: str) -> int:
    return int.from_bytes(socket.inet_aton(f"{subnet}.0"), "little")
