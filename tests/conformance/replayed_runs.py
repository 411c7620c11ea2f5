"""Makes the files of production runs for tests of the replay: streams of a job that restarts, and its checkpoints."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Self

START_US = 1_767_225_600_000_000
FAULT = {"train.fault.id": "f-1", "train.fault.domain": "infrastructure", "train.fault.class": "process"}


def micros(seconds: float) -> int:
    """A moment as streams write it, in seconds since the start of the run."""
    return START_US + round(seconds * 1e6)


class Attempt:
    """The stream of the job in one attempt of a run."""

    def __init__(self, number: int, seconds: float, restored: int | None, *, run: str = "made", size: int = 2) -> None:
        head = {"k": "head", "apiVersion": "trainspec/v1", "kind": "MetricStream", "run": run, "att": number}
        more = {"emitter": "job", "scopes": ["job"], "world_size": size, "host": "n0", "report_interval_steps": 1}
        self.lines: list[dict[str, Any]] = [{**head, "time_us": micros(seconds), **more}]
        self.name = f"{run}-job.{number}.jsonl"
        about: dict[str, Any] = {"train.run.attempt": number, "train.world.size": size, "train.rank.map": "r"}
        if restored is not None:
            about["train.restore.step"] = restored
        self.number = number
        self.event(seconds, "attempt.start", about, id=f"attempt-{number}")

    def event(self, seconds: float, name: str, attributes: Mapping[str, Any] | None = None, **more: Any) -> Self:
        """Add an event."""
        record = {"k": "e", "time_us": micros(seconds), "seq": len(self.lines) - 1, "name": f"train.{name}"}
        self.lines.append({**record, "a": dict(attributes or {}), **more})
        return self

    def steps(self, first: int, last: int, seconds: float, pace: float = 1.0, **more: float) -> Self:
        """Add the steps from one to another, the first of which ends at a moment."""
        for step in range(first, last + 1):
            values = {"train.step.count": step, "train.loss.mean": 9.0 - step / 100 + more.get("off", 0.0)}
            if more.get("loss") == 0:
                del values["train.loss.mean"]
            values["train.learning_rate"] = 0.01
            time_us = micros(seconds + (step - first) * pace)
            self.lines.append({"k": "m", "time_us": time_us, "seq": len(self.lines) - 1, "step": step, "m": values})
        return self

    def save(self, step: int, seconds: float, name: str = "") -> Self:
        """Add a save that was committed."""
        identifier = name or f"step-{step}"
        about = {"train.checkpoint.id": identifier}
        self.event(seconds, "checkpoint.begin", about, id=identifier, step=step)
        more = {"train.checkpoint.location": "shared-file-system", "train.checkpoint.durability": "site"}
        return self.event(seconds + 0.1, "checkpoint.commit", about | more, id=identifier, step=step)

    def fault(self, seconds: float, **attributes: Any) -> Self:
        """Add a fault that is reported, and the end of the attempt."""
        self.event(seconds, "fault.detected", FAULT | attributes, id="f-1")
        return self.end(seconds + 0.1, "fault")

    def end(self, seconds: float, reason: str) -> Self:
        """Add the end of the attempt."""
        about = {"train.run.attempt": self.number, "train.attempt.reason": reason}
        return self.event(seconds, "attempt.end", about, id=f"attempt-{self.number}")

    def restore(self, step: int, source: str, seconds: float) -> Self:
        """Add a restore that was completed."""
        about = {"train.restore.step": step, "train.restore.source": source}
        self.event(seconds, "checkpoint.restore.begin", about, id=f"restore-{self.number}")
        return self.event(seconds + 0.1, "checkpoint.restore.end", about, id=f"restore-{self.number}")

    def write(self, directory: Path) -> Self:
        """Write the stream below a directory."""
        directory.mkdir(parents=True, exist_ok=True)
        (directory / self.name).write_text("".join(json.dumps(line) + "\n" for line in self.lines), encoding="utf-8")
        return self


def before(*, saves: tuple[int, ...] = (10, 20, 30), last: int = 35) -> Attempt:
    """The attempt before a fault: a step each second, and saves at some."""
    attempt = Attempt(0, 0.0, 0).steps(1, last, 1.0)
    for step in saves:
        attempt.save(step, step + 0.2)
    return attempt


def after(restored: int, seconds: float = 45.0, source: str = "", **more: float) -> Attempt:
    """The attempt after it, which restores a step and trains to step 60."""
    attempt = Attempt(1, seconds, restored)
    if restored:
        attempt.restore(restored, source or f"step-{restored}", seconds + 1)
    begun = seconds + 2 + more.pop("wait", 0.0)
    return attempt.steps(restored + 1, 60, begun, **more).end(begun + 60 - restored, "completed")


def checkpoint(directory: Path, step: int, *, is_damaged: bool = False) -> None:
    """A checkpoint in the format safetensors, whole or cut."""
    path = directory / f"step-{step}"
    path.mkdir(parents=True)
    header = json.dumps({"w": {"dtype": "F32", "shape": [4], "data_offsets": [0, 16]}}).encode()
    content = len(header).to_bytes(8, "little") + header + b"\0" * 16
    (path / "model.safetensors").write_bytes(content[:-7] if is_damaged else content)
