"""What a writer writes, the reader of the same format reads as the plan that it came from."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from export_jobs import PLAN, changed, job

from trainspec_validate.documents.load import load_text
from trainspec_validate.interop import recognise as foreign
from trainspec_validate.interop.document import formats
from trainspec_validate.interop.fragment import ForeignText
from trainspec_validate.interop.writers._target import NotExpressible

PAIRS = {"deepspeed": "deepspeed-json", "torchtitan": "torchtitan-toml", "megatron-lm": "megatron-arguments"}
PAIRS |= {"maxtext": "maxtext-settings", "megatron-bridge": "megatron-bridge-yaml"}
CLEAR = {
    "precision.master_parameters": "fp32",
    "precision.accumulation": "fp32",
    "parallelism": {"num_accelerators": 64, "data": 16, "tensor": 4, "sequence": True, "sharding": "parameters"},
}
"""Both programs keep copies and sums in fp32, and torchtitan splits sequences, so that nothing is left out."""
PIPELINE = {"num_accelerators": 64, "data": 4, "tensor": 4, "pipeline": 4, "sequence": True, "sharding": "parameters"}
PLANS: dict[str, dict[str, Any]] = {
    "fully-sharded": {},
    "hybrid": {"parallelism.sharding_degree": 4},
    "data-only": {"parallelism": {"num_accelerators": 16, "data": 16, "sharding": "parameters"}},
    "overlapped": {"communication.overlap_gradients": True, "communication.bucket_bytes": 2e9},
    "recomputed": {"memory": {"activation_policy": "full"}},
}
TORCHTITAN_PLANS: dict[str, dict[str, Any]] = {
    "pipelined": {"parallelism": PIPELINE | {"schedule": "1f1b"}, "batch.accumulation_steps": 8},
    "interleaved": {
        "parallelism": PIPELINE | {"schedule": "interleaved-1f1b", "num_virtual_stages": 2},
        "batch.accumulation_steps": 8,
    },
    "long-sequences": {"parallelism": {"num_accelerators": 64, "data": 16, "context": 4, "sharding": "parameters"}},
    "hybrid-long-sequences": {
        "parallelism": {
            "num_accelerators": 64,
            "data": 16,
            "context": 4,
            "sharding": "parameters",
            "sharding_degree": 16,
        }
    },
    "replicated": {
        "parallelism": {"num_accelerators": 16, "data": 16, "sharding": "none"},
        "precision.parameters": "fp32",
        "precision.gradients": "fp32",
    },
    "with-a-limit": {"communication.timeout_seconds": 30, "job": {"num_steps": 100, "seed": 7}},
}
STAGES = {"num_accelerators": 64, "data": 4, "tensor": 4, "pipeline": 4, "sequence": True, "sharding": "optimizer"}
MEGATRON_PLANS: dict[str, dict[str, Any]] = {
    "pipelined": {"parallelism": STAGES | {"schedule": "1f1b"}, "batch.accumulation_steps": 8},
    "interleaved": {
        "parallelism": STAGES | {"schedule": "interleaved-1f1b", "num_virtual_stages": 2},
        "batch.accumulation_steps": 8,
    },
    "uneven": {
        "parallelism": STAGES
        | {
            "schedule": "interleaved-1f1b",
            "num_virtual_stages": 2,
            "stage_layers": [3, 4, 4, 5, 5, 4, 4, 3],
            "order": ["tensor", "context", "expert", "pipeline", "data"],
        },
        "batch.accumulation_steps": 8,
    },
    "long-sequences": {
        "parallelism": {
            "num_accelerators": 64,
            "data": 16,
            "context": 4,
            "context_method": "ring",
            "sharding": "optimizer",
        }
    },
    "experts": {
        "model.family": "moe-transformer",
        "model.experts": {"num_experts": 8, "num_active_experts": 2, "ffn_hidden_size": 1024},
        "parallelism": {
            "num_accelerators": 64,
            "data": 64,
            "expert": 8,
            "expert_tensor": 1,
            "sharding": "optimizer",
        },
    },
    "copies": {"parallelism": {"num_accelerators": 16, "data": 16, "sharding": "none"}},
    "with-a-limit": {"communication.timeout_seconds": 600, "job": {"num_steps": 100, "seed": 7}},
}
MAXTEXT_PLANS: dict[str, dict[str, Any]] = {
    "long-sequences": TORCHTITAN_PLANS["long-sequences"],
    "copies": MEGATRON_PLANS["copies"],
    "with-a-limit": {"job": {"num_steps": 100, "seed": 7}},
    "experts": {
        "model.family": "moe-transformer",
        "model.experts": {"num_experts": 8, "num_active_experts": 2, "ffn_hidden_size": 1024},
        "parallelism": {"num_accelerators": 64, "data": 64, "expert": 8, "sharding": "parameters"},
        "batch.global_sequences": 256,
    },
    "scheduled": {
        "job": {"num_steps": 1000},
        "optimizer": {
            "name": "adamw",
            "clipping": {"kind": "global-norm", "threshold": 1.0},
            "learning_rate": {
                "kind": "cosine",
                "peak": 3e-4,
                "final": 3e-5,
                "warmup_steps": 100,
                "total_steps": 1000,
            },
        },
    },
}
OPTIMIZER = {"what": "optimizer", "target": "host", "fraction": 1.0}
STATE = [OPTIMIZER | {"what": what} for what in ("parameters", "gradients", "optimizer")]
OFFLOADED: dict[str, list[dict[str, Any]]] = {
    "megatron-lm": [OPTIMIZER],
    "megatron-bridge": [OPTIMIZER],
    "deepspeed": [OPTIMIZER],
    "maxtext": [OPTIMIZER],
    "torchtitan": STATE,
}
"""What a search leaves on the host for each program, where it can."""
CASES = [(name, plan, changes) for name in PAIRS for plan, changes in PLANS.items()]
CASES += [("torchtitan", plan, changes) for plan, changes in TORCHTITAN_PLANS.items()]

CASES += [("maxtext", plan, changes) for plan, changes in MAXTEXT_PLANS.items()]
MEGATRON = ("megatron-lm", "megatron-bridge")
CASES += [(name, plan, changes) for name in MEGATRON for plan, changes in MEGATRON_PLANS.items()]
OWN = {name: {"precision.gradients": "fp32"} for name in MEGATRON}
"""Megatron-LM keeps gradients in the format in which it sums them."""
FROM_LAUNCHER = {name: {"parallelism.data"} for name in MEGATRON}
"""Keys that follow from the number of ranks, which the launcher of the program knows."""


def leaves(value: Any, above: str = "") -> Iterator[tuple[str, Any]]:
    if isinstance(value, dict):
        for key, item in value.items():
            yield from leaves(item, f"{above}.{key}" if above else key)
    else:
        yield above, value


@pytest.mark.parametrize(("name", "plan", "changes"), CASES, ids=[f"{name}-{plan}" for name, plan, _ in CASES])
def test_a_plan_comes_back(name: str, plan: str, changes: dict[str, Any]) -> None:
    readers = foreign.formats()
    if PAIRS[name] not in readers:
        pytest.skip(f"nothing reads {PAIRS[name]}")
    wanted = CLEAR | OWN.get(name, {}) | changes
    exported = formats()[name].write(job(wanted))
    text = ForeignText(exported.name, exported.text)
    assert foreign.recognise(text).name == PAIRS[name]
    read = dict(leaves(readers[PAIRS[name]].read(text).facts))
    said = dict(leaves(changed(PLAN, wanted)))
    common = said.keys() & read.keys()
    assert {key: read[key] for key in common} == {key: said[key] for key in common}
    degrees = {key for key in said if key in {"parallelism.data", "parallelism.tensor", "parallelism.pipeline"}}
    degrees -= FROM_LAUNCHER.get(name, set())
    assert degrees | {"batch.global_sequences", "batch.micro_sequences", "precision.compute"} <= common


def offloaded(name: str, entries: list[dict[str, Any]]) -> tuple[Any, str]:
    """What the reader of a program makes of a written plan that offloads, and what the writer left out."""
    own = {"parallelism.sharding": "optimizer"} if name.startswith("megatron") else {}
    wanted = CLEAR | OWN.get(name, {}) | own | {"memory": {"activation_policy": "none", "offload": entries}}
    exported = formats()[name].write(job(wanted))
    facts = foreign.formats()[PAIRS[name]].read(ForeignText(exported.name, exported.text)).facts
    return facts.get("memory", {}).get("offload"), "\n".join(exported.left_out)


@pytest.mark.parametrize("name", OFFLOADED)
def test_what_leaves_the_device_comes_back(name: str) -> None:
    read, left_out = offloaded(name, OFFLOADED[name])
    assert {entry["what"]: (entry["target"], entry["fraction"]) for entry in read} == {
        entry["what"]: ("host", 1.0) for entry in OFFLOADED[name]
    }
    assert "memory.offload" not in left_out


@pytest.mark.parametrize("name", ["megatron-lm", "megatron-bridge"])
def test_a_share_of_the_optimizer_comes_back_from_megatron(name: str) -> None:
    read, left_out = offloaded(name, [OPTIMIZER | {"fraction": 0.5, "overlapped": True}])
    assert read == [OPTIMIZER | {"fraction": 0.5, "overlapped": True}]
    assert "memory.offload" not in left_out


@pytest.mark.parametrize(
    ("name", "entries"),
    [
        ("megatron-lm", [OPTIMIZER | {"what": "gradients"}]),
        ("megatron-lm", [OPTIMIZER | {"target": "local-disk"}]),
        ("maxtext", [OPTIMIZER | {"fraction": 0.5}]),
        ("maxtext", [OPTIMIZER | {"what": "gradients"}]),
        ("torchtitan", [entry | {"fraction": 0.5} for entry in STATE]),
        ("torchtitan", [OPTIMIZER, OPTIMIZER | {"what": "parameters"}]),
    ],
)
def test_what_a_program_cannot_move_is_named_by_its_key(name: str, entries: list[dict[str, Any]]) -> None:
    read, left_out = offloaded(name, entries)
    assert not read
    assert "memory.offload" in left_out


def test_megatron_moves_a_sharded_optimizer_only() -> None:
    plan = MEGATRON_PLANS["copies"] | {"memory": {"activation_policy": "full", "offload": [OPTIMIZER]}}
    exported = formats()["megatron-lm"].write(job(plan))
    assert "offload" not in exported.text
    assert "--recompute-granularity full" in exported.text
    assert any("memory.offload[optimizer]" in note for note in exported.left_out)


ACCELERATE_PLANS = {
    **{name: PLANS[name] for name in ("fully-sharded", "hybrid", "data-only", "recomputed")},
    **{name: TORCHTITAN_PLANS[name] for name in ("long-sequences", "hybrid-long-sequences")},
    "gradients": {"parallelism": {"num_accelerators": 64, "data": 64, "sharding": "gradients"}},
    "copies": {
        "parallelism": {"num_accelerators": 16, "data": 16, "sharding": "none"},
        "precision.parameters": "fp32",
        "precision.gradients": "fp32",
    },
}


@pytest.mark.parametrize("plan", ACCELERATE_PLANS)
def test_a_plan_comes_back_from_accelerate(plan: str) -> None:
    """The configuration of Accelerate holds neither the batch nor the model; the training program has them."""
    sharded = {"precision.reduction": "bf16", "precision.gradients": "bf16", "precision.accumulation": None}
    wanted = CLEAR | sharded | ACCELERATE_PLANS[plan]
    exported = formats()["accelerate"].write(job(wanted))
    text = ForeignText(exported.name, exported.text)
    assert foreign.recognise(text).name == "huggingface-accelerate"
    read = dict(leaves(foreign.formats()["huggingface-accelerate"].read(text).facts))
    said = dict(leaves(changed(PLAN, wanted)))
    common = said.keys() & read.keys()
    differ = {key for key in common if read[key] != said[key]}
    assert differ == set()
    degrees = {key for key in said if key in {"parallelism.data", "parallelism.tensor", "parallelism.context"}}
    if plan == "copies":
        degrees = {"parallelism.num_accelerators"}
    assert degrees | {"parallelism.sharding", "precision.compute"} <= common


def test_accelerate_knows_every_key() -> None:
    """It refuses a file with others: ClusterConfig in accelerate 1.15.0, accelerate/commands/config/config_args.py."""
    text = formats()["accelerate"].write(job(CLEAR)).text
    found = {line.partition(":")[0] for line in text.splitlines() if line[0] not in "# "}
    assert found == {
        *("compute_environment", "distributed_type", "mixed_precision"),
        *("num_processes", "num_machines", "machine_rank", "fsdp_config", "parallelism_config"),
    }


def test_megatron_sends_tokens_to_experts_and_keeps_the_history_of_the_plan() -> None:
    recipe = {"format": "fp8-hybrid", "scaling": "delayed", "amax_history_steps": 1024}
    exported = formats()["megatron-lm"].write(job(MEGATRON_PLANS["experts"] | {"precision.recipe": recipe}))
    assert "--moe-token-dispatcher-type alltoall" in exported.text
    assert "--fp8-amax-history-len 1024" in exported.text
    assert any("--moe-grouped-gemm" in note for note in exported.left_out)
    assert any("--fp8-amax-compute-algo" in note for note in exported.left_out)


def test_overrides_of_a_recipe_switch_off_what_the_plan_has_not() -> None:
    written = formats()["megatron-bridge"].write(job(MEGATRON_PLANS["copies"] | {"model.tied_embeddings": True}))
    settings: Any = load_text(written.text.encode(), written.name).data
    assert settings["ddp"]["use_distributed_optimizer"] is False
    assert settings["model"]["sequence_parallel"] is False
    assert settings["model"]["virtual_pipeline_model_parallel_size"] is None
    assert settings["model"]["share_embeddings_and_output_weights"] is True
    assert settings["mixed_precision"] == "bf16_mixed"


def test_a_recipe_of_numbers_that_is_not_there_is_refused() -> None:
    recipe = {"format": "int8", "scaling": "delayed"}
    with pytest.raises(NotExpressible, match="no recipe of int8 with delayed scaling in bf16"):
        formats()["megatron-bridge"].write(job({"precision.recipe": recipe, **MEGATRON_PLANS["copies"]}))
