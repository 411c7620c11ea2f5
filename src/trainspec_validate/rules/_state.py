"""Gives a rule the memory section of a plan."""

from __future__ import annotations

from trainspec_validate.documents.types import TrainingPlan
from trainspec_validate.documents.types.memory import Memory
from trainspec_validate.rules import NotApplicable


def memory_of(plan: TrainingPlan) -> Memory:
    """The memory section.

    Raises:
        NotApplicable: the plan has none.
    """
    if plan.memory is None:
        raise NotApplicable("the plan has no memory section")
    return plan.memory
