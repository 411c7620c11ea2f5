"""Scores what is said of the memory of published runs: whether those that ran fit, and those that ran out do not.

Run it: `python benchmarks/score_feasibility.py`. Each row of `published/training_runs.csv` becomes a plan and a
cluster profile, as in `training_sets`, and three verdicts are counted: that of rule TS-MEM-020; whether the run needs
more than the memory of the data sheet when its allocator keeps little beyond its tensors; and the limit of `trainspec
plan`, by the upper end of the band and the reserve that it leaves. A row that does not state what it recomputes fits
where some policy fits. TS-MEM-020 judges no row without a policy, and mixtures of experts by their least memory.
`LEAST_FRAGMENTATION` is the one constant that was chosen with these rows; the rest comes from sources of its own.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent))

from plan_tables import table
from published_documents import cluster_of, plan_of
from training_sets import rows

from trainspec_validate.documents.types import ClusterProfile, TrainingPlan
from trainspec_validate.performance.costs.memory_overheads import LEAST_FRAGMENTATION
from trainspec_validate.performance.costs.rank_memory import RankMemory
from trainspec_validate.performance.forecast.outlook import memory_of_stage
from trainspec_validate.performance.forecast.predict import predict
from trainspec_validate.planner.request import usual_reserve
from trainspec_validate.planner.space import RECOMPUTATIONS, planned_bytes
from trainspec_validate.rules import NotApplicable
from trainspec_validate.rules.mem_forecast import predicted_fit

OUT_OF_MEMORY = "out of memory"
"""Value of `excluded` for a run that is known to have run out of memory (OOM)."""
RAN = "ran with"
"""Prefix of `excluded` for a run whose configuration has no time prediction."""
MOST_REJECTED, LEAST_REJECTED = 0.02, 0.8
"""Aims: share of runs that ran which are rejected, and of runs out of memory."""


@dataclass(frozen=True, slots=True)
class Trial:
    """One published run with what is said of its memory."""

    row: str
    dataset: str
    ran: bool
    rejected: bool | None
    """By TS-MEM-020; None where the rule does not judge."""
    least_share: float
    """Least memory that the run is predicted to need, over that of a rank."""
    planned_share: float

    @property
    def over(self) -> bool:
        """Whether no rank can hold it."""
        return self.least_share > 1

    @property
    def not_planned(self) -> bool:
        """Whether the planner would not propose it."""
        return self.planned_share > 1


def trials() -> Iterator[Trial]:
    """All rows that ran with a known layout, and all that are known to have run out of memory."""
    for row in rows():
        if row["excluded"] in {"", OUT_OF_MEMORY} or row["excluded"].startswith(RAN):
            plan, cluster = plan_of(row), cluster_of(row)
            memory, capacity = _memory(plan, cluster, stated=bool(row["recompute"]))
            yield Trial(
                row["row_id"],
                row["dataset"],
                row["excluded"] != OUT_OF_MEMORY,
                _rejected(plan, cluster) if row["recompute"] else None,
                memory.least_total / capacity,
                planned_bytes(memory, row["accelerator"], usual_reserve(row["accelerator"])) / capacity,
            )


def _memory(plan: TrainingPlan, cluster: ClusterProfile, *, stated: bool) -> tuple[RankMemory, float]:
    found = predict(plan, cluster)
    policies = (found.settings.recompute,) if stated else RECOMPUTATIONS
    each = [memory_of_stage(found.model, found.layout, replace(found.settings, recompute=one))[1] for one in policies]
    return min(each, key=lambda memory: memory.least_total), found.machine.memory_bytes


def _rejected(plan: TrainingPlan, cluster: ClusterProfile) -> bool | None:
    try:
        return any(True for _ in predicted_fit(plan, cluster))
    except NotApplicable:
        return None


def share(found: Sequence[bool]) -> float:
    """Share of a list that is true; 0 of an empty list."""
    return sum(found) / len(found) if found else 0.0


def judged(found: Sequence[Trial]) -> list[bool]:
    """The verdicts of TS-MEM-020, where it gives one."""
    return [one.rejected for one in found if one.rejected is not None]


def _cells(name: str, found: Sequence[Trial]) -> tuple[str, ...]:
    verdicts = (judged(found), [one.over for one in found], [one.not_planned for one in found])
    return name, str(len(found)), *(f"{sum(each)} of {len(each)}, {share(each):.1%}" for each in verdicts)


def main() -> None:
    """Print the verdicts by dataset."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rows", action="store_true", help="name each row that is misjudged without the reserve")
    options, found = parser.parse_args(), list(trials())
    head = ("dataset", "rows", "rejected by TS-MEM-020", "least over the memory", "over the limit of plan")
    for ran in (True, False):
        group = [one for one in found if one.ran is ran]
        aim = f"at most {MOST_REJECTED:.0%}" if ran else f"at least {LEAST_REJECTED:.0%}"
        print(f"\n{'Runs that ran' if ran else 'Runs that ran out of memory'} (aim: {aim} rejected)\n")
        names = dict.fromkeys(one.dataset for one in group)
        lines = [_cells(name, [one for one in group if one.dataset == name]) for name in names]
        print(table(head, [*lines, _cells("all", group)]))
        if options.rows:
            for one in group:
                if one.over is ran:
                    print(f"  {one.row:28} predicted {one.least_share:.2f} of the memory at the least")
    print(f"\n1 constant chosen with these rows: LEAST_FRAGMENTATION {LEAST_FRAGMENTATION}")


if __name__ == "__main__":
    main()
