"""Measures the recovery time of the reference trainer after a fault, mark by mark, over trials.

Run with `python benchmarks/recovery.py`; `--short` makes one trial of each, and `--case` names one or some. A trial
starts a run, waits for a random moment of its steady state, does the damage, and reads the marks from the trace. The
clock is that of the machine. The largest of n trials bounds the quantile that n trials show with 95 % confidence: 5
show the median, 29 the 90th percentile, 59 the 95th. `--out trials.json` keeps each trial as soon as it is made, and
continues with the trials in the file from the same machine and software.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import random
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve().parent
sys.path[:0] = [str(HERE)]

import machine  # noqa: E402
from trainspec_conformance.testbed import backend_named  # noqa: E402
from trainspec_reference.common.controller import hosts, launch  # noqa: E402
from trainspec_reference.common.decisions import Way  # noqa: E402
from trainspec_reference.common.job import Job  # noqa: E402
from trainspec_reference.common.reading import Changes, read_job  # noqa: E402
from trainspec_reference.common.run_settings import Assignment, Settings  # noqa: E402

from trainspec_validate.documents import types as documents  # noqa: E402
from trainspec_validate.documents.types.plan import TrainingPlan  # noqa: E402
from trainspec_validate.performance.costs.detection import trials_needed  # noqa: E402

PLANS = HERE.parent / "reference" / "plans"
MARKS = ("detected", "decided", "restored", "first step")
TIMEOUT_SECONDS = 300.0
QUANTILES = (0.95, 0.9, 0.5)


@dataclass(frozen=True, slots=True)
class Case:
    """One kind of fault, and what is done about it."""

    key: str
    """By which a command line names it."""
    name: str
    signal: signal.Signals
    way: Way
    aim_seconds: float
    """To the first completed step."""
    num_standby: int = 0


CASES = (
    Case("shrink", "killed, shrinks in place", signal.SIGKILL, "shrink", 1.0),
    Case("respawn", "killed, worker respawned", signal.SIGKILL, "restart", 5.0),
    Case("standby", "killed, standby worker", signal.SIGKILL, "restart", 5.0, num_standby=1),
    Case("stopped", "stopped, worker respawned", signal.SIGSTOP, "restart", 15.0),
)
KEYS = {case.key: case for case in CASES}


@dataclass(frozen=True, slots=True)
class Stack:
    """The model that is trained."""

    backend: str
    plan: str
    num_ranks: int
    device: str | None = None
    """None for that of the plan."""

    def job(self) -> Job:
        """A job that never ends by itself, which works with any number of ranks."""
        changes = Changes(num_steps=1_000_000, num_ranks=self.num_ranks, device=self.device)
        job = read_job(PLANS / f"{self.plan}.yaml", PLANS / "policy.yaml", changes)
        elastic = {"data_degrees": list(range(1, self.num_ranks + 1)), "micro_sequences": [1, 2, 4]}
        batch = {**documents.plain(job.plan.batch), "elastic": elastic}
        plan = documents.read("TrainingPlan", {**documents.plain(job.plan), "batch": batch})
        if not isinstance(plan, TrainingPlan):
            raise TypeError(f"{self.plan}.yaml is no training plan")
        return replace(job, plan=plan)

    def run(self, directory: Path, case: Case) -> int:
        """Run it, as the process that a trial starts."""
        settings = Settings(
            hosts=hosts(self.num_ranks, 1),
            directory=directory,
            checkpoint_directory=directory / "checkpoints",
            trace_directory=directory / "trace",
            environment={**os.environ, "TRAINSPEC_RUN": str(directory / "stream")},
            way=case.way,
            num_standby=case.num_standby,
        )
        assignment = Assignment(
            backend_named(self.backend), self.job(), settings.checkpoint_directory, settings.trace_directory
        )
        return launch(assignment, settings)


def records(directory: Path) -> list[dict[str, Any]]:
    """The trace of a run by time; each record with the process that wrote it."""
    found = []
    for path in (directory / "trace").glob("*.jsonl"):
        lines = path.read_bytes().split(b"\n")[:-1]
        found += [{**json.loads(line), "writer": int(path.stem.rpartition("-")[2])} for line in lines]
    return sorted(found, key=lambda record: record["time_us"])


@contextlib.contextmanager
def running(stack: Stack, case: Case, directory: Path) -> Iterator[subprocess.Popen[bytes]]:
    """A run in a process group of its own, of which nothing is left afterwards."""
    told = ["--backend", stack.backend, "--plan", stack.plan, "--ranks", str(stack.num_ranks)]
    told += ["--device", stack.device] if stack.device else []
    command = [sys.executable, __file__, *told, "--run", str(directory), "--case", case.key]
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    with (directory.parent / "log").open("wb") as log:
        process = subprocess.Popen(command, env=environment, stdout=log, stderr=log, start_new_session=True)
    try:
        yield process
    finally:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()


def wait(directory: Path, process: subprocess.Popen[bytes], step: int, attempt: int) -> list[dict[str, Any]]:
    """The records, as soon as all ranks of an attempt have completed an update."""
    until = time.monotonic() + TIMEOUT_SECONDS
    while time.monotonic() < until and process.poll() is None:
        found = records(directory)
        if any(each["k"] == "step" and each["step"] >= step and each.get("attempt", 0) >= attempt for each in found):
            return found
        time.sleep(0.05)
    log = (directory.parent / "log").read_text(errors="replace")
    sys.exit(f"step {step} of attempt {attempt} never came; the run said:\n{log[-2000:]}")


def trial(stack: Stack, case: Case) -> dict[str, float]:
    """Seconds from a fault to each mark."""
    with tempfile.TemporaryDirectory() as folder:
        directory = Path(folder) / "run"
        with running(stack, case, directory) as process:
            wait(directory, process, random.randint(30, 60), 0)
            time.sleep(random.random() * 0.2)
            victim = next(each for each in reversed(records(directory)) if each.get("rank") == stack.num_ranks - 1)
            fault = time.time()
            os.kill(victim["writer"], case.signal)
            found = wait(directory, process, 1, 1)
    return marks([each for each in found if each["time_us"] / 1e6 >= fault], fault)


def marks(found: Sequence[dict[str, Any]], fault: float) -> dict[str, float]:
    """Seconds from a fault to its marks in the trace; restored is the last rank, the first step that of all."""

    def at(kind: str) -> list[float]:
        return [each["time_us"] / 1e6 - fault for each in found if each["k"] == kind]

    restored = at("restore")
    steps = [each for each in found if each["k"] == "step" and each.get("attempt", 0) >= 1]
    first = min(each["step"] for each in steps)
    done = max(each["time_us"] / 1e6 - fault for each in steps if each["step"] == first)
    return dict(zip(MARKS, (at("fault")[0], at("decision")[0], max(restored), done), strict=True))


class Kept:
    """Trials of one stack on one machine, in a file with those of others where one is named."""

    def __init__(self, path: Path | None, stack: Stack, on: str) -> None:
        self._path, self._told = path, {**asdict(stack), "machine": on}
        self._entries: list[dict[str, Any]] = json.loads(path.read_text()) if path and path.exists() else []

    def of(self, case: Case) -> list[dict[str, Any]]:
        """Trials of a case: its marks, and the seconds that each took altogether."""
        return [each for each in self._entries if {**self._told, "case": case.key}.items() <= each.items()]

    def add(self, case: Case, seconds: dict[str, float], wall_seconds: float) -> None:
        """Keep one more trial; a file is whole at any time."""
        told = {"seconds": seconds, "wall_seconds": wall_seconds, "load": os.getloadavg()[0], "time": int(time.time())}
        self._entries.append({**self._told, "case": case.key, **told})
        if self._path is not None:
            new = self._path.with_suffix(".tmp")
            new.write_text(json.dumps(self._entries, indent=1) + "\n")
            new.replace(self._path)


def measure(stack: Stack, case: Case, kept: Kept, num_trials: int) -> None:
    """Make the trials that are missing, and report all of the case."""
    for _ in range(num_trials - len(kept.of(case))):
        start = time.monotonic()
        kept.add(case, trial(stack, case), time.monotonic() - start)
    found = kept.of(case)
    report(case, [each["seconds"] for each in found])
    print(f"  {statistics.mean(each['wall_seconds'] for each in found):.1f} s for each trial", flush=True)


def shown(num_trials: int) -> str:
    """The bound that this number of trials without a miss shows."""
    quantile = next((each for each in QUANTILES if trials_needed(each) <= num_trials), None)
    return "shows no quantile" if quantile is None else f"bounds the {100 * quantile:.0f} % quantile"


def report(case: Case, found: Sequence[dict[str, float]]) -> None:
    """Print the marks of all trials of a case."""
    print(f"{case.name}: {len(found)} trials, the largest {shown(len(found))}")
    for mark in MARKS:
        values = [each[mark] for each in found]
        print(f"  {mark:11} median {statistics.median(values):7.3f} s, largest {max(values):7.3f} s")
    over = sum(each["first step"] > case.aim_seconds for each in found)
    print(f"  aim {case.aim_seconds:g} s to the first step: missed {over} times")


def main() -> None:
    """Print the times of every case."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--backend", default="plain", choices=("plain", "torch", "jax"))
    parser.add_argument("--plan", default="state-space", help="name of a plan in reference/plans")
    parser.add_argument("--ranks", type=int, default=4)
    parser.add_argument("--device", choices=("cpu", "cuda"), help="in place of the plan's")
    parser.add_argument("--trials", type=int, default=29)
    parser.add_argument("--short", action="store_true", help="one trial of each case")
    parser.add_argument("--case", choices=KEYS, action="append", help="in place of all; can be given again")
    parser.add_argument("--out", type=Path, help="JSON file in which trials are kept, and from which a run continues")
    parser.add_argument("--run", type=Path, help=argparse.SUPPRESS)
    options = parser.parse_args()
    cases = [KEYS[key] for key in dict.fromkeys(options.case or KEYS)]
    stack = Stack(options.backend, options.plan, options.ranks, options.device)
    if options.run:
        sys.exit(stack.run(options.run, cases[0]))
    library = {"plain": "numpy"}.get(stack.backend, stack.backend)
    on = machine.describe("trainspec-validate", library)
    print(on)
    print(f"load average before: {os.getloadavg()[0]:.1f}; {stack.backend}, {stack.plan}, {stack.num_ranks} ranks")
    kept = Kept(options.out, stack, on)
    for case in cases:
        measure(stack, case, kept, 1 if options.short else options.trials)
    print(f"load average after: {os.getloadavg()[0]:.1f}")


if __name__ == "__main__":
    main()
