"""Measures how much memory a JSON text of nothing but empty lists takes once it is read.

Run with `python benchmarks/measured/metadata_memory.py`. The text has 3 MB; a header of 100 MB takes as much per
byte.
"""

from __future__ import annotations

import json
import sys
import tracemalloc

NUM_BYTES = 3_000_000


def main() -> int:
    """Print the memory of the values for each byte of the text."""
    text = "[" + "[]," * (NUM_BYTES // 3) + "[]]"
    tracemalloc.start()
    values = json.loads(text)
    taken = tracemalloc.get_traced_memory()[0]
    tracemalloc.stop()
    print(f"{len(values)} empty lists: {taken / len(text):.1f} bytes of memory for each byte of text")
    return 0


if __name__ == "__main__":
    sys.exit(main())
