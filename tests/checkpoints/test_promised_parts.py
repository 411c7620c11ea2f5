"""Parts that a checkpoint itself promises are missed, alike by the validator and by the choice of the newest one."""

from __future__ import annotations

import pickle
import shutil
import zipfile
from argparse import Namespace
from pathlib import Path
from typing import Any

import pytest

from tests.trees import build
from trainspec_validate.checkpoints.newest import judged_newest_first
from trainspec_validate.checkpoints.read import read_checkpoint
from trainspec_validate.pipeline.validation import validate

ZERO = "mp_rank_00_model_states.pt  torch module=F32[4] global_steps:60 dp_world_size:2 mp_world_size:1\n" + "".join(
    f"zero_pp_rank_{rank}_mp_rank_00_optim_states.pt  torch fp32=F32[4]\n" for rank in (0, 1)
)
TRAINER = """
checkpoint-60/model.safetensors  safetensors weight=F32[4]
checkpoint-60/scheduler.pt  torch
checkpoint-60/rng_state_0.pth  torch first=I64[4]
checkpoint-60/rng_state_1.pth  torch second=I64[4]
checkpoint-60/latest  text global_step60
checkpoint-60/zero_to_fp32.py  text "pass"
checkpoint-60/trainer_state.json  json {"global_step": 60}
"""
ACCELERATE = """
step_60/model.safetensors  safetensors weight=F32[4]
step_60/optimizer.bin  torch exp_avg=F32[4]
step_60/scheduler.bin  torch
step_60/sampler.bin  torch
step_60/random_states_0.pkl  torch
step_60/random_states_1.pkl  torch
"""
OLMO = """
step60/model_and_optim  dcp 2 weight=F32[4,3]
step60/train/rank0.pt  torch global_step:60 world_size:2
step60/train/rank1.pt  torch global_step:60 world_size:2
step60/.metadata.json  json {"version": "2.4.0"}
"""


def errors(root: Path) -> set[str]:
    """Ids of the requirements that some checkpoint violates, without those of a sealed one."""
    return {one.requirement for one in validate([root]).findings if one.severity == "error"}


def is_whole(root: Path) -> bool:
    """Whether the newest checkpoint is taken."""
    return not next(judged_newest_first(root)).faults


def deepspeed(root: Path) -> None:
    """A checkpoint of the Trainer with the state of DeepSpeed."""
    build(root, TRAINER)
    build(root / "checkpoint-60/global_step60", ZERO)


def olmo(root: Path) -> None:
    """A checkpoint of OLMo-core."""
    build(root, OLMO)


def accelerate(root: Path) -> None:
    """What `Accelerator.save_state` writes."""
    build(root, ACCELERATE)


def state(path: Path, value: dict[str, Any]) -> None:
    """A container of `torch.save` with plain values."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with zipfile.ZipFile(path, "w") as container:
        container.writestr("archive/data.pkl", pickle.dumps(value, protocol=2))
        container.writestr("archive/version", "3\n")


def megatron(root: Path, folders: str = "mp_rank_00_000 mp_rank_01_000 mp_rank_00_001 mp_rank_01_001") -> None:
    """Directories of ranks, as Megatron-LM writes them."""
    args = Namespace(tensor_model_parallel_size=2, pipeline_model_parallel_size=2, expert_model_parallel_size=1)
    for folder in folders.split():
        state(root / "iter_0000060" / folder / "model_optim_rng.pt", {"iteration": 60, "args": args, "model": {}})
        state(root / "iter_0000060" / folder / "distrib_optim.pt", {})
    build(root, "latest_checkpointed_iteration.txt  text 60\n")


@pytest.mark.parametrize("make", [deepspeed, olmo, accelerate, megatron])
def test_a_whole_checkpoint_is_whole(make: Any, tmp_path: Path) -> None:
    make(tmp_path)
    assert errors(tmp_path) == set()
    assert is_whole(tmp_path)


@pytest.mark.parametrize(
    ("make", "lost", "wanted"),
    [
        (deepspeed, "checkpoint-60/global_step60", "TS-CKP-082"),
        (deepspeed, "checkpoint-60/latest", "TS-CKP-080"),
        (deepspeed, "checkpoint-60/global_step60/mp_rank_00_model_states.pt", "TS-CKP-086"),
        (olmo, "step60/model_and_optim", "TS-CKP-087"),
        (olmo, "step60/train", "TS-CKP-087"),
        (olmo, "step60/.metadata.json", "TS-CKP-080"),
        (olmo, "step60/train/rank0.pt", "TS-CKP-080"),
        (accelerate, "step_60/model.safetensors", "TS-CKP-087"),
        (accelerate, "step_60/optimizer.bin", "TS-CKP-087"),
        (megatron, "iter_0000060/mp_rank_01_001", "TS-CKP-086"),
        (megatron, "iter_0000060/mp_rank_00_001", "TS-CKP-086"),
        (megatron, "iter_0000060/mp_rank_01_001/model_optim_rng.pt", "TS-CKP-086"),
        (megatron, "iter_0000060/mp_rank_00_000/distrib_optim.pt", "TS-CKP-086"),
    ],
)
def test_a_part_that_is_lost_is_missed(make: Any, lost: str, wanted: str, tmp_path: Path) -> None:
    make(tmp_path)
    place = tmp_path / lost
    shutil.rmtree(place) if place.is_dir() else place.unlink()
    assert wanted in errors(tmp_path)
    assert not is_whole(tmp_path)


@pytest.mark.parametrize("folders", ["mp_rank_00_000 mp_rank_00_001", "mp_rank_00_000 mp_rank_01_000"])
def test_degrees_that_the_arguments_say_are_missed(folders: str, tmp_path: Path) -> None:
    megatron(tmp_path, folders)
    assert errors(tmp_path) >= {"TS-CKP-086"}


@pytest.mark.parametrize(
    ("make", "lost"),
    [
        (deepspeed, "checkpoint-60/rng_state_1.pth"),
        (olmo, "step60/train/rank1.pt"),
        (accelerate, "step_60/random_states_0.pkl"),
    ],
)
def test_random_state_of_a_rank_that_others_show_is_missed(make: Any, lost: str, tmp_path: Path) -> None:
    make(tmp_path)
    (tmp_path / lost).unlink()
    assert errors(tmp_path) == {"TS-CKP-089"}


def test_a_part_of_the_model_that_the_optimizer_shows_is_missed(tmp_path: Path) -> None:
    root = tmp_path / "global_step60"
    build(root, ZERO + "zero_pp_rank_0_mp_rank_01_optim_states.pt  torch fp32=F32[4]\n")
    build(root, "zero_pp_rank_1_mp_rank_01_optim_states.pt  torch fp32=F32[4]\n")
    found = [one.message for one in read_checkpoint(root).troubles if one.aspect == "shards"]
    assert found == ["1 of 2 files mp_rank_*_model_states.pt are missing"]


@pytest.mark.parametrize("content", [b"", b"\n", bytes(13)])
def test_a_latest_that_names_nothing_is_reported(content: bytes, tmp_path: Path) -> None:
    deepspeed(tmp_path)
    (tmp_path / "checkpoint-60/latest").write_bytes(content)
    assert errors(tmp_path) == {"TS-CKP-080"}
    assert not is_whole(tmp_path)


def test_an_index_that_names_no_tensor_is_reported(tmp_path: Path) -> None:
    build(
        tmp_path,
        "".join(f"step-60/model-0000{n}-of-00002.safetensors  safetensors w{n}=F32[4]\n" for n in (1, 2)),
    )
    (tmp_path / "step-60/model.safetensors.index.json").write_text('{"weight_map": {}}')
    assert "TS-CKP-083" in errors(tmp_path)
    assert not is_whole(tmp_path)


def test_shards_without_an_index_are_missed_by_both(tmp_path: Path) -> None:
    build(
        tmp_path,
        "".join(f"step-60/model-0000{n}-of-00004.safetensors  safetensors w{n}=F32[4]\n" for n in (1, 2, 3, 4)),
    )
    assert errors(tmp_path) == {"TS-CKP-080"}
    assert not is_whole(tmp_path)


@pytest.mark.parametrize(
    "text",
    [
        "latest  text global_step60\nzero_to_fp32.py  text pass\nmodel.safetensors  safetensors w=F32[4]\n",
        "latest  text 'some notes'\nmodel.safetensors  safetensors w=F32[4]\noptimizer.pt  torch w=F32[4]\n",
    ],
)
def test_a_pointer_next_to_a_model_for_use_is_no_error(text: str, tmp_path: Path) -> None:
    build(tmp_path / "model", text + 'trainer_state.json  json {"global_step": 60}\n')
    assert "TS-CKP-082" not in errors(tmp_path)


@pytest.mark.parametrize(
    "text",
    [
        # a hook of the program saves the model in a directory, as the scripts of Diffusers do
        "unet/diffusion_pytorch_model.safetensors  safetensors w=F32[4]\noptimizer.bin  torch w=F32[4]\n",
        "pytorch_lora_weights.safetensors  safetensors w=F32[4]\noptimizer.bin  torch w=F32[4]\n",
        "pytorch_model_fsdp_0  dcp 2 weight=F32[4,3]\noptimizer_0  dcp 2 exp_avg=F32[4,3]\n",
        "pytorch_model/mp_rank_00_model_states.pt  torch module=F32[4] optimizer:1 global_steps:60\n",
        # a program that only predicts, and one whose model is among its own objects
        "model.safetensors  safetensors w=F32[4]\n",
        "custom_checkpoint_0.pkl  torch w=F32[4]\noptimizer.bin  torch w=F32[4]\n",
    ],
)
def test_other_layouts_of_accelerate_are_whole(text: str, tmp_path: Path) -> None:
    root = tmp_path / "step_60"
    build(root, text + "random_states_0.pkl  torch\n")
    if (root / "pytorch_model_fsdp_0").is_dir():
        build(root, "random_states_1.pkl  torch\n")
    assert errors(tmp_path) == set()


def test_a_model_and_random_state_alone_are_named(tmp_path: Path) -> None:
    build(tmp_path / "step_60", "model.safetensors  safetensors w=F32[4]\nrandom_states_0.pkl  torch\n")
    assert any("no state of an optimizer is there" in one.reason for one in validate([tmp_path]).unjudged)


def reasons(root: Path) -> list[str]:
    return [one.reason for one in validate([root]).unjudged if "without a" not in one.reason]


@pytest.mark.parametrize("lost", ["model.safetensors", "optimizer.bin", "scheduler.bin"])
def test_the_first_of_several_models_of_accelerate_is_missed(lost: str, tmp_path: Path) -> None:
    root = tmp_path / "step_60"
    accelerate(tmp_path)
    build(root, "model_1.safetensors  safetensors w=F32[4]\noptimizer_1.bin  torch w=F32[4]\nscheduler_1.bin  torch\n")
    assert errors(tmp_path) == set()
    (root / lost).unlink()
    assert errors(tmp_path) >= {"TS-CKP-086"}


def test_random_state_of_accelerate_that_is_missing_is_named(tmp_path: Path) -> None:
    accelerate(tmp_path)
    for rank in (0, 1):
        (tmp_path / f"step_60/random_states_{rank}.pkl").unlink()
    assert any("no state of random numbers is there" in reason for reason in reasons(tmp_path))
    assert is_whole(tmp_path)


def test_random_state_of_one_of_several_processes_is_named(tmp_path: Path) -> None:
    build(
        tmp_path, "checkpoint-60/model.safetensors  safetensors w=F32[4]\ncheckpoint-60/optimizer.pt  torch w=F32[4]\n"
    )
    build(tmp_path, "checkpoint-60/scheduler.pt  torch\ncheckpoint-60/rng_state_0.pth  torch\n")
    build(tmp_path, 'checkpoint-60/trainer_state.json  json {"global_step": 60}\n')
    assert reasons(tmp_path) == ["is there alone, and transformers gives the name where several processes run"]
    build(tmp_path, "checkpoint-60/rng_state_1.pth  torch w=F32[1]\n")
    assert reasons(tmp_path) == []


@pytest.mark.parametrize(
    ("lost", "is_missed"),
    [
        ("layer_02-model_01-model_states.pt", True),
        ("layer_00_expert_1_mp_rank_00_model_states.pt", True),
        ("layer_01_expert_0_mp_rank_00_model_states.pt", False),  # layers may have fewer experts, or none
    ],
)
def test_parts_of_layers_and_experts_are_missed(lost: str, is_missed: bool, tmp_path: Path) -> None:
    root = tmp_path / "global_step60"
    build(root, ZERO)
    for layer, part in ((0, 0), (0, 1), (2, 0), (2, 1)):
        build(root, f"layer_{layer:02}-model_{part:02}-model_states.pt  torch w=F32[4]\n")
    for layer, expert in ((0, 0), (0, 1), (0, 2), (1, 0)):
        build(root, f"layer_{layer:02}_expert_{expert}_mp_rank_00_model_states.pt  torch w=F32[4]\n")
    assert errors(tmp_path) == set()
    (root / lost).unlink()
    assert errors(tmp_path) == ({"TS-CKP-086"} if is_missed else set())
