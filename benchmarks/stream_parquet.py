"""Times all checks on the Parquet twin, next to a plain decode of the same files."""

from __future__ import annotations

import shutil
from collections.abc import Sequence
from pathlib import Path

from machine import Timing
from stream_commands import BASELINES, Made, gate, made, timed

NUM_PROCESSES = (2, 1)
_LEAST_MEGABYTES = 20.0
"""Enough for compiled loops to be loaded, and little beside that."""
_HEADER = f"  {'':34} {'wall':>8} {'processor':>10} {'memory':>9} {'M values/s':>11} {'of the decode':>14}"


def parquet(root: Path, megabytes: Sequence[float], num_runs: int) -> None:
    """All checks on the twin of streams that have so many megabytes as JSON Lines, one size after another.

    The time of the smallest stream is nearly all start-up: Python, Arrow and compiled loops. It is printed, together
    with the rate without it, which larger streams approach.
    """
    least = made(root / "least", _LEAST_MEGABYTES, 256, 4, parquet=True)
    start = timed({"start": gate(least.folder, "--workers", "1")}, num_runs)["start"]
    print(f"\nParquet with zstd, 256 ranks, 4 files; {least.num_samples:,} values, nearly all start:")
    print(f"  {start.median_seconds:.2f} s wall, {start.median_processor_seconds:.2f} s of processors")
    for size in megabytes:
        folder = root / "parquet"
        _one_size(made(folder, size, 256, 4, parquet=True), start, num_runs)
        shutil.rmtree(folder)


def _one_size(stream: Made, start: Timing, num_runs: int) -> None:
    commands = {}
    for num in NUM_PROCESSES:
        commands[f"all checks, {num}"] = gate(stream.folder, "--workers", str(num))
        commands[f"decode, {num}"] = [*BASELINES, "decode-parquet", str(stream.folder), str(num)]
    timings = timed(commands, num_runs)
    print(f"{stream}\n{_HEADER}")
    for num in NUM_PROCESSES:
        words = f"{num} process{'es' * (num > 1)}"
        checks, decode = timings[f"all checks, {num}"], timings[f"decode, {num}"]
        print(_line(f"Arrow decode, {words}", stream, decode, decode))
        print(_line(f"all checks, {words}", stream, checks, decode))
        print(_line("  the same without the start", stream, checks, decode, start), flush=True)


def _line(words: str, stream: Made, timing: Timing, decode: Timing, start: Timing | None = None) -> str:
    """One line; the ratio is that of processor times, which other programs disturb least."""
    wall, used = (start.median_seconds, start.median_processor_seconds) if start else (0.0, 0.0)
    seconds, used = timing.median_seconds - wall, timing.median_processor_seconds - used
    rate = stream.num_samples / max(seconds, 1e-3) / 1e6
    memory = timing.peak_bytes / 2**20
    ratio = used / decode.median_processor_seconds
    return f"  {words:34} {seconds:6.2f} s {used:8.2f} s {memory:5.0f} MiB {rate:11.1f} {ratio:14.2f}"
