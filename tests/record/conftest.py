"""Runs that are recorded in the process of the test, into a folder of its own."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest

from trainspec_record.identity import HOSTS, LAUNCHERS, RESTARTS, RUNS, VISIBLE

OF_LAUNCHERS = {
    *(name for launcher in LAUNCHERS for names in launcher[1:] for name in names),
    *(name for name, _ in RUNS),
    *(*RESTARTS, *HOSTS, *VISIBLE, "TRAINSPEC_ATTEMPT", "TRAINSPEC_DEVICE", "TORCHELASTIC_MAX_RESTARTS"),
}


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """Folder of a run that the environment asks to record, without a launcher and without a node sampler."""
    for name in OF_LAUNCHERS & os.environ.keys():
        monkeypatch.delenv(name)
    found = tmp_path / "r-1"
    monkeypatch.setenv("TRAINSPEC_RUN", str(found))
    monkeypatch.setenv("TRAINSPEC_HOST", "node-1")
    monkeypatch.setenv("TRAINSPEC_NODE_SAMPLER", "none")
    return found


@pytest.fixture(autouse=True)
def handlers_given_back() -> Iterator[None]:
    """A recorder handles the signal that ends its process; other tests in this process end it otherwise."""
    before = signal.getsignal(signal.SIGTERM)
    yield
    signal.signal(signal.SIGTERM, before)


@pytest.fixture(autouse=True)
def nothing_told(monkeypatch: pytest.MonkeyPatch) -> None:
    """What the recorder tells once in a process, it tells once in a test."""
    monkeypatch.setattr("trainspec_record.guard._told", set())
