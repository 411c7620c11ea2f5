"""Turns a digest into the view that checks see of a run."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any

import numpy as np

from trainspec_validate.telemetry.decode.names import Names
from trainspec_validate.telemetry.decode.rows import FileFacts
from trainspec_validate.telemetry.fold import tabled
from trainspec_validate.telemetry.fold.digest import Digest
from trainspec_validate.telemetry.fold.tabled import place_of
from trainspec_validate.telemetry.kernels.layout import WRITER
from trainspec_validate.telemetry.kernels.sequence import MISSING
from trainspec_validate.telemetry.view.event_log import EventRow, named
from trainspec_validate.telemetry.view.run_view import (
    AttemptSpan,
    Damage,
    EmitterSpan,
    KeyInfo,
    Location,
    PlacedEvent,
    PlacedHead,
    RunView,
    StreamFile,
)

_MAX_NAMED = 64
_WRITER_FIELDS = WRITER.names or ()
_SPAN_FIELDS = ("num", "first_time_us", "last_time_us", "first_seq", "last_seq", "num_missing", "num_repeated")


@dataclass(frozen=True, slots=True)
class Circumstances:
    """Facts of a run that the caller has in addition to its records."""

    files: tuple[StreamFile, ...]
    is_live: bool = False
    snapshot: bool = False
    has_order: bool = True
    now_us: int | None = None
    watched_until_us: Mapping[int, int] = field(default_factory=dict)
    """Up to when each file of a run that is followed would have shown more records, by its own clock."""
    capabilities: frozenset[str] = frozenset()


def view_of(digest: Digest, around: Circumstances) -> RunView:
    """View of a run for checks."""
    events = digest.events.placed(partial(_placed, digest.names))
    has_ended = digest.events.has_ended
    watched = {} if has_ended else around.watched_until_us
    emitters = tuple(sorted(_emitters(digest), key=lambda span: (span.attempt, span.emitter)))
    heads = _heads(digest)
    first = min((span.first_time_us for span in emitters), default=-1)
    last = max((span.last_time_us for span in emitters), default=-1)
    return RunView(
        run=_run_name(digest, heads),
        files=around.files,
        heads=heads,
        attempts=_watched(tuple(_attempts(emitters, heads, events)), watched),
        events=events,
        keys=tuple(_keys(digest)),
        series=tabled.series(digest),
        trails=(*digest.trails.of(digest.names), *tabled.bursts(digest), *tabled.second_writers(digest)),
        job=digest.jobs.of(digest.names),
        windows=dict(tabled.windows(digest)),
        lockstep=tuple(tabled.lockstep(digest)),
        emitters=emitters,
        placements=tuple(tabled.placements(digest)),
        damage=tuple(_damage(digest)),
        other_runs=_other_runs(digest),
        num_records=digest.num_records,
        num_samples=digest.num_samples,
        first_time_us=first,
        last_time_us=last,
        is_live=around.is_live and not has_ended,
        snapshot=around.snapshot,
        has_order=around.has_order,
        now_us=around.now_us,
        watched_until_us=watched,
        capabilities=around.capabilities,
    )


def _heads(digest: Digest) -> tuple[PlacedHead, ...]:
    """Each head once: files that follow each other begin with the same one."""
    found = [PlacedHead(head, place) for facts in digest.files.values() for place, head in facts.heads]
    once: list[PlacedHead] = []
    for head in sorted(found, key=lambda h: (h.record.att, h.record.emitter, h.location)):
        if not once or once[-1].record != head.record:
            once.append(head)
    return tuple(once)


def _run_name(digest: Digest, heads: Iterable[PlacedHead]) -> str:
    first = min(heads, key=lambda head: (head.record.time_us, head.location), default=None)
    if first is not None:
        return first.record.run
    return next((writer.run for writer in digest.names.writers.items if writer.run), "")


def _placed(names: Names, row: EventRow) -> PlacedEvent:
    writer = names.writers.items[row.writer]
    place = Location(row.file, row.offset)
    return PlacedEvent(row.record, writer.attempt, writer.run, writer.emitter, names.subjects.items[row.subject], place)


def _emitters(digest: Digest) -> Iterator[EmitterSpan]:
    skips = digest.skips[: int(digest.skip_counts[0])]
    skipping = set(np.unique(skips["writer"]).tolist())
    rows = digest.writers[: len(digest.names.writers)]
    none = np.zeros(0, np.int64)
    for number in np.flatnonzero(rows["num"]).tolist():
        writer = digest.names.writers.items[number]
        row = dict(zip(_WRITER_FIELDS, rows[number].item(), strict=True))
        missing, repeated = _skips(skips[skips["writer"] == number]) if number in skipping else ((), ())
        places = (Location(row[f"{stem}_file"], row[f"{stem}_offset"]) for stem in ("first", "last"))
        numbers = (row[name] for name in _SPAN_FIELDS)
        lags = digest.lags.get(number, none)
        about: tuple[Any, ...] = (writer.emitter, writer.attempt, *numbers, missing, repeated, *places, lags)
        yield EmitterSpan(*about)


def _skips(skips: Any) -> tuple[tuple[tuple[int, int, Location], ...], tuple[tuple[int, Location], ...]]:
    """Numbers that one writer skipped and repeated, the first of each."""
    missing = skips[skips["kind"] == MISSING][:_MAX_NAMED]
    repeated = skips[skips["kind"] != MISSING][:_MAX_NAMED]
    return (
        tuple((int(skip["seq"]), int(skip["num"]), place_of(skip, "here")) for skip in missing),
        tuple((int(skip["seq"]), place_of(skip, "here")) for skip in repeated),
    )


def _watched(attempts: tuple[AttemptSpan, ...], until_us: Mapping[int, int]) -> tuple[AttemptSpan, ...]:
    """The attempts, of which the last one continues unless its event says that it has ended.

    It continues by the clocks of most files: a single one may be wrong by hours.
    """
    if not attempts or attempts[-1].ended is not None or not until_us:
        return attempts
    middle = sorted(until_us.values())[(len(until_us) - 1) // 2]
    return *attempts[:-1], replace(attempts[-1], watched_until_us=middle)


def _attempts(
    emitters: Iterable[EmitterSpan], heads: Iterable[PlacedHead], events: Sequence[PlacedEvent]
) -> Iterator[AttemptSpan]:
    spans: dict[int, tuple[int, int]] = {}
    for span in emitters:
        low, high = spans.get(span.attempt, (span.first_time_us, span.last_time_us))
        spans[span.attempt] = min(low, span.first_time_us), max(high, span.last_time_us)
    sizes: dict[int, int] = {}
    for head in heads:
        if head.record.world_size is not None:
            sizes.setdefault(head.record.att, head.record.world_size)
    started: dict[int, PlacedEvent] = {}
    ended: dict[int, PlacedEvent] = {}
    for event in named(events, "train.attempt.start", "train.attempt.end"):
        number = event.attribute("train.run.attempt")
        number = number if isinstance(number, int) else event.attempt
        if event.name == "train.attempt.start":
            started.setdefault(number, event)
            size = event.attribute("train.world.size")
            if isinstance(size, int):
                sizes[number] = size
        elif event.name == "train.attempt.end":
            ended[number] = event
    for number, (low, high) in sorted(spans.items()):
        yield AttemptSpan(number, low, high, sizes.get(number), started.get(number), ended.get(number))


def _keys(digest: Digest) -> Iterator[KeyInfo]:
    names = digest.names
    numbers: dict[int, int] = {}
    histograms: dict[int, int] = {}
    first: dict[int, Location] = {}
    beside: dict[int, set[str]] = {}
    for facts in digest.files.values():
        for key, num in facts.num_of_key.items():
            numbers[key] = numbers.get(key, 0) + num
            histograms[key] = histograms.get(key, 0) + facts.num_histograms.get(key, 0)
            first[key] = min(first.get(key, facts.first_of_key[key]), facts.first_of_key[key])
            beside.setdefault(key, set()).update(facts.attributes.get(key, ()))
    spellings, stated = _spellings(digest), _stated(digest)
    for key, num in sorted(numbers.items()):
        about = (names.spelled[key], names.keys.items[key], names.metrics[key], num, first[key])
        unit, instrument = stated.get(names.keys.items[key].metric, (None, None))
        written = "number" if not histograms[key] else "histogram" if histograms[key] >= num else "mixed"
        yield KeyInfo(*about, unit, instrument or written, frozenset(beside[key]), spellings.get(key, ()))


def _spellings(digest: Digest) -> dict[int, tuple[tuple[str, Location], ...]]:
    """The names that each key is written as, with their first places."""
    places: dict[str, Location] = {}
    for facts in digest.files.values():
        for text, place in facts.spellings.items():
            places[text] = min(places.get(text, place), place)
    found: dict[int, list[tuple[str, Location]]] = {}
    for text, place in sorted(places.items(), key=lambda item: (item[1], item[0])):
        if text in digest.names.texts:
            found.setdefault(digest.names.texts[text], []).append((text, place))
    return {key: tuple(pairs) for key, pairs in found.items()}


def _stated(digest: Digest) -> dict[str, tuple[str, str]]:
    """Unit and instrument of each metric of a vendor, as the first head declares them that does."""
    found: dict[str, tuple[str, str]] = {}
    for head in digest.names.heads:
        for name, declared in head.extension_metrics.items() if head else ():
            found.setdefault(name, (declared.unit, declared.instrument))
    return found


def _damage(digest: Digest) -> list[Damage]:
    found = [damage for facts in digest.files.values() for damage in (*facts.damage, *_nameless(facts))]
    return sorted(found, key=lambda damage: damage.location)


def _nameless(facts: FileFacts) -> Iterator[Damage]:
    """Records that rest on a head in a file that has several."""
    if facts.first_implicit is not None and len(facts.heads) > 1:
        message = f"the file has {len(facts.heads)} heads, and this record names no emitter or no attempt"
        remedy = "write emitter and att on each record of a file that several writers share"
        yield Damage("TS-TEL-002", facts.first_implicit, message, remedy)


def _other_runs(digest: Digest) -> Mapping[str, Location]:
    found: dict[str, Location] = {}
    for facts in digest.files.values():
        for run, place in facts.other_runs.items():
            found[run] = min(found.get(run, place), place)
    return found
