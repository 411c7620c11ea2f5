"""Memory for a stream in Parquet follows from its series and events, not from what its pages unpack to."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

pa = pytest.importorskip("pyarrow")
pq = pytest.importorskip("pyarrow.parquet")

TIME = 1_772_000_000_000_000
MEBIBYTES = 1_000
PROGRAM = """
import re, sys
from pathlib import Path
from trainspec_validate.cli.validate import main
try:
    main()
finally:
    print(re.search("VmHWM:[^0-9]*([0-9]+)", Path("/proc/self/status").read_text())[1], file=sys.stderr)
"""


def _event(text: str) -> str:
    event = {"k": "e", "time_us": TIME, "seq": 0, "name": "train.x", "id": "x", "a": {"train.x": [text] * 9}}
    return json.dumps(event)


def _write(path: Path, num: int, texts: dict[str, str], **options: Any) -> None:
    """Rows that are all equal, with the same texts in each."""
    columns: dict[str, Any] = {name: pa.nulls(num, pa.int64()) for name in ("att", "step", "rank")}
    columns |= {name: pa.repeat(pa.scalar(value, pa.int64()), num) for name, value in (("time_us", TIME), ("seq", 0))}
    for name in ("host", "device", "emitter", "json"):
        text = texts.get(name)
        columns[name] = pa.nulls(num, pa.string()) if text is None else pa.repeat(pa.scalar(text), num)
    table = pa.table(columns).replace_schema_metadata({b"trainspec.stream": b"1"})
    pq.write_table(table, path, compression="zstd", **options)


@pytest.mark.skipif(not Path("/proc/self/status").exists(), reason="needs the peak of a process from Linux")
@pytest.mark.parametrize(
    ("num", "texts", "options", "told"),
    [
        pytest.param(150_000, {"json": _event("y" * 200)}, {}, "times its size", id="equal-events"),
        pytest.param(
            *(25_000, {"json": "y" * 8_000}, {"use_dictionary": False, "data_page_size": 1 << 30}),
            *("bytes of unpacked pages of texts at once",),
            id="one-page",
        ),
    ],
)
def test_a_small_file_of_many_texts_is_refused(
    num: int, texts: dict[str, str], options: dict[str, Any], told: str, tmp_path: Path
) -> None:
    """The limit is named, and the process stays small."""
    _write(tmp_path / "s.parquet", num, texts, **options, write_batch_size=num)
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM, "s.parquet"],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert done.returncode == 2, done.stdout + done.stderr
    *words, peak = done.stderr.strip().splitlines()
    assert told in " ".join(words)
    assert int(peak) < MEBIBYTES * 1024
