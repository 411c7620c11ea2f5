"""Asks a stack for numbers that its own code computes."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from pathlib import Path

import msgspec

from trainspec_conformance.agent import MARK
from trainspec_conformance.launching import fill
from trainspec_conformance.numerics import case_input
from trainspec_conformance.peaks import PeakMemory
from trainspec_conformance.processes import inherited
from trainspec_conformance.records import Probed
from trainspec_validate.documents.types.conformance import StackDescriptor
from trainspec_validate.system.atomic import write_atomically

PROBE_SECONDS = 300
MAX_ANSWER_BYTES = 64_000_000
LOOK_SECONDS = 0.02
"""Between two looks at the memory of a probe."""


class Prober:
    """Questions to one stack in one trial."""

    def __init__(self, stack: StackDescriptor, base: Path, directory: Path, mark: str) -> None:
        self._stack, self._base, self._directory, self._mark = stack, base, directory, mark

    def ask(self, case: str, seed: int) -> Probed:
        """Give the input of a numeric case to the stack, and take its answer."""
        question = self._directory / f"probe-{case}.json"
        answer = self._directory / f"answer-{case}.json"
        text = msgspec.json.encode(case_input(case, seed))
        write_atomically(question, text)
        if self._stack.launch.probe is None:
            return Probed(case=case, status=-1, input=msgspec.Raw(text), reason="the descriptor names no probe")
        log = self._directory / f"log-probe-{case}.txt"
        try:
            status, peak_bytes = self._run(question, answer, log)
        except (OSError, subprocess.TimeoutExpired) as error:
            return Probed(case=case, status=-1, input=msgspec.Raw(text), reason=str(error)[:1000])
        if status or not answer.is_file() or answer.stat().st_size > MAX_ANSWER_BYTES:
            reason = _end(log) or "it wrote no answer"
            return Probed(case=case, status=status, input=msgspec.Raw(text), reason=reason)
        try:
            output = msgspec.Raw(msgspec.json.encode(msgspec.json.decode(answer.read_bytes())))
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
            return Probed(case=case, status=0, input=msgspec.Raw(text), reason=f"the answer is no JSON: {error}")
        return Probed(case=case, status=0, input=msgspec.Raw(text), output=output, peak_bytes=peak_bytes)

    def _run(self, question: Path, answer: Path, log: Path) -> tuple[int, int]:
        """Run the command of the descriptor; gives its status, and the most memory that it took."""
        launch = self._stack.launch
        words = {"python": sys.executable, "input": os.fspath(question), "output": os.fspath(answer)}
        more = {name: fill(value, words) for name, value in launch.environment.items()}
        with (
            log.open("wb") as file,
            subprocess.Popen(  # noqa: S603 - the command of the descriptor
                [fill(argument, words) for argument in launch.probe or ()],
                cwd=self._base,
                env={**inherited(os.environ), **more, MARK: self._mark},
                stdin=subprocess.DEVNULL,
                stdout=file,  # a pipe would be waited for as long as a process holds it that the probe left
                stderr=subprocess.STDOUT,
            ) as process,
        ):
            return _watched(process)


def _watched(process: subprocess.Popen[bytes]) -> tuple[int, int]:
    """Status of a process at its end, and the most memory that it took.

    Raises:
        subprocess.TimeoutExpired: it took too long, and is ended.
    """
    peak, deadline = PeakMemory(process.pid), time.monotonic() + PROBE_SECONDS
    while True:
        peak.look()
        try:
            return process.wait(LOOK_SECONDS), peak.num_bytes
        except subprocess.TimeoutExpired:
            if time.monotonic() > deadline:
                process.kill()
                raise subprocess.TimeoutExpired(process.args, PROBE_SECONDS) from None


def _end(log: Path) -> str:
    """The last lines that a probe wrote."""
    with log.open("rb") as file:
        file.seek(max(0, log.stat().st_size - 1000))
        return file.read().decode("utf-8", "replace").strip()
