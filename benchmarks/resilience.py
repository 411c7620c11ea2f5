"""Cost of resilience features per step of the reference trainer: none, each alone, and all, as ratios of one run.

Run with `python benchmarks/resilience.py`; `--short` makes one short round of none and all. Every round runs every
setup, each round in another order, and a setup is compared with the run of the same round that has no means at all. All
runs must show the same losses, to the last bit. Processor time is that of all ranks and of the controller.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import signal
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

HERE = Path(__file__).resolve().parent
sys.path[:0] = [str(HERE)]

import machine  # noqa: E402
from resilience_run import AGREEMENT, DIGESTS, MEANS, REPLICAS, SAVES, WANTED, WARM_STEPS, WATCH, Wanted  # noqa: E402

TIMEOUT_SECONDS = 300.0
NONE, ALL = "none", "all"
SETUPS: Mapping[str, tuple[str, ...]] = {
    NONE: (),
    "asynchronous saves": (SAVES,),
    "saves with digests": (SAVES, DIGESTS),
    "progress and heartbeats": (WATCH,),
    "agreed stops": (AGREEMENT,),
    "replicas compared": (REPLICAS,),
    ALL: MEANS,
}


@dataclass(frozen=True, slots=True)
class Measured:
    """One run."""

    step_seconds: float
    """Of the slowest rank."""
    processor_seconds: float
    """Of a step, of all processes."""
    losses: tuple[float, ...]
    num_saves: int
    """Committed."""


def measure(wanted: Wanted) -> Measured:
    """One run in processes of its own, of which none is left."""
    with tempfile.TemporaryDirectory() as name:
        directory = Path(name)
        (directory / WANTED).write_text(json.dumps(asdict(wanted)))
        with (directory / "log").open("wb") as log:
            status = _run([sys.executable, str(HERE / "resilience_run.py"), "run", name], log.fileno())
        if status != 0:
            sys.exit(f"{wanted.means}: status {status}\n{(directory / 'log').read_text(errors='replace')[-2000:]}")
        return _read(directory, wanted)


def _run(command: Sequence[str], log: int) -> int:
    environment = {**machine.ENVIRONMENT, "OMP_NUM_THREADS": "1"}
    process = subprocess.Popen(command, env=environment, stdout=log, stderr=log, start_new_session=True)
    try:
        return process.wait(TIMEOUT_SECONDS)
    finally:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()


def _read(directory: Path, wanted: Wanted) -> Measured:
    ranks = [json.loads(path.read_text()) for path in directory.glob("rank-*.json")]
    controller = json.loads((directory / "controller.json").read_text())
    num_steps = wanted.num_steps - WARM_STEPS
    processor = sum(one["processor_seconds"] for one in [*ranks, controller])
    records = list(_records(directory))
    losses = {record["step"]: record["loss"] for record in records if record["k"] == "step" and record["rank"] == 0}
    return Measured(
        max(one["seconds"] for one in ranks) / num_steps,
        processor / num_steps,
        tuple(losses[step] for step in range(1, wanted.num_steps + 1)),
        sum(record["k"] == "save" and record["stage"] == "committed" for record in records),
    )


def _records(directory: Path) -> Iterator[dict[str, object]]:
    for path in (directory / "trace").glob("*.jsonl"):
        yield from map(json.loads, path.read_bytes().splitlines())


def rounds(names: Sequence[str], count: int, base: Wanted) -> dict[str, list[Measured]]:
    """Runs of each setup; run number n of all setups are of one round."""
    found: dict[str, list[Measured]] = {name: [] for name in names}
    for number in range(count):
        print(f"round {number + 1} of {count}", file=sys.stderr, flush=True)
        start = number % len(names)
        for name in [*names[start:], *names[:start]]:
            found[name].append(measure(Wanted(**{**asdict(base), "means": SETUPS[name]})))
    losses = {one.losses for runs in found.values() for one in runs}
    if len(losses) != 1:
        sys.exit("the setups do not train alike: their losses differ")
    return found


def report(found: Mapping[str, Sequence[Measured]], base: Wanted) -> None:
    """Print the table."""
    every = f"saves and comparisons every {base.interval_steps} optimizer steps"
    print(f"{len(found[NONE])} rounds of {base.num_steps} optimizer steps, {every}; equal losses in all runs")
    for name, runs in found.items():
        pairs = list(zip(runs, found[NONE], strict=True))
        wall = _ratios([(one.step_seconds, none.step_seconds) for one, none in pairs])
        processor = _ratios([(one.processor_seconds, none.processor_seconds) for one, none in pairs])
        step = statistics.median(one.step_seconds for one in runs)
        added = statistics.median(one.step_seconds - none.step_seconds for one, none in pairs)
        each = (
            f", {added * base.interval_steps * 1000:+.0f} ms each time" if {SAVES, REPLICAS} & {*SETUPS[name]} else ""
        )
        print(f"  {name:24} {step * 1000:7.2f} ms a step, {wall}{each}")
        print(f"  {'':24} processor time {processor}; {min(one.num_saves for one in runs)} saves")
    slowest, fastest = (chosen(one.step_seconds for one in found[NONE]) for chosen in (max, min))
    print(f"without any, the slowest round took {100 * (slowest / fastest - 1):.0f} % more than the fastest")


def _ratios(pairs: Sequence[tuple[float, float]]) -> str:
    found = [one / none for one, none in pairs]
    return f"{statistics.median(found):.3f}x ({min(found):.3f} to {max(found):.3f})"


def main() -> None:
    """Print everything."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--backend", default="torch", choices=("plain", "torch", "jax"))
    parser.add_argument("--plan", default="transformer", help="name of a plan in reference/plans")
    parser.add_argument("--ranks", type=int, default=2)
    parser.add_argument("--steps", type=int, default=209)
    parser.add_argument("--interval", type=int, default=25, help="steps between saves, and between comparisons")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--short", action="store_true", help="one short round of none and all")
    options = parser.parse_args()
    num_steps, count, names = (59, 1, [NONE, ALL]) if options.short else (options.steps, options.rounds, list(SETUPS))
    base = Wanted(options.backend, options.plan, options.ranks, num_steps, options.interval, ())
    print(machine.describe("trainspec-validate", "numpy", *([] if base.backend == "plain" else [base.backend])))
    print(f"load average before: {os.getloadavg()[0]:.1f}; {base.backend}, {base.plan}, {base.num_ranks} ranks")
    report(rounds(names, count, base), base)
    print(f"load average after: {os.getloadavg()[0]:.1f}")


if __name__ == "__main__":
    main()
