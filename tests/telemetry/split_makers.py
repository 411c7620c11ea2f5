"""Writes one run in many layouts, and describes what was seen of it without files and places."""

from __future__ import annotations

import math
import random
import re
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any

import msgspec
import numpy as np

from tests.streams_made import write
from tests.streams_made.emitter import Stream
from trainspec_validate.documents.types.stream import Event, Head, Sample
from trainspec_validate.model.requirements import load_index
from trainspec_validate.telemetry.decode.run_file import RunFile
from trainspec_validate.telemetry.fold.engine import run_file
from trainspec_validate.telemetry.formats import parquet
from trainspec_validate.telemetry.formats.native import read_line
from trainspec_validate.telemetry.judge import judge_view
from trainspec_validate.telemetry.view.run_view import RunView, Series

Files = dict[str, bytes]
Said = Counter[tuple[str, ...]]
PLACED = re.compile(r"location|_file$|_offset$|^file$|^offset$")
ROUNDED = frozenset({"total", "integral", "integral_seconds"})


class Sum(float):
    """A sum of many values, which depends in its last digits on their order."""

    __hash__ = None  # type: ignore[assignment]

    def __eq__(self, other: object) -> bool:
        return isinstance(other, float) and math.isclose(self, other, rel_tol=1e-9, abs_tol=1e-9)


# --- one run in many ways


def streams_in(files: Mapping[str, bytes]) -> list[Stream] | None:
    """The streams of files by emitter; None where a line is no record or names its own emitter."""
    found = []
    for text in files.values():
        head, *records = map(read_line, text.splitlines())
        if not isinstance(head, Head) or not all(isinstance(r, Sample | Event) and not r.emitter for r in records):
            return None
        found.append(Stream(head, tuple(records)))  # type: ignore[arg-type]
    return found


def shuffled(files: Mapping[str, bytes], seed: int = 5) -> Files:
    """The files with the lines behind the head in any order."""
    found = {}
    for name, text in files.items():
        head, *rest = text.splitlines(keepends=True)
        random.Random(seed).shuffle(rest)
        found[name] = head + b"".join(rest)
    return found


def renamed(files: Mapping[str, bytes]) -> Files:
    """The files with names that put them into another order."""
    return {f"{99 - number}.jsonl": text for number, text in enumerate(files.values())}


LAYOUTS: dict[str, Callable[[list[Stream]], Files]] = {
    "one file by time": write.together,
    "one file in any order of emitters": lambda streams: write.together(streams, seed=3),
    "by time": lambda streams: write.by_time(streams, 5),
    "by time, names in any order": lambda streams: write.by_time(streams, 7, seed=2),
    "lines in any order": lambda streams: shuffled(write.by_emitter(streams)),
    "one file, lines in any order": lambda streams: shuffled_behind_heads(write.together(streams), len(streams)),
    "other names": lambda streams: renamed(write.by_emitter(streams)),
    "gz": lambda streams: write.compressed(write.by_emitter(streams), "gz"),
    "zst": lambda streams: write.compressed(write.together(streams), "zst"),
}


def shuffled_behind_heads(files: Mapping[str, bytes], num_heads: int) -> Files:
    """One file with its heads, and all other lines in any order."""
    ((name, text),) = files.items()
    lines = text.splitlines(keepends=True)
    rest = lines[num_heads:]
    random.Random(9).shuffle(rest)
    return {name: b"".join((*lines[:num_heads], *rest))}


def put(files: Mapping[str, bytes], folder: Path) -> list[RunFile]:
    """Write files, and give them as files of a run."""
    folder = write.put(files, folder)
    return [run_file(number, folder / name, name) for number, name in enumerate(sorted(files))]


def as_parquet(streams: Iterable[Stream], folder: Path) -> list[RunFile]:
    """Write the Parquet twin of each stream."""
    folder.mkdir(parents=True)
    found = []
    for number, stream in enumerate(streams):
        path = folder / f"{number:03}.parquet"
        parquet.write([stream.head, *stream.records], path)
        found.append(run_file(number, path, path.name))
    return found


# --- what was seen


def seen(view: RunView) -> dict[str, Any]:
    """All of a view but the places, in an order that follows from the content."""
    rows = [view.series.at(index) for index in range(len(view.series))]
    return {
        "run": (view.run, view.num_records, view.num_samples, view.first_time_us, view.last_time_us, view.is_live),
        "heads": {repr(head.record) for head in view.heads},
        "attempts": [(a.number, a.first_time_us, a.last_time_us, a.world_size, _name(a.ended)) for a in view.attempts],
        "events": Counter(repr((_bare(e.record), e.attempt, e.run, e.emitter, e.subject)) for e in view.events),
        "keys": {str(k.key): (k.num, k.unit, k.instrument, k.attributes, _spelt(k)) for k in view.keys},
        "series": {(str(r.key), r.subject, r.attempt, r.emitter): plain(r) for r in rows},
        "trails": {(t.trouble, str(t.key), t.attempt): _trail(t) for t in view.trails},
        "job": {name: plain(series) for name, series in view.job.items()},
        "windows": {name: plain(windows) for name, windows in view.windows.items()},
        "lockstep": [plain(one) for one in view.lockstep],
        "emitters": [{**plain(one), "missing": _numbers(one.missing)} for one in view.emitters],
        "placements": Counter(repr(sorted(plain(one).items())) for one in view.placements),
        "damage": Counter((damage.requirement, damage.message, damage.help) for damage in view.damage),
        "other runs": sorted(view.other_runs),
    }


def _name(event: Any) -> str | None:
    return event and event.name


def _spelt(info: Any) -> list[str]:
    return sorted(text for text, _ in info.spellings)


def _numbers(found: Iterable[tuple[Any, ...]]) -> list[tuple[Any, ...]]:
    return [each[:-1] for each in found]


def _bare(record: Event) -> Event:
    return msgspec.structs.replace(record, emitter=None, att=None)


def _trail(trail: Any) -> dict[str, Any]:
    found = plain(trail)
    first = Counter(repr(sorted(plain(one).items())) for one in found.pop("first"))
    return {**found, "first": first if trail.num <= 64 else sum(first.values())}


def plain(thing: Any) -> dict[str, Any]:
    """The fields of a thing but its places, arrays as lists, sums to ten digits."""
    names = getattr(thing, "__dataclass_fields__", None) or thing._fields
    found = {name: getattr(thing, name) for name in names if not PLACED.search(name) and name != "repeated"}
    return {name: _value(value, rounded=name in ROUNDED) for name, value in found.items()}


def _value(value: Any, *, rounded: bool) -> Any:
    if isinstance(value, np.ndarray) and value.ndim == 1 and value.dtype.kind in "iu":
        return value.tolist()
    if isinstance(value, np.ndarray) and value.ndim == 1 and value.dtype.kind == "f" and not rounded:
        return list(map(repr, value.tolist()))
    if isinstance(value, np.ndarray):
        return [_value(each, rounded=rounded) for each in value.tolist()]
    if isinstance(value, float):
        return Sum(value) if rounded else repr(value)
    return value


def places(view: RunView) -> dict[str, Any]:
    """All places in a view, for readings of the same files."""
    rows = view.series.rows
    order = np.lexsort((rows["first_offset"], rows["first_file"]))
    stems = [name.removesuffix("_location") for name in Series.__dataclass_fields__ if name.endswith("_location")]
    columns = [f"{stem}_{part}" for stem in stems for part in ("file", "offset")]
    return {
        "series": Counter(zip(*(rows[name][order].tolist() for name in columns), strict=True)),
        "trails": {
            (t.trouble, str(t.key), t.attempt): [(o.location, o.location_before) for o in t.first] for t in view.trails
        },
        "windows": {name: (w.file.tolist(), w.offset.tolist()) for name, w in view.windows.items()},
        "events": [event.location for event in view.events],
        "keys": {str(info.key): (info.location, info.spellings) for info in view.keys},
        "damage": [(damage.location, damage.message) for damage in view.damage],
        "emitters": [(one.first_location, one.last_location, one.missing, one.repeated) for one in view.emitters],
        "lockstep": [one.low_location[one.num > 0].tolist() for one in view.lockstep],
    }


def said(view: RunView, files: list[RunFile], *, with_lines: bool = False) -> Said:
    """The findings, without the names of files and lines unless those are asked for."""
    index = load_index()
    wanted = [requirement for requirement in index.by_id.values() if requirement.check == "stream"]
    found = judge_view(view, files, wanted, index, {}).findings
    if with_lines:
        return Counter((f.requirement, f.message, f.path, str(f.span), *(str(r) for r in f.related)) for f in found)
    return Counter((f.requirement, f.message, f.help, f.evidence.series if f.evidence else "") for f in found)
