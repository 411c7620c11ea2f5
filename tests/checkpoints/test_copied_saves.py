"""A save that is a copy of an earlier one, or has a part of one, is refused by both commands, and its source is not."""

from __future__ import annotations

import os
import shutil
import zipfile
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

from tests.torch_saves import save as state
from tests.trees import build
from trainspec_validate.cli.toolbox import command as toolbox
from trainspec_validate.pipeline.validation import validate


def optimizer(step: int) -> dict[str, Any]:
    return {"state": {0: {"step": step}}, "param_groups": [{"lr": 0.1}]}


def invoke(directory: Path) -> Result:
    return CliRunner().invoke(toolbox, ["checkpoint", "newest-good", str(directory)])


def chosen(directory: Path) -> str:
    text = invoke(directory).stdout.strip()
    return Path(text).relative_to(directory).as_posix() if text else ""


def errors(root: Path, name: str) -> set[str]:
    found = validate([root]).findings
    return {one.requirement for one in found if one.severity == "error" and f"{root}/{name}" in one.path}


def directories(root: Path, form: str, *, counted: bool = True) -> None:
    for step in (8, 9, 10):
        folder = root / form.format(step)
        state(folder / "optimizer.pt", optimizer(10 * step if counted else 0))
        build(folder, f"model.safetensors  safetensors w=F32[{step}]\n")


@pytest.mark.parametrize("form", ["step_{}", "{}", "epoch_{}", "checkpoint_{}"])
def test_a_copy_of_the_directory_before(tmp_path: Path, form: str) -> None:
    directories(tmp_path, form)
    assert chosen(tmp_path) == form.format(10)
    assert not errors(tmp_path, form.format(10))
    shutil.rmtree(tmp_path / form.format(10))
    shutil.copytree(tmp_path / form.format(9), tmp_path / form.format(10))
    assert chosen(tmp_path) == form.format(9)
    assert f"it is a copy of {form.format(9)}, byte for byte" in invoke(tmp_path).stderr
    assert errors(tmp_path, form.format(10)) == {"TS-CKP-088"}
    assert not errors(tmp_path, f"{form.format(9)}")


def test_a_copy_without_counted_updates_is_none(tmp_path: Path) -> None:
    directories(tmp_path, "step_{}", counted=False)
    shutil.rmtree(tmp_path / "step_10")
    shutil.copytree(tmp_path / "step_9", tmp_path / "step_10")
    assert chosen(tmp_path) == "step_10"


def test_copies_of_files_side_by_side(tmp_path: Path) -> None:
    for epoch in (8, 9, 10):
        state(tmp_path / f"epoch_{epoch}.pth", {"meta": {"epoch": epoch}, "optimizer": optimizer(epoch * 100)})
        os.utime(tmp_path / f"epoch_{epoch}.pth", (10**9 + epoch, 10**9 + epoch))
    shutil.copy(tmp_path / "epoch_9.pth", tmp_path / "best_acc_epoch_9.pth")
    assert chosen(tmp_path) == "epoch_10.pth"
    shutil.copy(tmp_path / "epoch_10.pth", tmp_path / "epoch_11.pth")
    assert chosen(tmp_path) == "epoch_10.pth"
    assert "epoch_11.pth: it is a copy of epoch_10.pth" in invoke(tmp_path).stderr
    assert not errors(tmp_path, "best")


def test_an_optimizer_of_the_save_before_refuses_one_of_two(tmp_path: Path) -> None:
    """Its count is that of neither name, as Accelerate numbers its saves."""
    directories(tmp_path, "checkpoint_{}")
    shutil.copy(tmp_path / "checkpoint_9/optimizer.pt", tmp_path / "checkpoint_10/optimizer.pt")
    assert chosen(tmp_path) == "checkpoint_9"
    assert errors(tmp_path, "checkpoint_10")
    assert not errors(tmp_path, "checkpoint_9")


def test_an_optimizer_of_the_save_before_next_to_models_in_directories(tmp_path: Path) -> None:
    """As fairseq2 writes them."""
    for step in (8, 9, 10):
        state(tmp_path / f"step_{step}/model/pp_00/sdp_00.pt", {"model": {"w": step}})
        state(tmp_path / f"step_{step}/optimizer/pp_00/sdp_00.pt", optimizer(step * 10))
        state(tmp_path / f"step_{step}/trainer/rank_00.pt", {"step_nr": step * 10})
    assert chosen(tmp_path) == "step_10"
    shutil.copy(tmp_path / "step_9/optimizer/pp_00/sdp_00.pt", tmp_path / "step_10/optimizer/pp_00/sdp_00.pt")
    assert chosen(tmp_path) == "step_9"
    assert errors(tmp_path, "step_10") == {"TS-CKP-088"}


@pytest.mark.parametrize("key", ["step_count", "step_nr", "num_updates"])
def test_the_step_of_further_programs(tmp_path: Path, key: str) -> None:
    for step in (800, 900, 1000):
        state(tmp_path / f"step-{step:08}/lit_model.pth", {"model": {"w": step}, key: step})
    assert chosen(tmp_path) == "step-00001000"
    state(tmp_path / "step-00001000/lit_model.pth", {"model": {"w": 7}, key: 900})
    assert chosen(tmp_path) == "step-00000900"


def test_an_optimizer_that_counts_less_where_its_source_is_gone_is_named(tmp_path: Path) -> None:
    """It may have been made anew, so nothing is refused."""
    for step, updates in ((1000, 1000), (3000, 2000)):
        state(tmp_path / f"step{step}/optim.pt", optimizer(updates))
        build(tmp_path / f"step{step}", f"model.pt  torch w=F32[{step}]\n")
    words = "may be of another step than the rest, or was made anew: it counts 2,000 optimizer steps"
    assert words in invoke(tmp_path).stderr
    assert chosen(tmp_path) == "step3000"
    assert words in " ".join(one.reason for one in validate([tmp_path]).unjudged)


def nanotron(root: Path, step: int) -> None:
    build(
        root / str(step),
        f"model/model/pp_block/model_weight_pp-rank-0-of-1_tp-rank-0-of-1.safetensors  safetensors w=F32[{step}]\n",
    )
    state(root / f"{step}/optimizer/optimizer_pp-0-of-1_dp-0-of-1_tp-0-of-1.pt", optimizer(step))
    build(root / str(step), f'checkpoint_metadata.json  json {{"metas": {{"last_train_step": {step}}}}}\n')


@pytest.mark.parametrize(
    "text", [None, "", '{"metas": {"last_tr', '{"metas": {}}', '{"metas": {"last_train_step": 9}}']
)
def test_the_metadata_of_nanotron(tmp_path: Path, text: str | None) -> None:
    for step in (8, 9, 10):
        nanotron(tmp_path, step)
    (tmp_path / "latest.txt").write_text("10")
    assert chosen(tmp_path) == "10"
    assert not errors(tmp_path, "")
    path = tmp_path / "10/checkpoint_metadata.json"
    if text is None:
        path.unlink()
    else:
        path.write_text(text)
    assert chosen(tmp_path) == "9"
    assert errors(tmp_path, "10")
    assert "latest.txt: names 10, from which its program resumes until it is changed" in invoke(tmp_path).stderr


def test_a_file_of_settings_that_older_ones_have(tmp_path: Path) -> None:
    for step in (8, 9, 10):
        build(
            tmp_path / f"step_{step}",
            "model.safetensors  safetensors w=F32[4]\nconfig.json  json {}\nlog.json  json {}\n",
        )
    (tmp_path / "step_10/log.json").unlink()
    assert chosen(tmp_path) == "step_10"
    (tmp_path / "step_10/config.json").unlink()
    assert chosen(tmp_path) == "step_9"
    assert "config.json is missing, which older checkpoints next to it have" in invoke(tmp_path).stderr


def test_archives_of_state_next_to_pickles_are_not_chosen_for_them(tmp_path: Path) -> None:
    """As Stable-Baselines3 saves a replay buffer next to a policy."""
    with zipfile.ZipFile(tmp_path / "rl_model_9000_steps.zip", "w") as archive:
        archive.writestr("data", "{}")
        archive.writestr("policy.pth", "x")
    (tmp_path / "rl_model_replay_buffer_9000_steps.pkl").write_bytes(b"\x80\x02cprogram.buffers\nReplayBuffer\n)\x81.")
    assert not chosen(tmp_path)
    words = "is an archive with policy.pth, and its files are not looked at"
    assert words in invoke(tmp_path).stderr
    assert words in " ".join(one.reason for one in validate([tmp_path]).unjudged)
    build(tmp_path, "model.pt  torch w=F32[4]\n")
    assert chosen(tmp_path) == ".", "an archive next to a model refuses nothing"


def test_archives_of_stable_baselines_are_named_for_what_their_loader_runs(tmp_path: Path) -> None:
    with zipfile.ZipFile(tmp_path / "rl_model_9000_steps.zip", "w") as archive:
        for name in ("data", "policy.pth", "_stable_baselines3_version"):
            archive.writestr(name, "{}")
    assert not chosen(tmp_path)
    assert "is of Stable-Baselines3, whose loader runs the functions" in invoke(tmp_path).stderr


def test_state_under_names_of_other_files_is_named(tmp_path: Path) -> None:
    with zipfile.ZipFile(tmp_path / "rl_model_9000_steps.zip", "w") as archive:
        archive.writestr("data", "{}")
        archive.writestr("policy.pth", "x")
    (tmp_path / "checkpoint_10").write_bytes(b"\x82\xa4step\x0a\xa1w\x01")
    (tmp_path / "model_20").write_text("none")
    found = invoke(tmp_path)
    assert found.exit_code == 1
    assert "rl_model_9000_steps.zip: is an archive with policy.pth, and its files are not looked at" in found.stderr
    assert "checkpoint_10: is a MessagePack container, which is not read" in found.stderr
    assert "model_20" not in found.stderr


@pytest.mark.parametrize("name", ["sampler.bin", "dl_state_dict.bin"])
def test_zero_bytes_in_place_of_a_sampler(tmp_path: Path, name: str) -> None:
    directories(tmp_path, "checkpoint_{}")
    (tmp_path / "checkpoint_10" / name).write_bytes(bytes(400))
    assert chosen(tmp_path) == "checkpoint_9"
    assert errors(tmp_path, "checkpoint_10")


def test_shards_of_the_save_before_next_to_a_common_state_of_this_one(tmp_path: Path) -> None:
    """As Megatron-LM writes them: only the common state says the step."""
    names = "optimizer.weight.exp_avg=F32[4,3] model.weight=F32[4,3]"
    for step in (10, 20):
        folder = f"iter_{step:07}"
        build(tmp_path, f"{folder}  dcp 2 {names}\n{folder}/common.pt  torch iteration:{step}\n")
        build(tmp_path, f'{folder}/metadata.json  json {{"sharded_backend": "torch_dist"}}\n')
    shards = [path.name for path in (tmp_path / "iter_0000020").glob("*.distcp")]
    for name in shards:
        content = bytearray((tmp_path / "iter_0000010" / name).read_bytes())
        content[-30] ^= 1
        (tmp_path / "iter_0000010" / name).write_bytes(content)
    assert not errors(tmp_path, "iter_0000020") & {"TS-CKP-088"}
    for name in shards:
        shutil.copy(tmp_path / "iter_0000010" / name, tmp_path / "iter_0000020" / name)
    assert "TS-CKP-088" in errors(tmp_path, "iter_0000020")


def test_an_optimizer_of_one_of_two_saves_in_a_row(tmp_path: Path) -> None:
    for step in (8, 9, 10):
        nanotron(tmp_path, step)
    path = "optimizer/optimizer_pp-0-of-1_dp-0-of-1_tp-0-of-1.pt"
    shutil.copy(tmp_path / "9" / path, tmp_path / "10" / path)
    assert chosen(tmp_path) == "9"
