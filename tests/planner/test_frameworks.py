"""A plan for a framework runs in it, and what makes no sense is refused."""

from __future__ import annotations

from dataclasses import replace

import pytest

from tests.planner_makers import make
from trainspec_validate.performance.costs.layout import Layout
from trainspec_validate.performance.costs.software import RELEASES, software_of
from trainspec_validate.planner.frameworks import ABILITIES, abilities_of
from trainspec_validate.planner.request import Impossible
from trainspec_validate.planner.search import search
from trainspec_validate.planner.slices import no_slice
from trainspec_validate.planner.space import layouts, shardings

TPU = ("google-tpu-v5p-pod", "llama3-70b")


def test_every_framework_whose_kernels_are_known_has_its_abilities_listed() -> None:
    assert {release.name for release in RELEASES} == set(ABILITIES)
    assert all(able.source for able in ABILITIES.values())


@pytest.mark.parametrize("name", sorted(ABILITIES))
def test_every_form_of_a_layout_runs_in_the_framework(name: str) -> None:
    goal = make("gcp-a3-ultra-h200", "llama3-8b", num_ranks=16, global_sequences=64, framework=name).goal
    forms = [form for layout in layouts(goal) for group in shardings(goal, layout) for form in group]
    assert forms
    assert all(abilities_of(name).runs(form) for form in forms)


def test_plans_for_maxtext_have_no_schedule_and_no_sharding_that_it_lacks() -> None:
    asked = make(*TPU, num_ranks=64, global_sequences=128, framework="maxtext")
    plans = search(asked.goal, 20).plans
    assert plans
    for plan in plans:
        assert plan.choice.layout.pipeline == 1
        assert plan.choice.layout.sharding_stage in {0, 1, 3}


def test_deepspeed_runs_no_interleaved_schedule() -> None:
    goal = make("gcp-a3-ultra-h200", "llama3-70b", num_ranks=64, global_sequences=256, framework="deepspeed").goal
    found = list(layouts(goal))
    assert any(layout.pipeline > 1 for layout in found)
    assert {layout.num_virtual_stages for layout in found} == {1}


def test_megatron_without_a_version_is_the_present_one() -> None:
    assert software_of("megatron-lm") == software_of("megatron-core")
    assert software_of("megatron-lm", "0.12") == software_of("megatron-core", "0.12")
    assert software_of("megatron-lm", "3.0").attention == "unfused"
    told = make("gcp-a3-ultra-h200", "llama3-8b", num_ranks=8, framework="megatron-lm").assumptions
    assert any("megatron-core 0.10 and later" in words for words in told)


def test_the_release_taken_for_a_version_is_told() -> None:
    asked = make("gcp-a3-ultra-h200", "llama3-8b", num_ranks=8, framework="megatron-core==99.9")
    assert "software: kernels and overlap of megatron-core 0.10 and later; for 99.9" in asked.assumptions


@pytest.mark.parametrize(
    ("wishes", "words"),
    [
        ({"framework": "megatron-core==abc"}, "'abc' is no version of megatron-core"),
        ({"framework": "megatron-core=="}, "'' is no version of megatron-core"),
        ({"num_tokens": 1}, "1 tokens are fewer than an optimizer step takes"),
        ({"sequence_length": 1}, "a sequence of one token has nothing to predict"),
    ],
)
def test_nonsense_is_refused(wishes: dict[str, object], words: str) -> None:
    with pytest.raises(Impossible, match=words):
        make("gcp-a3-ultra-h200", "llama3-8b", num_ranks=8, **wishes)


def test_a_number_of_chips_that_is_no_slice_is_refused() -> None:
    with pytest.raises(Impossible, match="100 chips are no slice of google-tpu-v5p; the nearest are 64 and 128"):
        make(*TPU, num_ranks=100)
    assert no_slice("google-tpu-v5e", 512, 256) is None
    assert no_slice("google-tpu-v5e", 384, 256) is not None


@pytest.mark.parametrize(("cluster", "model"), [("gcp-a3-ultra-h200", "llama3-8b"), ("zyphra-ibm-mi300x", "llama3-8b")])
@pytest.mark.parametrize("framework", [None, "megatron-core"])
def test_every_figure_is_inside_of_its_band(cluster: str, model: str, framework: str | None) -> None:
    asked = make(cluster, model, num_ranks=16, global_sequences=64, framework=framework)
    for plan in search(asked.goal, 10).plans:
        low, high = plan.outlook.low_seconds, plan.outlook.high_seconds
        assert low
        assert high
        assert low <= plan.outlook.step.seconds <= high
        assert plan.memory.low_total <= plan.memory.total <= plan.memory.high_total


def test_fms_fsdp_shards_parameters_or_nothing() -> None:
    whole = Layout(data=16, tensor=1, pipeline=1, context=1)
    runs = [abilities_of("fms-fsdp").runs(replace(whole, sharding_stage=stage)) for stage in range(4)]
    assert runs == [True, False, False, True]
