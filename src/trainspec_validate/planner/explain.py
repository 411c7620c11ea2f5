"""Explains a choice by the cost of the best other value of each dimension."""

from __future__ import annotations

from collections.abc import Hashable

from trainspec_validate.model.units import percent, seconds
from trainspec_validate.planner.search import INDIFFERENCE, Ranking, Scored
from trainspec_validate.planner.space import dimensions

SHARDINGS = ("none", "optimizer", "gradients", "parameters")
_LEAST_DIFFERENCE = 0.0005
NOTHING_ELSE = "no other value was compared, or fits"


def shown(dimension: str, value: Hashable) -> str:
    """A value of a dimension as a plan writes it."""
    if dimension == "sharding" and isinstance(value, int):
        return SHARDINGS[value]
    if dimension == "order" and isinstance(value, tuple):
        return f"{value[-1]} outermost"
    return str(value)


def nearest_other(ranking: Ranking, dimension: str, scored: Scored | None = None) -> Scored | None:
    """The best choice that differs from one, the recommended one unless told, in a dimension; None where none fits."""
    chosen = dimensions((scored or ranking.plans[0]).choice)[dimension]
    others = [other for (name, value), other in ranking.alternatives.items() if name == dimension and value != chosen]
    return min(others, key=lambda other: other.rank_key, default=None)


def reason(ranking: Ranking, dimension: str, scored: Scored | None = None) -> str:
    """What speaks for the value of a dimension that a choice has: the time of the best choice with another value."""
    written = scored or ranking.plans[0]
    other = nearest_other(ranking, dimension, written)
    if other is None:
        return NOTHING_ELSE
    value = shown(dimension, dimensions(other.choice)[dimension])
    change = other.seconds / written.seconds - 1
    if abs(change) <= _LEAST_DIFFERENCE:
        return f"{value} takes as long"
    more = f"{percent(round(abs(change), 4))} {'more' if change > 0 else 'less'}"
    doubt = ", which predictions do not distinguish" if -INDIFFERENCE <= change < 0 else ""
    return f"{value} at best takes {seconds(other.seconds)}, {more}{doubt}"


def reasons(ranking: Ranking, scored: Scored | None = None) -> dict[str, str]:
    """The reason for every dimension of a choice, the recommended one unless told.

    Raises:
        IndexError: the ranking is empty.
    """
    written = scored or ranking.plans[0]
    return {dimension: reason(ranking, dimension, written) for dimension in dimensions(written.choice)}
