"""Score of the failure model: against a simulation of the process, and against published effective training times.

Run with `python benchmarks/score_reliability.py`. The simulation draws failures one by one and knows nothing of the
formulas. Published shares leave out at least one input, so the model says what that input would have to be.
"""

from __future__ import annotations

import argparse
import csv
import math
import random
import statistics
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from trainspec_validate.performance.costs.reliability import (
    daly_interval,
    effective_training_time_ratio,
    optimal_interval,
    spare_nodes,
    young_interval,
)

PUBLISHED = Path(__file__).resolve().parent / "published" / "effective_training_time.csv"
# Minutes: 1,024 to 131,072 accelerators at 2.3 to 6.5 failures per 1,000 node-days; blocking save and recovery.
MEAN_TIMES = (1730.8, 432.7, 185.5, 108.2, 13.5)
COSTS = ((0.105, 1.5), (1.0, 1.5), (5.0, 20.0), (5.0, 1.5), (0.105, 20.0))


@dataclass(frozen=True, slots=True)
class Estimate:
    """A simulated share and its standard error."""

    share: float
    error: float


def simulate(
    interval: float, blocking: float, recovery: float, draw: Callable[[], float], num_saves: int = 2000
) -> Estimate:
    """Share of wall time that lasts, over 20 histories; `draw` gives the time from one failure to the next.

    A failure throws away what was not saved; it can strike during a save and during a recovery.
    """
    shares = []
    for _ in range(20):
        clock, saves, next_failure = 0.0, 0, draw()
        while saves < num_saves // 20:
            if clock + interval + blocking <= next_failure:
                clock, saves = clock + interval + blocking, saves + 1
                continue
            clock = next_failure
            next_failure = clock + draw()
            while next_failure < clock + recovery:
                clock = next_failure
                next_failure = clock + draw()
            clock += recovery
        shares.append(saves * interval / clock)
    return Estimate(statistics.fmean(shares), statistics.stdev(shares) / math.sqrt(len(shares)))


def exponential(mean: float, seed: int) -> Callable[[], float]:
    """Times between failures that do not remember."""
    source = random.Random(seed)
    return lambda: source.expovariate(1 / mean)


def clustered(mean: float, seed: int, shape: float = 0.7) -> Callable[[], float]:
    """Times between failures that come in bursts: Weibull, which the model does not assume."""
    source, scale = random.Random(seed), mean / math.gamma(1 + 1 / shape)
    return lambda: source.weibullvariate(scale, shape)


def linear_share(interval: float, blocking: float, mean: float, recovery: float) -> float:
    """The closed form of arXiv:2410.21680, to compare with."""
    return (1 - (recovery + interval / 2) / mean) / (1 + blocking / interval)


def score_model(num_saves: int) -> None:
    """Print the model, the linear form and the simulation side by side."""
    print("Share of effective time: model against simulation (minutes)")
    print("  between   save  recovery  interval   model  linear  simulated          bursts")
    model_errors, linear_errors, burst_errors = [], [], []
    for mean in MEAN_TIMES:
        for blocking, recovery in COSTS:
            interval = daly_interval(blocking, mean)
            model = effective_training_time_ratio(interval, blocking, mean, recovery)
            linear = linear_share(interval, blocking, mean, recovery)
            found = simulate(interval, blocking, recovery, exponential(mean, 1), num_saves)
            bursts = simulate(interval, blocking, recovery, clustered(mean, 2), num_saves)
            model_errors.append(abs(model - found.share))
            linear_errors.append(abs(linear - found.share))
            burst_errors.append(abs(model - bursts.share))
            print(
                f"  {mean:7.1f} {blocking:6.3f} {recovery:9.1f} {interval:9.2f} {model:7.3f} {linear:7.3f}"
                f" {found.share:10.3f} +-{found.error:.3f} {bursts.share:9.3f}"
            )
    for name, errors in (("model", model_errors), ("linear form", linear_errors), ("model, bursts", burst_errors)):
        print(f"  {name:14} mean error {statistics.fmean(errors):.4f}, largest {max(errors):.4f}")


def score_intervals() -> None:
    """Print what the interval formulas lose against the optimum."""
    print("Share of effective time lost against the best interval")
    for name, formula in (("Young", young_interval), ("Daly", daly_interval)):
        losses = []
        for ratio in (0.001, 0.01, 0.05, 0.1, 0.3, 1.0):
            best = effective_training_time_ratio(optimal_interval(ratio, 1), ratio, 1, 0)
            losses.append((ratio, best - effective_training_time_ratio(formula(ratio, 1), ratio, 1, 0)))
        print(f"  {name:6}" + "".join(f"  save/mean {ratio:g}: {loss:.5f}" for ratio, loss in losses))


def solve(function: Callable[[float], float], low: float, high: float) -> float | None:
    """The place between two bounds at which a monotone function is 0, by bisection; None when it has no sign change."""
    if function(low) * function(high) > 0:
        return None
    for _ in range(200):
        middle = math.sqrt(low * high)
        low, high = (low, middle) if function(low) * function(middle) <= 0 else (middle, high)
    return low


def implied(row: dict[str, str], blocking: float) -> str:
    """The input that a published share leaves out, at a blocking save of so many minutes."""
    share = float(row["effective_share"])

    def excess(mean: float, recovery: float) -> float:
        return effective_training_time_ratio(daly_interval(blocking, mean), blocking, mean, recovery) - share

    if row["minutes_between_interruptions"]:
        mean = float(row["minutes_between_interruptions"])
        recovery = solve(lambda minutes: excess(mean, minutes), 1e-3, 1e4)
        bound = "at most " if row["relation"] == "at least" else ""
        return "saves alone cost more" if recovery is None else f"recovery {bound}{recovery:.1f} min"
    recovery = float(row["recovery_minutes"]) if row["recovery_minutes"] else 1.5
    between = solve(lambda minutes: excess(minutes, recovery), 1e-1, 1e7)
    if between is None:
        return "no failure rate fits"
    rate = 1000 * 1440 / (between * float(row["num_nodes"]))
    bound = "at most " if row["relation"] == "at least" else ""
    return f"{bound}{rate:.1f} failures per 1000 node-days (recovery {recovery:g} min)"


def score_published() -> None:
    """Print what published shares imply; rates of 2.3 to 6.5 were measured (arXiv:2410.21680, arXiv:2407.21783)."""
    print("Published effective time, and the missing input at a blocking save of 0.1 or 5 min")
    with PUBLISHED.open(encoding="utf-8", newline="") as file:
        for row in csv.DictReader(file):
            print(f"  {row['system']}: {row['relation']} {float(row['effective_share']):.3g} ({row['source']})")
            print(f"    0.1 min: {implied(row, 0.1)};  5 min: {implied(row, 5)}")


def score_spares() -> None:
    """Print the spares of a large job; the tests hold them against a table and a simulation."""
    print("Spares at the 99 % quantile, 2,048 nodes at 6.5 failures per 1,000 node-days")
    print("  " + ", ".join(f"{hours} h repair: {spare_nodes(2048, 6.5, hours * 3600)}" for hours in (1, 24, 72)))


def main() -> None:
    """Print all scores."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--saves", type=int, default=20_000, help="saves that each simulation reaches")
    score_model(parser.parse_args().saves)
    score_intervals()
    score_published()
    score_spares()


if __name__ == "__main__":
    main()
