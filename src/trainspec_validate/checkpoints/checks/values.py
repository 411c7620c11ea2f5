"""Judges the values of tensors; it reads them where that is asked for."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise

from trainspec_validate.checkpoints.checks import Checkpoint, NotApplicable, Series, Violation, check
from trainspec_validate.checkpoints.statistics import Statistics
from trainspec_validate.checkpoints.values import statistics

MAX_ZERO_BYTES = 1 << 20
MAX_DENORMAL_SHARE = 0.01
MAX_CHANGE = 1e6
_NOT_ASKED = "values are read where that is asked for: --values"
_NONE = "no values of tensors that can be read without their framework"
_OLDER = "resume from an earlier checkpoint, and look for what wrote these values"


def _seen(series: Series) -> list[tuple[Checkpoint, list[Statistics]]]:
    if not series.reads_values:
        raise NotApplicable(_NOT_ASKED)
    found = [(one, statistics(one)) for one in series.checkpoints]
    if not any(one.count for _, those in found for one in those):
        raise NotApplicable(_NONE)
    return found


@check("TS-CKP-099")
def values_finite(series: Series) -> Iterator[Violation]:
    """No tensor holds NaN or an infinity."""
    for checkpoint, found in _seen(series):
        for one in found:
            held = [(one.num_nan, "NaN"), (one.num_infinite, "infinite")]
            if one.num_nan or one.num_infinite:
                told = " and ".join(f"{number:,} {word}" for number, word in held if number)
                words = f"tensor {one.piece.name!r}: {told} among {one.count:,} values"
                yield Violation(checkpoint.place(one.piece.path), words, _OLDER)


@check("TS-CKP-100")
def values_plausible(series: Series) -> Iterator[Violation]:
    """No tensor holds what only damage leaves."""
    for checkpoint, found in _seen(series):
        for one in found:
            for words in _implausible(one):
                place = checkpoint.place(one.piece.path)
                yield Violation(place, f"tensor {one.piece.name!r}: {words}", _OLDER)


def _implausible(one: Statistics) -> Iterator[str]:
    if one.zero_bytes > MAX_ZERO_BYTES:
        yield f"a run of {one.zero_bytes:,} bytes of zero"
    if one.is_second_moment and one.num_negative:
        yield f"{one.num_negative:,} negative values, and squares are none"
    # Weights in F16, and squares of small gradients, are below the smallest normal number without any damage.
    can_be_small = one.piece.dtype == "F16" or one.is_second_moment
    if not can_be_small and one.num_denormal > MAX_DENORMAL_SHARE * one.count:
        share = f"{one.num_denormal / one.count:.0%} of the values"
        yield f"{share} are smaller than any normal number of {one.piece.dtype}"


@check("TS-CKP-101")
def values_steady(series: Series) -> Iterator[Violation]:
    """The size of values changes by no factor of a million from one checkpoint to the next."""
    _seen(series)
    whole = [one for one in series.stepped if one.is_complete]
    if len(whole) < 2:
        raise NotApplicable("fewer than two whole checkpoints that name their steps")
    for before, after in pairwise(whole):
        earlier = {(one.piece.path, one.piece.name): one for one in statistics(before)}
        for one in statistics(after):
            other = earlier.get((one.piece.path, one.piece.name))
            sizes = (one.root_mean_square, other.root_mean_square if other else 0.0)
            if min(sizes) and max(sizes) / min(sizes) > MAX_CHANGE:
                words = f"tensor {one.piece.name!r}: root mean square {sizes[0]:.3g}, and {sizes[1]:.3g}"
                yield Violation(after.place(one.piece.path), f"{words} in {before.label}", _OLDER)
