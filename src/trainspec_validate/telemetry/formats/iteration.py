"""Compares the fields of a line of Megatron-LM with each other, and with the line before."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping

from trainspec_validate.telemetry.formats import fit
from trainspec_validate.telemetry.formats.items import Refusal

_TOLERANCE = 0.02
"""As for rates of every stream; both times are of the same iterations."""
_SECONDS = {"ms": 1e-3, "s": 1.0}
_ELAPSED = re.compile(r"elapsed time per iteration \((ms|s)\)")
_RATE, _BATCH, _SCALE, _SKIPPED = (
    "samples per second",
    "global batch size",
    "loss scale",
    "number of skipped iterations",
)


class Iterations:
    """What the last line said that the next one is held against."""

    def __init__(self) -> None:
        self._step = -1
        self._scale: float | None = None

    def take(self, told: Mapping[str, str], step: int, interval: int) -> Iterator[Refusal]:
        """The contradictions of a line; `interval` is the number of iterations between two lines."""
        yield from _rate(told)
        scale, skipped = _number(told, _SCALE), _number(told, _SKIPPED)
        follows = 0 < step - self._step <= interval
        if follows and scale is not None and self._scale is not None and scale < self._scale and skipped == 0:
            message = f"{_SCALE} falls from {self._scale:,.10g} to {scale:,.10g}, and {_SKIPPED} is 0"
            yield Refusal(message, "the scale falls when a gradient overflows, and that iteration is skipped", "skip")
        self._step, self._scale = step, scale


def _rate(told: Mapping[str, str]) -> Iterator[Refusal]:
    """Samples per second that are not the batch over the time of an iteration."""
    rate, batch = _number(told, _RATE), _number(told, _BATCH)
    seconds = next((_seconds(name, told) for name in told if _ELAPSED.fullmatch(name)), None)
    if rate is None or not batch or not seconds:
        return
    right = batch / seconds
    if abs(rate - right) > _TOLERANCE * right + _rounding(told[_RATE]):
        factor = f", {right / rate:.4g} times as many" if rate > 0 else ""
        message = f"{_RATE} is {told[_RATE]}, and {batch:g} samples in {seconds:.6g} s are {right:.4g}{factor}"
        yield Refusal(message, "divide by seconds", "rate")


def _seconds(name: str, told: Mapping[str, str]) -> float | None:
    match, value = _ELAPSED.fullmatch(name), _number(told, name)
    return None if match is None or value is None else value * _SECONDS[match[1]]


def _number(told: Mapping[str, str], name: str) -> float | None:
    found = fit.number(told.get(name))
    return found if isinstance(found, float) else None


def _rounding(text: str) -> float:
    """Half of the last digit that a number is printed with.

    >>> _rounding("0.005"), _rounding("12")
    (0.0005, 0.5)
    """
    digits = text.partition(".")[2]
    return 0.5 * 10.0 ** -len(digits) if digits.isdigit() or not digits else 0.0
