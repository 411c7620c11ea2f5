"""Checkpoints of the PyTorch backend: bitwise resume, other numbers of ranks, and damage that is told."""

from __future__ import annotations

import pickle
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest
import torch_tasks as tasks
from torch_crew import crew
from trainspec_reference.common.backend import CheckpointUnreadableError

DROPOUT = replace(tasks.SHAPE, dropout=0.1)
LAYOUTS = {
    "replicas": {"num_accelerators": 2},
    "optimizer": {"num_accelerators": 2, "sharding": "optimizer"},
}


@pytest.mark.slow
@pytest.mark.parametrize("layout", LAYOUTS)
def test_resume_is_bitwise(layout: str, tmp_path: Path) -> None:
    setup = tasks.Setup({"parallelism": LAYOUTS[layout]}, DROPOUT)
    for losses, ends, saved in crew().run(tasks.resumed, 2, setup, tmp_path, 2, 2):
        assert losses[0] == losses[1]
        assert ends[0] == ends[1]
        assert saved[0] == saved[1]


@pytest.mark.slow
@pytest.mark.parametrize("layout", LAYOUTS)
def test_another_number_of_ranks_goes_on_from_a_checkpoint(layout: str, tmp_path: Path) -> None:
    setup = tasks.Setup({"parallelism": LAYOUTS[layout]})
    losses, _, _ = crew().run(tasks.steps_of, 1, tasks.Setup(), 4)[0]
    crew().run(tasks.saved, 2, setup, tmp_path, 2)
    digests = set()
    for num_ranks in (1, 4):
        for found, digest in crew().run(tasks.restored, num_ranks, setup, tmp_path, range(2, 4)):
            assert found == pytest.approx(losses[2:], rel=1e-12)
            digests.add(digest)
    assert len(digests) == 1


def test_damage_is_told_with_the_file(tmp_path: Path) -> None:
    crew().run(tasks.saved, 1, tasks.Setup(), tmp_path, 1)
    index = tmp_path / ".metadata"
    content = index.read_bytes()
    for damaged in (b"", content[: len(content) // 2], pickle.dumps({"a": 1}), pickle.dumps(tmp_path.rmdir)):
        index.write_bytes(damaged)
        assert "metadata" in crew().run(tasks.refusal, 1, tasks.Setup(), tmp_path)[0]
    index.write_bytes(content)
    other = replace(tasks.SHAPE, hidden_size=16)
    assert "mismatch" in crew().run(tasks.refusal, 1, tasks.Setup(shape=other), tmp_path)[0]
    next(tmp_path.glob("*.distcp")).unlink()
    assert "No such file" in crew().run(tasks.refusal, 1, tasks.Setup(), tmp_path)[0]


def test_an_index_that_asks_for_code_is_not_run(tmp_path: Path) -> None:
    from trainspec_reference.torch.distributed_checkpoint import names_in

    class Trap:
        def __reduce__(self) -> tuple[object, ...]:
            return Path.mkdir, (tmp_path / "ran",)

    (tmp_path / ".metadata").write_bytes(pickle.dumps(Trap()))
    with pytest.raises(CheckpointUnreadableError, match=r"asks for pathlib\.Path\.mkdir"):
        names_in(tmp_path)
    assert not (tmp_path / "ran").exists()


@pytest.mark.slow
def test_a_new_worker_does_not_wait_for_libraries_that_it_may_not_need() -> None:
    heavy = ("torch.distributed.checkpoint", "torch.distributed.fsdp")
    program = f"import sys, trainspec_reference.torch.backend\nprint([name for name in {heavy} if name in sys.modules])"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout == "[]\n"
