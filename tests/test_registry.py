"""A registry keeps one generator for a requirement, with the documents that its annotations name."""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from types import SimpleNamespace
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


UNFINISHED = """
import shared_by_test
@shared_by_test.kept.register("TS-A-002")
def some_check(run):
    yield _later(run)
shared_by_test.is_registered.set()
shared_by_test.may_end.wait(60)
def _later(run):
    return f"{run} is judged"
"""


def test_a_module_that_another_thread_imports_is_waited_for(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    kept = Registry[Check[str], Generator]("unfinished_checks", (), Check, num_given=1)
    shared = SimpleNamespace(kept=kept, is_registered=threading.Event(), may_end=threading.Event())
    (tmp_path / "unfinished_checks").mkdir()
    (tmp_path / "unfinished_checks" / "__init__.py").write_text("")
    (tmp_path / "unfinished_checks" / "slow.py").write_text(UNFINISHED)
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.setitem(sys.modules, "shared_by_test", shared)

    def judged() -> list[str]:
        return [line for check in kept.of([("slow", "TS-A-002")]) for line in check.function("run")]

    with ThreadPoolExecutor(2) as threads:
        first = threads.submit(judged)
        assert shared.is_registered.wait(60)
        second = threads.submit(judged)
        threading.Timer(0.2, shared.may_end.set).start()
        assert [first.result(), second.result()] == [["run is judged"]] * 2
    for name in ("unfinished_checks.slow", "unfinished_checks"):
        del sys.modules[name]
