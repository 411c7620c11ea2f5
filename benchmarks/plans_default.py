"""Compares the planner's plan with a customary plan that ignores the machine.

The default is a customary recipe: tensor ranks fill a node, the fewest pipeline stages that fit, data ranks for the
rest, experts over the ranks of a node; 1F1B without chunks, micro-batches of one sequence, full recomputation; nothing
sharded, or the optimizer alone where that saves stages; hosts in alphabetical order, at arbitrary places; one
flat ring over all data ranks; a blocking save every 1,000 steps, but at least every three hours. The plan is reached
in steps, each with all the ones before it:

  rank order   hosts in the order of the topology
  algorithm    the collective that a well-tuned library picks, not always a ring
  memory       sequence parallelism, least recomputation and sharding that fit, the degrees as they are
  degrees      the planner's degrees, chunks and micro-batch
  interval     Daly's interval with asynchronous saves; restores from the nearest copy, as the planner writes them

Both wait 60 s for a spare node. Failure rates are those of the profile, else 6.5 per 1000 node-days (arXiv:2410.21680).
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import partial
from itertools import pairwise, product
from statistics import median

from default_plans import CLUSTERS, default_choice, default_seconds, job, models_of, slow_bytes
from plan_tables import LEGEND, short, table

from trainspec_validate.performance.costs.reliability import effective_training_time_ratio
from trainspec_validate.performance.forecast.facts import Unpredictable
from trainspec_validate.performance.forecast.outlook import Settings, outlook
from trainspec_validate.performance.topology.networks import NotJoined
from trainspec_validate.planner.request import Impossible, Request
from trainspec_validate.planner.safety import Names, policy_figures
from trainspec_validate.planner.search import Scored, fitting, search, settings_of
from trainspec_validate.planner.space import Choice, Goal

SIZES = (8, 64, 512, 4096, 16384, 131072)
SHORT = (("aws-p4de-a100", 8), ("nvidia-eos", 64), ("meta-llama3-24k", 16384))
CLAIMS = ((8, 64, "10 to 15 % of time"), (64, 1 << 30, "30 % of time and 25 % of bytes"))
"""Published gains of topology-aware plans, by ranks."""
CLAIMED_BYTES = 0.25
CHANGES = ("rank order", "algorithm", "memory", "degrees")
_SAVE_STEPS, _SAVE_SECONDS = 1000, 3 * 3600.0
_SPARE_SECONDS = 60.0
_NAMES = Names("plan", "policy", "{name: cluster}", "{name: plan}")


@dataclass(frozen=True, slots=True)
class Chain:
    """One job, planned by default and by the planner, with the steps between."""

    request: Request
    default: Choice
    best: Scored
    seconds: tuple[float, ...]
    """Of a step: default, then with rank order, algorithm, memory and degrees."""
    slow_bytes: tuple[float, float]
    """Bytes that a rank sends over the slowest links in a step, by default and by plan."""
    slow_links: str
    lost: tuple[float, float, float]
    """Share of lost time: by default, with the plan and the saves of the default, by plan."""
    save_seconds: float
    """Interval of the default."""

    @property
    def saved(self) -> float:
        """Reduction of the step."""
        return 1 - self.seconds[-1] / self.seconds[0]

    @property
    def apart(self) -> bool:
        """Whether the bands of both predictions do not overlap."""
        band = self.best.outlook.band
        return band is not None and self.seconds[-1] * band.high < self.seconds[0] * band.low


def chain(request: Request) -> Chain | None:
    """Plan a job by default and by the planner; None where either finds nothing that fits.

    Raises:
        NotJoined: the nodes are not joined.
    """
    goal = request.goal
    default, ranking = default_choice(goal, request.nodes.ranks_per_node), search(goal, 1)
    if default is None or not ranking.plans:
        return None
    best, order = ranking.plans[0], default.order
    plain = Settings(recompute=default.recompute, order=order, rank_order="alphabetical")
    ordered = replace(plain, rank_order="topology")
    flat = partial(default_seconds, goal, default.layout)
    times = [flat(plain), flat(ordered)]
    times.append(outlook(goal.model, goal.machine, default.layout, ordered).step.seconds)
    times.append(min([_seconds(goal, choice) for choice in _same_degrees(goal, default)], default=times[-1]))
    moved, links = slow_bytes(goal, default.layout, plain, flat=True)
    kept, _ = slow_bytes(goal, best.choice.layout, settings_of(best.choice), flat=False)
    lost, every = _lost(request, best, times[0])
    seconds = (*times, best.outlook.step.seconds)
    return Chain(request, default, best, seconds, (moved, kept), links, lost, every)


def _seconds(goal: Goal, choice: Choice) -> float:
    return outlook(goal.model, goal.machine, choice.layout, settings_of(choice)).step.seconds


def _same_degrees(goal: Goal, default: Choice) -> Iterator[Choice]:
    layout = replace(default.layout, sequence_parallel=default.layout.tensor > 1, sharding_stage=0)
    return (choice for choice, _, _ in fitting(goal, layout) if choice.order == default.order)


def _lost(request: Request, best: Scored, default_step: float) -> tuple[tuple[float, float, float], float]:
    """Lost shares by default, with the default's saves, and by plan; and the interval of the default in seconds."""
    figures = replace(policy_figures(request, best, _NAMES), spare_seconds=_SPARE_SECONDS)
    # The default writes to the store before it goes on, and restores from it.
    blocking = figures.blocking_seconds + figures.persist_seconds

    def blocked(step: float) -> tuple[float, float]:
        interval = min(_SAVE_STEPS * step, _SAVE_SECONDS)
        slower = replace(figures, step_seconds=step, restore_seconds=figures.persist_seconds)
        recovery = slower.recovery_seconds(figures.hang_seconds, figures.node_seconds)
        return 1 - effective_training_time_ratio(interval, blocking, figures.mtbf_seconds, recovery), interval

    by_default, interval = blocked(default_step)
    return (by_default, blocked(best.outlook.step.seconds)[0], 1 - figures.effective_share), interval


def attempts(name: str, num_ranks: int) -> Iterator[Chain | str]:
    """The comparison for the largest model that fits, or why there is none for it and the next smaller one is tried."""
    for model in models_of(name, num_ranks):
        label = f"{name}, {model}, {num_ranks:,} ranks"
        try:
            request = job(name, model, num_ranks)
            found = chain(request) if request else None
        except (Impossible, NotJoined, Unpredictable) as error:
            yield f"{label}: {error}"
            return
        if request is None:
            return
        if found is not None:
            yield found
            return
        yield f"{label}: no plan fits by default or at all, a smaller model is tried"


def print_default(*, small: bool) -> None:
    """Print default and plan for every example cluster and every size that it has room for."""
    wanted = SHORT if small else product(CLUSTERS, SIZES)
    every = [found for name, size in wanted for found in attempts(name, size)]
    print("\n== Planner's plan and a machine-independent default ==\n")
    print((__doc__ or "").split("\n\n", 1)[1])
    _print_chains([found for found in every if isinstance(found, Chain)])
    failures = [found for found in every if isinstance(found, str)]
    if failures:
        print("\nWithout a comparison:", *failures, sep="\n  ")


def _print_chains(chains: list[Chain]) -> None:
    print("Seconds of a step, and its change by each step of the chain. Bands hold eight of ten published runs; where")
    print("those of default and plan overlap, the gain is within the error of the model.\n")
    head = ("job", "model", "tokens", "default s", *CHANGES, "plan s", "less", "bands")
    print(table(head, [*map(_times, chains)]))
    print(
        "\nBytes that a rank sends over the slowest links in a step, and time lost to saves, failures and recovery.\n"
    )
    columns = (
        "job",
        "slowest links",
        "default",
        "plan",
        "less",
        "saves every",
        "lost",
        "lost with plan",
        "and interval",
    )
    print(table(columns, [*map(_losses, chains)]))
    plans = [(_label(one), short(one.default), short(one.best.choice)) for one in chains]
    print(f"\n{LEGEND}\n\n" + table(("job", "default", "plan"), plans))
    _print_claims(chains)


def _label(one: Chain) -> str:
    return f"{one.request.cluster.metadata.name} {one.request.goal.num_ranks:,}"


def _times(one: Chain) -> tuple[str, ...]:
    goal, times = one.request.goal, one.seconds
    return (
        _label(one),
        one.request.model.name,
        f"{goal.global_sequences * goal.sequence_length / 1e6:.1f}M",
        f"{times[0]:.3g}",
        *(f"{after / before - 1:+.1%}" for before, after in pairwise(times)),
        f"{times[-1]:.3g}",
        f"{one.saved:.0%}",
        "apart" if one.apart else "overlap",
    )


def _losses(one: Chain) -> tuple[str, ...]:
    moved, kept = one.slow_bytes
    less = f"{1 - kept / moved:.0%}" if moved else "-"
    sizes = (f"{moved / 1e9:.3g} GB", f"{kept / 1e9:.3g} GB", less)
    return (_label(one), one.slow_links, *sizes, f"{one.save_seconds:,.0f} s", *(f"{lost:.1%}" for lost in one.lost))


def _print_claims(chains: list[Chain]) -> None:
    for least, most, claim in CLAIMS:
        group = [one for one in chains if least <= one.request.goal.num_ranks < most]
        if group:
            limit = f"{least} to {most - 1} ranks" if most < 1 << 20 else f"{least} ranks and more"
            print(f"\n{limit}, {len(group)} jobs; the field claims {claim}. Median (least to most) by the model:")
            _print_group(group)


def _print_group(group: list[Chain]) -> None:
    apart = sum(one.apart for one in group)
    print(f"  step, everything          {_spread([one.saved for one in group])}, apart in {apart} of {len(group)}")
    for index, name in enumerate(CHANGES):
        changes = [1 - one.seconds[index + 1] / one.seconds[index] for one in group]
        print(f"  step, {name:20}{_spread(changes)}")
    placed = [(1 - one.seconds[2] / one.seconds[0], one.best.outlook.band) for one in group]
    larger = sum(band is not None and share > 1 - band.low / band.high for share, band in placed)
    print(f"  rank order and algorithm save more than the error of the model in {larger} of {len(group)}")
    moved = [1 - one.slow_bytes[1] / one.slow_bytes[0] for one in group if one.slow_bytes[0]]
    if moved:
        fewer = sum(share >= CLAIMED_BYTES for share in moved)
        print(f"  bytes over slowest links  {_spread(moved)}, {CLAIMED_BYTES:.0%} or more in {fewer} of {len(moved)}")
    for index, name in ((0, "by default"), (1, "with the plan"), (2, "and interval")):
        print(f"  lost time, {name:15}{_spread([one.lost[index] for one in group])}")


def _spread(values: list[float]) -> str:
    return f"{median(values):6.1%} ({min(values):.1%} to {max(values):.1%})"
