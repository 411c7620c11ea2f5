"""Hashing of a checkpoint from storage, compared with plain reads of the same files.

Run with `make bench`; `--short` keeps to sizes that take seconds. Files of random bytes are made below `--directory`
(default: that for temporary files) and thrown away; the system is asked to forget them before every measurement. Two
baselines in turn with it: a plain read of several files at once through the memory of the system, and the same way of
reading as that of the hashing, which is the quickest known. Rates are printed as measured and nothing is asserted, but
a digest that is wrong ends the run: a time without a result says nothing.
"""

from __future__ import annotations

import argparse
import hashlib
import os
import shutil
import statistics
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from itertools import cycle, islice, permutations
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent))

import machine

from trainspec_validate.checkpoints import hashing, read_rates

HASHED = "hashed"
PIECE_BYTES = 1 << 20


@dataclass
class Rates:
    """Result of one way of reading, in GB/s and in processor seconds per GB."""

    gigabytes: float
    rates: list[float] = field(default_factory=list)
    processor_seconds: list[float] = field(default_factory=list)

    def measure(self, work: Callable[[], float]) -> None:
        """Add one measurement of work that returns its seconds."""
        processor = time.process_time()
        self.rates.append(self.gigabytes / work())
        self.processor_seconds.append((time.process_time() - processor) / self.gigabytes)

    def __str__(self) -> str:
        low, high, each = min(self.rates), max(self.rates), statistics.median(self.processor_seconds)
        return f"{statistics.median(self.rates):6.2f} GB/s ({low:.2f} to {high:.2f}), {each:5.2f} processor s/GB"


def make(folder: Path, num_files: int, num_bytes: int) -> dict[str, str]:
    """Digests of files of random bytes that are written to the storage."""
    folder.mkdir()
    digests = {}
    for number in range(num_files):
        digest, path = hashlib.sha256(), folder / f"part-{number}"
        with path.open("wb") as file:
            for _ in range(num_bytes // num_files // PIECE_BYTES):
                piece = os.urandom(PIECE_BYTES)
                digest.update(piece)
                file.write(piece)
            file.flush()
            os.fsync(file.fileno())
        digests[path.name] = digest.hexdigest()
    return digests


def compare(folder: Path, num_files: int, num_bytes: int, num_rounds: int) -> None:
    """Measure all ways in turn, in every order of them, since one way leaves work to the system; print the rates."""
    digests = make(folder, num_files, num_bytes)
    names = list(digests)
    num_bytes = sum((folder / name).stat().st_size for name in names)

    def hashed() -> float:
        read_rates.forget(folder, names)
        start = time.monotonic()
        if hashing.digests(folder, names) != digests:
            sys.exit(f"{folder}: a digest is wrong")
        return time.monotonic() - start

    ways: dict[str, Callable[[], float]] = {
        HASHED: hashed,
        "plain read": lambda: read_rates.plain_read(folder, names),
        "quickest read": lambda: read_rates.quickest_read(folder, names),
    }
    found = {way: Rates(num_bytes / 1e9) for way in ways}
    for order in islice(cycle(permutations(ways)), num_rounds):
        for way in order:
            found[way].measure(ways[way])
    shutil.rmtree(folder)
    print(f"\n{num_files:,} file{'s' if num_files > 1 else ''}, {num_bytes / 1e9:.2f} GB, {num_rounds} rounds")
    for way, rates in found.items():
        shares = [ours / theirs for ours, theirs in zip(found[HASHED].rates, rates.rates, strict=True)]
        share = f"{statistics.median(shares):5.0%} ({min(shares):.0%} to {max(shares):.0%})"
        print(f"  {way:14}{rates}" + ("" if way == HASHED else f"; hashing reaches {share} of it"), flush=True)


def main() -> None:
    """Print everything."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--short", action="store_true", help="small sizes and few rounds")
    parser.add_argument("--directory", type=Path, help="where files are made, on the storage that is measured")
    chosen = parser.parse_args()
    print(machine.describe("trainspec-validate"))
    print("Rates as median (lowest to highest); a share compares measurements of the same round (aim: at least 80%)")
    with tempfile.TemporaryDirectory(dir=chosen.directory) as name:
        for num_files in (1, 4) if chosen.short else (1, 2, 4, 200, 1_000):
            num_bytes = 64_000_000 if chosen.short else 2_000_000_000
            compare(Path(name) / str(num_files), num_files, num_bytes, 3 if chosen.short else 12)


if __name__ == "__main__":
    main()
