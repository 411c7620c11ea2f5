"""Texts of other programs that mention TrainSpec or have the names of documents, and documents with slips."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

from trainspec_validate.cli.validate import PROGRAM, command
from trainspec_validate.pipeline.foreign import HELD, NOT_OURS

PLAN = Path(__file__).parents[2] / "examples" / "plans" / "torchtitan-llama3-8b.yaml"
DEPLOYMENT = """apiVersion: apps/v1
kind: Deployment
metadata: {name: gate}
spec:
  template:
    spec:
      containers: [{name: gate, image: "registry.example/trainspec/v1.2"}]
"""
EKSCTL = "apiVersion: eksctl.io/v1alpha5\nkind: ClusterConfig\nmetadata: {name: gpu, region: us-east-1}\n"
HYDRA = "defaults: [_self_]\nname: slurm\npartition: gpu\nnodes: 4\n"
SCHEMA = "# yaml-language-server: $schema=https://trainspec.org/schemas/v1/training-plan.schema.json\n"
CONFIG_MAP = "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: plans}\ndata:\n  plan.yaml: |\n"


def report(folder: Path, *options: str) -> dict[str, Any]:
    result = run(str(folder), "--format", "json", *options)
    return dict(json.loads(result.stdout))


def run(*arguments: str) -> Result:
    return CliRunner().invoke(command, list(arguments), prog_name=PROGRAM)


def plan() -> str:
    lines = PLAN.read_text(encoding="utf-8").splitlines(keepends=True)
    return "".join(line for line in lines if not line.startswith("#"))


def indented(text: str) -> str:
    return "".join(f"    {line}" for line in text.splitlines(keepends=True))


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("gate.yaml", DEPLOYMENT),
        ("ci.yml", "image: trainspec/v1\nscript: [trainspec-validate .]\n"),
        ("values.yaml", "# see trainspec/v1 for the form of plans\nreplicas: 3\n"),
        ("several.yaml", f"{DEPLOYMENT}---\n{EKSCTL}"),
        ("template.yaml", "# see trainspec/v1\n{{- if .Values.on }}\nimage: {{ .Values.registry }}/trainspec/v1:x\n"),
        ("deployment.yaml", "apiVersion: apps/v1\nkind: Deployment\nimage: {{ .Values.registry }}/trainspec/v1:x\n"),
        ("tagged.yaml", "Resource: !Ref trainspec/v1\n"),
        ("package.json", '{"name": "a", "keywords": ["trainspec/v1"]}'),
        ("cluster.yaml", EKSCTL),
        ("plan.yml", "apiVersion: argoproj.io/v1alpha1\nkind: Workflow\nspec: {entrypoint: main}\n"),
    ],
)
def test_a_text_of_another_program_is_passed_over(tmp_path: Path, name: str, text: str) -> None:
    (tmp_path / "job.yaml").write_text(plan())
    (tmp_path / name).write_text(text)
    found = report(tmp_path)
    assert not [finding for finding in found["findings"] if finding["path"].endswith(name)]
    assert not [entry for entry in found["unjudged"] if entry["path"].endswith(name)]
    passed = run(str(tmp_path / name), "--dependents")
    assert passed.exit_code == 0
    assert "no TrainSpec document" in passed.stderr


@pytest.mark.parametrize(
    ("name", "text", "reason"),
    [
        ("plans.yaml", CONFIG_MAP + indented("apiVersion: trainspec/v1\nkind: TrainingPlan\n"), HELD),
        (
            "schema.yaml",
            CONFIG_MAP + f"    {SCHEMA}" + indented("apiVersion: trainspec/v1\nkind: TrainingPlan\n"),
            HELD,
        ),
        ("cluster.yaml", HYDRA, NOT_OURS),
        ("plan.yaml", "model: gpt\nepochs: 3\n", NOT_OURS),
    ],
)
def test_what_may_hide_a_document_is_named(tmp_path: Path, name: str, text: str, reason: str) -> None:
    (tmp_path / "job.yaml").write_text(plan())
    (tmp_path / name).write_text(text)
    found = report(tmp_path)
    assert not [finding for finding in found["findings"] if finding["path"].endswith(name)]
    assert [entry["reason"] for entry in found["unjudged"] if entry["path"].endswith(name)] == [reason]
    assert run(str(tmp_path), "--fail-on", "error,unjudged").exit_code == 1


@pytest.mark.parametrize(
    ("name", "change"),
    [
        ("job.yaml", ("apiVersion: trainspec/v1", "apiVersion: tra\u0456nspec/v1")),
        ("job.yaml", ("apiVersion: trainspec/v1", "apiversion: trainspec/v1")),
        ("job.yaml", ("apiVersion: trainspec/v1", "api_version: trainspec/v1")),
        ("job.yaml", ("apiVersion: trainspec/v1", "apiVersion: trainspec/v11")),
        ("job.yaml", ("apiVersion: trainspec/v1", "apiVersion: trainspec/v1\nimage: [")),
        ("job.yaml", ("apiVersion: trainspec/v1", "apiVersion: trainspec/v1\nimage: {{ .Values.image }}/a")),
        ("job.yaml", ("apiVersion: trainspec/v1", "apiVersion trainspec/v1\nimage: {{ .Values.image }}/a")),
        ("plan.yaml", ("apiVersion: trainspec/v1\n", "")),
        ("plan.yaml", ("apiVersion: trainspec/v1\nkind: TrainingPlan\n", "")),
        ("plan.yaml", ("apiVersion: trainspec/v1\nkind: TrainingPlan\n", "kind: TraningPlan\n")),
    ],
)
def test_a_document_with_a_slip_is_an_error(tmp_path: Path, name: str, change: tuple[str, str]) -> None:
    assert change[0] in plan()
    (tmp_path / name).write_text(plan().replace(*change))
    assert [finding for finding in report(tmp_path)["findings"] if finding["requirement"].startswith("TS-DOC-")]
    assert run(str(tmp_path)).exit_code == 1


def test_a_document_inside_a_mapping_or_behind_another_is_an_error(tmp_path: Path) -> None:
    (tmp_path / "inside.yaml").write_text(f"job:\n{indented(plan())}")
    (tmp_path / "behind.yaml").write_text(f"{DEPLOYMENT}---\n{plan()}")
    assert {Path(finding["path"]).name for finding in report(tmp_path)["findings"]} == {"inside.yaml", "behind.yaml"}


@pytest.mark.parametrize("version", ["{{ .Values.api }}", '"{{ api }}"', "{% if a %}trainspec/v1{% endif %}", "${API}"])
def test_a_document_whose_version_a_template_fills_in_is_refused(tmp_path: Path, version: str) -> None:
    (tmp_path / "job.yaml").write_text(plan())
    (tmp_path / "t.yaml").write_text(f"apiVersion: {version}\nkind: TrainingPlan\nmetadata: {{name: p}}\n")
    assert run(str(tmp_path)).exit_code == 1
    assert run(str(tmp_path / "t.yaml"), "--dependents").exit_code == 1
    (tmp_path / "t.yaml").write_text("apiVersion: {{ .Values.api }}\nkind: Deployment\nmetadata: {name: p}\n")
    assert run(str(tmp_path)).exit_code == 0


@pytest.mark.parametrize(
    "text", [f"{SCHEMA}kind: X\n", '{\n  "$schema": "https://trainspec.org/x.schema.json",\n  "a": 1}']
)
def test_a_text_that_a_schema_of_ours_is_given_for_is_ours(tmp_path: Path, text: str) -> None:
    name = "a.json" if text.startswith("{") else "a.yaml"
    (tmp_path / name).write_text(text)
    assert "error[TS-DOC-004]" in run(str(tmp_path)).stdout


def test_a_changed_file_that_holds_a_document_fails_where_what_is_not_judged_does(tmp_path: Path) -> None:
    held = tmp_path / "plans.yaml"
    held.write_text(CONFIG_MAP + indented(plan()))
    passed = run(str(held), "--dependents")
    assert (passed.exit_code, "holds a document in a text of another program" in passed.stderr) == (0, True)
    assert run(str(held), "--dependents", "--fail-on", "unjudged").exit_code == 2
    (tmp_path / "job.yaml").write_text(plan())
    refused = run(str(held), str(tmp_path / "job.yaml"), "--dependents", "--fail-on", "unjudged")
    assert (refused.exit_code, HELD in refused.stdout) == (1, True)
    assert "TS-DOC-004" not in run(str(held), str(tmp_path / "job.yaml")).stdout


def test_a_plan_under_the_version_of_another_program_is_refused(tmp_path: Path) -> None:
    (tmp_path / "job.yaml").write_text(plan().replace("trainspec/v1", "v1"))
    assert "error[TS-DOC-004]" in run(str(tmp_path)).stdout
    other = "apiVersion: multicluster.x-k8s.io/v1alpha1\nkind: ClusterProfile\nspec: {displayName: x}\n"
    (tmp_path / "job.yaml").write_text(other)
    (tmp_path / "good.yaml").write_text(plan())
    assert run(str(tmp_path)).exit_code == 0
