"""Documents that a run or a series is judged with, where there are several of a kind."""

from __future__ import annotations

from pathlib import Path

from trainspec_validate.documents.load import load_file
from trainspec_validate.documents.types import CheckpointPolicy, ClusterProfile, Document, TrainingPlan, changed, read
from trainspec_validate.performance.derived.groups import narrowed
from trainspec_validate.pipeline.streams import belonging

BASE = Path(__file__).resolve().parents[1] / "spec" / "v1" / "base"


def document(name: str, label: str = "") -> Document:
    data = load_file(BASE / f"{name}.yaml").data
    return read(data["kind"], data | {"metadata": {"name": label or name}})


def test_the_only_plan_chooses_between_clusters() -> None:
    plan, own, other = document("plan"), document("cluster"), document("cluster", "other")
    sets = [{ClusterProfile: other}, {ClusterProfile: own}, {TrainingPlan: plan, ClusterProfile: own}]
    found = belonging(sets)
    assert found[TrainingPlan] is plan
    assert found[ClusterProfile] is own


def test_a_cluster_between_which_nothing_chooses_does_not_count() -> None:
    first, second = document("plan"), document("plan", "second")
    own, other = document("cluster"), document("cluster", "other")
    sets = [{TrainingPlan: first, ClusterProfile: own}, {TrainingPlan: second, ClusterProfile: other}]
    assert belonging(sets) == {}


def test_the_only_policy_chooses_between_plans_with_their_clusters() -> None:
    first, second, policy = document("plan"), document("plan", "second"), document("checkpoint")
    own, other = document("cluster"), document("cluster", "other")
    pairs = [{TrainingPlan: first, ClusterProfile: own}, {TrainingPlan: second, ClusterProfile: other}]
    found = belonging([*pairs, {CheckpointPolicy: policy, **pairs[1]}])
    assert [found[kind] for kind in (CheckpointPolicy, TrainingPlan, ClusterProfile)] == [policy, second, other]


def test_the_group_that_a_plan_names_is_all_that_its_run_is_held_against() -> None:
    plan, cluster = document("plan"), document("cluster")
    assert isinstance(plan, TrainingPlan)
    assert isinstance(cluster, ClusterProfile)
    two = changed(cluster, node_groups=(*cluster.node_groups, changed(cluster.node_groups[0], name="other")))
    assert narrowed(plan, two) is two
    assert narrowed(changed(plan, node_group="unknown"), two) is two
    assert [group.name for group in narrowed(changed(plan, node_group="other"), two).node_groups] == ["other"]
