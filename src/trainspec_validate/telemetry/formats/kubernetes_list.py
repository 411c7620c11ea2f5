"""Reads lists of Kubernetes events or pods: faults and preemptions of a job, and the attempts of a job of one pod."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final

from trainspec_validate.documents.types.stream import AttributeValue, ScopeName
from trainspec_validate.system.budget import Limit
from trainspec_validate.telemetry.formats import fit
from trainspec_validate.telemetry.formats.items import Found, Refusal
from trainspec_validate.telemetry.formats.json_list import JsonList
from trainspec_validate.telemetry.formats.kernel_log import device_error
from trainspec_validate.telemetry.formats.local_times import local_us
from trainspec_validate.telemetry.formats.machine_errors import DeviceError
from trainspec_validate.telemetry.formats.transcript import Transcript

_MOST_REPORTS: Final = Limit("a list of Kubernetes objects", 500_000, "events and pods")
_MOST_NAMED = 5
_MAX_TEXT = 300
_MAX_CONTAINERS = 1_000
_JOB_LABELS = (
    "training.kubeflow.org/job-name",
    "jobset.sigs.k8s.io/jobset-name",
    "leaderworkerset.sigs.k8s.io/name",
    "volcano.sh/job-name",
    "ray.io/cluster",
    "batch.kubernetes.io/job-name",
    "job-name",
)
"""Labels by which controllers of jobs mark their pods, the outer ones first."""
_OF_EVENTS: Mapping[tuple[str, str], tuple[str, str]] = {
    ("Pod", "Evicted"): ("infrastructure", "process"),
    ("Pod", "TaintManagerEviction"): ("infrastructure", "node"),
    ("Pod", "NodeNotReady"): ("infrastructure", "node"),
    ("Pod", "NetworkNotReady"): ("infrastructure", "network"),
    ("Pod", "FailedCreatePodSandBox"): ("infrastructure", "node"),
    ("Pod", "FailedMount"): ("infrastructure", "storage"),
    ("Pod", "FailedAttachVolume"): ("infrastructure", "storage"),
    ("Pod", "Failed"): ("unknown", "process"),
    ("Pod", "BackOff"): ("unknown", "process"),
    ("Job", "BackoffLimitExceeded"): ("unknown", "process"),
    ("Node", "OOMKilling"): ("unknown", "process"),
    ("Node", "SystemOOM"): ("unknown", "process"),
    ("Node", "NodeNotReady"): ("infrastructure", "node"),
    ("Node", "Rebooted"): ("infrastructure", "node"),
    ("Node", "KernelOops"): ("infrastructure", "node"),
    ("Node", "TaskHung"): ("unknown", "hang"),
}
"""Domain and class of what events of a kind of object with a reason report."""
_PREEMPTED_BY_KUBELET = "Preempted in order to admit"
_PREEMPTED_BY_QUEUE = "Preempted to accommodate"
"""Begin of the messages by which kubelet admits a critical pod, and Kueue another job."""
_STOPS: Mapping[str, str] = {"PreemptionByScheduler": "preempted", "EvictionByEvictionAPI": "operator"}
"""Why an attempt ended, by the reason for which a pod was taken away without a fault."""
_WITHDRAWN = "Cancelling"
"""Begin of the message of a `TaintManagerEviction` that does not happen."""
_RESTARTS = "restarting failed"
_DISRUPTED = "DisruptionTarget"
_OUT_OF_MEMORY = "OOMKilled"


class Reader:
    """Reads one document, such as `kubectl get events -o json` or `kubectl get pods -o json` print."""

    def __init__(self, transcript: Transcript) -> None:
        self._transcript = transcript
        self._list = JsonList("items")
        self._events: list[_Report] = []
        self._pods: list[_Report] = []

    def line(self, offset: int, text: str) -> Iterator[Found]:
        """The refusals of a line; what objects report is kept, since a list has no order of time."""
        for place, entry in self._list.line(offset, text):
            if isinstance(entry, Refusal):
                yield place, entry
            elif isinstance(entry, dict):
                self._take(place, entry)

    def _take(self, offset: int, entry: Mapping[str, Any]) -> None:
        if "involvedObject" in entry or "regarding" in entry:
            report = _event_of(offset, entry)
            if report is None:
                message = "events that report no fault and no preemption are left out"
                self._transcript.lose("meaning", "reason", message, offset)
                return
            kept = self._events
        else:
            report = _pod_of(offset, entry) if entry.get("kind", "Pod") == "Pod" else None
            if report is None:
                message = "objects other than events and pods with a status are left out"
                self._transcript.lose("unknown-name", str(entry.get("kind"))[:60], message, offset)
                return
            kept = self._pods
        _MOST_REPORTS.check(len(self._events) + len(self._pods) + 1)
        kept.append(report)

    def end(self) -> Iterator[Found]:
        """The faults and attempts in the order of time, and the damage of a document that is not whole."""
        rest = self._list.end()
        chosen = self._chosen()
        if isinstance(chosen, Refusal):
            yield 0, chosen
        else:
            yield from self._records(*chosen)
        if isinstance(rest, Refusal):
            yield 0, rest

    def _chosen(self) -> tuple[str | None, list[_Report]] | Refusal:
        """The run, None where it is unknown, and what is reported of it."""
        named, everything = self._transcript.given.run, [*self._pods, *self._events]
        if named is not None:
            return named, self._called(named, everything)
        runs = {report.run for report in self._pods}
        if len(runs) > 1:
            shown = ", ".join(sorted(runs)[:_MOST_NAMED]) + (" and more" if len(runs) > _MOST_NAMED else "")
            message = f"is about several runs: the list has pods of {len(runs):,} jobs, and no run was named: {shown}"
            remedy = "name the run by a job or a pod: trainspec import FILE --known run=NAME"
            return Refusal(message, remedy, "several-runs")
        objects = {report.name for report in self._events}
        if len(objects) > 1:
            message = "events of all objects are taken for one run; --known run=NAME takes those of the job NAME"
            self._transcript.lose("identity", "involvedObject", message, 0, len(objects))
        return next(iter(runs), None), everything

    def _called(self, named: str, everything: list[_Report]) -> list[_Report]:
        """What is reported of a job, its pods and the nodes that these are on; all where nothing has the name."""
        own = (r for r in everything if not r.is_node)
        mine = [r for r in own if named in {r.run, r.name} or r.name.startswith(f"{named}-")]
        if not mine:
            if everything:
                message = f"no object is called {named!r}; all are taken for the run"
                self._transcript.lose("identity", "name", message, 0, len(everything))
            return everything
        nodes = {report.node for report in mine} - {None}
        mine += [report for report in everything if report.is_node and report.node in nodes]
        if len(mine) < len(everything):
            message = f"objects that are not called {named!r} are no part of the run"
            self._transcript.lose("identity", "name", message, 0, len(everything) - len(mine))
        return mine

    def _records(self, run: str | None, reports: Sequence[_Report]) -> Iterator[Found]:
        self._note(reports)
        is_single = len({report.name for report in reports if report.is_pod}) == 1
        entries: list[tuple[int, int, _Report, _Fault | _Execution | _Stop | None]] = []
        for report in reports:
            entries += [(fault.time_us, 1, report, fault) for fault in report.faults]
            if report.device_error is not None:
                entries.append((report.device_error[0], 1, report, None))
            if is_single:
                entries += [(each.start_us, 0, report, each) for each in report.executions]
                entries += [(each.end_us, 2, report, each) for each in report.executions]
        entries += [(stop.time_us, 2, report, stop) for report, stop in self._stops(reports, is_single)]
        if not entries:
            return
        entries.sort(key=lambda entry: entry[:2])
        transcript = self._transcript
        scopes: tuple[ScopeName, ...] = ("job", "device") if any(r.device_error for r in reports) else ("job",)
        number = self._number(entries[0][3])
        yield entries[0][2].offset, transcript.head(entries[0][0], scopes, run=run, att=number)
        for place, (time_us, edge, report, what) in enumerate(entries):
            if isinstance(what, (_Execution, _Stop)):
                number = self._number(what)
                yield report.offset, self._edge(time_us, what, number, is_start=edge == 0)
                number += isinstance(what, _Stop)
            elif what is not None:
                yield report.offset, self._fault(f"fault-{place}", what, number)
            elif report.device_error is not None:
                error = report.device_error[1]
                a = {"train.fault.vendor_code": error.code, "train.reason": error.text or error.code}
                if error.severity is not None:
                    a["train.error.severity"] = error.severity
                more = {"host": report.node, "device": error.pci, "a": a, "att": number}
                yield report.offset, transcript.event(time_us, "train.device.error", **more)

    def _stops(self, reports: Sequence[_Report], is_single: bool) -> list[tuple[_Report, _Stop]]:
        """The end of an attempt without a fault, where no execution has it; the first where pods are stopped together.

        Which attempts of several pods the later ones ended is unknown.
        """
        if is_single and any(each.stop is not None for report in reports for each in report.executions):
            return []
        found = [(report, report.stop) for report in reports if report.stop is not None]
        found.sort(key=lambda entry: entry[1].time_us)
        if len(found) > 1:
            message = "pods that were stopped after the first are left out; which attempts these ended is unknown"
            self._transcript.lose("meaning", "attempt", message, 0, len(found) - 1)
        return [(r, stop if is_single else replace(stop, number=0)) for r, stop in found[:1]]

    def _number(self, what: _Fault | _Execution | _Stop | None) -> int:
        """The attempt that an execution is; the given one where there is none."""
        first = self._transcript.given.attempt
        return fit.attempt(first + what.number) or 0 if isinstance(what, (_Execution, _Stop)) else first

    def _note(self, reports: Sequence[_Report]) -> None:
        """Say what the list counts and does not hold."""
        lose = self._transcript.lose
        unknown, timeless = (sum(getattr(r, name) for r in reports) for name in ("num_unknown", "num_timeless"))
        if unknown:
            lose(
                "meaning",
                "restartCount",
                "a list has the last ends of a container; earlier ones are unknown",
                0,
                unknown,
            )
        if timeless:
            lose("time", "reason", "what failed without a time is left out", 0, timeless)

    def _edge(self, time_us: int, what: _Execution | _Stop, number: int, *, is_start: bool) -> Any:
        a: dict[str, AttributeValue] = {"train.run.attempt": number}
        if not is_start:
            a["train.attempt.reason"] = what.reason
        name = "train.attempt.start" if is_start else "train.attempt.end"
        return self._transcript.event(time_us, name, id=f"attempt-{number}", att=number, a=a)

    def _fault(self, name: str, fault: _Fault, number: int) -> Any:
        a: dict[str, AttributeValue] = {
            "train.fault.id": name,
            "train.fault.domain": fault.domain,
            "train.fault.class": fault.kind,
            "train.fault.vendor_code": fault.code,
            "train.reason": fault.words,
        }
        if fault.node is not None and fault.kind == "node":
            a["train.fault.component"] = fault.node
        more = {"id": name, "host": fault.node, "att": number, "a": a}
        return self._transcript.event(fault.time_us, "train.fault.detected", **more)


@dataclass(frozen=True, slots=True)
class _Fault:
    """Something that failed, as one object says it."""

    time_us: int
    code: str
    domain: str
    kind: str
    words: str
    node: str | None


@dataclass(frozen=True, slots=True)
class _Stop:
    """A pod that a scheduler or an operator took away, which is no fault of it."""

    time_us: int
    reason: str
    """Why the attempt ended, as `train.attempt.reason` has it."""
    number: int = 0
    """How often its container was started before."""


@dataclass(frozen=True, slots=True)
class _Execution:
    """One execution of a container that has ended."""

    number: int
    """How often it was started before."""
    start_us: int
    end_us: int
    fault: _Fault | None
    stop: _Stop | None = None
    """What ended it, where the pod was taken away before."""

    @property
    def reason(self) -> str:
        """Why the attempt ended."""
        if self.stop is not None:
            return self.stop.reason
        return "completed" if self.fault is None else "fault"


@dataclass(frozen=True, slots=True)
class _Report:
    """Records of one object."""

    offset: int
    run: str
    """Name of the job that a pod belongs to, else of the object."""
    name: str
    node: str | None
    faults: tuple[_Fault, ...] = ()
    stop: _Stop | None = None
    device_error: tuple[int, DeviceError] | None = None
    executions: tuple[_Execution, ...] = ()
    """Of a pod with one container: how that was executed."""
    num_unknown: int = 0
    """Executions that the object counts and does not hold."""
    num_timeless: int = 0
    """Faults without any time."""
    is_node: bool = False
    is_pod: bool = False
    """Whether it is the pod itself, and no event about one."""


def _event_of(offset: int, entry: Mapping[str, Any]) -> _Report | None:
    """Fault or preemption that an event reports; None where its reason is neither."""
    about = _part(entry, "involvedObject") or _part(entry, "regarding")
    kind, reason = about.get("kind"), entry.get("reason")
    name = fit.identity(about.get("name"))
    message = str(entry.get("message") or entry.get("note") or "").strip()
    if not isinstance(kind, str) or not isinstance(reason, str) or name is None:
        return None
    is_node = kind == "Node"
    node = name if is_node else fit.identity(_part(entry, "source").get("host"))
    error = device_error(message) if is_node else None
    known = _OF_EVENTS.get((kind, reason))
    is_stop = (kind, reason) == ("Pod", "Preempted") or message.startswith((_PREEMPTED_BY_KUBELET, _PREEMPTED_BY_QUEUE))
    if known is None and error is None and not is_stop:
        return None
    if message.startswith(_WITHDRAWN) or (reason == "BackOff" and _RESTARTS not in message):
        return None
    times = [_time_of(entry.get(each)) for each in ("firstTimestamp", "eventTime", "deprecatedFirstTimestamp")]
    time_us = next((each for each in times if each is not None), None)
    if time_us is None:
        return _Report(offset, name, name, node, num_timeless=1, is_node=is_node)
    if error is not None:
        return _Report(offset, name, name, node, device_error=(time_us, error), is_node=is_node)
    if is_stop:
        return _Report(offset, name, name, node, stop=_Stop(time_us, "preempted"), is_node=is_node)
    domain, what = known or ("unknown", "process")
    words = f"{kind} {name}: {reason}: {message}{_repeats(entry)}"[:_MAX_TEXT]
    fault = _Fault(time_us, f"kubernetes:{reason}", domain, what, words, node)
    return _Report(offset, name, name, node, (fault,), is_node=is_node)


def _repeats(entry: Mapping[str, Any]) -> str:
    series = _part(entry, "series")
    count = fit.whole(entry.get("count") or series.get("count") or entry.get("deprecatedCount"), 10**9) or 1
    last = entry.get("lastTimestamp") or series.get("lastObservedTime") or entry.get("deprecatedLastTimestamp")
    return f" ({count:,} times, until {str(last)[:40]})" if count > 1 and last else ""


def _pod_of(offset: int, entry: Mapping[str, Any]) -> _Report | None:
    """Faults that a pod reports: the ends of its containers, and why it was taken away."""
    about, status = _part(entry, "metadata"), _part(entry, "status")
    name = fit.identity(about.get("name"))
    if name is None or not status:
        return None
    node = fit.identity(_part(entry, "spec").get("nodeName"))
    main, num_unknown = _list(status, "containerStatuses"), 0
    gone = _disruption(status, name, node)
    stop = gone if isinstance(gone, _Stop) else None
    found: list[list[_Execution]] = []
    for container in (*main, *_list(status, "initContainerStatuses")):
        executions, unknown = _executions(container, name, node)
        found.append([_stopped(each, stop) for each in executions])
        num_unknown += unknown
    is_timeless = gone is None and status.get("phase") == "Failed" and isinstance(status.get("reason"), str)
    faults = [each.fault for executions in found for each in executions if each.fault is not None]
    return _Report(
        offset,
        _job_of(about) or name,
        name,
        node,
        (*faults, *([gone] if isinstance(gone, _Fault) else ())),
        stop=stop,
        executions=tuple(found[0]) if len(main) == 1 else (),
        num_unknown=num_unknown,
        num_timeless=int(is_timeless),
        is_pod=True,
    )


def _stopped(execution: _Execution, stop: _Stop | None) -> _Execution:
    """An execution whose end follows from a stop of its pod, and is no fault whatever its exit code."""
    return execution if stop is None or execution.end_us < stop.time_us else replace(execution, fault=None, stop=stop)


def _job_of(about: Mapping[str, Any]) -> str | None:
    """The job that a pod belongs to: by a label of its controller, else its owner."""
    labels = _part(about, "labels")
    named = next((labels[label] for label in _JOB_LABELS if isinstance(labels.get(label), str)), None)
    owner = next((each for each in _list(about, "ownerReferences") if each.get("controller") is True), {})
    return fit.identity(named) or fit.identity(owner.get("name"))


def _executions(container: Mapping[str, Any], pod: str, node: str | None) -> tuple[list[_Execution], int]:
    """The ends that a container has, and how many earlier ones it only counts."""
    num_restarts = fit.whole(container.get("restartCount"), 10**9) or 0
    state = _part(container, "state")
    ended, before = _part(state, "terminated"), _part(_part(container, "lastState"), "terminated")
    is_between = "waiting" in state and bool(before)
    newest = num_restarts if is_between else num_restarts - 1
    known = [(number, each) for number, each in ((newest, before), (num_restarts, ended)) if each and number >= 0]
    found = [each for number, entry in known if (each := _execution(number, entry, container, pod, node)) is not None]
    num_ended = num_restarts + (bool(ended) or is_between)
    return found, max(0, num_ended - len(known))


def _execution(
    number: int, ended: Mapping[str, Any], container: Mapping[str, Any], pod: str, node: str | None
) -> _Execution | None:
    start_us, end_us = _time_of(ended.get("startedAt")), _time_of(ended.get("finishedAt"))
    if end_us is None:
        return None
    code, signal = (fit.whole(ended.get(each), 10**6) for each in ("exitCode", "signal"))
    fault = None
    if code or signal:
        reason = str(ended.get("reason") or "Error")[:60]
        parts = [f"container {str(container.get('name'))[:100]} of pod {pod} ended as {reason}"]
        parts += [f"exit code {code}"] if code else []
        parts += [f"signal {signal}"] if signal else []
        domain = "workload" if reason == _OUT_OF_MEMORY else "unknown"
        fault = _Fault(end_us, f"kubernetes:{reason}", domain, "process", ", ".join(parts)[:_MAX_TEXT], node)
    return _Execution(number, end_us if start_us is None else min(start_us, end_us), end_us, fault)


def _disruption(status: Mapping[str, Any], pod: str, node: str | None) -> _Fault | _Stop | None:
    """Why a pod was taken away, where it says so with a time."""
    for condition in _list(status, "conditions"):
        time_us = _time_of(condition.get("lastTransitionTime"))
        if condition.get("type") == _DISRUPTED and condition.get("status") == "True" and time_us is not None:
            reason, message = (
                str(condition.get("reason") or _DISRUPTED)[:60],
                str(condition.get("message") or "").strip(),
            )
            is_preempted = str(status.get("message") or "").startswith(_PREEMPTED_BY_KUBELET)
            if is_preempted or reason in _STOPS:
                main = _list(status, "containerStatuses")
                number = (fit.whole(main[0].get("restartCount"), 10**9) or 0) if len(main) == 1 else 0
                return _Stop(time_us, "preempted" if is_preempted else _STOPS[reason], number)
            words = f"pod {pod}: {reason}: {message}"[:_MAX_TEXT]
            return _Fault(time_us, f"kubernetes:{reason}", "infrastructure", "process", words, node)
    return None


def _time_of(value: Any) -> int | None:
    """A time of RFC 3339 in microseconds since 1970 UTC.

    >>> _time_of("1970-01-01T00:00:01.5Z")
    1500000
    """
    if not isinstance(value, str) or len(value) > 40:
        return None
    return local_us(value, None)


def _part(entry: Mapping[str, Any], name: str) -> Mapping[str, Any]:
    found = entry.get(name)
    return found if isinstance(found, dict) else {}


def _list(entry: Mapping[str, Any], name: str) -> list[Mapping[str, Any]]:
    found = entry.get(name)
    return [each for each in found[:_MAX_CONTAINERS] if isinstance(each, dict)] if isinstance(found, list) else []
