"""Reads lists of events or pods of Kubernetes: faults of a job, and the attempts of a job of one pod."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final

from trainspec_validate.documents.types.stream import AttributeValue, ScopeName
from trainspec_validate.system.budget import Limit
from trainspec_validate.telemetry.formats import fit
from trainspec_validate.telemetry.formats.items import Found, Refusal
from trainspec_validate.telemetry.formats.json_list import JsonList
from trainspec_validate.telemetry.formats.kubernetes_objects import Execution, Fault, Report, event_of, pod_of
from trainspec_validate.telemetry.formats.transcript import Transcript

_MOST_REPORTS: Final = Limit("a list of Kubernetes objects", 500_000, "events and pods")
_MOST_NAMED = 5


class Reader:
    """Reads one document, such as `kubectl get events -o json` or `kubectl get pods -o json` print."""

    def __init__(self, transcript: Transcript) -> None:
        self._transcript = transcript
        self._list = JsonList("items")
        self._events: list[Report] = []
        self._pods: list[Report] = []

    def line(self, offset: int, text: str) -> Iterator[Found]:
        """The refusals of a line; what objects report is kept, since a list has no order of time."""
        for place, entry in self._list.line(offset, text):
            if isinstance(entry, Refusal):
                yield place, entry
            elif isinstance(entry, dict):
                self._take(place, entry)

    def _take(self, offset: int, entry: Mapping[str, Any]) -> None:
        if "involvedObject" in entry or "regarding" in entry:
            report = event_of(offset, entry)
            if report is None:
                message = "events that report no fault are left out"
                self._transcript.lose("meaning", "reason", message, offset)
                return
            kept = self._events
        else:
            report = pod_of(offset, entry) if entry.get("kind", "Pod") == "Pod" else None
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

    def _chosen(self) -> tuple[str | None, list[Report]] | Refusal:
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

    def _called(self, named: str, everything: list[Report]) -> list[Report]:
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

    def _records(self, run: str | None, reports: Sequence[Report]) -> Iterator[Found]:
        self._note(reports)
        is_single = len({report.name for report in reports if report.is_pod}) == 1
        entries: list[tuple[int, int, Report, Fault | Execution | None]] = []
        for report in reports:
            entries += [(fault.time_us, 1, report, fault) for fault in report.faults]
            if report.device_error is not None:
                entries.append((report.device_error[0], 1, report, None))
            if is_single:
                entries += [(each.start_us, 0, report, each) for each in report.executions]
                entries += [(each.end_us, 2, report, each) for each in report.executions]
        if not entries:
            return
        entries.sort(key=lambda entry: entry[:2])
        transcript = self._transcript
        scopes: tuple[ScopeName, ...] = ("job", "device") if any(r.device_error for r in reports) else ("job",)
        number = self._number(entries[0][3])
        yield entries[0][2].offset, transcript.head(entries[0][0], scopes, run=run, att=number)
        for place, (time_us, edge, report, what) in enumerate(entries):
            if isinstance(what, Execution):
                number = self._number(what)
                yield report.offset, self._edge(time_us, what, number, is_start=edge == 0)
            elif what is not None:
                yield report.offset, self._fault(f"fault-{place}", what, number)
            elif report.device_error is not None:
                error = report.device_error[1]
                a = {"train.fault.vendor_code": error.code, "train.reason": error.text or error.code}
                if error.severity is not None:
                    a["train.error.severity"] = error.severity
                more = {"host": report.node, "device": error.pci, "a": a, "att": number}
                yield report.offset, transcript.event(time_us, "train.device.error", **more)

    def _number(self, what: Fault | Execution | None) -> int:
        """The attempt that an execution is; the given one where there is none."""
        first = self._transcript.given.attempt
        return fit.attempt(first + what.number) or 0 if isinstance(what, Execution) else first

    def _note(self, reports: Sequence[Report]) -> None:
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

    def _edge(self, time_us: int, execution: Execution, number: int, *, is_start: bool) -> Any:
        a: dict[str, AttributeValue] = {"train.run.attempt": number}
        if not is_start:
            a["train.attempt.reason"] = "completed" if execution.fault is None else "fault"
        name = "train.attempt.start" if is_start else "train.attempt.end"
        return self._transcript.event(time_us, name, id=f"attempt-{number}", att=number, a=a)

    def _fault(self, name: str, fault: Fault, number: int) -> Any:
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
