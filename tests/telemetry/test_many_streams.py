"""No stream check falls silent because there is one more attempt, host, rank, device or series next to a fault."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator
from functools import cache
from pathlib import Path
from typing import Any

import msgspec
import pytest
from overlay import overlay
from spec_text import MARK

from trainspec_validate.documents.load import load_text
from trainspec_validate.documents.types import CheckpointPolicy, ClusterProfile, Document, TrainingPlan
from trainspec_validate.model.finding import Verdict
from trainspec_validate.model.requirements import Example, Requirement, load_index
from trainspec_validate.telemetry.fold.engine import run_file
from trainspec_validate.telemetry.judge import judge_run

BASE = Path(__file__).resolve().parents[2] / "spec" / "v1" / "base"
INDEX = load_index()
CHECKS = [requirement for requirement in INDEX.by_id.values() if requirement.check == "stream"]
DOCUMENTS = {"plan.yaml": TrainingPlan, "cluster.yaml": ClusterProfile, "checkpoint.yaml": CheckpointPolicy}
APART_US = 3 * 3_600_000_000
"""Between two attempts: longer than what happens in one has an effect on what comes later."""
SUBJECTS = ("host", "device", "rank")
NAMES = ("train.checkpoint.id", "train.fault.id", "train.restore.source", "train.fault.component")
Record = dict[str, Any]
Documents = dict[type[Document], Document]
Streams = dict[str, list[Record]]
Change = Callable[[Streams, Streams, bool], Streams | None]


# --- one more of a stream -----------------------------------------------------------------------------------


def streams_of(examples: tuple[Example, ...]) -> Streams | None:
    """The records of an example by file; None where a line is none."""
    found: Streams = {}
    for example in (example for example in examples if example.file.endswith(".jsonl")):
        text = re.sub(rf"  {MARK.pattern}", "", example.text, flags=MARK.flags)
        try:
            found[example.file] = [json.loads(line, object_pairs_hook=_record) for line in text.splitlines()]
        except ValueError:
            return None
    return found


def _record(pairs: list[tuple[str, Any]]) -> Record:
    found = dict(pairs)
    if len(found) < len(pairs):
        raise ValueError
    return found


def each(streams: Streams, change: Callable[[Record], Record]) -> Streams:
    return {name: [change(dict(record)) for record in records] for name, records in streams.items()}


def times(streams: Streams) -> list[int]:
    return [record["time_us"] for records in streams.values() for record in records]


def later(streams: Streams, by_us: int) -> Streams:
    """The same some time later, with numbers of steps and attempts as they are."""
    moments = ("time_us", "observed_us", "start_us", "counters_start_us")
    ranges = ("train.gap.start", "train.gap.end")

    def change(record: Record) -> Record:
        record |= {key: record[key] + by_us for key in moments if isinstance(record.get(key), int)}
        stated = record.get("a", {})
        return record | ({"a": stated | {k: stated[k] + by_us for k in ranges if k in stated}} if stated else {})

    return each(streams, change)


def other_names(streams: Streams) -> Streams:
    """The same with other checkpoints and faults."""

    def change(record: Record) -> Record:
        stated = record.get("a", {})
        named = {key: f"other-{stated[key]}" for key in NAMES[:3] if isinstance(stated.get(key), str)}
        return (
            record
            | ({"id": f"other-{record['id']}"} if "id" in record else {})
            | ({"a": stated | named} if named else {})
        )

    return each(streams, change)


def of_attempts(streams: Streams, by: int) -> Streams:
    """The same in later attempts."""

    def change(record: Record) -> Record:
        stated = record.get("a", {})
        number = {"train.run.attempt": stated["train.run.attempt"] + by} if "train.run.attempt" in stated else {}
        return (
            record
            | ({"att": record["att"] + by} if "att" in record else {})
            | ({"a": stated | number} if number else {})
        )

    return each(streams, change)


def last_attempt(streams: Streams) -> int:
    return max((record["att"] for records in streams.values() for record in records if "att" in record), default=0)


def of_another(streams: Streams, *keys: str) -> Streams:
    """What is of a subject with some of these keys, as of another one, by another emitter."""

    def change(record: Record) -> Record:
        for key in keys:
            if key in record:
                record[key] = record[key] + 1_000 if key == "rank" else f"other-{record[key]}"
        stated = record.get("a", {})
        if "device" in keys and isinstance(stated.get(NAMES[3]), str):
            record["a"] = stated | {NAMES[3]: f"other-{stated[NAMES[3]]}"}
        return record | ({"emitter": f"other-{record['emitter']}"} if "emitter" in record else {})

    kept = {}
    for name, (head, *records) in streams.items():
        mine = [r for r in records if r["k"] != "head" and any(key in head or key in r for key in keys)]
        if mine and not any(record["k"] == "head" for record in records):
            kept[name] = [head, *({**record, "seq": number} for number, record in enumerate(mine))]
    return each(kept, change)


def next_to(streams: Streams, others: Streams, *, first: bool) -> Streams | None:
    return (
        {**streams, **{f"{'0' if first else 'z'}-{name}": records for name, records in others.items()}}
        if others
        else None
    )


def another_attempt(bad: Streams, other: Streams, first: bool) -> Streams | None:
    if first:
        before = later(other, min(times(bad)) - max(times(other)) - APART_US)
        return next_to(of_attempts(bad, last_attempt(other) + 1), other_names(before), first=True)
    after = later(other, max(times(bad)) - min(times(other)) + APART_US)
    return next_to(bad, other_names(of_attempts(after, last_attempt(bad) + 1)), first=False)


def another_host(bad: Streams, other: Streams, first: bool) -> Streams | None:
    return next_to(bad, other_names(of_another(other, *SUBJECTS)), first=first)


def another_rank(bad: Streams, other: Streams, first: bool) -> Streams | None:
    return next_to(bad, other_names(of_another(other, "rank")), first=first)


def another_device(bad: Streams, other: Streams, first: bool) -> Streams | None:
    return next_to(bad, other_names(of_another(other, "device")), first=first)


def another_start(bad: Streams, other: Streams, first: bool) -> Streams | None:
    """Each attempt starts and ends twice; what the *Good:* example states of it comes before or after."""
    told = {"train.attempt.start", "train.attempt.end"}
    events = [record for records in other.values() for record in records if record.get("name") in told]
    ((name, records), *more) = bad.items()
    if more or not events or any(record["k"] == "head" for record in records[1:]):
        return None
    by_us = (
        min(times(bad)) - max(times(other)) - 1_000_000 if first else max(times(bad)) - min(times(other)) + 1_000_000
    )
    added = later({name: events}, by_us)[name]
    mixed = sorted([*records[1:], *added], key=lambda record: record["time_us"])
    return {name: [records[0], *({**record, "seq": number} for number, record in enumerate(mixed))]}


def another_series(bad: Streams, other: Streams, first: bool) -> Streams | None:
    """Each metric with attributes has another series, with values of the *Good:* example."""
    good: dict[str, list[Any]] = {}
    for record in (record for records in other.values() for record in records):
        for key, value in record.get("m", {}).items():
            good.setdefault(key, []).append(value)
    num_seen: dict[str, int] = {}

    def change(record: Record) -> Record:
        if record["k"] != "m":
            return record
        added = {}
        for key, value in record["m"].items():
            if key.endswith("}"):
                values = good.get(key, [value])
                place = num_seen[key] = num_seen.get(key, -1) + 1
                added[re.sub("=[^=]*}$", "=other}", key)] = values[min(place, len(values) - 1)]
        return record | {"m": added | record["m"] if first else record["m"] | added}

    found = each(bad, change)
    return found if found != bad else None


CHANGES: tuple[Change, ...] = (
    another_attempt,
    another_host,
    another_rank,
    another_device,
    another_start,
    another_series,
)
LACKED = "the requirement is that the streams of the run together have it"
ANSWERED: dict[tuple[str, str], str] = {
    ("another_attempt", "TS-TEL-071"): LACKED,
    ("another_host", "TS-TEL-070"): LACKED,
    ("another_host", "TS-TEL-071"): LACKED,
    ("another_device", "TS-TEL-081"): "the host reports as many devices as its nodes have then",
    ("another_series", "TS-TEL-042"): "a step was skipped, for another reason",
    ("another_attempt", "TS-TEL-088"): "the requirement is on the last attempt, whose loss is finite",
    ("another_attempt", "TS-REC-008"): "the job has not caught up with an attempt before that came as far",
    ("another_attempt", "TS-REC-021"): "nothing says what an attempt continues from that is no longer the first",
}
"""Findings that one more of something answers, by change and requirement, with why."""


# --- what is said of it -------------------------------------------------------------------------------------


@cache
def base(file: str) -> Any:
    return load_text((BASE / file).read_text(encoding="utf-8"), file).data


def documents_of(examples: tuple[Example, ...]) -> Documents:
    found: Documents = {}
    for example in examples:
        if example.file in DOCUMENTS:
            text = re.sub(rf"  {MARK.pattern}", "", example.text, flags=MARK.flags)
            data = overlay(base(example.file), load_text(text, example.file).data)
            kind: Any = DOCUMENTS[example.file]
            found[kind] = msgspec.convert(data, kind)
    return found


def verdict_on(
    requirement: Requirement, streams: Streams, documents: dict[type[Document], Document], place: Path
) -> Verdict:
    files = []
    for number, (name, records) in enumerate(sorted(streams.items())):
        (place / name).write_text(
            "".join(json.dumps(r, separators=(",", ":")) + "\n" for r in records), encoding="utf-8"
        )
        files.append(run_file(number, place / name, name))
    (outcome,) = judge_run(files, [requirement], INDEX, documents)[1].outcomes
    return outcome.verdict


def more_streams(requirement: Requirement) -> Iterator[tuple[str, Streams]]:
    """The *Bad:* example with one more of something, first or last: of the *Good:* example, or its own."""
    bad, good = streams_of(requirement.bad), streams_of(requirement.good)
    if bad is None or good is None:
        return
    for change in CHANGES:
        for other in (good, bad):
            for first in (True, False):
                found = change(bad, other, first)
                if found is not None and found != bad:
                    yield change.__name__, found


@pytest.mark.slow
def test_one_more_of_something_passes_no_bad_stream(tmp_path: Path) -> None:
    """What was wrong is wrong next to a right or an equal attempt, host, rank, device or series."""
    num_tried, passed = 0, {}
    for requirement in CHECKS:
        documents = documents_of(requirement.bad)
        for number, (change, streams) in enumerate(more_streams(requirement)):
            place = tmp_path / f"{requirement.id}-{number}"
            place.mkdir()
            num_tried += 1
            verdict = verdict_on(requirement, streams, documents, place)
            if verdict in (Verdict.PASS, Verdict.NOT_APPLICABLE):
                passed[(change, requirement.id)] = place.name
    assert {key: place for key, place in passed.items() if key not in ANSWERED} == {}
    assert set(passed) == set(ANSWERED)
