"""The only place that says why a choice is the best: what the nearest other value of each dimension would cost."""

from __future__ import annotations

from collections.abc import Hashable

from trainspec_validate.planner.search import Ranking, Scored
from trainspec_validate.planner.space import dimensions
from trainspec_validate.units import percent, seconds

SHARDINGS = ("none", "optimizer", "gradients", "parameters")
_LEAST_DIFFERENCE = 0.0005


def shown(dimension: str, value: Hashable) -> str:
    """A value of a dimension as a plan writes it."""
    if dimension == "sharding" and isinstance(value, int):
        return SHARDINGS[value]
    if dimension == "order" and isinstance(value, tuple):
        return f"{value[-1]} outermost"
    return str(value)


def nearest_other(ranking: Ranking, dimension: str) -> Scored | None:
    """The best choice that differs from the best of all in one dimension at least; None where none fits."""
    chosen = dimensions(ranking.best[0].choice)[dimension]
    others = [scored for (name, value), scored in ranking.alternatives.items() if name == dimension and value != chosen]
    return min(others, key=lambda scored: scored.rank_key, default=None)


def reason(ranking: Ranking, dimension: str) -> str:
    """Why the best choice has its value of a dimension: the time of the best choice with another value."""
    other = nearest_other(ranking, dimension)
    if other is None:
        return "nothing else fits"
    value = shown(dimension, dimensions(other.choice)[dimension])
    best, time = ranking.best[0].outlook.step.seconds, other.outlook.step.seconds
    if time <= best * (1 + _LEAST_DIFFERENCE):
        return f"{value} takes as long"
    return f"{value} at best takes {seconds(time)}, {percent(round(time / best - 1, 4))} more"


def reasons(ranking: Ranking) -> dict[str, str]:
    """The reason for every dimension of the best choice.

    Raises:
        IndexError: the ranking is empty.
    """
    return {dimension: reason(ranking, dimension) for dimension in dimensions(ranking.best[0].choice)}
