"""Reads what went wrong from objects of Kubernetes: events of a cluster, and the ends of the containers of pods."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from trainspec_validate.telemetry.formats import fit
from trainspec_validate.telemetry.formats.kernel_log import DeviceError, device_error
from trainspec_validate.telemetry.formats.local_times import local_us

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
    ("Pod", "Preempted"): ("infrastructure", "process"),
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
_WITHDRAWN = "Cancelling"
"""Begin of the message of a `TaintManagerEviction` that does not happen."""
_RESTARTS = "restarting failed"
_DISRUPTED = "DisruptionTarget"
_OUT_OF_MEMORY = "OOMKilled"


@dataclass(frozen=True, slots=True)
class Fault:
    """Something that failed, as one object says it."""

    time_us: int
    code: str
    domain: str
    kind: str
    words: str
    node: str | None


@dataclass(frozen=True, slots=True)
class Execution:
    """One execution of a container that has ended."""

    number: int
    """How often it was started before."""
    start_us: int
    end_us: int
    fault: Fault | None


@dataclass(frozen=True, slots=True)
class Report:
    """Records of one object."""

    offset: int
    run: str
    """Name of the job that a pod belongs to, else of the object."""
    name: str
    node: str | None
    faults: tuple[Fault, ...] = ()
    device_error: tuple[int, DeviceError] | None = None
    executions: tuple[Execution, ...] = ()
    """Of a pod with one container: how that was executed."""
    num_unknown: int = 0
    """Executions that the object counts and does not hold."""
    num_timeless: int = 0
    """Faults without any time."""
    is_node: bool = False
    is_pod: bool = False
    """Whether it is the pod itself, and no event about one."""


def event_of(offset: int, entry: Mapping[str, Any]) -> Report | None:
    """Fault that an event reports; None where its reason is no fault."""
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
    if known is None and error is None:
        return None
    if message.startswith(_WITHDRAWN) or (reason == "BackOff" and _RESTARTS not in message):
        return None
    times = [time_of(entry.get(each)) for each in ("firstTimestamp", "eventTime", "deprecatedFirstTimestamp")]
    time_us = next((each for each in times if each is not None), None)
    if time_us is None:
        return Report(offset, name, name, node, num_timeless=1, is_node=is_node)
    if error is not None:
        return Report(offset, name, name, node, device_error=(time_us, error), is_node=is_node)
    domain, what = known or ("unknown", "process")
    words = f"{kind} {name}: {reason}: {message}{_repeats(entry)}"[:_MAX_TEXT]
    fault = Fault(time_us, f"kubernetes:{reason}", domain, what, words, node)
    return Report(offset, name, name, node, (fault,), is_node=is_node)


def _repeats(entry: Mapping[str, Any]) -> str:
    series = _part(entry, "series")
    count = fit.whole(entry.get("count") or series.get("count") or entry.get("deprecatedCount"), 10**9) or 1
    last = entry.get("lastTimestamp") or series.get("lastObservedTime") or entry.get("deprecatedLastTimestamp")
    return f" ({count:,} times, until {str(last)[:40]})" if count > 1 and last else ""


def pod_of(offset: int, entry: Mapping[str, Any]) -> Report | None:
    """Faults that a pod reports: the ends of its containers, and why it was taken away."""
    about, status = _part(entry, "metadata"), _part(entry, "status")
    name = fit.identity(about.get("name"))
    if name is None or not status:
        return None
    node = fit.identity(_part(entry, "spec").get("nodeName"))
    main, num_unknown = _list(status, "containerStatuses"), 0
    found: list[list[Execution]] = []
    for container in (*main, *_list(status, "initContainerStatuses")):
        executions, unknown = _executions(container, name, node)
        found.append(executions)
        num_unknown += unknown
    gone = _disruption(status, name, node)
    is_timeless = gone is None and status.get("phase") == "Failed" and isinstance(status.get("reason"), str)
    faults = [each.fault for executions in found for each in executions if each.fault is not None]
    return Report(
        offset,
        _job_of(about) or name,
        name,
        node,
        (*faults, *([gone] if gone is not None else ())),
        executions=tuple(found[0]) if len(main) == 1 else (),
        num_unknown=num_unknown,
        num_timeless=int(is_timeless),
        is_pod=True,
    )


def _job_of(about: Mapping[str, Any]) -> str | None:
    """The job that a pod belongs to: by a label of its controller, else its owner."""
    labels = _part(about, "labels")
    named = next((labels[label] for label in _JOB_LABELS if isinstance(labels.get(label), str)), None)
    owner = next((each for each in _list(about, "ownerReferences") if each.get("controller") is True), {})
    return fit.identity(named) or fit.identity(owner.get("name"))


def _executions(container: Mapping[str, Any], pod: str, node: str | None) -> tuple[list[Execution], int]:
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
) -> Execution | None:
    start_us, end_us = time_of(ended.get("startedAt")), time_of(ended.get("finishedAt"))
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
        fault = Fault(end_us, f"kubernetes:{reason}", domain, "process", ", ".join(parts)[:_MAX_TEXT], node)
    return Execution(number, end_us if start_us is None else min(start_us, end_us), end_us, fault)


def _disruption(status: Mapping[str, Any], pod: str, node: str | None) -> Fault | None:
    """Why a pod was taken away, where it says so with a time."""
    for condition in _list(status, "conditions"):
        time_us = time_of(condition.get("lastTransitionTime"))
        if condition.get("type") == _DISRUPTED and condition.get("status") == "True" and time_us is not None:
            reason = str(condition.get("reason") or _DISRUPTED)[:60]
            words = f"pod {pod}: {reason}: {str(condition.get('message') or '').strip()}"[:_MAX_TEXT]
            return Fault(time_us, f"kubernetes:{reason}", "infrastructure", "process", words, node)
    return None


def time_of(value: Any) -> int | None:
    """A time of RFC 3339 in microseconds since 1970 UTC.

    >>> time_of("1970-01-01T00:00:01.5Z")
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
