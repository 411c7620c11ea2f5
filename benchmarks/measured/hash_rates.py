"""Measures how fast one thread hashes, for the digests that a manifest can have.

Run with `python benchmarks/measured/hash_rates.py`. BLAKE3, CRC32C and XXH3 need the packages `blake3`,
`google-crc32c` and `xxhash`; what is not installed is not measured, and a line says so. Rates are those of the
machine: SHA-256 is two to four times as fast on a processor that has instructions for it.
"""

from __future__ import annotations

import hashlib
import sys
import time
import zlib
from collections.abc import Callable
from importlib import import_module
from importlib.util import find_spec

NUM_BYTES = 1 << 20
NUM_REPEATS = 64
NUM_RUNS = 7


def third_party(module: str, function: str) -> Callable[[bytes], object] | None:
    """A function of a package, where it is installed."""
    return getattr(import_module(module), function) if find_spec(module) else None


HASHES: dict[str, Callable[[bytes], object] | None] = {
    "SHA-256": lambda content: hashlib.sha256(content).digest(),
    "SHA-512": lambda content: hashlib.sha512(content).digest(),
    "BLAKE2b": lambda content: hashlib.blake2b(content).digest(),
    "CRC32": zlib.crc32,
    "BLAKE3": third_party("blake3", "blake3"),
    "CRC32C": third_party("google_crc32c", "value"),
    "XXH3": third_party("xxhash", "xxh3_128_digest"),
}


def bytes_per_second(compute: Callable[[bytes], object]) -> float:
    """The best rate of several runs over the same content."""
    content = bytes(range(256)) * (NUM_BYTES // 256)
    best = float("inf")
    for _ in range(NUM_RUNS):
        start = time.process_time()
        for _ in range(NUM_REPEATS):
            compute(content)
        best = min(best, time.process_time() - start)
    return NUM_REPEATS * len(content) / best


def main() -> int:
    """Print one line for each digest; 0 also where a package is not installed."""
    for name, compute in HASHES.items():
        if compute is None:
            print(f"{name}: not measured, its package is not installed")
        else:
            print(f"{name}: {bytes_per_second(compute) / 1e9:.2f} GB/s")
    return 0


if __name__ == "__main__":
    sys.exit(main())
