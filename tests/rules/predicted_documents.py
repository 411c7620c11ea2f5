"""Plans and clusters laid over the base documents of the specification, and what one rule says about them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from overlay import overlay

from trainspec_validate.documents.load import load_file
from trainspec_validate.documents.types import CheckpointPolicy, ClusterProfile, TrainingPlan, read
from trainspec_validate.rules import Violation, all_rules

ROOT = Path(__file__).resolve().parents[2]
BASE = ROOT / "spec" / "v1" / "base"
EXAMPLES = ROOT / "examples"


def _read(kind: str, path: Path, excerpt: dict[str, Any]) -> Any:
    return read(kind, overlay(load_file(path).data, excerpt))


def plan(excerpt: dict[str, Any] | None = None, path: Path = BASE / "plan.yaml") -> TrainingPlan:
    found: TrainingPlan = _read("TrainingPlan", path, excerpt or {})
    return found


def cluster(excerpt: dict[str, Any] | None = None, path: Path = BASE / "cluster.yaml") -> ClusterProfile:
    found: ClusterProfile = _read("ClusterProfile", path, excerpt or {})
    return found


def checkpoint(excerpt: dict[str, Any] | None = None) -> CheckpointPolicy:
    found: CheckpointPolicy = _read("CheckpointPolicy", BASE / "checkpoint.yaml", excerpt or {})
    return found


def violations(requirement: str, *documents: Any) -> list[Violation]:
    """What a rule says; it is given those of the documents that it asks for."""
    rule = all_rules()[requirement]
    wanted = {name: next(one for one in documents if isinstance(one, kind)) for name, kind in rule.parameters}
    return list(rule.function(**wanted))


def places(requirement: str, *documents: Any) -> list[tuple[str | int, ...]]:
    """Where a rule finds something."""
    return [one.place.pointer for one in violations(requirement, *documents)]
