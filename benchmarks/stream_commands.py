"""Makes the streams that commands are timed on, and lists those commands."""

from __future__ import annotations

import sys
from dataclasses import dataclass
from pathlib import Path

import machine
from streams import Size, write_jsonl

HERE = Path(__file__).resolve().parent
GATE = [str(Path(sys.executable).parent / "trainspec-validate"), "--format", "concise", "--fail-on", "never"]
BASELINES = [sys.executable, str(HERE / "stream_baselines.py")]


@dataclass(frozen=True, slots=True)
class Made:
    """A made stream."""

    folder: Path
    num_samples: int
    num_bytes: int

    def __str__(self) -> str:
        return f"{self.num_bytes / 1e6:,.0f} MB, {self.num_samples / 1e6:.1f} M values"


def made(folder: Path, megabytes: float, num_ranks: int, num_files: int, *, parquet: bool = False) -> Made:
    """A stream of this size, by number of bytes as JSON Lines."""
    size = Size(int(megabytes * 1e6), num_ranks, num_files)
    if parquet:
        from stream_tables import write_parquet  # noqa: PLC0415

        paths = write_parquet(folder, size)
    else:
        paths = write_jsonl(folder, size)
    return Made(folder, size.num_samples, sum(path.stat().st_size for path in paths))


def timed(commands: dict[str, list[str]], num_runs: int) -> dict[str, machine.Timing]:
    """Times of commands that take turns; each has to end well."""
    timings = machine.side_by_side(commands, num_runs)
    for name, timing in timings.items():
        if timing.exit_code != 0:
            sys.exit(f"{name} ended with {timing.exit_code}: {' '.join(commands[name])}")
    return timings


def gate(folder: Path, *options: str) -> list[str]:
    """The command of this project over a folder."""
    return [*GATE, str(folder), *options]
