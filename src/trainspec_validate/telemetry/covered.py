"""Computes the coverage of the metrics that a run requires, and lists what its streams say went wrong."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from trainspec_validate.documents.types import ClusterProfile, Document
from trainspec_validate.model.finding import Coverage, CutRecord, Outcome, Verdict
from trainspec_validate.model.metrics import metrics
from trainspec_validate.model.values import cut_to
from trainspec_validate.telemetry.checks._attributes import word
from trainspec_validate.telemetry.checks._lives import last_end
from trainspec_validate.telemetry.checks._progress import find_progress
from trainspec_validate.telemetry.checks._rows import has_times, states_start
from trainspec_validate.telemetry.formats.tally import OTHERS
from trainspec_validate.telemetry.view.run_view import PlacedEvent, RunView

_MAX_NAMED, _MAX_NAME = 4, 60
_NOT_JUDGED = frozenset({Verdict.NOT_APPLICABLE, Verdict.UNSUPPORTED, Verdict.NOT_RUN})
MOST = 8
"""Incidents that are named."""
_EVENTS = {
    "train.fault.detected": ("fault", "train.fault.class", "train.fault.vendor_code", "train.reason"),
    "train.device.error": ("device error", "train.fault.vendor_code", "train.error.severity", "train.reason"),
    "train.rank.lost": ("lost ranks", "train.reason"),
    "train.node.drained": ("drained node", "train.reason"),
}
_WELL = {None, "completed"}


def coverage_of(
    view: RunView,
    documents: Mapping[type[Document], Document],
    outcomes: Iterable[Outcome],
    cut_records: Iterable[CutRecord] = (),
) -> Coverage:
    """Metrics, ranks, devices and time that the streams hold, and the part of them that was not judged."""
    seen = {info.key.metric for info in view.keys if info.metric is not None}
    owed = {name for name, metric in metrics().items() if metric.level == "required" and metric.profile == "core"}
    unsupported = {name for name in owed - seen if view.unsupported(name)}
    ranks, devices, hosts = _subjects(view)
    answers = list(outcomes)
    not_judged = [outcome for outcome in answers if outcome.verdict in _NOT_JUDGED]
    return Coverage(
        run=view.run,
        files=tuple(file.path for file in view.files),
        num_bytes=sum(file.num_bytes for file in view.files),
        num_records=view.num_records,
        num_samples=view.num_samples,
        **_times(view),
        num_attempts=len(view.attempts),
        metrics_seen=tuple(sorted(seen)),
        metrics_absent=tuple(sorted(owed - seen - unsupported)),
        metrics_unsupported=tuple(sorted(unsupported)),
        num_ranks_seen=ranks,
        num_ranks_expected=max((a.world_size for a in view.attempts if a.world_size), default=None),
        num_devices_seen=devices,
        num_devices_expected=_expected_devices(documents),
        num_hosts_seen=hosts,
        not_judged=tuple((outcome.requirement, outcome.reason) for outcome in not_judged),
        cut_records=tuple(cut_records),
        num_metrics_required=len(owed),
        num_metrics_reported=len(owed & seen),
        num_checks=len(answers),
        num_checks_judged=len(answers) - len(not_judged),
        lacks=tuple(_lacks(view, seen)),
        incidents=incidents(view),
        notes=tuple(_notes(view, seen)),
    )


def _times(view: RunView) -> dict[str, Any]:
    """The times that the records span; none where their source states no times."""
    if not has_times(view):
        return {"first_time_us": -1, "last_time_us": -1, "covered_seconds": 0.0}
    covered_seconds = sum(attempt.seconds for attempt in view.attempts)
    if not states_start(view):
        return {"first_time_us": -1, "last_time_us": -1, "covered_seconds": covered_seconds}
    times = {"first_time_us": view.first_time_us, "last_time_us": view.last_time_us}
    return {**times, "covered_seconds": covered_seconds}


def _lacks(view: RunView, seen: set[str]) -> Iterator[str]:
    """What keeps the streams of a job from being a complete account of its run."""
    if not _is_of_a_job(view) or view.is_live:
        return
    if not _has_step(view):
        yield "no completed step"
    if len(seen) <= 1:
        unread = _unread(view)
        why = f" (not read: {_named(unread)})" if unread else ""
        yield f"{len(seen)} readable metric{'s' * (not seen)}{why}"
    ended = last_end(view)
    status = word(ended, "train.run.status") if ended is not None else None
    if status not in {None, "completed"} and not view.events_named("train.fault.detected"):
        yield f"a run that ended as {status}, without the fault"


def _unread(view: RunView) -> list[str]:
    """Names of values that are not read, those of losses first, and `OTHERS` last."""
    names = dict.fromkeys(name for file in view.files for name in file.unread_names)
    return sorted(names, key=lambda name: (name == OTHERS, "loss" not in name.casefold()))


def _named(names: list[str]) -> str:
    """The first names, and the number of the others."""
    is_bound = OTHERS in names
    known = [name for name in names if name != OTHERS]
    more = f" and {'more than ' * is_bound}{len(known) - _MAX_NAMED:,} more" if len(known) > _MAX_NAMED else ""
    return f"{', '.join(cut_to(name, _MAX_NAME) for name in known[:_MAX_NAMED])}{more}"


def _notes(view: RunView, seen: set[str]) -> Iterator[str]:
    """What was left out of files of other programs, or has another number there."""
    unread = _unread(view)
    if unread and len(seen) > 1:
        yield f"values not read: {_named(unread)}"
    yield from dict.fromkeys(text for file in view.files for text in file.left_out)
    if any(file.is_index for file in view.files):
        yield "the log counts steps from 0, so that its step 0 is step 1 here"


def _is_of_a_job(view: RunView) -> bool:
    """Whether the streams are to tell of training; those of nodes and devices alone are not."""
    scopes = {scope for head in view.heads for scope in head.record.scopes}
    return not view.heads or bool(scopes & {"job", "rank"})


def _has_step(view: RunView) -> bool:
    rows = view.series.rows
    if len(rows) and int(rows["last_step"].max()) > 0:
        return True
    counts = [*view.series.of("train.step.count").tolist(), *view.series.of("train.rank.step").tolist()]
    return any(rows["maximum"][row] > 0 for row in counts) or max(view.event_facts.last_step.values(), default=0) > 0


def _subjects(view: RunView) -> tuple[int, int, int]:
    """Ranks, devices and hosts that have a value or an event."""
    import numpy as np  # noqa: PLC0415

    used = {view.series.subjects[number] for number in np.unique(view.series.rows["subject"]).tolist()}
    used |= view.event_facts.subjects
    return (
        len({subject.rank for subject in used} - {None}),
        len({subject.device for subject in used} - {None}),
        len({subject.host for subject in used} - {None}),
    )


def _expected_devices(documents: Mapping[type[Document], Document]) -> int | None:
    cluster = documents.get(ClusterProfile)
    if not isinstance(cluster, ClusterProfile):
        return None
    return sum(group.num_nodes * group.num_accelerators_per_node for group in cluster.node_groups)


def incidents(run: RunView) -> tuple[str, ...]:
    """Faults by the words of the streams, in order of time, alike ones counted together."""
    found = Counter(_all(run))
    texts = [text if num == 1 else f"{text} ({num:,} times)" for text, num in found.items()]
    more = len(texts) - MOST
    return (*texts[:MOST], *([f"{more:,} more"] if more > 0 else []))


def _all(run: RunView) -> Iterator[str]:
    for event in run.events_named(*_EVENTS, "train.attempt.end", "train.run.end"):
        yield from _of_event(event)
    yield from _repeated(run)
    for file in run.files:
        yield from file.incidents


def _of_event(event: PlacedEvent) -> Iterator[str]:
    if event.name in _EVENTS:
        what, *names = _EVENTS[event.name]
        said = dict.fromkeys(str(value) for name in names if (value := event.attribute(name)) is not None)
        yield f"{what}: {', '.join(said)}" if said else what
    elif event.name == "train.run.end" and (status := word(event, "train.run.status")) not in _WELL:
        yield f"the run ended as {status}"
    elif event.name == "train.attempt.end" and (reason := word(event, "train.attempt.reason")) not in _WELL:
        yield f"attempt {event.attempt} ended by {reason}"


def _repeated(run: RunView) -> Iterator[str]:
    """Optimizer steps that a later attempt executed again."""
    known = find_progress(run)
    for attempt in known.attempts()[1:] if known else ():
        first, before = (known.first(attempt), known.largest(below=attempt)) if known else (None, None)
        if first is not None and before is not None and first.step <= before.step > 0:
            yield f"attempt {attempt} begins with step {first.step:,} after step {before.step:,}"
