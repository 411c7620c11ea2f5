"""Signals at the very end of a command: the exit code and the output agree, whatever the moment."""

from __future__ import annotations

import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import click
import pytest

from tests.test_atomic import COMMANDS, PROGRAMS, lay_out_inputs, outputs_of
from trainspec_validate.cli import terminal
from trainspec_validate.system import atomic

SEAL = ("trainspec", "checkpoint", "seal", "place", "--force", "--no-progress")
NAMES = ["seal", "json", "baseline", "report", "otlp", "import", "init-all"]
"""One of each way in which commands write."""


@pytest.fixture(autouse=True)
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """An empty directory, and the handler that Python starts with."""
    monkeypatch.chdir(tmp_path)
    Path("place").mkdir()
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield tmp_path
    signal.signal(signal.SIGINT, before)


def run(name: str) -> int:
    lay_out_inputs(name)
    if name == "seal":
        Path("place", "weights.bin").write_bytes(b"weights")
    program, *words = SEAL if name == "seal" else COMMANDS[name]
    return terminal.run(PROGRAMS[program], program, words)


def output(name: str) -> Path:
    return Path("place", "trainspec-manifest.json") if name == "seal" else outputs_of(name)


def interrupted(patch: pytest.MonkeyPatch, function: str, *, before: bool) -> None:
    """Interrupt the process before or after each call of a function of the module that writes."""
    whole: Callable[..., object] = getattr(atomic, function)

    def call(*words: object, **options: object) -> object:
        if before:
            signal.raise_signal(signal.SIGINT)
        found = whole(*words, **options)
        if not before:
            signal.raise_signal(signal.SIGINT)
        return found

    patch.setattr(atomic, function, call)


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize(("function", "before"), [("_put", True), ("_put", False), ("_sync_directory", False)])
def test_an_output_that_has_its_name_is_a_success(
    name: str, function: str, before: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    interrupted(monkeypatch, function, before=before)
    assert run(name) in {0, 1}
    assert output(name).is_file()


@pytest.mark.parametrize("name", NAMES)
def test_an_interrupt_before_the_name_leaves_nothing(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    interrupted(monkeypatch, "_sync", before=False)
    assert run(name) == terminal.INTERRUPTED
    assert not output(name).exists()
    assert not list(Path.cwd().rglob(".trainspec-*"))


def test_an_interrupt_before_the_name_leaves_the_old_output(monkeypatch: pytest.MonkeyPatch) -> None:
    assert run("seal") == 0
    old = output("seal").read_bytes()
    interrupted(monkeypatch, "_sync", before=True)
    assert run("seal") == terminal.INTERRUPTED
    assert output("seal").read_bytes() == old


def test_an_output_that_cannot_take_its_name_is_interrupted(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: object, **__: object) -> None:
        signal.raise_signal(signal.SIGINT)
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(atomic, "_put", fail)
    assert run("seal") == terminal.INTERRUPTED
    assert not output("seal").exists()


AT_THE_END = """
import atexit, os, signal, sys
signal.signal(signal.SIGINT, signal.default_int_handler)
atexit.register(os.kill, os.getpid(), signal.SIGINT)
sys.argv[1:] = ["checkpoint", "seal", "place"]
from trainspec_validate.cli.entry import toolbox
toolbox()
"""


def test_an_interrupt_while_the_process_is_left_changes_nothing() -> None:
    Path("place", "weights.bin").write_bytes(b"weights")
    words = [sys.executable, "-c", AT_THE_END]
    done = subprocess.run(words, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")
    assert output("seal").is_file()


def test_an_interrupt_after_a_file_that_is_not_the_output_ends_the_program(here: Path) -> None:
    def work() -> None:
        atomic.write_atomically(here / "state.json", "{}")
        signal.raise_signal(signal.SIGINT)
        raise AssertionError("the program continues")

    assert terminal.run(click.Command("work", callback=work), "work", []) == terminal.INTERRUPTED
    assert (here / "state.json").is_file()
