"""Reaches nodes through ssh, srun, kubectl or on this machine, and lets the agent of each act there."""

from __future__ import annotations

import contextlib
import json
import os
import secrets
import select
import shlex
import shutil
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import IO, Any

import msgspec

from trainspec_conformance import agent
from trainspec_conformance.agent import NoTargetError
from trainspec_conformance.privileges import NotAllowedError
from trainspec_validate.documents.types.conformance_report import ReportNode
from trainspec_validate.interop.collect import NODE_NAME, named, variables, words
from trainspec_validate.model.units import counted
from trainspec_validate.system import threads
from trainspec_validate.system.boundary import InputError, words_of
from trainspec_validate.system.structs import converted

START_SECONDS = 60.0
"""Longest wait until an agent has begun: a step of Slurm may wait for another one."""
ANSWER_SECONDS = agent.ARRIVAL_SECONDS + 30.0
"""Longest wait for an answer."""
PING_SECONDS = 20.0
"""Time between two signs of life, well below the silence after which an agent ends."""
END_SECONDS = agent.END_SECONDS + 5.0
MOST_NODES = 1_000
PYTHON = "python3"
"""Interpreter of an agent, on the path of the node."""
VARIABLES: Mapping[str, tuple[str, ...]] = {
    "local": (),
    "ssh": ("SSH_AUTH_SOCK",),
    "slurm": ("SLURM_CONF", "SLURM_JOB_ID"),
    "kubernetes": ("KUBECONFIG", "KUBERNETES_SERVICE_HOST", "KUBERNETES_SERVICE_PORT"),
}
"""Variables of the suite that a stack gets too, so that it can start ranks on the nodes."""
_NUM_AT_ONCE = 64
_MAX_WORDS = 300
_MAX_BYTES = 16 << 20
_READ_BYTES = 1 << 16
SENT = (
    *("agent.py", "node_commands.py", "node_network.py", "node_clock.py"),
    *("failing_device.py", "ask_before_writing.py", "privileges.py"),
)
"""Modules of an agent: each needs the others and the standard library of Python 3.8 alone."""
_BOOT = """\
import json, os
def take(n):
    got = b""
    while len(got) < n:
        new = os.read(0, n - len(got))
        if not new:
            raise SystemExit(1)
        got += new
    return got
FILES = json.loads(take(int(take(8))))
exec(compile(FILES["agent.py"], "agent.py", "exec"))
"""
"""For the interpreter of a node: it reads the modules of the agent, behind their number of bytes in eight digits."""


class NodeError(Exception):
    """A node does not answer; the text says which, and why."""


class Described(msgspec.Struct, frozen=True):
    """Fields that an agent gives about its node."""

    directory: str
    system: str
    num_processors: int
    memory_bytes: int
    machine: str
    address: str
    address_of_suite: str
    interface: str


class Node:
    """One node, and the connection to its agent."""

    def __init__(self, name: str, way: str) -> None:
        self.name, self._way = name, way
        self._process: subprocess.Popen[bytes] | None = None
        self._messages: IO[bytes] = tempfile.TemporaryFile()  # noqa: SIM115 - as long as the node
        self._word = secrets.token_hex(16)
        self._rest = b""
        self._turn = threading.Lock()
        self.about: Described

    def open(self) -> None:
        """Start the agent, unless it answers.

        Raises:
            NodeError: it does not begin.
        """
        with contextlib.suppress(NodeError):
            self.call("ping")
            return
        self.close()
        self._rest = b""
        try:
            self._process = subprocess.Popen(  # noqa: S603 - the words of a way, with a checked name of a node
                [*words(self._way, self.name), *self._words(PYTHON, "-c", _BOOT)],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=self._messages,
                env=variables(),
                start_new_session=True,
            )
        except OSError as error:
            raise NodeError(f"{self.name}: {words_of(error)}") from error
        here = Path(agent.__file__).parent
        files = {name: (here / name).read_text(encoding="utf-8") for name in SENT}
        source = json.dumps(files).encode()
        with self._turn:
            self._write(b"%08d" % len(source) + source + f"{self._word}\n".encode())
            self.about = converted(self._answer(START_SECONDS), Described)

    def _words(self, *command: str) -> tuple[str, ...]:
        """A command, in the form that the way passes on."""
        return (shlex.join(command),) if self._way == "ssh" else command

    def program(self, *arguments: str) -> tuple[str, ...]:
        """Words that start the program of the agent on the node."""
        return (*words(self._way, self.name), *self._words(PYTHON, self.about.directory, *arguments))

    def enter(self, *parts: str) -> tuple[str, ...]:
        """Words before a command of this machine that make it run on the node, with parts that the trial damages."""
        there = json.dumps(self.program("run", *parts))
        return (sys.executable, "-I", "-m", "trainspec_conformance.node_commands", "enter", there)

    def call(self, what: str, **fields: Any) -> Any:
        """Let the agent do something, and give its answer.

        Raises:
            NodeError: there is no answer.
            NoTargetError: there is no process that it could be done to.
            NotAllowedError: the node does not allow it.
            RuntimeError: it has not arrived.
        """
        with self._turn:
            self._write(json.dumps({"do": what, **fields}).encode() + b"\n")
            answer = self._answer(ANSWER_SECONDS)
        if "error" not in answer:
            return answer.get("value")
        told = f"{self.name}: {answer.get('words')}"
        kinds: Mapping[Any, type[Exception]] = {
            "NoTargetError": NoTargetError,
            "NotPossibleError": NotAllowedError,
            "NotAllowedError": NotAllowedError,
        }
        raise kinds.get(answer["error"], RuntimeError)(told)

    def _write(self, text: bytes) -> None:
        if self._process is None or self._process.stdin is None:
            raise NodeError(f"{self.name}: not reached yet")
        try:
            self._process.stdin.write(text)
            self._process.stdin.flush()
        except (OSError, ValueError) as error:
            raise NodeError(self._why("the connection has ended")) from error

    def _answer(self, seconds: float) -> dict[str, Any]:
        """The next answer; what a shell prints besides is left out."""
        head, end = f"{self._word} ".encode(), time.monotonic() + seconds
        while True:
            for line in self._lines(end):
                if line.startswith(head):
                    return dict(msgspec.json.decode(line[len(head) :]))

    def _lines(self, end: float) -> Iterable[bytes]:
        assert self._process is not None and self._process.stdout is not None  # noqa: S101, PT018 - `_write` was first
        while b"\n" not in self._rest:
            if not select.select([self._process.stdout], [], [], max(end - time.monotonic(), 0))[0]:
                self._process.kill()
                raise NodeError(self._why("no answer in time"))
            new = os.read(self._process.stdout.fileno(), _READ_BYTES)
            if not new or len(self._rest) > _MAX_BYTES:
                self._process.kill()
                raise NodeError(self._why("the connection has ended"))
            self._rest += new
        line, _, self._rest = self._rest.partition(b"\n")
        yield line

    def _why(self, reason: str) -> str:
        """A reason, with the last message of the remote shell."""
        with contextlib.suppress(subprocess.TimeoutExpired):
            if self._process is not None:
                self._process.wait(1)
        self._messages.seek(0)
        told = self._messages.read(_READ_BYTES).decode("utf-8", "replace").strip().splitlines()
        return f"{self.name} does not answer: {reason}" + (f": {told[-1].strip()[:_MAX_WORDS]}" if told else "")

    def close(self) -> None:
        """End the agent, which clears up first."""
        if self._process is None:
            return
        with contextlib.suppress(OSError):
            if self._process.stdin is not None:
                self._process.stdin.close()
        try:
            self._process.wait(END_SECONDS)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        if self._process.stdout is not None:
            self._process.stdout.close()
        self._process = None


class Nodes:
    """The nodes that a run uses, by name, in the order of the ranks."""

    def __init__(self, names: Sequence[str], way: str) -> None:
        """None is reached yet.

        Raises:
            InputError: a name cannot be that of a node, or the program of the way is not installed.
        """
        found = named(names) if names else []
        if not found:
            raise InputError(f"--over {way} requires --node")
        if len(found) > MOST_NODES:
            raise InputError(f"{counted(len(found), 'node', 'are')} more than {MOST_NODES}")
        for name in found:
            if not NODE_NAME.fullmatch(name):
                raise InputError(f"{name!r} is no name of a node (letters, digits and . _ + -)")
        if len(set(found)) < len(found):
            raise InputError("a node is named twice")
        program = words(way, found[0])[:1]
        if program and shutil.which(program[0]) is None:
            raise InputError(f"{program[0]} is not installed here, and {way} requires it")
        self.way = way
        self._nodes = {name: Node(name, way) for name in found}
        self._over = threading.Event()
        self._pinging = threading.Thread(target=self._ping, name="nodes", daemon=True)
        self._pinging.start()

    @property
    def names(self) -> tuple[str, ...]:
        """All of them."""
        return tuple(self._nodes)

    @property
    def variables(self) -> dict[str, str]:
        """Variables with which a stack reaches the nodes, too."""
        return {name: os.environ[name] for name in VARIABLES[self.way] if name in os.environ}

    def __getitem__(self, name: str) -> Node:
        return self._nodes[name]

    def open(self) -> None:
        """Start the agents that do not answer.

        Raises:
            NodeError: one does not begin.
        """
        self._all(Node.open)

    def begin(self, mark: str) -> None:
        """Reach all of them again, and let them keep in mind what belongs to a trial.

        Raises:
            NodeError: one does not answer.
        """
        self.open()
        self.call("begin", mark=mark)

    def call(self, what: str, **fields: Any) -> dict[str, Any]:
        """Answers of all agents, by node.

        Raises:
            NodeError: one does not answer.
        """
        return dict(zip(self._nodes, self._all(lambda node: node.call(what, **fields)), strict=True))

    def require_shared(self, path: Path) -> None:
        """See that each node has a small file of this machine.

        Raises:
            InputError: one has not; the text says which.
        """
        held = path.read_text(encoding="utf-8", errors="replace")[:1024]
        for node in self._nodes.values():
            try:
                seen = node.call("content", path=os.fspath(path))
            except RuntimeError:
                seen = None
            if seen is None or not seen.startswith(held):
                raise InputError(
                    f"{path.parent}: {node.name} does not see this directory; it has to be on a file system that this "
                    "machine and all nodes share, under the same path"
                )

    def for_report(self) -> tuple[ReportNode, ...]:
        """Their description in a report."""
        machines: list[str] = []
        found = []
        for name, node in self._nodes.items():
            if node.about.machine not in machines:
                machines.append(node.about.machine)
            found.append(
                ReportNode(
                    name=name,
                    machine=machines.index(node.about.machine) + 1,
                    system=node.about.system,
                    num_processors=node.about.num_processors,
                    memory_bytes=node.about.memory_bytes,
                )
            )
        return tuple(found)

    def _ping(self) -> None:
        while not self._over.wait(PING_SECONDS):
            for node in self._nodes.values():
                with contextlib.suppress(NodeError):
                    node.call("ping")

    def _all(self, do: Callable[[Node], Any]) -> list[Any]:
        with threads.pool(min(len(self._nodes), _NUM_AT_ONCE)) as pool:
            return list(pool.map(do, self._nodes.values()))

    def close(self) -> None:
        """End all agents."""
        self._over.set()
        self._pinging.join()
        self._all(Node.close)
