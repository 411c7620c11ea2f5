"""Bytes of optimizer state that a plan implies, for rules and for predictions."""

from __future__ import annotations

from dataclasses import dataclass

from trainspec_validate.documents.types.model import Model
from trainspec_validate.documents.types.optimizer import Optimizer
from trainspec_validate.documents.types.precision import Precision
from trainspec_validate.performance.costs.memory import FORMAT_BYTES
from trainspec_validate.performance.costs.optimizer_state import FACTORED, NUM_MOMENTS, factors_per_parameter
from trainspec_validate.performance.derived.plan import shape_of

DEFAULT_OPTIMIZER = "adam"
"""Optimizer that a plan without an optimizer section is taken to use: two moments of each parameter."""


@dataclass(frozen=True, slots=True)
class OptimizerState:
    """Bytes of optimizer state of one trained parameter, master weights left out."""

    num_bytes: float
    """The sum as far as it is known, so a lower bound."""
    unknown: str | None = None
    """Facts that the plan leaves open; None where the sum is exact."""


def moment_formats(
    name: str, declared: tuple[str, ...] | None, precision: Precision, *, main: bool = True
) -> tuple[str, ...] | None:
    """Number formats of the moments of an optimizer; None for one whose moments are not known."""
    if declared is not None:
        return declared
    stated = precision.num_optimizer_moments if main else None
    if stated is None and name not in NUM_MOMENTS:
        return None
    count = NUM_MOMENTS[name][1] if stated is None else stated
    return (precision.optimizer_state or "fp32",) * count


def implied_state(optimizer: Optimizer | None, precision: Precision, model: Model, trained: float) -> OptimizerState:
    """Bytes that algorithm and formats imply, whatever the plan states as their sum."""
    if optimizer is None:
        return OptimizerState(_bytes(moment_formats(DEFAULT_OPTIMIZER, None, precision) or ()))
    other = optimizer.auxiliary
    share = min(1.0, other.num_parameters / trained) if other else 0.0
    formats = moment_formats(optimizer.name, optimizer.moments, precision)
    rest = moment_formats(other.name, other.moments, precision, main=False) if other else ()
    num_bytes = (1 - share) * _bytes(formats or ()) + share * _bytes(rest or ())
    if formats is None or rest is None:
        return OptimizerState(num_bytes, "the moments of an optimizer with the name other")
    if optimizer.name not in FACTORED:
        return OptimizerState(num_bytes)
    shape = shape_of(model)
    if shape is None or trained < model.num_parameters:
        return OptimizerState(num_bytes, f"the matrices whose rows and columns {optimizer.name} keeps state for")
    numbers = factors_per_parameter(
        optimizer.name, shape, tables=other is None, largest_side=optimizer.max_preconditioner_size
    )
    return OptimizerState(num_bytes + numbers * FORMAT_BYTES[optimizer.factor_format])


def optimizer_state(optimizer: Optimizer | None, precision: Precision, model: Model, trained: float) -> OptimizerState:
    """Bytes that the plan states, else those that algorithm and formats imply."""
    if optimizer is not None and optimizer.bytes_per_parameter is not None:
        return OptimizerState(optimizer.bytes_per_parameter)
    return implied_state(optimizer, precision, model, trained)


def _bytes(formats: tuple[str, ...]) -> float:
    return float(sum(FORMAT_BYTES[name] for name in formats))
