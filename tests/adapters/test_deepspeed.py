"""What an engine of DeepSpeed does is recorded, at each stage of ZeRO."""

from __future__ import annotations

import socket
from pathlib import Path

import pytest

from tests.adapters.stacks import Recorded, clean, need, run

PROGRAM = "deepspeed_engine.py"
BATCH, NUM_STEPS = 8, 8


@pytest.fixture(autouse=True)
def installed() -> None:
    need("deepspeed")


def train(out: Path, stage: int, first: int = 0, num_processes: int = 1, **more: str) -> Recorded:
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = str(server.getsockname()[1])
    return run(PROGRAM, out, str(stage), str(first), port, num_processes=num_processes, **more)


@pytest.mark.parametrize(("stage", "num_processes"), [(0, 1), (1, 2), (2, 2), (3, 2)])
def test_an_engine(tmp_path: Path, stage: int, num_processes: int) -> None:
    found = train(tmp_path, stage, num_processes=num_processes)
    clean(found)
    assert list(found.steps("train.gradient.norm").values()) == pytest.approx(found.truth["norms"])
    assert found.values("train.learning_rate") == [0.1] * NUM_STEPS
    assert sorted(found.steps("train.step.count")) == [*range(NUM_STEPS + 1)]
    assert found.values("train.sample.count")[-1] == BATCH * NUM_STEPS
    (commit,) = found.events("train.checkpoint.commit")
    assert commit["id"] == "global_step4"
    assert found.values("train.data.wait.time", f"rank-{num_processes - 1:06}")[-1] > 0


def test_a_restore_goes_on_from_the_saved_counters(tmp_path: Path) -> None:
    train(tmp_path, 1)
    found = train(tmp_path, 1, first=4)
    assert found.code == 0, found.output
    (restored,) = found.events("train.checkpoint.restore.end", attempt=1)
    assert restored["a"]["train.restore.source"] == "global_step4"
    assert found.values("train.sample.count", attempt=1)[0] == 4 * BATCH


def test_nothing_where_nothing_is_recorded(tmp_path: Path) -> None:
    found = train(tmp_path, 1, TRAINSPEC_RUN="")
    assert found.code == 0, found.output
    assert not found.folder.exists()
