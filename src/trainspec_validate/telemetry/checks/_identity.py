"""Detects that a rank or a device has moved, or that one thing has two names."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Sequence

import numpy as np

from trainspec_validate.telemetry.checks import Violation
from trainspec_validate.telemetry.checks._absences import JOINED, LOST
from trainspec_validate.telemetry.view.run_view import Location, Placement, RunView

CHANGES = (JOINED, LOST, "train.topology.changed", "train.node.drained", "train.node.returned")
"""Events after which ranks may sit elsewhere within an attempt."""

_LARGEST_OFFSET = 1 << 42
"""Bytes beyond the end of any file."""


def moved_ranks(run: RunView) -> Iterator[Violation]:
    """Ranks with two hosts, or with one device after another, in an attempt in which no event says that they move."""
    by_rank: dict[tuple[int, int], list[Placement]] = defaultdict(list)
    for placement in run.placements:
        by_rank[(placement.attempt, placement.rank)].append(placement)
    changes = [(event.attempt, event.time_us) for event in run.events_named(*CHANGES)]
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


def moved_devices(run: RunView) -> Iterator[Violation]:
    """Devices that records of two hosts name in one attempt: an index taken for an identifier."""
    hosts: dict[tuple[int, str], dict[str, Location]] = defaultdict(dict)
    for attempt, number, location in _first_places(run):
        subject = run.series.subjects[number]
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


def doubles(run: RunView) -> Iterator[Violation]:
    """Hosts whose name is that of another host with something appended, and names that differ in case alone."""
    hosts: dict[str, Location] = {}
    devices: dict[str, Location] = {}
    for _, number, location in _first_places(run):
        subject = run.series.subjects[number]
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
