"""NeMo and Megatron Bridge: their YAML becomes plans."""

from __future__ import annotations

from pathlib import Path

import pytest
from plan_files import FIXTURES, assert_sound, at, broken, converted, document, how, imported, remarks_of, unknown_keys

from trainspec_validate.interop.fragment import ForeignFormatError, ForeignText, Fragment
from trainspec_validate.interop.merge import merge
from trainspec_validate.interop.readers.huggingface import read_trainer
from trainspec_validate.interop.readers.nemo import looks_like_nemo, read_bridge, read_nemo
from trainspec_validate.interop.recognise import recognise

OWN = "exp_manager:\n  create_checkpoint_callback: true\n"
"""A section that each training program of NeMo reads."""


def nemo(model: str, trainer: str = "precision: bf16") -> Fragment:
    shape = "num_layers: 24\n  hidden_size: 1024\n  num_attention_heads: 16\n  encoder_seq_length: 2048"
    text = f"{OWN}trainer:\n  devices: 8\n  num_nodes: 2\n  {trainer}\nmodel:\n  {shape}\n  {model}\n"
    text += "" if "optim:" in model else "  optim: {}\n"
    return read_nemo(ForeignText("gpt.yaml", text))


@pytest.mark.parametrize(
    "text",
    [
        "trainer:\n  precision: bf16\nmodel:\n  hidden_size: 1024\n  micro_batch_size: 4\n",
        "trainer:\n  devices: 8\nmodel:\n  hidden_size: 1024\n  global_batch_size: 64\n  num_layers: 12\n",
        "train:\n  micro_batch_size: 4\n  lr: 1e-3\nmodel:\n  num_layers: 12\n  hidden_size: 1024\n",
    ],
)
def test_a_configuration_of_another_program_is_refused(text: str) -> None:
    with pytest.raises(ForeignFormatError, match="fits no known format"):
        recognise(ForeignText("config.yaml", text))


def test_a_nemo_model(tmp_path: Path) -> None:
    fragment = imported("nemo-gpt.yaml")
    assert_sound(fragment)
    assert fragment.facts["metadata"] == {"name": "gpt-20b"}
    assert at(fragment, "model", "num_parameters") == 20_262_014_976
    assert "biases, norms with an offset, a table of positions by default of NeMo" in how(
        fragment, "model.num_parameters"
    )
    assert fragment.facts["parallelism"] == {
        "num_accelerators": 128,
        "data": 8,
        "tensor": 4,
        "pipeline": 4,
        "context": 1,
        "expert": 1,
        "sequence": True,
        "schedule": "1f1b",
        "sharding": "optimizer",
    }
    assert at(fragment, "batch", "accumulation_steps") == 64
    assert at(fragment, "precision", "reduction") == "fp32"
    assert "a checkpoint every 1000 steps" in remarks_of(fragment)
    assert "exp_manager.checkpoint_callback_params.monitor" in remarks_of(fragment)
    assert {"communication.timeout_seconds", "precision.nonfinite_action"} <= unknown_keys(fragment)
    converted(document(fragment))
    assert broken(document(fragment), tmp_path) == set()


def test_a_width_that_is_a_product_of_a_reference(tmp_path: Path) -> None:
    fragment = imported("nemo-bad-stages.yaml")
    assert_sound(fragment)
    assert at(fragment, "model", "ffn_hidden_size") == 8192
    assert "is not resolved" not in remarks_of(fragment)
    plan = document(fragment, {"model": {"name": "gpt", "num_parameters": 1_613_096_960}})
    converted(plan)
    assert {requirement for requirement, _ in broken(plan, tmp_path)} == {"TS-PAR-010"}


@pytest.mark.parametrize(
    ("written", "wanted"),
    [
        ("${multiply:4, ${.hidden_size}}", 4 * 6144),
        ("${multiply:${model.hidden_size},${.twice}}", 2 * 6144),
        ("${mul:2,${.hidden_size}}", 2 * 6144),
        ("${multiply:4,${.unknown}}", None),
        ("${multiply:4}", None),
        ("${divide:${.hidden_size},2}", None),
        ("${multiply:${oc.env:N},2}", None),
    ],
)
def test_products_of_two_numbers_are_computed(written: str, wanted: int | None) -> None:
    text = (FIXTURES / "nemo-gpt.yaml").read_text(encoding="utf-8")
    text = text.replace("ffn_hidden_size: 24576", f"twice: 2\n  ffn_hidden_size: {written}")
    found = read_nemo(ForeignText("a.yaml", text))
    assert found.facts["model"].get("ffn_hidden_size") == wanted
    assert ("model.ffn_hidden_size" in unknown_keys(found)) is (wanted is None)


@pytest.mark.parametrize(
    ("settings", "overlaps"),
    [
        ("ub_tp_comm_overlap: true", True),
        ("ub_tp_comm_overlap: false", False),
        ("ub_tp_comm_overlap: true\n  fsdp: true", False),
        ("hidden_dropout: 0.0", None),
    ],
)
@pytest.mark.parametrize("splits", [True, False])
def test_messages_of_tensor_ranks_overlap_where_ranks_split_the_sequence(
    settings: str, overlaps: bool | None, *, splits: bool
) -> None:
    text = (FIXTURES / "nemo-gpt.yaml").read_text(encoding="utf-8")
    text = text.replace("sequence_parallel: true", f"sequence_parallel: {str(splits).lower()}\n  {settings}")
    found = read_nemo(ForeignText("a.yaml", text))
    wanted = None if overlaps is None else overlaps and splits
    assert found.facts["communication"].get("overlap_tensor") is wanted
    is_idle = settings.startswith("ub_tp_comm_overlap: true") and not wanted
    assert ("tp_comm_overlap has no effect" in remarks_of(found)) is is_idle


def test_formats_without_level_2() -> None:
    fragment = nemo("megatron_amp_O2: false")
    assert at(fragment, "precision", "compute") == "bf16"
    assert at(fragment, "precision", "parameters") == "fp32"
    assert at(fragment, "precision", "master_parameters") is None


@pytest.mark.parametrize(
    ("written", "compute"),
    [("16", "fp16"), ("bf16-mixed", "bf16"), ("32-true", "fp32"), ("'64'", None), ("null", "fp32")],
)
def test_words_for_formats(written: str, compute: str | None) -> None:
    assert at(nemo("megatron_amp_O2: true", f"precision: {written}"), "precision", "compute") == compute


@pytest.mark.parametrize(
    ("optimizer", "format_"),
    [
        ("name: mcore_distributed_optim", "fp32"),
        ("name: mcore_distributed_optim, grad_sync_dtype: fp32", "fp32"),
        ("name: mcore_distributed_optim, grad_sync_dtype: bf16", "bf16"),
        ("name: distributed_fused_adam, grad_sync_dtype: torch.bfloat16", "bf16"),
        ("name: fused_adam", "fp32"),
    ],
)
def test_the_format_that_a_distributed_optimizer_sums_in(optimizer: str, format_: str) -> None:
    fragment = nemo(f"megatron_amp_O2: true\n  optim: {{{optimizer}}}")
    for key in ("gradients", "accumulation", "reduction"):
        assert at(fragment, "precision", key) == format_
    assert "grad_sync_dtype" not in remarks_of(fragment)
    if "grad_sync_dtype" in optimizer:
        assert "model.optim.grad_sync_dtype is" in how(fragment, "precision.reduction")


def test_sums_of_half_precision_and_sums_that_are_not_told() -> None:
    optimizer = "megatron_amp_O2: true\n  optim: {{name: mcore_distributed_optim{}}}"
    assert at(nemo(optimizer.format(""), "precision: 16"), "precision", "reduction") == "fp32"
    assert at(nemo(optimizer.format(", grad_sync_dtype: fp16"), "precision: 16"), "precision", "reduction") == "fp16"
    odd = nemo(optimizer.format(", grad_sync_dtype: fp7"))
    assert all(at(odd, "precision", key) is None for key in ("gradients", "accumulation", "reduction"))
    assert {"precision.gradients", "precision.accumulation", "precision.reduction"} <= unknown_keys(odd)
    assert "'fp7', which is not known" in remarks_of(odd)
    linked = nemo(optimizer.format(", grad_sync_dtype: '${a.b}'"))
    assert at(linked, "precision", "reduction") is None
    assert {"precision.gradients", "precision.accumulation", "precision.reduction"} <= unknown_keys(linked)
    whole = nemo(optimizer.format(", grad_sync_dtype: bf16"), "precision: 32")
    assert at(whole, "precision", "reduction") == "fp32"


def test_buckets_are_counted_in_the_format_that_is_reduced() -> None:
    optimizer = "{name: mcore_distributed_optim, grad_sync_dtype: bf16, ddp_bucket_size: 1000000}"
    fragment = nemo(f"megatron_amp_O2: true\n  optim: {optimizer}")
    assert at(fragment, "communication", "bucket_bytes") == 2_000_000


def test_gates_and_ranks_that_are_all_there_are() -> None:
    assert at(nemo("activation: fast-swiglu"), "model", "gated_ffn") is True
    text = "trainer:\n  devices: -1\n  num_nodes: 2\nmodel:\n  micro_batch_size: 1\n"
    fragment = read_nemo(ForeignText("gpt.yaml", text))
    assert "parallelism.num_accelerators" in unknown_keys(fragment)


def test_a_mixture_of_megatron_bridge(tmp_path: Path) -> None:
    fragment = imported("bridge-moe.yaml")
    assert_sound(fragment)
    assert at(fragment, "model", "num_parameters") == 30_532_110_336
    assert at(fragment, "precision", "optimizer_state") == "bf16"
    assert at(fragment, "precision", "recipe", "format") == "mxfp8"
    assert at(fragment, "parallelism", "num_virtual_stages") == 3
    assert {"parallelism.num_accelerators", "parallelism.data", "batch.accumulation_steps"} <= unknown_keys(fragment)
    answers = {"parallelism": {"num_accelerators": 64, "data": 32}, "batch": {"accumulation_steps": 16}}
    plan = document(fragment, {**answers, "optimizer": {"learning_rate": {"kind": "cosine"}}})
    converted(plan)
    assert broken(plan, tmp_path) == set()


def test_overrides_say_nothing_of_what_they_leave_out() -> None:
    fragment = imported("bridge-overrides.yaml")
    assert_sound(fragment)
    assert fragment.facts["parallelism"] == {"tensor": 4, "sequence": True}
    assert "precision" not in fragment.facts
    assert {"precision.compute", "parallelism.pipeline", "parallelism.sharding"} <= unknown_keys(fragment)


def test_a_recipe_by_name() -> None:
    text = "mixed_precision: bf16_with_fp8_current_scaling_mixed\nmodel:\n  hidden_size: 64\ntrain:\n  train_iters: 5\n"
    fragment = read_bridge(ForeignText("override.yaml", text))
    assert at(fragment, "precision", "compute") == "bf16"
    assert at(fragment, "precision", "recipe", "scaling") == "current"
    assert "names the recipe" in remarks_of(fragment)


@pytest.mark.parametrize(
    ("stated", "schedule"),
    [
        ("", None),
        ("  virtual_pipeline_model_parallel_size: null\n", None),
        ("  virtual_pipeline_model_parallel_size: 2\n", "interleaved-1f1b"),
        ("  virtual_pipeline_model_parallel_size: null\n  pipeline_model_parallel_layout: null\n", "1f1b"),
    ],
)
def test_a_recipe_of_bridge_may_split_stages_into_chunks(stated: str, schedule: str | None) -> None:
    text = f"model:\n  pipeline_model_parallel_size: 4\n  num_layers: 32\n{stated}train:\n  train_iters: 100\n"
    fragment = read_bridge(ForeignText("override.yaml", text))
    assert at(fragment, "parallelism", "schedule") == schedule
    assert ("parallelism.schedule" in unknown_keys(fragment)) is (schedule is None)


def test_bridge_says_how_gradients_are_reduced() -> None:
    text = "mixed_precision:\n  bf16: true\n  grad_reduce_in_fp32: {}\nmodel:\n  hidden_size: 64\n"
    for word, format_ in (("true", "fp32"), ("false", "bf16")):
        fragment = read_bridge(ForeignText("override.yaml", text.format(word)))
        assert at(fragment, "precision", "reduction") == format_
    assert "grad_reduce_in_fp32 is false" in how(fragment, "precision.reduction")


@pytest.mark.parametrize("read", [read_nemo, read_bridge])
@pytest.mark.parametrize("text", ["- 1\n- 2\n", "a: 1\na: 2\n", "a: [\n", ""])
def test_what_is_refused(read: object, text: str) -> None:
    assert callable(read)
    with pytest.raises(ForeignFormatError):
        read(ForeignText("x.yaml", text))


@pytest.mark.parametrize(
    "setting",
    [
        "pipeline_model_parallel_split_rank: 0",
        "activations_checkpoint_recurrent: false",
        "mamba_ssm_ngroups: 8",
        "hyena:\n    hyena_init_method: small_init",
        "tokenizer:\n    type: google/recurrentgemma-2b",
        "name: megatron_t5",
    ],
)
def test_models_that_are_no_plain_decoders(setting: str) -> None:
    fragment = nemo(setting)
    assert at(fragment, "model", "family") == "other"
    assert "model.num_parameters" in unknown_keys(fragment)


COUNTED = (
    "override_vocab_size: 1000\n  ffn_hidden_size: 4096\n  bias: false\n  normalization: rmsnorm\n"
    "  position_embedding_type: rope\n  {}"
)
PLAIN = 2 * 1000 * 1024 + 24 * (4 * 1024**2 + 2 * 1024 * 4096 + 2 * 1024) + 1024


@pytest.mark.parametrize(
    ("setting", "more"),
    [
        ("qkv_bias: false", 0),
        ("qkv_bias: true", 24 * 3 * 1024),
        ("attention_dropout: 0.1", 0),
        ("layernorm_epsilon: 1e-5", 0),
        ("headscale: false", 0),
        ("transformer_block_type: pre_ln", 0),
    ],
)
def test_biases_of_queries_keys_and_values_are_counted(setting: str, more: int) -> None:
    untied = "\n  share_embeddings_and_output_weights: false"
    fragment = nemo(COUNTED.format(setting + untied))
    assert at(fragment, "model", "num_parameters") == PLAIN + more
    assert merge([fragment]).facts["model"]["num_parameters"] == PLAIN + more


@pytest.mark.parametrize(
    "setting",
    [
        "headscale: true",
        "transformer_block_type: normformer",
        "use_emha: true",
        "qkv_bias: ${biased}",
        "per_layer_embedding_size: 256",
        "position_embedding_type: kerple",
        "num_hash_layers: 3",
    ],
)
def test_a_setting_that_may_give_the_model_weights_leaves_their_number_open(setting: str) -> None:
    text = COUNTED.replace("  position_embedding_type: rope\n", "") if "position" in setting else COUNTED
    fragment = nemo(text.format(setting))
    assert_sound(fragment)
    assert {"model.num_parameters", "model.name"} <= unknown_keys(fragment)
    assert "num_parameters" not in merge([fragment]).facts["model"]


def test_biases_of_megatron_bridge_are_counted_or_leave_the_count_open() -> None:
    shape = "num_layers: 2\n  hidden_size: 64\n  num_attention_heads: 4\n  ffn_hidden_size: 256\n  vocab_size: 1024"
    switches = "gated_linear_unit: false\n  share_embeddings_and_output_weights: false\n  num_query_groups: 4"
    head = "_target_: megatron.bridge.Config\ntrain:\n  train_iters: 5\n"
    text = f"{head}model:\n  {shape}\n  {switches}\n  add_bias_linear: true\n"
    assert "model.num_parameters" in unknown_keys(read_bridge(ForeignText("a.yaml", text)))
    text += "  normalization: RMSNorm\n  position_embedding_type: rope\n"
    matrices = 2 * 1024 * 64 + 2 * (4 * 64**2 + 2 * 64 * 256 + 2 * 64) + 64
    more = 2 * (3 * 64 + 64 + 256 + 64)
    assert at(read_bridge(ForeignText("a.yaml", text)), "model", "num_parameters") == matrices + more


def test_a_model_without_a_shape_has_no_family() -> None:
    text = "trainer:\n  devices: 8\n  num_nodes: 1\n  precision: bf16\nmodel:\n  tensor_model_parallel_size: 1\n"
    fragment = read_nemo(ForeignText("gpt.yaml", text))
    assert at(fragment, "model", "family") is None


def test_a_configuration_for_neuron_devices_is_not_taken_for_nemo() -> None:
    text = "trainer:\n  devices: 32\ndistributed_strategy:\n  tensor_model_parallel_size: 8\nmodel:\n  hidden_size: 8\n"
    assert not looks_like_nemo(ForeignText("neuron.yaml", text))


def test_a_precision_from_the_environment_stays_open() -> None:
    fragment = nemo("tensor_model_parallel_size: 1", "precision: ${oc.decode:${oc.env:PRECISION,bf16-mixed}}")
    assert "precision.compute" in unknown_keys(fragment)


def test_a_configuration_of_nemo_2_is_not_taken_for_one_of_megatron_models() -> None:
    text = "trainer:\n  devices: 8\nplugins:\n  precision: bf16-mixed\nmodel:\n  hidden_size: 8\n"
    assert not looks_like_nemo(ForeignText("salm.yaml", text))


def test_defaults_of_a_decoder_say_nothing_about_an_encoder_and_a_decoder() -> None:
    part = "{num_layers: 4, hidden_size: 64, activation: geglu, activations_checkpoint_granularity: full}"
    fragment = nemo(f"micro_batch_size: 1\n  encoder: {part}\n  decoder: {part}")
    told = unknown_keys(fragment)
    assert {"model.gated_ffn", "model.tied_embeddings", "memory.activation_policy"} <= set(told)


def test_a_model_of_nemo_without_megatron_is_not_read_with_the_defaults_of_megatron() -> None:
    lines = ["trainer:", "  devices: 8", "  precision: 16", "model:", "  language_model:", "    config:"]
    lines += ["      hidden_size: 768", "  train_ds:", "    batch_size: 16"]
    assert not looks_like_nemo(ForeignText("bert.yaml", "\n".join(lines) + "\n"))
    assert looks_like_nemo(ForeignText("gpt.yaml", "\n".join([*lines, "  megatron_amp_O2: true"]) + "\n"))


@pytest.mark.parametrize("section", ["dpo", "sft", "ppo"])
def test_clipping_of_an_aligner_is_in_the_section_of_its_algorithm(section: str) -> None:
    fragment = nemo("micro_batch_size: 1", f"{section}:\n    gradient_clip_val: 0.5")
    assert at(fragment, "optimizer", "clipping") == {"kind": "global-norm", "threshold": 0.5}


@pytest.mark.parametrize(
    "foreign",
    [
        "trainer:\n  type: A\nmodel:\n  model_config:\n    hidden_size: 64\nrunner:\n  micro_batch_size: 1\n",
        "trainer:\n  type: A\nmodel: {}\nparallel:\n  tensor_model_parallel_size: 2\n",
        "model:\n  model_path: a/b\ndata:\n  max_seq_len: 8\ntrain:\n  global_batch_size: 8\n  micro_batch_size: 1\n",
        "model:\n  hidden_size: 64\ntrain:\n  steps: 8\nsampler:\n  micro_batch_size: 1\n",
    ],
)
def test_sections_of_the_same_name_are_no_mark_of_a_format(foreign: str) -> None:
    with pytest.raises(ForeignFormatError, match="fits no known format"):
        recognise(ForeignText("job.yaml", foreign))


@pytest.mark.parametrize(
    ("own", "wanted"),
    [
        ("trainer:\n  devices: 8\nmodel:\n  # comment\n  tensor_model_parallel_size: 1\n", "nemo-megatron-yaml"),
        ("model:\n  tensor_model_parallel_size: 2\ntrain:\n  global_batch_size: 8\n", "megatron-bridge-yaml"),
        ("ddp:\n  overlap_grad_reduce: true\ntrain:\n  train_iters: 8\n", "megatron-bridge-yaml"),
    ],
)
def test_settings_right_below_a_section_are_marks_of_a_format(own: str, wanted: str) -> None:
    assert recognise(ForeignText("job.yaml", own)).name == wanted


@pytest.mark.parametrize(("num_strange", "is_taken"), [(2, True), (30, False)])
def test_defaults_do_not_hold_for_a_model_of_unknown_settings(num_strange: int, *, is_taken: bool) -> None:
    strange = "".join(f"  unet_setting_{number}: 1\n" for number in range(num_strange))
    text = (
        f"{OWN}trainer:\n  devices: 8\n  precision: 32\nmodel:\n  optim: {{}}\n  micro_batch_size: 1\n"
        f"  global_batch_size: 8\n  hidden_size: 64\n{strange}"
    )
    fragment = read_nemo(ForeignText("job.yaml", text))
    assert (at(fragment, "parallelism", "pipeline") is None) is not is_taken
    assert bool(fragment.defaults) is is_taken
    assert at(fragment, "batch", "global_sequences") == 8


COMPOSED = (
    "defaults:\n{}exp_manager: {{}}\ntrainer:\n  devices: 8\n  num_nodes: 4\n  precision: bf16\n"
    "model:\n  optim: {{}}\n  micro_batch_size: 1\n{}"
)
SIZES = "  global_batch_size: 128\n  tensor_model_parallel_size: 2\n  num_layers: 32\n  hidden_size: 4096\n"


def composed(*entries: str) -> Fragment:
    shape = f"{SIZES}  num_attention_heads: 32\n  encoder_seq_length: 4096\n"
    return read_nemo(ForeignText("gpt.yaml", COMPOSED.format("".join(f"  - {entry}\n" for entry in entries), shape)))


@pytest.mark.parametrize("entry", ["base_llama", "/configs/base@_global_", "model: llama", "model.optim: adam"])
def test_what_a_base_of_hydra_may_set_is_open_and_the_base_is_named(entry: str) -> None:
    alone = composed("_self_")
    assert at(alone, "parallelism", "pipeline") == 1
    assert at(alone, "parallelism", "sharding") == "none"
    assert at(alone, "precision", "parameters") == "fp32"
    entry = entry.replace("model.optim: adam", "optim@model.optim: adam")
    fragment = composed(entry, "_self_")
    assert_sound(fragment)
    assert at(fragment, "parallelism", "tensor") == 2
    assert at(fragment, "batch", "global_sequences") == 128
    left = {"parallelism.pipeline", "parallelism.sharding", "precision.parameters", "parallelism.data"}
    assert left <= unknown_keys(fragment)
    assert "composed of further files, which are not read: " in remarks_of(fragment)
    assert "defaults" not in remarks_of(fragment).partition("does not know it")[2]


@pytest.mark.parametrize(
    "entry", ["optional tp_overlap@model.ub_cfg: a", "hydra/launcher: local", "optional x@model: null"]
)
def test_a_part_of_its_own_section_leaves_the_rest(entry: str) -> None:
    assert at(composed("_self_", entry), "parallelism", "pipeline") == 1


def test_a_file_that_is_laid_over_this_one_leaves_nothing_known() -> None:
    fragment = composed("_self_", "experiment_llama")
    assert_sound(fragment)
    assert not {"parallelism", "model", "batch", "precision"} & fragment.facts.keys()
    reasons = {entry.reason for entry in fragment.unknown}
    assert "experiment_llama is laid over this file, and is not read" in reasons


def test_a_base_of_another_program_is_named_as_well() -> None:
    text = "include: base.yaml\nper_device_train_batch_size: 4\ndo_train: true\nsave_steps: 5\nbf16: true\n"
    fragment = read_trainer(ForeignText("sft.yaml", text))
    assert_sound(fragment)
    assert at(fragment, "batch", "micro_sequences") == 4
    assert at(fragment, "batch", "accumulation_steps") is None
    assert "composed of further files, which are not read: base.yaml" in remarks_of(fragment)


FLOW = (
    "trainer: {devices: 8, num_nodes: 2, precision: bf16}\n"
    "model: {tensor_model_parallel_size: 2, micro_batch_size: 1, num_layers: 4, hidden_size: 64, optim: {lr: 1.0e-4}}\n"
)


def test_a_model_in_braces_is_read() -> None:
    text = ForeignText("gpt.yaml", FLOW)
    assert recognise(text).name == "nemo-megatron-yaml"
    assert at(read_nemo(text), "parallelism", "tensor") == 2
    bridge = "model: {num_layers: 4, hidden_size: 64,\n  x: {y: [1, 2]}}\ntrain: {train_iters: 8}\n"
    assert recognise(ForeignText("gpt.yaml", bridge)).name == "megatron-bridge-yaml"


def test_what_is_deeper_in_braces_makes_no_model_of_megatron() -> None:
    text = "trainer: {devices: 8}\nmodel: {inner: {hidden_size: 64}}\n"
    assert not looks_like_nemo(ForeignText("a.yaml", text))


def test_sections_below_the_container_of_megatron_bridge_are_read() -> None:
    text = (
        "ConfigContainer:\n  train:\n    train_iters: 25\n  mixed_precision:\n    grad_reduce_in_fp32: false\n"
        "  profiling:\n    _target_: megatron.bridge.training.config.ProfilingConfig\n"
    )
    fragment = read_bridge(ForeignText("job.yaml", text))
    assert at(fragment, "job", "num_steps") == 25
    told = {entry.reason for entry in fragment.unknown if entry.pointer == ("precision", "reduction")}
    assert told == {"grad_reduce_in_fp32 is false: the compute format, which the recipe decides"}


def test_a_rate_of_megatron_bridge_is_kept_without_the_form_of_its_schedule() -> None:
    text = "model:\n  hidden_size: 64\ntrain:\n  train_iters: 25\noptimizer:\n  lr: 1e-4\n  min_lr: 1e-5\n"
    fragment = read_bridge(ForeignText("job.yaml", text + "  lr_warmup_iters: 100\n"))
    assert at(fragment, "optimizer", "learning_rate") == {"peak": 1e-4, "warmup_steps": 100}
    assert {"optimizer.learning_rate.kind", "optimizer.learning_rate.final"} <= unknown_keys(fragment)


def test_samples_have_the_length_of_the_data() -> None:
    fragment = nemo("data: {seq_length: 512}\n  global_batch_size: 64")
    assert at(fragment, "model", "sequence_length") == 512
    assert at(fragment, "batch", "global_tokens") == 64 * 512
    for same in ("null", "'${training.model.encoder_seq_length}'"):
        assert at(nemo(f"data: {{seq_length: {same}}}"), "model", "sequence_length") == 2048


def test_two_lengths_in_a_pipeline_leave_the_length_open() -> None:
    fragment = nemo("data: {seq_length: 512}\n  pipeline_model_parallel_size: 2\n  global_batch_size: 64")
    assert {"model.sequence_length"} <= unknown_keys(fragment)
    assert at(fragment, "batch", "global_tokens") is None
    same = nemo("data: {seq_length: 2048}\n  pipeline_model_parallel_size: 2")
    assert at(same, "model", "sequence_length") == 2048


def test_the_project_of_retro_replaces_batch_and_length() -> None:
    sizes = "global_batch_size: 256\n  micro_batch_size: 4\n  seed: 7\n  data: {seq_length: 2048}"
    fragment = nemo(f"{sizes}\n  retro: {{retro_project_dir: null}}", "precision: bf16\n  max_steps: 100")
    assert {"model.sequence_length", "batch.global_sequences", "job.seed"} <= unknown_keys(fragment)
    for key in (("batch", "accumulation_steps"), ("batch", "global_tokens"), ("job", "num_tokens")):
        assert at(fragment, *key) is None
    assert at(fragment, "job", "num_steps") == 100


@pytest.mark.parametrize(("scheme", "is_open"), [("ptuning", True), ("none", False), ("lora", False)])
def test_adapters_of_another_scheme_stay_open(scheme: str, *, is_open: bool) -> None:
    fragment = nemo(f"peft: {{peft_scheme: {scheme}, lora_tuning: {{adapter_dim: 8}}}}")
    assert ("lora" in unknown_keys(fragment)) is is_open


def test_adapters_of_megatron_bridge_stay_open() -> None:
    text = "peft:\n  dim: 8\nmodel:\n  tensor_model_parallel_size: 2\ntrain:\n  micro_batch_size: 1\n"
    assert "lora" in unknown_keys(read_bridge(ForeignText("sft.yaml", text)))
    assert "lora" not in unknown_keys(read_bridge(ForeignText("sft.yaml", text.removeprefix("peft:\n  dim: 8\n"))))
