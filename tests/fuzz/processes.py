"""Runs commands as whole processes on damaged input: streams that are full or closed, signals, files that change."""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from tests.fuzz.cases import HANG_SECONDS, directory_of, lay_out
from tests.fuzz.commands import FOLLOWED, Case, case
from tests.fuzz.mutate import damaged
from tests.fuzz.seeds import streams

_ANSWERS: Final = frozenset({0, 1, 2})
_SIGNALLED: Final = frozenset({130, 143, -signal.SIGINT, -signal.SIGTERM, -signal.SIGPIPE, 141})
_START: Final = "import sys; from importlib import import_module; sys.exit(import_module(sys.argv.pop(1)).main())"
_MODULES: Final = {
    "trainspec-validate": "trainspec_validate.cli.validate",
    "trainspec-conformance": "trainspec_conformance.cli",
}
_READERS_OF_TREES: Final = frozenset(
    {"validate streams", "validate checkpoints", "validate documents", "validate --values"}
)


@dataclass(frozen=True)
class Ended:
    """How a process ended."""

    kind: str
    code: int
    seconds: float
    mistake: str
    """What is wrong with the outcome, whatever the input is; empty where nothing is."""


def _command(made: Case) -> list[str]:
    module = _MODULES.get(made.command.program.name or "", "trainspec_validate.cli.toolbox")
    words = [word.replace("\0", "") for word in made.arguments]  # no system passes them on
    return [sys.executable, "-c", _START, module, *words]


def _finish(
    kind: str, process: subprocess.Popen[bytes], start: float, allowed: frozenset[int], content: bytes | None = None
) -> Ended:
    try:
        _, told = process.communicate(content, timeout=HANG_SECONDS)
    except subprocess.TimeoutExpired:
        process.kill()
        process.communicate()
        return Ended(kind, -1, time.monotonic() - start, "hangs")
    code, seconds = process.returncode, time.monotonic() - start
    text = (told or b"").decode("utf-8", "backslashreplace")
    is_starting = code == 1 and text.startswith("Fatal Python error: init_")  # before it has a program
    if kind == "signalled" and is_starting:
        return Ended(kind, code, seconds, "")
    interrupted = code in _SIGNALLED and text.rstrip().endswith("KeyboardInterrupt")  # before the program has begun
    traced = "Traceback (most recent" in text and not interrupted
    wrong = code not in allowed or traced or "Exception ignored" in text
    return Ended(kind, code, seconds, f"exit code {code}: {text[-3500:]}" if wrong else "")


def _start(made: Case, place: Path, **streams_of: int) -> subprocess.Popen[bytes]:
    kept = {"stdin": subprocess.PIPE, "stdout": subprocess.DEVNULL, "stderr": subprocess.PIPE, **streams_of}
    path = os.pathsep.join(entry for entry in sys.path if entry)
    return subprocess.Popen(  # type: ignore[call-overload,no-any-return]
        _command(made), cwd=directory_of(made, place), env={**os.environ, "PYTHONPATH": path}, **kept
    )


def whole(made: Case, place: Path, _dice: random.Random) -> Ended:
    """A process from its start to its end."""
    start = time.monotonic()
    return _finish("whole", _start(made, place), start, _ANSWERS, made.standard_input)


def full(made: Case, place: Path, dice: random.Random) -> Ended:
    """Standard output, standard error or both are on a full disk."""
    start = time.monotonic()
    with Path("/dev/full").open("wb") as disk:
        which = dice.choice((("stdout",), ("stderr",), ("stdout", "stderr")))
        process = _start(made, place, **{name: disk.fileno() for name in which})
        return _finish("full " + " and ".join(which), process, start, _ANSWERS, made.standard_input)


def signalled(made: Case, place: Path, dice: random.Random) -> Ended:
    """A signal to end comes at some moment."""
    start = time.monotonic()
    process = _start(made, place)
    time.sleep(dice.uniform(0.05, 1.0))
    with suppress(ProcessLookupError):
        process.send_signal(dice.choice((signal.SIGINT, signal.SIGTERM)))
    return _finish("signalled", process, start, _ANSWERS | _SIGNALLED, made.standard_input)


def _change(path: Path, dice: random.Random) -> None:
    """Something happens to a file while others may read it."""
    with suppress(OSError):
        action = dice.randrange(6)
        if action == 0:
            path.unlink()
        elif action == 1:
            os.truncate(path, dice.randrange(path.stat().st_size + 1))
        elif action == 2:
            path.write_bytes(damaged(path.read_bytes(), dice))
        elif action == 3:
            with path.open("ab") as file:
                file.write(damaged(path.read_bytes()[-300:], dice))
        elif action == 4:
            path.unlink()
            path.mkdir()
        else:
            beside = path.with_name(path.name + ".new")
            beside.write_bytes(damaged(path.read_bytes(), dice))
            beside.replace(path)


def changing(made: Case, place: Path, dice: random.Random) -> Ended:
    """Files of the tree change, vanish and come back while the process reads them."""
    start = time.monotonic()
    process = _start(made, place)
    if process.stdin is not None:
        process.stdin.close()
        process.stdin = None
    paths = [path for path in (place / "tree").rglob("*") if path.is_file()]
    while process.poll() is None and time.monotonic() - start < HANG_SECONDS and paths:
        time.sleep(dice.uniform(0.001, 0.05))
        if time.monotonic() - start < 5:
            _change(dice.choice(paths), dice)
    return _finish("changing", process, start, _ANSWERS)


def following(_made: Case, place: Path, dice: random.Random) -> Ended:
    """A stream is judged while damaged lines are written to it, until the reader is told to end."""
    start = time.monotonic()
    sound = dice.choice([files for files in streams() if all(name.endswith(".jsonl") for name in files)])
    tree = place / "tree"
    lines = {name: content.splitlines(keepends=True) for name, content in sound.items()}
    for name, content in lines.items():
        (tree / name).write_bytes(b"".join(content[:5]))
    arguments = ["tree", "--follow", "--interval", "0.05", "--no-progress"]
    made = Case(FOLLOWED, {}, [], arguments)
    process = _start(made, place)
    if process.stdin is not None:
        process.stdin.close()
        process.stdin = None
    end = start + dice.uniform(1.0, 2.5)
    while process.poll() is None and time.monotonic() < end:
        name = dice.choice(sorted(lines))
        piece = b"".join(lines[name][dice.randrange(len(lines[name])) :][: dice.choice((1, 5, 50))])
        with suppress(OSError), (tree / name).open("ab") as file:
            file.write(damaged(piece, dice) if dice.random() < 0.5 else piece)
        if dice.random() < 0.1:
            _change(tree / name, dice)
        time.sleep(0.02)
    if process.poll() is None:
        process.send_signal(signal.SIGINT)
    return _finish("following", process, start, _ANSWERS | _SIGNALLED)


KINDS: Final[tuple[Callable[[Case, Path, random.Random], Ended], ...]] = (whole, full, signalled, changing, following)


def one(seed: int, number: int) -> Ended:
    """Run the process of a number."""
    dice = random.Random(f"process {seed}/{number}")
    kind = KINDS[number % len(KINDS)]
    made = case(seed, number)
    while kind is changing and made.command.name not in _READERS_OF_TREES:
        number += 10_000_019
        made = case(seed, number)
    with tempfile.TemporaryDirectory(prefix="fuzz-") as directory:
        place = Path(directory)
        with suppress(OSError):  # a name that this system cannot hold; the command meets what there is
            lay_out(made, place, dice)
        return kind(made, place, dice)


def table(seed: int, numbers: range) -> tuple[str, list[str]]:
    """How the processes of a range of numbers ended, in lines, and what is wrong with some."""
    if numbers and signal.getsignal(signal.SIGINT) is signal.SIG_IGN:  # as in the background of a shell
        signal.signal(signal.SIGINT, signal.default_int_handler)
    found = [(number, one(seed, number)) for number in numbers]
    counts = Counter((ended.kind, ended.code) for _, ended in found)
    lines = [f"process, {kind:26} exit {code:4} {num:5}" for (kind, code), num in sorted(counts.items())]
    return "\n".join(lines), [f"{number} {ended.kind}: {ended.mistake}" for number, ended in found if ended.mistake]
