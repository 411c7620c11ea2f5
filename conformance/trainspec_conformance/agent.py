"""Acts on the processes of one node for the conformance suite, and leaves nothing there.

The suite calls it on its own machine, and sends it to every other node, where it reads one JSON object per line from a
remote shell. The modules that are sent need Linux and Python 3.8, and nothing else. A second process of the agent waits
for the end of the first, however that comes about, and then ends the processes of all trials, undoes what lasts and
removes the directory.
"""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import platform
import resource
import select
import shutil
import signal
import socket
import struct
import sys
import tempfile
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

MARK = "TRAINSPEC_TRIAL"
"""Variable that every process of a trial inherits: by it those are found that left their session and their parent."""
DUTY_SECONDS = 0.02
"""Period of stopping and continuing, for ranks that are made slow: well below a step."""
ARRIVAL_SECONDS = 30.0
"""Longest time until a signal is seen at a process."""
SILENCE_SECONDS = 90.0
"""After so long without a line of the suite, its connection is lost."""
END_SECONDS = 10.0
"""Longest wait until killed processes are gone."""
MAX_LINE_BYTES = 1 << 20
GONE = "gone"
_ENDED = frozenset({GONE, "Z", "X"})
_STOPPED = _ENDED | {"T", "t"}
_GOES_ON = _ENDED | {"R", "S", "D"}
ARRIVED = {signal.SIGKILL: _ENDED, signal.SIGSTOP: _STOPPED, signal.SIGCONT: _GOES_ON}
"""States of a process at which a signal has arrived; one that was stopped may have been killed by its own."""
ENDING = frozenset({signal.SIGKILL, signal.SIGTERM})
"""Signals that end processes; one of several may have been ended by its launcher, after the first was reached."""
PREFIX = "trainspec-agent-"
"""Of the directory of an agent on its node."""
NODE = "TRAINSPEC_NODE"
"""Variable of commands that the suite has started on a node: the directory of its agent."""
ASKED = "asked"
"""File with the words before a command that make it ask before it writes."""
_MARKS = "marks"
PACKAGE = "trainspec_conformance"
"""Directory of the files of an agent below its own; its program runs what a remote shell starts there."""
_PROGRAM = f"import sys\nfrom {PACKAGE} import node_commands\nnode_commands.main(sys.argv[1:])\n"
_SIOCGIFADDR = 0x8915


class NoTargetError(Exception):
    """There is no living process that an injection aims at."""


class NotPossibleError(Exception):
    """This node does not allow an injection; the text says why."""


class Agent:
    """Finds, signals and slows processes of trials on this machine."""

    def __init__(self) -> None:
        self._slowed: list[_DutyCycle] = []

    def marked(self, mark: str) -> list[list[Any]]:
        """Number and name of every living process of a trial; none that has ended and is only not yet waited for."""
        return [[pid, _name(pid)] for pid in _numbers() if is_marked(pid, mark) and state(pid) not in _ENDED]

    def alive(self, pids: Sequence[int]) -> list[int]:
        """Those of some processes that there are."""
        return [pid for pid in pids if state(pid) != GONE]

    def belonging(self, pids: Sequence[int], mark: str) -> list[int]:
        """Those of some processes that belong to a trial."""
        return [pid for pid in pids if is_marked(pid, mark)]

    def reach(self, pids: Sequence[int], number: int, mark: str) -> None:
        """Signal processes of a trial; the signal has arrived when the call returns.

        Raises:
            NoTargetError: one of them does not belong to the trial, or has ended.
            RuntimeError: the signal is not seen at a process in a time that is ample.
        """
        if set(found := send(pids, number, mark)) != set(pids) and not (found and number in ENDING):
            raise NoTargetError("a process that the trace names does not belong to the trial, or has ended")
        if number in ARRIVED:
            wait_for(pids, ARRIVED[signal.Signals(number)])

    def send(self, pids: Sequence[int], number: int, mark: str) -> None:
        """Signal those of some processes that still belong to a trial."""
        send(pids, number, mark)

    def slow(self, pids: Sequence[int], factor: float, seconds: float, mark: str) -> None:
        """Let processes run for a share of each short period, for some time, or without end if that is 0.

        Raises:
            NoTargetError: one of them does not belong to the trial, or has ended.
            RuntimeError: none of them is seen to rest.
        """
        self.reach(pids, signal.SIGCONT, mark)
        self._slowed.append(_DutyCycle(pids, factor, seconds, mark))
        wait_for(pids, _STOPPED)

    def limit_memory(self, pids: Sequence[int], more_bytes: int, mark: str) -> None:
        """Let the address space of processes of a trial grow by so many bytes and no more.

        Raises:
            NoTargetError: one of them does not belong to the trial, or has ended.
            RuntimeError: the limit is not seen.
        """
        for pid in pids:
            try:
                is_its_own = is_marked(pid, mark)
                size_bytes = int(Path(f"/proc/{pid}/statm").read_text().split()[0]) * resource.getpagesize()
            except OSError:
                is_its_own = False
            if not is_its_own:
                raise NoTargetError("a process that the trace names does not belong to the trial, or has ended")
            limit = size_bytes + more_bytes
            resource.prlimit(pid, resource.RLIMIT_AS, (limit, limit))
            if resource.prlimit(pid, resource.RLIMIT_AS) != (limit, limit):
                raise RuntimeError(f"process {pid}: limit-memory has not arrived")

    def rest(self) -> None:
        """Let all processes run as before."""
        for one in self._slowed:
            one.end()
        self._slowed.clear()

    def end_all(self, mark: str) -> list[list[Any]]:
        """Kill every process of a trial and wait until they are gone; gives those that would not go."""
        self.rest()
        return end_all(mark)


# --- processes ----------------------------------------------------------------------------------------------


def _numbers() -> Iterator[int]:
    return (int(path.name) for path in Path("/proc").iterdir() if path.name.isdecimal())


def _name(pid: int) -> str:
    try:
        return Path(f"/proc/{pid}/comm").read_text(errors="replace").strip()
    except OSError:
        return GONE


def state(pid: int) -> str:
    """Letter of the state of a process, as `proc_pid_stat(5)` has it, or `gone`."""
    try:
        text = Path(f"/proc/{pid}/stat").read_bytes()
    except OSError:
        return GONE
    return text.rpartition(b")")[2].split()[0].decode() if text else GONE


def is_marked(pid: int, mark: str) -> bool:
    """Whether a process belongs to a trial."""
    return has_variable(pid, MARK, mark)


def has_variable(pid: int, name: str, value: str) -> bool:
    """Whether a process began with a variable of this value."""
    try:
        return f"{name}={value}".encode() in Path(f"/proc/{pid}/environ").read_bytes().split(b"\0")
    except OSError:
        return False


def send(pids: Sequence[int], number: int, mark: str) -> tuple[int, ...]:
    """Signal processes, but only those that belong to the trial: a trace may name any number. Gives those reached."""
    reached = []
    for pid in pids:
        with contextlib.suppress(OSError):
            if is_marked(pid, mark):
                os.kill(pid, number)
                reached.append(pid)
    return tuple(reached)


def wait_for(pids: Sequence[int], states: frozenset[str]) -> None:
    """Wait until a signal is seen at each process.

    Raises:
        RuntimeError: it is not, in a time that is ample.
    """
    end = time.monotonic() + ARRIVAL_SECONDS
    for pid in pids:
        while (found := state(pid)) not in states:
            if time.monotonic() > end:
                raise RuntimeError(f"a signal had no effect: process {pid} is in state {found}")
            time.sleep(0.001)


def end_all(mark: str) -> list[list[Any]]:
    """Kill every process of a trial and wait until they are gone; gives those that would not go."""
    agent, deadline = Agent(), time.monotonic() + END_SECONDS
    while True:
        left = agent.marked(mark)
        send([pid for pid, _ in left], signal.SIGKILL, mark)
        if not left or time.monotonic() > deadline:
            return left
        time.sleep(0.02)


class _DutyCycle:
    """Makes processes slower by stopping them for a share of each short period."""

    def __init__(self, pids: Sequence[int], factor: float, seconds: float, mark: str) -> None:
        self._pids, self._mark = tuple(pids), mark
        self._run_seconds = DUTY_SECONDS / factor
        self._rest_seconds = DUTY_SECONDS - self._run_seconds
        self._end = threading.Event()
        self._thread = threading.Thread(target=self._cycle, args=(seconds,), daemon=True)
        self._thread.start()

    def _cycle(self, seconds: float) -> None:
        left = seconds / DUTY_SECONDS if seconds else float("inf")
        while left > 0 and not self._end.is_set() and send(self._pids, signal.SIGSTOP, self._mark):
            self._end.wait(self._rest_seconds)
            send(self._pids, signal.SIGCONT, self._mark)
            self._end.wait(self._run_seconds)
            left -= 1

    def end(self) -> None:
        """Let the processes run as before."""
        self._end.set()
        self._thread.join(timeout=5)
        send(self._pids, signal.SIGCONT, self._mark)


# --- on another node ----------------------------------------------------------------------------------------


class _Served(Agent):
    """An agent that the suite speaks with."""

    def __init__(self, directory: Path) -> None:
        super().__init__()
        self._directory = directory
        self._device: Any = None
        self._clock: Any = None

    def ping(self) -> None:
        """Nothing: the connection is there."""

    def begin(self, mark: str) -> None:
        """Keep in mind what belongs to a trial, for the end of the agent."""
        with (self._directory / _MARKS).open("a") as file:
            file.write(mark + "\n")

    def content(self, path: str) -> str:
        """Text of a small file, by which the suite knows that the node sees it."""
        with Path(path).open("rb") as file:
            return file.read(4096).decode("utf-8", "replace")

    def in_network(self, pids: Sequence[int]) -> list[int]:
        """Those of some processes that run in the network that the suite has made on this node."""
        from trainspec_conformance.node_network import is_inside  # noqa: PLC0415 - this module is there before that one

        return [pid for pid in pids if is_inside(self._directory, pid)]

    def watch_writes(self, directory: str) -> None:
        """Be asked about writes of commands that are started from now on.

        Raises:
            NotAllowedError: the kernel does not let this process be asked.
        """
        from trainspec_conformance.failing_device import FailingDevice  # noqa: PLC0415 - as above

        self.leave_writes()
        self._device = FailingDevice(Path(directory), self._directory)
        (self._directory / ASKED).write_text(json.dumps(self._device.optional))

    def fail_writes(self, number: int) -> None:
        """Let writes to files below the directory end with an error."""
        self._device.fail(number)

    def mend_writes(self) -> None:
        """Let writes succeed again."""
        self._device.mend()

    def num_failed(self) -> int:
        """Writes that have failed since they are watched."""
        return int(self._device.num_failed)

    def ask(self, pids: Sequence[int]) -> list[int]:
        """Those of some processes that were started on this node and ask before they write."""
        return [pid for pid in pids if has_variable(pid, NODE, str(self._directory)) and self._device.holds(pid)]

    def leave_writes(self) -> None:
        """Be asked no more."""
        if self._device is not None:
            self._device.close()
            self._device = None

    def make_clock(self, library: str) -> None:
        """Have a clock for commands that are started from now on.

        Raises:
            NotAllowedError: they do not load the library.
        """
        from trainspec_conformance.node_clock import receive  # noqa: PLC0415 - as above

        self._clock = receive(self._directory, library)

    def offset_clock(self, seconds: float) -> None:
        """Set the clock of these commands so far ahead, or behind."""
        self._clock.offset(seconds)

    def on_clock(self, pids: Sequence[int]) -> list[int]:
        """Those of some processes that have this clock."""
        return [pid for pid in pids if self._clock.holds(pid)]

    def describe(self) -> dict[str, Any]:
        """Fields about this node."""
        address, of_suite = addresses()
        return {
            "directory": os.fspath(self._directory),
            "system": f"{platform.system()} {platform.release()}",
            "num_processors": len(os.sched_getaffinity(0)),
            "memory_bytes": os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES"),
            "machine": machine(),
            "address": address,
            "address_of_suite": of_suite,
            "interface": interface(address),
        }


def machine() -> str:
    """Two nodes with the same text are one machine: the same kernel, numbers of processes and network."""
    parts = [Path("/proc/sys/kernel/random/boot_id").read_text().strip()]
    parts += [str(Path(f"/proc/self/ns/{kind}").stat().st_ino) for kind in ("pid", "net")]
    return " ".join(parts)


def addresses() -> tuple[str, str]:
    """Addresses of this node and of the machine that has started the agent, as far as the remote shell says them."""
    connection = os.environ.get("SSH_CONNECTION", "").split()
    if len(connection) == 4:
        return connection[2], connection[0]
    of_suite = os.environ.get("SLURM_LAUNCH_NODE_IPADDR", "")
    other = of_suite or os.environ.get("KUBERNETES_SERVICE_HOST", "")
    with contextlib.suppress(OSError), socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as found:
        found.connect((other or "127.0.0.1", 9))  # sends nothing
        return str(found.getsockname()[0]), of_suite or "127.0.0.1"
    return "127.0.0.1", of_suite or "127.0.0.1"


def interface(address: str) -> str:
    """Network interface that has an address of version 4; the one of this machine alone if there is none."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as control:
        for _, name in socket.if_nameindex():
            with contextlib.suppress(OSError):
                told = fcntl.ioctl(control, _SIOCGIFADDR, struct.pack("256s", name.encode()[:15]))
                if socket.inet_ntoa(told[20:24]) == address:
                    return name
    return "lo"


def serve(files: Mapping[str, str]) -> None:
    """Answer the suite until its connection ends; the first line is a word that the suite knows the answers by."""
    directory = Path(tempfile.mkdtemp(prefix=PREFIX))
    guard, lifeline = _watched(directory)
    for number in (signal.SIGTERM, signal.SIGHUP, signal.SIGINT):
        signal.signal(number, lambda *_: sys.exit(0))
    try:
        _unpack(files, directory)
        lines = lines_of(0, SILENCE_SECONDS)
        word = next(lines, b"")
        if word:
            _answers(_Served(directory), word.decode("ascii", "replace"), lines)
    finally:
        for number in (signal.SIGTERM, signal.SIGHUP, signal.SIGINT):
            signal.signal(number, signal.SIG_IGN)
        os.close(lifeline)
        os.waitpid(guard, 0)


def _unpack(files: Mapping[str, str], directory: Path) -> None:
    """Write the modules of the agent, so that its interpreter imports them, and runs the directory as a program."""
    (directory / PACKAGE).mkdir()
    for name, text in {**files, "__init__.py": ""}.items():
        (directory / PACKAGE / name).write_text(text, encoding="utf-8")
    (directory / "__main__.py").write_text(_PROGRAM, encoding="utf-8")
    sys.path.insert(0, os.fspath(directory))


def _answers(agent: _Served, word: str, lines: Iterator[bytes]) -> None:
    known = {name for name in dir(agent) if not name.startswith("_")}
    _write(word, agent.describe())
    for line in lines:
        try:
            asked = json.loads(line)
            name = asked.pop("do")
            if name not in known:
                raise NotPossibleError(f"the agent does not know {name}")
            answer = {"value": getattr(agent, name)(**asked)}
        except Exception as error:
            answer = {"error": type(error).__name__, "words": str(error)}
        _write(word, answer)


def _write(word: str, answer: dict[str, Any]) -> None:
    text = f"{word} {json.dumps(answer)}\n".encode()
    while text:
        text = text[os.write(1, text) :]


def lines_of(file: int, seconds: float | None = None) -> Iterator[bytes]:
    """Lines of the suite, until their end or a silence of so many seconds."""
    rest = b""
    while select.select([file], [], [], seconds)[0]:
        new = os.read(file, 1 << 16)
        if not new or len(rest) > MAX_LINE_BYTES:
            return
        *lines, rest = (rest + new).split(b"\n")
        yield from lines


def _watched(directory: Path) -> tuple[int, int]:
    """Start the process that clears up after this one has ended, also where it was killed."""
    reading, writing = os.pipe()
    guard = os.fork()
    if guard:
        os.close(reading)
        return guard, writing
    try:
        os.setsid()
        for number in (signal.SIGTERM, signal.SIGHUP, signal.SIGINT):
            signal.signal(number, signal.SIG_IGN)
        os.close(writing)
        nothing = os.open(os.devnull, os.O_RDWR)
        for file in range(3):
            os.dup2(nothing, file)
        os.read(reading, 1)
        clear_up(directory)
    finally:
        os._exit(0)


def clear_up(directory: Path) -> None:
    """End all processes of the trials of an agent, and remove its directory."""
    marks = directory / _MARKS
    for mark in marks.read_text().split() if marks.exists() else []:
        end_all(mark)
    shutil.rmtree(directory, ignore_errors=True)


if __name__ == "__main__":
    serve(globals()["FILES"])
