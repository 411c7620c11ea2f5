"""The models as a launcher uses them: made, changed, checked, read and written."""

from __future__ import annotations

import json
from pathlib import Path

import pydantic
import pytest

from trainspec_validate import InputError, InvalidDocumentError, models, validate
from trainspec_validate.documents.load import load_file, load_text
from trainspec_validate.documents.types import KINDS, SIDE_KINDS, read
from trainspec_validate.models import Batch, CheckpointPolicy, ClusterProfile, Damage, Scenario, Start, TrainingPlan

ROOT = Path(__file__).resolve().parents[2]
BASE = ROOT / "spec" / "v1" / "base"


def test_there_is_a_model_of_every_kind() -> None:
    for kind, struct in {**KINDS, **SIDE_KINDS}.items():
        model = getattr(models, struct.__name__)
        assert model.__name__ in models.__all__
        assert set(model.model_fields) == {*struct.__struct_fields__, "kind"}
        assert model.model_json_schema()["properties"]["kind"]["const"] == kind


def test_the_kind_is_given_by_the_class_and_required_of_a_mapping() -> None:
    waivers = models.Waivers(waivers=[])
    assert waivers.model_dump() == {"apiVersion": "trainspec/v1", "kind": "Waivers", "waivers": []}
    with pytest.raises(pydantic.ValidationError, match="kind"):
        models.Waivers.model_validate({"apiVersion": "trainspec/v1", "waivers": []})
    with pytest.raises(pydantic.ValidationError, match="kind"):
        models.Waivers(kind="TrainingPlan", waivers=[])  # type: ignore[call-arg]


def test_a_change_is_judged() -> None:
    plan = TrainingPlan.load(BASE / "plan.yaml")
    with pytest.raises(pydantic.ValidationError, match="greater than or equal to 1"):
        plan.batch.global_sequences = 0
    with pytest.raises(pydantic.ValidationError):
        plan.batch.global_sequnces = 8  # type: ignore[attr-defined]
    assert plan.batch.global_sequences == load_file(BASE / "plan.yaml").data["batch"]["global_sequences"]


def test_check_is_the_verdict_on_the_text(tmp_path: Path) -> None:
    plan = TrainingPlan.load(BASE / "plan.yaml")
    cluster, policy = ClusterProfile.load(BASE / "cluster.yaml"), CheckpointPolicy.load(BASE / "checkpoint.yaml")
    assert plan.check(cluster, policy).findings == ()
    plan.parallelism.data = 7
    found = plan.check(cluster, policy).findings
    assert "TS-PAR-001" in {each.requirement for each in found}
    file = tmp_path / "plan.yaml"
    file.write_text(plan.to_yaml(), encoding="utf-8")
    of_file = validate([file, BASE / "cluster.yaml", BASE / "checkpoint.yaml"]).findings
    assert [(e.requirement, e.message, e.span) for e in found] == [(e.requirement, e.message, e.span) for e in of_file]


@pytest.mark.parametrize("path", sorted(p for p in (ROOT / "examples").rglob("*.yaml") if "broken" not in p.parts))
def test_examples_are_read_and_written_again(path: Path) -> None:
    data = load_file(path).data
    model = getattr(models, {**KINDS, **SIDE_KINDS}[data["kind"]].__name__).load(path)
    typed = read(data["kind"], data)
    assert read(data["kind"], load_text(model.to_yaml(), "a.yaml").data) == typed
    assert read(data["kind"], json.loads(model.model_dump_json())) == typed
    assert type(model).from_record(typed) == model
    assert list(load_text(model.to_yaml(), "a.yaml").data)[:3] == ["apiVersion", "kind", "metadata"]


def test_a_file_with_errors_is_refused_with_its_lines(tmp_path: Path) -> None:
    file = tmp_path / "plan.yaml"
    file.write_text("apiVersion: trainspec/v1\nkind: TrainingPlan\nmetdata: {name: a}\n", encoding="utf-8")
    with pytest.raises(InvalidDocumentError) as caught:
        TrainingPlan.load(file)
    assert [each.requirement for each in caught.value.findings] == ["TS-DOC-005", "TS-DOC-006"]
    assert f"{file.as_posix()}:3:1: TS-DOC-005: unknown key 'metdata'" in str(caught.value)
    with pytest.raises(InvalidDocumentError, match="a ClusterProfile is wanted, this is a TrainingPlan"):
        ClusterProfile.load(BASE / "plan.yaml")
    with pytest.raises(InputError, match=r"absent\.yaml: "):
        TrainingPlan.load(tmp_path / "absent.yaml")
    with pytest.raises(InvalidDocumentError, match=r"memory\.yaml:2:1: TS-DOC-002"):
        TrainingPlan.from_text("a: 1\na: 2\n", "memory.yaml")


def test_nulls_count_as_absent_in_python_and_not_in_files() -> None:
    batch = Batch(global_sequences=8, micro_sequences=1, accumulation_steps=1, controller=None)
    assert batch.model_dump() == {"global_sequences": 8, "micro_sequences": 1, "accumulation_steps": 1}
    with pytest.raises(InvalidDocumentError, match="leave the key out"):
        TrainingPlan.from_text((BASE / "plan.yaml").read_text(encoding="utf-8") + "\nnode_group: null\n")


def test_alternatives_are_told_apart_by_their_key() -> None:
    acts = [Start(), Damage(kinds=["flip-bit"])]
    assert [each.model_dump() for each in acts] == [{"act": "start"}, {"act": "damage", "kinds": ["flip-bit"]}]
    path = next(iter(sorted((ROOT / "conformance" / "scenarios").glob("*/scenario.yaml"))))
    scenario = Scenario.load(path)
    scenario.acts = [*scenario.acts, acts[1]]
    assert isinstance(Scenario.from_text(scenario.to_yaml()).acts[-1], Damage)


def test_a_tuple_is_a_list() -> None:
    plan = TrainingPlan.load(BASE / "plan.yaml")
    plan.unknowns = ("job.seed",)  # type: ignore[assignment]
    assert plan.unknowns == ["job.seed"]


def test_models_do_not_share_their_defaults() -> None:
    one, other = (models.Metadata(name=name) for name in "ab")
    one.labels["a"] = "b"
    assert other.labels == {}


def test_what_an_extension_cannot_hold(tmp_path: Path) -> None:
    plan = TrainingPlan.load(BASE / "plan.yaml")
    plan.extensions = {"org.example": {"path": tmp_path}}
    with pytest.raises(InputError, match=r"^TrainingPlan\.extensions\.org\.example\.path: a document cannot hold a "):
        plan.to_yaml()
