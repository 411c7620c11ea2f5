"""Score of the energy model on the power logs of MLPerf Training, with a system or a maker left out of the fit.

Run with `python benchmarks/score_energy.py`. Each prediction sees the time, the nodes and the power limit of the
accelerators of a run, never its power. Two numbers are fitted: power of a node that works and of one that waits, over
its full power. Every kind of run counts once in the fit, by its median. A node's share of working time is its
throughput over that of the best single node with the same accelerator and benchmark, and 1 where there is none.
"""

from __future__ import annotations

import csv
import statistics
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

from trainspec_validate.performance.costs.energy import (
    BUSY_SHARE,
    JOULES_PER_KILOWATT_HOUR,
    WAITING_SHARE,
    node_watts,
    predicted_joules,
)

PUBLISHED = Path(__file__).resolve().parent / "published" / "energy.csv"


@dataclass(frozen=True, slots=True)
class Run:
    """Median of all runs of one benchmark on one system, measured where the nodes are fed."""

    maker: str
    system: str
    accelerator: str
    benchmark: str
    num_nodes: int
    accelerator_watts: float
    accelerators_per_node: int
    seconds: float
    joules: float
    num_runs: int

    @property
    def full_watts(self) -> float:
        """Full power of a node, as the model puts it."""
        return node_watts(self.accelerators_per_node, self.accelerator_watts)

    @property
    def share(self) -> float:
        """Measured mean power of a node over its full power."""
        return self.joules / (self.seconds * self.num_nodes * self.full_watts)


def read_runs() -> list[Run]:
    """The published runs by kind; readings behind the power supplies are left out, they repeat those before."""
    kinds: dict[tuple[str, str], list[dict[str, str]]] = {}
    with PUBLISHED.open(encoding="utf-8", newline="") as file:
        for row in csv.DictReader(file):
            if row["meter"] != "supply output":
                kinds.setdefault((row["system"], row["benchmark"]), []).append(row)
    return [_median_run(rows) for rows in kinds.values()]


def _median_run(rows: Sequence[dict[str, str]]) -> Run:
    seconds = statistics.median(60 * float(row["minutes"]) for row in rows)
    # Power varies less than time from run to run, so energy is the median power for the median time.
    watts = statistics.median(
        float(row["node_kilowatt_hours"]) * JOULES_PER_KILOWATT_HOUR / (60 * float(row["minutes"])) for row in rows
    )
    first = rows[0]
    return Run(
        maker=first["maker"],
        system=first["system"],
        accelerator=first["accelerator"],
        benchmark=first["benchmark"],
        num_nodes=int(first["nodes"]),
        accelerator_watts=float(first["accelerator_watts"]),
        accelerators_per_node=int(first["accelerators_per_node"]),
        seconds=seconds,
        joules=watts * seconds,
        num_runs=len(rows),
    )


def busy_share(run: Run, runs: Iterable[Run]) -> float:
    """Throughput of a node over that of a single node with the same accelerator and benchmark; uses times only."""
    same = [r for r in runs if (r.accelerator, r.benchmark, r.num_nodes) == (run.accelerator, run.benchmark, 1)]
    if not same:
        return 1.0
    return min(1.0, min(r.seconds for r in same) / (run.seconds * run.num_nodes))


def fit(runs: Sequence[Run], all_runs: Sequence[Run]) -> tuple[float, float]:
    """Shares of a working and of a waiting node, by least squares; a waiting node draws no more than a working one."""
    busy = [busy_share(run, all_runs) for run in runs]
    shares = [run.share for run in runs]
    spread = max(busy) - min(busy)
    if spread < 0.1:
        return statistics.fmean(shares), statistics.fmean(shares)
    line = statistics.linear_regression(busy, shares)
    if line.slope < 0:
        return statistics.fmean(shares), statistics.fmean(shares)
    return line.intercept + line.slope, line.intercept


def left_out(runs: Sequence[Run], key: Callable[[Run], str]) -> dict[Run, float]:
    """Relative error of each run when all runs with its key are left out of the fit."""
    errors = {}
    for run in runs:
        working, waiting = fit([other for other in runs if key(other) != key(run)], runs)
        share = waiting + (working - waiting) * busy_share(run, runs)
        errors[run] = share / run.share - 1
    return errors


def constant_left_out(runs: Sequence[Run], key: Callable[[Run], str]) -> dict[Run, float]:
    """The same with one share for all."""
    return {
        run: statistics.fmean(other.share for other in runs if key(other) != key(run)) / run.share - 1 for run in runs
    }


def limits_times_time(runs: Sequence[Run]) -> dict[Run, float]:
    """Baseline: accelerators at their limit for the whole time, and nothing else."""
    return {
        run: run.accelerator_watts * run.accelerators_per_node * run.num_nodes * run.seconds / run.joules - 1
        for run in runs
    }


def shipped(runs: Sequence[Run]) -> dict[Run, float]:
    """The model with its constants, which are fitted to all runs."""
    return {
        run: predicted_joules(run.num_nodes, run.full_watts, run.seconds, busy_share(run, runs)) / run.joules - 1
        for run in runs
    }


def mean_error(errors: dict[Run, float]) -> float:
    """Mean of the absolute relative errors."""
    return statistics.fmean(abs(error) for error in errors.values())


def main() -> None:
    """Print every prediction and the mean errors."""
    runs = read_runs()
    columns = {
        "limit x time": limits_times_time(runs),
        "one share, system out": constant_left_out(runs, lambda run: run.system),
        "system left out": left_out(runs, lambda run: run.system),
        "maker left out": left_out(runs, lambda run: run.maker),
        "all in": shipped(runs),
    }
    print("Energy of the nodes: relative error of the prediction")
    print(f"  {'system, benchmark':52} runs  busy      kWh" + "".join(f"  {name:>21}" for name in columns))
    for run in runs:
        name, busy = f"{run.system}, {run.benchmark}", busy_share(run, runs)
        print(
            f"  {name:52} {run.num_runs:4} {busy:5.2f} {run.joules / JOULES_PER_KILOWATT_HOUR:8.3f}"
            + "".join(f"  {errors[run]:>+21.1%}" for errors in columns.values())
        )
    print(f"  {'mean absolute error':72}" + "".join(f"  {mean_error(errors):>21.1%}" for errors in columns.values()))
    largest = (max(map(abs, errors.values())) for errors in columns.values())
    print(f"  {'largest':72}" + "".join(f"  {error:>21.1%}" for error in largest))
    working, waiting = fit(runs, runs)
    print(f"Fit to all: working {working:.3f}, waiting {waiting:.3f}; in the package {BUSY_SHARE}, {WAITING_SHARE}")


if __name__ == "__main__":
    main()
