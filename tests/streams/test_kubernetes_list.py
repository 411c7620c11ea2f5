"""Lists of events and pods of Kubernetes: what failed, when, and on which node."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from reading import Result, read_text

from trainspec_validate import Severity, validate

DAY = "2026-01-01T{}Z"
START = 1_767_225_600


def time(seconds: int) -> str:
    return DAY.format(f"{seconds // 3600:02d}:{seconds // 60 % 60:02d}:{seconds % 60:02d}")


def event(reason: str, message: str, kind: str = "Pod", name: str = "train-0", **more: Any) -> dict[str, Any]:
    """An event as kubelet and controllers write it, shortened."""
    return {
        "apiVersion": "v1",
        "kind": "Event",
        "involvedObject": {"kind": kind, "name": name, "namespace": "ml"},
        "reason": reason,
        "message": message,
        "source": {"component": "kubelet", "host": "n1"},
        "firstTimestamp": time(60),
        "lastTimestamp": time(60),
        "count": 1,
        "type": "Warning",
        **more,
    }


def terminated(code: int, reason: str, start: int, end: int) -> dict[str, Any]:
    return {"terminated": {"exitCode": code, "reason": reason, "startedAt": time(start), "finishedAt": time(end)}}


def pod(name: str = "train-0", job: str = "train", restarts: int = 0, **more: Any) -> dict[str, Any]:
    """A pod of a job with one container, shortened."""
    status = {
        "phase": "Running",
        "containerStatuses": [
            {
                "name": "worker",
                "restartCount": restarts,
                "state": more.pop("state", {"running": {"startedAt": time(0)}}),
                "lastState": more.pop("last", {}),
            }
        ],
        **more.pop("status", {}),
    }
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name, "labels": {"training.kubeflow.org/job-name": job}},
        "spec": {"nodeName": more.pop("node", "n1"), "containers": [{"name": "worker"}]},
        "status": status,
    }


def listed(*items: dict[str, Any]) -> str:
    return json.dumps({"apiVersion": "v1", "items": items, "kind": "List"}, indent=4)


def shown(result: Result) -> list[str]:
    words = ("train.attempt.reason", "train.fault.class", "train.fault.vendor_code")
    return [
        " ".join(
            [str(e.time_us // 1_000_000 - START), str(e.att), e.name.removeprefix("train.")]
            + [str(e.a[word]) for word in words if word in e.a]
        )
        for e in result.events
    ]


@pytest.mark.parametrize(
    ("reason", "message", "kind", "expected"),
    [
        ("Evicted", "The node was low on resource: memory.", "Pod", "process kubernetes:Evicted"),
        ("TaintManagerEviction", "Marking for deletion Pod ml/train-0", "Pod", "node kubernetes:TaintManagerEviction"),
        ("FailedMount", "Unable to attach or mount volumes", "Pod", "storage kubernetes:FailedMount"),
        ("BackOff", "Back-off restarting failed container worker", "Pod", "process kubernetes:BackOff"),
        ("BackoffLimitExceeded", "Job has reached the specified backoff limit", "Job", "process kubernetes:Back"),
        ("OOMKilling", "Memory cgroup out of memory: Killed process 81 (python)", "Node", "process kubernetes:OOMK"),
        ("NodeNotReady", "Node n1 status is now: NodeNotReady", "Node", "node kubernetes:NodeNotReady"),
    ],
)
def test_events_that_are_faults(reason: str, message: str, kind: str, expected: str) -> None:
    found = read_text(listed(event(reason, message, kind)))
    assert len(found.events) == 1
    assert shown(found)[0].startswith(f"60 0 fault.detected {expected}")
    assert message in str(found.events[0].a["train.reason"])
    assert found.events[0].host == ("train-0" if kind == "Node" else "n1")
    assert found.losses.clock == "utc"


@pytest.mark.parametrize(
    ("reason", "message"),
    [
        ("Scheduled", "Successfully assigned ml/train-0 to n1"),
        ("Killing", "Stopping container worker"),
        ("FailedScheduling", "0/4 nodes are available: 4 Insufficient nvidia.com/gpu."),
        ("BackOff", 'Back-off pulling image "a/b"'),
        ("TaintManagerEviction", "Cancelling deletion of Pod ml/train-0"),
    ],
)
def test_events_that_are_none(reason: str, message: str) -> None:
    found = read_text(listed(event(reason, message)))
    assert not found.records
    assert found.lost["meaning", "reason"] == 1


def test_a_device_error_in_the_event_of_a_node() -> None:
    message = "NVRM: Xid (PCI:0000:05:00): 79, pid=81, GPU has fallen off the bus."
    found = read_text(listed(event("XidError", message, "Node", "n3")))
    (error,) = found.events
    assert (error.name, error.host, error.device) == ("train.device.error", "n3", "0000:05:00")
    assert error.a["train.fault.vendor_code"] == "xid:79"


def test_an_event_that_repeats_has_the_time_of_the_first() -> None:
    more = {"count": 1464, "lastTimestamp": time(7200)}
    found = read_text(listed(event("BackOff", "Back-off restarting failed container", **more)))
    assert shown(found)[0].startswith("60 ")
    assert str(found.events[0].a["train.reason"]).endswith("(1,464 times, until 2026-01-01T02:00:00Z)")


def test_events_of_the_newer_interface() -> None:
    newer = event("Evicted", "x", eventTime="2026-01-01T00:02:00.541548Z", firstTimestamp=None)
    newer["regarding"], newer["note"] = newer.pop("involvedObject"), newer.pop("message")
    assert read_text(listed(newer)).events[0].time_us == (START + 120) * 1_000_000 + 541_548
    found = read_text(listed(newer | {"eventTime": None}))
    assert not found.events
    assert found.lost["time", "reason"] == 1


def test_events_of_a_named_job_and_its_nodes() -> None:
    others = [
        event("NodeNotReady", "Node n1 status is now: NodeNotReady", "Node", "n1"),
        event("NodeNotReady", "Node n9 status is now: NodeNotReady", "Node", "n9"),
        event("Evicted", "x", name="web-7", source={"host": "n9"}),
        event("Evicted", "y"),
    ]
    text = listed(*others)
    assert len(read_text(text).events) == 4
    assert read_text(text).lost["identity", "involvedObject"] == 4
    found = read_text(text, run="train")
    assert found.heads[0].run == "train"
    assert sorted(str(e.a["train.reason"]).partition(":")[0] for e in found.events) == ["Node n1", "Pod train-0"]
    assert found.lost["identity", "name"] == 2


# --- pods ---------------------------------------------------------------------------------------------------


def test_a_container_that_ran_out_of_memory() -> None:
    found = read_text(listed(pod(state=terminated(137, "OOMKilled", 10, 100))))
    assert found.heads[0].run == "train"
    assert shown(found) == [
        "10 0 attempt.start",
        "100 0 fault.detected process kubernetes:OOMKilled",
        "100 0 attempt.end fault",
    ]
    fault = found.events[1]
    assert fault.a["train.fault.domain"] == "workload"
    assert fault.a["train.reason"] == "container worker of pod train-0 ended as OOMKilled, exit code 137"


@pytest.mark.parametrize(
    ("state", "restarts", "number", "unknown"),
    [
        ({"running": {"startedAt": time(200)}}, 3, 2, 2),
        ({"waiting": {"reason": "CrashLoopBackOff"}}, 3, 3, 3),
    ],
)
def test_the_number_of_an_execution_that_ended(state: dict[str, Any], restarts: int, number: int, unknown: int) -> None:
    found = read_text(listed(pod(restarts=restarts, state=state, last=terminated(1, "Error", 10, 100))))
    assert shown(found)[0] == f"10 {number} attempt.start"
    assert found.lost["meaning", "restartCount"] == unknown


def test_a_container_that_was_started_again_and_completed() -> None:
    found = read_text(
        listed(pod(restarts=1, state=terminated(0, "Completed", 200, 300), last=terminated(1, "Error", 10, 100)))
    )
    assert shown(found)[-2:] == ["200 1 attempt.start", "300 1 attempt.end completed"]
    assert len(shown(found)) == 5
    assert ("meaning", "restartCount") not in found.lost


def test_the_attempts_of_a_job_of_several_pods_are_unknown() -> None:
    pods = [pod(f"train-{n}", state=terminated(n, "Error", 10, 100)) for n in (0, 1, 2)]
    assert shown(read_text(listed(*pods))) == ["100 0 fault.detected process kubernetes:Error"] * 2


def disrupted(code: str, words: str, at: int = 500, **more: Any) -> dict[str, Any]:
    condition = {"type": "DisruptionTarget", "status": "True", "reason": code, "message": words}
    return {"phase": "Failed", "conditions": [condition | {"lastTransitionTime": time(at)}], **more}


BY_SCHEDULER = disrupted("PreemptionByScheduler", "koord-scheduler: preempting to accommodate higher priority pods")


@pytest.mark.parametrize(
    ("status", "reason"),
    [
        (BY_SCHEDULER, "preempted"),
        (disrupted("EvictionByEvictionAPI", "Eviction API: evicting"), "operator"),
        (
            disrupted(
                "TerminationByKubelet",
                "Pod was preempted by Kubelet to accommodate a critical pod.",
                reason="Preempting",
                message="Preempted in order to admit critical pod",
            ),
            "preempted",
        ),
    ],
)
def test_a_pod_that_was_stopped_has_no_fault(status: dict[str, Any], reason: str) -> None:
    assert shown(read_text(listed(pod(status=status)))) == [f"500 0 attempt.end {reason}"]
    assert shown(read_text(listed(pod(restarts=2, status=status)))) == [f"500 2 attempt.end {reason}"]
    killed = read_text(listed(pod(state=terminated(137, "Error", 10, 530), status=status)))
    assert shown(killed) == ["10 0 attempt.start", f"530 0 attempt.end {reason}"]
    asked = read_text(listed(pod(state=terminated(0, "Completed", 10, 510), status=status)))
    assert shown(asked)[-1] == f"510 0 attempt.end {reason}"


def test_an_execution_that_failed_before_a_preemption_is_a_fault() -> None:
    found = read_text(
        listed(
            pod(
                restarts=1,
                last=terminated(1, "Error", 10, 100),
                state=terminated(143, "Error", 110, 505),
                status=BY_SCHEDULER,
            )
        )
    )
    assert shown(found) == [
        "10 0 attempt.start",
        "100 0 fault.detected process kubernetes:Error",
        "100 0 attempt.end fault",
        "110 1 attempt.start",
        "505 1 attempt.end preempted",
    ]


@pytest.mark.parametrize("reason", ["TerminationByKubelet", "DeletionByTaintManager", "DeletionByPodGC"])
def test_a_pod_that_its_node_lost_has_a_fault(reason: str) -> None:
    found = read_text(listed(pod(status=disrupted(reason, "The node was low on resource: memory."))))
    assert shown(found) == [f"500 0 fault.detected process kubernetes:{reason}"]
    assert found.events[0].a["train.fault.domain"] == "infrastructure"


def test_pods_that_are_preempted_together_end_one_attempt() -> None:
    pods = [pod(f"train-{n}", state=terminated(137, "Error", 10, 530 + n), status=BY_SCHEDULER) for n in (0, 1)]
    found = read_text(listed(*pods, pod("train-2", state=terminated(1, "Error", 600, 700))))
    assert shown(found) == ["500 0 attempt.end preempted", "700 1 fault.detected process kubernetes:Error"]
    assert found.lost["meaning", "attempt"] == 1


@pytest.mark.parametrize(
    ("reason", "message", "kind"),
    [
        ("Preempted", "Preempted by pod 1f6e on node n1", "Pod"),
        ("Preempting", "Preempted in order to admit critical pod", "Pod"),
        ("Preempted", "Preempted to accommodate a workload (UID: 2d, JobUID: 5e) due to prioritization", "Workload"),
        ("Stopped", "Preempted to accommodate a workload (UID: 2d, JobUID: 5e) due to reclamation", "JobSet"),
    ],
)
def test_events_of_a_preemption_end_an_attempt(reason: str, message: str, kind: str) -> None:
    assert shown(read_text(listed(event(reason, message, kind)))) == ["60 0 attempt.end preempted"]


def test_an_eviction_without_a_time_is_said() -> None:
    found = read_text(listed(pod(status={"phase": "Failed", "reason": "Evicted", "containerStatuses": []})))
    assert not found.records
    assert found.lost["time", "reason"] == 1


def test_a_run_is_named_where_there_are_several() -> None:
    text = listed(pod(), pod("web-7", "web", state=terminated(2, "Error", 10, 100)))
    (refusal,) = read_text(text).refusals
    assert "the list has pods of 2 jobs, and no run was named: train, web" in refusal.message
    assert len(read_text(text, run="web").events) == 3


def test_pods_of_several_jobs_are_not_judged_and_no_error(tmp_path: Path) -> None:
    path = tmp_path / "pods.json"
    path.write_text(listed(pod(), pod("web-7", "web", state=terminated(2, "Error", 10, 100))), encoding="utf-8")
    report = validate(path)
    assert report.findings == ()
    (entry,) = report.unjudged
    assert entry.reason.startswith("is about several runs: ")
    assert "trainspec import FILE --known run=NAME" in entry.help


def test_a_list_that_is_cut_off() -> None:
    text = listed(pod(state=terminated(1, "Error", 10, 100)), pod("train-1"))
    found = read_text(text[: text.rindex('"containers"')])
    assert [refusal.code for refusal in found.refusals] == ["cut-off"]
    assert len(found.events) == 3


@pytest.mark.parametrize("state", [terminated(1, "Error", 10, 100), {"running": {"startedAt": time(0)}}])
def test_nothing_is_asked_of_a_list_that_it_cannot_hold(tmp_path: Path, state: dict[str, Any]) -> None:
    path = tmp_path / "pods.json"
    path.write_text(listed(pod(state=state)), encoding="utf-8")
    assert not validate(path).at_or_above(Severity.WARNING)


def test_a_list_whose_first_execution_is_unknown_asks_for_no_values(tmp_path: Path) -> None:
    """A container that was started again twice: the attempt of its head is the first that the list holds."""
    path = tmp_path / "pods.json"
    path.write_text(listed(pod(restarts=2, state=terminated(137, "OOMKilled", 200, 300))), encoding="utf-8")
    assert not [finding for finding in validate(path).findings if finding.severity is not Severity.NOTE]
