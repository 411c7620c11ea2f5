"""Documents for tests of rules: excerpts laid over the base documents, judged as one set."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "tools"))

from overlay import overlay  # noqa: E402

from trainspec_validate.documents.load import load_text  # noqa: E402
from trainspec_validate.model.finding import Severity, Verdict  # noqa: E402
from trainspec_validate.pipeline.validation import Selection, validate  # noqa: E402

BASE = ROOT / "spec" / "v1" / "base"
Excerpt = dict[str, Any] | str | None


@cache
def _base(file: str) -> Any:
    return load_text((BASE / file).read_text(encoding="utf-8"), file).data


def _write(directory: Path, file: str, excerpt: Excerpt) -> None:
    if excerpt is None:
        (directory / file).unlink(missing_ok=True)
        return
    data = load_text(excerpt, file).data if isinstance(excerpt, str) and excerpt else excerpt or {}
    (directory / file).write_text(json.dumps(overlay(_base(file), data)), encoding="utf-8")


def _write_set(directory: Path, cluster: Excerpt, plan: Excerpt, checkpoint: Excerpt) -> None:
    _write(directory, "cluster.yaml", cluster)
    _write(directory, "plan.yaml", plan)
    _write(directory, "checkpoint.yaml", checkpoint)


Findings = Callable[..., set[tuple[str, str]]]


@pytest.fixture
def findings(tmp_path: Path) -> Findings:
    """Judge excerpts (mappings or YAML text) over the base documents; a document given as None is left out.

    Returns pairs of requirement and dotted place. `select` limits what is judged.
    """

    def run(
        *, cluster: Excerpt = "", plan: Excerpt = "", checkpoint: Excerpt = "", select: tuple[str, ...] = ()
    ) -> set[tuple[str, str]]:
        _write_set(tmp_path, cluster, plan, checkpoint)
        report = validate([tmp_path], Selection(select=select))
        return {(f.requirement, ".".join(str(step) for step in f.pointer)) for f in report.findings}

    return run


@pytest.fixture
def verdict(tmp_path: Path) -> Callable[..., Verdict]:
    """The verdict on one requirement for excerpts laid over the base documents."""

    def run(requirement: str, *, cluster: Excerpt = "", plan: Excerpt = "", checkpoint: Excerpt = "") -> Verdict:
        _write_set(tmp_path, cluster, plan, checkpoint)
        report = validate([tmp_path], Selection(select=(requirement,)))
        return next(outcome.verdict for outcome in report.outcomes if outcome.requirement == requirement)

    return run


@pytest.fixture
def severity(tmp_path: Path) -> Callable[..., int]:
    """The worst that is said of excerpts laid over the base documents: 2 for an error, 1 for a warning, else 0."""

    def run(
        *, cluster: Excerpt = "", plan: Excerpt = "", checkpoint: Excerpt = "", select: tuple[str, ...] = ()
    ) -> int:
        _write_set(tmp_path, cluster, plan, checkpoint)
        report = validate([tmp_path], Selection(select=select))
        return max((1 + (finding.severity is Severity.ERROR) for finding in report.findings), default=0)

    return run


@pytest.fixture
def helps(tmp_path: Path) -> Callable[..., list[str]]:
    """The help of each finding on excerpts laid over the base documents."""

    def run(
        *, cluster: Excerpt = "", plan: Excerpt = "", checkpoint: Excerpt = "", select: tuple[str, ...] = ()
    ) -> list[str]:
        _write_set(tmp_path, cluster, plan, checkpoint)
        return [finding.help for finding in validate([tmp_path], Selection(select=select)).findings]

    return run
