"""Answers scrapes over HTTP from one thread, with limits on connections, bytes and time.

It serves one page and reads no file by name: https://prometheus.io/docs/instrumenting/exposition_formats/
"""

from __future__ import annotations

import asyncio
import re
import signal
import socket
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from urllib.parse import urlsplit

from trainspec_record.endpoint.exposition import CONTENT_TYPE
from trainspec_record.guard import never_raises, tell_once

PATH = "/metrics"
MAX_CONNECTIONS = 16
"""Connections that are open at once; further ones are closed without an answer."""
MAX_REQUEST_BYTES = 8_192
"""Line and fields of a request; a body is not read."""
MAX_SECONDS = 10.0
"""From the first byte of a connection to its last."""
PAGE_SECONDS = 1.0
"""Answers within this time are equal, so that scrapes cost no more than one look each second."""
LOOK_SECONDS = 5.0
"""Time between two looks at the streams without a scrape, so that little waits for the next one."""
STOP_SECONDS = 2.0
"""Longest time that the end of the process waits for the thread."""
_LINE = re.compile(r"([!#$%&'*+.^_`|~0-9A-Za-z-]+) (\S+) HTTP/([0-9])\.[0-9]")
_REASONS = {
    200: "OK",
    400: "Bad Request",
    404: "Not Found",
    405: "Method Not Allowed",
    431: "Request Header Fields Too Large",
    500: "Internal Server Error",
    505: "HTTP Version Not Supported",
}


class Server:
    """Serves a page from a thread that ends with the process; nothing else of the process waits for it."""

    def __init__(self, listener: socket.socket, page: Callable[[], bytes], look: Callable[[], None]) -> None:
        self._listener = listener
        self._page, self._look = never_raises(None)(page), never_raises(None)(look)
        self._loop: asyncio.AbstractEventLoop | None = None
        self._end: asyncio.Event | None = None
        self._is_decided = threading.Event()
        """Whether the thread answers, or has failed to."""
        self._num_open = 0
        self._made: tuple[float, bytes | None] | None = None
        self._thread = threading.Thread(target=self._run, name="trainspec-endpoint", daemon=True)

    def start(self) -> None:
        """Begin to answer; signals stay with the threads that wait for them.

        Raises:
            RuntimeError: the process cannot start a thread.
        """
        before = signal.pthread_sigmask(signal.SIG_BLOCK, signal.valid_signals())
        try:
            self._thread.start()
        finally:
            signal.pthread_sigmask(signal.SIG_SETMASK, before)

    def stop(self) -> None:
        """Close the address."""
        self._is_decided.wait(STOP_SECONDS)
        if self._loop is not None and self._end is not None:
            with suppress(RuntimeError):  # the loop has ended
                self._loop.call_soon_threadsafe(self._end.set)
        self._thread.join(STOP_SECONDS)

    @never_raises(None)
    def _run(self) -> None:
        try:
            asyncio.run(self._serve())
        finally:
            self._is_decided.set()
            self._listener.close()

    async def _serve(self) -> None:
        self._end, self._loop = asyncio.Event(), asyncio.get_running_loop()
        self._loop.set_exception_handler(lambda _, told: tell_once(f"the endpoint: {told['message']}"))
        async with await asyncio.start_server(self._connected, sock=self._listener, limit=MAX_REQUEST_BYTES):
            self._is_decided.set()
            while not self._end.is_set():
                self._look()
                with suppress(TimeoutError):
                    await asyncio.wait_for(self._end.wait(), LOOK_SECONDS)

    async def _connected(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        if self._num_open >= MAX_CONNECTIONS:
            writer.transport.abort()
            return
        self._num_open += 1
        try:
            async with asyncio.timeout(MAX_SECONDS):
                writer.write(await self._answer(reader))
                writer.close()
                await writer.wait_closed()
        except (OSError, EOFError, TimeoutError):
            pass
        finally:
            self._num_open -= 1
            writer.transport.abort()

    async def _answer(self, reader: asyncio.StreamReader) -> bytes:
        try:
            request = await reader.readuntil(b"\r\n\r\n")
        except asyncio.LimitOverrunError:
            return response(431, b"")
        status, is_head = judge(request)
        content = self._content() if status == 200 else b""
        return response(500, b"") if content is None else response(status, content, is_head=is_head)

    def _content(self) -> bytes | None:
        now = time.monotonic()
        if self._made is None or now - self._made[0] >= PAGE_SECONDS:
            self._made = now, self._page()
        return self._made[1]


def judge(request: bytes) -> tuple[int, bool]:
    """Status of the answer to a request, and whether it is asked for without its content.

    >>> judge(b"GET /metrics HTTP/1.1"), judge(b"POST /metrics HTTP/1.1")
    ((200, False), (405, False))
    """
    match = _LINE.fullmatch(request.partition(b"\r\n")[0].decode("latin-1"))
    if match is None:
        return 400, False
    method, target, version = match.groups()
    is_head = method == "HEAD"
    if version != "1":
        return 505, is_head
    if method not in {"GET", "HEAD"}:
        return 405, False
    try:
        path = urlsplit(target).path
    except ValueError:
        return 400, is_head
    return (200 if path == PATH else 404), is_head


def response(status: int, content: bytes, *, is_head: bool = False) -> bytes:
    """An answer, after which the connection is closed."""
    kind = CONTENT_TYPE if status == 200 else "text/plain; charset=utf-8"
    content = content if status == 200 else f"{status} {_REASONS[status]}\n".encode()
    fields = [
        f"HTTP/1.1 {status} {_REASONS[status]}",
        f"Content-Type: {kind}",
        f"Content-Length: {len(content)}",
        "Cache-Control: no-store",
        "X-Content-Type-Options: nosniff",
        "Connection: close",
        *(["Allow: GET, HEAD"] if status == 405 else []),
    ]
    return "\r\n".join([*fields, "", ""]).encode("ascii") + (b"" if is_head else content)
