"""Parts that both trainers share: the task, the order of samples, and the hooks that only the suite needs.

In a job of your own, only the order of samples remains: the suite reads traces, and plants faults.
"""

from __future__ import annotations

import json
import math
import os
import random
import sys
import time
from pathlib import Path
from typing import Any

Fields = dict[str, Any]
ONLY = {"precision": "fp32", "compression": "none", "evaluation_interval_steps": None, "learning_rate_factor": 1}


def read_task(path: str) -> Fields:
    """The task in a file.

    Raises:
        SystemExit: the job asks for what the trainers do not implement.
    """
    task: Fields = json.loads(Path(path).read_text(encoding="utf-8"))
    if other := [key for key, value in ONLY.items() if task["job"][key] != value]:
        sys.stderr.write(f"{path}: job.{other[0]}: this trainer implements {ONLY[other[0]]!r} alone\n")
        raise SystemExit(2)
    return task


def global_batch(job: Fields, step: int, num_before: int) -> list[int]:
    """Sample ids of an optimizer step, before which so many samples were consumed; each id once in an epoch."""
    ramp = [one["global_sequences"] for one in job["batch_ramp"] if one["from_step"] <= step]
    size, found = job["samples_per_epoch"], list[int]()
    for number in range(num_before, num_before + [job["global_sequences"], *ramp][-1]):
        if not found or number % size == 0:
            chance = random.Random(f"{job['seed']} {number // size}")  # noqa: S311 - an order, nothing secret
            order = chance.sample(range(size), size) if job["sample_order"] == "any" else range(size)
        found.append(order[number % size])
    return found


def step_of(checkpoint: Path) -> int:
    """The optimizer step in the name of a checkpoint."""
    return int(checkpoint.name.removeprefix("step-"))


class Trace:
    """The trace of one process; each line is written at once, so that a killed process loses none."""

    def __init__(self, task: Fields, role: str, **place: Any) -> None:
        self._task, self._path = task, Path(task["trace_directory"], f"{role}-{os.getpid()}.jsonl")
        self.write("process", role=role, pid=os.getpid(), **place)

    def write(self, k: str, **fields: Any) -> None:
        """Write a record of a kind."""
        record = {"k": k, "time_us": time.time_ns() // 1000, "attempt": self._task["attempt"], **fields}
        with self._path.open("a", encoding="utf-8") as file:
            file.write(json.dumps(record) + "\n")

    def refuse(self, checkpoint: Path, reason: str) -> None:
        """Report a checkpoint that is not used."""
        self.write("refused", checkpoint=checkpoint.name, reason=reason)


class Rank:
    """A rank: its place in the environment of the recorder, its trace, and its planted faults."""

    def __init__(self, task: Fields, rank: int) -> None:
        job, self.number = task["job"], rank
        host = os.environ.setdefault("TRAINSPEC_HOST", f"node-{rank * job['num_hosts'] // job['num_ranks']}")
        os.environ |= {"RANK": str(rank), "WORLD_SIZE": str(job["num_ranks"]), "LOCAL_RANK": str(rank)}
        os.environ["TRAINSPEC_ATTEMPT"] = str(task["attempt"])
        mine = [one for one in job["faults"] if one["rank"] % job["num_ranks"] == rank]
        self._faults = [one for one in mine if one["every_attempt"] or task["attempt"] == 0]
        self.trace = Trace(task, "rank", rank=rank, host=host)

    def planted(self, step: int) -> float:
        """By what the loss of an optimizer step is multiplied; raises where an exception is planted."""
        for fault in self._faults:
            if fault["step"] <= step and fault["num_steps"]:
                fault["num_steps"] -= 1
                if fault["kind"] == "exception":
                    raise ValueError(f"planted before step {step + 1}")
                return math.nan
        return 1.0
