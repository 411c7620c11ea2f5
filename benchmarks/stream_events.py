"""Times streams of mostly events, whose memory must not grow with the number of events.

Run with `python benchmarks/stream_events.py`; `--millions 20` says how many events the largest stream has.
"""

from __future__ import annotations

import argparse
import shutil
import sys
import tempfile
from collections.abc import Iterator, Sequence
from itertools import islice
from pathlib import Path

HERE = Path(__file__).resolve().parent
sys.path[:0] = [str(HERE), str(HERE.parent)]

import machine  # noqa: E402
from fleet import DEVICES_PER_NODE, START_US  # noqa: E402
from stream_commands import gate, timed  # noqa: E402
from streams import heads  # noqa: E402

NUM_FILES = 4
_EVENT_US = 1_000
_LINES_AT_ONCE = 10_000


def write_events(folder: Path, num: int) -> None:
    """Write so many events of a producer's own, shared out over the files of a few ranks."""
    folder.mkdir(parents=True)
    for file in range(NUM_FILES):
        first = file * DEVICES_PER_NODE
        head = heads(range(first, first + DEVICES_PER_NODE)).splitlines(keepends=True)[0]
        lines = _lines(file, num // NUM_FILES)
        with (folder / f"part-{file}.jsonl").open("wb") as text:
            text.write(head)
            while part := b"".join(islice(lines, _LINES_AT_ONCE)):
                text.write(part)


def _lines(file: int, num: int) -> Iterator[bytes]:
    for seq in range(num):
        time_us = START_US + seq * _EVENT_US + file
        yield (
            f'{{"k":"e","time_us":{time_us},"seq":{seq},"name":"org.example.batch.read","a":'
            f'{{"org.example.shard":{seq % 1_000},"org.example.path":"s3://data/part-{seq % 5_000:05}"}}}}\n'
        ).encode()


def events(root: Path, numbers: Sequence[int]) -> None:
    """Time and memory by number of events, in one process."""
    print("\nEvents of a producer's own, 4 files, 1 process")
    for num in numbers:
        folder = root / "events"
        write_events(folder, num)
        timing = timed({"events": gate(folder, "--workers", "1")}, 1)["events"]
        shutil.rmtree(folder)
        used = timing.median_processor_seconds
        print(f"  {num:11,} events {timing}, {used:7.1f} s of processors, {1e6 * used / num:6.1f} us each", flush=True)


def main() -> None:
    """Measure."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--millions", type=float, default=2.0, help="events of the largest stream")
    given = parser.parse_args()
    print(machine.describe("trainspec-validate", "msgspec"))
    most = int(given.millions * 1e6)
    with tempfile.TemporaryDirectory(prefix="trainspec-bench-") as folder:
        events(Path(folder), [max(NUM_FILES, most // 10), most // 2, most])


if __name__ == "__main__":
    main()
