"""Which parameters of a plan are trained, and in which format the frozen ones are kept."""

from __future__ import annotations

from dataclasses import dataclass

from trainspec_validate.documents.types import TrainingPlan
from trainspec_validate.documents.types.adapters import Lora
from trainspec_validate.documents.types.model import Model
from trainspec_validate.performance.costs.adapters import adapter_parameters
from trainspec_validate.performance.costs.memory import FORMAT_BYTES, FROZEN_BYTES
from trainspec_validate.performance.derived.families import least_mtp_parameters, published_counts
from trainspec_validate.performance.derived.plan import shape_of


@dataclass(frozen=True, slots=True)
class Trained:
    """Parameters that receive gradients, and those that do not."""

    num_trained: float
    num_frozen: float
    frozen_bytes: float
    """Bytes of one frozen parameter."""
    has_adapters: bool = False
    """Whether adapters are what is trained, so that gradients pass through all layers."""


def num_parameters(model: Model) -> float:
    """Parameters of the model with at least those of its layers for multi-token prediction, which a count may have."""
    given, extra = model.num_parameters, least_mtp_parameters(model)
    if extra:
        nearest = min(published_counts(model), key=lambda count: abs(count.likely - given), default=None)
        extra = 0.0 if nearest is not None and nearest.has_mtp else extra
    return given + extra


def lora_parameters(plan: TrainingPlan) -> float | None:
    """Parameters of the adapters; None without adapters, or where the shape does not give them."""
    return None if plan.lora is None else _adapter_parameters(plan.model, plan.lora)


def _adapter_parameters(model: Model, lora: Lora) -> float | None:
    shape = shape_of(model)
    try:
        return None if shape is None else adapter_parameters(shape, lora.rank, lora.targets)
    except ValueError:
        return None


def num_trained(plan: TrainingPlan) -> float:
    """Parameters that receive gradients and have optimizer state: as stated, else the adapters, else all.

    Adapters whose number is not known count as one parameter, which is a lower bound.
    """
    total = num_parameters(plan.model)
    if plan.num_parameters_trained or plan.lora is None:
        return min(plan.num_parameters_trained or total, total)
    return lora_parameters(plan) or 1.0


def with_adapters(model: Model, lora: Lora, frozen_format: str) -> Trained | None:
    """Adapters of a model whose own parameters are frozen; None where the shape does not give their number."""
    counted = _adapter_parameters(model, lora)
    if counted is None:
        return None
    return Trained(counted, num_parameters(model), FROZEN_BYTES[frozen_format], has_adapters=True)


def trained_of(plan: TrainingPlan) -> Trained:
    """Trained and frozen parameters; adapters come on top of the parameters of the model."""
    total, trained = num_parameters(plan.model), num_trained(plan)
    frozen = plan.precision.frozen_parameters
    return Trained(
        num_trained=trained,
        num_frozen=total if plan.lora else total - trained,
        frozen_bytes=FROZEN_BYTES[frozen] if frozen else FORMAT_BYTES[plan.precision.parameters],
        has_adapters=plan.lora is not None,
    )
