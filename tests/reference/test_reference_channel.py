"""Tests the channel between controller and workers, and the authentication on it."""

from __future__ import annotations

import socket
import sys
import time
from collections.abc import Iterator

import pytest
from trainspec_reference.common import messages as say
from trainspec_reference.common.channel import MAX_LINE_BYTES, Channel, ChannelError, Lines, Link
from trainspec_reference.common.crew import CONTROLLER, NUMBER, TOKEN, Clock, Crew

HELLO = say.Hello(token="t", worker=0, can_rejoin=True)
SAY_HELLO = f"""
import os, sys, time
from trainspec_reference.common import messages as say
from trainspec_reference.common.channel import Link
hello = say.Hello(token=os.environ["{TOKEN}"], worker=int(os.environ["{NUMBER}"]), can_rejoin=True)
link = Link(os.environ["{CONTROLLER}"], hello, 4)
link.listen(lambda message: link.say(say.Pong()))
time.sleep(60)
"""


@pytest.fixture
def pair() -> Iterator[tuple[Channel, socket.socket]]:
    ours, theirs = socket.socketpair()
    channel = Channel(ours)
    yield channel, theirs
    channel.close()
    theirs.close()


def test_lines_are_whole_and_bounded() -> None:
    lines = Lines()
    assert list(lines.feed(b"a\nb")) == [b"a"]
    assert list(lines.feed(b"c\n\n")) == [b"bc", b""]
    with pytest.raises(ChannelError, match="longer"):
        list(lines.feed(b"x" * (MAX_LINE_BYTES + 1)))


@pytest.mark.parametrize(
    "line",
    [
        b"garbage",
        b"{}",
        b'{"say":"done","formation":0,"step":-1}',
        b'{"say":"begun","formation":0,"checkpoint":"../up","step":1,"state":""}',
        b'{"say":"hashed","checkpoint":"c","files":[{"path":"p","size_bytes":1,"sha256":"0"}]}',
        b'{"say":"form"}',
    ],
)
def test_what_is_no_message_ends_the_connection(pair: tuple[Channel, socket.socket], line: bytes) -> None:
    channel, theirs = pair
    theirs.sendall(line + b"\n")
    with pytest.raises(ChannelError):
        channel.receive()


def test_messages_arrive_in_order_and_the_end_is_an_error(pair: tuple[Channel, socket.socket]) -> None:
    channel, theirs = pair
    assert channel.receive() == []
    theirs.sendall(b'{"say":"pong"}\n{"say":"done","formation":2,"step":3}\n')
    assert channel.receive() == [say.Pong(), say.Done(formation=2, step=3)]
    theirs.close()
    with pytest.raises(ChannelError, match="closed"):
        channel.receive()


def test_a_worker_that_takes_nothing_does_not_stop_the_controller(pair: tuple[Channel, socket.socket]) -> None:
    channel, theirs = pair
    message = say.SaveEnded(checkpoint="c", reason="r" * 4000)
    for _ in range(1000):
        channel.send(message)
    received = 0
    while received < 4_000_000:
        received += len(theirs.recv(1 << 20))
        channel.flush()


def greeted(crew: Crew) -> list[Channel]:
    """Connections that have said something, after a while."""
    until = time.monotonic() + 600
    while time.monotonic() < until:
        found = [source for source in crew.wait(0.1) if isinstance(source, Channel)]
        if found:
            return found
    raise AssertionError("nobody came")


def test_only_workers_of_the_run_are_recognised() -> None:
    crew = Crew(Clock(), [sys.executable, "-c", SAY_HELLO], {"PATH": ""})
    try:
        worker = crew.start("node-0")
        (channel,) = greeted(crew)
        (hello,) = channel.receive()
        assert isinstance(hello, say.Hello)
        assert crew.recognise(channel, say.Hello(token="guess", worker=0, can_rejoin=True)) is None
        assert crew.recognise(channel, hello) is worker
        assert crew.recognise(channel, hello) is None
        worker.tell(say.Ping())
        (answering,) = greeted(crew)
        assert answering.receive() == [say.Pong()]
        crew.close(channel)
        assert worker.process.wait(600) == 4
        assert list(crew.exited()) == [worker]
    finally:
        crew.end_all()


def test_a_worker_finds_no_controller() -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        address = f"127.0.0.1:{server.getsockname()[1]}"
    with pytest.raises(OSError, match="refused"):
        Link(address, HELLO, 4)
