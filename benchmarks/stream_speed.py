"""Values of metrics judged per second, compared with a plain decode, a schema per record and the MLPerf checker.

Run with `make bench-streams`; `--short` keeps to what takes seconds. `--checker PYTHON` names an interpreter that has
the MLPerf checker (`pip install mlperf-logging`), and `--mlperf-only` measures it alone. Streams are made in a new
folder and thrown away. Every figure is printed as measured, with the ratio to its baseline of the same run; nothing is
asserted but that each program finds the stream good, since a time without a result says nothing.
"""

from __future__ import annotations

import argparse
import importlib.util
import math
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

HERE = Path(__file__).resolve().parent
sys.path[:0] = [str(HERE), str(HERE.parent)]

import machine  # noqa: E402
from stream_commands import BASELINES, gate, made, timed  # noqa: E402
from stream_events import events  # noqa: E402
from stream_parquet import parquet  # noqa: E402

PACKAGES = ("trainspec-validate", "numpy", "numba", "msgspec", "jsonschema", "jsonschema-rs", "pyarrow")
SCHEMA_SHARE = 200
"""One record of so many is judged by the loops over a schema, which would take hours."""


def against_baselines(root: Path, megabytes: float, num_runs: int) -> None:
    """All checks on JSON Lines compared with a decode of the same files and a schema for each record."""
    stream = made(root / "lines", megabytes, 256, 4)
    print(f"\nJSON Lines, 256 ranks, 4 files: {stream}")
    timings = timed(
        {
            "all checks, 2 processes": gate(stream.folder, "--workers", "2"),
            "all checks, 1 process": gate(stream.folder, "--workers", "1"),
            "typed decode, 2 processes": [*BASELINES, "decode", str(stream.folder), "2"],
            "typed decode, 1 process": [*BASELINES, "decode", str(stream.folder), "1"],
        },
        num_runs,
    )
    base = timings["typed decode, 2 processes"].median_seconds
    for name, timing in timings.items():
        rate = stream.num_samples / timing.median_seconds / 1e6
        print(f"  {name:27}{timing}  {rate:6.2f} M values/s  {timing.median_seconds / base:5.2f} of the decode")
    for engine in ("jsonschema", "jsonschema-rs"):
        command = [*BASELINES, engine, str(stream.folder), str(SCHEMA_SHARE)]
        found = subprocess.run(command, check=True, capture_output=True, text=True, env=machine.ENVIRONMENT).stdout
        rate = float(found) / 1e6
        ours = stream.num_samples / timings["all checks, 1 process"].median_seconds / 1e6
        words = f"{rate:8.4f} M values/s in 1 process; all checks are {ours / rate:,.1f} times as quick"
        print(f"  {engine + ' for each record':30}{words}")


def growth(root: Path, sizes: list[float], emitters: list[int]) -> None:
    """Time and memory by size of the input, and by number of ranks at one size."""
    print("\nGrowth with the input, 256 ranks")
    points = [_point(root, megabytes, 256) for megabytes in sizes]
    (first, low), (last, high) = points[0], points[-1]
    print(f"  exponent {math.log(high / low) / math.log(last / first):.2f} (1 is linear)")
    print(f"\nGrowth with the ranks, {sizes[1]:,.0f} MB")
    for num in emitters:
        _point(root, sizes[1], num)


def _point(root: Path, megabytes: float, num_ranks: int) -> tuple[float, float]:
    folder = root / "growth"
    stream = made(folder, megabytes, num_ranks, 2)
    timing = timed({"gate": gate(folder)}, 1)["gate"]
    shutil.rmtree(folder)
    rate = stream.num_samples / timing.median_seconds / 1e6
    print(f"  {num_ranks:7,} ranks {stream!s:32} {timing}  {rate:6.2f} M values/s", flush=True)
    return stream.num_bytes, timing.median_seconds


def mlperf(root: Path, num_lines: int, num_runs: int, interpreter: str) -> None:
    """A log of MLPerf compared with MLPerf's own checker, both in one process."""
    path = root / "result_0.txt"
    subprocess.run([*BASELINES, "mllog", str(path), str(num_lines)], check=True)
    size = path.stat().st_size
    print(f"\nLog of MLPerf, {num_lines:,} lines, {size / 1e6:.1f} MB")
    commands = {"all checks": gate(path, "--workers", "1")}
    release = _checker_release(interpreter)
    if release is None:
        print("  the MLPerf checker is not there: pip install mlperf-logging, and --checker with that interpreter")
    else:
        print(f"  mlperf-logging {release}")
        rules = ["--usage", "training", "--ruleset", "5.1.0", "--log_output", str(root / "checker.log")]
        commands["MLPerf checker"] = [interpreter, "-m", "mlperf_logging.compliance_checker", *rules, str(path)]
    timings = timed(commands, num_runs)
    for name, timing in timings.items():
        print(f"  {name:27}{timing}  {num_lines / timing.median_seconds / 1e3:8.1f} thousand lines/s")
    if len(timings) > 1:
        ours, theirs = (timing.median_seconds for timing in timings.values())
        print(f"  ratio                      {ours / theirs:8.2f} of the time of the MLPerf checker")


def _checker_release(interpreter: str) -> str | None:
    """Release of the MLPerf checker that an interpreter has; None where it has none."""
    told = "from importlib.metadata import version; print(version('mlperf-logging'))"
    done = subprocess.run([interpreter, "-c", told], capture_output=True, text=True, check=False)
    return done.stdout.strip() if done.returncode == 0 else None


def spark(root: Path, megabytes: float) -> None:
    """The embedded engine compared with a local Spark session on the same stream."""
    print(f"\nSpark in local mode, {megabytes:,.0f} MB")
    if importlib.util.find_spec("pyspark") is None or shutil.which("java") is None:
        print("  Spark or Java is not installed")
        return
    stream = made(root / "spark", megabytes, 256, 4)
    found = {}
    for engine in ("local", "spark"):
        command = gate(stream.folder, "--engine", engine, "--format", f"json={root / engine}.json")
        timing = timed({engine: command}, 1)[engine]
        found[engine] = (root / f"{engine}.json").read_bytes()
        print(f"  {engine:27}{timing}")
    print(f"  same report: {'yes' if found['local'] == found['spark'] else 'NO'}")


def main() -> None:
    """Measure."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--short", action="store_true", help="sizes that take seconds")
    parser.add_argument("--full", action="store_true", help="growth up to 10 GB and 131,072 ranks")
    parser.add_argument("--checker", default=sys.executable, metavar="PYTHON", help="that has mlperf-logging")
    parser.add_argument("--mlperf-only", action="store_true", help="the log of MLPerf alone")
    given = parser.parse_args()
    print(machine.describe(*PACKAGES))
    with tempfile.TemporaryDirectory(prefix="trainspec-bench-") as folder:
        root = Path(folder)
        if given.mlperf_only:
            mlperf(root, 100_000, 3, given.checker)
            return
        if given.short:
            against_baselines(root, 20, 1)
            parquet(root, [20], 1)
            return
        against_baselines(root, 500, 3)
        parquet(root, [500, 2_000, 8_000, *([32_000] if given.full else [])], 3)
        mlperf(root, 100_000, 3, given.checker)
        sizes = [10.0, 100.0, 1_000.0, 10_000.0] if given.full else [10.0, 100.0, 1_000.0]
        growth(root, sizes, [64, 1_024, 16_384, 131_072] if given.full else [64, 1_024, 16_384])
        events(root, [200_000, 2_000_000, *([20_000_000] if given.full else [])])
        spark(root, 200)


if __name__ == "__main__":
    main()
