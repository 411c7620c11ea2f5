"""A document whose head is written with anchors, aliases, tags and merge keys of YAML is not passed over in silence."""

from __future__ import annotations

from pathlib import Path

import pytest
import yaml
from click.testing import CliRunner, Result

from trainspec_validate import validate
from trainspec_validate.cli.validate import PROGRAM, command
from trainspec_validate.documents.load import outline
from trainspec_validate.pipeline.claims import why_no_document
from trainspec_validate.pipeline.foreign import NO_HEAD

BASE = Path(__file__).resolve().parents[1] / "spec" / "v1" / "base"
CLUSTER, PLAN = ((BASE / name).read_text(encoding="utf-8") for name in ("cluster.yaml", "plan.yaml"))
BODY = PLAN.replace("apiVersion: trainspec/v1\nkind: TrainingPlan\n", "", 1)
HEADS = {
    "version": "x-v: &v trainspec/v1\napiVersion: *v\nkind: TrainingPlan\n",
    "kind": "x-k: &k TrainingPlan\napiVersion: trainspec/v1\nkind: *k\n",
    "both": "x-v: &v trainspec/v1\nx-k: [&k TrainingPlan]\napiVersion: *v\nkind: *k\n",
    "key": "x-v: [&a apiVersion, &v trainspec/v1]\n*a : *v\nkind: TrainingPlan\n",
    "merged": "x: &head {apiVersion: trainspec/v1, kind: TrainingPlan}\n<<: *head\n",
    "merged aliases": "x: [&v trainspec/v1, &k TrainingPlan]\ny: &head {apiVersion: *v, kind: *k}\n<<: [*head]\n",
    "unknown": "apiVersion: *v\nx: trainspec/v1\nkind: *k\n",
    "kind alone": "x-k: &k TrainingPlan\nkind: *k\n",
    "kind with a tag": "kind: !!str TrainingPlan\n",
    "kind with an anchor": "kind: &k TrainingPlan\n",
    "kind in a block": "kind: >-\n  TrainingPlan\n",
    "kind by an explicit key": "? kind\n: TrainingPlan\n",
}


@pytest.fixture(autouse=True)
def _tree(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "cluster.yaml").write_text(CLUSTER, encoding="utf-8")
    monkeypatch.chdir(tmp_path)


def invoke(*arguments: str) -> Result:
    return CliRunner().invoke(command, list(arguments), prog_name=PROGRAM)


@pytest.mark.parametrize("head", HEADS.values(), ids=HEADS)
def test_an_aliased_head_is_judged_in_a_directory(head: str) -> None:
    assert BODY != PLAN
    Path("run.yaml").write_text(head + BODY, encoding="utf-8")
    report = validate(["."])
    assert "run.yaml" in {document.path for document in report.documents}
    assert [finding for finding in report.findings if finding.path == "run.yaml"]


@pytest.mark.parametrize("head", HEADS.values(), ids=HEADS)
@pytest.mark.parametrize("arguments", [("run.yaml",), ("--dependents", "run.yaml"), ("--dependents", "cluster.yaml")])
def test_an_aliased_head_is_judged_by_name_and_with_what_it_depends_on(head: str, arguments: tuple[str, ...]) -> None:
    Path("run.yaml").write_text(head + BODY, encoding="utf-8")
    result = invoke(*arguments)
    assert result.exit_code == 1 or "run.yaml: not judged" in result.output
    assert "run.yaml" in result.output


@pytest.mark.parametrize(
    "text",
    [
        "image: &i trainspec/v1\napiVersion: &v apps/v1\nkind: Deployment\nother: *v\n",
        "x: &v apps/v1\nimage: trainspec/v1\napiVersion: *v\nkind: &k Deployment\n",
        "x: &k TrainingPlan\napiVersion: other.io/v1\nkind: *k\nsteps: []\n",
        "x: &v trainspec/v1\nimages: [*v]\n",
        "x: &v [trainspec/v1]\napiVersion: *v\n",
    ],
)
def test_a_text_of_another_program_with_anchors_stays_one(text: str) -> None:
    Path("values.yaml").write_text(text, encoding="utf-8")
    assert why_no_document(Path("values.yaml")) == ""


@pytest.mark.parametrize("text", [PLAN, "kind: TrainingPlan\nx: trainspec/v1\nsteps: [\n"])
def test_a_document_is_known_by_its_head_alone(text: str, monkeypatch: pytest.MonkeyPatch) -> None:
    num_read = 0

    def counted(event: yaml.NodeEvent, anchors: dict[str | None, str]) -> str:
        nonlocal num_read
        num_read += 1
        return value_of(event, anchors)

    value_of = outline._value
    monkeypatch.setattr(outline, "_value", counted)
    Path("plan.yaml").write_text(text, encoding="utf-8")
    assert why_no_document(Path("plan.yaml")) is None
    assert num_read <= 3  # the mapping, its first key and the value of that


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("{y: {{ x }}, kind: TrainingPlan, x: trainspec/v1, z: [", ""),
        ("kind: TrainingPlan\nx: trainspec/v1\ny: {{ x }}\nz: [", None),
        ("{x: trainspec/v1, y: {{ x }}, z: [", ""),
    ],
)
def test_a_template_that_cannot_be_read_is_judged_by_its_lines(text: str, reason: str | None) -> None:
    Path("values.yaml").write_text(text, encoding="utf-8")
    assert why_no_document(Path("values.yaml")) == reason


def test_anchors_end_with_their_document() -> None:
    found = outline.outline_of(b"x: &v trainspec/v1\n---\napiVersion: *v\n")
    assert found is not None
    assert found.top == [("x", "trainspec/v1"), ("apiVersion", "*v")]


def test_a_head_behind_many_keys_is_found_or_the_file_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(outline, "MAX_VALUES", 1_000)
    monkeypatch.chdir(tmp_path)
    keys = "".join(f"k{number}: 1\n" for number in range(2_000))
    head = "apiVersion: trainspec/v1\nkind: TrainingPlan\nmetadata: {name: a}\n"
    for text, is_judged in ((keys + head, True), (f"{keys}v: &v trainspec/v1\napiVersion: *v\n", False)):
        Path("long.yaml").write_text(text, encoding="utf-8")
        Path("plan.yaml").write_text(head, encoding="utf-8")
        report = validate(["."])
        assert ("long.yaml" in {finding.path for finding in report.findings}) is is_judged
        named = [entry.path for entry in report.unjudged if entry.reason == NO_HEAD]
        assert named == ([] if is_judged else ["long.yaml"])
    Path("long.yaml").write_text(f"{keys}notes: any\n", encoding="utf-8")
    assert "long.yaml" not in {entry.path for entry in validate(["."]).unjudged}


def test_the_outline_of_a_long_text_is_cut() -> None:
    found = outline.outline_of(b"k: 1\n" * (outline.MAX_VALUES + 1))
    assert found is not None
    assert found.is_cut
    assert len(found.top) == outline.MAX_VALUES - 1
