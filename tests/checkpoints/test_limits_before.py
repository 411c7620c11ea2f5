"""What a file costs is bounded before it is read; what scripts save without a Trainer is taken."""

from __future__ import annotations

import shutil
import time
import zipfile
from pathlib import Path

import pytest

from tests.checkpoints.test_functions import newest
from tests.trees import build
from trainspec_validate.checkpoints.opening import check_levels
from trainspec_validate.system.budget import OverLimitError

torch = pytest.importorskip("torch")


def saved(root: Path) -> None:
    for step in (1, 2):
        (root / f"step-{step}").mkdir()
        torch.save({"w": torch.rand(2)}, root / f"step-{step}" / "model.pt")


def test_the_levels_of_settings_are_counted_before_they_are_parsed(tmp_path: Path) -> None:
    saved(tmp_path)
    (tmp_path / "step-2" / "config.json").write_bytes(b"[" * 500_000)
    result = newest(tmp_path)
    assert result.stdout == f"{tmp_path / 'step-1'}\n"
    assert "64 levels of nesting" in result.stderr


@pytest.mark.parametrize("text", [b'"' + b"[" * 100 + b'\\"["', b"[" * 64 + b"]" * 64, b"[[]," * 60 + b"1" + b"]" * 60])
def test_brackets_in_texts_and_next_to_each_other_are_no_levels(text: bytes) -> None:
    check_levels(text)
    with pytest.raises(OverLimitError):
        check_levels(b"[" * 129 + text)


def test_many_entries_of_a_container_are_refused_by_their_number(tmp_path: Path) -> None:
    saved(tmp_path)
    with zipfile.ZipFile(tmp_path / "step-2" / "model.pt", "a") as archive:
        for number in range(20_100):
            archive.writestr(f"model/{number}", b"")
    begin = time.process_time()
    result = newest(tmp_path)
    assert (result.stdout, "20,000 entries" in result.stderr) == (f"{tmp_path / 'step-1'}\n", True), result.stderr
    assert time.process_time() - begin < 20


FULL = """{name}/model.safetensors  safetensors w=F32[4]
{name}/scheduler.pt  torch
{name}/trainer_state.json  json {{"global_step": {step}}}
"""


def test_the_random_state_of_the_last_rank_is_missed(tmp_path: Path) -> None:
    for step in (1, 2, 3):
        ranks = range(7 if step == 3 else 8)
        states = [f"checkpoint-{step}/rng_state_{rank}.pth  torch a{rank}=I64[{4 + rank}]\n" for rank in ranks]
        build(tmp_path, FULL.format(name=f"checkpoint-{step}", step=step) + "".join(states))
        state = {0: {"step": torch.tensor(float(step)), "exp_avg": torch.rand(4)}}
        torch.save({"state": state, "param_groups": [{"params": [0]}]}, tmp_path / f"checkpoint-{step}/optimizer.pt")
    result = newest(tmp_path)
    assert result.stdout == f"{tmp_path / 'checkpoint-2'}\n"
    assert "rng_state_7.pth is missing" in result.stderr


@pytest.mark.parametrize("has_trainer", [True, False])
def test_an_adapter_alone_is_taken_where_no_trainer_saved(has_trainer: bool, tmp_path: Path) -> None:
    for step in (1, 2):
        name = f"checkpoint-{step}"
        adapter = f"{name}/adapter_model.safetensors  safetensors w=F32[4]\n{name}/adapter_config.json  json {{}}\n"
        build(tmp_path, adapter)
    if has_trainer:
        build(tmp_path, 'checkpoint-1/optimizer.pt  torch\ncheckpoint-1/trainer_state.json  json {"global_step": 1}\n')
    result = newest(tmp_path)
    assert (result.stdout == f"{tmp_path / 'checkpoint-2'}\n") is not has_trainer, result.stderr
    assert ("an adapter alone" in result.stderr) is not has_trainer


def test_digits_that_are_not_those_of_ascii_stop_no_launcher(tmp_path: Path) -> None:
    saved(tmp_path)
    other = tmp_path / "step-\uff14\uff10\uff10"
    other.mkdir()
    torch.save({"w": torch.rand(2)}, other / "model.pt")
    result = newest(tmp_path)
    assert (result.exit_code, result.stdout) == (0, f"{tmp_path / 'step-2'}\n"), result.stderr


def test_weights_that_say_the_step_of_their_checkpoint_are_its_own(tmp_path: Path) -> None:
    for step in (100, 200, 300):
        root = tmp_path / f"global_step{step}"
        root.mkdir()
        state = {"step": step, "exp_avg": torch.rand(10), "exp_avg_sq": torch.rand(10)}
        groups = {"zero_stage": 2, "partition_count": 1, "single_partition_of_fp32_groups": [torch.rand(10)]}
        optimizer = {"optimizer_state_dict": {**groups, "base_optimizer_state": {"state": {0: state}}}}
        torch.save(optimizer, root / "bf16_zero_pp_rank_0_mp_rank_00_optim_states.pt")
        model = {"module": {"w": torch.rand(10)}, "global_steps": step, "dp_world_size": 1, "mp_world_size": 1}
        torch.save(model, root / "mp_rank_00_model_states.pt")
    name = "mp_rank_00_model_states.pt"
    shutil.copy(tmp_path / "global_step200" / name, tmp_path / "global_step300" / name)
    result = newest(tmp_path)
    assert (result.exit_code, result.stdout) == (0, f"{tmp_path / 'global_step200'}\n"), result.stderr
