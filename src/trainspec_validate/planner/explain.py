"""Explains a choice: the cost of the best other value of each dimension, and the algorithm of each collective."""

from __future__ import annotations

from collections.abc import Hashable

from trainspec_validate.documents.commented import figure
from trainspec_validate.model.units import bytes_, bytes_per_second, number, percent, seconds
from trainspec_validate.performance.forecast.outlook import PlannedCollective, planned_collectives
from trainspec_validate.planner.request import Request
from trainspec_validate.planner.search import CONTEXT_INDIFFERENCE, INDIFFERENCE, Ranking, Scored, settings_of
from trainspec_validate.planner.space import dimensions

Lines = list[tuple[str, str]]
UNCALIBRATED = "uncalibrated"


def collectives_of(request: Request, scored: Scored) -> tuple[PlannedCollective, ...]:
    """Every kind of message of a rank with its estimate."""
    goal = request.goal
    settings = settings_of(scored.choice, goal.framework)
    return planned_collectives(goal.model, goal.machine, scored.choice.layout, settings)


def choices_of(request: Request, scored: Scored) -> Lines:
    """One entry for each operation of each axis, for messages of the size that the plan sends.

    Sizes below half and above twice that size are left to the library. A size that no measurement covers is left to it
    altogether.
    """
    lines: Lines = []
    layout = scored.choice.layout
    degrees = {"tensor": layout.tensor, "context": layout.context, "expert": layout.expert}
    degrees |= {"data": layout.data, "pipeline": layout.pipeline}
    written: set[tuple[str, str]] = set()
    for item in collectives_of(request, scored):
        sent, estimate = item.transfer, item.estimate
        key = (sent.axis, sent.operation)
        if degrees.get(sent.axis, 1) < 2 or key in written or estimate.calibration == UNCALIBRATED:
            continue
        written.add(key)
        size = sent.message_bytes
        rate = bytes_per_second(estimate.bus_bandwidth_bytes_per_second)
        words = f"derived: {bytes_(size)} in {seconds(estimate.seconds)}, {rate} of bus bandwidth"
        lines += [
            (f"    - operation: {sent.operation}", ""),
            (f"      axis: {sent.axis}", ""),
            (f"      algorithm: {estimate.algorithm}", words),
            (f"      min_bytes: {figure(float(int(size / 2)))}", "half of the planned size"),
            (f"      max_bytes: {figure(float(int(size * 2)))}", "twice the planned size"),
        ]
    return lines


SHARDINGS = ("none", "optimizer", "gradients", "parameters")
_LEAST_DIFFERENCE = 0.0005
_NO_HOST = "and the profile states no host.memory_bytes to offload to"
NOTHING_ELSE = "no other value was compared, or fits"


def shown(dimension: str, value: Hashable) -> str:
    """A value of a dimension as a plan writes it."""
    if dimension == "sharding" and isinstance(value, int):
        return SHARDINGS[value]
    if dimension == "order" and isinstance(value, tuple):
        return f"{value[-1]} outermost"
    return str(value)


def nearest_other(ranking: Ranking, dimension: str, scored: Scored | None = None) -> Scored | None:
    """The best choice that differs from one, by default the recommended one, in a dimension; None where none fits."""
    chosen = dimensions((scored or ranking.plans[0]).choice)[dimension]
    others = [other for (name, value), other in ranking.alternatives.items() if name == dimension and value != chosen]
    return min(others, key=lambda other: other.rank_key, default=None)


def reason(ranking: Ranking, dimension: str, scored: Scored | None = None) -> str:
    """Reason for the value of a dimension in a choice: the time of the best choice with another value."""
    written = scored or ranking.plans[0]
    other = nearest_other(ranking, dimension, written)
    if other is None:
        return NOTHING_ELSE
    value = shown(dimension, dimensions(other.choice)[dimension])
    if written.untimed:
        return f"{value} fits too, and neither step is predicted"
    change = other.seconds / written.seconds - 1
    if abs(change) <= _LEAST_DIFFERENCE:
        return f"{value} takes as long"
    more = f"{percent(round(abs(change), 4))} {'more' if change > 0 else 'less'}"
    same_context = other.choice.layout.context == written.choice.layout.context
    error = INDIFFERENCE if same_context else CONTEXT_INDIFFERENCE
    doubt = ", which predictions do not distinguish" if -error <= change < 0 else ""
    return f"{value} at best takes {seconds(other.seconds)}, {more}{doubt}"


def reasons(ranking: Ranking, scored: Scored | None = None) -> dict[str, str]:
    """The reason for every dimension of a choice, by default of the recommended one.

    Raises:
        IndexError: the ranking is empty.
    """
    written = scored or ranking.plans[0]
    return {dimension: reason(ranking, dimension, written) for dimension in dimensions(written.choice)}


def nothing_fits(request: Request, ranking: Ranking) -> str:
    """Change to make when no layout fits."""
    batch = f"{number(request.goal.global_sequences)} sequences over {number(request.goal.num_ranks)} ranks"
    fixed = request.goal.constraints.words
    if ranking.num_layouts == 0 and fixed:
        return f"no layout of {batch} keeps to {fixed}; leave one of them out, or choose other --global-sequences"
    if ranking.num_layouts == 0:
        return (
            f"no layout divides {batch}, the {request.goal.model.shape.num_layers} layers and the heads, and keeps "
            "pipelines busy; choose other --num-ranks or more --global-sequences"
        )
    memory = bytes_(request.goal.memory_budget_bytes)
    host = request.goal.host_bytes_per_rank
    offload = f"nor with offload to {bytes_(host)} of its host" if host else _NO_HOST
    ranks = "use more --num-ranks, or a shorter --sequence-length"
    if request.goal.num_ranks >= request.nodes.num_ranks:
        every = number(request.nodes.num_ranks)
        ranks = f"all {every} ranks of the node group are in use: use a shorter --sequence-length"
    change = f"leave out one of {fixed}, or {ranks}" if fixed else ranks
    return f"none of {number(ranking.num_layouts)} layouts fits into {memory} of a rank, {offload}; {change}"
