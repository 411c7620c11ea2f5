"""Compares the planner's search with an enumeration of everything that the model can predict.

Everything: all divisors as degrees (not only powers of two), tensor groups across domains, every order of the axes,
every sharding stage and degree (weights under a pipeline too), every recomputation, micro-batch and number of chunks,
sequence parallelism on and off, experts over any ranks of a stage. Left out is what cannot run (counts that do not
divide, more chunks than layers, chunks without a multiple of stages as micro-batches), and one expert on more ranks
than a tensor group has, whose messages the model does not count. Two optima are distinguished:

  within the limits   by the limits that the planner keeps (widths of matrices, idle time, weights under a pipeline,
                      fewest tokens of a context rank, imbalance, micro-batch, chunks); what the search passes over
                      within them would be a flaw
  of everything       without these limits; what it gains is their price by the model, which counts neither narrow
                      matrices nor uneven stages, so that a part of it exists on paper alone
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial

from default_plans import job
from every_choice import Optimum, enumerate_all
from plan_tables import LEGEND, short, table, timed

from trainspec_validate.planner.search import Ranking, search
from trainspec_validate.planner.space import Choice, Goal

SHORT_CASES = (("aws-p4de-a100", "llama3-8b", 8, 8), ("coreweave-gb200", "qwen3-30b-a3b", 4, 4))
CASES = (
    *SHORT_CASES,
    ("aws-p4de-a100", "llama3-8b", 8, 16),
    ("google-tpu-v6e-256", "llama3-8b", 16, 32),
    ("aws-p4de-a100", "llama2-13b", 16, 16),
    ("clemson-h100", "llama3-8b", 24, 48),
    ("coreweave-gb200", "llama3-8b", 36, 72),
    ("coreweave-gb200", "qwen3-30b-a3b", 8, 16),
    ("coreweave-gb200", "qwen3-30b-a3b", 16, 16),
    ("dgx-superpod-h100", "mixtral-8x7b", 32, 32),
    ("clemson-h100", "llama3-8b", 48, 96),
    ("dgx-superpod-h100", "llama3-70b", 64, 64),
)
SEARCHES = tuple((model, size) for model in ("llama3-405b", "deepseek-v3") for size in (1024, 16384, 131072))
SHORT_SEARCHES = (("llama3-405b", 16384),)
SEARCHED_CLUSTER = "mrc-131072"


@dataclass(frozen=True, slots=True)
class Distance:
    """The planner's search compared with the enumeration."""

    label: str
    ranking: Ranking
    search_seconds: float
    within: Optimum
    everything: Optimum
    num_evaluated: int
    enumeration_seconds: float

    def over(self, optimum: Optimum) -> float:
        """How much longer the planner's step is, as a share."""
        return self.ranking.best[0].outlook.step.seconds / optimum.seconds - 1


def measured(case: tuple[str, str, int, int]) -> Distance:
    """Search and enumerate one job.

    Raises:
        ValueError: the cluster is too small for the job, or nothing fits.
    """
    name, model, num_ranks, sequences = case
    goal = _goal(name, model, num_ranks, sequences)
    ranking, search_seconds = timed(partial(search, goal, 1))
    found, seconds = timed(partial(enumerate_all, goal))
    if not ranking.best or found.within is None or found.everything is None:
        raise ValueError(f"nothing fits {case}")
    label = f"{name}, {model}, {num_ranks}"
    return Distance(label, ranking, search_seconds, found.within, found.everything, found.num_evaluated, seconds)


def _goal(name: str, model: str, num_ranks: int, sequences: int | None) -> Goal:
    found = job(name, model, num_ranks, sequences)
    if found is None:
        raise ValueError(f"{name} has fewer than {num_ranks} ranks")
    return found.goal


def print_exhaustive(*, small: bool) -> None:
    """Print distances from the optimum, and the time of searches."""
    distances = [measured(case) for case in (SHORT_CASES if small else CASES)]
    print("\n== Planner's search and an exhaustive enumeration ==\n")
    print((__doc__ or "").split("\n\n", 1)[1])
    print("Time is that of the processor. over: how much longer the planner's step is than the optimum.\n")
    head = ("job, ranks", "planner s", "over within", "over everything", "predicted", "search s")
    print(table((*head, "of everything", "enumeration s", "ratio"), [*map(_row, distances)]))
    plans = [
        (one.label, short(one.ranking.best[0].choice), _chosen(one.within), _chosen(one.everything))
        for one in distances
    ]
    print(f"\n{LEGEND}\nIn optima the whole order is given, from adjacent ranks outwards, and -s where sequence")
    print("parallelism is off.\n")
    print(table(("job, ranks", "planner", "within the limits", "of everything"), plans))
    worst = max(one.over(one.within) for one in distances)
    print(f"\nworst distance within the limits {worst:.3%} (aim: 0), of everything ", end="")
    print(f"{max(one.over(one.everything) for one in distances):.2%}")
    _print_searches(small=small)


def _print_searches(*, small: bool) -> None:
    print(f"\nSearches on {SEARCHED_CLUSTER}, batch as the planner chooses it\n")
    lines = []
    for model, num_ranks in SHORT_SEARCHES if small else SEARCHES:
        goal = _goal(SEARCHED_CLUSTER, model, num_ranks, None)
        ranking, seconds = timed(partial(search, goal, 1))
        best = short(ranking.best[0].choice) if ranking.best else "nothing fits"
        counts = (f"{ranking.num_layouts:,}", f"{ranking.num_compared:,}")
        lines.append((f"{model}, {num_ranks:,} ranks", *counts, f"{seconds:.2f}", best))
    print(table(("search", "layouts", "predicted", "seconds", "plan"), lines))


def _row(one: Distance) -> tuple[str, ...]:
    return (
        one.label,
        f"{one.ranking.best[0].outlook.step.seconds:.4g}",
        f"{one.over(one.within):.3%}",
        f"{one.over(one.everything):.2%}",
        f"{one.ranking.num_compared:,}",
        f"{one.search_seconds:.2f}",
        f"{one.num_evaluated:,}",
        f"{one.enumeration_seconds:.2f}",
        f"{one.enumeration_seconds / one.search_seconds:,.0f}",
    )


def _chosen(optimum: Optimum) -> str:
    choice: Choice = optimum.choice
    degrees = {"tensor": choice.layout.tensor, "context": choice.layout.context, "expert": choice.layout.expert}
    degrees |= {"data": choice.layout.data, "pipeline": choice.layout.pipeline}
    order = "".join(axis[0] for axis in choice.order if degrees[axis] > 1)
    off = " -s" if choice.layout.tensor > 1 and not choice.layout.sequence_parallel else ""
    return f"{short(choice)} {order}{off}"
