"""Drives a run of the reference trainer from outside: start, watch, kill, and see what is left."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from trainspec_conformance.testbed import PLAIN
from trainspec_conformance.testbed.planted import planted
from trainspec_reference.common.controller import hosts
from trainspec_reference.common.job import Job
from trainspec_reference.common.reading import Changes, read_job
from trainspec_reference.common.run_settings import Assignment

from trainspec_validate.documents import types as documents
from trainspec_validate.documents.types.plan import TrainingPlan

ROOT = Path(__file__).resolve().parents[2]
PLANS = ROOT / "reference" / "plans"
MAIN = Path(__file__).with_name("recovery_main.py")
TIMEOUT_SECONDS = 600.0
STEPS = 50
Record = dict[str, Any]


def tiny_job(num_ranks: int = 2, num_steps: int = 60, *, interval: int = 10, **changes: Any) -> Job:
    """The smallest job: steps of 5 ms, so that a test can act between them."""
    job = read_job(PLANS / "state-space.yaml", PLANS / "policy.yaml", Changes(num_steps=num_steps, num_ranks=num_ranks))
    policy = job.policy
    assert policy is not None
    policy = documents.changed(policy, interval=documents.changed(policy.interval, steps=interval))
    hang_seconds = changes.pop("hang_seconds", None)
    if hang_seconds:
        layers = tuple(documents.changed(layer, timeout_seconds=hang_seconds) for layer in policy.detection)
        policy = documents.changed(policy, detection=layers)
    action_of_nan = changes.pop("nonfinite_action", None)
    if action_of_nan:
        precision = documents.changed(job.plan.precision, nonfinite_action=action_of_nan)
        job = replace(job, plan=documents.changed(job.plan, precision=precision))
    faults = changes.pop("faults", ())
    job = replace(job, policy=policy, min_step_seconds=changes.pop("min_step_seconds", 0.005), **changes)
    return planted(job, faults)


def elastic(job: Job, degrees: tuple[int, ...]) -> Job:
    """The job with a plan that works with so many data ranks."""
    batch = {**documents.plain(job.plan.batch), "elastic": {"data_degrees": degrees, "micro_sequences": [1, 2, 4, 8]}}
    plan = documents.read("TrainingPlan", {**documents.plain(job.plan), "batch": batch})
    assert isinstance(plan, TrainingPlan)
    return replace(job, plan=plan)


class Run:
    """One run in a directory, which can be started again and again."""

    def __init__(
        self,
        directory: Path,
        job: Job,
        *,
        backend: str = PLAIN,
        num_hosts: int = 1,
        command: Sequence[str] = (),
        **settings: Any,
    ) -> None:
        self.directory, self.job = directory, job
        self.checkpoints, self.traces = directory / "checkpoints", directory / "trace"
        self._command, self._settings, self._num_hosts = list(command), settings, num_hosts
        self._backend = backend
        self.process: subprocess.Popen[bytes] | None = None
        self._read: dict[Path, int] = {}
        self._records: list[Record] = []

    def start(self) -> None:
        """Start the controller, in a process group of its own."""
        self.directory.mkdir(parents=True, exist_ok=True)
        num_ranks = self.job.plan.parallelism.num_accelerators
        Assignment(self._backend, self.job, self.checkpoints, self.traces).write(self.directory / "given.json")
        told = {"hosts": hosts(num_ranks, self._num_hosts), **self._settings}
        (self.directory / "settings.json").write_text(json.dumps(told))
        command = [sys.executable, str(MAIN), str(self.directory), *self._command]
        environment = {**os.environ, "OMP_NUM_THREADS": "1", "TRAINSPEC_RUN": str(self.directory / "stream")}
        with (self.directory / "log").open("ab") as log:
            self.process = subprocess.Popen(command, env=environment, stdout=log, stderr=log, start_new_session=True)

    def finish(self) -> int:
        """Wait for the end, and see that nothing is left of it; gives the exit status."""
        assert self.process is not None
        status = self.process.wait(TIMEOUT_SECONDS)
        self.wait(lambda: not list(self.pids()), "the end of all processes")
        return status

    def run(self) -> int:
        """Start, and wait for the end."""
        self.start()
        return self.finish()

    def end(self) -> None:
        """Kill what is left of the run, whatever became of it."""
        if self.process is not None:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(self.process.pid, signal.SIGKILL)
            self.process.wait()

    def wait(self, condition: Callable[[], Any], what: str) -> Any:
        """Wait until something is so, and give what it is."""
        until = time.monotonic() + TIMEOUT_SECONDS
        while time.monotonic() < until:
            found = condition()
            if found:
                return found
            time.sleep(0.01)
        raise AssertionError(f"waited in vain for {what}; {(self.directory / 'log').read_text()[-3000:]}")

    # --- what is seen ---------------------------------------------------------------------------------------

    def records(self, kind: str | None = None) -> list[Record]:
        """All records of the traces by time; of one kind, if any is named."""
        for path in self.traces.glob("*.jsonl"):
            with path.open("rb") as file:
                file.seek(self._read.get(path, 0))
                lines = file.read().rpartition(b"\n")[0]
                self._read[path] = self._read.get(path, 0) + len(lines) + bool(lines)
            pid = int(path.stem.rpartition("-")[2])
            self._records += [{**json.loads(line), "pid_of_file": pid} for line in lines.splitlines()]
        self._records.sort(key=lambda each: int(each["time_us"]))
        return [each for each in self._records if kind in {None, each["k"]}]

    def wait_step(self, step: int, attempt: int = 0) -> None:
        """Wait until all ranks have completed a step in an attempt, or a later one."""

        def reached() -> bool:
            return any(r["step"] >= step and r.get("attempt", 0) >= attempt for r in self.records("step"))

        self.wait(reached, f"step {step}")

    def wait_save(self, stage: str, step: int = 0) -> Record:
        """Wait for a stage of a save."""
        found: Record = self.wait(
            lambda: next((r for r in self.records("save") if r["stage"] == stage and r["step"] >= step), None),
            f"{stage} of a save",
        )
        return found

    def pids(self) -> Iterator[int]:
        """Processes that were started for this run and still exist."""
        for entry in Path("/proc").iterdir():
            if entry.name.isdecimal():
                with contextlib.suppress(OSError):
                    words = (entry / "cmdline").read_bytes()
                    state = (entry / "stat").read_text().rpartition(")")[2].split()[0]
                    if str(self.directory).encode() in words and state != "Z":
                        yield int(entry.name)

    def has_ended(self, pid: int) -> bool:
        """Whether a process has closed all that it had open, which it does after it has given back its memory."""
        try:
            state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
            return state == "Z" and len(list(Path(f"/proc/{pid}/task").iterdir())) == 1
        except OSError:
            return True

    def pid(self, rank: int) -> int:
        """Process of a rank, by the newest record that it wrote of itself."""
        own = [r for r in self.records() if r.get("rank") == rank and r["k"] in {"step", "restore", "process"}]
        return int(own[-1]["pid_of_file"])

    def signal(self, rank: int, number: signal.Signals = signal.SIGKILL) -> None:
        """Send a signal to a rank."""
        os.kill(self.pid(rank), number)

    def losses(self) -> dict[int, Any]:
        """Loss of each step as it was computed last."""
        return {r["step"]: r["loss"] for r in self.records("step") if not r.get("skipped")}

    def sample_ids(self) -> dict[int, list[int]]:
        """Samples of each step over all ranks, as it was computed last."""
        found: dict[tuple[int, int], list[int]] = {}
        attempts: dict[int, int] = {}
        for r in self.records("step"):
            attempts[r["step"]] = r.get("attempt", 0)
        for r in self.records("step"):
            if r.get("attempt", 0) == attempts[r["step"]]:
                found.setdefault((r["step"], r["rank"]), r["sample_ids"])
        return {step: sorted(each for (s, _), ids in found.items() if s == step for each in ids) for step in attempts}

    @property
    def digest(self) -> str:
        """State digest at the end."""
        return str(self.records("end")[-1]["digest"])


def same(run: Run, other: Run) -> None:
    """The run has computed what the other one has, bit by bit, from the same samples."""
    assert run.losses() == other.losses()
    assert run.digest == other.digest
    same_samples(run, other)


def same_samples(run: Run, other: Run) -> None:
    """All ranks tell the same samples, but for a rank that was killed before it could tell of its last update."""
    told, wanted = run.sample_ids(), other.sample_ids()
    others = [step for step in wanted if told[step] != wanted[step]]
    assert len(others) <= 1
    assert all(set(told[step]) < set(wanted[step]) for step in others)
