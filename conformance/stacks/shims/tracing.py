"""Reads a task and writes trace records for stacks that know nothing of either."""

from __future__ import annotations

import json
import os
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

MANIFEST = "trainspec-manifest.json"
SEAL_SECONDS = 20.0
"""Time limit of the last seal of a run."""


class Trace:
    """The records of one process; each is written at once, so that a kill loses none."""

    def __init__(self, directory: str, role: str, attempt: int, rank: int | None = None) -> None:
        self.attempt = attempt
        name = role if rank is None else f"{role}-{rank}"
        self._file = (Path(directory) / f"{name}-{os.getpid()}.jsonl").open("a", encoding="utf-8")
        self.tell("process", role=role, pid=os.getpid(), **({} if rank is None else {"rank": rank}))

    def tell(self, k: str, **fields: Any) -> None:
        """Write one record of a kind."""
        record = {"k": k, "time_us": time.time_ns() // 1000, "attempt": self.attempt, **fields}
        self._file.write(json.dumps(record) + "\n")
        self._file.flush()


class Gate:
    """The gate of a resume: the newest checkpoint that is as it was sealed, and saves that count once they are."""

    def __init__(self, trace: Trace, store: str, *, refuses: bool) -> None:
        self._trace, self._store, self._refuses = trace, Path(store), refuses
        self._saves: list[tuple[int, Path]] = []

    def newest(self) -> Path | None:
        """The newest checkpoint that is whole; the first rank reports the damaged ones."""
        from trainspec_record.checkpoints import newest_good  # noqa: PLC0415 - a stack without the gate needs none

        return newest_good(self._store, refused=self._refused) if self._store.is_dir() else None

    def _refused(self, path: Path, problem: str) -> None:
        if self._refuses:
            self._trace.tell("refused", checkpoint=path.name, reason=problem[:200])

    def saved(self, step: int, checkpoint: str) -> None:
        """A save has ended, and is sealed while training continues."""
        self._saves.append((step, self._store / checkpoint))

    def tell(self, wait_seconds: float = 0.0) -> None:
        """Report each save whose manifest exists by now, or soon."""
        end = time.monotonic() + wait_seconds
        while self._saves:
            step, path = self._saves[0]
            beside = path.with_name(f"{path.name}.{MANIFEST}")
            if (path / MANIFEST).is_file() or beside.is_file():
                self._trace.tell("save", checkpoint=path.name, step=step, stage="committed")
                del self._saves[0]
            elif time.monotonic() < end:
                time.sleep(0.01)
            else:
                return


class Rank:
    """The task of one rank of a stack, and the reports of its training."""

    def __init__(self, task: dict[str, Any], rank: int, num_restarts: int = 0) -> None:
        self.job: dict[str, Any] = task["job"]
        self.rank = rank
        self.attempt = task["attempt"] + num_restarts
        self.resumes = bool(task["resume"] or num_restarts)
        self.checkpoints = task["checkpoint_directory"]
        self.trace = Trace(task["trace_directory"], "rank", self.attempt, rank)
        self.gate = None if "RESUME_GATE" not in os.environ else Gate(self.trace, self.checkpoints, refuses=rank == 0)
        self._began = time.monotonic()

    @property
    def micro_batch(self) -> int:
        """Samples of one forward pass of one rank."""
        return int(self.job["global_sequences"] // (self.job["num_ranks"] * self.job["accumulation_steps"]))

    def restored(self, step: int, checkpoint: str | None) -> None:
        """Training is about to resume from a state."""
        found = {"source": "checkpoint", "checkpoint": checkpoint} if checkpoint else {"source": "initial"}
        self.trace.tell("restore", rank=self.rank, step=step, **found)
        self._began = time.monotonic()

    def stepped(self, step: int, loss: float, learning_rate: float, sample_ids: list[int]) -> None:
        """An optimizer step has ended; waits until it took as long as the task asks for."""
        if self.gate is not None:
            self.gate.tell()
        self.trace.tell(
            "step", rank=self.rank, step=step, loss=loss, learning_rate=learning_rate, sample_ids=sample_ids
        )
        time.sleep(max(self.job["step_seconds"] - (time.monotonic() - self._began), 0))
        self._began = time.monotonic()

    def saved(self, step: int, checkpoint: str) -> None:
        """The stack has said that a save is done; one rank reports it."""
        if self.rank == 0 and self.gate is not None:
            self.gate.saved(step, checkpoint)
        elif self.rank == 0:
            self.trace.tell("save", checkpoint=checkpoint, step=step, stage="committed")

    @contextmanager
    def telling_failure(self, step: int, checkpoint: str) -> Iterator[None]:
        """Around a save by the stack: where it raises, the save is reported as failed, and the exception propagates."""
        try:
            yield
        except Exception:
            self.trace.tell("save", checkpoint=checkpoint, step=step, stage="failed")
            raise

    def ended(self, step: int) -> None:
        """The loop has ended; one rank reports it."""
        if self.gate is not None:
            self.gate.tell(SEAL_SECONDS)
        if self.rank == 0:
            reason = "completed" if step >= self.job["num_steps"] else "preempted"
            self.trace.tell("end", reason=reason, step=step)

    def fail_if_planned(self, step: int) -> None:
        """Raise the exception that the task plants, before the step that follows so many."""
        for fault in self.job["faults"]:
            strikes = fault["every_attempt"] or self.attempt == 0
            if fault["kind"] == "exception" and fault["step"] == step and strikes:
                rank = fault["rank"] % self.job["num_ranks"]
                if rank == self.rank:
                    raise RuntimeError(f"the exception that the task plants at step {step}")


def read_task(path: str) -> dict[str, Any]:
    """The task that the suite gives."""
    found: dict[str, Any] = json.loads(Path(path).read_text(encoding="utf-8"))
    return found
