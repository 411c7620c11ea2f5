"""Checks that clocks agree well enough, and that the network is probed as declared."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from trainspec_validate.model.metrics import by_name
from trainspec_validate.telemetry.checks import Evidence, NotApplicable, Violation, check
from trainspec_validate.telemetry.checks._members import devices_by_attempt, head_of_scope
from trainspec_validate.telemetry.checks._progress import median_step_seconds
from trainspec_validate.telemetry.checks._rows import rows_of, violations_of_rows
from trainspec_validate.telemetry.checks._saves import saves
from trainspec_validate.telemetry.checks._words import (
    Fault,
    counted,
    few,
    moment,
    names_in_words,
    seconds_in_words,
    series_in_words,
)
from trainspec_validate.telemetry.view.run_view import PlacedEvent, RunView, Series

OFFSET, ERROR, LATENCY = "train.clock.offset", "train.clock.error", "train.network.latency"
SOURCE, TARGET = "train.network.source", "train.network.target"
LARGEST_OFFSET_SECONDS = 0.1
"""Time services hold hosts within 10 ms even over long distances; more than this is a clock that no one sets."""


@check("TS-TEL-050")
def clock_skew(run: RunView) -> Iterator[Violation]:
    """Clocks are off by less than an optimizer step takes, and no effect comes before its cause."""
    offsets, errors = rows_of(run, [OFFSET]), rows_of(run, [ERROR])
    pairs = list(_causes(run))
    if not len(offsets) and not pairs:
        raise NotApplicable(f"no {OFFSET}, and no restore of a checkpoint that the run committed")
    bound = min(LARGEST_OFFSET_SECONDS, median_step_seconds(run) or LARGEST_OFFSET_SECONDS)
    columns = run.series.rows
    doubt = {(int(columns["attempt"][r]), int(columns["subject"][r])): float(columns["maximum"][r]) for r in errors}
    places = zip(columns["attempt"][offsets].tolist(), columns["subject"][offsets].tolist(), strict=True)
    error = np.array([doubt.get(place, 0.0) for place in places])
    largest = np.maximum(np.abs(columns["minimum"][offsets]), np.abs(columns["maximum"][offsets])) + error

    def fault(series: Series) -> Fault:
        off = max(abs(series.minimum), abs(series.maximum))
        return Fault(
            key=series.key,
            subject=series.subject,
            location=series.last_location,
            message=f"{series_in_words(series.key, series.subject)} is up to {seconds_in_words(off)}, and with its "
            f"error more than {seconds_in_words(bound)}",
            help="keep clocks together by a time service, so that times of two hosts can be put in order",
            first_time_us=series.first_time_us,
            last_time_us=series.last_time_us,
        )

    yield from violations_of_rows(run, offsets[largest > bound], "last", fault)
    yield from few(_backwards(cause, effect) for cause, effect in pairs if effect.time_us < cause.time_us)


def _causes(run: RunView) -> Iterator[tuple[PlacedEvent, PlacedEvent]]:
    """Commits with the restores of what they committed, and faults with the recoveries that answer them."""
    restores = run.events_named("train.checkpoint.restore.begin")
    commits = {save.id: save.committed for save in saves(run)} if restores else {}
    for restore in restores:
        commit = commits.get(str(restore.attribute("train.restore.source")))
        if commit is not None:
            yield commit, restore
    faults = {event.attribute("train.fault.id"): event for event in run.events_named("train.fault.detected")}
    for recovery in run.events_named("train.recovery.begin"):
        fault = faults.get(recovery.attribute("train.fault.id"))
        if fault is not None:
            yield fault, recovery


def _backwards(cause: PlacedEvent, effect: PlacedEvent) -> Violation:
    early = seconds_in_words((cause.time_us - effect.time_us) / 1e6)
    return Violation(
        effect.location,
        f"{effect.name} is {early} before the {cause.name} that it follows from, at {moment(cause.time_us)}",
        "one of the two writers has a wrong clock: report its train.clock.offset and set it",
        Evidence(first_time_us=effect.time_us, last_time_us=cause.time_us),
        ((cause.location, "what it follows from"),),
    )


@check("TS-TEL-054")
def pair_latency_coverage(run: RunView) -> Iterator[Violation]:
    """Every host with devices is part of a pair whose latency is probed."""
    keys = {number: key for number, key in enumerate(run.series.keys) if key.metric == LATENCY}
    if not keys:
        raise NotApplicable(f"no {LATENCY}")
    rows = rows_of(run, [LATENCY])
    wanted = [name for name in run.series.metrics() if (m := by_name(name)) is not None and "device" in m.scopes]
    hosts: dict[int, set[str]] = {}
    for attempt, _, host, _, _ in devices_by_attempt(run, wanted):
        if host is not None:
            hosts.setdefault(attempt, set()).add(host)
    judged = False
    for attempt, mine in sorted(hosts.items()):
        numbers = np.unique(run.series.rows["key"][rows[run.series.rows["attempt"][rows] == attempt]]).tolist()
        probed = {keys[number].attribute(end) for number in numbers for end in (SOURCE, TARGET)}
        if len(mine) < 2 or not probed:
            continue
        judged = True
        missing = sorted(mine - probed)
        if missing:
            yield Violation(
                head_of_scope(run, attempt, ("pair",)),
                f"{counted(len(missing), 'host')} of {len(mine):,} in attempt {attempt} without a probed pair: "
                f"{names_in_words(missing)}",
                "let the probe plan reach every host of the job, each in at least one pair",
                Evidence(LATENCY, names_in_words(missing), count=len(missing)),
            )
    if not judged:
        raise NotApplicable("no attempt with devices on two hosts and probes between them")
