"""Gives the recorder the rank of a process that a framework, not a launcher, started."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any

import trainspec_record
from trainspec_record.identity import LAUNCHERS

if TYPE_CHECKING:
    from trainspec_record.recording import Run
    from trainspec_record.silent import SilentRun


def run_of(rank: int, world_size: int, local_rank: int, **settings: Any) -> Run | SilentRun:
    """Begin to record as a rank; what a launcher stated of rank and world size counts first."""
    told = any(os.environ.get(name) for launcher in LAUNCHERS for name in launcher.rank)
    if told:
        return trainspec_record.run(**settings)
    mine = {"RANK": str(rank), "WORLD_SIZE": str(world_size), "LOCAL_RANK": str(local_rank)}
    before = {name: os.environ.get(name) for name in mine}
    os.environ.update(mine)
    try:
        return trainspec_record.run(**settings)
    finally:
        for name, value in before.items():
            if value is None:
                del os.environ[name]
            else:
                os.environ[name] = value
