"""Baselines for the time of stream checks: a typed decode, a schema for each record, a log."""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve().parent
sys.path[:0] = [str(HERE), str(HERE.parent)]


def decode_file(path: Path) -> int:
    """Decode every line into its typed record, and throw it away."""
    import msgspec  # noqa: PLC0415

    from trainspec_validate.documents.types.stream import StreamRecord  # noqa: PLC0415

    decode = msgspec.json.Decoder(StreamRecord).decode
    num = 0
    with path.open("rb") as file:
        for line in file:
            decode(line)
            num += 1
    return num


def decode(folder: Path, num_workers: int) -> None:
    """Decode all files of a folder."""
    files = sorted(folder.glob("*.jsonl"))
    with ProcessPoolExecutor(num_workers) as pool:
        num = sum(pool.map(decode_file, files)) if num_workers > 1 else sum(map(decode_file, files))
    print(num)


def decode_table(path: Path) -> int:
    """Decode all columns of a Parquet file; returns the number of rows."""
    import pyarrow.parquet as pq  # noqa: PLC0415

    with pq.ParquetFile(path) as file:
        return sum(file.read_row_group(number, use_threads=False).num_rows for number in range(file.num_row_groups))


def decode_tables(folder: Path, num_workers: int) -> None:
    """Decode all Parquet files of a folder."""
    files = sorted(folder.glob("*.parquet"))
    with ProcessPoolExecutor(num_workers) as pool:
        num = sum(pool.map(decode_table, files)) if num_workers > 1 else sum(map(decode_table, files))
    print(num)


def some_lines(folder: Path, every: int) -> Iterator[bytes]:
    """One line of so many."""
    for path in sorted(folder.glob("*.jsonl")):
        with path.open("rb") as file:
            for number, line in enumerate(file):
                if number % every == 0:
                    yield line


def by_schema(engine: str, folder: Path, every: int) -> None:
    """Judge one record of so many by the published schema, and print the values judged in a second."""
    schema = json.loads((HERE.parent / "schemas" / "v1" / "metric-stream.schema.json").read_text(encoding="utf-8"))
    if engine == "jsonschema":
        from jsonschema import Draft202012Validator  # noqa: PLC0415

        is_valid: Any = Draft202012Validator(schema).is_valid
    else:
        import jsonschema_rs  # noqa: PLC0415

        is_valid = jsonschema_rs.Draft202012Validator(schema).is_valid
    lines = list(some_lines(folder, every))
    begin, num = time.perf_counter(), 0
    for line in lines:
        record = json.loads(line)
        if not is_valid(record):
            sys.exit(f"not valid: {line[:200]!r}")
        num += len(record.get("m", ()))
    print(num / (time.perf_counter() - begin))


def mllog(path: Path, num_lines: int) -> None:
    """Write a log of MLPerf of so many lines: a made one, with more lines about steps."""
    from tests.streams_made.mllog import make_log, text_of  # noqa: PLC0415

    entries = make_log()
    lines = text_of(entries).splitlines(keepends=True)
    middle = [line for line in lines if "tracked_stats" in line] or lines
    place = lines.index(middle[-1])
    more = [middle[number % len(middle)] for number in range(max(0, num_lines - len(lines)))]
    path.write_text("".join([*lines[:place], *more, *lines[place:]]), encoding="utf-8")


def main(arguments: list[str]) -> None:
    """Run one baseline."""
    name, *rest = arguments
    if name == "decode":
        decode(Path(rest[0]), int(rest[1]))
    elif name == "decode-parquet":
        decode_tables(Path(rest[0]), int(rest[1]))
    elif name == "mllog":
        mllog(Path(rest[0]), int(rest[1]))
    else:
        by_schema(name, Path(rest[0]), int(rest[1]))


if __name__ == "__main__":
    main(sys.argv[1:])
