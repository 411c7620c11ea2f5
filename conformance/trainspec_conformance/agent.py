"""Acts on the processes of one node for the conformance suite, and leaves nothing there.

The suite calls it on its own machine, and copies this one file to every other node, where it reads one JSON object per
line from a remote shell. It needs Linux and Python 3.8. A second process of the agent waits for the end of the first,
however that comes about, and then ends the processes of all trials, undoes what lasts and removes the directory.
"""

from __future__ import annotations

import base64
import contextlib
import ctypes
import fcntl
import json
import os
import platform
import queue
import resource
import select
import shutil
import signal
import socket
import struct
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator, Sequence
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
_FILE, _MARKS = "agent.py", "marks"
_OF_NODE = ("SLURM_", "SLURMD_", "SSH_", "KUBERNETES_", "CUDA_VISIBLE_DEVICES", "HOSTNAME", "TMPDIR", "XDG_RUNTIME_DIR")
"""How variables begin that a command has from its node, and not from the machine that it is started from."""
_NO_COMMAND = 127
"""Status of a command that could not be started, as of a shell."""
_PIECE_BYTES = 2048
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
    try:
        return f"{MARK}={mark}".encode() in Path(f"/proc/{pid}/environ").read_bytes().split(b"\0")
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


def serve(source: bytes) -> None:
    """Answer the suite until its connection ends; the first line is a word that the suite knows the answers by."""
    directory = Path(tempfile.mkdtemp(prefix=PREFIX))
    (directory / _FILE).write_bytes(source)
    guard, lifeline = _watched(directory)
    for number in (signal.SIGTERM, signal.SIGHUP, signal.SIGINT):
        signal.signal(number, lambda *_: sys.exit(0))
    try:
        lines = _lines(0, SILENCE_SECONDS)
        word = next(lines, b"")
        if word:
            _answers(_Served(directory), word.decode("ascii", "replace"), lines)
    finally:
        for number in (signal.SIGTERM, signal.SIGHUP, signal.SIGINT):
            signal.signal(number, signal.SIG_IGN)
        os.close(lifeline)
        os.waitpid(guard, 0)


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


def _lines(file: int, seconds: float | None = None) -> Iterator[bytes]:
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


# --- commands on another node -------------------------------------------------------------------------------


def enter(words: Sequence[str], command: Sequence[str]) -> int:
    """Run a command on another node as if it ran here: with this environment, directory, input, signals and status."""
    told = {"command": command, "directory": os.fspath(Path.cwd()), "variables": dict(os.environ)}
    process = subprocess.Popen(words, stdin=subprocess.PIPE)  # noqa: S603 - the remote shell
    assert process.stdin is not None  # noqa: S101 - for the type checker
    to_it = process.stdin.fileno()

    def forward(number: int, _frame: object) -> None:
        _write_line(to_it, {"signal": number})

    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGUSR1, signal.SIGUSR2):
        signal.signal(number, forward)
    _write_line(to_it, told)
    threading.Thread(target=_pass_input, args=(to_it,), daemon=True).start()
    return process.wait()


def _pass_input(to_it: int) -> None:
    """Pass on what this process is given, in pieces that a pipe takes whole: a signal may come between two."""
    while new := os.read(0, _PIECE_BYTES):
        _write_line(to_it, {"input": base64.b64encode(new).decode()})
    _write_line(to_it, {"input": ""})


def _write_line(file: int, told: dict[str, Any]) -> None:
    text = json.dumps(told).encode() + b"\n"
    with contextlib.suppress(OSError):  # the end of the remote shell says more
        while text:
            text = text[os.write(file, text) :]


def run() -> int:
    """Run the command that a line describes; later lines are its input and signals, and with their end it is killed."""
    lines = _lines(0)
    told = json.loads(next(lines, b"null"))
    if told is None:
        return _NO_COMMAND
    own = {name: value for name, value in os.environ.items() if name.startswith(_OF_NODE)}
    given = {name: value for name, value in told["variables"].items() if not name.startswith(_OF_NODE)}
    temporary = tempfile.mkdtemp(prefix="t", dir=Path(__file__).parent)
    variables = {**os.environ, **given, **own, "TMPDIR": temporary}
    try:
        process = subprocess.Popen(  # noqa: S603 - the command of the stack
            told["command"],
            cwd=told["directory"],
            env=variables,
            stdin=subprocess.PIPE,
            start_new_session=True,
            preexec_fn=_end_with_parent,  # noqa: PLW1509 - the other threads of this process begin later
        )
    except OSError as error:
        sys.stderr.write(f"{socket.gethostname()}: {error}\n")
        return _NO_COMMAND
    inputs: queue.Queue[bytes] = queue.Queue()
    threading.Thread(target=_give, args=(inputs, process), daemon=True).start()
    threading.Thread(target=_obey, args=(lines, inputs, process), daemon=True).start()
    status = process.wait()
    shutil.rmtree(temporary, ignore_errors=True)
    return status


def _end_with_parent() -> None:
    """Let the kernel kill this process with the one that has started it, by `prctl(2)`."""
    ctypes.CDLL(None).prctl(1, signal.SIGKILL)


def _obey(lines: Iterator[bytes], inputs: queue.Queue[bytes], process: subprocess.Popen[bytes]) -> None:
    for line in lines:
        told = json.loads(line)
        if "signal" in told:
            process.send_signal(told["signal"])
        else:
            inputs.put(base64.b64decode(told["input"]))
    process.kill()


def _give(inputs: queue.Queue[bytes], process: subprocess.Popen[bytes]) -> None:
    assert process.stdin is not None  # noqa: S101 - for the type checker
    with contextlib.suppress(OSError):  # it reads no more
        while new := inputs.get():
            process.stdin.write(new)
            process.stdin.flush()
        process.stdin.close()


def _leave(status: int) -> None:
    """End as a command did: by its signal, where one has ended it."""
    number = -status if status < 0 else status - 128 if 128 < status <= 192 else 0
    if number:
        with contextlib.suppress(OSError):  # of SIGKILL
            signal.signal(number, signal.SIG_DFL)
        os.kill(os.getpid(), number)
    sys.exit(status)


def main(arguments: Sequence[str]) -> None:
    """Serve the suite, or run a command: here for another node, or there."""
    if arguments[:1] == ["enter"]:
        _leave(enter(json.loads(arguments[1]), arguments[2:]))
    elif arguments[:1] == ["run"]:
        status = run()
        sys.exit(128 - status if status < 0 else status)
    else:
        serve(globals()["SOURCE"])


if __name__ == "__main__":
    main(sys.argv[1:])
