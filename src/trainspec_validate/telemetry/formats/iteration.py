"""Compares the fields of a line of Megatron-LM with each other, and with the line before."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping

from trainspec_validate.system.digits import is_digits
from trainspec_validate.telemetry.formats import fit
from trainspec_validate.telemetry.formats.items import Refusal

_TOLERANCE = 0.02
"""As for rates of every stream; both times are of the same iterations."""
_SECONDS = {"ms": 1e-3, "s": 1.0}
_MOST_SKIPPED = 100
"""Iterations in a row; a scale that starts at 2**32 needs some 40 until gradients are finite."""
_ELAPSED = re.compile(r"elapsed time per iteration \((ms|s)\)")
_RATE, _BATCH, _SCALE, _SKIPPED, _NAN = (
    "samples per second",
    "global batch size",
    "loss scale",
    "number of skipped iterations",
    "number of nan iterations",
)


class Iterations:
    """Values of the last line that the next one is held against."""

    def __init__(self) -> None:
        self._step = -1
        self._scale: float | None = None
        self._num_skipped = 0

    def take(self, told: Mapping[str, str], step: int, interval: int) -> Iterator[Refusal]:
        """The contradictions of a line; `interval` is the number of iterations between two lines."""
        yield from _rate(told)
        scale, skipped = _number(told, _SCALE), _number(told, _SKIPPED)
        num_nan = _number(told, _NAN)
        if num_nan is not None and skipped is not None and num_nan > skipped:
            message = f"{_NAN} is {num_nan:g}, and {_SKIPPED} is {skipped:g}"
            yield Refusal(message, "iterations whose loss is not finite are counted among the skipped ones", "skip")
        follows = 0 < step - self._step <= interval
        if follows and scale is not None and self._scale is not None and scale < self._scale and skipped == 0:
            message = f"{_SCALE} falls from {self._scale:,.10g} to {scale:,.10g}, and {_SKIPPED} is 0"
            yield Refusal(message, "the scale falls when a gradient overflows, and that iteration is skipped", "skip")
        if step == self._step:
            # Files with the reports of several runs, one after another, are no fault of their writers.
            help_text = "write each iteration once, by one process, and each run to a file of its own"
            yield Refusal(f"iteration {step:,} is reported again", help_text, "step", is_accepted=True)
        yield from self._skipped(step, skipped)
        self._step, self._scale = step, scale

    def _skipped(self, step: int, skipped: float | None) -> Iterator[Refusal]:
        """The refusal of the line from which on too many iterations in a row were skipped, once."""
        is_all = skipped is not None and 0 < step - self._step <= skipped
        before = self._num_skipped
        self._num_skipped = before + round(skipped or 0) if is_all else 0
        if before < _MOST_SKIPPED <= self._num_skipped:
            message = f"{self._num_skipped:,} iterations in a row up to {step:,} are skipped"
            yield Refusal(message, "no step changes the model: look at the loss, its scale and the gradients", "skip")


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
    return 0.5 * 10.0 ** -len(digits) if is_digits(digits) or not digits else 0.0
