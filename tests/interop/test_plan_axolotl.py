"""axolotl: configurations become parts of plans, with axolotl's own defaults."""

from __future__ import annotations

import pytest
from plan_files import assert_sound, at, how, imported, remarks_of, text_of, unknown_keys

from trainspec_validate.interop.fragment import ForeignText, Fragment
from trainspec_validate.interop.readers import axolotl
from trainspec_validate.interop.recognise import recognise

RATE = ("optimizer", "learning_rate")


def read(*lines: str) -> Fragment:
    text = "\n".join(["base_model: example-org/Base-7B", "learning_rate: 1e-4", "num_epochs: 1", *lines])
    found = ForeignText("job.yml", text + "\n")
    assert recognise(found).name == "axolotl-yaml"
    fragment = axolotl.read(found)
    assert_sound(fragment)
    return fragment


def test_a_configuration_with_adapters() -> None:
    fragment = imported("axolotl-lora.yaml")
    assert_sound(fragment)
    assert fragment.format == "axolotl-yaml"
    assert fragment.facts["lora"] == {"rank": 16, "alpha": 32.0, "targets": ["query", "value"]}
    assert at(fragment, "model") == {"name": "example-org-Base-7B", "sequence_length": 4096}
    assert at(fragment, "batch") == {"micro_sequences": 2, "accumulation_steps": 4}
    assert at(fragment, "optimizer", "name") == "adamw"
    assert at(fragment, "optimizer", "clipping", "threshold") == 0.5
    assert at(fragment, *RATE, "kind") == "cosine"
    assert at(fragment, *RATE, "peak") == pytest.approx(2e-4)
    assert at(fragment, *RATE, "final") == pytest.approx(2e-5)
    assert at(fragment, *RATE, "warmup_steps") == 100
    assert at(fragment, "precision", "compute") == "bf16"
    assert at(fragment, "memory", "activation_policy") == "full"
    assert at(fragment, "job") == {"num_steps": 1000, "seed": 7}
    assert {"precision.parameters", "precision.frozen_parameters"} <= unknown_keys(fragment)
    assert "tf32" in remarks_of(fragment)
    assert how(fragment, "model.sequence_length") == ""


@pytest.mark.parametrize(
    ("pointer", "value"),
    [
        (("batch", "micro_sequences"), 1),
        (("batch", "accumulation_steps"), 1),
        (("model", "sequence_length"), 512),
        ((*RATE, "kind"), "cosine"),
        (("optimizer", "name"), "adamw"),
        (("optimizer", "clipping", "threshold"), 1.0),
    ],
)
def test_defaults_are_those_of_axolotl(pointer: tuple[str, ...], value: object) -> None:
    fragment = read("bf16: true")
    assert at(fragment, *pointer) == value
    assert "default" in how(fragment, ".".join(pointer))
    assert pointer in fragment.defaults


@pytest.mark.parametrize(
    ("lines", "steps"),
    [
        (["max_steps: 100"], 3),
        (["max_steps: 132"], 3),
        (["max_steps: 40"], 2),
        (["max_steps: 20"], 0),
        (["max_steps: 10000"], 100),
        (["max_steps: 1000", "warmup_ratio: 0.0155"], 15),
        (["max_steps: 10000", "warmup_ratio: 0.1"], 1000),
        (["max_steps: 1000", "warmup_steps: 1"], 2),
        (["max_steps: 1000", "warmup_steps: 0"], 0),
        ([], None),
    ],
)
def test_warm_up_is_that_of_axolotl(lines: list[str], steps: int | None) -> None:
    fragment = read("bf16: true", *lines)
    assert at(fragment, *RATE, "warmup_steps") == steps
    assert ("optimizer.learning_rate.warmup_steps" in unknown_keys(fragment)) == (steps is None)


def test_a_format_that_the_accelerator_decides_is_open() -> None:
    fragment = read("bf16: auto", "micro_batch_size: 2")
    assert at(fragment, "precision", "compute") is None
    assert "precision.compute" in unknown_keys(fragment)


@pytest.mark.parametrize("line", ["adapter:", "adapter: ''"])
def test_settings_of_adapters_without_an_adapter_mean_nothing(line: str) -> None:
    fragment = read("bf16: true", line, "lora_r: 8", "lora_alpha: 16")
    assert "lora" not in fragment.facts
    assert "lora" not in unknown_keys(fragment)
    assert "lora_r" in remarks_of(fragment)


@pytest.mark.parametrize("extra", [[], ["lora_target_modules: [q_proj]"]])
def test_every_linear_layer_is_for_the_model_to_name(extra: list[str]) -> None:
    fragment = read("adapter: qlora", "load_in_4bit: true", "lora_r: 8", "lora_target_linear: true", *extra)
    assert fragment.facts["lora"] == {"rank": 8}
    assert "lora.targets" in unknown_keys(fragment)


def test_modules_that_are_trained_whole_leave_the_trained_parameters_open() -> None:
    fragment = read("adapter: lora", "lora_r: 8", "lora_modules_to_save: [lm_head]")
    assert "num_parameters_trained" in unknown_keys(fragment)


@pytest.mark.parametrize(
    ("lines", "sharding"),
    [
        (["fsdp_version: 2", "fsdp_config: {reshard_after_forward: true}"], "parameters"),
        (["fsdp_version: 2", "fsdp_config: {reshard_after_forward: false}"], "gradients"),
        (["fsdp_config: {fsdp_version: 2, offload_params: true}"], "parameters"),
        (["fsdp: [full_shard, auto_wrap]", "fsdp_config: {fsdp_offload_params: false}"], "parameters"),
        (["fsdp_config: {offload_params: true}"], None),
    ],
)
def test_sharding(lines: list[str], sharding: str | None) -> None:
    fragment = read("bf16: true", *lines)
    assert at(fragment, "parallelism", "sharding") == sharding
    assert ("parallelism.sharding" in unknown_keys(fragment)) == (sharding is None)
    if "offload_params: true" in lines[0] and sharding:
        assert [entry["what"] for entry in at(fragment, "memory", "offload")] == [
            "parameters",
            "gradients",
            "optimizer",
        ]


@pytest.mark.parametrize("name", ["fsdp_offload_params", "offload_params"])
def test_offload_next_to_a_list_of_words(name: str) -> None:
    fragment = read("fsdp: [full_shard, auto_wrap]", f"fsdp_config: {{{name}: true}}")
    assert [entry["what"] for entry in at(fragment, "memory", "offload")] == ["parameters", "gradients", "optimizer"]


@pytest.mark.parametrize("name", ["fsdp_activation_checkpointing", "activation_checkpointing"])
def test_recomputation_of_fsdp(name: str) -> None:
    fragment = read("fsdp_version: 2", f"fsdp_config: {{{name}: true}}")
    assert at(fragment, "memory", "activation_policy") == "full"


def test_degrees_and_the_batch_of_all_ranks() -> None:
    fragment = read("dp_shard_size: 4", "dp_replicate_size: 2", "context_parallel_size: 2", "micro_batch_size: 2")
    assert at(fragment, "parallelism", "data") == 8
    assert at(fragment, "parallelism", "context") == 2
    assert at(fragment, "parallelism", "num_accelerators") == 16
    assert at(read("batch_size: 64"), "batch", "accumulation_steps") is None


@pytest.mark.parametrize("word", ["offload", "offload_disk", "unsloth"])
def test_offloaded_activations_leave_the_share_open(word: str) -> None:
    fragment = read(f"gradient_checkpointing: {word}")
    assert at(fragment, "memory", "activation_policy") == "full"
    assert "memory.offload" in unknown_keys(fragment)
    assert "another kind" not in remarks_of(fragment)


def test_a_remark_has_the_line_and_the_name_of_the_file() -> None:
    fragment = imported("axolotl-lora.yaml")
    assert fragment == axolotl.read(text_of("axolotl-lora.yaml"))
    assert "max_seq_length" not in remarks_of(fragment)
    named = read("micro_batch_size: many")
    told = next(entry for entry in named.remarks if "many" in entry.message)
    assert told.line == 4
    assert told.message == "micro_batch_size is 'many', where a whole number of at least 1 belongs"


@pytest.mark.parametrize(("lines", "compute"), [([], None), (["bf16: false"], "fp32"), (["fp16: true"], "fp16")])
def test_the_default_format_is_that_of_the_accelerator(lines: list[str], compute: str | None) -> None:
    fragment = read("micro_batch_size: 2", *lines)
    assert fragment.facts.get("precision", {}).get("compute") == compute
    assert ("precision.compute" in unknown_keys(fragment)) == (compute is None)


def test_a_constant_schedule_has_no_share_of_warm_up() -> None:
    rate = ("optimizer", "learning_rate", "warmup_steps")
    assert at(read("max_steps: 1000", "lr_scheduler: constant"), *rate) is None
    assert at(read("max_steps: 1000", "lr_scheduler: constant_with_warmup"), *rate) == 30


def test_shards_of_a_hybrid_mesh_are_the_sharding_degree() -> None:
    base = ("fsdp_version: 2", "fsdp_config:", "  reshard_after_forward: true", "dp_shard_size: 4")
    pointer = ("parallelism", "sharding_degree")
    assert at(read(*base), *pointer) is None
    assert at(read(*base, "dp_replicate_size: 2"), *pointer) == 4
    assert at(read(*base, "dp_replicate_size: 2", "context_parallel_size: 2"), *pointer) == 8


def test_what_starts_the_job_decides_on_overlap_and_autocast() -> None:
    keys = {"communication.overlap_gradients", "precision.high_precision_operations"}
    assert keys <= unknown_keys(read("bf16: true", "micro_batch_size: 2"))
    sharded = read("bf16: true", "micro_batch_size: 2", "fsdp: [full_shard, auto_wrap]")
    assert at(sharded, "communication", "overlap_gradients") is True
