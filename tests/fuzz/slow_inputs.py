"""Measures how long readers take for the slowest input that is known: `python -m tests.fuzz.slow_inputs`.

Processor seconds of whole commands, for each million bytes of a stream or MiB of unpacked content, which SECURITY.md
holds against its limits on time. Content is short: what readers take grows with it.
"""

from __future__ import annotations

import bz2
import gzip
import io
import os
import sys
import tempfile
import time
import zipfile
from collections.abc import Callable
from contextlib import redirect_stderr, redirect_stdout
from functools import partial
from pathlib import Path
from typing import Final

from tests.streams_made.foreign_logs import event, event_file, scalar
from trainspec_validate.checkpoints import pickles
from trainspec_validate.cli import terminal
from trainspec_validate.cli.validate import command as gate
from trainspec_validate.pipeline import archives

_MIB: Final = 1024**2
_NUM_BYTES: Final = 200_000
_HEAD: Final = (
    b'{"k":"head","apiVersion":"trainspec/v1","kind":"MetricStream","run":"r","att":0,"emitter":"e","time_us":1,'
    b'"scopes":["job"]}\n'
)
_TORCHTITAN: Final = b'{"rank": 0, "log_type_name": "step_start", "time_us": 1, "seq_id": 0}\n'
STREAMS: Final[dict[str, bytes]] = {
    "records without values": _HEAD + b'{"k":"m","time_us":1,"seq":1,"m":{}}\n' * (_NUM_BYTES // 37),
    "objects that are no records": _HEAD + b"{}\n" * (_NUM_BYTES // 3),
    "lines of one letter in a log in JSON": _TORCHTITAN + b"a\n" * (_NUM_BYTES // 2),
    "lines of one letter in an exposition": b"# HELP up x\n# TYPE up gauge\nup 1\n" + b"a\n" * (_NUM_BYTES // 2),
    "events of TensorBoard with a number": event_file(*[event(1.7e9, 1, scalar("a", 1.0))] * (_NUM_BYTES // 38)),
}
_OPERATIONS: Final = 60_000
PICKLES: Final[dict[str, tuple[bytes, int]]] = {
    "numbers in a list": (b"\x80\x02](" + b"K\x01" * _OPERATIONS + b"e.", _OPERATIONS),
    "tuples": (b"\x80\x02" + b"N\x850" * (_OPERATIONS // 3) + b"N.", _OPERATIONS),
    "keys of a dictionary": (b"\x80\x02}" + b"K\x01Ns" * (_OPERATIONS // 3) + b".", _OPERATIONS),
    "calls of a function": (b"\x80\x02" + b"cos\nsystem\n)R0" * (_OPERATIONS // 4) + b"N.", _OPERATIONS),
    "states of objects": (b"\x80\x02" + b"ca\nb\n)R}b0" * (_OPERATIONS // 6) + b"N.", _OPERATIONS),
}


def seconds(work: Callable[[], object]) -> float:
    """Processor seconds of some work."""
    start = time.process_time()
    work()
    return time.process_time() - start


def of_streams() -> dict[str, float]:
    """Processor seconds for each million bytes of a stream."""
    return {name: _judged(text) / len(text) * 1e6 for name, text in STREAMS.items()}


def _judged(text: bytes) -> float:
    with tempfile.TemporaryDirectory() as place:
        path = Path(place, "events.out.tfevents.1" if text.startswith(event_file()[:8]) else "run.jsonl")
        path.write_bytes(text)
        with redirect_stdout(io.TextIOWrapper(io.BytesIO())), redirect_stderr(io.TextIOWrapper(io.BytesIO())):
            return seconds(lambda: terminal.run(gate, "x", [str(path), "--no-progress"]))


def of_contents() -> dict[str, float]:
    """Processor seconds for each MiB that a compressed file unpacks to."""
    texts = {"codes of characters": b"\\x74" * _MIB, "versions of others": b"apiVersion: trainspe/v1\n" * (_MIB // 6)}
    found = {name: _searched(gzip.compress(text)) / (len(text) / _MIB) for name, text in texts.items()}
    return {**found, "noise in bzip2": _searched(bz2.compress(os.urandom(_MIB)))}


def of_entries() -> dict[str, float]:
    """Processor seconds for each entry of a zip container."""
    buffer, num = io.BytesIO(), 2_000
    with zipfile.ZipFile(buffer, "w") as archive:
        for number in range(num):
            archive.writestr(f"{number}.yaml.gz", gzip.compress(b"a: 1\n"))
    return {"compressed files": _searched(buffer.getvalue()) / num}


def _searched(content: bytes) -> float:
    with tempfile.NamedTemporaryFile() as file:
        file.write(content)
        file.flush()
        return seconds(lambda: archives.packed_documents(Path(file.name)))


def of_pickles() -> dict[str, float]:
    """Processor seconds for each operation of a pickle."""
    found = {}
    for name, (content, num) in PICKLES.items():
        found[name] = seconds(partial(pickles.follow, io.BytesIO(content))) / num
    return found


def main() -> int:
    """Print a line for each input."""
    for title, measure, factor, unit in (
        ("a stream", of_streams, 1, "s for each million bytes"),
        ("a compressed file", of_contents, 1, "s for each MiB unpacked"),
        ("a zip container", of_entries, 1e3, "ms for each entry"),
        ("a pickle", of_pickles, 1e6, "microseconds for each operation"),
    ):
        for name, value in measure().items():
            print(f"{title}, {name}: {value * factor:.2f} {unit}", flush=True)  # noqa: T201
    return 0


if __name__ == "__main__":
    sys.exit(main())
