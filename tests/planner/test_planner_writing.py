"""What is written means what was chosen: it reads back, predicts the same step, and gives reasons of its own."""

from __future__ import annotations

from dataclasses import replace
from functools import cache

import msgspec
import pytest

from tests.every import every
from tests.planner_makers import make, model, profile
from trainspec_validate.documents.commented import as_text
from trainspec_validate.documents.load import load_text
from trainspec_validate.documents.types import CheckpointPolicy, ClusterProfile, TrainingPlan, read
from trainspec_validate.documents.types.base import SoftwareComponent
from trainspec_validate.documents.types.cluster import StorageTarget
from trainspec_validate.model.units import seconds
from trainspec_validate.performance.derived.state import state_bytes_per_rank
from trainspec_validate.performance.forecast.predict import predict
from trainspec_validate.planner.explain import collectives_of, nearest_other, reason, reasons
from trainspec_validate.planner.plan_text import PLAN_FILE, POLICY_FILE, documents
from trainspec_validate.planner.request import Request, Wishes, request
from trainspec_validate.planner.search import Ranking, Scored, fitting, search, settings_of
from trainspec_validate.planner.space import dimensions, layouts
from trainspec_validate.planner.starter.plan import TIMEOUT_SECONDS

CASES: list[tuple[str, str, dict[str, object]]] = [
    ("dgx-superpod-h100", "llama3-70b", {"num_ranks": 256, "global_sequences": 256}),
    ("gcp-a3-ultra-h200", "qwen3-30b-a3b", {"num_ranks": 32, "number_format": "fp8"}),
    ("frontier", "llama3-8b", {"num_ranks": 128, "sequence_length": 16384}),
]
PLACES = [pytest.param(n, marks=pytest.mark.slow) if n in {1, 2} else n for n in range(len(CASES))]
"""Cases by their number; a search of seconds is slow."""
NUM_CHOSEN = 24


@cache
def ranked(place: int) -> tuple[Request, Ranking]:
    cluster, name, wishes = CASES[place]
    asked = make(cluster, name, **wishes)
    return asked, search(asked.goal, 40)


def written(asked: Request, ranking: Ranking, scored: Scored) -> tuple[TrainingPlan, CheckpointPolicy]:
    """The two documents as the strict loader and the published schema read them."""
    texts = documents(asked, ranking, scored, f"{{name: {as_text(asked.cluster.metadata.name)}}}")
    plan, policy = (
        read(kind, load_text(texts[name].encode(), name).data)
        for kind, name in (("TrainingPlan", PLAN_FILE), ("CheckpointPolicy", POLICY_FILE))
    )
    assert isinstance(plan, TrainingPlan)
    assert isinstance(policy, CheckpointPolicy)
    return plan, policy


def spread(asked: Request, ranking: Ranking) -> list[Scored]:
    """Choices from all over the space, with every sharding."""
    forms = [form for layout in list(layouts(asked.goal))[::7] for form in fitting(asked.goal, layout)]
    found = []
    for choice, stage, memory in forms[:: max(1, len(forms) // NUM_CHOSEN)]:
        like = ranking.best[0]
        found.append(replace(like, choice=choice, stage=stage, memory=memory))
    return found


@pytest.mark.slow
@pytest.mark.parametrize("place", range(len(CASES)))
def test_a_written_plan_is_the_one_that_was_chosen(place: int) -> None:
    asked, ranking = ranked(place)
    for scored in [*ranking.best[:4], *spread(asked, ranking)]:
        plan, _ = written(asked, ranking, scored)
        predicted = predict(plan, asked.cluster)
        layout = predicted.layout
        assert layout.num_shards == scored.choice.layout.num_shards
        assert replace(layout, sharding_degree=None, schedule="", expert_tensor=None) == replace(
            scored.choice.layout, sharding_degree=None, schedule="", expert_tensor=None
        )
        assert predicted.settings == settings_of(scored.choice)
        used = {"tensor": layout.tensor, "data": layout.data, "pipeline": layout.pipeline}
        placed = {placement.axis: placement.within for placement in plan.parallelism.placements}
        within = {"tensor": "scale-up-domain", "data": "fabric", "pipeline": "fabric"}
        assert placed == {axis: within[axis] for axis, degree in used.items() if degree > 1}
        assert predicted.memory is not None
        assert predicted.memory == (scored.stage, scored.memory)
        assert state_bytes_per_rank(plan) <= scored.memory.total
    plan, _ = written(asked, ranking, ranking.best[0])
    assert predict(plan, asked.cluster).outlook == ranking.best[0].outlook


@pytest.mark.slow
@pytest.mark.parametrize("place", [0, 1])
def test_an_algorithm_is_for_messages_near_those_of_the_plan(place: int) -> None:
    asked, ranking = ranked(place)
    sent = {(item.transfer.axis, item.transfer.operation): item for item in collectives_of(asked, ranking.best[0])}
    plan, _ = written(asked, ranking, ranking.best[0])
    assert plan.communication is not None
    assert plan.communication.collectives
    for choice in plan.communication.collectives:
        item = sent[choice.axis or "", choice.operation]
        assert choice.algorithm == item.estimate.algorithm
        assert choice.min_bytes == pytest.approx(item.transfer.message_bytes / 2, rel=1e-4)
        assert choice.max_bytes == pytest.approx(item.transfer.message_bytes * 2, rel=1e-4)


def test_context_ranks_count_among_those_that_share_a_copy() -> None:
    asked, ranking = ranked(0)
    both = [
        scored
        for scored in ranking.alternatives.values()
        if scored.choice.layout.context > 1 and (scored.choice.layout.sharding_degree or 0) > 1
    ] or [
        replace(ranking.best[0], choice=choice, stage=stage, memory=memory)
        for layout in layouts(asked.goal)
        if layout.context > 1
        for choice, stage, memory in fitting(asked.goal, layout)
        if choice.layout.sharding_degree
    ]
    layout = both[0].choice.layout
    assert layout.sharding_degree is not None
    plan, _ = written(asked, ranking, both[0])
    assert plan.parallelism.sharding_degree == layout.sharding_degree * layout.context
    assert plan.parallelism.context_method == "all-gather"


def test_reasons_are_those_of_the_plan_that_is_written() -> None:
    asked, ranking = ranked(0)
    best, later = ranking.plans[0], ranking.plans[-1]
    assert reasons(ranking, best) == reasons(ranking)
    differing = [name for name, value in dimensions(later.choice).items() if value != dimensions(best.choice)[name]]
    assert differing
    for name in differing:
        told = reason(ranking, name, later)
        other = nearest_other(ranking, name, later)
        assert other is not None
        assert f"at best takes {seconds(other.seconds)}, " in told or told.endswith("takes as long")
    texts = documents(asked, ranking, later, "{name: x}")
    assert reason(ranking, differing[0], later) in texts[PLAN_FILE]


@pytest.mark.parametrize("place", PLACES)
def test_a_running_job_that_hangs_is_seen_before_its_collectives_are_given_up(place: int) -> None:
    asked, ranking = ranked(place)
    plan, policy = written(asked, ranking, ranking.plans[0])
    layers = {layer.layer: layer for layer in policy.detection if "hang" in layer.faults}
    assert layers["step-watchdog"].signal == "progress"
    assert layers["step-watchdog"].timeout_seconds < layers["collective-watchdog"].timeout_seconds
    assert plan.communication is not None
    assert layers["collective-watchdog"].timeout_seconds == plan.communication.timeout_seconds == TIMEOUT_SECONDS


@every("odd", ["123", "true", "1e5", "null", "0x10", "1.0", "2026-11-21", "No", "a" * 128])
def test_names_stay_names(odd: str) -> None:
    cluster, wanted = profile("gcp-a3-ultra-h200"), msgspec.structs.replace(model("llama3-8b"), name=odd)
    _, ranking = ranked_once()  # a name changes no figure
    plan, policy = written(_named(cluster, odd, wanted), ranking, ranking.best[0])
    assert plan.model.name == odd
    assert plan.cluster is not None
    assert plan.cluster.name == odd
    assert (plan.node_group, plan.communication and plan.communication.fabric) == (odd, odd)
    assert policy.tiers[-1].storage == odd


def _named(cluster: ClusterProfile, odd: str, wanted: object) -> Request:
    put = msgspec.structs.replace
    group = cluster.node_groups[0]
    nics = tuple(put(nic, fabric=odd) if nic.role == "compute" else nic for nic in group.nics)
    store = StorageTarget(name=odd, kind="object-store", scope="cluster", failure_domain="site")
    cluster = put(
        cluster,
        metadata=put(cluster.metadata, name=odd),
        node_groups=(put(group, name=odd, nics=nics), put(group, name="other", nics=())),
        fabrics=(put(cluster.fabrics[0], name=odd),),
        storage_targets=(store,),
    )
    return request(cluster, wanted, Wishes(num_ranks=16, node_group=odd))  # type: ignore[arg-type]


@pytest.mark.parametrize(
    "version", ["2.30", "a: b", "x}", "#1", '"q"', "it's", "- x", "1e5", "ü", "a\nb", "\x7f", "[", ", y"]
)
def test_versions_stay_text(version: str) -> None:
    cluster = profile("gcp-a3-ultra-h200")
    assert cluster.software is not None
    library = SoftwareComponent(name="nccl", version=version)
    pinned = msgspec.structs.replace(
        cluster, software=msgspec.structs.replace(cluster.software, collective_library=library)
    )
    asked, ranking = ranked_once()
    plan, _ = written(replace(asked, cluster=pinned), ranking, ranking.best[0])
    assert plan.communication is not None
    assert plan.communication.library is not None
    assert plan.communication.library.version == version


@cache
def ranked_once() -> tuple[Request, Ranking]:
    asked = make("gcp-a3-ultra-h200", "llama3-8b", num_ranks=16)
    return asked, search(asked.goal, 1)


@pytest.mark.parametrize("place", PLACES)
def test_a_planned_time_out_outlasts_a_first_set_up(place: int) -> None:
    """A library waits as long for its first connections as for a hang: as long as `init` writes, not a minute."""
    asked, ranking = ranked(place)
    plan, policy = written(asked, ranking, ranking.plans[0])
    assert plan.communication is not None
    assert (plan.communication.timeout_seconds or 0) >= TIMEOUT_SECONDS == 600
    watching = [layer.timeout_seconds for layer in policy.detection if layer.signal == "collective-timeout"]
    assert watching == [plan.communication.timeout_seconds]
