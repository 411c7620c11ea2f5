"""Starts and ends a stack by its descriptor, also in the place of a platform."""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgspec
import psutil

from trainspec_conformance.history import History
from trainspec_conformance.hosts import AnyHosts
from trainspec_conformance.isolating import STREAMS, TemporaryDirectories, memory_words
from trainspec_conformance.processes import Session, inherited, marked
from trainspec_conformance.reading import wrong
from trainspec_conformance.records import Exited, Started
from trainspec_conformance.targets import Targets
from trainspec_validate.documents.types import changed
from trainspec_validate.documents.types.conformance import StackDescriptor, Task, TestJob
from trainspec_validate.system.atomic import write_atomically

VERSION_SECONDS = 60
MAX_WORDS, MAX_WORDS_BYTES = 300, 4096
"""Characters of the last line of a log that are shown, and bytes that are read for it."""


@dataclass(frozen=True)
class Surroundings:
    """The environment of the stack in a trial."""

    directory: Path
    """For everything that is written."""
    targets: Targets
    """Its processes."""
    history: History
    hosts: AnyHosts
    temporary: TemporaryDirectories
    run: str
    """Name of the run."""


class Launcher:
    """Starts of one stack in one trial, one after the other."""

    def __init__(self, stack: StackDescriptor, base: Path, around: Surroundings) -> None:
        directory = around.directory
        self.sessions: list[Session] = []
        self.last_status: int | None = None
        self.trace_directory = directory / "out" / "trace"
        self.trace_directory.mkdir(parents=True)
        self.stream_directory = directory / "out" / STREAMS
        self.out = directory / "out"
        """Where the store of checkpoints is; it changes where the store is moved."""
        self._stack, self._base, self._directory = stack, base, directory
        self._targets, self._history, self._hosts = around.targets, around.history, around.hosts
        self._run, self._temporary = around.run, around.temporary
        self._temporary_directory = Path()
        self._num_restarts = 0
        self._attempt = 0
        self._asked = False
        self._told = True
        self._num_ranks = 0

    @property
    def is_running(self) -> bool:
        """Whether the command runs, as far as was looked."""
        return not self._told

    @property
    def restart_is_due(self) -> bool:
        """Whether the platform is about to start it again."""
        return (
            self._told
            and not self._asked
            and self._stack.launch.restarts == "platform"
            and self.last_status not in {None, 0, *self._stack.launch.crash_loop_statuses}
            and self._num_restarts < self._stack.launch.max_restarts
        )

    def start(self, job: TestJob, *, resume: bool, num_ranks: int | None = None) -> None:
        """Start the command; its attempts are numbered on from the largest that was seen."""
        self._num_restarts = 0
        self._temporary_directory = self._temporary.new()
        self._num_ranks = num_ranks or job.num_ranks
        self._launch(job, resume=resume, by_platform=False)

    def _launch(self, job: TestJob, *, resume: bool, by_platform: bool) -> None:
        number = len(self.sessions)
        if number:
            self._attempt = 1 + max(
                entry.record.attempt for entry in self._history.entries if hasattr(entry.record, "attempt")
            )
        file = self._directory / f"task-{number}.json"
        task = {**whole(self._task(job, resume=resume)), "kind": "ConformanceTask"}
        write_atomically(file, msgspec.json.format(msgspec.json.encode(task)))
        words = self._words(task=os.fspath(file), num_ranks=str(self._num_ranks), attempt=str(self._attempt))
        session = Session(
            [*self._enter(), *(fill(argument, words) for argument in self._stack.launch.train)],
            mark=self._targets.mark,
            directory=self._base,
            log=self._directory / f"log-{number}.txt",
            variables=self._variables(words),
        )
        self.sessions.append(session)
        self._asked, self._told = False, False
        self._history.tell(
            Started(
                pid=session.pid,
                attempt=self._attempt,
                num_ranks=self._num_ranks,
                seed=job.seed,
                learning_rate_factor=float(job.learning_rate_factor),
                resume=resume,
                by_platform=by_platform,
            )
        )

    def _task(self, job: TestJob, *, resume: bool) -> Task:
        hosts = self._hosts.for_task(self._num_ranks)
        return Task(
            apiVersion="trainspec/v1",
            run=self._run,
            attempt=self._attempt,
            resume=resume,
            trace_directory=os.fspath(self.trace_directory),
            stream_directory=os.fspath(self.stream_directory),
            checkpoint_directory=os.fspath(self.out / self._stack.store.directory),
            job=changed(job, num_ranks=self._num_ranks, num_hosts=len(hosts) or job.num_hosts),
            hosts=hosts,
            address=self._hosts.address(),
        )

    def _enter(self) -> tuple[str, ...]:
        """Words before the command; a host of its own has them already."""
        return self._hosts.enter() or (() if self._hosts.names else memory_words())

    def _words(self, **more: str) -> dict[str, str]:
        return {
            "out": os.fspath(self.out),
            "python": sys.executable,
            "port": str(free_port()),
            **more,
        }

    def _variables(self, words: dict[str, str]) -> dict[str, str]:
        named = {name: fill(value, words) for name, value in self._stack.launch.environment.items()}
        own = {**self._targets.variables, "TRAINSPEC_RUN": os.fspath(self.stream_directory)}
        return {"TMPDIR": os.fspath(self._temporary_directory), **named, **own}

    def look(self, job: TestJob) -> None:
        """See whether the command has ended, and start it again where that is a platform's part."""
        if self._told:
            if self.restart_is_due:
                self._num_restarts += 1
                self._launch(job, resume=True, by_platform=True)
            return
        session = self.sessions[-1]
        status = session.status()
        if status is not None:
            self.last_status, self._told = status, True
            self._history.tell(Exited(pid=session.pid, status=status, asked=self._asked))

    @property
    def last_words(self) -> str:
        """Name of the log of the last start, and its last line; empty where it holds none."""
        for session in self.sessions[-1:]:
            with session.log.open("rb") as file:
                file.seek(max(0, session.log.stat().st_size - MAX_WORDS_BYTES))
                lines = file.read(MAX_WORDS_BYTES).decode("utf-8", "replace").split("\n")
            found = next((line.strip() for line in reversed(lines) if line.strip()), "")
            return f"{session.log.name} ends with: {found[:MAX_WORDS]}" if found else ""
        return ""

    def stop(self, how: str, grace_seconds: float, poll: Callable[[], None]) -> None:
        """End the whole job: at once, or by asking the command and waiting for so long."""
        self._asked = True
        if how == "terminate" and self.is_running:
            self.sessions[-1].process.send_signal(signal.SIGTERM)
            end = time.monotonic() + grace_seconds
            while self.is_running and time.monotonic() < end:
                poll()
                time.sleep(0.005)
        for process in marked(self._targets.mark):
            with contextlib.suppress(psutil.NoSuchProcess):  # it may end by itself meanwhile
                process.kill()
        self._targets.kill()
        while self.is_running:
            poll()
            time.sleep(0.005)

    def close(self) -> None:
        """Close what belongs to sessions that have ended."""
        for session in self.sessions:
            status = session.status()
            if status is not None and session is self.sessions[-1] and not self._told:
                self._told = True
                self._history.tell(Exited(pid=session.pid, status=status, asked=True))
            session.close()


def whole(record: Any) -> Any:
    """The plain value of a record with every key, so that a stack in any language needs no table of defaults."""
    if isinstance(record, msgspec.Struct):
        return {name: whole(value) for name, value in msgspec.structs.asdict(record).items()}
    if isinstance(record, tuple):
        return [whole(item) for item in record]
    return record


def fill(argument: str, words: dict[str, str]) -> str:
    """An argument with its words in braces replaced; other braces stay as they are."""
    for name, value in words.items():
        argument = argument.replace("{" + name + "}", value)
    return argument


def free_port() -> int:
    """A free port of this host."""
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        return int(found.getsockname()[1])


def require_programs(descriptor: Path, stack: StackDescriptor) -> None:
    """See that the programs of a stack are there before anything is run.

    Raises:
        DocumentError: one is not.
    """
    path = {**inherited(os.environ), **stack.launch.environment}.get("PATH")
    for key in ("train", "probe"):
        command = getattr(stack.launch, key) or ()
        for name in command[:1]:
            program = fill(name, {"python": sys.executable})
            found = descriptor.resolve().parent / program if "/" in program else Path(program)
            if shutil.which(found, path=path) is None:
                remedy = "install it, or name it by its path from the directory of the descriptor"
                raise wrong(descriptor, ("launch", key), f"{key}: there is no program {name!r}", remedy)


def versions(stack: StackDescriptor, base: Path) -> dict[str, str]:
    """Components and their versions, as the stack itself says; empty where it says nothing of use."""
    command = stack.launch.versions
    if command is None:
        return {}
    words, more = {"python": sys.executable}, stack.launch.environment
    try:
        done = subprocess.run(  # noqa: S603 - the command of the descriptor
            [fill(argument, words) for argument in command],
            cwd=base,
            env={**inherited(os.environ), **{name: fill(value, words) for name, value in more.items()}},
            capture_output=True,
            timeout=VERSION_SECONDS,
            check=True,
            stdin=subprocess.DEVNULL,
        )
        found = json.loads(done.stdout[:100_000])
    except (OSError, subprocess.SubprocessError, ValueError, RecursionError):
        return {}
    return {str(name): str(version)[:100] for name, version in found.items()} if isinstance(found, dict) else {}
