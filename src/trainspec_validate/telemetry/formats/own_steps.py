"""Finds the series in which a program logs its own step next to its scalars."""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from trainspec_validate.telemetry.formats import fit

_FORM = re.compile(r"(?:train(?:er|ing)?[/_.])?(?P<whole>global[_ ]?)?(?:step|iteration|iter)s?")
_MOST_CHARACTERS = 40
Row = tuple[int, int | None, int | None, Mapping[str, Any]]
"""Place, time, number on the axis, values by name."""


@dataclass(frozen=True, slots=True)
class OwnSteps:
    """A series of steps, and whether it is what the logger has as its axis."""

    name: str
    is_axis: bool
    """Whether it agrees with the axis wherever a row has both."""


def names_of_steps(names: Collection[str]) -> list[str]:
    """The names of a program's own step, those of the whole run first.

    >>> names_of_steps(["loss", "train/step", "time_per_step", "global_step"])
    ['global_step', 'train/step']
    """
    found = [(name, match) for name in names if len(name) <= _MOST_CHARACTERS and (match := _FORM.fullmatch(name))]
    return [name for name, _ in sorted(found, key=lambda each: (each[1]["whole"] is None, -len(each[0]), each[0]))]


def own_steps(rows: Sequence[Row]) -> OwnSteps | None:
    """The first of these series that only rises, or falls to a step after its first one as at a resume.

    A series that comes to its first step again counts steps of an epoch, or of several runs.
    """
    for name in names_of_steps({name for row in rows for name in row[3]}):
        told = [(row[2], _step(row[3][name])) for row in rows if name in row[3]]
        numbers = [number for _, number in told if number is not None]
        if len(numbers) == len(told) and not starts_again(numbers):
            return OwnSteps(name, all(axis == number for axis, number in told))
    return None


def starts_again(numbers: Sequence[int]) -> bool:
    """Whether a series comes to its first step again.

    >>> starts_again([10, 10, 20, 15, 20]), starts_again([1, 2, 1, 2])
    (False, True)
    """
    has_left = False
    for number in numbers:
        if has_left and number <= numbers[0]:
            return True
        has_left = has_left or number > numbers[0]
    return False


def _step(value: Any) -> int | None:
    found = fit.number(value)
    return fit.step(found) if isinstance(found, float) else None
