"""Compares the planner's plans with published plans, with a machine-independent default, and with an enumeration.

Run with `python benchmarks/plans.py`, which takes some five minutes of a processor; `--part` keeps to one part,
`--short` to a few rows of each. Everything but the processor seconds of searches is computed from the model, and is the
same at every run; nothing is asserted, but a search that misses the fastest choice of its own space ends the run.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent))

import machine
from plans_default import print_default
from plans_exhaustive import print_exhaustive
from plans_published import print_published

PARTS: dict[str, Callable[[bool], None]] = {
    "published": lambda small: print_published(small=small),
    "default": lambda small: print_default(small=small),
    "exhaustive": lambda small: print_exhaustive(small=small),
}


def main() -> None:
    """Print the parts that were asked for."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--short", action="store_true", help="a few rows of each part")
    parser.add_argument("--part", choices=PARTS, help="one part only")
    asked = parser.parse_args()
    print(machine.describe("trainspec-validate", "msgspec"))
    for name, call in PARTS.items():
        if asked.part in {None, name}:
            call(asked.short)


if __name__ == "__main__":
    main()
