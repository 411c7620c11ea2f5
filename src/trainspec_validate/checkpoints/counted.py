"""Defines what a file of `torch.save` says of the run that wrote it, which readers of formats compare."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any


@dataclass(frozen=True, slots=True)
class Counted:
    """Plain values of a state, and how far its optimizer and its schedule are."""

    values: Mapping[str, Any] = field(default_factory=dict)
    """Numbers, truth values and short texts at the top of the state by their keys; those of arguments as `args.KEY`."""
    optimizer_step: int | None = None
    """The highest step of a parameter in an optimizer."""
    schedule_step: int | None = None
    """Number that a schedule of the learning rate counts in `last_epoch`: its own steps."""
    is_plateau: bool = False
    """Whether the schedule counts evaluations, as that of `ReduceLROnPlateau` does."""

    loop_steps: tuple[int, ...] = ()
    """Optimizer steps that the loops of Lightning count, and continue from: automatic ones, and those of programs."""

    rates: tuple[float, ...] = ()
    """Learning rates of the groups of parameters of an optimizer, as far as they are plain numbers."""
    odd_count: str = ""
    """A count that is a text or a truth value, in words."""
    is_empty: bool = False
    """Whether it is `None`, or a mapping or list of nothing."""

    def count(self, key: str) -> int | None:
        """A whole number from 0 under a key; None where there is none."""
        value = self.values.get(key)
        return value if type(value) is int and 0 <= value < 1 << 63 else None
