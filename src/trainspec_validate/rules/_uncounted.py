"""Says why the shape of a model is not counted: a key is missing that a plan can give, or no formula has the family."""

from __future__ import annotations

from trainspec_validate.documents.types import TrainingPlan
from trainspec_validate.performance.derived.plan import is_transformer
from trainspec_validate.rules import Place, Uncovered, Unresolved

COMPLETE = "add the keys of the shape that model lacks"
_NO_ATTENTION = frozenset({"linear", "none"})


def not_a_shape(plan: TrainingPlan, place: Place, reason: str) -> Unresolved:
    """The answer of a rule that asks for the shape of a transformer."""
    return Unresolved(place, reason, COMPLETE) if is_transformer(plan.model) else Uncovered(place, reason)


def not_counted(plan: TrainingPlan, place: Place, reason: str) -> Unresolved:
    """The answer of a rule that counts the shapes of all families but two, with attention between all positions."""
    model = plan.model
    is_uncovered = model.family in {"cnn", "other"} or (is_transformer(model) and model.attention in _NO_ATTENTION)
    return Uncovered(place, reason) if is_uncovered else Unresolved(place, reason, COMPLETE)
