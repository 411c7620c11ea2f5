"""MaxText: YAML, launch scripts and logged settings become plans."""

from __future__ import annotations

from pathlib import Path

import pytest
from plan_files import assert_sound, at, broken, converted, document, how, imported, remarks_of, unknown_keys

from trainspec_validate.interop.fragment import ForeignFormatError, ForeignText, Fragment
from trainspec_validate.interop.readers.maxtext import looks_like, read
from trainspec_validate.model.finding import Severity

MODEL = "base_emb_dim: 1024\nbase_num_query_heads: 8\nbase_num_kv_heads: 8\nbase_mlp_dim: 4096\n"
MODEL += "base_num_decoder_layers: 12\nhead_dim: 128\nvocab_size: 32_000\nmlp_activations: [gelu]\n"
JOB = "per_device_batch_size: 2\nmax_target_length: 2048\nsteps: 100\nlogits_via_embedding: true\n"


RATE = ("optimizer", "learning_rate")


def settings(*lines: str) -> Fragment:
    return read(ForeignText("run.yml", MODEL + JOB + "\n".join(lines) + "\n"))


def test_copies_between_slices_and_shards_inside(tmp_path: Path) -> None:
    fragment = imported("maxtext-hybrid.yml")
    assert_sound(fragment)
    assert fragment.facts["parallelism"] == {
        "num_accelerators": 512,
        "data": 128,
        "tensor": 4,
        "context": 1,
        "pipeline": 1,
        "sharding": "parameters",
        "sharding_degree": 64,
    }
    assert "2 slices of 256 chips" in how(fragment, "parallelism.num_accelerators")
    assert fragment.facts["batch"] == {
        "global_sequences": 2048,
        "micro_sequences": 8,
        "accumulation_steps": 2,
        "global_tokens": 16777216,
    }
    assert at(fragment, "model", "vocabulary_size") == 128256
    assert at(fragment, "job", "num_steps") == 30000
    assert "base.yml, which is not read" in remarks_of(fragment)
    plan = document(fragment, {"optimizer": {"name": "adamw", "learning_rate": {"kind": "cosine"}}})
    converted(plan)
    assert broken(plan, tmp_path) == set()


def test_a_command_with_settings(tmp_path: Path) -> None:
    fragment = imported("maxtext-launch.sh")
    assert_sound(fragment)
    assert at(fragment, "model", "name") == "gpt3-22b"
    assert at(fragment, "metadata", "name") == "gpt3-22b-1024"
    assert at(fragment, "parallelism", "num_accelerators") == 1024
    assert at(fragment, "batch", "micro_sequences") == 2
    assert at(fragment, "model", "gated_ffn") is False
    answers = {"precision": {"recipe": {"high_precision_layers": ["embedding", "logits"]}}}
    assert "precision.recipe.high_precision_layers" in unknown_keys(fragment)
    converted(document(fragment, answers))
    assert broken(document(fragment, answers), tmp_path) == set()


def test_more_tensor_ranks_than_heads(tmp_path: Path) -> None:
    fragment = imported("maxtext-bad-heads.yml")
    found = broken(document(fragment), tmp_path, Severity.WARNING)
    assert ("TS-PAR-016", "model.num_attention_heads") in found


def test_an_axis_that_takes_the_rest() -> None:
    fragment = settings("ici_fsdp_parallelism: -1", "ici_tensor_parallelism: 2", "dcn_data_parallelism: 1")
    assert at(fragment, "parallelism", "data") is None
    assert at(fragment, "parallelism", "tensor") == 2
    assert {"parallelism.data", "parallelism.num_accelerators", "batch.global_sequences"} <= unknown_keys(fragment)
    fragment = settings("ici_fsdp_parallelism: -1", "ici_tensor_parallelism: 2", "compile_topology: v5p-128")
    assert at(fragment, "parallelism", "num_accelerators") == 64
    assert at(fragment, "parallelism", "data") == 32


def test_sequences_of_a_device_that_are_no_whole_number() -> None:
    fragment = settings("per_device_batch_size: 0.3".replace("per_device", "x"), "ici_fsdp_parallelism: 4")
    assert_sound(fragment)
    text = (MODEL + JOB).replace("size: 2", "size: 0.3") + "ici_fsdp_parallelism: 4\ndcn_data_parallelism: 1\n"
    fragment = read(ForeignText("run.yml", text))
    assert "batch.micro_sequences" in unknown_keys(fragment)
    assert "no whole number" in remarks_of(fragment)


def test_a_scale_of_all_dimensions() -> None:
    fragment = settings("global_parameter_scale: 16", "dcn_data_parallelism: 1", "ici_fsdp_parallelism: 4")
    assert at(fragment, "model", "hidden_size") == 2048
    assert at(fragment, "model", "num_attention_heads") == 32
    assert at(fragment, "model", "num_layers") == 24


def test_stages_in_a_circle() -> None:
    axes = ["ici_pipeline_parallelism: 4", "ici_fsdp_parallelism: 2", "dcn_data_parallelism: 1"]
    fragment = settings(*axes, "num_layers_per_pipeline_stage: 1")
    assert at(fragment, "parallelism", "num_virtual_stages") == 3
    assert at(fragment, "parallelism", "schedule") == "other"
    assert at(fragment, "batch", "accumulation_steps") == 4
    assert at(fragment, "batch", "global_sequences") == 16


def test_experts() -> None:
    text = "num_experts: 8\nnum_experts_per_tok: 2\nshared_experts: 1\nfirst_num_dense_layers: 2\n"
    fragment = settings(text, "ici_expert_parallelism: 8", "ici_fsdp_parallelism: 1", "dcn_data_parallelism: 1")
    assert at(fragment, "model", "experts") == {
        "num_experts": 8,
        "num_active_experts": 2,
        "ffn_hidden_size": 4096,
        "num_shared_experts": 1,
        "num_layers": 10,
    }
    assert at(fragment, "parallelism", "expert") == 8
    assert at(fragment, "parallelism", "data") == 8


def test_placeholders_of_the_base_file() -> None:
    lines = ["num_experts: 8", "num_experts_per_tok: 2", "base_moe_mlp_dim: -1", "learning_rate_schedule_steps: 500"]
    text = (MODEL + JOB).replace("steps: 100", "steps: -1") + "\n".join(lines) + "\n"
    fragment = read(ForeignText("run.yml", text))
    assert_sound(fragment)
    assert at(fragment, "model", "experts", "ffn_hidden_size") == 4096
    assert at(fragment, "job", "num_steps") == 500
    assert "-1" not in remarks_of(fragment)


def test_axes_with_a_meaning_of_their_own() -> None:
    axes = ["ici_tensor_sequence_parallelism: 2", "dcn_diloco_parallelism: 2", "dcn_data_parallelism: 1"]
    fragment = settings(*axes, "ici_fsdp_parallelism: 4", "ici_context_usp_ulysses_parallelism: 2")
    assert fragment.facts["parallelism"]["sequence"] is True
    assert fragment.facts["parallelism"]["context"] == 2
    assert at(fragment, "parallelism", "num_accelerators") == 32
    assert "DiLoCo" in remarks_of(fragment)


def test_logged_settings() -> None:
    lines = ["emb_dim: 1024", "num_query_heads: 8", "num_kv_heads: 8", "mlp_dim: 4096", "num_decoder_layers: 12"]
    lines += ["vocab_size: 32000", "mlp_activations: ['silu', 'linear']", "per_device_batch_size: 2.0", "steps: 10"]
    lines += ["logits_via_embedding: False", "max_target_length: 2048", "num_target_devices: 8", "num_slices: 1"]
    lines += ["ici_fsdp_parallelism: -1", "dcn_data_parallelism: -1", "base_emb_dim: 9", "quantization: "]
    text = "\n".join(f"I0317 09:59:16.24 1253 pyconfig.py:413] Config param {line}" for line in lines)
    assert looks_like(ForeignText("log", text))
    fragment = read(ForeignText("log", text))
    assert_sound(fragment)
    assert at(fragment, "model", "hidden_size") == 1024
    assert at(fragment, "parallelism", "data") == 8
    assert at(fragment, "batch", "global_sequences") == 16


def test_a_file_of_a_model_alone() -> None:
    fragment = read(ForeignText("model.yml", MODEL))
    assert_sound(fragment)
    assert set(fragment.facts) == {"model"}
    assert {"parallelism", "batch", "precision", "model.name"} <= unknown_keys(fragment)


@pytest.mark.parametrize(
    ("policy", "word"), [("full", "full"), ("minimal", "selective"), ("minimal_offloaded", "offload")]
)
def test_recomputation(policy: str, word: str) -> None:
    assert at(settings(f"remat_policy: {policy}"), "memory", "activation_policy") == word


def test_a_degree_that_is_none() -> None:
    fragment = settings("ici_tensor_parallelism: four")
    assert "parallelism.tensor" in unknown_keys(fragment)
    assert "where a degree or -1 belongs" in remarks_of(fragment)


@pytest.mark.parametrize("text", ["", "- a\n", "steps=\n", "python train.py 'open\nsteps=1"])
def test_what_is_refused(text: str) -> None:
    with pytest.raises(ForeignFormatError):
        read(ForeignText("x", text))


def test_gradients_are_cast_after_they_are_summed() -> None:
    fragment = settings("grad_dtype: bfloat16")
    assert at(fragment, "precision", "gradients") == "bf16"
    assert "grad_dtype" in how(fragment, "precision.gradients")
    assert (at(fragment, "precision", "reduction"), at(fragment, "precision", "accumulation")) == ("fp32", "fp32")
    stored = settings("grad_dtype: float32", "weight_dtype: bfloat16")
    assert (at(stored, "precision", "gradients"), at(stored, "precision", "accumulation")) == ("bf16", None)


def test_copies_of_shards_beside_context_ranks_stay_open() -> None:
    fragment = settings("dcn_data_parallelism: 2", "ici_fsdp_parallelism: 4", "ici_context_parallelism: 2")
    assert at(fragment, "parallelism", "sharding_degree") is None
    assert "parallelism.sharding_degree" in unknown_keys(fragment)


GEMMA2_27B = (
    "base_emb_dim: 4608\nbase_num_query_heads: 32\nbase_num_kv_heads: 16\nbase_mlp_dim: 36864\nhead_dim: 128\n"
    "base_num_decoder_layers: 23 # half\nmlp_activations: [gelu, linear]\nvocab_size: 256128\n"
    "decoder_block: gemma2\nlogits_via_embedding: true\n"
)


def test_a_block_of_gemma2_is_two_layers() -> None:
    """Gemma 2 (arXiv:2408.00118, table 2): 26,047 million parameters without and 1,180 million in the embedding."""
    fragment = read(ForeignText("gemma2-27b.yml", GEMMA2_27B))
    assert at(fragment, "model", "num_layers") == 46
    assert at(fragment, "model", "num_parameters") == pytest.approx(26_047e6 + 1_180e6, rel=0.002)


def test_a_block_that_is_no_plain_transformer_has_no_counted_parameters() -> None:
    fragment = read(ForeignText("next.yml", GEMMA2_27B.replace("gemma2", "qwen3_next")))
    assert {"model.family", "model.num_parameters"} <= unknown_keys(fragment)
    assert at(fragment, "model", "num_parameters") is None


def test_deepseek_has_its_published_number_of_parameters() -> None:
    """DeepSeek-V3 (arXiv:2412.19437): 671 billion in all, 37 billion for a token."""
    text = (
        "base_emb_dim: 7168\nbase_num_query_heads: 128\nbase_num_kv_heads: 128\nbase_mlp_dim: 18432\n"
        "base_moe_mlp_dim: 2048\nbase_num_decoder_layers: 61\nfirst_num_dense_layers: 3\nvocab_size: 129280\n"
        "mlp_activations: [silu, linear]\nlogits_via_embedding: false\nnum_experts: 256\nnum_experts_per_tok: 8\n"
        "shared_experts: 1\ndecoder_block: deepseek\nattention_type: mla\nq_lora_rank: 1536\nkv_lora_rank: 512\n"
        "qk_nope_head_dim: 128\nqk_rope_head_dim: 64\nv_head_dim: 128\n"
    )
    fragment = read(ForeignText("deepseek3.yml", text))
    assert at(fragment, "model", "num_parameters") == pytest.approx(671e9, rel=0.001)
    assert at(fragment, "model", "num_active_parameters") == pytest.approx(37e9, rel=0.02)
    without = read(ForeignText("deepseek3.yml", text.replace("kv_lora_rank: 512\n", "")))
    assert "model.num_parameters" in unknown_keys(without)


def test_settings_of_maxdiffusion_are_not_taken_for_maxtext() -> None:
    command = "python -m maxdiffusion.train base_2_base.yml per_device_batch_size=16 base_output_directory=gs://x"
    assert not looks_like(ForeignText("run.sh", command))


def test_a_setting_that_a_branch_decides() -> None:
    text = "if [ $1 = big ]; then B=8; else B=2; fi\n"
    text += "python train.py base.yml per_device_batch_size=$B max_target_length=2048 remat_policy=full steps=10\n"
    fragment = read(ForeignText("run.sh", text))
    assert at(fragment, "model", "sequence_length") == 2048
    assert at(fragment, "batch", "micro_sequences") is None


def test_an_axis_of_experts_without_experts_leaves_the_model_open() -> None:
    fragment = settings("ici_expert_parallelism: 8", "dcn_expert_parallelism: 1", "ici_fsdp_parallelism: 1")
    assert at(fragment, "parallelism", "expert") == 8
    assert {"model.experts", "model.family"} <= unknown_keys(fragment)
    assert "ici_expert_parallelism" not in remarks_of(fragment)


def test_axes_of_experts_may_shard_parameters_as_fsdp_does() -> None:
    experts = ("num_experts: 8", "num_experts_per_tok: 2", "ici_expert_parallelism: 8", "ici_fsdp_parallelism: 1")
    assert "parallelism.sharding" in unknown_keys(settings(*experts))
    assert at(settings("ici_fsdp_parallelism: 1", "ici_tensor_parallelism: 8"), "parallelism", "sharding") == "none"


def test_mu_dtype_is_the_format_of_the_first_moment_alone() -> None:
    assert "precision.optimizer_state" in unknown_keys(settings("mu_dtype: bfloat16"))
    assert at(settings("mu_dtype: bfloat16", "weight_dtype: bfloat16"), "precision", "optimizer_state") == "bf16"


STATED = (
    "steps: 1000",
    "opt_type: adamw",
    "gradient_clipping_threshold: 0.5",
    "learning_rate: 2.0e-4",
    "lr_schedule_type: cosine",
    "cosine_learning_rate_final_fraction: 0.1",
    "warmup_steps_fraction: 0.0333",
    "learning_rate_schedule_steps: -1",
)


def stated(*lines: str) -> Fragment:
    text = "\n".join(["per_device_batch_size: 1", "ici_fsdp_parallelism: 8", "max_target_length: 128", *lines, ""])
    return read(ForeignText("run.yml", text))


def test_the_optimizer_and_the_schedule_that_settings_state() -> None:
    fragment = stated(*STATED)
    assert_sound(fragment)
    assert fragment.facts["optimizer"] == {
        "name": "adamw",
        "clipping": {"kind": "global-norm", "threshold": 0.5},
        "learning_rate": {"kind": "cosine", "peak": 2e-4, "final": 2e-5, "total_steps": 1000, "warmup_steps": 33},
    }
    assert at(stated(*STATED[:-1], "learning_rate_schedule_steps: 500"), *RATE, "warmup_steps") == 16


def test_what_base_yml_decides_of_the_optimizer_is_open_and_said() -> None:
    fragment = stated("base_config: base.yml")
    assert_sound(fragment)
    rate = {f"optimizer.learning_rate.{key}" for key in ("kind", "peak", "final", "warmup_steps", "total_steps")}
    assert rate | {"optimizer.name", "optimizer.clipping", "job.num_steps"} <= unknown_keys(fragment)
    reasons = {entry.pointer: entry.reason for entry in fragment.unknown}
    assert "do not state opt_type; base.yml or another file" in reasons["optimizer", "name"]
    assert at(stated("learning_rate: 2.0e-4"), *RATE, "peak") == 2e-4


def test_a_file_with_all_settings_and_no_form_of_schedule_is_of_a_version_with_cosines() -> None:
    fragment = stated(*(line for line in STATED if "lr_schedule_type" not in line))
    assert at(fragment, *RATE, "kind") == "cosine"
    assert at(fragment, *RATE, "final") == 2e-5
    assert "optimizer.learning_rate.kind" in unknown_keys(stated(*STATED[:1], *STATED[3:4]))


def test_a_share_of_another_schedule_gives_no_last_rate() -> None:
    fragment = stated(*(line.replace("cosine", "wsd") if "type" in line else line for line in STATED))
    assert at(fragment, *RATE, "kind") == "warmup-stable-decay"
    assert "optimizer.learning_rate.final" in unknown_keys(fragment)


SCRIPT = "python3 MaxText/train.py MaxText/configs/base.yml model_name=llama2-7b steps=10 per_device_batch_size=2"
SCRIPT += " ici_fsdp_parallelism=8"


@pytest.mark.parametrize("word", ["$EXTRA_ARGS", '"${OVERRIDES[@]}"', "$1"])
def test_settings_that_only_the_caller_knows_are_told(word: str) -> None:
    fragment = read(ForeignText("run.sh", f"{SCRIPT} {word}\n"))
    assert "further options may come from outside the script" in remarks_of(fragment)
    assert at(fragment, "job", "num_steps") == 10
    closed = read(ForeignText("run.sh", f"{SCRIPT}\n"))
    assert "further options" not in remarks_of(closed)


def test_a_list_of_settings_from_outside_leaves_defaults_open() -> None:
    before = 'EXTRA=""\nwhile [ : ]; do case "$1" in -a) EXTRA="$EXTRA $2"; shift 2;; esac; done\n'
    closed = read(ForeignText("run.sh", f"{SCRIPT}\n"))
    assert at(closed, "precision", "compute") == "bf16"
    fragment = read(ForeignText("run.sh", f"{before}{SCRIPT} $EXTRA\n"))
    assert "$2" in remarks_of(fragment)
    assert at(read(ForeignText("run.sh", f"{SCRIPT} $MORE_ARGS\n")), "precision", "compute") is None


def test_the_program_and_its_launcher_are_no_settings() -> None:
    assert "$program" not in remarks_of(read(ForeignText("run.sh", f"{SCRIPT} hardware=gpu\n")))


def test_a_quantization_that_is_not_known_leaves_the_recipe_open() -> None:
    fragment = settings("quantization: te_nvfp4_no_rht")
    assert "precision.recipe" in unknown_keys(fragment)
    assert at(fragment, "precision", "recipe") is None
