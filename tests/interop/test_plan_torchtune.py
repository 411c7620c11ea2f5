"""torchtune: configurations of recipes become parts of plans."""

from __future__ import annotations

from typing import Any

import pytest
import yaml
from plan_files import FIXTURES, assert_sound, at, how, imported, unknown_keys

from trainspec_validate.interop.fragment import ForeignFormatError, ForeignText, Fragment
from trainspec_validate.interop.readers import torchtune
from trainspec_validate.interop.recognise import recognise

RATE = ("optimizer", "learning_rate")
BASE: dict[str, Any] = yaml.safe_load((FIXTURES / "torchtune-lora.yaml").read_text(encoding="utf-8"))


def changed(**more: Any) -> Fragment:
    """The fixture with other settings; None leaves one out."""
    values = {**BASE, **more}
    text = yaml.safe_dump({name: value for name, value in values.items() if value is not None}, sort_keys=False)
    fragment = torchtune.read(ForeignText("job.yaml", text))
    assert_sound(fragment)
    return fragment


def test_a_configuration_with_adapters() -> None:
    fragment = imported("torchtune-lora.yaml")
    assert_sound(fragment)
    assert fragment.format == "torchtune-yaml"
    assert at(fragment, "model") == {"name": "llama3_1_8b", "sequence_length": 8192}
    assert fragment.facts["lora"] == {
        "rank": 16,
        "alpha": 32.0,
        "targets": ["down", "gate", "output", "query", "up", "value"],
    }
    assert at(fragment, "batch") == {"micro_sequences": 2, "accumulation_steps": 8}
    assert at(fragment, "optimizer", "name") == "adamw"
    assert at(fragment, "optimizer", "clipping") == {"kind": "global-norm", "threshold": 1.0}
    assert at(fragment, *RATE) == {"kind": "cosine", "peak": 3e-4, "final": 0.0, "warmup_steps": 100}
    assert at(fragment, "memory") == {"activation_policy": "full"}
    assert at(fragment, "job") == {"seed": 7}
    stored = ("compute", "parameters", "gradients", "reduction", "optimizer_state")
    assert [at(fragment, "precision", key) for key in stored] == ["bf16"] * 5
    assert {"parallelism.sharding", "parallelism.data", "batch.global_sequences"} <= unknown_keys(fragment)


@pytest.mark.parametrize(
    ("more", "key", "value"),
    [
        ({"lr_scheduler": None}, "optimizer.learning_rate.kind", "constant"),
        ({"lr_scheduler": {"_component_": "my.own.schedule"}}, "optimizer.learning_rate.kind", "other"),
        ({"clip_grad_norm": None}, "optimizer.clipping", None),
        ({"optimizer": {"_component_": "bitsandbytes.optim.PagedAdamW8bit"}}, "optimizer.name", "adamw"),
        ({"optimizer": {"_component_": "bitsandbytes.optim.PagedAdamW8bit"}}, "precision.optimizer_state", "int8"),
        ({"optimizer": {"_component_": "bitsandbytes.optim.PagedAdamW"}}, "precision.optimizer_state", "fp32"),
        ({"optimizer": {"_component_": "torchao.optim.CPUOffloadOptimizer"}}, "precision.optimizer_state", None),
        ({"dtype": "fp32"}, "precision.gradients", "fp32"),
        ({"dtype": "int4"}, "precision.compute", None),
        ({"enable_activation_checkpointing": False}, "memory.activation_policy", "none"),
        ({"ac_mode": "selective"}, "memory.activation_policy", "selective"),
        ({"ac_mode": "selective", "ac_option": "op"}, "memory.activation_policy", "selective"),
        ({"ac_mode": "selective", "ac_option": 1}, "memory.activation_policy", "full"),
        ({"ac_mode": "selective", "ac_option": 2}, "memory.activation_policy", None),
        ({"tensor_parallel_dim": 4}, "parallelism.tensor", 4),
        ({"context_parallel_dim": 2}, "parallelism.context", 2),
        ({"data_parallel_shard_dim": 4, "data_parallel_replicate_dim": 2}, "parallelism.data", 8),
        ({"data_parallel_shard_dim": 4, "data_parallel_replicate_dim": 2}, "parallelism.sharding_degree", 4),
        ({"fsdp_reshard_after_forward": False}, "parallelism.sharding", "gradients"),
        ({"fsdp_reshard_after_forward": True}, "parallelism.sharding", "parameters"),
    ],
)
def test_settings(more: dict[str, Any], key: str, value: object) -> None:
    assert at(changed(**more), *key.split(".")) == value


def test_a_full_model_has_no_adapters() -> None:
    fragment = changed(model={"_component_": "torchtune.models.llama3_1.llama3_1_8b"})
    assert "lora" not in fragment.facts
    assert "lora" not in unknown_keys(fragment)
    assert "llama3_1_8b" in how(fragment, "model.name")


def test_adapters_that_only_the_builder_knows_are_open() -> None:
    fragment = changed(model={"_component_": "torchtune.models.llama3_1.lora_llama3_1_8b"})
    assert "lora" in unknown_keys(fragment)


def test_a_quantised_base_is_open() -> None:
    model = {**BASE["model"], "_component_": "torchtune.models.llama3_1.qlora_llama3_1_8b"}
    assert "precision.frozen_parameters" in unknown_keys(changed(model=model))


def test_offload() -> None:
    assert [entry["what"] for entry in at(changed(fsdp_cpu_offload=True), "memory", "offload")] == [
        "parameters",
        "gradients",
        "optimizer",
    ]
    assert "memory.offload" in unknown_keys(changed(enable_activation_offloading=True))


def test_a_profile_of_warm_up_steps_is_no_schedule() -> None:
    assert at(changed(profiler={"warmup_steps": 5}), *RATE, "final") == 0.0


def test_several_models_are_no_configuration_that_is_read() -> None:
    text = "policy_model:\n  _component_: torchtune.models.llama2.llama2\nbatch_size: 4\n"
    with pytest.raises(ForeignFormatError, match="fits no known format"):
        recognise(ForeignText("ppo.yaml", text))


def test_a_recipe_of_its_own_decides_formats_and_the_schedule() -> None:
    model = {**BASE["model"], "_component_": "own.models.llama"}
    fragment = changed(model=model, lr_scheduler=None)
    keys = {f"precision.{key}" for key in ("parameters", "gradients", "reduction", "optimizer_state")}
    assert keys | {"optimizer.learning_rate.kind"} <= unknown_keys(fragment)
    assert at(fragment, "precision", "compute") == "bf16"


def test_settings_of_a_schedule_at_the_top_leave_its_form_open() -> None:
    fragment = changed(lr_scheduler=None, warmup_steps=200, min_lr_ratio=0.1)
    assert "optimizer.learning_rate.kind" in unknown_keys(fragment)
    assert at(fragment, *RATE, "peak") == 3e-4
