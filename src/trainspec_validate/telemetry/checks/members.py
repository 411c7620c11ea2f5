"""Checks the members of a run: ranks, devices, their identity, and the size of the job."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Sequence

import numpy as np

from trainspec_validate.telemetry.checks import Evidence, NotApplicable, Violation, check, require
from trainspec_validate.telemetry.checks._absences import JOINED, LOST, ranks_named
from trainspec_validate.telemetry.checks._cadences import Cadences
from trainspec_validate.telemetry.checks._members import (
    device_metrics,
    devices_by_attempt,
    head_of_scope,
    holes,
    rank_metrics,
    ranks_of_rows,
)
from trainspec_validate.telemetry.checks._rows import Columns, refuse_snapshot, rows_of, violations_of_rows
from trainspec_validate.telemetry.checks._words import (
    Fault,
    counted,
    few,
    names_in_words,
    number,
    seconds_in_words,
    series_in_words,
)
from trainspec_validate.telemetry.view.run_view import AttemptSpan, Location, Placement, RunView, Series

FEWEST_CADENCES = 2
"""Cadences that an attempt lasts before each rank can be expected to have written."""
SLOW_START_CADENCES = 3
"""Cadences after the first rank in which the others begin; 8,192 processes of one run began within 4.4 s."""
MAX_RANGES = 16
FEWEST_HEARTBEATS = 5
"""Heartbeats of a rank in a short attempt after which the others are missing."""
FEWEST_OF_RANGE = 3
MAX_RANGE = 10_000_000
_CHANGES = (JOINED, LOST, "train.topology.changed", "train.node.drained", "train.node.returned")
"""Events after which ranks may sit elsewhere within an attempt."""

_LARGEST_OFFSET = 1 << 42
"""Bytes beyond the end of any file."""


@check("TS-TEL-027")
def rank_complete(run: RunView) -> Iterator[Violation]:
    """Every rank of an attempt reports, from its start."""
    rows = rows_of(run, rank_metrics(run))
    rows = rows[ranks_of_rows(run, rows) >= 0]
    if not len(rows):
        raise NotApplicable("no metric of ranks")
    sized = [span for span in run.attempts if span.world_size is not None]
    if not sized:
        yield from _holes_between(run, rows)
        return
    refuse_snapshot(run)
    slowest = Cadences(run).of_rows(run, rows).max() / 1e6
    judged = [span for span in sized if span.seconds >= FEWEST_CADENCES * slowest]
    stepped = {span.number for span in sized if _most_values(run, rows, span) >= FEWEST_HEARTBEATS} - {
        span.number for span in judged
    }
    if not judged and not stepped:
        raise NotApplicable("no attempt is longer than two cadences")
    for span in sized:
        mine = rows[run.series.rows["attempt"][rows] == span.number]
        if len(mine) and (span in judged or span.number in stepped):
            yield from _silent_ranks(run, span, np.unique(ranks_of_rows(run, mine)))
        if len(mine) and span in judged:
            yield from _late_ranks(run, span)


def _most_values(run: RunView, rows: np.ndarray, span: AttemptSpan) -> int:
    """Heartbeats of the rank that wrote most of them."""
    beats = np.intersect1d(rows, rows_of(run, ["train.rank.step"]))
    mine = beats[run.series.rows["attempt"][beats] == span.number]
    return int(run.series.rows["num"][mine].max(initial=0))


def _holes_between(run: RunView, rows: np.ndarray) -> Iterator[Violation]:
    """Ranks without a value between others, where nothing states how many there are."""
    judged = False
    for attempt in np.unique(run.series.rows["attempt"][rows]).tolist():
        seen = np.unique(ranks_of_rows(run, rows[run.series.rows["attempt"][rows] == attempt]))
        lost = [r for event in run.events_named(LOST) if event.attempt == attempt for r in ranks_named(event)]
        low, high = int(seen.min()), int(seen.max())
        judged |= len(seen) >= FEWEST_OF_RANGE
        everyone = np.arange(low, min(high, low + MAX_RANGE) + 1)
        missing = np.setdiff1d(everyone, np.union1d(seen, lost))
        if len(seen) >= FEWEST_OF_RANGE and 0 < len(missing) < len(seen):
            named = ", ".join(str(rank) for rank in missing[:MAX_RANGES]) + (" and more" * (len(missing) > MAX_RANGES))
            yield Violation(
                head_of_scope(run, attempt, ("rank", "group")),
                f"{counted(len(missing), 'rank')} between ranks {low} and {high} without a value: {named}",
                "give the files or targets of all ranks, and state the world size",
                Evidence(subjects=f"ranks {named}", count=len(missing)),
            )
    if not judged:
        raise NotApplicable("no world size is stated")


def _silent_ranks(run: RunView, span: AttemptSpan, seen: np.ndarray) -> Iterator[Violation]:
    size = span.world_size or 0
    lost = [r for event in run.events_named(LOST) if event.attempt == span.number for r in ranks_named(event)]
    missing = holes(np.union1d(seen, lost), size)
    if not missing:
        return
    amount = sum(high - low + 1 for low, high in missing)
    ranges = ", ".join(str(low) if low == high else f"{low}-{high}" for low, high in missing[:MAX_RANGES])
    ranges += " and more" if len(missing) > MAX_RANGES else ""
    yield Violation(
        head_of_scope(run, span.number, ("rank", "group")),
        f"{counted(amount, 'rank')} of {size:,} in attempt {span.number} without a value: {ranges}",
        "let every rank write; one that is lost is named by an event train.rank.lost",
        Evidence(subjects=f"rank{'s' * (amount > 1)} {ranges}", count=amount),
    )


def _late_ranks(run: RunView, span: AttemptSpan) -> Iterator[Violation]:
    rows = rows_of(run, ["train.rank.step"])
    joined = [r for event in run.events_named(JOINED) if event.attempt == span.number for r in ranks_named(event)]
    rows = rows[(run.series.rows["attempt"][rows] == span.number) & ~np.isin(ranks_of_rows(run, rows), joined)]
    if not len(rows):
        return
    first = run.series.rows["first_time_us"][rows]
    rows = rows[np.lexsort((first, ranks_of_rows(run, rows)))]
    rows = rows[np.unique(ranks_of_rows(run, rows), return_index=True)[1]]
    first = run.series.rows["first_time_us"][rows]
    late = rows[first - first.min() > SLOW_START_CADENCES * Cadences(run).of_rows(run, rows)]

    def fault(series: Series) -> Fault:
        length = seconds_in_words((series.first_time_us - int(first.min())) / 1e6)
        return Fault(
            key=series.key,
            subject=series.subject,
            location=series.first_location,
            message=f"{series_in_words(series.key, series.subject)} begins {length} after that of the first rank",
            help="write the heartbeat from the start of the attempt; ranks that come later join by train.rank.joined",
            first_time_us=int(first.min()),
            last_time_us=series.first_time_us,
        )

    yield from violations_of_rows(run, late, "first", fault)


@check("TS-TEL-028")
def device_complete(run: RunView) -> Iterator[Violation]:
    """Every device of an attempt reports the required metrics that other devices report."""
    owed = [metric.name for metric in device_metrics(run) if metric.level == "required"]
    if not owed:
        raise NotApplicable("no required metric of devices")
    have: dict[tuple[int, str], set[str]] = defaultdict(set)
    writers: dict[tuple[int, str], set[str]] = defaultdict(set)
    for attempt, metric, _, device, emitter in devices_by_attempt(run, [m.name for m in device_metrics(run)]):
        have[(attempt, metric)].add(device)
        writers[(attempt, device)].add(emitter)
    for placement in run.placements:
        if placement.device is not None:
            writers[(placement.attempt, placement.device)] |= set()
    absent: dict[tuple[int, frozenset[str]], list[str]] = defaultdict(list)
    for attempt, metric in sorted(pair for pair in have if pair[1] in owed):
        devices = {device for number, device in writers if number == attempt}
        excused = {emitter for emitter, number in _unsupporting(run, metric) if number == attempt}
        missing = {d for d in devices - have[(attempt, metric)] if not writers[(attempt, d)] & excused}
        if missing:
            absent[(attempt, frozenset(missing))].append(metric)
    for (attempt, devices_without), metrics in absent.items():
        num_devices = len({device for number, device in writers if number == attempt})
        writer = min(writers[(attempt, min(devices_without))], default=None)
        yield Violation(
            head_of_scope(run, attempt, ("device",), writer),
            f"{counted(len(devices_without), 'device')} of {num_devices:,} in attempt {attempt} without "
            f"{names_in_words(metrics)}: {names_in_words(devices_without)}",
            "let every device report it, or name it under unsupported in the head, with the reason",
            Evidence(names_in_words(metrics), names_in_words(devices_without), count=len(devices_without)),
        )


def _unsupporting(run: RunView, metric: str) -> Iterator[tuple[str, int]]:
    for head in run.heads:
        if metric in head.record.unsupported:
            yield head.record.emitter, head.record.att


@check("TS-TEL-029")
def identity_stable(run: RunView) -> Iterator[Violation]:
    """Within an attempt ranks and devices stay on their hosts, and nothing goes by two names."""
    if not any(subject.host is not None or subject.device is not None for subject in run.series.subjects):
        raise NotApplicable("no record names a host or a device")
    yield from few([*_moved_ranks(run), *_moved_devices(run), *_doubles(run)])


@check("TS-TEL-030")
def world_size_consistent(run: RunView) -> Iterator[Violation]:
    """Heads, events, ranks and counts of an attempt agree on how many ranks it has."""
    sized = require([span for span in run.attempts if span.world_size is not None], "no world size is stated")
    rows = np.arange(len(run.series))
    ranks = ranks_of_rows(run, rows)
    active = run.job.get("train.world.active")
    num_stated = sum(head.record.world_size is not None for head in run.heads) + sum(bool(s.started) for s in sized)
    if ranks.max(initial=-1) < 0 and active is None and num_stated < 2:
        raise NotApplicable("nothing to hold the world size against")
    found: list[Violation] = []
    for span in sized:
        found += [*_other_sizes(run, span), *_coordinates_beyond(run, span)]
        if not any(event.attempt == span.number for event in run.events_named(JOINED)):
            mine = rows[(run.series.rows["attempt"] == span.number) & (ranks >= (span.world_size or 0))]
            found += _surplus_ranks(run, span, mine)
            found += _surplus_active(run, span)
    yield from few(found)


def _other_sizes(run: RunView, span: AttemptSpan) -> Iterator[Violation]:
    for head in run.heads:
        size = head.record.world_size
        if head.record.att == span.number and size is not None and size != span.world_size:
            source = "the event that starts it" if span.started else "another head"
            yield Violation(
                head.location,
                f"this head gives attempt {span.number} {counted(size, 'rank')}, {source} {span.world_size:,}",
                "state the ranks that the attempt was started with, the same everywhere",
                related=((span.started.location, "the event"),) if span.started else (),
            )


def _coordinates_beyond(run: RunView, span: AttemptSpan) -> Iterator[Violation]:
    """Heads that place a rank at a parallel coordinate that the attempt cannot have."""
    for head in run.heads:
        for name, value in head.record.declared.items():
            if head.record.att != span.number or not name.startswith("train.parallel."):
                continue
            if isinstance(value, int) and value >= (span.world_size or 0):
                yield Violation(
                    head.location,
                    f"{name} is {value:,} in attempt {span.number}, which has {span.world_size:,} ranks, from 0",
                    "coordinates count from 0, and their degrees multiply to the ranks of the attempt",
                )


def _surplus_ranks(run: RunView, span: AttemptSpan, rows: np.ndarray) -> Iterator[Violation]:
    if len(rows):
        mine = Columns(run, rows)
        first = run.series.at(int(rows[np.lexsort((mine["first_offset"], mine["first_file"]))[0]]))
        yield Violation(
            first.first_location,
            f"rank {first.subject.rank} reports in attempt {span.number}, which has {span.world_size:,} ranks, from 0",
            "number ranks from 0 over the whole job, and state the size of the attempt that runs",
            Evidence(series=str(first.key), count=len(np.unique(ranks_of_rows(run, rows)))),
        )


def _surplus_active(run: RunView, span: AttemptSpan) -> Iterator[Violation]:
    active = run.job.get("train.world.active")
    if active is None or not len(active):
        return
    wrong = np.flatnonzero((active.attempt == span.number) & (active.value > (span.world_size or 0)))
    if len(wrong):
        yield Violation(
            active.location(int(wrong[0])),
            f"train.world.active is {number(float(active.value[wrong[0]]))} in attempt {span.number}, "
            f"which was started with {counted(span.world_size or 0, 'rank')}",
            "ranks that join without a new attempt are named by an event train.rank.joined",
            Evidence(series="train.world.active", count=len(wrong)),
        )


def _moved_ranks(run: RunView) -> Iterator[Violation]:
    """Ranks with two hosts, or with one device after another, in an attempt in which no event says that they move."""
    by_rank: dict[tuple[int, int], list[Placement]] = defaultdict(list)
    for placement in run.placements:
        by_rank[(placement.attempt, placement.rank)].append(placement)
    changes = [(event.attempt, event.time_us) for event in run.events_named(*_CHANGES)]
    for (attempt, rank), mine in by_rank.items():
        pair = _first_move(sorted(mine, key=lambda placement: placement.first_time_us))
        if pair and not any(a == attempt and time <= pair[1].first_time_us for a, time in changes):
            before, now = pair
            what, old, new = ("host", before.host, now.host)
            if before.host == now.host:
                what, old, new = ("device", before.device, now.device)
            yield Violation(
                now.location,
                f"rank {rank} changes from {what} {old} to {new} within attempt {attempt}",
                "a rank stays where it is until a new attempt, or an event train.topology.changed says that it moves",
                related=((before.location, "where it was"),),
            )


def _first_move(placements: Sequence[Placement]) -> tuple[Placement, Placement] | None:
    for i, before in enumerate(placements):
        for now in placements[i + 1 :]:
            if before.host and now.host and before.host != now.host:
                return before, now
            # a rank may drive several devices at once; one that it had for a while and then no more is another matter
            apart = before.first_time_us < before.last_time_us < now.first_time_us
            if before.device and now.device and before.device != now.device and apart:
                return before, now
    return None


def _moved_devices(run: RunView) -> Iterator[Violation]:
    """Devices that records of two hosts name in one attempt: an index taken for an identifier."""
    hosts: dict[tuple[int, str], dict[str, Location]] = defaultdict(dict)
    for attempt, index, location in _first_places(run):
        subject = run.series.subjects[index]
        if subject.device is not None and subject.host is not None:
            mine = hosts[(attempt, subject.device)]
            mine[subject.host] = min(mine.get(subject.host, location), location)
    for (attempt, device), places in hosts.items():
        if len(places) > 1:
            (first, before), (second, place) = sorted(places.items(), key=lambda item: item[1])[:2]
            yield Violation(
                place,
                f"device {device} is on host {first} and on host {second} in attempt {attempt}",
                "name devices by an identifier of their own, such as the UUID, never by their index",
                related=((before, f"on host {first}"),),
            )


def _doubles(run: RunView) -> Iterator[Violation]:
    """Hosts whose name is that of another host with something appended, and names that differ in case alone."""
    hosts: dict[str, Location] = {}
    devices: dict[str, Location] = {}
    for _, index, location in _first_places(run):
        subject = run.series.subjects[index]
        for name, places in ((subject.host, hosts), (subject.device, devices)):
            if name is not None:
                places[name] = min(places.get(name, location), location)
    pairs = [*_differing_in_case(hosts), *_differing_in_case(devices)]
    for name in hosts:
        ends = [at for at, letter in enumerate(name) if letter == "."]
        pairs += [(name[:at], name) for at in ends if name[:at] in hosts]
    for one, other in pairs:
        places = hosts if one in hosts and other in hosts else devices
        first, second = sorted((one, other), key=lambda name: places[name])
        yield Violation(
            places[second],
            f"{second!r} looks like another name of {first!r}",
            "call a host or a device the same in every record; two things whose names differ so little get better ones",
            related=((places[first], "the other name"),),
        )


def _differing_in_case(places: dict[str, Location]) -> Iterator[tuple[str, str]]:
    folded: dict[str, str] = {}
    for name in sorted(places):
        other = folded.setdefault(name.casefold(), name)
        if other != name:
            yield other, name


def _first_places(run: RunView) -> Iterator[tuple[int, int, Location]]:
    """Attempt, number of the subject, and the first record that names it."""
    rows = run.series.rows
    if not len(rows):
        return
    codes = rows["attempt"].astype(np.int64) * len(run.series.subjects) + rows["subject"]
    order = np.argsort(codes, kind="stable")
    begins = np.concatenate([[0], np.flatnonzero(np.diff(codes[order])) + 1])
    places = rows["first_file"].astype(np.int64) * _LARGEST_OFFSET + rows["first_offset"]
    for code, place in zip(
        codes[order][begins].tolist(), np.minimum.reduceat(places[order], begins).tolist(), strict=True
    ):
        yield *divmod(code, len(run.series.subjects)), Location(*divmod(place, _LARGEST_OFFSET))
