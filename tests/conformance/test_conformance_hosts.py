"""Hosts of a trial: packets that are lost or late, clocks that are wrong, devices that fail, memory that ends."""

from __future__ import annotations

import errno
import os
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import msgspec
import pytest
from conformance_stacks import failed, fake, run, scenario
from trainspec_conformance import memory
from trainspec_conformance.clocks import Clocks
from trainspec_conformance.failing_device import FailingDevice
from trainspec_conformance.history import read_history
from trainspec_conformance.memory import MemoryGroup
from trainspec_conformance.network import Network
from trainspec_conformance.privileges import NotAllowedError
from trainspec_conformance.records import Waited
from trainspec_conformance.trial import HISTORY
from trainspec_conformance.wire import Wire

SECONDS = 600
NUM_PACKETS = 8
"""As many as a socket holds on any machine, see `net.unix.max_dgram_qlen`."""
ADDRESSES = ("10.0.0.1", "10.0.0.2", "10.0.0.3")


def packet(target: str, word: bytes) -> bytes:
    return bytes([0x45]) + bytes(15) + socket.inet_aton(target) + word


class Ends:
    """The ends of devices that a wire does not hold: what a host sends is written there, what it gets is read."""

    def __init__(self) -> None:
        pairs = [socket.socketpair(socket.AF_UNIX, socket.SOCK_DGRAM) for _ in ADDRESSES]
        self._held = [held for _, held in pairs]
        self._ends = dict(zip(ADDRESSES, (end for end, _ in pairs), strict=True))
        self.wire = Wire({address: held.fileno() for address, held in zip(ADDRESSES, self._held, strict=True)})

    def send(self, source: str, target: str, word: bytes) -> None:
        self._ends[source].send(packet(target, word))

    def get(self, address: str) -> bytes:
        self._ends[address].settimeout(SECONDS)
        return self._ends[address].recv(1 << 16)[20:]

    def close(self) -> None:
        self.wire.close()
        for one in (*self._held, *self._ends.values()):
            one.close()


@pytest.fixture
def ends() -> Iterator[Ends]:
    made = Ends()
    yield made
    made.close()


def test_what_is_cut_is_lost_on_both_ways_and_nothing_else(ends: Ends) -> None:
    one, two, three = ADDRESSES
    ends.wire.cut([one], [two])
    for source, target in ((one, two), (two, one)):
        ends.send(source, target, b"lost")
        ends.send(source, three, b"carried")  # in the order in which they were sent: the one before was dropped by now
        assert ends.get(three) == b"carried"
    ends.wire.mend()
    ends.send(two, one, b"again")
    assert ends.get(one) == b"again"


def test_what_is_late_is_kept_while_the_rest_is_carried(ends: Ends) -> None:
    one, two, three = ADDRESSES
    ends.wire.delay([one], 3600, 0.0)
    ends.send(one, two, b"late")
    ends.send(three, two, b"soon")
    assert ends.get(two) == b"soon"


def test_what_was_late_arrives(ends: Ends) -> None:
    one, two, _ = ADDRESSES
    ends.wire.delay([two], 0.01, 0.0)
    ends.send(one, two, b"late")
    assert ends.get(two) == b"late"


def test_lost_packets_are_not_delivered(ends: Ends) -> None:
    one, two, _ = ADDRESSES
    ends.wire.delay([one], 0.0, 0.5)
    for _ in range(NUM_PACKETS):
        ends.send(one, two, b"perhaps")
    ends.send(two, two, b"last")
    found = iter(lambda: ends.get(two), b"last")
    assert len(list(found)) < NUM_PACKETS


def test_what_is_no_packet_for_a_host_is_dropped(ends: Ends) -> None:
    one, two, _ = ADDRESSES
    ends._ends[one].send(b"")
    ends._ends[one].send(bytes([0x60]) + bytes(60))
    ends.send(one, "192.0.2.1", b"nobody")
    ends.send(one, two, b"carried")
    assert ends.get(two) == b"carried"


ECHO = """
import socket, sys
with socket.create_server((sys.argv[1], 5000)) as server:
    print("ready", flush=True)
    connection, _ = server.accept()
    while word := connection.recv(100):
        connection.sendall(word)
"""
ASK = """
import socket, sys
with socket.create_connection((sys.argv[1], 5000), timeout=600) as peer:
    for line in sys.stdin:
        peer.settimeout(0.5 if line == "silent\\n" else 60)
        peer.sendall(line.encode())
        try:
            print(peer.recv(100).decode().split()[0], flush=True)
        except TimeoutError:
            print("nothing", flush=True)
"""


def test_a_connection_between_hosts_outlives_a_cut_that_nobody_is_told_of() -> None:
    try:
        made = Network(2)
    except NotAllowedError as error:
        pytest.skip(str(error))
    first, second = made.hosts
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "text": True, "bufsize": 1}
    server = subprocess.Popen([*first.enter, sys.executable, "-c", ECHO, first.address], **pipes)
    try:
        assert server.stdout.readline() == "ready\n"
        client = subprocess.Popen([*second.enter, sys.executable, "-c", ASK, first.address], **pipes)
        try:
            told = [_asked(client, "one")]
            assert (first.holds(server.pid), first.holds(client.pid), second.holds(client.pid)) == (True, False, True)
            made.wire.cut([first.address], [second.address])
            told.append(_asked(client, "silent"))
            made.wire.mend()
            told.append(_asked(client, "two"))
            assert told == ["one", "nothing", "silent"], "what was sent into the cut is sent again after it"
        finally:
            _end(client)
    finally:
        _end(server)
        made.close()


def _asked(client: subprocess.Popen, word: str) -> str:
    client.stdin.write(f"{word}\n")
    client.stdin.flush()
    return client.stdout.readline().strip()


def _end(process: subprocess.Popen) -> None:
    process.kill()
    process.communicate()


WRITE = """
import os, sys
for line in sys.stdin:
    try:
        with open(line.strip(), "wb") as file:
            file.write(b"x")
            file.flush()
            os.fsync(file.fileno())
        print(0, flush=True)
    except OSError as error:
        print(error.errno, flush=True)
"""


def test_a_device_fails_for_one_process_below_one_directory(tmp_path: Path) -> None:
    store = tmp_path / "store"
    store.mkdir()
    try:
        device = FailingDevice(store)
    except NotAllowedError as error:
        pytest.skip(str(error))
    process = subprocess.Popen(
        [*device.enter, sys.executable, "-c", WRITE], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    try:
        found = [_asked(process, str(store / "one"))]
        assert device.holds(process.pid)
        device.fail()
        found += [_asked(process, str(path)) for path in (store / "two", tmp_path / "beside")]
        (store / "mine").write_bytes(b"x")
        device.mend()
        found.append(_asked(process, str(store / "three")))
    finally:
        _end(process)
        device.close()
    assert found == ["0", str(errno.EIO), "0", "0"]


TELL = "import sys, time\nfor _ in sys.stdin: print(time.time(), time.monotonic(), flush=True)"


def test_a_clock_is_offset_and_time_that_passes_is_not(tmp_path: Path) -> None:
    try:
        made = Clocks(["one", "two"], tmp_path)
    except NotAllowedError as error:
        pytest.skip(str(error))
    process = subprocess.Popen(
        [*made.enter("one"), sys.executable, "-c", TELL], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    try:
        before = [float(word) for word in _asked(process, "now").split()]
        made.offset("one", -600_000.5)
        made.offset("two", 600_000)
        after = [float(word) for word in _asked(process, "now").split()]
        assert made.holds("one", process.pid)
        assert not made.holds("two", process.pid)
    finally:
        _end(process)
    passed = after[1] - before[1]
    assert passed >= 0
    assert after[0] - before[0] == pytest.approx(passed - 600_000.5, abs=60)


@pytest.fixture
def memory_group() -> Iterator[MemoryGroup]:
    try:
        group = MemoryGroup()
    except NotAllowedError as error:
        pytest.skip(str(error))
    yield group
    group.close()


GROW = """
import sys
held = []
for line in sys.stdin:
    held += [b"x" * (1 << 20) for _ in range(int(line))]
    print(len(held), flush=True)
"""


def growing() -> subprocess.Popen[bytes]:
    """A process that takes as many MiB as a line of its standard input says."""
    process = subprocess.Popen([sys.executable, "-c", GROW], stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    assert process.stdin is not None
    assert process.stdout is not None
    process.stdin.write(b"1\n")
    process.stdin.flush()
    assert process.stdout.readline() == b"1\n"
    return process


@pytest.mark.parametrize("earlier", [b"", b"8\n"], ids=["none", "since-it-came"])
def test_the_kernel_ends_what_takes_more_memory_than_there_is(memory_group: MemoryGroup, earlier: bytes) -> None:
    process = growing()
    assert process.stdin is not None
    assert process.stdout is not None
    try:
        if earlier:
            (memory_group._directory / "cgroup.procs").write_text(f"{process.pid}\n", encoding="ascii")
            process.stdin.write(earlier)
            process.stdin.flush()
            process.stdout.readline()
        memory_group.take([process.pid])
        process.communicate(b"64\n", timeout=SECONDS)
        assert process.returncode == -signal.SIGKILL
    finally:
        process.kill()
        process.wait()
    memory_group.close()
    assert not memory_group._directory.exists()


def test_groups_of_processes_that_have_ended_are_removed(tmp_path: Path) -> None:
    process = subprocess.Popen([sys.executable, "-c", ""])
    process.wait()
    left = tmp_path / f"trainspec-{os.getpid()}-x"
    left.mkdir()
    dead = tmp_path / f"trainspec-{process.pid}-0"
    dead.mkdir()
    memory._sweep(tmp_path)
    assert left.exists(), "its process lives"
    assert not dead.exists()


def _refuses(*_: object) -> None:
    raise NotAllowedError("not here")


MEANS = [
    ("blackhole", Network, {"separate-hosts"}),
    ("partition", Network, {"separate-hosts"}),
    ("late-packets", Network, {"separate-hosts"}),
    ("clock-jump", Clocks, {"separate-hosts", "stream"}),
    ("device-error", FailingDevice, {"separate-hosts"}),
    ("killed-for-memory", MemoryGroup, set()),
]


@pytest.mark.parametrize(("name", "means", "needs"), MEANS, ids=[name for name, *_ in MEANS])
def test_what_the_machine_does_not_allow_is_unsupported_with_the_reason(
    name: str, means: type, needs: set[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(means, "__init__", _refuses)
    stack = fake()
    stack = msgspec.structs.replace(stack, capabilities=(*stack.capabilities, *needs))
    (result,) = run(stack, tmp_path, msgspec.structs.replace(scenario(name), control=False))
    assert (result.state, result.reason) == ("unsupported", "not here")


def test_a_stack_that_does_not_start_on_the_hosts_of_its_task_does_not_pass(tmp_path: Path) -> None:
    stack = fake("stay")
    stack = msgspec.structs.replace(stack, capabilities=(*stack.capabilities, "separate-hosts"))
    (result,) = run(stack, tmp_path, msgspec.structs.replace(scenario("device-error", num_steps=40), control=False))
    if result.state == "unsupported":
        pytest.skip(result.reason)
    assert result.state == "fail"
    assert "acts" in failed(result)
    waited = [
        one.record for one in read_history(result.trials[0].directory / HISTORY) if isinstance(one.record, Waited)
    ]
    assert "does not run on that host of the task" in waited[-1].reason
