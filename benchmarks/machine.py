"""Describes the machine of a benchmark, and times commands."""

from __future__ import annotations

import os
import platform
import statistics
import subprocess
import time
from collections.abc import Sequence
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path

ENVIRONMENT = {key: value for key, value in os.environ.items() if key != "PYTHONDONTWRITEBYTECODE"}
"""An installed program has its bytecode; one that must not write it would be compiled anew at every run."""


@dataclass(frozen=True, slots=True)
class Timing:
    """Wall time, processor time and peak memory of one command over several runs."""

    seconds: tuple[float, ...]
    peak_bytes: int
    exit_code: int
    processor_seconds: tuple[float, ...] = ()
    """Of all processes of the command together; on a busy machine it says more than wall time."""

    @property
    def median_seconds(self) -> float:
        """Median wall time."""
        return statistics.median(self.seconds)

    @property
    def median_processor_seconds(self) -> float:
        """Median processor time."""
        return statistics.median(self.processor_seconds)

    def __str__(self) -> str:
        low, high = min(self.seconds), max(self.seconds)
        spread = f"({low * 1000:.0f} to {high * 1000:.0f})"
        return f"{self.median_seconds * 1000:8.0f} ms {spread}, {self.peak_bytes / 2**20:5.0f} MiB"


def describe(*packages: str) -> str:
    """Processor, cores, Python and package versions, one line each."""
    model = platform.processor() or platform.machine()
    cpuinfo = Path("/proc/cpuinfo")
    if cpuinfo.exists():
        names = [
            line.split(":", 1)[1].strip() for line in cpuinfo.read_text().splitlines() if line.startswith("model name")
        ]
        model = names[0] if names else model
    versions = ", ".join(f"{name} {version(name)}" for name in packages)
    machine = f"{model}, {os.cpu_count()} cores, {platform.system()} {platform.release()}"
    return f"{machine}\nPython {platform.python_version()}, {versions}"


def accelerators() -> list[str]:
    """Name and driver of each device that `nvidia-smi` lists; none where it is not there."""
    command = ["nvidia-smi", "--query-gpu=name,driver_version", "--format=csv,noheader"]
    try:
        ended = subprocess.run(command, capture_output=True, text=True, timeout=60, check=True)
    except (OSError, subprocess.SubprocessError):
        return []
    return ended.stdout.strip().splitlines()


def run_once(command: Sequence[str]) -> tuple[float, int, int, float]:
    """Seconds, peak bytes, exit code and processor seconds of one run; what the command prints is thrown away."""
    start = time.perf_counter()
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, env=ENVIRONMENT)
    _, status, usage = os.wait4(process.pid, 0)
    seconds = time.perf_counter() - start
    process.returncode = os.waitstatus_to_exitcode(status)
    unit = 1024 if platform.system() == "Linux" else 1
    return seconds, usage.ru_maxrss * unit, process.returncode, usage.ru_utime + usage.ru_stime


def side_by_side(commands: dict[str, Sequence[str]], num_runs: int) -> dict[str, Timing]:
    """Time several commands in turn (A B A B ...), so that a drifting machine drifts for all; one warm-up each."""
    runs: dict[str, list[tuple[float, int, int, float]]] = {name: [] for name in commands}
    for number in range(num_runs + 1):
        for name, command in commands.items():
            result = run_once(command)
            if number:
                runs[name].append(result)
    return {
        name: Timing(
            tuple(r[0] for r in results), max(r[1] for r in results), results[-1][2], tuple(r[3] for r in results)
        )
        for name, results in runs.items()
    }
