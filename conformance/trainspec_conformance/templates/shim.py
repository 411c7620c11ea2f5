"""Connects a training stack to the conformance suite: it obeys the task and writes the trace.

It runs unchanged, with a model of one number. Put your own training into `train`, `save` and `newest`, and your
launcher into `main`. Meaning of each record: https://trainspec.org/v1/14-conformance/#the-trace
"""

from __future__ import annotations

import hashlib
import json
import multiprocessing
import os
import random
import shutil
import sys
import time
from multiprocessing.synchronize import Barrier
from pathlib import Path
from typing import Any

Task = dict[str, Any]
State = dict[str, Any]
MANIFEST = "trainspec-manifest.json"
FIRST: State = {"step": 0, "weight": 5.0}


class Trace:
    """One file for each process; each line is written at once, for a killed process writes nothing more."""

    def __init__(self, task: Task, name: str) -> None:
        self._attempt = task["attempt"]
        self._path = Path(task["trace_directory"], f"{name}-{os.getpid()}.jsonl")

    def record(self, k: str, **more: Any) -> None:
        """Write one record."""
        record = {"k": k, "time_us": time.time_ns() // 1000, "attempt": self._attempt, **more}
        with self._path.open("a", encoding="utf-8") as file:
            file.write(json.dumps(record) + "\n")


def samples(job: dict[str, Any], step: int) -> list[int]:
    """Samples of the global batch of one step: each is consumed once in an epoch."""
    size, total = job["global_sequences"], job["samples_per_epoch"]
    epoch, place = divmod(step, total // size)
    order = random.Random(job["seed"] + epoch).sample(range(total), total)  # noqa: S311 - an order, and no secret
    return order[place * size : (place + 1) * size]


def train(task: Task, rank: int, state: State, source: dict[str, Any], others: Barrier) -> None:
    """Work of one rank. Your training loop comes here; where this one waits, yours exchanges gradients."""
    trace, job = Trace(task, f"rank-{rank}"), task["job"]
    trace.record("process", role="rank", rank=rank, pid=os.getpid())
    trace.record("restore", rank=rank, step=state["step"], **source)
    for step in range(state["step"], job["num_steps"]):
        batch = samples(job, step)
        target = sum(batch) / len(batch) / job["samples_per_epoch"]
        loss = (state["weight"] - target) ** 2
        state = {"step": step + 1, "weight": state["weight"] - 0.02 * (state["weight"] - target)}
        time.sleep(job["step_seconds"])  # the suite wants steps that last
        others.wait()  # no rank runs ahead of a save, so that a fault loses one interval at most
        mine = batch[rank :: job["num_ranks"]]
        trace.record("step", rank=rank, step=step + 1, loss=loss, learning_rate=0.01, sample_ids=mine)
        if rank == 0 and state["step"] % job["checkpoint_interval_steps"] == 0:
            save(task, trace, state)


def save(task: Task, trace: Trace, state: State) -> None:
    """Write a checkpoint so that a crash at any moment leaves the one before: name it only when it is durable."""
    store = Path(task["checkpoint_directory"])
    name = f"step-{state['step']}"
    trace.record("save", checkpoint=name, step=state["step"], stage="begin")
    body = json.dumps(state).encode()
    digest = hashlib.sha256(body).hexdigest()
    half = store / f"half-{name}"
    shutil.rmtree(half, ignore_errors=True)
    half.mkdir(parents=True)
    write(half / "state.json", body)
    sealed = {"path": "state.json", "size_bytes": len(body), "sha256": digest}
    head = {"apiVersion": "trainspec/v1", "kind": "CheckpointManifest", "save_id": f"{name}-{time.time_ns()}"}
    manifest = {**head, "step": state["step"], "files": [sealed]}
    write(half / MANIFEST, json.dumps(manifest).encode())
    shutil.rmtree(store / name, ignore_errors=True)
    half.rename(store / name)
    write(store / "latest.new", name.encode())
    (store / "latest.new").rename(store / "latest")
    trace.record("save", checkpoint=name, step=state["step"], stage="committed", digest=f"sha256:{digest}")
    for old in checkpoints(store)[task["job"]["num_kept"] :]:
        shutil.rmtree(old)


def write(path: Path, body: bytes) -> None:
    """Write a file, and wait until it is on the disk."""
    with path.open("wb") as file:
        file.write(body)
        file.flush()
        os.fsync(file.fileno())


def checkpoints(store: Path) -> list[Path]:
    """Complete checkpoints, the newest first."""
    return sorted(store.glob("step-*"), key=lambda path: -int(path.name.removeprefix("step-")))


def newest(task: Task, trace: Trace) -> tuple[State, dict[str, Any]]:
    """The newest state that can be trusted, and where it is from; what is damaged is refused by name."""
    for path in checkpoints(Path(task["checkpoint_directory"])):
        try:
            body = (path / "state.json").read_bytes()
            digest = hashlib.sha256(body).hexdigest()
            if digest != json.loads((path / MANIFEST).read_bytes())["files"][0]["sha256"]:
                raise ValueError("the digest of state.json is another one")
            source = {"source": "checkpoint", "checkpoint": path.name, "digest": f"sha256:{digest}"}
            return json.loads(body), source
        except (OSError, ValueError, KeyError) as error:
            trace.record("refused", checkpoint=path.name, file="state.json", reason=str(error)[:500])
    return FIRST, {"source": "initial"}


def main(path: str) -> int:
    """The launcher: starts the ranks and watches them. With an error status it asks to be started again."""
    task: Task = json.loads(Path(path).read_text(encoding="utf-8"))
    trace, job = Trace(task, "controller"), task["job"]
    trace.record("process", role="controller", pid=os.getpid())
    state, source = newest(task, trace) if task["resume"] else (FIRST, {"source": "initial"})
    forking = multiprocessing.get_context("fork")  # the barrier then needs no process of its own
    others = forking.Barrier(job["num_ranks"])
    ranks = [
        forking.Process(target=train, args=(task, rank, state, source, others)) for rank in range(job["num_ranks"])
    ]
    for one in ranks:
        one.start()
    while any(one.exitcode is None for one in ranks):
        time.sleep(0.02)
        lost = next((rank for rank, one in enumerate(ranks) if one.exitcode not in {None, 0}), None)
        if lost is not None:
            trace.record("fault", kind="process", rank=lost, reason=f"its status is {ranks[lost].exitcode}")
            for one in ranks:
                one.kill()
                one.join()
            trace.record("decision", action="restart")
            return 1
    trace.record("end", reason="completed", step=job["num_steps"])
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1]))
