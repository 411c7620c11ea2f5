"""DeepSpeed: configuration files become parts of plans."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest
from plan_files import assert_sound, at, broken, converted, document, findings, how, imported, remarks_of, unknown_keys

from tests.step_counts import num_steps, quadratic_share
from trainspec_validate.interop.fragment import ForeignFormatError, ForeignText, Fragment
from trainspec_validate.interop.merge import merge
from trainspec_validate.interop.readers import _plan_settings
from trainspec_validate.interop.readers._deepspeed_plan import elastic_sizes
from trainspec_validate.interop.readers._plan_identities import complete_joint
from trainspec_validate.interop.readers._plan_settings import MAX_SETTINGS, top_keys
from trainspec_validate.interop.readers.deepspeed import looks_like, read
from trainspec_validate.interop.recognise import recognise

FP32_OPERATIONS = {"high_precision_operations": ["softmax", "normalization", "loss"]}
MODEL: dict[str, Any] = {
    "name": "dense",
    "family": "dense-transformer",
    "num_parameters": 8_030_261_248,
    "num_layers": 32,
    "hidden_size": 4096,
    "num_attention_heads": 32,
    "num_key_value_heads": 8,
    "ffn_hidden_size": 14336,
    "gated_ffn": True,
    "vocabulary_size": 128256,
    "sequence_length": 4096,
    "attention": "grouped-query",
}


def config(**values: Any) -> Fragment:
    return read(ForeignText("ds.json", json.dumps(values)))


@pytest.mark.parametrize(
    ("stage", "wanted"), [(2, None), (3, [{"what": "parameters", "target": "host", "fraction": 1}])]
)
def test_parameters_are_offloaded_at_stage_3_alone(stage: int, wanted: list[dict[str, object]] | None) -> None:
    fragment = config(zero_optimization={"stage": stage, "offload_param": {"device": "cpu"}}, train_batch_size=8)
    assert fragment.facts.get("memory", {}).get("offload") == wanted
    assert ("has an effect at stage 3" in remarks_of(fragment)) == (wanted is None)


def test_stage_2_with_offload(tmp_path: Path) -> None:
    fragment = imported("deepspeed-zero2.json")
    assert_sound(fragment)
    assert fragment.facts["parallelism"] == {"data": 32, "sharding": "gradients"}
    assert at(fragment, "communication", "bucket_bytes") == 200e6
    assert at(fragment, "memory", "offload") == [{"what": "optimizer", "target": "host", "fraction": 1.0}]
    assert "optimizer.params.betas" in remarks_of(fragment)
    assert {"model", "memory.activation_policy", "precision.high_precision_operations"} <= unknown_keys(fragment)
    answers = {
        "model": MODEL,
        "parallelism": {"num_accelerators": 32},
        "precision": FP32_OPERATIONS,
        "memory": {"activation_policy": "full"},
        "optimizer": {"learning_rate": {"peak": 2e-4}},  # without warmup_max_lr the release decides
    }
    assert "optimizer.learning_rate.peak" in unknown_keys(fragment)
    converted(document(fragment, answers))
    assert broken(document(fragment, answers), tmp_path) == set()


WIDE = {"data_types": {"grad_accum_dtype": "fp32"}}


@pytest.mark.parametrize(
    ("more", "gradients", "accumulation"),
    [
        ({}, None, None),
        ({"zero_optimization": {"stage": 0}}, None, None),
        ({"zero_optimization": {"stage": 2}}, "bf16", None),
        ({"data_types": {"grad_accum_dtype": "bf16"}}, "bf16", "bf16"),
        ({"zero_optimization": {"stage": "auto"}}, None, None),
        (WIDE, "fp32", "fp32"),
        ({"zero_optimization": {"stage": 1}, **WIDE}, "fp32", "fp32"),
        ({"zero_optimization": {"stage": 2}, **WIDE}, "fp32", "fp32"),
        ({"zero_optimization": {"stage": 3}, **WIDE}, "bf16", "fp32"),
        ({"zero_optimization": {"stage": "auto"}, **WIDE}, None, "fp32"),
    ],
)
def test_bf16_gradients_have_the_format_that_they_are_added_up_in(
    more: dict[str, Any], gradients: str | None, accumulation: str | None
) -> None:
    fragment = config(train_micro_batch_size_per_gpu=1, bf16={"enabled": True}, **more)
    assert at(fragment, "precision", "gradients") == gradients
    assert ("precision.gradients" in unknown_keys(fragment)) == (gradients is None)
    assert at(fragment, "precision", "accumulation") == accumulation


def test_gradients_without_zero_name_both_formats() -> None:
    fragment = config(train_micro_batch_size_per_gpu=1, bf16={"enabled": True})
    why = {entry.pointer: entry.reason for entry in fragment.unknown}["precision", "gradients"]
    assert "fp32 before DeepSpeed 0.17.6, bf16 since" in why


def test_elastic_sizes_of_the_documented_algorithm(tmp_path: Path) -> None:
    fragment = imported("deepspeed-fp16-elastic.json")
    assert_sound(fragment)
    assert at(fragment, "batch", "global_sequences") == 9792
    degrees = at(fragment, "batch", "elastic", "data_degrees")
    assert len(degrees) == 23
    for degree in degrees:
        assert any(9792 % (degree * micro) == 0 for micro in (8, 12, 16, 17))
    assert at(fragment, "precision", "loss_scaling", "initial_scale") == 2**15
    answers = {
        "model": MODEL,
        "parallelism": {"num_accelerators": 72, "data": 72},
        "precision": FP32_OPERATIONS,
        "memory": {"activation_policy": "full"},
        "batch": {"micro_sequences": 8, "accumulation_steps": 17},
    }
    converted(document(fragment, answers))
    assert broken(document(fragment, answers), tmp_path) == set()


@pytest.mark.parametrize(
    ("batch", "micro", "least", "most"), [(64, [2, 3], 1, 40), (100, [4], 2, 10), (37, [5, 7], 1, 99)]
)
def test_elastic_sizes_are_all_of_them(batch: int, micro: list[int], least: int, most: int) -> None:
    found, counts = elastic_sizes(batch, micro, least, most)
    every = [g for g in range(least, most + 1) if any(found % (size * g) == 0 for size in micro)]
    assert counts == every
    assert found <= batch


@pytest.mark.parametrize(("batch", "micro"), [(10, []), (10, [0]), (10, [11]), (10**9, [1])])
def test_elastic_sizes_out_of_bounds(batch: int, micro: list[int]) -> None:
    with pytest.raises(ValueError, match=r"micro-batches|not computed"):
        elastic_sizes(batch, micro, 1, 10)


def test_a_batch_that_does_not_multiply(tmp_path: Path) -> None:
    fragment = imported("deepspeed-bad-triple.json")
    assert at(fragment, "parallelism", "data") is None
    assert "2: train_batch_size 1000 is no multiple" in remarks_of(fragment)
    answers = {"model": MODEL, "parallelism": {"num_accelerators": 20, "data": 20}, "precision": FP32_OPERATIONS}
    assert ("TS-BAT-001", "batch.global_sequences") in broken(document(fragment, answers), tmp_path)


def test_types_as_the_documentation_page_prints_them(tmp_path: Path) -> None:
    fragment = imported("deepspeed-bad-elastic.json")
    assert_sound(fragment)
    assert at(fragment, "batch", "elastic", "micro_sequences") == 8
    told = remarks_of(fragment)
    for words in (
        "7: elasticity.micro_batch_sizes is 8",
        "max_train_batch_size is 'seqlen'",
        "max_gpus is 'fixed_linear'",
    ):
        assert words in told
    assert "batch.elastic.data_degrees" in unknown_keys(fragment)
    places = {".".join(map(str, found.pointer)) for found in findings(document(fragment), tmp_path)}
    assert "batch.elastic.micro_sequences" in places
    assert "batch.micro_sequences" in unknown_keys(fragment)


def test_fp16_without_loss_scaling_is_found(tmp_path: Path) -> None:
    fragment = config(train_batch_size=64, train_micro_batch_size_per_gpu=8, fp16={"enabled": True})
    answers = {"model": MODEL, "parallelism": {"num_accelerators": 8, "data": 8}, "precision": FP32_OPERATIONS}
    plan = document(fragment, {"batch": {"accumulation_steps": 1}}, answers)
    assert broken(plan, tmp_path) == set()
    del plan["precision"]["loss_scaling"]
    assert "TS-PRC-001" in {requirement for requirement, _ in broken(plan, tmp_path)}


def test_a_file_and_the_ranks_of_accelerate_make_the_batch() -> None:
    whole = merge([imported("deepspeed-fp16-elastic.json"), imported("accelerate-deepspeed.yaml")])
    assert whole.facts["parallelism"]["num_accelerators"] == 32
    facts: dict[str, Any] = {"parallelism": {"num_accelerators": 32, "tensor": 2}, "batch": {"micro_sequences": 4}}
    facts["batch"]["accumulation_steps"] = 2
    assert complete_joint(facts, {}) == []
    assert facts["parallelism"]["data"] == 16
    assert facts["batch"]["global_sequences"] == 128


def test_words_that_the_trainer_fills_in() -> None:
    fragment = config(train_batch_size="auto", fp16={"enabled": "auto"}, zero_optimization={"stage": 2})
    assert {"batch.global_sequences", "precision.compute"} <= unknown_keys(fragment)
    assert "auto" in remarks_of(fragment)


def test_a_bucket_whose_format_is_not_told_stays_open() -> None:
    zero = {"stage": 3, "reduce_bucket_size": 5e8}
    fragment = config(train_batch_size=64, bf16={"enabled": "auto"}, zero_optimization=zero)
    assert "communication.bucket_bytes" in unknown_keys(fragment)
    [reason] = [item.reason for item in fragment.unknown if item.pointer == ("communication", "bucket_bytes")]
    assert "500000000 elements" in reason


def test_an_unknown_degree_leaves_the_accelerators_open_beside_other_files() -> None:
    own = config(train_batch_size=256, train_micro_batch_size_per_gpu=2, gradient_accumulation_steps=4)
    whole = merge([own, imported("hf-llama-config.json")])
    assert whole.facts["parallelism"]["data"] == 32
    assert "num_accelerators" not in whole.facts["parallelism"]
    unknown = {entry.pointer for entry in whole.unknown}
    assert {("parallelism", "num_accelerators"), ("parallelism", "pipeline")} <= unknown


def test_compressed_gradients() -> None:
    optimizer = {"type": "OneBitAdam", "params": {"freeze_step": 400}}
    fragment = config(train_batch_size=64, optimizer=optimizer, fp16={"enabled": True, "loss_scale": 128})
    compression = {"method": "one-bit", "error_feedback": True, "start_step": 400}
    assert at(fragment, "communication", "compression") == compression
    assert at(fragment, "precision", "loss_scaling") == {"mode": "static", "initial_scale": 128.0}


def test_defaults_name_their_page() -> None:
    fragment = config(train_batch_size=64, zero_optimization={"stage": 3})
    assert at(fragment, "communication", "overlap_gradients") is True
    assert "config-json.md" in how(fragment, "communication.overlap_gradients")


def test_more_settings_than_any_job_has() -> None:
    with pytest.raises(ForeignFormatError, match="more than"):
        config(**{f"key{number}": 1 for number in range(MAX_SETTINGS + 1)})


def test_structures_where_numbers_belong() -> None:
    fragment = config(train_batch_size={"a": 1}, train_micro_batch_size_per_gpu=[{"a": 1}], zero_optimization=3)
    assert_sound(fragment)
    assert {"batch.micro_sequences", "batch.global_sequences"} <= unknown_keys(fragment)
    assert at(fragment, "batch", "micro_sequences") is None


@pytest.mark.parametrize("stage", [4, "2", True])
def test_a_stage_that_is_none(stage: object) -> None:
    fragment = config(train_batch_size=64, zero_optimization={"stage": stage})
    assert_sound(fragment)
    if stage is not True:
        assert "where 0 to 3 belongs" in remarks_of(fragment)
        assert at(fragment, "parallelism", "sharding") == stage


@pytest.mark.parametrize("text", ["[1]", "{", "{'a': 1", '{"train_batch_size": 1, "train_batch_size": 2}'])
def test_what_is_refused(text: str) -> None:
    with pytest.raises(ForeignFormatError):
        read(ForeignText("ds.json", text))


def test_a_whole_model_inside_a_section_is_still_deepspeed() -> None:
    shape = {"architectures": ["LlamaForCausalLM"], "hidden_size": 4096, "model_type": "llama"}
    inside = {"train_batch_size": 8, "client": {"model": shape}}
    assert recognise(ForeignText("ds.json", json.dumps(inside))).name == "deepspeed-json"
    vision = {"text_config": shape | {"num_hidden_layers": 32}}
    assert recognise(ForeignText("config.json", json.dumps(vision))).name == "huggingface-model-config"


def test_a_model_type_inside_a_section_is_still_deepspeed() -> None:
    inside = {"train_batch_size": 8, "data_efficiency": {"data_sampling": {"model_type": "gpt"}}}
    text = ForeignText("ds.json", json.dumps(inside))
    assert recognise(text).name == "deepspeed-json"
    assert not looks_like(ForeignText("x.json", '{"model_type": "llama", "deepspeed": {"train_batch_size": 8}}'))
    assert looks_like(ForeignText("x.json", '{"zero_optimization": {"stage": 3}, "model": {"model_type": "gpt"'))


@pytest.mark.parametrize(("modules", "reduction"), [(None, "bf16"), ([], "fp32"), (["torch.nn.Linear"], "bf16")])
def test_autocast_keeps_parameters_in_fp32(modules: list[str] | None, reduction: str) -> None:
    section: dict[str, Any] = {"enabled": True, "dtype": "bfloat16"}
    fragment = config(train_batch_size=8, torch_autocast=section | ({"lower_precision_safe_modules": modules}))
    assert at(fragment, "precision", "compute") == "bf16"
    assert at(fragment, "precision", "parameters") == at(fragment, "precision", "gradients") == "fp32"
    assert at(fragment, "precision", "reduction") == reduction


def test_an_unknown_format_of_autocast_stays_open() -> None:
    fragment = config(train_batch_size=8, torch_autocast={"enabled": True, "dtype": "int4"})
    assert "precision.compute" in unknown_keys(fragment)


def test_a_configuration_of_gpt_neox_is_not_taken_for_deepspeed() -> None:
    text = '{"pipe_parallel_size": 1, "model_parallel_size": 4, "zero_optimization": {"stage": 1}}'
    assert not looks_like(ForeignText("llama.yml", text))


@pytest.mark.parametrize("part", ['"', '"\\', '"a" ', "{", "# ", "//", '"a', '"a"\n'])
def test_the_top_of_a_hostile_text_takes_steps_by_its_length(part: str) -> None:
    def steps(num_parts: int) -> int:
        text = "{" + part * num_parts
        assert top_keys(text) == frozenset()
        return num_steps(lambda: top_keys(text))

    assert quadratic_share(steps, 2_000, 2_000) < 0.001


def test_no_part_of_a_hostile_text_is_read_twice() -> None:
    """A repetition that gives nothing back reads a text once, however the text ends: all of them are possessive."""
    plain = re.sub(r"\[(?:\\.|[^\]])*\]|\\.", "x", _plan_settings._JSON_PART.pattern)
    repetitions = re.findall(r"(?:\*|\{\d+,\d+\}|(?<![*}+])\+)[+?]?", plain)
    assert len(repetitions) == 6
    assert all(repetition.endswith("+") for repetition in repetitions)


@pytest.mark.parametrize(
    ("regime", "settings", "master", "moments"),
    [
        ("bf16", {}, "fp32", "fp32"),
        ("bf16", {"bf16_master_weights_and_grads": True}, "bf16", "fp32"),
        ("bf16", {"bf16_master_weights_and_grads": True, "bf16_optimizer_states": True}, "bf16", "bf16"),
        ("bf16", {"bf16_master_weights_and_grads": False, "bf16_optimizer_states": False}, "fp32", "fp32"),
        ("bfloat16", {"bf16_master_weights_and_grads": True}, "bf16", "fp32"),
        ("fp16", {"fp16_master_weights_and_grads": True}, "fp16", None),
        ("bf16", {"bf16_master_weights_and_grads": "auto"}, None, None),
    ],
)
def test_copies_and_moments_may_be_as_narrow_as_parameters(
    regime: str, settings: dict[str, object], master: str | None, moments: str | None
) -> None:
    fragment = config(train_batch_size=8, zero_optimization={"stage": 3}, **{regime: {"enabled": True, **settings}})
    for key, wanted in (("master_parameters", master), ("optimizer_state", moments)):
        if wanted is None:
            assert f"precision.{key}" in unknown_keys(fragment)
        else:
            assert at(fragment, "precision", key) == wanted


def test_the_rate_of_an_optimizer_without_a_scheduler_is_said() -> None:
    fragment = config(train_batch_size=8, optimizer={"type": "Adam", "params": {"lr": 1e-4}})
    reasons = {entry.pointer: entry.reason for entry in fragment.unknown}
    told = "optimizer.params.lr is 0.0001, and the training program makes the schedule"
    assert reasons["optimizer", "learning_rate"] == told
    assert "optimizer.params.lr" not in remarks_of(fragment)


@pytest.mark.parametrize("own", [{"use_fp16": {"enabled": True}}, {"use_bf16": True}, {"amp": {"enabled": True}}])
def test_no_format_is_derived_next_to_a_switch_that_is_not_read(own: dict[str, Any]) -> None:
    fragment = config(train_micro_batch_size_per_gpu=1, zero_optimization={"stage": 1}, **own)
    assert at(fragment, "precision", "compute") is None
    assert at(fragment, "precision", "parameters") is None
    off = config(train_micro_batch_size_per_gpu=1, zero_optimization={"stage": 1}, use_fp16={"enabled": False})
    assert at(off, "precision", "compute") == "fp32"
