"""What a prediction starts from: formats, peaks and layouts as the documents mean them."""

from __future__ import annotations

from dataclasses import replace

import msgspec
import pytest

from tests.planner_makers import CLUSTERS, make, model, profile
from trainspec_validate.documents.load import load_file
from trainspec_validate.documents.types import TrainingPlan, changed, read
from trainspec_validate.performance.costs.kernel_efficiency import TPU_MATMUL_FRACTION
from trainspec_validate.performance.derived.job import JobNodes
from trainspec_validate.performance.forecast.facts import (
    USUAL_MATMUL_SHARE,
    Unpredictable,
    layout_of,
    machine_facts,
    machine_of,
    model_facts,
)
from trainspec_validate.planner.request import precision_of

LLAMA = CLUSTERS.parent / "plans" / "llama3-405b-16384.yaml"


def plan(**changes: object) -> TrainingPlan:
    document = read("TrainingPlan", load_file(LLAMA).data)
    assert isinstance(document, TrainingPlan)
    return changed(document, parallelism=changed(document.parallelism, **changes))


def test_the_ranks_that_share_a_copy_count_context_ranks_in_a_plan_only() -> None:
    sharded = layout_of(plan(data=64, context=2, sharding="optimizer", sharding_degree=8))
    assert (sharded.sharding_degree, sharded.num_shards) == (4, 8)
    assert layout_of(plan(data=64, context=2, sharding="optimizer")).num_shards == 128


def test_shards_within_a_sequence_are_not_predicted() -> None:
    with pytest.raises(Unpredictable, match="2 ranks share a copy, which 4 context ranks"):
        layout_of(plan(data=32, context=4, sharding="optimizer", sharding_degree=2))


def test_a_plan_without_a_sequence_length_is_not_predicted() -> None:
    given = plan()
    without = changed(given, model=changed(given.model, sequence_length=None))
    with pytest.raises(Unpredictable, match="no sequence length"):
        layout_of(without)


def test_ranks_of_one_package_have_their_share_of_it() -> None:
    cluster = profile("frontier")
    machine = machine_facts(cluster, JobNodes(cluster.node_groups[0], 0), cluster.fabrics[0], 8)
    assert machine.peak(("bf16",)) == ("bf16", 383e12 / 2)
    assert machine.memory_bytes == 137.40539904e9 / 2  # as devices report
    assert machine.memory_bandwidth_bytes_per_second == pytest.approx(3.2768e12 / 2, rel=0.01)


def test_the_nearest_format_with_a_peak_is_taken() -> None:
    machine = make("gcp-a3-ultra-h200", "llama3-8b", num_ranks=8).goal.machine
    rated = replace(machine, peak_flops_per_second={"fp8-e4m3": 3.0, "bf16": 2.0, "fp16": 1.0})
    assert rated.peak(("fp8", "fp8-e4m3")) == ("fp8-e4m3", 3.0)
    assert rated.wide_peak == 2.0
    assert replace(machine, peak_flops_per_second={"fp16": 1.0}).wide_peak == 1.0
    assert replace(machine, peak_flops_per_second={"fp8": 1.0}).wide_peak is None
    with pytest.raises(Unpredictable, match="no peak rate for mxfp8, only for bf16, fp16, fp8-e4m3"):
        rated.peak(("mxfp8", "fp8"))


def test_an_unmeasured_accelerator_has_the_usual_share() -> None:
    machine = make("gcp-a3-ultra-h200", "llama3-8b", num_ranks=8).goal.machine
    share, measured = machine.matmul_share("bf16")
    assert measured
    assert 0.5 < share < 1
    assert replace(machine, accelerator="somebody-x1").matmul_share("bf16") == (USUAL_MATMUL_SHARE, False)
    assert replace(machine, accelerator="google-tpu-v4").matmul_share("bf16") == (TPU_MATMUL_FRACTION, False)
    assert replace(machine, accelerator="google-tpu-v7x").matmul_share("bf16") == (0.829, True)
    assert replace(machine, accelerator="google-tpu-v7x").matmul_share("fp8") == (0.829, False)


def test_bytes_of_mixed_precision() -> None:
    facts = model_facts(model("llama3-8b"), precision_of("bf16"))
    assert (facts.state.weights, facts.state.master, facts.state.gradients, facts.state.moments) == (2, 4, 4, 8)
    assert (facts.reduction_bytes, facts.parameter_bytes, facts.compute_formats) == (4, 2, ("bf16",))
    assert model_facts(model("llama3-8b"), precision_of("fp8")).compute_formats[0] == "fp8"
    narrow = changed(precision_of("bf16"), reduction="bf16", accumulation=None, gradients="bf16")
    facts = model_facts(model("llama3-8b"), narrow)
    assert (facts.reduction_bytes, facts.state.gradients) == (2, 2)


def test_a_model_without_a_shape_is_not_predicted() -> None:
    with pytest.raises(Unpredictable, match="not that of a complete transformer"):
        model_facts(changed(model("llama3-8b"), num_layers=None), precision_of("bf16"))


def test_unknown_machines_say_what_is_absent() -> None:
    cluster = profile("meta-llama3-24k")
    group = cluster.node_groups[0]
    unknown = msgspec.structs.replace(group.accelerator, model="x1", memory_bytes=None, peak_rates=())
    nodes = JobNodes(msgspec.structs.replace(group, accelerator=unknown), 0)
    other = msgspec.structs.replace(cluster, node_groups=(nodes.group,))
    with pytest.raises(Unpredictable, match=r"state memory_bytes and .*peak_rates in"):
        machine_facts(other, nodes, None, 8)
    for known in ({"memory_bytes": 80e9}, {"peak_rates": group.accelerator.peak_rates}):
        half = msgspec.structs.replace(group, accelerator=msgspec.structs.replace(unknown, **known))
        partly = msgspec.structs.replace(cluster, node_groups=(half,))
        with pytest.raises(Unpredictable, match=r"of x1 (is|are) not known"):
            machine_facts(partly, JobNodes(half, 0), None, 8)
    with pytest.raises(Unpredictable, match="does not say which node group"):
        machine_of(changed(plan(), node_group="west"), cluster)
