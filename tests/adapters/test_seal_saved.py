"""What a framework's own library saved and its line of the guide sealed is found, and refused once it is damaged."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.adapters.stacks import PROGRAMS, SECONDS, environment, need
from trainspec_record.checkpoints import MANIFEST, newest_good
from trainspec_validate.checkpoints.newest import judged_newest_first

NEEDED = {
    "accelerate": ("accelerate",),
    "dcp": ("torch",),
    "dcp_asynchronous": ("torch",),
    "orbax": ("orbax", "jax"),
    "deepspeed": ("deepspeed",),
    "ray": ("ray", "torch"),
    "transformers": ("transformers", "accelerate"),
}


def step_of(path: Path | None) -> int | None:
    return None if path is None else json.loads((path / MANIFEST).read_text(encoding="utf-8"))["step"]


def newest_by_formats(directory: Path) -> Path | None:
    """What `trainspec checkpoint newest-good` prints."""
    return next((Path(one.path) for one in judged_newest_first(directory) if not one.faults), None)


def run(framework: str, directory: Path) -> str:
    """Save, or resume where the directory is there; what the program prints."""
    command = [sys.executable, str(PROGRAMS / "seal_saved.py"), framework, str(directory)]
    variables = environment(directory.parent)
    done = subprocess.run(command, env=variables, capture_output=True, text=True, timeout=SECONDS, check=False)
    assert done.returncode == 0, done.stderr[-3000:]
    return done.stdout


@pytest.mark.slow
@pytest.mark.parametrize("framework", NEEDED)
def test_the_newest_good_is_the_last_that_is_as_it_was_saved(framework: str, tmp_path: Path) -> None:
    need(*NEEDED[framework])
    directory = tmp_path / "run"
    run(framework, directory)
    newest = newest_good(directory)
    assert newest is not None
    assert step_of(newest) == 20
    assert step_of(newest_by_formats(directory)) == 20
    files = [path for path in newest.rglob("*") if path.is_file() and path.name != MANIFEST]
    assert files
    for path in files:
        content = path.read_bytes()
        if not content:
            continue
        damaged = bytearray(content)
        damaged[len(damaged) // 2] ^= 1
        path.write_bytes(damaged)
        assert step_of(newest_good(directory)) == 10, path
        path.write_bytes(content)
    largest = max(files, key=lambda path: path.stat().st_size)
    os.truncate(largest, largest.stat().st_size // 2)
    assert step_of(newest_good(directory)) == step_of(newest_by_formats(directory)) == 10
    largest.unlink()
    assert step_of(newest_good(directory)) == 10
    assert "resumed from step 10\n" in run(framework, directory)
