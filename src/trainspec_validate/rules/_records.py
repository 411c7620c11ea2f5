"""Gives a rule a part of a plan that it needs, or a copy of one with other values to compare with."""

from __future__ import annotations

from typing import TypeVar

from trainspec_validate.documents.types import TrainingPlan
from trainspec_validate.documents.types.base import Record
from trainspec_validate.documents.types.memory import Memory
from trainspec_validate.rules import require


def memory_of(plan: TrainingPlan) -> Memory:
    """The memory section.

    Raises:
        NotApplicable: the plan has none.
    """
    return require(plan.memory, "the plan has no memory section")


AnyRecord = TypeVar("AnyRecord", bound=Record)


def changed(record: AnyRecord, **keys: object) -> AnyRecord:
    """A copy of a part of a document with other values for some keys."""
    return type(record)(**{name: getattr(record, name) for name in record.__struct_fields__} | keys)


def resized(plan: TrainingPlan, data: int, micro_sequences: int) -> TrainingPlan:
    """A plan with another data degree and micro-batch, and the accumulation that keeps its batch."""
    p, batch = plan.parallelism, plan.batch
    return changed(
        plan,
        parallelism=changed(p, data=data, num_accelerators=data * p.tensor * p.pipeline * p.context),
        batch=changed(
            batch,
            micro_sequences=micro_sequences,
            accumulation_steps=max(1, batch.global_sequences // (data * micro_sequences)),
        ),
    )
