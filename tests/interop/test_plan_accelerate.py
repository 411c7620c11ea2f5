"""accelerate: degrees and prefetches of a configuration."""

from __future__ import annotations

import pytest
from plan_files import assert_sound, at, unknown_keys

from trainspec_validate.interop.fragment import ForeignText, Fragment
from trainspec_validate.interop.readers.huggingface import read_accelerate, read_trainer

OVERLAP = ("communication", "overlap_parameters")


def accelerate(*lines: str) -> Fragment:
    fragment = read_accelerate(ForeignText("config.yaml", "\n".join(lines) + "\n"))
    assert_sound(fragment)
    return fragment


@pytest.mark.parametrize(
    "lines",
    [
        ("distributed_type: TP", "tp_config:", "  tp_size: 4"),
        ("distributed_type: MULTI_GPU", "parallelism_config:", "  parallelism_config_tp_size: 4"),
    ],
)
def test_tensor_ranks_are_no_data_ranks(lines: tuple[str, ...]) -> None:
    fragment = accelerate(*lines, "num_processes: 8")
    assert at(fragment, "parallelism", "tensor") == 4
    assert at(fragment, "parallelism", "data") == 2


def test_tensor_parallelism_without_a_size_leaves_the_degrees_open() -> None:
    fragment = accelerate("distributed_type: TP", "num_processes: 8")
    assert at(fragment, "parallelism", "data") is None
    assert {"parallelism.tensor", "parallelism.data"} <= unknown_keys(fragment)


@pytest.mark.parametrize(
    ("lines", "overlaps"),
    [
        (("fsdp_backward_prefetch: NO_PREFETCH", "fsdp_forward_prefetch: false"), None),
        (("fsdp_sharding_strategy: FULL_SHARD",), None),
        (("fsdp_backward_prefetch: BACKWARD_PRE",), True),
        (("fsdp_backward_prefetch: BACKWARD_POST",), True),
        (("fsdp_backward_prefetch_policy: BACKWARD_PRE",), True),
        (("fsdp_version: 2",), True),
    ],
)
def test_prefetches_of_fsdp(lines: tuple[str, ...], overlaps: bool | None) -> None:
    inner = [f"  {line}" for line in lines]
    fragment = accelerate("distributed_type: FSDP", "num_processes: 8", "fsdp_config:", *inner)
    assert at(fragment, "parallelism", "sharding") == "parameters"
    assert at(fragment, *OVERLAP) is overlaps
    assert (".".join(OVERLAP) in unknown_keys(fragment)) == (overlaps is None)


@pytest.mark.parametrize(("policy", "overlaps"), [("backward_pre", True), ("no_prefetch", None), (None, None)])
def test_prefetches_of_the_trainer(policy: str | None, overlaps: bool | None) -> None:
    lines = ["per_device_train_batch_size: 4", "fsdp: full_shard auto_wrap", "fsdp_config:", "  use_orig_params: true"]
    lines += [f"  backward_prefetch: {policy}"] if policy else []
    fragment = read_trainer(ForeignText("args.yaml", "\n".join(lines) + "\n"))
    assert_sound(fragment)
    assert at(fragment, *OVERLAP) is overlaps


@pytest.mark.parametrize(("kind", "steps"), [("constant", 0), ("constant_with_warmup", 100), ("linear", 100)])
def test_a_constant_schedule_of_transformers_has_no_warm_up(kind: str, steps: int) -> None:
    lines = ["per_device_train_batch_size: 4", "learning_rate: 1.0e-4", "warmup_steps: 100"]
    fragment = read_trainer(ForeignText("args.yaml", "\n".join([*lines, f"lr_scheduler_type: {kind}"]) + "\n"))
    assert at(fragment, "optimizer", "learning_rate", "warmup_steps") == steps


RECIPE = ("distributed_type: NO", "mixed_precision: fp8", "fp8_config:", "  backend: TE", "  fp8_format: E4M3")


def test_a_recipe_of_transformer_engine_is_read() -> None:
    fragment = accelerate(*RECIPE, "  amax_history_len: 1024", "  override_linear_precision: [false, false, false]")
    wanted = {"format": "fp8-e4m3", "scaling": "delayed", "amax_history_steps": 1024}
    assert at(fragment, "precision", "recipe") == wanted
    assert fragment.derived["precision", "compute"].startswith("mixed_precision fp8")


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("TE", "MSAMP"),
        ("E4M3", "E3M4"),
        ("E4M3", "E4M3\n  use_mxfp8_block_scaling: true"),
        ("E4M3", "E4M3\n  override_linear_precision: [false, true, false]"),
    ],
)
def test_another_recipe_is_open(old: str, new: str) -> None:
    fragment = accelerate("\n".join(RECIPE).replace(old, new))
    assert at(fragment, "precision", "recipe") is None
    assert "precision.recipe" in unknown_keys(fragment)
