"""Hugging Face: model configurations, Trainer arguments and accelerate become parts of plans."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from plan_files import assert_sound, at, broken, converted, document, how, imported, remarks_of, unknown_keys

from trainspec_validate.interop.fragment import ForeignFormatError, ForeignText, Fragment
from trainspec_validate.interop.merge import merge
from trainspec_validate.interop.readers import huggingface
from trainspec_validate.interop.readers._plan_identities import complete_joint
from trainspec_validate.interop.readers.huggingface import read_accelerate, read_model, read_trainer

GPT2 = {"model_type": "gpt2", "n_embd": 768, "n_head": 12, "n_layer": 12, "n_positions": 1024, "vocab_size": 50257}


def model(**values: Any) -> Fragment:
    return read_model(ForeignText("config.json", json.dumps(values)))


def trainer(*lines: str) -> Fragment:
    return read_trainer(ForeignText("args.yaml", "\n".join(["per_device_train_batch_size: 4", *lines]) + "\n"))


def accelerate(*lines: str) -> Fragment:
    return read_accelerate(ForeignText("config.yaml", "\n".join([*lines, "num_processes: 16"]) + "\n"))


def test_a_dense_model() -> None:
    fragment = imported("hf-llama-config.json")
    assert_sound(fragment)
    assert set(fragment.facts) == {"model"}
    assert at(fragment, "model", "name") == "example-org-Dense-8B"
    assert at(fragment, "model", "num_parameters") == 8_030_261_248
    assert at(fragment, "model", "attention") == "grouped-query"
    assert "up to 131072 tokens" in str(fragment.unknown)
    assert "rope_scaling.factor" in remarks_of(fragment)


def test_a_mixture() -> None:
    fragment = imported("hf-moe-config.json")
    assert_sound(fragment)
    assert at(fragment, "model", "num_parameters") == 30_532_122_624
    assert at(fragment, "model", "num_active_parameters") == 3_353_032_704
    assert "model.name" in unknown_keys(fragment)


def test_older_names_and_defaults_of_a_kind() -> None:
    fragment = model(**GPT2)
    assert at(fragment, "model", "ffn_hidden_size") == 3072
    assert at(fragment, "model", "tied_embeddings") is True
    assert "transformers" in how(fragment, "model.tied_embeddings")
    assert at(fragment, "model", "num_parameters") == pytest.approx(124e6, rel=0.02)


def test_a_kind_that_is_not_known() -> None:
    fragment = model(**{**GPT2, "model_type": "brand_new"})
    assert_sound(fragment)
    assert {"model.family", "model.num_parameters"} <= unknown_keys(fragment)


@pytest.mark.parametrize("setting", ["num_local_experts", "num_experts", "n_routed_experts"])
@pytest.mark.parametrize("kind", ["llama", "mistral", "qwen3", "gemma", "gpt2", "phi"])
def test_experts_of_a_kind_without_any_leave_the_family_open(kind: str, setting: str) -> None:
    shape = {"hidden_size": 4096, "num_hidden_layers": 32, "num_attention_heads": 32, "vocab_size": 128256}
    shape |= {"intermediate_size": 14336, setting: 8, "num_experts_per_tok": 2}
    fragment = model(model_type=kind, **shape)
    assert_sound(fragment)
    assert {"model.family", "model.experts", "model.num_parameters", "model.num_active_parameters"} <= unknown_keys(
        fragment
    )
    assert f"{setting} is 8, but models of model_type {kind} have no experts" in remarks_of(fragment)
    fragment = model(model_type=kind, **{**shape, setting: 1})
    assert at(fragment, "model", "family") == "dense-transformer"


def test_latent_attention_and_windows() -> None:
    shape = {"hidden_size": 2048, "num_hidden_layers": 4, "num_attention_heads": 16, "vocab_size": 1000}
    latent = model(model_type="deepseek_v3", kv_lora_rank=512, intermediate_size=8192, **shape)
    assert at(latent, "model", "attention") == "latent"
    window = model(model_type="mistral", sliding_window=4096, intermediate_size=8192, **shape)
    assert at(window, "model", "attention") == "sliding-window"


def test_the_parameters_of_latent_attention(tmp_path: Path) -> None:
    fragment = imported("hf-latent-config.json")
    assert_sound(fragment)
    assert at(fragment, "model", "num_parameters") == pytest.approx(671.0e9, rel=1e-4)
    assert at(fragment, "model", "num_active_parameters") == pytest.approx(37.6e9, rel=3e-3)
    assert "counted as if" not in remarks_of(fragment)
    shape = {"model": {"sequence_length": 4096}, "parallelism": {"num_accelerators": 64, "data": 64}}
    batch = {"batch": {"global_sequences": 64, "micro_sequences": 1, "accumulation_steps": 1}}
    formats = {"compute": "fp32", "parameters": "fp32", "gradients": "fp32", "reduction": "fp32"}
    plan = document(fragment, shape, batch, {"precision": formats})
    converted(plan)
    assert broken(plan, tmp_path) == set()


def test_the_language_part_of_several() -> None:
    inner = {"hidden_size": 64, "num_hidden_layers": 2, "num_attention_heads": 4, "vocab_size": 500}
    fragment = model(model_type="llava", text_config={**inner, "model_type": "llama", "intermediate_size": 128})
    assert at(fragment, "model", "num_layers") == 2
    assert "only the language model" in remarks_of(fragment)


def test_three_files_make_a_plan(tmp_path: Path) -> None:
    parts = [imported(name) for name in ("accelerate-hsdp.yaml", "hf-llama-config.json", "hf-trainer.yaml")]
    for part in parts:
        assert_sound(part)
    whole = merge(parts)
    facts, derived = dict(whole.facts), dict(whole.derived)
    assert complete_joint(facts, derived) == []
    assert facts["batch"]["global_sequences"] == 16 * 2 * 16
    assert facts["batch"]["global_tokens"] == 512 * 8192
    plan = document(facts)
    converted(plan)
    assert broken(plan, tmp_path) == set()


def test_accelerate_with_copies_and_shards() -> None:
    fragment = imported("accelerate-hsdp.yaml")
    assert fragment.facts["parallelism"] == {
        "num_accelerators": 32,
        "data": 16,
        "tensor": 2,
        "context": 1,
        "sharding": "parameters",
        "sharding_degree": 8,
    }
    assert at(fragment, "memory", "activation_policy") == "full"
    assert at(fragment, "precision", "reduction") == "bf16"


def test_degrees_that_do_not_make_the_ranks(tmp_path: Path) -> None:
    lines = ["distributed_type: FSDP", "mixed_precision: bf16", "parallelism_config:"]
    fragment = accelerate(*lines, "  parallelism_config_dp_shard_size: 6", "  parallelism_config_tp_size: 2")
    parts = (fragment, imported("hf-llama-config.json"), {"model": {"sequence_length": 4096}})
    batch = {"batch": {"global_sequences": 6, "micro_sequences": 1, "accumulation_steps": 1}}
    assert ("TS-PAR-001", "parallelism.num_accelerators") in broken(document(*parts, batch), tmp_path)


@pytest.mark.parametrize(
    ("strategy", "sharding"),
    [("FULL_SHARD", "parameters"), ("2", "gradients"), ("NO_SHARD", "none"), ("HYBRID_SHARD", "parameters")],
)
def test_strategies_of_fsdp(strategy: str, sharding: str) -> None:
    fragment = accelerate("distributed_type: FSDP", "fsdp_config:", f"  fsdp_sharding_strategy: {strategy}")
    assert at(fragment, "parallelism", "sharding") == sharding
    assert ("parallelism.sharding_degree" in unknown_keys(fragment)) == ("HYBRID" in strategy)


def test_deepspeed_and_megatron_inside_accelerate() -> None:
    lines = ["distributed_type: DEEPSPEED", "mixed_precision: 'no'", "deepspeed_config:", "  zero_stage: 3"]
    fragment = accelerate(*lines, "  gradient_accumulation_steps: 4", "  offload_param_device: cpu")
    assert at(fragment, "parallelism", "sharding") == "parameters"
    assert at(fragment, "batch", "accumulation_steps") == 4
    assert at(fragment, "memory", "offload") == [{"what": "parameters", "target": "host", "fraction": 1.0}]
    lines = ["distributed_type: MEGATRON_LM", "megatron_lm_config:", "  megatron_lm_tp_degree: 4"]
    fragment = accelerate(*lines, "  megatron_lm_pp_degree: 2", "  megatron_lm_num_micro_batches: 8")
    assert at(fragment, "parallelism", "data") == 2
    assert at(fragment, "parallelism", "schedule") == "1f1b"
    assert at(fragment, "batch", "accumulation_steps") == 8


def test_a_launch_script() -> None:
    fragment = imported("hf-launch.sh")
    assert_sound(fragment)
    assert at(fragment, "parallelism", "num_accelerators") == 16
    assert at(fragment, "batch", "global_sequences") == 16 * 8
    assert "parallelism.sharding" in unknown_keys(fragment)
    assert "ds_zero3.json, which is not read" in remarks_of(fragment)
    assert at(fragment, "communication", "overlap_gradients") is None
    assert "communication.overlap_gradients" in unknown_keys(fragment)


def test_a_deepspeed_configuration_inside() -> None:
    fragment = imported("hf-trainer-deepspeed.json")
    assert_sound(fragment)
    assert at(fragment, "precision", "compute") == "fp16"
    assert at(fragment, "precision", "loss_scaling", "mode") == "dynamic"
    assert at(fragment, "parallelism", "sharding") == "parameters"
    assert {"batch.global_sequences", "job.num_steps"} <= unknown_keys(fragment)


def test_formats_of_autocast(tmp_path: Path) -> None:
    words = "--per_device_train_batch_size 4 --do_train --save_steps 9 --fp16 --block_size 2048"
    command = f"torchrun --nproc_per_node 8 run_clm.py {words} --gradient_accumulation_steps 2\n"
    fragment = read_trainer(ForeignText("run.sh", command))
    assert at(fragment, "precision", "parameters") == "fp32"
    assert at(fragment, "precision", "loss_scaling", "growth_interval_steps") == 2000
    plan = document(imported("hf-llama-config.json"), fragment)
    converted(plan)
    assert broken(plan, tmp_path) == set()
    del plan["precision"]["loss_scaling"]
    assert "TS-PRC-001" in {requirement for requirement, _ in broken(plan, tmp_path)}


def test_words_where_numbers_belong() -> None:
    fragment = trainer("gradient_accumulation_steps: sixteen", "max_steps: -1", "save_steps: 0.1", "optim: adamw_8bit")
    assert at(fragment, "batch", "accumulation_steps") == "sixteen"
    assert "2: gradient_accumulation_steps is 'sixteen'" in remarks_of(fragment)
    assert at(fragment, "job", "num_steps") is None
    assert at(fragment, "precision", "optimizer_state") == "int8"


@pytest.mark.parametrize("read", [read_model, read_trainer, read_accelerate])
@pytest.mark.parametrize("text", ["", "[]", "{", "a: 1\na: 2\n"])
def test_what_is_refused(read: object, text: str) -> None:
    assert callable(read)
    with pytest.raises(ForeignFormatError):
        read(ForeignText("config.json", text))


def test_arguments_inside_a_record_of_another_program_are_not_its_own() -> None:
    text = ForeignText("record.json", '{"args": {"per_device_train_batch_size": "2", "bf16": true}, "metrics": []}')
    assert not huggingface.looks_like_trainer(text)
    assert huggingface.looks_like_trainer(ForeignText("args.json", '{"bf16": true, "per_device_train_batch_size": 2}'))


@pytest.mark.parametrize("line", ["torch_dtype: bfloat16", "dtype: torch.bfloat16", "pure_bf16: true"])
@pytest.mark.parametrize("more", ["", "deepspeed: ds.json"])
def test_weights_that_are_loaded_in_a_format_are_not_taken_for_fp32(line: str, more: str) -> None:
    fragment = trainer(line, more)
    assert at(fragment, "precision", "compute") == "bf16"
    assert {"precision.parameters", "precision.gradients", "precision.reduction"} <= unknown_keys(fragment)
    assert at(trainer("torch_dtype: float32"), "precision", "compute") == "fp32"
    assert at(trainer("torch_dtype: auto"), "precision", "compute") is None
    assert at(trainer(line, "bf16: true"), "precision", "compute") == "bf16"


@pytest.mark.parametrize(
    "more", ["--zero_stage 2 --deepspeed --offload", "--deepspeed --logging_steps 1 --save_steps 9"]
)
def test_a_program_with_a_parser_of_its_own_has_no_defaults_of_the_trainer(more: str) -> None:
    arguments = f"--per_device_train_batch_size 2 --learning_rate 2e-6 --lr_scheduler_type cosine {more}"
    fragment = read_trainer(ForeignText("run.sh", f"deepspeed main.py {arguments}\n"))
    assert at(fragment, "batch", "micro_sequences") == 2
    assert fragment.facts["optimizer"] == {"learning_rate": {"peak": 2e-6, "kind": "cosine"}}
    keys = {"precision.compute", "precision.parameters", "precision.gradients", "precision.reduction"}
    assert keys | {"parallelism.sharding", "batch.accumulation_steps"} <= unknown_keys(fragment)
    assert "nothing shows that main.py is a program of the Trainer" in remarks_of(fragment)
    assert not fragment.defaults


def test_the_file_that_accelerate_is_started_with_is_asked_for() -> None:
    arguments = "train.py --per_device_train_batch_size 2 --logging_steps 1 --save_steps 9"
    fragment = read_trainer(ForeignText("run.sh", f"accelerate launch --config_file a/fsdp.yaml {arguments}\n"))
    assert "config_file names the file a/fsdp.yaml, which is not read: import it as well" in remarks_of(fragment)


def test_defaults_of_the_trainer_do_not_hold_for_ms_swift() -> None:
    arguments = "--model Qwen/Qwen3-8B --per_device_train_batch_size 2 --torch_dtype bfloat16"
    fragment = read_trainer(ForeignText("run.sh", f"NPROC_PER_NODE=8 swift sft {arguments}\n"))
    assert at(fragment, "batch", "micro_sequences") == 2
    assert "batch.accumulation_steps" in unknown_keys(fragment)
    plain = read_trainer(ForeignText("run.sh", f"python run_clm.py {arguments} --logging_steps 1 --save_steps 9\n"))
    assert at(plain, "batch", "accumulation_steps") == 1


STORED = ("parameters", "gradients", "reduction", "optimizer_state")


@pytest.mark.parametrize(
    "lines",
    [
        ("load_in_4bit: true", "torch_dtype: bfloat16"),
        ("use_peft: true", "lora_r: 16"),
        ("lora_rank: 8",),
        ("finetuning_type: lora",),
        ("peft_config:", "  lora_alpha: 16"),
        ("quantization_bit: 4",),
        ("adapter: qlora", "fsdp: full_shard"),
        ("lora_enable: true", "deepspeed: zero2.json"),
    ],
)
def test_adapters_and_quantised_weights_leave_formats_open(lines: tuple[str, ...]) -> None:
    fragment = trainer("bf16: true", *lines)
    assert at(fragment, "precision", "compute") == "bf16"
    assert {f"precision.{key}" for key in STORED} <= unknown_keys(fragment)
    assert "lora and precision.frozen_parameters" in remarks_of(fragment)


@pytest.mark.parametrize("lines", [("use_peft: false", "lora_r: 16"), ("load_in_4bit: false",), ("bits: 16",)])
def test_adapters_that_are_off_change_nothing(lines: tuple[str, ...]) -> None:
    fragment = trainer("bf16: true", *lines)
    reasons = {entry.pointer: entry.reason for entry in fragment.unknown}
    assert reasons["precision", "parameters"].endswith("loads the weights in fp32; its own code decides")


def test_weights_loaded_in_a_format_stay_in_it() -> None:
    words = "--per_device_train_batch_size 4 --do_train True --save_steps 10 --bf16 True --torch_dtype bfloat16"
    fragment = read_trainer(ForeignText("run.sh", f"torchrun --nproc_per_node 8 train.py {words}\n"))
    assert [at(fragment, "precision", key) for key in STORED] == ["bf16"] * 4
    assert "precision.master_parameters" in unknown_keys(fragment)
    for unlaunched in (
        trainer("bf16: true", "torch_dtype: bfloat16"),
        read_trainer(ForeignText("run.sh", f"accelerate launch train.py {words}\n")),
    ):
        assert at(unlaunched, "precision", "compute") == "bf16"
        assert {f"precision.{key}" for key in (*STORED, "master_parameters")} <= unknown_keys(unlaunched)
    sharded = trainer("bf16: true", "torch_dtype: bfloat16", "fsdp: full_shard")
    assert at(sharded, "precision", "master_parameters") == "fp32"
    left = trainer("bf16: true", "torch_dtype: auto")
    assert {f"precision.{key}" for key in STORED} <= unknown_keys(left)


@pytest.mark.parametrize(
    "lines", [("stage: sft", "template: qwen"), ("finetuning_type: full",), ("cutoff_len: 2048", "use_muon: true")]
)
def test_llama_factory_has_defaults_of_its_own(lines: tuple[str, ...]) -> None:
    fragment = trainer("dataloader_num_workers: 4", "bf16: true", *lines)
    assert "memory.activation_policy" in unknown_keys(fragment)
    assert "precision.parameters" in unknown_keys(fragment)
    assert any("LLaMA-Factory" in entry.reason for entry in fragment.unknown)
    assert at(fragment, "batch", "micro_sequences") == 4


def test_a_lone_word_is_no_llama_factory() -> None:
    assert at(trainer("dataloader_num_workers: 4", "stage: sft"), "memory", "activation_policy") == "none"


def test_a_default_is_no_answer_where_a_section_of_the_file_states_the_fact() -> None:
    """A program of its own keeps the Trainer's names below a section, which this importer does not read."""
    stated = trainer("training:", "  learning_rate: 2.0e-4", "  max_grad_norm: 0.3")
    assert at(stated, "optimizer", "learning_rate", "peak") is None
    assert at(stated, "optimizer", "clipping", "threshold") is None
    assert "training.learning_rate states it, which this importer does not read" in str(stated.unknown)
    assert at(stated, "optimizer", "name") == "adamw", "nothing in the file is about it"
    assert at(trainer(), "optimizer", "learning_rate", "peak") == 5e-05


QUOTED = """
version: v2
tasks:
  - name: tune
    command: ['/bin/sh', '-c']
    arguments: ['deepspeed
      open_recipes/trainer.py
      --model_name_or_path /models/base
      --max_seq_length 512
      --per_device_train_batch_size 4
      --gradient_accumulation_steps 8
      --bf16
    ']
    resources: {gpuCount: 4}
"""
LISTED = """
kind: Pod
spec:
  containers:
    - name: trainer
      command: [torchrun, --nproc_per_node, 8, train.py]
      args: ["--per_device_train_batch_size", "4", "--gradient_accumulation_steps", "8", "--bf16", "true"]
"""


@pytest.mark.parametrize("text", [QUOTED, LISTED], ids=("quoted", "listed"))
def test_a_command_that_the_file_of_a_scheduler_quotes(text) -> None:
    fragment = read_trainer(ForeignText("task.yaml", text))
    assert at(fragment, "batch", "micro_sequences") == 4
    assert at(fragment, "batch", "accumulation_steps") == 8
    assert at(fragment, "precision", "compute") == "bf16"


def test_the_clipping_of_an_accelerate_configuration() -> None:
    fragment = accelerate("distributed_type: DEEPSPEED", "deepspeed_config:", "  gradient_clipping: 0.7")
    assert fragment.facts["optimizer"]["clipping"] == {"kind": "global-norm", "threshold": 0.7}


def test_the_size_of_heads_that_are_no_attention_is_none_of_attention_heads() -> None:
    fragment = model(model_type="mamba2", hidden_size=2048, num_hidden_layers=48, head_dim=64, vocab_size=32000)
    assert at(fragment, "model", "head_size") is None
    assert "model.head_size" in unknown_keys(fragment)
    assert at(model(**GPT2, head_dim=64), "model", "head_size") == 64


@pytest.mark.parametrize(
    ("fsdp", "sharding"),
    [
        ("{enable_fsdp: true, sharding_strategy: HYBRID_SHARD}", "parameters"),
        ("{enable_fsdp: true, sharding_strategy: SHARD_GRAD_OP}", "gradients"),
        ("{enable_fsdp: false, sharding_strategy: FULL_SHARD}", None),
        ("{enable_fsdp: true}", None),
    ],
)
def test_a_section_of_fsdp_states_the_sharding(fsdp: str, sharding: str | None) -> None:
    text = f"training:\n  per_device_train_batch_size: 2\n  learning_rate: 3.2e-05\nfsdp: {fsdp}\n"
    facts = huggingface.read_trainer(ForeignText("train.yaml", text)).facts
    assert facts.get("parallelism", {}).get("sharding") == sharding
    assert "sharding_degree" not in facts.get("parallelism", {})
