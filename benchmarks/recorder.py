"""Cost of recording for a training loop: per record on the thread of the caller, and per optimizer step of 10 ms.

Run with `python benchmarks/recorder.py`; `--short` keeps to seconds. The loop computes in Python, so that the thread
that writes competes with it for the interpreter: the worst case. Loops with and without recording take turns in one
process, so that a machine that drifts drifts for both. Where others use the machine, the time of the processor says
more than the wall clock; it holds the work of all threads.
"""

from __future__ import annotations

import argparse
import os
import statistics
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve().parent
sys.path[:0] = [str(HERE)]

import machine  # noqa: E402

import trainspec_record  # noqa: E402

STEP_SECONDS = 0.010
VALUES = {"loss": 2.5137, "learning_rate": 3e-4, "gradient_norm": 1.02, "tokens": 4_194_304, "samples": 512}


def recording(folder: Path, environment: str) -> Any:
    """A run that is recorded, with its node, or one that is not."""
    os.environ["TRAINSPEC_RUN"] = environment and str(folder / environment)
    return trainspec_record.run(flops_per_token=4.2e11, peak_flops=989e12)


def work(num_turns: int) -> float:
    """Compute for a while."""
    total = 0.0
    for number in range(num_turns):
        total += number * 1e-9
    return total


def turns_of_a_step() -> int:
    """Turns of the loop that take as long as an update."""
    num_turns = 10_000
    while True:
        begin = time.perf_counter()
        work(num_turns)
        taken = time.perf_counter() - begin
        if taken > STEP_SECONDS:
            return int(num_turns * STEP_SECONDS / taken)
        num_turns *= 2


def updates(run: Any, num_steps: int, num_turns: int) -> tuple[float, float]:
    """Seconds of each step of a loop: of the wall clock, and of the processor in all threads of the process."""
    wall, busy = time.perf_counter(), time.process_time()
    for number in range(num_steps):
        with run.step(number):
            work(num_turns)
            run.log(**VALUES)
    taken = time.perf_counter() - wall
    run.flush()  # what waits is work of this loop, and not of the next one
    return taken / num_steps, (time.process_time() - busy) / num_steps


def calls(action: Callable[[], None], num: int) -> float:
    """Seconds of a call, when it is made in bursts that the queue holds."""
    found = []
    for _ in range(20):
        begin = time.perf_counter()
        for _ in range(num):
            action()
        found.append((time.perf_counter() - begin) / num)
        time.sleep(0.3)
    return statistics.median(found)


def report_calls(run: Any, title: str) -> None:
    """Print what calls cost."""

    def step() -> None:
        with run.step():
            run.log(**VALUES)

    for name, action in (
        ("optimizer step with five values, two records", step),
        ("log of a metric by its name, one record", lambda: run.log({"train.gradient.variance": 3.2e7})),
        ("event, one record", lambda: run.event("train.loss.spike", {"train.loss.baseline": 2.1})),
        ("log of five values within an optimizer step", lambda: run.log(**VALUES)),
    ):
        print(f"  {name:<42} {title:<12} {calls(action, 200) * 1e6:7.2f} us")


def report_threads(run: Any) -> None:
    """Print the time of the processor that a step takes in both threads together, with nothing between updates."""
    found = []
    for _ in range(20):
        run.flush()
        begin = time.process_time()
        for _ in range(500):
            with run.step():
                run.log(**VALUES)
        run.flush()
        found.append((time.process_time() - begin) / 500)
    seconds = statistics.median(found)
    share = 100 * seconds / STEP_SECONDS
    print(f"  step, caller and writing thread {seconds * 1e6:.1f} us of processor time: {share:.2f} % of 10 ms")


def report_updates(folder: Path, num_rounds: int, num_steps: int) -> None:
    """Print what an optimizer step costs with and without recording."""
    num_turns = turns_of_a_step()
    silent, recorded = recording(folder, ""), recording(folder, "updates")
    updates(silent, num_steps, num_turns)
    pairs = []
    with recorded as run:
        for number in range(num_rounds):  # each goes first in turn, for a machine may favour the first or the second
            order = (silent, run) if number % 2 else (run, silent)
            times = [updates(each, num_steps, num_turns) for each in order]
            pairs.append((times[number % 2 == 0], times[number % 2]))
    print(f"steps of about 10 ms, {num_rounds} pairs of {num_steps}, in turn; median of the pairs, standard error")
    for place, clock in enumerate(("wall clock", "processor time of all threads")):
        plain, with_it = (statistics.median(each[place] for each in column) for column in zip(*pairs, strict=True))
        shares = [100 * (one[place] / other[place] - 1) for other, one in pairs]
        error = 1.2533 * statistics.stdev(shares) / len(shares) ** 0.5
        print(f"  {clock:<30} {plain * 1e3:8.3f} ms without, {with_it * 1e3:8.3f} ms with recording")
        print(f"  {'':<30} {statistics.median(shares):+.2f} % +- {error:.2f} %")


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--short", action="store_true", help="fewer rounds")
    short = parser.parse_args().short
    print(machine.describe("trainspec-validate"))
    with tempfile.TemporaryDirectory() as place:
        folder = Path(place)
        print("\ncalls on the thread of the caller, median of 20 bursts of 200")
        with recording(folder, "calls") as run:
            report_calls(run, "recorded")
            report_threads(run)
        report_calls(recording(folder, ""), "TRAINSPEC_RUN unset")
        print()
        report_updates(folder, num_rounds=6 if short else 60, num_steps=50)
        sizes = {path.name: path.stat().st_size for path in (folder / "updates").iterdir()}
        print("  files: " + ", ".join(f"{name} {size:,} bytes" for name, size in sorted(sizes.items())))


if __name__ == "__main__":
    main()
