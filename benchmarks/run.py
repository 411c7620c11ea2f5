"""Start-up and validation time beside check-jsonschema, and growth with the size of a document.

Run with `make bench`; `--short` keeps to sizes that take seconds. Times are printed as measured, nothing is asserted.
"""

from __future__ import annotations

import argparse
import json
import math
import sys
import tempfile
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent))

import documents
import machine

BIN = Path(sys.executable).parent
SCHEMA = documents.ROOT / "schemas" / "v1" / "cluster-profile.schema.json"
EDITOR_SCHEMA = documents.ROOT / "schemas" / "v1" / "draft-07" / "cluster-profile.schema.json"


def ours(*paths: Path) -> list[str]:
    """The command of this project."""
    return [str(BIN / "trainspec-validate"), "--format", "concise", *map(str, paths)]


def theirs(*paths: Path) -> list[str]:
    """The command that it is compared with."""
    return [str(BIN / "check-jsonschema"), "--schemafile", str(SCHEMA), *map(str, paths)]


def small_file(num_runs: int) -> None:
    """One page of YAML: what a person waits for at every save."""
    print("\nOne small file (YAML, 130 lines): schema and rules beside check-jsonschema, which does the schema alone")
    compare(documents.BASE, num_runs)


def compare(path: Path, num_runs: int) -> None:
    """Time both on one file, in turn."""
    timings = machine.side_by_side({"trainspec-validate": ours(path), "check-jsonschema": theirs(path)}, num_runs)
    for name, timing in timings.items():
        print(f"  {name:20} {timing}  exit {timing.exit_code}")
    ratio = timings["trainspec-validate"].median_seconds / timings["check-jsonschema"].median_seconds
    print(f"  ratio                {ratio:8.2f} (aim: at most 0.5)")


def explicit_nodes(directory: Path, num_nodes: int, num_runs: int) -> None:
    """A machine with every node listed, which the specification discourages but reads."""
    path = directory / "nodes.yaml"
    path.write_text(documents.yaml_text(documents.with_nodes(num_nodes)), encoding="utf-8")
    print(f"\n{num_nodes:,} explicit nodes, {path.stat().st_size / 1e6:.1f} MB of YAML")
    compare(path, num_runs)


def growth(directory: Path, largest: int, num_runs: int) -> None:
    """Time by number of node groups and of explicit links, as JSON so that the rules' share shows."""
    for name, make in (("node groups", documents.with_groups), ("explicit links", documents.with_links)):
        print(f"\nGrowth with {name} (JSON); seconds above the time of the smallest")
        points: list[tuple[int, float]] = []
        size = 10
        while size <= largest:
            path = directory / f"{size}.json"
            path.write_text(json.dumps(make(size)), encoding="utf-8")
            timing = machine.side_by_side({"": ours(path)}, num_runs)[""]
            points.append((size, timing.median_seconds))
            print(f"  {size:8,} {timing}  {path.stat().st_size / 1e6:6.1f} MB  exit {timing.exit_code}")
            size *= 10
        floor = points[0][1]
        (x1, y1), (x2, y2) = points[-2:]
        if y1 > floor * 1.05:
            exponent = math.log((y2 - floor) / (y1 - floor), x2 / x1)
            print(f"  exponent between the last two sizes: {exponent:.2f} (1 is linear)")


def main() -> None:
    """Print everything."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--short", action="store_true", help="small sizes and few runs")
    short = parser.parse_args().short
    print(machine.describe("trainspec-validate", "check-jsonschema", "PyYAML", "jsonschema-rs", "msgspec", "click"))
    num_runs = 3 if short else 15
    small_file(num_runs)
    with tempfile.TemporaryDirectory() as name:
        directory = Path(name)
        explicit_nodes(directory, 100 if short else 10_000, 1 if short else 3)
        growth(directory, 1_000 if short else 100_000, 1 if short else 3)


if __name__ == "__main__":
    main()
