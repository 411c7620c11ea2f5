"""Checks that a run has what it requires: a writer for each scope, and values for each metric."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache

from trainspec_validate.model.finding import Evidence
from trainspec_validate.model.metrics import Metric, by_name, catalog, metrics
from trainspec_validate.telemetry.checks import NOWHERE, Location, NotApplicable, RunView, Unsupported, Violation, check
from trainspec_validate.telemetry.checks._rows import source_format
from trainspec_validate.telemetry.checks._seen import (
    by_attempt,
    by_writer,
    carried,
    carries_every_metric,
    heads_of,
    num_updates,
    owing_heads,
    own_heads,
    steps_by_attempt,
    unsupported,
)
from trainspec_validate.telemetry.checks._words import damaged, few, ranges_in_words
from trainspec_validate.telemetry.formats.format import FORMATS
from trainspec_validate.telemetry.view.run_view import AttemptSpan, PlacedHead, Trouble

SCOPES = ("job", "rank", "device", "node", "emitter")
"""Scopes that have metrics which every run is to report."""
OF_TRAINING = frozenset({"progress", "learning", "ranks"})
"""Families of metrics that have no value before the first update."""
SHORT_SECONDS = 60.0
"""An attempt that ends within two of the most frequent cadences can end before its emitters have written."""
LIVE_SECONDS = 1_800.0
"""A hundred optimizer steps of some ten seconds, after which most trainers have reported once."""
UNREAD = "no metric of this log is judged: its program is not known, or reported no step"
MAX_TOLD = 4
"""Names that a stream has and the catalog does not, reported where it has no others."""
CAPABILITIES = {
    "the model reads sequences of tokens": "tokens",
    "the run evaluates": "evaluation",
    "the device or node has no energy counter": "power",
}


def _without_heads(run: RunView) -> Iterator[Violation]:
    """What is wrong where no file has a head: that no value is read, unless the file is none that holds values."""
    if run.num_samples:
        return
    if any(file.end for file in run.files):  # TS-TEL-048 reports a failure; a stop is none
        raise NotApplicable("the program of the log was ended, and reported no value that is read")
    lost = "; ".join(words for file in run.files for words in file.losses[:MAX_TOLD])
    if run.files and all(FORMATS[file.format].metrics == frozenset() for file in run.files):
        raise NotApplicable(f"the file holds events alone, and none of the run ({lost})")
    is_free = all(FORMATS[file.format].has_free_names and not file.unread for file in run.files)
    if run.files and not run.damage and is_free:
        raise NotApplicable(f"no value has a name that is known ({lost})")
    help_text = "; ".join(["write samples", "missing input never yields a pass", *([lost] if lost else [])])
    yield Violation(NOWHERE, "the stream holds no value of any metric", help_text)


@check("TS-TEL-003")
def scopes_have_values(run: RunView) -> Iterator[Violation]:
    """Each emitter writes a value of each scope that its head names."""
    if not run.heads:
        yield from _without_heads(run)
        return
    written = {writer: _scopes(names) for writer, names in by_writer(run).items()}
    anywhere = frozenset().union(*written.values()) if written else frozenset()
    unread = {damage.location.file for damage in run.damage}
    errors = {(event.emitter, event.attempt) for event in run.events_named("train.device.error")}
    writers_of_events = {(event.emitter, event.attempt) for event in run.events}
    contested = {
        (trail.attempt, scope)
        for trail in run.trails_of(Trouble.SECOND_WRITER)
        for scope in _scopes(frozenset({trail.key.metric}))
    }
    found = []
    for head in run.heads:
        writer = (head.record.emitter, head.record.att)
        mine = written.get(writer, frozenset()) | ({"device"} if writer in errors else frozenset())
        empty = [
            scope for scope in head.record.scopes if scope not in mine and (head.record.att, scope) not in contested
        ]
        if writer in writers_of_events and _has_no_metrics(run, head):
            continue
        if _is_short(run, head.record.att):
            empty = [] if run.is_live else [scope for scope in empty if scope not in anywhere]
        if empty and (mine or head.location.file not in unread):
            found.append(_emptiness(head, empty, is_silent=not mine))
    yield from few(found)


def _has_no_metrics(run: RunView, head: PlacedHead) -> bool:
    """Whether the format that a stream was written in holds events alone."""
    found = source_format(run, head)
    return found is not None and found.metrics == frozenset()


def _is_short(run: RunView, attempt: int) -> bool:
    span = run.attempt(attempt)
    return span is None or span.seconds < SHORT_SECONDS


def _emptiness(head: PlacedHead, empty: Sequence[str], *, is_silent: bool) -> Violation:
    whose = f"emitter {head.record.emitter!r} in attempt {head.record.att}"
    if is_silent:
        return Violation(
            head.location, f"{whose} has a head and no value", "write samples; missing input never yields a pass"
        )
    named = f"the scope{'s' * (len(empty) > 1)} {', '.join(empty)}"
    help_text = "write them, or leave the scope out of the head"
    return Violation(head.location, f"{whose} names {named} and writes no value of it", help_text)


@lru_cache(maxsize=1_024)
def _scopes(names: frozenset[str]) -> frozenset[str]:
    """Scopes that these metrics can be of; a metric of a vendor can be of any."""
    known = [by_name(name) for name in names]
    if None in known:
        return frozenset(catalog().scopes)
    return frozenset(scope for metric in known if metric for scope in metric.scopes)


@check("TS-TEL-071")
def scopes_covered(run: RunView) -> Iterator[Violation]:
    """The emitters of a run write every scope with required metrics."""
    own = own_heads(run)
    if not any(carries_every_metric(run, head) for head in own):
        raise NotApplicable("no head that names scopes")
    if any(damage.location.offset == 0 for damage in run.damage):
        raise NotApplicable("a head cannot be read")
    if run.is_live and all(_is_short(run, span.number) for span in run.attempts):
        raise NotApplicable("the run has just begun, and emitters can still come")
    named, refused = {scope for head in own for scope in head.record.scopes}, unsupported(own)
    absent = [scope for scope in SCOPES if scope not in named and not _is_declared_absent(scope, refused)]
    if absent:
        message = f"no head names the scope{'s' * (len(absent) > 1)} {', '.join(absent)}"
        yield Violation(NOWHERE, message, "give the files of all emitters of the run, or let one write these scopes")


def _is_declared_absent(scope: str, refused: Mapping[str, str]) -> bool:
    """Whether heads declare every metric of a scope unsupported that a run requires, as on a node without devices."""
    of_scope = [metric for metric in metrics().values() if metric.scopes[0] == scope and metric.profile == "core"]
    return all(metric.name in refused for metric in of_scope if metric.level == "required")


@check("TS-TEL-004")
def required_metrics(run: RunView) -> Iterator[Violation]:
    """Every metric of the core profile that is required of the run has a value in each attempt."""
    yield from damaged(run, "TS-TEL-004")
    yield from _absent(run, "core")


@check("TS-TEL-070")
def required_metrics_full(run: RunView) -> Iterator[Violation]:
    """Every metric of the full profile that is required of the run has a value in each attempt."""
    yield from _absent(run, "full")


@dataclass(frozen=True, slots=True)
class _Attempt:
    """One attempt with what decides which metrics it owes."""

    span: AttemptSpan
    scopes: frozenset[str]
    seen: frozenset[str]
    refused: Mapping[str, str]
    carried: frozenset[str]
    num_reports: float
    is_snapshot: bool
    is_log: bool
    """Whether it is told by logs of other programs alone, which owe no metric."""
    can_come: bool
    """Whether it is followed, and a trainer that reports each hundred optimizer steps may not have reported yet."""

    def owes(self, metric: Metric) -> bool:
        """Whether a value of the metric is due by the end of the attempt."""
        return not self.is_log and metric.scopes[0] in self.scopes and self._is_due(metric) and self._is_capable(metric)

    def _is_due(self, metric: Metric) -> bool:
        times = [catalog().cadences[name].seconds for name in metric.cadences]
        longest = max((seconds for seconds in times if seconds), default=None)
        trains = metric.family in OF_TRAINING
        if metric.cadences == ("E",):
            return metric.name in self.carried
        if self.is_snapshot:
            return longest is not None and not trains
        if longest is None:
            return self.num_reports >= 2 and not self.can_come
        return self._seconds(trains=trains) > 2 * longest and (self.num_reports > 0 or not trains)

    def _seconds(self, *, trains: bool) -> float:
        """Time of the records; for a metric of training up to the end of the attempt, before its fault is detected."""
        if trains and self.span.ended is not None:
            return (self.span.ended.time_us - self.span.first_time_us) / 1e6
        return self.span.seconds

    def _is_capable(self, metric: Metric) -> bool:
        if metric.level != "conditional":
            return metric.level == "required"
        match CAPABILITIES.get(metric.capability):
            case "tokens":
                return any(name.startswith("train.token.") for name in self.seen)
            case "power":
                return "hw.energy" in self.refused and "hw.energy" not in self.seen
            case "evaluation":
                return True  # owed by the event that ends an evaluation
            case _:
                return False


def _attempts(run: RunView) -> Iterator[_Attempt]:
    seen, steps = by_attempt(run), steps_by_attempt(run)
    for span in run.attempts:
        heads = heads_of(run, span.number)
        mine = frozenset(seen.get(span.number, ()))
        if heads:
            scopes = frozenset[str](scope for head in heads for scope in head.record.scopes)
        else:
            known = (by_name(name) for name in mine)
            scopes = frozenset(metric.scopes[0] for metric in known if metric)
        interval = max((head.record.report_interval_steps for head in heads), default=1)
        reports = num_updates(span, steps.get(span.number)) / interval
        refused, due = unsupported(heads), carried(run, span.number)
        is_log = bool(heads) and not owing_heads(run, span.number)
        is_open = run.is_live and span is run.attempts[-1] and span.ended is None
        can_come = is_open and span.seconds < LIVE_SECONDS
        yield _Attempt(span, scopes, mine, refused, due, reports, run.snapshot, is_log, can_come)


def _absent(run: RunView, profile: str) -> Iterator[Violation]:
    """What has no value, put together by scope and attempts."""
    owed = [metric for metric in metrics().values() if metric.profile == profile]
    is_judged = False
    refused: dict[str, str] = {}
    absent: dict[tuple[str, tuple[str, ...]], list[AttemptSpan]] = {}
    for attempt in _attempts(run):
        due = [metric for metric in owed if attempt.owes(metric)]
        is_judged |= bool(due)
        missing = [metric for metric in due if metric.name not in attempt.seen]
        refused |= {metric.name: attempt.refused[metric.name] for metric in missing if metric.name in attempt.refused}
        left = [metric for metric in missing if metric.name not in attempt.refused]
        for scope in dict.fromkeys(metric.scopes[0] for metric in left):
            names = tuple(metric.name for metric in left if metric.scopes[0] == scope)
            absent.setdefault((scope, names), []).append(attempt.span)
    for (scope, names), spans in absent.items():
        yield _absence(run, scope, names, spans)
    if not is_judged:
        raise NotApplicable(_why_nothing_is_owed(run))
    if refused and not absent:
        raise Unsupported("; ".join(f"{name}: {reason}" for name, reason in sorted(refused.items())))


def _why_nothing_is_owed(run: RunView) -> str:
    if run.heads and not any(owing_heads(run, span.number) for span in run.attempts):
        known = {found.name for head in run.heads if (found := source_format(run, head))}
        formats = ", ".join(sorted(known or {file.format for file in run.files}))
        return f"a log of the format {formats} requires no metric"
    return "no attempt is long enough to require a metric of the scopes that its heads name"


def _absence(run: RunView, scope: str, names: tuple[str, ...], spans: list[AttemptSpan]) -> Violation:
    numbers = [span.number for span in spans]
    message = f"no value of {', '.join(names)} in attempt{'s' * (len(numbers) > 1)} {ranges_in_words(numbers)}"
    help_text = f"every run with metrics of scope {scope} requires them; a head can declare them unsupported, and why"
    evidence = Evidence(
        first_time_us=spans[0].first_time_us,
        last_time_us=spans[-1].last_time_us,
        count=len(names) * len(numbers),
    )
    return Violation(_head_with(run, numbers[0], scope), message, help_text, evidence)


def _head_with(run: RunView, attempt: int, scope: str) -> Location:
    """The first head of an attempt that names a scope."""
    found = (head.location for head in heads_of(run, attempt) if scope in head.record.scopes)
    return min(found, default=NOWHERE)
