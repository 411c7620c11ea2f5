"""Carries messages between the controller and its workers: JSON, one object a line, over TCP."""

from __future__ import annotations

import os
import socket
import threading
from collections.abc import Callable, Iterator

import msgspec

from trainspec_reference.common.messages import FromController, FromWorker, Hello

LOOPBACK = "127.0.0.1"
MAX_LINE_BYTES = 1 << 22
_CHUNK_BYTES = 1 << 16
_TIMEOUT_SECONDS = 20.0
_from_worker = msgspec.json.Decoder(FromWorker)
_from_controller = msgspec.json.Decoder(FromController)
_encoder = msgspec.json.Encoder()


class ChannelError(Exception):
    """The other side is gone, or says what cannot be understood."""


class Lines:
    """Bytes as they come, cut into lines."""

    def __init__(self) -> None:
        self._rest = b""

    def feed(self, content: bytes) -> Iterator[bytes]:
        """The lines that are whole now.

        Raises:
            ChannelError: a line is longer than the limit.
        """
        *lines, self._rest = (self._rest + content).split(b"\n")
        if len(self._rest) > MAX_LINE_BYTES:
            raise ChannelError(f"a line is longer than {MAX_LINE_BYTES:,} bytes")
        yield from lines


class Channel:
    """The controller's end of the connection to one worker; it never waits."""

    def __init__(self, connection: socket.socket) -> None:
        connection.setblocking(False)
        self._connection = connection
        self._lines = Lines()
        self._unsent = b""

    def fileno(self) -> int:
        """For a selector."""
        return self._connection.fileno()

    def receive(self) -> list[FromWorker]:
        """Messages received since the last call.

        Raises:
            ChannelError: the worker has closed the connection, or sent an invalid message.
        """
        try:
            content = self._connection.recv(_CHUNK_BYTES)
            if not content:
                raise ChannelError("the connection is closed")
            return [_from_worker.decode(line) for line in self._lines.feed(content)]
        except BlockingIOError:
            return []
        except (OSError, msgspec.MsgspecError) as error:
            raise ChannelError(str(error)) from error

    def send(self, message: FromController) -> None:
        """Say something; what does not fit now goes out with the next call of `flush`."""
        self._unsent += _encoder.encode(message) + b"\n"
        self.flush()

    def flush(self) -> None:
        """Send queued messages; `receive` reports a broken connection."""
        try:
            while self._unsent:
                self._unsent = self._unsent[self._connection.send(self._unsent) :]
        except OSError:
            return

    @property
    def is_open(self) -> bool:
        """Whether this end was not closed."""
        return self._connection.fileno() >= 0

    def close(self) -> None:
        """Close the connection."""
        self._connection.close()


class Link:
    """A worker's end of the connection to its controller; a thread of its own reads it."""

    def __init__(self, address: str, hello: Hello, lost_exit_code: int, lease_seconds: float | None = None) -> None:
        """Connect; a controller that says nothing for as long as the lease counts as gone, and this process ends.

        Raises:
            OSError: the controller is not reached.
        """
        host, _, port = address.rpartition(":")
        self._connection = socket.create_connection((host, int(port)), timeout=_TIMEOUT_SECONDS)
        self._connection.settimeout(lease_seconds)
        self._connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._lock = threading.Lock()
        self._lost_exit_code = lost_exit_code
        self.say(hello)

    def say(self, message: FromWorker) -> None:
        """Report to the controller; a worker without one exits at once, so that no unsupervised process writes."""
        try:
            with self._lock:
                self._connection.sendall(_encoder.encode(message) + b"\n")
        except OSError:
            os._exit(self._lost_exit_code)

    def listen(self, heard: Callable[[FromController], None]) -> None:
        """Call `heard` with all that the controller says, from a thread that ends the process with the connection."""
        threading.Thread(target=self._read, args=(heard,), name="channel", daemon=True).start()

    def _read(self, heard: Callable[[FromController], None]) -> None:
        lines = Lines()
        try:
            while content := self._connection.recv(_CHUNK_BYTES):
                for line in lines.feed(content):
                    heard(_from_controller.decode(line))
        except (OSError, ChannelError, msgspec.MsgspecError):
            pass
        finally:
            os._exit(self._lost_exit_code)


def free_address(address: str = LOOPBACK) -> str:
    """`host:port` of this host that is free now."""
    with socket.create_server((address, 0)) as probe:
        host, port = probe.getsockname()
        return f"{host}:{port}"
