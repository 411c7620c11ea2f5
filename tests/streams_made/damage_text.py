"""Damages the text of a stream: lines that are not records, files without their header."""

from __future__ import annotations

import re

from .damage import on_text


def _line(text: bytes, share: float = 0.5) -> tuple[list[bytes], int]:
    """The lines of a file, and the number of one that is a sample with a step."""
    lines = text.splitlines(keepends=True)
    start = int(len(lines) * share)
    number = next(n for n in range(start, len(lines)) if b'"train.loss.mean' in lines[n])
    return lines, number


@on_text("TS-TEL-001")
def merged_lines(text: bytes) -> bytes:
    """Two records stand in one line, as when two processes write to one file without a lock."""
    lines, number = _line(text)
    return b"".join([*lines[:number], lines[number].rstrip(b"\n"), *lines[number + 1 :]])


@on_text("TS-TEL-001")
def interleaved_lines(text: bytes) -> bytes:
    """A record begins in the middle of another one, and both end."""
    lines, number = _line(text)
    first, second = lines[number].rstrip(b"\n"), lines[number + 1].rstrip(b"\n")
    mixed = first[:80] + second + first[80:] + b"\n"
    return b"".join([*lines[:number], mixed, *lines[number + 2 :]])


@on_text("TS-TEL-001")
def cut_line(text: bytes) -> bytes:
    """A line in the middle of the file ends early."""
    lines, number = _line(text)
    return b"".join([*lines[:number], lines[number][:57] + b"\n", *lines[number + 1 :]])


@on_text("TS-TEL-001")
def duplicate_key(text: bytes) -> bytes:
    """A record has the key `step` twice, with two values."""
    lines, number = _line(text)
    lines[number] = lines[number].replace(b'"step":', b'"step":9,"step":', 1)
    return b"".join(lines)


@on_text("TS-TEL-001")
def duplicate_metric(text: bytes) -> bytes:
    """A record has the same metric twice, with two values."""
    lines, number = _line(text)
    lines[number] = lines[number].replace(b'"m":{', b'"m":{"train.step.count":1,', 1)
    return b"".join(lines)


@on_text("TS-TEL-001", "TS-TEL-015")
def bare_not_a_number(text: bytes) -> bytes:
    """A loss is written as the bare word NaN, which is no JSON."""
    lines, number = _line(text)
    lines[number] = re.sub(rb'("train\.loss\.mean[^:]*":)[0-9.]+', rb"\1NaN", lines[number])
    return b"".join(lines)


@on_text("TS-TEL-001")
def invalid_utf8(text: bytes) -> bytes:
    """A byte of a name is no UTF-8."""
    lines, number = _line(text)
    lines[number] = lines[number].replace(b"train.loss.name=total", b"train.loss.name=t\xfftal", 1)
    return b"".join(lines)


@on_text("TS-TEL-001")
def number_as_text(text: bytes) -> bytes:
    """Values of one record are written in quotation marks."""
    lines, number = _line(text)
    lines[number] = re.sub(rb'("train\.step\.count":)([0-9.]+)', rb'\1"\2"', lines[number])
    return b"".join(lines)


@on_text("TS-TEL-001")
def unknown_kind(text: bytes) -> bytes:
    """A record is of a kind that does not exist."""
    lines, number = _line(text)
    lines[number] = lines[number].replace(b'"k":"m"', b'"k":"metric"', 1)
    return b"".join(lines)


@on_text("TS-TEL-001")
def banner_lines(text: bytes) -> bytes:
    """Lines of a program's banner stand between the records."""
    lines, number = _line(text)
    return b"".join([*lines[:number], b"INFO: NCCL version 2.27.3+cuda12.9\n", *lines[number:]])


@on_text("TS-TEL-001", "TS-TEL-043", "TS-TEL-044", "TS-TEL-023")
def truncated_file(text: bytes) -> bytes:
    """The file of the job ends in the middle of a record, at 70 % of its length, and the run never ends."""
    return text[: int(len(text) * 0.7)]


@on_text("TS-TEL-002")
def missing_head(text: bytes) -> bytes:
    """The first line of the job's file, its head, is gone."""
    return text.split(b"\n", 1)[1]


@on_text("TS-TEL-002", "TS-TEL-001")
def unknown_version(text: bytes) -> bytes:
    """The head names a version of the specification that does not exist."""
    return text.replace(b"trainspec/v1", b"trainspec/v9", 1)


@on_text("TS-TEL-002", file="rank-000003.0.jsonl")
def head_in_the_middle(text: bytes) -> bytes:
    """A second attempt is appended to the file of a rank, and no record says which of the two it is of."""
    again = text.replace(b'"att":0', b'"att":1', 1)
    return text + again


@on_text("TS-TEL-016", "TS-TEL-001")
def naive_times(text: bytes) -> bytes:
    """Times are written as local dates without a zone."""
    return re.sub(rb'"time_us":\d+,"seq"', b'"time_us":"2026-02-25 06:13:20.000","seq"', text)


@on_text("TS-TEL-003", "TS-TEL-004")
def empty_file(text: bytes) -> bytes:
    """The file of the job holds its head and nothing else."""
    return text.split(b"\n", 1)[0] + b"\n"
