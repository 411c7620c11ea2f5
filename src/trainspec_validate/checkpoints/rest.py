"""Says whether the learning rate between two checkpoints was too low to change weights, for the choice of the newest.

Schedules that decay end at rates such as 1e-13, at which no value of FP32 changes any more; then two checkpoints have
the same weights, and neither is a copy.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from pathlib import Path

from trainspec_validate.checkpoints.twins import share_weights
from trainspec_validate.checkpoints.view import Checkpoint

_RESOLUTION = 2.0**-24
"""Half the distance between 1 and the next number of FP32. An optimizer such as Adam moves a weight by its learning
rate in each step, so weights of a copy would differ by less from those that were there."""


def are_at_rest(checkpoint: Checkpoint, other: Path, run: Sequence[Checkpoint]) -> bool:
    """Whether nothing changed weights between two checkpoints next to each other, as their learning rates say.

    The rates say nothing where they are as low at two other checkpoints whose weights differ: schedules that begin anew
    are low at the end of each cycle.

    Args:
        checkpoint: as it was read; its weights are those of the other one.
        other: directory of the other one.
        run: all checkpoints, in order.
    """
    ends = {checkpoint.root, other}
    pairs = [(pair, way) for pair in pairwise(run) if (way := _way(*pair)) is not None]
    own = next((way for pair, way in pairs if {one.root for one in pair} == ends), None)
    if own is None or own >= _RESOLUTION:
        return False
    lower = [pair for pair, way in pairs if way <= own and {one.root for one in pair} != ends]
    return all(share_weights(one, another.root) for one, another in lower)


def _way(one: Checkpoint, other: Checkpoint) -> float | None:
    """How far steps between two checkpoints move a weight: their number times the higher rate; None if not known."""
    rates = [_rate(each) for each in (one, other)]
    known = [rate for rate in rates if rate is not None]
    if len(known) < len(rates):
        return None
    if not any(known):
        return 0.0
    counts = [_num_steps(each) for each in (one, other)]
    numbers = [count for count in counts if count is not None]
    return max(known) * abs(numbers[0] - numbers[1]) if len(numbers) == len(counts) else None


def _rate(checkpoint: Checkpoint) -> float | None:
    return max((rate for said in checkpoint.said.values() for rate in said.rates), default=None)


def _num_steps(checkpoint: Checkpoint) -> int | None:
    """The highest count of optimizer steps; the step of the checkpoint where no optimizer counts."""
    counts = [said.optimizer_step for said in checkpoint.said.values() if said.optimizer_step is not None]
    return max(counts, default=checkpoint.step)
