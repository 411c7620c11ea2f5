"""A registry keeps one generator for a requirement, with the documents that its annotations name."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest

from trainspec_validate.checking.registry import Check, Registry
from trainspec_validate.documents.types import CheckpointPolicy, TrainingPlan

Generator = Callable[..., Iterator[str]]


def registry(num_given: int = 1) -> Registry[Check[str], Generator]:
    kinds = (CheckpointPolicy, TrainingPlan)
    return Registry[Check[str], Generator]("trainspec_validate.checkpoints.checks", kinds, Check, num_given=num_given)


def some_check(run: Any, plan: TrainingPlan) -> Iterator[str]:
    yield f"{run} {plan}"


def test_a_generator_is_kept_with_its_documents() -> None:
    kept = registry()
    assert kept.register("TS-A-001")(some_check) is some_check
    (found,) = kept.of([("formats", "TS-A-001")])
    assert found == Check("TS-A-001", "some-check", some_check, (("plan", TrainingPlan),))
    assert kept.every() == {"TS-A-001": found}


def test_a_requirement_has_one_generator() -> None:
    kept = registry()
    kept.register("TS-A-001")(some_check)
    with pytest.raises(ValueError, match=r"^TS-A-001 is checked by some-check and some_check$"):
        kept.register("TS-A-001")(some_check)


def test_what_is_no_kind_of_document_is_refused() -> None:
    with pytest.raises(ValueError, match=r"^some_check: run is annotated 'Any', which is no kind of document$"):
        registry(num_given=0).register("TS-A-001")(some_check)
