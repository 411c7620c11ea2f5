"""Writes streams to files: by emitter, by time or together, plain or compressed."""

from __future__ import annotations

import gzip
import random
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Literal

import msgspec

from trainspec_validate.documents.types.stream import Event, Head, Sample, encode_record

from .emitter import Stream

Compression = Literal["gz", "zst"]


def stream_bytes(stream: Stream) -> bytes:
    """The file of one stream."""
    return lines((stream.head, *stream.records))


def lines(records: Iterable[Head | Sample | Event]) -> bytes:
    """One line for each record."""
    return b"".join(encode_record(record) + b"\n" for record in records)


def file_name(stream: Stream) -> str:
    """Name of the file of one stream."""
    return f"{stream.head.emitter.replace('/', '-')}.{stream.head.att}.jsonl"


def by_emitter(streams: Iterable[Stream]) -> dict[str, bytes]:
    """One file for each emitter and attempt."""
    return {file_name(stream): stream_bytes(stream) for stream in streams}


def stamped(stream: Stream) -> list[Sample | Event]:
    """The records with their emitter and attempt, as a file of several streams needs them."""
    emitter, attempt = stream.head.emitter, stream.head.att
    return [msgspec.structs.replace(record, emitter=emitter, att=attempt) for record in stream.records]


def together(streams: Sequence[Stream], seed: int | None = None) -> dict[str, bytes]:
    """One file: all heads, then all records by time; with a seed in any order that keeps each stream's own."""
    records = [stamped(stream) for stream in streams]
    if seed is None:
        merged = sorted((record for stream in records for record in stream), key=lambda record: record.time_us)
    else:
        turns = [number for number, stream in enumerate(records) for _ in stream]
        random.Random(seed).shuffle(turns)
        left = [iter(stream) for stream in records]
        merged = [next(left[number]) for number in turns]
    return {"run.jsonl": lines([*(stream.head for stream in streams), *merged])}


def by_time(streams: Sequence[Stream], num_files: int, seed: int | None = None) -> dict[str, bytes]:
    """Files of equal spans of time, each with the heads of its streams; with a seed their names say nothing."""
    first = min(stream.records[0].time_us for stream in streams if stream.records)
    last = max(stream.records[-1].time_us for stream in streams if stream.records)
    parts: list[list[Sample | Event]] = [[] for _ in range(num_files)]
    for stream in streams:
        for record in stamped(stream):
            parts[(record.time_us - first) * num_files // (last - first + 1)].append(record)
    names = [f"part-{number:04}.jsonl" for number in range(num_files)]
    if seed is not None:
        random.Random(seed).shuffle(names)
    found = {}
    for name, part in zip(names, parts, strict=True):
        part.sort(key=lambda record: record.time_us)
        here = {(record.emitter, record.att) for record in part}
        heads = [stream.head for stream in streams if (stream.head.emitter, stream.head.att) in here]
        found[name] = lines([*heads, *part])
    return {name: text for name, text in found.items() if text}


def compressed(files: Mapping[str, bytes], how: Compression) -> dict[str, bytes]:
    """The same files, compressed."""
    if how == "gz":
        return {f"{name}.gz": gzip.compress(text, 6, mtime=0) for name, text in files.items()}
    import zstandard

    pack = zstandard.ZstdCompressor(level=3).compress
    return {f"{name}.zst": pack(text) for name, text in files.items()}


def put_parquet(streams: Iterable[Stream], folder: Path) -> Path:
    """Write one Parquet file for each emitter and attempt, in the layout of the twin."""
    from trainspec_validate.telemetry.formats.parquet import write

    folder.mkdir(parents=True, exist_ok=True)
    for stream in streams:
        write(stamped_with_head(stream), folder / file_name(stream).replace(".jsonl", ".parquet"))
    return folder


def stamped_with_head(stream: Stream) -> list[Head | Sample | Event]:
    """Head and records, each with its emitter and attempt."""
    return [stream.head, *stamped(stream)]


def put(files: Mapping[str, bytes | str], folder: Path) -> Path:
    """Write files into a folder, which is made where it is not there."""
    folder.mkdir(parents=True, exist_ok=True)
    for name, text in files.items():
        (folder / name).write_bytes(text if isinstance(text, bytes) else text.encode())
    return folder
