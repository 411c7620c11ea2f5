"""Findings on streams name the file of the plan, profile or policy that they compare with."""

from __future__ import annotations

import json
from pathlib import Path

from trainspec_validate import validate
from trainspec_validate.documents.types import CheckpointPolicy, ClusterProfile, TrainingPlan
from trainspec_validate.telemetry.judge import with_names

BASE = Path(__file__).resolve().parents[2] / "spec" / "v1" / "base"
TIME_US = 1_767_225_600_000_000
HEAD = {"k": "head", "apiVersion": "trainspec/v1", "kind": "MetricStream", "run": "r1", "att": 0, "emitter": "job"}
STEP = {"k": "m", "time_us": TIME_US + 30_000_000, "seq": 0, "step": 1}


def test_the_plan_is_named_by_its_file(tmp_path: Path) -> None:
    for name in ("cluster.yaml", "plan.yaml"):
        (tmp_path / name).write_text((BASE / name).read_text(encoding="utf-8"), encoding="utf-8")
    values = {"train.step.count": 1, "train.batch.size": 3}
    records = [{**HEAD, "time_us": TIME_US, "scopes": ["job"]}, {**STEP, "m": values}]
    (tmp_path / "stream.jsonl").write_text("".join(f"{json.dumps(each)}\n" for each in records), encoding="utf-8")
    (finding,) = (each for each in validate(tmp_path).findings if each.requirement == "TS-TEL-063")
    assert f"but the plan {(tmp_path / 'plan.yaml').as_posix()} says " in finding.message


def test_documents_whose_file_is_not_known_have_no_name() -> None:
    message = "it has 5, and the profile has 6"
    assert with_names(message, {}) == message
    assert with_names(message, {TrainingPlan: "plan.yaml"}) == message
    assert with_names(message, {ClusterProfile: r"a\1.yaml"}) == r"it has 5, and the profile a\1.yaml has 6"
    assert with_names("the policy says", {CheckpointPolicy: "p.yaml"}) == "the policy p.yaml says"
