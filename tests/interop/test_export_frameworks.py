"""Files for DeepSpeed, torchtitan, TensorFlow and XLA: what each key becomes, and that only real keys are written."""

from __future__ import annotations

import ast
import itertools
import json
import subprocess
import tomllib
from collections.abc import Iterator
from typing import Any

import pytest
from export_jobs import job, unknown_requirements
from hypothesis import given
from hypothesis import strategies as st

from trainspec_validate.interop.document import NotExpressible
from trainspec_validate.interop.writers import deepspeed, tensorflow, torchtitan, xla

# DeepSpeed 0.19.5: deepspeed/runtime/{config,constants,precision_config,zero/config,zero/offload_config}.py,
# deepspeed/runtime/{tensor_parallel/config,activation_checkpointing/config}.py, deepspeed/elasticity/constants.py
DEEPSPEED_KEYS = {
    *("train_batch_size", "train_micro_batch_size_per_gpu", "gradient_accumulation_steps", "prescale_gradients"),
    *("gradient_clipping",),
    *("zero_optimization.stage", "zero_optimization.overlap_comm", "zero_optimization.reduce_bucket_size"),
    *("zero_optimization.mics_shard_size", "zero_optimization.offload_param.device"),
    *("zero_optimization.offload_optimizer.device", "zero_optimization.offload_optimizer.ratio"),
    *("tensor_parallel.autotp_size", "communication_data_type", "data_types.grad_accum_dtype"),
    *("torch_autocast.enabled", "torch_autocast.dtype", "torch_autocast.lower_precision_safe_modules"),
    *("bf16.enabled", "bf16.bf16_master_weights_and_grads", "bf16.bf16_optimizer_states"),
    *("fp16.enabled", "fp16.loss_scale", "fp16.initial_scale_power", "fp16.loss_scale_window", "fp16.hysteresis"),
    *("fp16.min_loss_scale", "activation_checkpointing.cpu_checkpointing", "elasticity.enabled"),
    *("elasticity.max_train_batch_size", "elasticity.micro_batch_sizes", "elasticity.min_gpus"),
    *("elasticity.max_gpus", "elasticity.model_parallel_size", "elasticity.num_gpus_per_node"),
    *("elasticity.ignore_non_elastic_batch_info", "elasticity.version"),
}
# torchtitan 0.2.2: torchtitan/config/job_config.py
TORCHTITAN_KEYS = {
    *("job.description", "model.name", "model.flavor", "training.local_batch_size", "training.global_batch_size"),
    *("training.seq_len", "training.steps", "training.dtype", "training.mixed_precision_param", "training.max_norm"),
    *("training.mixed_precision_reduce", "training.enable_cpu_offload", "training.dataloader.num_workers"),
    *("training.dataloader.pin_memory", "parallelism.data_parallel_replicate_degree"),
    *("parallelism.data_parallel_shard_degree", "parallelism.fsdp_reshard_after_forward"),
    *("parallelism.tensor_parallel_degree", "parallelism.context_parallel_degree"),
    *("parallelism.expert_parallel_degree", "parallelism.expert_tensor_parallel_degree"),
    *("parallelism.pipeline_parallel_degree", "parallelism.pipeline_parallel_schedule"),
    *("parallelism.pipeline_parallel_microbatch_size", "parallelism.pipeline_parallel_layers_per_stage"),
    *("parallelism.pipeline_parallel_first_stage_less_layers",),
    *("parallelism.pipeline_parallel_last_stage_less_layers", "activation_checkpoint.mode", "checkpoint.enable"),
    *("checkpoint.interval", "checkpoint.async_mode", "checkpoint.keep_latest_k", "checkpoint.last_save_model_only"),
    *("comm.train_timeout_seconds", "debug.seed", "debug.deterministic"),
}
# Accepted by jaxlib 0.10.2, which ends a process that names a flag which it does not know.
XLA_FLAGS = {
    *("--xla_gpu_enable_latency_hiding_scheduler", "--xla_gpu_all_reduce_combine_threshold_bytes"),
    *("--xla_gpu_reduce_scatter_combine_threshold_bytes", "--xla_gpu_nccl_termination_timeout_seconds"),
    *("--xla_gpu_deterministic_ops",),
}
PIPELINE = {"num_accelerators": 64, "data": 4, "tensor": 4, "pipeline": 4, "sequence": True, "sharding": "parameters"}
SHARDED = {"parallelism.sharding": "parameters"}


def leaves(value: Any, above: str = "") -> Iterator[tuple[str, Any]]:
    if isinstance(value, dict):
        for key, item in value.items():
            yield from leaves(item, f"{above}.{key}" if above else key)
    else:
        yield above, value


def ds(plan: dict[str, Any] | None = None, policy: dict[str, Any] | None = None) -> tuple[dict[str, Any], str]:
    exported = deepspeed.write(job(plan, policy=policy))
    return dict(leaves(json.loads(exported.text))), "\n".join(exported.left_out)


def titan(plan: dict[str, Any] | None = None, policy: dict[str, Any] | None = None) -> tuple[dict[str, Any], str]:
    given = plan or {}
    exported = torchtitan.write(job(given if "parallelism" in given else SHARDED | given, policy=policy))
    assert not unknown_requirements(exported.text)
    return dict(leaves(tomllib.loads(exported.text))), "\n".join(exported.left_out)


# --- deepspeed ----------------------------------------------------------------------------------------------


def test_the_smallest_deepspeed_file() -> None:
    assert json.loads(deepspeed.write(job()).text) == {
        "train_batch_size": 64,
        "train_micro_batch_size_per_gpu": 2,
        "gradient_accumulation_steps": 2,
        "zero_optimization": {"stage": 0},
        "tensor_parallel": {"autotp_size": 4},
        "bf16": {"enabled": True},
        "communication_data_type": "fp32",
        "data_types": {"grad_accum_dtype": "bf16"},
    }


FP16 = {"precision": {"compute": "fp16", "parameters": "fp16", "gradients": "fp16", "reduction": "fp16"}}
OFFLOAD = {"what": "optimizer", "target": "host", "fraction": 1}


@pytest.mark.parametrize(
    ("plan", "expected"),
    [
        ({"parallelism.sharding": "optimizer"}, {"zero_optimization.stage": 1}),
        ({"parallelism.sharding": "gradients"}, {"zero_optimization.stage": 2}),
        ({"parallelism.sharding": "parameters"}, {"zero_optimization.stage": 3}),
        (
            {"parallelism.sharding": "parameters", "parallelism.sharding_degree": 4},
            {"zero_optimization.mics_shard_size": 4},
        ),
        (
            {"communication.bucket_bytes": 2e9, "communication.overlap_gradients": False},
            {"zero_optimization.reduce_bucket_size": 500_000_000, "zero_optimization.overlap_comm": False},
        ),
        ({"communication.bucket_bytes": 2e9} | FP16, {"zero_optimization.reduce_bucket_size": 1_000_000_000}),
        (FP16 | {"precision.loss_scaling": {"mode": "static", "initial_scale": 1024}}, {"fp16.loss_scale": 1024}),
        (
            FP16
            | {
                "precision.loss_scaling": {
                    "mode": "dynamic",
                    "initial_scale": 65536,
                    "growth_interval_steps": 2000,
                    "hysteresis_steps": 2,
                    "min_scale": 1,
                }
            },
            {
                "fp16.enabled": True,
                "fp16.loss_scale": 0,
                "fp16.initial_scale_power": 16,
                "fp16.loss_scale_window": 2000,
                "fp16.hysteresis": 2,
                "fp16.min_loss_scale": 1,
            },
        ),
        (
            {"parallelism.sharding": "optimizer", "precision.optimizer_state": "bf16"},
            {"bf16.bf16_master_weights_and_grads": True, "bf16.bf16_optimizer_states": True},
        ),
        (
            {"parallelism.sharding": "optimizer", "precision.master_parameters": "fp32"},
            {"bf16.bf16_master_weights_and_grads": None},
        ),
        (
            {"precision.parameters": "fp32", "precision.gradients": "fp32", "precision.reduction": "fp32"},
            {
                "torch_autocast.enabled": True,
                "torch_autocast.dtype": "bfloat16",
                "torch_autocast.lower_precision_safe_modules": [],
                "bf16.enabled": None,
            },
        ),
        ({"communication.gradient_averaging": "divide-before"}, {"prescale_gradients": True}),
        ({"communication.gradient_averaging": "divide-after"}, {"prescale_gradients": False}),
        (
            {"communication.gradient_averaging": "divide-before", "parallelism.sharding": "gradients"},
            {"prescale_gradients": None},
        ),
        (
            {"parallelism.sharding": "gradients", "memory": {"activation_policy": "none", "offload": [OFFLOAD]}},
            {"zero_optimization.offload_optimizer.device": "cpu", "zero_optimization.offload_optimizer.ratio": None},
        ),
        (
            {
                "parallelism.sharding": "parameters",
                "memory": {"activation_policy": "offload", "offload": [OFFLOAD | {"fraction": 0.5}]},
            },
            {
                "zero_optimization.offload_optimizer.ratio": 0.5,
                "activation_checkpointing.cpu_checkpointing": True,
            },
        ),
        (
            {"batch.elastic": {"data_degrees": [16, 8], "micro_sequences": [4, 2]}},
            {
                "elasticity.micro_batch_sizes": [2, 4],
                "elasticity.min_gpus": 32,
                "elasticity.max_gpus": 64,
                "elasticity.model_parallel_size": 4,
                "elasticity.num_gpus_per_node": 8,
                "elasticity.max_train_batch_size": 64,
            },
        ),
    ],
)
def test_a_key_becomes_that_of_deepspeed(plan: dict[str, Any], expected: dict[str, Any]) -> None:
    found, _ = ds(plan)
    assert {key: found.get(key) for key in expected} == expected
    assert set(found) <= DEEPSPEED_KEYS


@pytest.mark.parametrize(
    ("plan", "words"),
    [
        ({"parallelism": PIPELINE | {"sharding": "optimizer"}}, "PipelineModule"),
        ({"parallelism.sharding": "gradients", "parallelism.sharding_degree": 4}, "over all data ranks"),
        ({"precision.recipe": {"format": "mxfp8"}}, "mxfp8"),
        ({"batch.ramp": [{"from_tokens": 0, "global_sequences": 64}]}, "batch.ramp"),
        ({"communication.timeout_seconds": 90}, "DEEPSPEED_TIMEOUT=2"),
        ({"memory": {"activation_policy": "selective"}}, "selective"),
        ({"memory": {"activation_policy": "none", "offload": [OFFLOAD]}}, "ZeRO stage 0"),
        (
            {"memory": {"activation_policy": "none", "offload": [OFFLOAD | {"target": "local-disk"}]}},
            "nvme_path",
        ),
        (
            FP16 | {"precision.loss_scaling": {"mode": "dynamic", "initial_scale": 1000, "growth_factor": 4}},
            "doubles and halves",
        ),
        ({"communication.gradient_averaging": "weighted"}, "gradient_averaging is weighted"),
        ({"batch.elastic": {"data_degrees": [16], "micro_sequences": [2]}, "parallelism.tensor": 3}, "divide a node"),
    ],
)
def test_what_deepspeed_cannot_say_is_told(plan: dict[str, Any], words: str) -> None:
    assert words in ds(plan)[1]


@pytest.mark.parametrize(("sharding", "stage"), [("gradients", 2), ("parameters", 3)])
def test_a_pipeline_that_shards_gradients_is_refused_by_deepspeed(sharding: str, stage: int) -> None:
    with pytest.raises(NotExpressible, match=f"refuses ZeRO stage {stage}"):
        ds({"parallelism": PIPELINE | {"sharding": sharding}})


def test_deepspeed_shards_over_context_ranks_too() -> None:
    long = {"num_accelerators": 64, "data": 16, "context": 4, "sharding": "parameters"}
    assert "zero_optimization.mics_shard_size" not in ds({"parallelism": long | {"sharding_degree": 64}})[0]
    assert ds({"parallelism": long | {"sharding_degree": 16}})[0]["zero_optimization.mics_shard_size"] == 16


def test_shards_that_context_ranks_do_not_divide_are_refused_by_torchtitan() -> None:
    long = {"num_accelerators": 64, "data": 16, "context": 4, "sharding": "parameters", "sharding_degree": 2}
    with pytest.raises(NotExpressible, match="2 ranks share a copy, which 4 context ranks do not divide"):
        titan({"parallelism": long})


# --- torchtitan ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("plan", "expected"),
    [
        (
            {},
            {
                "training.local_batch_size": 2,
                "training.global_batch_size": 64,
                "training.seq_len": 4096,
                "training.dtype": "bfloat16",
                "training.mixed_precision_param": "bfloat16",
                "parallelism.data_parallel_replicate_degree": 1,
                "parallelism.data_parallel_shard_degree": 16,
                "parallelism.tensor_parallel_degree": 4,
                "model.name": None,
            },
        ),
        ({"precision.master_parameters": "fp32"}, {"training.dtype": "float32"}),
        (
            {"parallelism.sharding": "parameters", "parallelism.sharding_degree": 4},
            {
                "parallelism.data_parallel_replicate_degree": 4,
                "parallelism.data_parallel_shard_degree": 4,
                "parallelism.fsdp_reshard_after_forward": "always",
            },
        ),
        ({"parallelism.sharding": "gradients"}, {"parallelism.fsdp_reshard_after_forward": "never"}),
        (
            {"parallelism": PIPELINE | {"schedule": "1f1b"}},
            {
                "training.local_batch_size": 4,
                "parallelism.pipeline_parallel_degree": 4,
                "parallelism.pipeline_parallel_microbatch_size": 2,
                "parallelism.pipeline_parallel_schedule": "1F1B",
                "parallelism.pipeline_parallel_layers_per_stage": 8,
                "parallelism.pipeline_parallel_first_stage_less_layers": 0,
                "parallelism.pipeline_parallel_last_stage_less_layers": 0,
            },
        ),
        (
            {"parallelism": PIPELINE | {"schedule": "interleaved-1f1b", "num_virtual_stages": 2}},
            {
                "parallelism.pipeline_parallel_schedule": "Interleaved1F1B",
                "parallelism.pipeline_parallel_layers_per_stage": 4,
            },
        ),
        (
            {"parallelism": PIPELINE | {"schedule": "gpipe", "stage_layers": [7, 9, 9, 7]}},
            {
                "parallelism.pipeline_parallel_schedule": "GPipe",
                "parallelism.pipeline_parallel_layers_per_stage": 9,
                "parallelism.pipeline_parallel_first_stage_less_layers": 2,
                "parallelism.pipeline_parallel_last_stage_less_layers": 2,
            },
        ),
        (
            {"parallelism.expert": 8, "parallelism.expert_tensor": 1},
            {"parallelism.expert_parallel_degree": 8, "parallelism.expert_tensor_parallel_degree": 1},
        ),
        ({"job": {"num_steps": 7, "seed": 3}}, {"training.steps": 7, "debug.seed": 3}),
        ({"job": {"num_tokens": 1e6}}, {"training.steps": 4}),
        ({"precision.deterministic": True}, {"debug.deterministic": True}),
        ({"communication.timeout_seconds": 29.1}, {"comm.train_timeout_seconds": 30}),
        (
            {"memory": {"activation_policy": "full", "num_loader_workers": 4, "pinned_input": True}},
            {
                "activation_checkpoint.mode": "full",
                "training.dataloader.num_workers": 4,
                "training.dataloader.pin_memory": True,
            },
        ),
        (
            {
                "memory": {
                    "activation_policy": "none",
                    "offload": [OFFLOAD, OFFLOAD | {"what": "parameters"}, OFFLOAD | {"what": "gradients"}],
                }
            },
            {"training.enable_cpu_offload": True},
        ),
        (
            {"model.num_layers": 80, "model.hidden_size": 8192, "model.num_attention_heads": 64},
            {"model.name": "llama3", "model.flavor": "70B"},
        ),
    ],
)
def test_a_key_becomes_that_of_torchtitan(plan: dict[str, Any], expected: dict[str, Any]) -> None:
    found, _ = titan(plan)
    assert {key: found.get(key) for key in expected} == expected
    assert set(found) <= TORCHTITAN_KEYS


@pytest.mark.parametrize(
    ("policy", "expected"),
    [
        (
            {},
            {"enable": True, "interval": 50, "async_mode": "async", "keep_latest_k": 5, "last_save_model_only": False},
        ),
        ({"save.mode": "synchronous"}, {"async_mode": "disabled"}),
        ({"interval": {"seconds": 100, "step_seconds": 7}}, {"interval": 14}),
        ({"retention.num_kept": 1}, {"keep_latest_k": None}),
        ({"state.items": ["model"]}, {"last_save_model_only": None}),
    ],
)
def test_the_policy_becomes_the_checkpoint_table(policy: dict[str, Any], expected: dict[str, Any]) -> None:
    found, _ = titan(policy=policy)
    assert {key: found.get(f"checkpoint.{key}") for key in expected} == expected
    assert set(found) <= TORCHTITAN_KEYS


@pytest.mark.parametrize(
    ("plan", "words"),
    [
        ({"parallelism.sharding": "optimizer"}, "shards parameters too"),
        ({"parallelism": PIPELINE | {"schedule": "interleaved-1f1b"}}, "does not run with 1 chunks"),
        ({"parallelism": PIPELINE | {"schedule": "other"}}, "schedule is other"),
        ({"parallelism": PIPELINE | {"schedule": "1f1b", "stage_layers": [7, 8, 9, 8]}}, "module_fqns_per_model_part"),
        (
            {"parallelism": PIPELINE | {"schedule": "1f1b", "order": ["tensor", "pipeline", "data"]}},
            "the plan says tensor, pipeline, data",
        ),
        ({"precision.reduction": "bf16"}, "reduces in fp32"),
        ({"precision.compute": "fp16"}, "computes in bf16 or fp32"),
        ({"memory": {"activation_policy": "offload"}}, "recomputes or keeps"),
        ({}, "sequence is absent"),
        ({"parallelism.sequence": False}, "sequence is false"),
    ],
)
def test_what_torchtitan_cannot_say_is_told(plan: dict[str, Any], words: str) -> None:
    assert words in titan(plan)[1]


def test_copies_of_a_split_model_are_refused() -> None:
    with pytest.raises(NotExpressible, match="no 16 copies"):
        torchtitan.write(job())


def test_plain_copies_are_replicated() -> None:
    found, left_out = titan({"parallelism": {"num_accelerators": 64, "data": 64}})
    degrees = [found[f"parallelism.data_parallel_{kind}_degree"] for kind in ("replicate", "shard")]
    assert degrees == [64, 1]
    assert "precision" not in left_out
    _, left_out = titan({"parallelism": {"num_accelerators": 64, "data": 64}, "precision.master_parameters": "fp32"})
    assert "the format of parameters, fp32" in left_out
    assert found["training.mixed_precision_param"] == "bfloat16"


def test_one_split_copy_is_computed_as_it_is_stored() -> None:
    found, left_out = titan({"parallelism": {"num_accelerators": 8, "tensor": 8}})
    assert "training.mixed_precision_param" not in found
    assert "as it is stored" in left_out


@given(st.text())
def test_any_text_is_a_toml_string(text: str) -> None:
    # TOML has no escape for halves of surrogate pairs, and no document that is read as UTF-8 holds one.
    clean = text.encode("utf-8", "ignore").decode()
    assert tomllib.loads("\n".join(torchtitan._toml({"a": {"b": clean}})))["a"]["b"] == clean


@given(
    st.dictionaries(st.from_regex(r"[a-z_]+", fullmatch=True), st.booleans() | st.integers(-9, 9) | st.text('ab\n"'))
)
def test_tables_are_read_back_as_written(table: dict[str, Any]) -> None:
    assert tomllib.loads("\n".join(torchtitan._toml({"t": table}))) == ({"t": table} if table else {})


@pytest.mark.parametrize(("pipeline", "chunks", "layers"), [*itertools.product([2, 4, 8], [1, 2], [32, 126])])
def test_even_splits_are_those_of_torchtitan(pipeline: int, chunks: int, layers: int) -> None:
    plan = {
        "parallelism": {"num_accelerators": pipeline, "pipeline": pipeline, "num_virtual_stages": chunks},
        "model.num_layers": layers,
    }
    split = torchtitan._split(job(plan))
    if layers % (pipeline * chunks):
        assert split is None
    else:
        assert split is not None
        # torchtitan divides layers and the two weights by layers per stage to get the number of stages.
        assert -(-(layers + split[0] + split[1]) // split[2]) == pipeline * chunks


# --- tensorflow ---------------------------------------------------------------------------------------------


DATA_ONLY = {"parallelism": {"num_accelerators": 64, "data": 64}}


def test_the_module_gives_each_worker_its_place() -> None:
    text = tensorflow.write(job(DATA_ONLY)).text
    names = {node.name: node for node in ast.parse(text).body if isinstance(node, ast.FunctionDef)}
    program = "import json\nNUM_WORKERS = 8\n" + ast.unparse(names["tf_config"])
    assert "NUM_WORKERS = 8 " in text
    scope: dict[str, Any] = {}
    exec(program, scope)
    hosts = [f"h{number}" for number in range(8)]
    assert json.loads(scope["tf_config"](hosts, 3)) == {
        "cluster": {"worker": [f"{host}:12345" for host in hosts]},
        "task": {"type": "worker", "index": 3},
    }
    with pytest.raises(ValueError, match="2 hosts, but the plan takes 8"):
        scope["tf_config"](hosts[:2], 0)


def test_options_follow_from_the_plan() -> None:
    plan = DATA_ONLY | {"communication.bucket_bytes": 25e6, "communication.timeout_seconds": 30}
    text = tensorflow.write(job(plan)).text
    calls = {ast.unparse(node.func): node for node in ast.walk(ast.parse(text)) if isinstance(node, ast.Call)}
    options = calls["tf.distribute.experimental.CommunicationOptions"]
    assert {word.arg: ast.unparse(word.value) for word in options.keywords} == {
        "bytes_per_pack": "25000000",
        "timeout_seconds": "30",
        "implementation": "tf.distribute.experimental.CommunicationImplementation.NCCL",
    }
    assert "set_global_policy('mixed_bfloat16')" in ast.unparse(ast.parse(text))
    assert not unknown_requirements(text)


def test_a_split_model_is_refused() -> None:
    with pytest.raises(NotExpressible, match="the plan has tensor 4"):
        tensorflow.write(job())


# --- xla ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("plan", "expected"),
    [
        ({}, ""),
        ({"communication.overlap_gradients": True}, "--xla_gpu_enable_latency_hiding_scheduler=true"),
        ({"communication.overlap_gradients": False}, "--xla_gpu_enable_latency_hiding_scheduler=false"),
        ({"communication.bucket_bytes": 5e7}, "--xla_gpu_all_reduce_combine_threshold_bytes=50000000"),
        (
            {"communication.bucket_bytes": 5e7, "parallelism.sharding": "parameters"},
            "--xla_gpu_reduce_scatter_combine_threshold_bytes=50000000",
        ),
        ({"communication.timeout_seconds": 29.5}, "--xla_gpu_nccl_termination_timeout_seconds=30"),
        ({"precision.deterministic": True}, "--xla_gpu_deterministic_ops=true"),
    ],
)
def test_flags_follow_from_the_plan(plan: dict[str, Any], expected: str) -> None:
    text = xla.write(job(plan)).text
    script = "set -u\n" + text + 'printf "%s" "${XLA_FLAGS:-}"'
    done = subprocess.run(["bash", "-c", script], capture_output=True, text=True, check=True, env={})
    assert done.stdout.strip() == expected
    assert {flag.partition("=")[0] for flag in done.stdout.split()} <= XLA_FLAGS
    assert not unknown_requirements(text)


def test_flags_that_were_set_before_stay() -> None:
    text = xla.write(job({"communication.overlap_gradients": True})).text
    script = text + 'printf "%s" "${XLA_FLAGS}"'
    done = subprocess.run(
        ["bash", "-c", script], capture_output=True, text=True, check=True, env={"XLA_FLAGS": "--a=1"}
    )
    assert done.stdout.split() == ["--a=1", "--xla_gpu_enable_latency_hiding_scheduler=true"]


def test_the_mesh_names_the_outermost_axis_first() -> None:
    plan = {"parallelism": PIPELINE | {"order": ["tensor", "pipeline", "data"]}}
    assert "data 4, pipeline 4, tensor 4\n" in xla.write(job(plan)).text


CLIPPED = {"name": "adamw", "clipping": {"kind": "global-norm", "threshold": 0.3}}
BY_VALUE = {"name": "muon", "clipping": {"kind": "value", "threshold": 0.3}}


def test_clipping_by_norm_is_written_and_nothing_is_dropped_without_a_word() -> None:
    sections = {
        "optimizer": CLIPPED,
        "data": {"datasets": [{"name": "web"}]},
        "lora": {"rank": 8, "targets": ["query"]},
    }
    for (keys, notes), key in ((ds(sections), "gradient_clipping"), (titan(sections), "training.max_norm")):
        assert keys[key] == 0.3
        for section in ("optimizer: adamw", "data:", "lora,"):
            assert section in notes
        assert "clipping" not in notes
    for (keys, notes), key in (
        (ds({"optimizer": BY_VALUE}), "gradient_clipping"),
        (titan({"optimizer": BY_VALUE}), "training.max_norm"),
    ):
        assert key not in keys
        assert "optimizer.clipping: value" in notes
    assert "optimizer:" not in ds()[1]
