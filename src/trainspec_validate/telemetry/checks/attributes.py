"""Checks that metrics, headers and events have their attributes, with known values."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import lru_cache, partial
from itertools import chain
from typing import Any

from trainspec_validate.model.metrics import Metric, by_name, catalog, events
from trainspec_validate.model.suggest import hint
from trainspec_validate.system.digits import is_digits
from trainspec_validate.telemetry.checks import Evidence, NotApplicable, RunView, Violation, check
from trainspec_validate.telemetry.checks._seen import by_writer, is_own, own_heads
from trainspec_validate.telemetry.checks._words import few
from trainspec_validate.telemetry.view.run_view import KeyInfo, Location, PlacedEvent

COORDINATES = frozenset({"train.run.id", "train.run.attempt", "train.rank.id", "train.world.size", "host.id", "hw.id"})
"""Attributes that records and heads carry under keys of their own."""
STEP_LIKE = frozenset({"step", "iteration", "epoch", "time", "timestamp", "seq", "run", "job", "attempt"})
"""Last parts of names that make a series for every value; another check has them."""
_TYPES: Mapping[str, tuple[type, ...]] = {
    "string": (str,),
    "int": (int,),
    "double": (int, float),
    "boolean": (bool,),
    "string[]": (list, tuple),
    "int[]": (list, tuple),
    "double[]": (list, tuple),
}


def _files_of_events(run: RunView) -> set[int]:
    return {file for by_file in run.event_facts.num_by_file.values() for file in by_file}


@check("TS-TEL-011")
def attributes_complete(run: RunView) -> Iterator[Violation]:
    """Metrics, heads and events have the attributes that the catalog asks for, with values that it knows."""
    own = [key for key in run.keys if key.metric and is_own(run, key.location)]
    if not own and not any(is_own(run, Location(file, 0)) for file in _files_of_events(run)):
        raise NotApplicable("no metric or event of the catalog")
    for key in own:
        yield from few(_of_series(key))
    yield from few(_of_heads(run))
    yield from _of_events(run)


# --- metrics ------------------------------------------------------------------------------------------------


def _of_series(key: KeyInfo) -> Iterator[Violation]:
    metric = key.metric
    assert metric  # noqa: S101 - chosen by the caller
    evidence = Evidence(str(key.key), count=key.num)
    known = {*metric.attributes, *metric.optional_attributes}
    present = dict(key.key.attributes)
    for name in _of_role(metric, "series"):
        if name not in present:
            values = catalog().attributes[name].values
            example = f"{metric.name}{{{name}={values[0] if values else '...'}}}"
            yield Violation(key.location, f"{key.key} lacks the attribute {name}", f"write {example}", evidence)
    for name, value in present.items():
        if name not in known:
            if name.rsplit(".", 1)[-1] not in STEP_LIKE:
                message = f"{key.key} has the attribute {name}, which {metric.name} does not have"
                listed = sorted(known - COORDINATES)
                yield Violation(key.location, message, hint(name, listed) or "leave it out", evidence)
        else:
            yield from _placed(key, evidence, _wrong_text(name, value))
    for name in _of_role(metric, "reading"):
        if catalog().attributes[name].type != "boolean" and name not in key.attributes:
            message = f"no record of {key.key} has the attribute {name} next to the value"
            yield Violation(key.location, message, f'write it into "a": {catalog().attributes[name].words}', evidence)


def _of_role(metric: Metric, role: str) -> list[str]:
    return [n for n in metric.attributes if n not in COORDINATES and catalog().attributes[n].role == role]


def _placed(key: KeyInfo, evidence: Evidence, found: tuple[str, str] | None) -> Iterator[Violation]:
    if found:
        yield Violation(key.location, f"{key.key}: {found[0]}", found[1], evidence)


def _wrong_text(name: str, value: str) -> tuple[str, str] | None:
    """What is wrong with a value in a name, where all are text."""
    if catalog().attributes[name].type == "int":
        return None if is_digits(value) else (f"{value!r} is no whole number for {name}", "")
    return _wrong_value(name, value)


def _wrong_value(name: str, value: Any) -> tuple[str, str] | None:
    """Message and help for a value that its attribute cannot have."""
    attribute = catalog().attributes[name]
    types = _TYPES[attribute.type]
    if not isinstance(value, types) or (isinstance(value, bool) and bool not in types):
        return f"{name} is {str(value)[:60]!r}", f"its type is {attribute.type}"
    if attribute.values and not attribute.open and value not in attribute.values:
        listed = ", ".join(attribute.values)
        return f"{str(value)[:60]!r} is no value of {name}", hint(str(value), attribute.values) or f"one of: {listed}"
    return None


# --- heads --------------------------------------------------------------------------------------------------


def _of_heads(run: RunView) -> Iterator[Violation]:
    written = by_writer(run)
    told = set()
    for head in own_heads(run):
        writer = (head.record.emitter, head.record.att)
        whose = f"the head of emitter {head.record.emitter!r} in attempt {head.record.att}"
        if writer not in told:
            told.add(writer)
            known = head.record.declared
            for name, asking in _asked(written.get(writer, frozenset())):
                if name in known:
                    continue
                message = f"{whose} does not declare {name}, which {asking} needs"
                yield Violation(head.location, message, f"declare it: {catalog().attributes[name].words}")
        for name, value in head.record.declared.items():
            found = _wrong_value(name, value) if name in catalog().attributes else None
            if found:
                yield Violation(head.location, f"{whose} declares a value of another kind: {found[0]}", found[1])


@lru_cache(maxsize=1_024)
def _asked(names: frozenset[str]) -> tuple[tuple[str, str], ...]:
    """Attributes that a head owes for its metrics, each with the first that asks for it."""
    found: dict[str, str] = {}
    for name in sorted(names):
        metric = by_name(name)
        for attribute in _of_role(metric, "declared") if metric else ():
            found.setdefault(attribute, name)
    return tuple(found.items())


# --- events -------------------------------------------------------------------------------------------------


def _of_events(run: RunView) -> Iterator[Violation]:
    """One violation for each event name and attribute, at the first event."""
    first: dict[tuple[str, str], tuple[PlacedEvent, str, str]] = {}
    counts: dict[tuple[str, str], int] = {}
    last: dict[tuple[str, str], int] = {}
    for event in chain.from_iterable(some for name, some in run.events_by_name() if name in events()):
        for name, told in _wrong_event(run, event):
            what = (event.name, name)
            if what not in first:
                first[what] = (event, *told())
            counts[what] = counts.get(what, 0) + 1
            last[what] = event.time_us
    for what, (event, message, help_text) in sorted(first.items(), key=lambda item: item[1][0].order):
        evidence = Evidence(first_time_us=event.time_us, last_time_us=last[what], count=counts[what])
        yield Violation(event.location, f"{event.name}: {message}", help_text, evidence)


def _wrong_event(run: RunView, event: PlacedEvent) -> Iterator[tuple[str, Callable[[], tuple[str, str]]]]:
    """Attributes of an event that are wrong, each with what makes the words of it."""
    entry = events().get(event.name)
    if entry is None or not is_own(run, event.location):
        return
    for name in entry.attributes:
        if name not in event.record.a and not _is_known_otherwise(run, event, name):
            yield name, partial(_lacking, name)
    for name, value in event.record.a.items():
        if name in catalog().attributes:
            if _wrong_value(name, value):
                yield name, partial(_refused, name, value)
        elif name.startswith("train."):
            yield name, partial(_unknown, name, entry.attributes)


def _lacking(name: str) -> tuple[str, str]:
    return f"it lacks the attribute {name}", f'write it into "a": {catalog().attributes[name].words}'


def _refused(name: str, value: Any) -> tuple[str, str]:
    return _wrong_value(name, value) or ("", "")


def _unknown(name: str, known: Iterable[str]) -> tuple[str, str]:
    return f"the catalog does not have the attribute {name}", hint(name, known)


def _is_known_otherwise(run: RunView, event: PlacedEvent, name: str) -> bool:
    """Whether the record or its head says what an attribute of an event would, or that nothing can be said of it."""
    if name.startswith("train.flops.") and run.unsupported("train.flops.utilization"):
        return True
    if catalog().attributes[name].role != "declared":
        return False
    match name:
        case "train.run.id" | "train.run.attempt":
            return True
        case "train.rank.id":
            return event.subject.rank is not None
        case "host.id":
            return event.subject.host is not None
    head = run.head_of(event.emitter, event.attempt)
    if head is None:
        return False
    return name in head.record.declared or (name == "train.world.size" and head.record.world_size is not None)
