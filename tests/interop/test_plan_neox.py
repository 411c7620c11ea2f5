"""GPT-NeoX: configuration files become parts of plans, whichever way their keys are written."""

from __future__ import annotations

import pytest
from plan_files import at, how, remarks_of, unknown_keys

from trainspec_validate.interop.fragment import ForeignFormatError, ForeignText, Fragment
from trainspec_validate.interop.readers.neox import read
from trainspec_validate.interop.recognise import recognise

FILE = """{
  # parallelism settings
  "pipe-parallel-size": 2,
  "model-parallel-size": 4,
  "num-layers": 16,
  "hidden-size": 2048,
  "num-attention-heads": 8,
  "seq-length": 2048,
  "no-weight-tying": true,
  "optimizer": {"type": "Adam", "params": {"lr": 0.00025}},
  "min_lr": 0.000025,
  "zero_optimization": {"stage": 1},
  "train_micro_batch_size_per_gpu": 16,
  "gas": 8,
  "checkpoint-activations": true,
  "fp16": {"enabled": true, "loss_scale": 0},
  "train-iters": 143000,
  "lr-decay-style": "cosine",
  "warmup": 0.01,
}
"""


def neox(text: str) -> Fragment:
    return read(ForeignText("1B.yml", text))


@pytest.mark.parametrize("text", [FILE, FILE.replace("-", "_"), FILE.replace('"gas"', '"gradient-accumulation-steps"')])
def test_a_configuration_is_recognised_and_read(text: str) -> None:
    assert recognise(ForeignText("1B.yml", text)).name == "gpt-neox-yaml"
    fragment = neox(text)
    model = fragment.facts["model"]
    assert (model["num_layers"], model["hidden_size"], model["ffn_hidden_size"]) == (16, 2048, 8192)
    assert model["tied_embeddings"] is False
    assert (at(fragment, "parallelism", "tensor"), at(fragment, "parallelism", "pipeline")) == (4, 2)
    assert at(fragment, "parallelism", "sharding") == "optimizer"
    assert (at(fragment, "batch", "micro_sequences"), at(fragment, "batch", "accumulation_steps")) == (16, 8)
    assert at(fragment, "memory", "activation_policy") == "full"
    assert at(fragment, "job", "num_steps") == 143000
    assert at(fragment, "optimizer", "learning_rate") == {
        "peak": 0.00025,
        "kind": "cosine",
        "final": 0.000025,
        "total_steps": 143000,
        "warmup_steps": 1430,
    }


def test_what_a_configuration_leaves_open_stays_open() -> None:
    bare = neox(FILE.replace('"fp16": {"enabled": true, "loss_scale": 0}', '"precision": "bf16"'))
    assert {"precision.compute", "precision.gradients"} <= unknown_keys(bare)
    experts = neox(FILE.replace('"gas"', '"moe_num_experts": 8, "gas"'))
    assert {"model.family", "model.experts"} <= unknown_keys(experts)
    assert at(neox(FILE.replace('size": 2,', 'size": 0,')), "parallelism", "pipeline") == 1
    odd = neox(FILE.replace('"gas"', '"attention-config": [[["mamba"], 16]], "tune-this": 1, "gas"'))
    assert at(odd, "model", "family") == "state-space"
    assert "this reader does not know it: tune-this" in remarks_of(odd)


def test_a_configuration_of_nemo_is_not_taken_for_gpt_neox() -> None:
    model = "model:\n  hidden_size: 4096\n  num_layers: 32\n  hidden_dropout: 0.1\n  data:\n    data_impl: mmap\n"
    text = f"trainer:\n  devices: 8\nexp_manager:\n  model_parallel_size: 4\n{model}"
    assert recognise(ForeignText("gpt.yaml", text)).name == "nemo-megatron-yaml"


@pytest.mark.parametrize(
    ("section", "wanted"),
    [('{"type": "bfloat16", "enabled": true}', "bf16"), ('{"enabled": true, "loss_scale": 0}', "fp16")],
)
def test_the_type_of_the_section_fp16_counts(section: str, wanted: str) -> None:
    fragment = neox(FILE.replace('{"enabled": true, "loss_scale": 0}', section))
    assert at(fragment, "precision", "compute") == wanted
    assert ("loss_scaling" in fragment.facts["precision"]) == (wanted == "fp16")


@pytest.mark.parametrize(
    ("word", "section"),
    [
        ("bfloat16", '"bf16": {"enabled": true}'),
        ("fp16", '"fp16": {"enabled": true}'),
        ("fp32", '"fp16": {"enabled": false}'),
    ],
)
def test_precision_stands_for_the_section_of_deepspeed(word: str, section: str) -> None:
    """As `calculate_derived` of EleutherAI/gpt-neox@ea7aefd8:megatron/neox_arguments/arguments.py."""
    old = '"fp16": {"enabled": true, "loss_scale": 0}'
    alone, written = neox(FILE.replace(old, f'"precision": "{word}"')), neox(FILE.replace(old, section))
    assert alone.facts["precision"] == written.facts["precision"]
    assert {key for key in unknown_keys(alone) if key.startswith("precision")} == {
        key for key in unknown_keys(written) if key.startswith("precision")
    }


def test_precision_enables_the_section_fp16_that_is_there() -> None:
    old = '"fp16": {"enabled": true, "loss_scale": 0}'
    fragment = neox(FILE.replace(old, '"precision": "fp16", "fp16": {"initial_scale_power": 12}'))
    assert at(fragment, "precision", "compute") == "fp16"
    assert fragment.facts["precision"]["loss_scaling"]["initial_scale"] == 4096


@pytest.mark.parametrize(
    "section", ['"bf16": {"enabled": false}', '"fp16": {"enabled": true}', '"fp16": {"loss_scale": 0}']
)
def test_a_section_that_precision_does_not_fit_leaves_the_formats_open(section: str) -> None:
    old = '"fp16": {"enabled": true, "loss_scale": 0}'
    fragment = neox(FILE.replace(old, f'"precision": "bfloat16", {section}'))
    assert {"precision.compute", "precision.parameters", "precision.reduction"} <= unknown_keys(fragment)


@pytest.mark.parametrize(("kind", "gated", "width"), [("regular", False, 8192), ("gated", None, None)])
def test_a_feed_forward_layer_of_another_kind_stays_open(kind: str, gated: bool | None, width: int | None) -> None:
    fragment = neox(FILE.replace('"seq-length"', f'"mlp_type": "{kind}", "seq-length"'))
    assert fragment.facts["model"].get("gated_ffn") is gated
    assert fragment.facts["model"].get("ffn_hidden_size") == width
    assert ("model.gated_ffn" in unknown_keys(fragment)) == (gated is None)


@pytest.mark.parametrize(("word", "wanted"), [("true", "fp32"), ("false", "fp16")])
def test_a_reduction_in_fp32_is_read(word: str, wanted: str) -> None:
    fragment = neox(FILE.replace('"seq-length"', f'"fp32_allreduce": {word}, "seq-length"'))
    assert at(fragment, "precision", "reduction") == wanted


@pytest.mark.parametrize(
    ("activation", "size", "multiple", "width"),
    [
        ("swiglu", 86016, 256, 28672),  # configs/llama2/70B.yml, and the width of Llama 2 70B
        ("swiglu", 32768, 256, 11008),  # configs/llama2/7B.yml, and the width of Llama 2 7B
        ("geglu", 8192, None, 2730),
        ("gelu", 8192, None, 8192),
    ],
)
def test_a_gated_width_is_a_third_of_what_is_written(
    activation: str, size: int, multiple: int | None, width: int
) -> None:
    more = f'"activation": "{activation}", "intermediate_size": {size},'
    more += f' "mlp_multiple_of": {multiple},' if multiple else ""
    fragment = neox(FILE.replace('"num-layers": 16,', f'"num-layers": 16, {more}'))
    assert at(fragment, "model", "ffn_hidden_size") == width
    assert at(fragment, "model", "gated_ffn") is (activation != "gelu")


@pytest.mark.parametrize(("stages", "overlaps"), [(0, True), (1, False), (2, False)])
def test_nothing_overlaps_in_a_module_of_pipeline_stages(stages: int, *, overlaps: bool) -> None:
    text = FILE.replace('"pipe-parallel-size": 2', f'"pipe-parallel-size": {stages}')
    fragment = neox(text.replace('"stage": 1', '"stage": 1, "overlap_comm": true'))
    assert at(fragment, "communication", "overlap_gradients") is overlaps
    assert ("overlap_comm has no effect" in remarks_of(fragment)) is not overlaps


def test_layers_that_are_no_attention_have_no_heads() -> None:
    text = FILE.replace('"seq-length"', '"attention-config": [[["mamba"], 16]],\n  "seq-length"')
    open_keys = {f"model.{key}" for key in ("num_attention_heads", "num_key_value_heads", "ffn_hidden_size")}
    alone = neox(text)
    assert open_keys <= unknown_keys(alone)
    assert (at(alone, "model", "family"), at(alone, "model", "attention")) == ("state-space", "none")
    mixed = neox(text.replace('"mamba"', '"mamba", "global"'))
    assert at(mixed, "model", "num_attention_heads") == 8
    assert "model.attention" in unknown_keys(mixed)


def test_settings_of_a_newer_version_leave_open_what_they_decide() -> None:
    text = FILE.replace('  "min_lr": 0.000025,\n', "")
    text = text.replace('"warmup": 0.01', '"warmup_iters": 40, "decay_lr_to": 0.1')
    fragment = neox(text)
    open_keys = {f"optimizer.learning_rate.{key}" for key in ("warmup_steps", "final")}
    assert open_keys <= unknown_keys(fragment)
    reasons = [item.reason for item in fragment.unknown if item.pointer[-1] == "final"]
    assert reasons == ["`decay_lr_to`, which this reader does not know, may decide it"]


def test_layers_of_a_fork_leave_family_and_heads_open() -> None:
    text = (
        "pipe-parallel-size: 1\nmodel-parallel-size: 1\nnum-layers: 4\nhidden-size: 64\nnum-attention-heads: 4\n"
        "norm: rmsnorm\ntrain-iters: 10\nbf16: {enabled: true}\noperator-config: [[['hyena'], 4]]\n"
    )
    fragment = read(ForeignText("a.yml", text))
    assert {"model.family", "model.attention", "model.num_key_value_heads"} <= unknown_keys(fragment)
    assert at(fragment, "precision", "compute") == "bf16"
    eight = read(ForeignText("a.yml", f"{text}use_fp8_linears: true\n"))
    assert {"precision.compute", "precision.recipe"} <= unknown_keys(eight)


def test_results_of_an_evaluation_are_no_configuration() -> None:
    """Results of lm-evaluation-harness hold the settings of the model deep inside."""
    assert recognise(ForeignText("a.json", FILE)).name == "gpt-neox-yaml"
    results = '{"results": {"lambada": {"acc": 0.5}}, "config": {"model_args": ' + FILE + "}}"
    with pytest.raises(ForeignFormatError, match="fits no known format"):
        recognise(ForeignText("results.json", results))


def test_an_optimizer_of_bitsandbytes_stays_open() -> None:
    fragment = neox(FILE.replace('"gas"', '"use-bnb-optimizer": true, "gas"'))
    assert at(neox(FILE), "optimizer", "name") == "adamw"
    assert {"optimizer.name", "precision.optimizer_state"} <= unknown_keys(fragment)


def test_adam_is_that_of_gpt_neox() -> None:
    told = "FusedAdam with adam_w_mode, the default of EleutherAI/gpt-neox@ea7aefd8:megatron/training.py"
    assert how(neox(FILE), "optimizer.name") == told
    assert "optimizer.name" in unknown_keys(neox(FILE.replace('"gas"', '"use-mup": true, "gas"')))


def test_the_size_of_a_bucket_is_open_with_the_format_of_the_reduction() -> None:
    text = FILE.replace('"fp16": {"enabled": true, "loss_scale": 0}', '"precision": "half"')
    text = text.replace('{"stage": 1}', '{"stage": 1, "reduce_bucket_size": 1000}')
    assert "precision.reduction" in unknown_keys(neox(text))
    assert at(neox(text), "communication", "bucket_bytes") is None


def test_a_reduction_in_fp32_leaves_the_size_of_its_buckets_open() -> None:
    text = FILE.replace('{"stage": 1}', '{"stage": 1, "reduce_bucket_size": 1000}')
    assert at(neox(text), "communication", "bucket_bytes") == 2000
    fragment = neox(text.replace('"gas"', '"fp32_allreduce": true, "gas"'))
    assert at(fragment, "precision", "reduction") == "fp32"
    assert "communication.bucket_bytes" in unknown_keys(fragment)


@pytest.mark.parametrize(
    ("word", "wanted"), [("dpo", 32), ("rm", 32), ("normal", 16), ("kto", 16), ("reinforce", 16), ("a_later_one", None)]
)
def test_a_sample_of_pairs_is_two_sequences(word: str, wanted: int | None) -> None:
    fragment = neox(FILE.replace('"train-iters"', f'"train_impl": "{word}", "train-iters"'))
    assert at(fragment, "batch", "micro_sequences") == wanted
    assert ("batch.micro_sequences" in unknown_keys(fragment)) is (wanted is None)
