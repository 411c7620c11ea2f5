"""What is relied upon is in the stream of the job: a commit before it is told, a step as soon as it is done."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any, cast

import pytest
from trainspec_reference.common import messages as say
from trainspec_reference.common.backend import Backend, Formation
from trainspec_reference.common.channel import Link
from trainspec_reference.common.ports import Surroundings
from trainspec_reference.common.saver import WorkerPorts
from trainspec_reference.common.state import TrainerState
from trainspec_reference.common.trace import TraceWriter

import trainspec_record
from tests.reference.plain_crew import tiny_job
from trainspec_record import pump

DEADLINE_SECONDS = 600.0


class _Link:
    """Answers for the controller: a save is written, read back and committed."""

    def __init__(self, directory: Path) -> None:
        self.told: list[say.FromWorker] = []
        self.ports: WorkerPorts | None = None
        self._directory = directory

    def say(self, message: say.FromWorker) -> None:
        self.told.append(message)
        match message:
            case say.Begun(checkpoint=name) if self.ports:
                self.ports.heard(say.Write(checkpoint=name, directory=str(self._directory)))
            case say.Written(checkpoint=name) if self.ports:
                self.ports.heard(say.Hash(checkpoint=name, paths=()))
            case say.Hashed(checkpoint=name) if self.ports:
                self.ports.heard(say.SaveEnded(checkpoint=name, size_bytes=7))


class _Backend:
    """Holds nothing, and writes it."""

    def digest(self) -> str:
        return "sha256:" + "0" * 64

    def snapshot(self) -> None:
        return None

    def write(self, snapshot: Any, directory: Path) -> None:
        return None


@pytest.fixture
def around(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Surroundings]:
    """The only worker of a run whose recorder writes nothing by itself."""
    monkeypatch.setattr(pump, "INTERVAL_SECONDS", 3600.0)
    for name, value in {"TRAINSPEC_RUN": str(tmp_path / "run"), "RANK": "0", "WORLD_SIZE": "1"}.items():
        monkeypatch.setenv(name, value)
    recorder = trainspec_record.run()
    trace = TraceWriter(tmp_path / "trace", "worker-0")
    yield Surroundings(Formation(0, 0, ("host",), "", 1.0), cast("Any", None), trace, recorder)
    recorder.end()
    trace.close()


def _stream(directory: Path) -> str:
    return "".join(path.read_text() for path in (directory / "run").glob("job.*.jsonl"))


def test_an_update_is_written_when_it_is_done(tmp_path: Path, around: Surroundings) -> None:
    link = cast("Link", _Link(tmp_path))
    ports = WorkerPorts(cast("Backend", _Backend()), link, is_asynchronous=True)
    ports.surroundings = around
    with around.recorder.step(0):
        around.recorder.log(loss=1.25)
    ports.done(1)
    deadline = time.monotonic() + DEADLINE_SECONDS
    while "1.25" not in _stream(tmp_path):
        assert time.monotonic() < deadline
        time.sleep(0.01)


def test_a_commit_is_written_before_the_save_has_ended(tmp_path: Path, around: Surroundings) -> None:
    saves = tmp_path / "saves"
    saves.mkdir()
    link = _Link(saves)
    link.ports = WorkerPorts(cast("Backend", _Backend()), cast("Link", link), is_asynchronous=True)
    link.ports.surroundings = around
    link.ports.save(TrainerState.first(tiny_job().plan))
    link.ports.wait()
    text = _stream(tmp_path)
    assert "train.checkpoint.commit" in text
    assert "train.checkpoint.fail" not in text
