"""Start-up and validation time compared with check-jsonschema, and growth with the size of a document.

Run with `make bench`; `--short` keeps to sizes that take seconds. Times are printed as measured, nothing is asserted,
but a command that fails ends the run: a time without a result says nothing.
"""

from __future__ import annotations

import argparse
import math
import subprocess
import sys
import tempfile
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent))

import machine

ROOT = Path(__file__).resolve().parent.parent
BIN = Path(sys.executable).parent
SMALL = ROOT / "spec" / "v1" / "base" / "cluster.yaml"
SCHEMA = ROOT / "schemas" / "v1" / "cluster-profile.schema.json"


def ours(path: Path) -> list[str]:
    """The command of this project."""
    return [str(BIN / "trainspec-validate"), "--format", "concise", str(path)]


def theirs(path: Path) -> list[str]:
    """The command that it is compared with."""
    return [str(BIN / "check-jsonschema"), "--schemafile", str(SCHEMA), str(path)]


def make(kind: str, size: int, path: Path) -> Path:
    """Write a document in a process of its own: a child's peak memory starts at the size of its parent."""
    subprocess.run(
        [sys.executable, str(Path(__file__).with_name("documents.py")), kind, str(size), str(path)], check=True
    )
    return path


def times(commands: dict[str, list[str]], num_runs: int) -> dict[str, machine.Timing]:
    """Time the commands in turn; each of them has to find the document good."""
    timings = machine.side_by_side(commands, num_runs)
    for name, timing in timings.items():
        if timing.exit_code != 0:
            sys.exit(f"{name} ended with {timing.exit_code} on a good document: {' '.join(commands[name])}")
    return timings


def compare(path: Path, num_runs: int) -> None:
    """Time both on one file, in turn."""
    timings = times({"trainspec-validate": ours(path), "check-jsonschema": theirs(path)}, num_runs)
    for name, timing in timings.items():
        print(f"  {name:20} {timing}")
    ratio = timings["trainspec-validate"].median_seconds / timings["check-jsonschema"].median_seconds
    print(f"  ratio                {ratio:8.2f} (aim: at most 0.5)")


def growth(directory: Path, kind: str, largest: int, num_runs: int) -> None:
    """Time by size, and the exponent above the time of the smallest document."""
    print(f"\nGrowth with explicit {kind} (JSON)" if kind == "links" else f"\nGrowth with node {kind} (JSON)")
    points: list[tuple[int, float]] = []
    size = 10
    while size <= largest:
        path = make(kind, size, directory / f"{kind}-{size}.json")
        timing = times({kind: ours(path)}, num_runs)[kind]
        points.append((size, timing.median_seconds))
        print(f"  {size:8,} {timing}  {path.stat().st_size / 1e6:6.1f} MB")
        size *= 10
    floor = points[0][1]
    (x1, y1), (x2, y2) = points[-2:]
    if y1 > floor * 1.2:
        exponent = math.log((y2 - floor) / (y1 - floor), x2 / x1)
        print(f"  exponent between the last two sizes, less the time of the smallest: {exponent:.2f} (1 is linear)")


def main() -> None:
    """Print everything."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--short", action="store_true", help="small sizes and few runs")
    short = parser.parse_args().short
    print(machine.describe("trainspec-validate", "check-jsonschema", "PyYAML", "jsonschema-rs", "msgspec", "click"))
    print("Wall time as median (smallest to largest), and peak memory of the largest run")
    print("\nOne small file (YAML, 130 lines): schema and rules, and check-jsonschema with the schema alone")
    compare(SMALL, 3 if short else 15)
    with tempfile.TemporaryDirectory() as name:
        directory = Path(name)
        num_nodes = 100 if short else 10_000
        path = make("nodes", num_nodes, directory / "nodes.yaml")
        print(f"\n{num_nodes:,} explicit nodes, {path.stat().st_size / 1e6:.1f} MB of YAML")
        compare(path, 1 if short else 3)
        for kind in ("groups", "links"):
            growth(directory, kind, 1_000 if short else 100_000, 1 if short else 3)


if __name__ == "__main__":
    main()
