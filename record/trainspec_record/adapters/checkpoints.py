"""Keeps the data that a recorder needs after a restore next to a checkpoint of a framework."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from trainspec_record.guard import never_raises
from trainspec_record.silent import NO_SPAN, SilentRun

if TYPE_CHECKING:
    from trainspec_record.recording import Run

FILE = "trainspec-record.json"
MAX_BYTES = 100_000


class Mark(NamedTuple):
    """Which checkpoint a folder holds, as the recorder counts."""

    checkpoint: str
    step: int
    counters: dict[str, float]


@never_raises(None)
def mark_of(run: Run | SilentRun, checkpoint: str) -> Mark | None:
    """Text to write next to a checkpoint of the state as it is now; None on ranks that do not write it."""
    counters = run.state()
    return Mark(checkpoint, run.num_steps, counters) if counters and not isinstance(run, SilentRun) else None


@never_raises(None)
def write_mark(mark: Mark | None, folder: str | os.PathLike[str]) -> None:
    """Say in the folder of a checkpoint which one it is."""
    if mark is not None and Path(folder).is_dir():
        Path(folder, FILE).write_text(json.dumps(mark._asdict()), encoding="utf-8")


@never_raises(None)
def read_mark(folder: str | os.PathLike[str]) -> Mark | None:
    """Record in the folder of a checkpoint; None where no one recorded."""
    path = Path(folder, FILE)
    if not path.is_file() or path.stat().st_size > MAX_BYTES:
        return None
    told = json.loads(path.read_bytes())
    return Mark(str(told["checkpoint"]), int(told["step"]), {str(k): float(v) for k, v in told["counters"].items()})


@never_raises(None)
def size_bytes(path: str | os.PathLike[str]) -> int | None:
    """Bytes of a file, or of all files under a folder; None where there is none."""
    place = Path(path)
    if place.is_file():
        return place.stat().st_size
    return sum(each.stat().st_size for each in place.rglob("*") if each.is_file()) or None


@contextmanager
def saving(run: Run | SilentRun, folder: str | os.PathLike[str], checkpoint: str | None = None) -> Iterator[Any]:
    """A save that training waits for until it is whole in a folder; named as the folder where no name is given."""
    name = checkpoint or Path(folder).name
    mark = mark_of(run, name)
    with run.checkpoint(name, asynchronous=True) as save:
        yield save
    write_mark(mark, folder)
    save.commit(size_bytes=size_bytes(folder))


@contextmanager
def restoring(run: Run | SilentRun, folder: str | os.PathLike[str], step: int | None = None) -> Iterator[Any]:
    """Loading of the checkpoint in a folder; `step` is the step that it is of, where no recorder wrote it there.

    Without either nothing is recorded, for a restore is of an update.
    """
    mark = read_mark(folder)
    if mark is None and step is not None:
        mark = Mark(Path(folder).name, step, {})
    with run.restore(mark.checkpoint, mark.step, state=mark.counters) if mark else NO_SPAN as restore:
        yield restore
