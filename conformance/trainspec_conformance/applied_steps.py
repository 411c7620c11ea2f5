"""Computes from two checkpoints that are one optimizer step apart what Adam did: its rates, and its gradient.

Adam keeps a mean of gradients and a mean of their squares. Of two such pairs, both coefficients and the gradient of the
step follow, since one gradient has to explain both means; and the change of a parameter divided by their quotient is
the rate. Moments that no gradient explains are not judged: they are of another optimizer, or rounded.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from trainspec_conformance.records import Applied
from trainspec_conformance.stored_values import NoValuesError, tensors_of

Vector = npt.NDArray[np.float64]
MOMENTS = re.compile(r"(?<![A-Za-z0-9])(exp_avg_sq|nu|second_moment|second)(?![A-Za-z0-9])")
FIRST = {"exp_avg_sq": "exp_avg", "nu": "mu", "second_moment": "first_moment", "second": "first"}
"""Words for a mean of squares, each with the one for the mean of gradients next to it."""
_WORDS = re.compile(rf"(?<![A-Za-z0-9])({'|'.join([*FIRST, *FIRST.values()])})(?![A-Za-z0-9])")
MOST_RESIDUAL = 0.01
"""Share of a change that the rule of Adam may leave unexplained."""
MOST_ELEMENTS = 100_000
"""Of all moments, by which the coefficients are found."""
MOST_NAMED, MOST_RATES = 20, 1000
_COEFFICIENTS = np.unique(np.concatenate([np.arange(0.0, 0.95, 0.05), np.arange(0.95, 0.999, 0.002)]))
_REFINEMENTS = 40
_GOLDEN = (5**0.5 - 1) / 2


@dataclass(frozen=True)
class _Pair:
    """Both moments of one parameter, before and after the step."""

    names: tuple[str, str]
    first: tuple[Vector, Vector]
    second: tuple[Vector, Vector]

    @property
    def size(self) -> int:
        """Elements of each moment."""
        return self.first[0].size

    def gradient(self, beta: float) -> Vector:
        before, after = self.first
        return (after - beta * before) / (1 - beta)


def applied_step(before: Path, after: Path, step: int) -> Applied:
    """Rates and gradient of the optimizer step between two checkpoints; `step` is its number, from 1 on.

    Raises:
        NoValuesError: there are no moments that one gradient explains.
        UnreadableError: a file cannot be read.
    """
    old, new = tensors_of(before), tensors_of(after)
    pairs = list(_pairs(old, new))
    if not pairs:
        raise NoValuesError(f"{after.name} holds no two moments of one parameter under names of Adam's")
    betas = _betas(pairs)
    if betas is None:
        raise NoValuesError(f"no gradient explains both moments of {after.name}: they are not Adam's, or rounded")
    free = (old.keys() & new.keys()) - {name for pair in pairs for name in pair.names}
    return _step_of(pairs, _Tensors(old, new, free), betas, step, after.name)


def _step_of(pairs: Sequence[_Pair], tensors: _Tensors, betas: tuple[float, float], step: int, name: str) -> Applied:
    rates, resting, norm, dot, values = [], [], 0.0, 0.0, 0.0
    for pair in sorted(pairs, key=lambda one: -one.size):
        gradient = pair.gradient(betas[0])
        norm += float(gradient @ gradient)
        found, rate = tensors.taken_by(pair, betas, step)
        if rate is not None:
            rates.append(float(f"{rate:.6g}"))
        elif found and np.any(gradient) and not tensors.is_changed(found):
            resting.append(found)
        if found:
            dot += float(gradient @ tensors.old[found])
            values += float(tensors.old[found] @ tensors.old[found])
    return Applied(
        checkpoint=name,
        step=step,
        rates=tuple(sorted(rates)[:MOST_RATES]),
        correction=float(np.sqrt(1 - betas[1] ** step) / (1 - betas[0] ** step)),
        resting=tuple(resting[:MOST_NAMED]) if rates else (),
        idle=tuple(tensors.idle()[:MOST_NAMED]),
        others=tuple([one for one in sorted(tensors.free) if tensors.is_changed(one)][:MOST_NAMED]),
        squared_norm=norm,
        dot=dot,
        squared_values=values,
    )


@dataclass
class _Tensors:
    """Tensors of both checkpoints; those that no parameter of a pair of moments was found to be are free."""

    old: Mapping[str, Vector]
    new: Mapping[str, Vector]
    free: set[str]

    def is_changed(self, name: str) -> bool:
        """Whether the step changed a tensor; counts of steps, of one number, are none."""
        old, new = self.old[name], self.new[name]
        return old.size > 1 and (old.size != new.size or bool(np.any(old != new)))

    def taken_by(self, pair: _Pair, betas: tuple[float, float], step: int) -> tuple[str, float | None]:
        """The parameter of a pair of moments with its rate: by how it moved, or by its name without a rate."""
        alike = [one for one in sorted(self.free) if self.old[one].size == self.new[one].size == pair.size]
        fits = {one: _rate(pair, self.old[one], self.new[one], betas, step) for one in alike}
        best = min(alike, key=lambda one: fits[one][1], default="")
        if best and fits[best][1] <= MOST_RESIDUAL:
            self.free.discard(best)
            return best, fits[best][0]
        return self._named_as(pair.names[1], alike), None

    def _named_as(self, moment: str, alike: Sequence[str]) -> str:
        """The tensor whose name is nearest to that of a moment; empty where none is near."""
        named = min(alike, key=lambda one: _num_others(moment, one), default="")
        if not named or _num_others(moment, named) > 1:  # parameters can have a folder of their own
            return ""
        self.free.discard(named)
        return named

    def idle(self) -> list[str]:
        """Tensors that the step left as they were, apart from moments."""
        return [one for one in sorted(self.free) if self._is_idle(one)]

    def _is_idle(self, name: str) -> bool:
        return self.old[name].size > 1 and not self.is_changed(name) and not _WORDS.search(name)


def _pairs(old: Mapping[str, Vector], new: Mapping[str, Vector]) -> Iterator[_Pair]:
    """Moments that both checkpoints hold, with a gradient."""
    for name in sorted(old):
        match = MOMENTS.search(name)
        other = name[: match.start()] + FIRST[match[1]] + name[match.end() :] if match else ""
        found = [one[key] for key in (other, name) for one in (old, new) if key in one]
        if len(found) == 4 and len({one.size for one in found}) == 1 and np.any(found[3]):
            yield _Pair((other, name), (found[0], found[1]), (found[2], found[3]))


def _num_others(moment: str, name: str) -> int:
    """Parts of the name of a tensor that the name of a moment lacks."""
    parts = re.split(r"[^A-Za-z0-9]+", moment)
    return sum(part not in parts for part in re.split(r"[^A-Za-z0-9]+", name))


# --- coefficients -----------------------------------------------------------------------------------------------


def _betas(pairs: Sequence[_Pair]) -> tuple[float, float] | None:
    """Both coefficients, where one gradient explains both moments."""
    every = max(sum(pair.first[0].size for pair in pairs) // MOST_ELEMENTS, 1)
    kinds = ("first", 0), ("first", 1), ("second", 0), ("second", 1)
    parts = [np.concatenate([getattr(pair, kind)[at][::every] for pair in pairs]) for kind, at in kinds]
    start = min(_COEFFICIENTS, key=lambda one: _second(one, *parts)[1])
    low, high = max(start - 0.05, 0.0), min(start + 0.05, 0.9999)
    for _ in range(_REFINEMENTS):
        one, other = high - _GOLDEN * (high - low), low + _GOLDEN * (high - low)
        low, high = (low, other) if _second(one, *parts)[1] < _second(other, *parts)[1] else (one, high)
    beta = (low + high) / 2
    other, residual = _second(beta, *parts)
    return (beta, other) if residual <= MOST_RESIDUAL and 0 <= other < 1 else None


def _second(beta: float, m: Vector, m_after: Vector, v: Vector, v_after: Vector) -> tuple[float, float]:
    """The second coefficient that fits best to a first one, and the share of the squares that it leaves unexplained."""
    squares = ((m_after - beta * m) / (1 - beta)) ** 2
    old, new = v - squares, v_after - squares
    whole = float(old @ old)
    other = float(old @ new) / whole if whole else 0.0
    taken = (1 - other) * squares
    rest, size = new - other * old, float(taken @ taken)
    return other, float(np.sqrt(rest @ rest / size)) if size else float("inf")


# --- rates ------------------------------------------------------------------------------------------------------


def _rate(pair: _Pair, old: Vector, new: Vector, betas: tuple[float, float], step: int) -> tuple[float, float]:
    """The rate by which a tensor moved along the quotient of the moments, and the share that this leaves unexplained.

    Decay of the values may come on top. Elements with small squares are left out, as a constant is added to their root.
    """
    change, first, second = new - old, pair.first[1], pair.second[1]
    kept = second >= np.quantile(second, 0.5)
    kept &= second > 0
    if not np.any(change[kept]):
        return 0.0, float("inf")
    quotient = (first[kept] / (1 - betas[0] ** step)) / np.sqrt(second[kept] / (1 - betas[1] ** step))
    columns: Any = np.stack([quotient, old[kept]], axis=1)
    found, *_ = np.linalg.lstsq(columns, change[kept], rcond=None)
    rest = change[kept] - columns @ found
    return -float(found[0]), float(np.sqrt(rest @ rest / (change[kept] @ change[kept])))
