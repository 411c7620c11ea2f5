"""The store of a stack is read by the names that checkpoints really have."""

from __future__ import annotations

from pathlib import Path

import pytest
from trainspec_conformance.store import CheckpointStore

from trainspec_validate.documents.conformance import Store


@pytest.mark.parametrize(
    ("names", "steps", "following"),
    [
        (["step-00000010", "step-00000020"], [10, 20], "step-00000030"),
        (["step-5", "step-10"], [5, 10], "step-30"),
        (["step-0090", "step-0100"], [90, 100], "step-0030"),
        ([], [], "step-30"),
        (["step-", "step-x", "other-1", "step-1.tmp"], [], "step-30"),
    ],
)
def test_names_follow_those_that_are_there(tmp_path: Path, names: list[str], steps: list[int], following: str) -> None:
    store = CheckpointStore(tmp_path, Store(name="step-{step}"))
    for name in names:
        (store.directory / name).mkdir(parents=True)
    assert [one.step for one in store.checkpoints()] == steps
    assert store.name_of(30) == following
