"""Makes short runs for the tests of checks on the life of a run, and judges them by one check."""

from __future__ import annotations

import json
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import msgspec
from overlay import overlay

from trainspec_validate.documents.load import load_text
from trainspec_validate.documents.types import CheckpointPolicy, ClusterProfile, Document, TrainingPlan
from trainspec_validate.telemetry.checks import NotApplicable, Violation, all_checks
from trainspec_validate.telemetry.fold.engine import Options, read_run, run_file
from trainspec_validate.telemetry.view.run_view import RunView

BASE = Path(__file__).resolve().parents[2] / "spec" / "v1" / "base"
START_SECONDS = 1_767_225_600
KINDS: Mapping[str, type[Document]] = {
    "policy": CheckpointPolicy,
    "plan": TrainingPlan,
    "cluster": ClusterProfile,
}
FILES = {"policy": "checkpoint.yaml", "plan": "plan.yaml", "cluster": "cluster.yaml"}


def time_us(seconds: float) -> int:
    """Microseconds since 1970 of a moment of the run."""
    return round((START_SECONDS + seconds) * 1e6)


def histogram(value: float) -> dict[str, float]:
    """One value of a histogram."""
    return {"count": 1, "sum": value, "min": value, "max": value}


@dataclass
class Stream:
    """The records of the job in one attempt, as lines; times are seconds of the run."""

    att: int = 0
    seconds: float = 0.0
    head: dict[str, Any] = field(default_factory=dict)
    lines: list[dict[str, Any]] = field(default_factory=list)
    first_seq: int = 0

    def put(self, seconds: float, **record: Any) -> Stream:
        """One more record; `seq` counts on."""
        self.lines.append({"time_us": time_us(seconds), "seq": self.first_seq + len(self.lines), **record})
        return self

    def update(self, seconds: float, step: int, **values: Any) -> Stream:
        """A completed step; further values by the part of their name behind `train.`."""
        found = {"train.step.count": step, **{f"train.{name}": value for name, value in values.items()}}
        return self.put(seconds, k="m", step=step, m=found)

    def values(self, seconds: float, m: Mapping[str, Any], **more: Any) -> Stream:
        """A sample with these values."""
        return self.put(seconds, k="m", m=dict(m), **more)

    def event(self, seconds: float, name: str, id: str | None = None, **more: Any) -> Stream:  # noqa: A002
        """An event; attributes and values by the part of their name behind `train.`."""
        for key in ("a", "m"):
            if key in more:
                more[key] = {name if name.startswith("host.") else f"train.{name}": v for name, v in more[key].items()}
        tie = {} if id is None else {"id": id}
        return self.put(seconds, k="e", name=f"train.{name}", **tie, **more)

    def save(self, seconds: float, step: int, *, persist: float = 5, durability: str = "job", **values: Any) -> Stream:
        """A save that is committed."""
        a = {"checkpoint.id": f"c-{step}"}
        self.event(seconds, "checkpoint.begin", f"c-{step}", step=step, a=a)
        committed = {**a, "checkpoint.location": "object-store", "checkpoint.durability": durability}
        m = {"checkpoint.step": step, **values}
        return self.event(seconds + persist, "checkpoint.commit", f"c-{step}", a=committed, m=m)

    def fault(self, seconds: float, id: str = "f-1", kind: str = "process", **more: Any) -> Stream:  # noqa: A002
        """A detected fault."""
        a = {"fault.id": id, "fault.domain": "infrastructure", "fault.class": kind}
        return self.event(seconds, "fault.detected", id, a=a, **more)

    def recovery(self, seconds: float, id: str = "f-1", action: str = "restart") -> Stream:  # noqa: A002
        """A recovery from a fault begins."""
        return self.event(seconds, "recovery.begin", f"r-{id}", a={"fault.id": id, "recovery.action": action})

    def recovered(self, seconds: float, id: str = "f-1", outcome: str = "resumed", **phases: float) -> Stream:  # noqa: A002
        """A recovery ends; lengths of its phases."""
        a = {"fault.id": id, "recovery.action": "restart", "recovery.outcome": outcome}
        m = {
            f"recovery.duration{{train.recovery.phase={phase}}}": histogram(value)
            for phase, value in phases.items()
            if phase != "repeated"
        }
        m |= {"step.repeated": phases["repeated"]} if "repeated" in phases else {}
        return self.event(seconds, "recovery.end", f"r-{id}", a=a, m=m)

    def started(self, seconds: float, step: int = 0, world_size: int = 128) -> Stream:
        """The attempt starts."""
        a = {"run.attempt": self.att, "world.size": world_size, "rank.map": "sha256:3c1f", "restore.step": step}
        return self.event(seconds, "attempt.start", a=a)

    def ended(self, seconds: float, reason: str = "fault") -> Stream:
        """The attempt ends."""
        return self.event(seconds, "attempt.end", a={"run.attempt": self.att, "attempt.reason": reason})

    def restore(self, begin: float, end: float, step: int, source: str | None = None) -> Stream:
        """A restore of a checkpoint."""
        a = {"restore.step": step, "restore.source": source or f"c-{step}"}
        self.event(begin, "checkpoint.restore.begin", f"l-{self.att}-{step}", a=a)
        return self.event(end, "checkpoint.restore.end", f"l-{self.att}-{step}", a=a)

    def text(self) -> str:
        """The file."""
        who = {"run": "r1", "att": self.att, "emitter": "job", "time_us": time_us(self.seconds), "scopes": ["job"]}
        head = {"k": "head", "apiVersion": "trainspec/v1", "kind": "MetricStream", **who, **self.head}
        ordered = [{"k": line["k"], **line} for line in self.lines]
        return "".join(json.dumps(line) + "\n" for line in (head, *ordered))


def document(kind: str, excerpt: Mapping[str, Any]) -> Document:
    """A document of the specification's base with an excerpt laid over it."""
    file = FILES[kind]
    data = overlay(load_text((BASE / file).read_text(encoding="utf-8"), file).data, dict(excerpt))
    return msgspec.json.decode(json.dumps(data), type=KINDS[kind])


def read(*streams: Stream, is_live: bool = False, cut: bool = False) -> RunView:
    """What checks see of these streams."""
    with tempfile.TemporaryDirectory() as folder:
        files = []
        for number, text in enumerate(_texts(streams, cut)):
            path = Path(folder) / f"{number}.jsonl"
            path.write_bytes(text)
            files.append(run_file(number, path, path.name))
        return read_run(files, Options(is_live=is_live))


def _texts(streams: Sequence[Stream], cut: bool) -> list[bytes]:
    return [stream.text().encode()[: -9 if cut else None] for stream in streams]


def violations(requirement: str, run: RunView, **documents: Mapping[str, Any]) -> list[Violation]:
    """What one check finds in a run.

    Raises:
        NotApplicable: it has nothing to judge.
    """
    one = all_checks()[requirement]
    names = {name: next(key for key, kind in KINDS.items() if kind is wanted) for name, wanted in one.documents}
    given = {name: document(kind, documents.get(kind, {})) for name, kind in names.items()}
    return list(one.function(run, **given))


def judged(
    requirement: str, *streams: Stream, is_live: bool = False, cut: bool = False, **documents: Mapping[str, Any]
) -> list[tuple[int, int, Violation]]:
    """What one check finds: number of the stream, line, violation.

    Raises:
        NotApplicable: it has nothing to judge.
    """
    run, texts = read(*streams, is_live=is_live, cut=cut), _texts(streams, cut)
    assert [damage.message for damage in run.damage if not cut] == []
    return [(*_line(texts, violation), violation) for violation in violations(requirement, run, **documents)]


def _line(texts: Sequence[bytes], violation: Violation) -> tuple[int, int]:
    place = violation.place
    return (0, 0) if place.file < 0 else (place.file, texts[place.file][: place.offset].count(b"\n") + 1)


def places(requirement: str, *streams: Stream, **more: Any) -> list[tuple[int, int]]:
    """Number of the stream and line of each finding of one check, in order."""
    return sorted((file, line) for file, line, _ in judged(requirement, *streams, **more))


def messages(requirement: str, *streams: Stream, **more: Any) -> list[str]:
    """Messages of the findings of one check."""
    return [violation.message for _, _, violation in judged(requirement, *streams, **more)]


def why_not(requirement: str, *streams: Stream, **more: Any) -> str:
    """Why one check judges nothing; empty where it judges."""
    try:
        judged(requirement, *streams, **more)
    except NotApplicable as reason:
        return str(reason)
    return ""
