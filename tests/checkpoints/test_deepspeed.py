"""Lost shards of DeepSpeed are told by name, and by the degrees that its files say."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.trees import build
from trainspec_validate.checkpoints.read import read_checkpoint
from trainspec_validate.pipeline.validation import validate

MODEL = "mp_rank_00_model_states.pt  torch module=F32[4] global_steps:60 dp_world_size:2 mp_world_size:1\n"
FIRST = "bf16_zero_pp_rank_0_mp_rank_00_optim_states.pt  torch fp32=F32[4]\n"
SECOND = "bf16_zero_pp_rank_1_mp_rank_00_optim_states.pt  torch fp32=F32[4]\n"


def told(root: Path) -> list[tuple[str, str]]:
    return [(trouble.aspect, trouble.path) for trouble in read_checkpoint(root).troubles]


def test_a_whole_checkpoint_is_read(tmp_path: Path) -> None:
    root = tmp_path / "global_step60"
    build(root, MODEL + FIRST + SECOND)
    checkpoint = read_checkpoint(root)
    assert checkpoint.troubles == []
    assert checkpoint.formats == ["torch.save", "DeepSpeed"]
    assert [claim.step for claim in checkpoint.claims] == [60]


@pytest.mark.parametrize(
    ("text", "words"),
    [
        (
            MODEL + SECOND,
            "1 of 2 x 1 files bf16_zero_pp_rank_*_mp_rank_*_optim_states.pt are missing: rank 0 of part 0",
        ),
        (MODEL + FIRST, "1 of 2 x 1 files bf16_zero_pp_rank_*_mp_rank_*_optim_states.pt are missing: rank 1 of part 0"),
        (FIRST + SECOND, "no file *_model_states.pt is there, without which DeepSpeed loads nothing"),
        (MODEL.replace("mp_world_size:1", "mp_world_size:4"), "3 of 4 files mp_rank_*_model_states.pt are missing"),
    ],
)
def test_a_lost_shard_is_told(tmp_path: Path, text: str, words: str) -> None:
    root = tmp_path / "global_step60"
    build(root, text)
    checkpoint = read_checkpoint(root)
    assert words in [trouble.message for trouble in checkpoint.troubles if trouble.aspect == "shards"]
    assert not checkpoint.is_complete


def test_a_checkpoint_without_optimizer_is_told(tmp_path: Path) -> None:
    build(tmp_path / "a", MODEL)
    assert told(tmp_path / "a") == [("resume-state", "")]
    build(tmp_path / "b", MODEL.replace("dp_world", "optimizer:1 dp_world"))
    assert told(tmp_path / "b") == []


def test_state_that_is_missing_in_several_directories_is_one_finding(tmp_path: Path) -> None:
    for folder in ("actor", "critic", "reward", "value"):
        build(tmp_path / "step-60" / folder, MODEL)
    build(tmp_path / "checkpoint-60" / "global_step60", MODEL)
    build(tmp_path / "checkpoint-60", 'trainer_state.json  json {"global_step": 60}\n')
    found = [one for one in validate([tmp_path]).findings if one.requirement == "TS-CKP-087"]
    assert sorted(one.path for one in found) == [f"{tmp_path}/checkpoint-60", f"{tmp_path}/step-60"]
    first, second = sorted(found, key=lambda one: one.path)
    assert "no state of random numbers is there" in first.message
    assert "no state of the optimizer is there: neither *_optim_states.pt" in first.message
    assert second.message.endswith("in 4 directories: actor, critic, reward, …")


def test_shards_in_a_directory_of_the_trainer_are_found(tmp_path: Path) -> None:
    root = tmp_path / "checkpoint-60"
    build(root, 'trainer_state.json  json {"global_step": 60}\nrng_state.pth  torch\nlatest  text global_step60\n')
    build(root / "global_step60", MODEL + FIRST)
    checkpoint = read_checkpoint(root)
    assert [(trouble.aspect, trouble.path) for trouble in checkpoint.troubles] == [("shards", "global_step60")]
    assert {claim.step for claim in checkpoint.claims} == {60}
