"""Runs a command on a damaged tree in this process, and tells what of the outcome no input may bring about."""

from __future__ import annotations

import io
import os
import random
import re
import resource
import shutil
import signal
import sys
import time
import traceback
from collections.abc import Iterator
from contextlib import chdir, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from types import FrameType
from typing import Final

from tests.fuzz.commands import OUT, TARGET, Case
from tests.fuzz.mutate import NAMES
from trainspec_validate.cli import terminal

HANG_SECONDS: Final = 120
"""A case that takes so much time of a processor, or waits so long, hangs: no small input does."""
_WAITING_SECONDS: Final = 0.01
"""A process that takes less of a processor in `HANG_SECONDS` waits; on a busy machine one that works takes more."""
MAX_OUTPUT_BYTES: Final = 30_000_000
_COMMANDS_OF_RUNNERS = re.compile(r"(?m)^\s*::[\w-]|##\[|##vso\[|##teamcity\[")
_OBEYED = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u200e\u200f\u202a-\u202e\u2066-\u2069]")


class Hung(BaseException):
    """A case takes longer than any small input may."""


@dataclass(frozen=True)
class Outcome:
    """What came of a case."""

    code: int
    mistakes: tuple[str, ...]
    """What is wrong with the outcome, whatever the input is; empty where nothing is."""
    seconds: float
    """Of a processor, in all threads of the process."""
    peak_bytes: int
    """The most memory that the process has had meanwhile; on other systems than Linux, so far."""


def lay_out(case: Case, place: Path, dice: random.Random) -> None:
    """Write the tree of a case into an empty directory.

    Raises:
        OSError: this system does not hold such names.
    """
    tree = place / "tree"
    tree.mkdir()
    (place / OUT).mkdir()
    (place / "outside.yaml").write_bytes(b"kind: Outside\n")
    for top, files in ((tree, case.files), (place / TARGET, case.target or {})):
        for name, content in files.items():
            (top / name).parent.mkdir(parents=True, exist_ok=True)
            (top / name).write_bytes(content)
    for action, name in case.actions:
        _happen(action, tree / name, place, dice)


def directory_of(case: Case, place: Path) -> Path:
    """Where the command of a case runs."""
    return place if case.target is None else place / "tree"


def _happen(action: str, path: Path, place: Path, dice: random.Random) -> None:
    if action == "rename":
        path.rename(path.with_name(dice.choice(NAMES)))
        return
    if action == "copy":
        shutil.copy(path, path.with_name(dice.choice(NAMES)))
        return
    path.unlink()
    if action == "empty":
        path.touch()
    elif action == "directory":
        path.mkdir()
    elif action == "dangling link":
        path.symlink_to("nowhere")
    elif action == "link to itself":
        path.symlink_to(path.name)
    elif action == "link out":
        path.symlink_to(place / "outside.yaml")
    elif action == "fifo":
        os.mkfifo(path)


@contextmanager
def _limited() -> Iterator[None]:
    start = last = time.process_time()

    def look(_number: int, _frame: FrameType | None) -> None:
        nonlocal last
        now, before = time.process_time(), last
        if now - start > HANG_SECONDS or now - before < _WAITING_SECONDS:
            raise Hung
        last = now
        signal.alarm(HANG_SECONDS)

    before = signal.signal(signal.SIGALRM, look)
    signal.alarm(HANG_SECONDS)
    try:
        yield
    finally:
        signal.alarm(0)
        signal.signal(signal.SIGALRM, before)


@contextmanager
def _streams(standard_input: bytes) -> Iterator[tuple[io.TextIOWrapper, io.TextIOWrapper]]:
    kept = sys.stdin, sys.stdout, sys.stderr
    made = [io.TextIOWrapper(io.BytesIO(content), encoding="utf-8") for content in (standard_input, b"", b"")]
    sys.stdin, sys.stdout, sys.stderr = made
    try:
        yield made[1], made[2]
    finally:
        sys.stdin, sys.stdout, sys.stderr = kept


def _text(stream: io.TextIOWrapper) -> str:
    stream.flush()
    content: bytes = stream.buffer.getvalue()  # type: ignore[attr-defined]
    return content.decode("utf-8", "backslashreplace")


def run(case: Case, place: Path) -> Outcome:
    """Run a case whose tree lies in a directory."""
    before = _held(place / "tree") if case.command.name.startswith("validate") else None
    _forget_peak()
    start = time.process_time()
    trace = ""
    with chdir(directory_of(case, place)), _streams(case.standard_input) as (out, err):
        try:
            with _limited(), case.command.around():
                code = terminal.run(case.command.program, "trainspec", case.arguments)
        except Hung:
            code, trace = -1, "hangs\n" + traceback.format_exc(limit=-4)
        except BaseException:
            code, trace = -1, traceback.format_exc(limit=-4)
        seconds = time.process_time() - start
        written, told = _text(out), _text(err)
    mistakes = [trace] if trace else list(_mistakes(case, code, written, told))
    if before is not None and _held(place / "tree") != before:
        mistakes.append("the tree that was judged has changed")
    if (place / "outside.yaml").read_bytes() != b"kind: Outside\n":
        mistakes.append("a file outside of the tree has changed")
    peak_bytes = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
    return Outcome(code, tuple(mistakes), seconds, peak_bytes)


def _forget_peak() -> None:
    # https://docs.kernel.org/filesystems/proc.html: 5 resets the peak resident set size
    with suppress(OSError):
        Path("/proc/self/clear_refs").write_text("5", encoding="ascii")


def _held(tree: Path) -> dict[str, bytes]:
    paths = [path for path in sorted(tree.rglob("*")) if path.is_file() and not path.is_symlink()]
    return {str(path): path.read_bytes() for path in paths}


def _mistakes(case: Case, code: int, written: str, told: str) -> Iterator[str]:
    if code not in {0, 1, 2}:
        yield f"exit code {code}: {told[-1500:]}"
    if code == terminal.WRONG_USE and not told.strip():
        yield "exit code 2 without a word"
    if "Traceback (most recent" in told + written:
        yield f"a traceback: {told[-600:]}"
    if len(written) + len(told) > MAX_OUTPUT_BYTES:
        yield f"{len(written) + len(told):,} bytes of output"
    shown = told if "github" in case.arguments else written + told
    found = _COMMANDS_OF_RUNNERS.search(shown) or _OBEYED.search(shown)
    if found:
        yield f"what a terminal or a runner obeys: {shown[max(0, found.start() - 80) : found.end() + 20]!r}"
