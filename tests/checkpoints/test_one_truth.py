"""The validator and the choice of the newest whole checkpoint say the same, and name what no file decides."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from tests.torch_saves import save as state
from tests.trees import build
from trainspec_validate.checkpoints.newest import SeveralSeriesError, judged_newest_first
from trainspec_validate.cli.toolbox import command as toolbox
from trainspec_validate.pipeline.validation import validate

MEGATRON = "".join(
    f"iter_00000{step}  dcp 2 weight=F32[4,3]\niter_00000{step}/common.pt  torch iteration:{step}\n"
    f'iter_00000{step}/metadata.json  json {{"sharded_backend": "torch_dist"}}\n'
    for step in (10, 20)
)


def invoke(directory: Path) -> Result:
    return CliRunner().invoke(toolbox, ["checkpoint", "newest-good", str(directory)])


def remarks(root: Path, name: str) -> str:
    return " ".join(one.reason for one in validate([root]).unjudged if one.path.endswith(name))


def errors(root: Path) -> set[str]:
    return {one.requirement for one in validate([root]).findings if one.severity == "error"}


def test_a_checkpoint_that_the_pointer_of_megatron_does_not_reach(tmp_path: Path) -> None:
    build(tmp_path, f"{MEGATRON}latest_checkpointed_iteration.txt  text 10\n")
    found = invoke(tmp_path)
    words = "names step 10, from which Megatron-LM resumes, and not from this newer one"
    assert found.stdout == f"{tmp_path}/iter_0000010\n"
    assert words in found.stderr
    assert words in remarks(tmp_path, "iter_0000020")
    build(tmp_path, "latest_checkpointed_iteration.txt  text 20\n")
    assert invoke(tmp_path).stdout == f"{tmp_path}/iter_0000020\n"
    assert not remarks(tmp_path, "iter_0000020")


def test_a_pointer_that_names_another_checkpoint_than_the_newest_whole_one(tmp_path: Path) -> None:
    build(tmp_path, f"{MEGATRON}latest_checkpointed_iteration.txt  text 30\n")
    assert "names '30', and there is no such checkpoint" in invoke(tmp_path).stderr
    build(tmp_path, "latest_checkpointed_iteration.txt  text 20\niter_0000020/common.pt  removed\n")
    found = invoke(tmp_path)
    assert found.stdout == f"{tmp_path}/iter_0000010\n"
    assert "names step 20, from which its program resumes until it is changed" in found.stderr


def test_what_the_newest_lacks_of_older_ones_is_named_by_both(tmp_path: Path) -> None:
    for step in (10, 20, 30):
        build(tmp_path, f"step_{step}/model.pt  torch w=F32[4]\nstep_{step}/optimizer.pt  torch w=F32[4]\n")
    assert not remarks(tmp_path, "step_30")
    (tmp_path / "step_30/optimizer.pt").unlink()
    words = "optimizer.pt is missing, which older checkpoints next to it have"
    assert words in invoke(tmp_path).stderr
    assert words in remarks(tmp_path, "step_30")
    (tmp_path / "step_20/optimizer.pt").unlink()
    assert not remarks(tmp_path, "step_20"), "older checkpoints are often made smaller on purpose"


@pytest.mark.parametrize("more", ["", "optimizer.pt  torch w=F32[4]\nscheduler.pt  torch\nrng_state.pth  torch\n"])
def test_a_model_without_a_tensor_is_none(more: str, tmp_path: Path) -> None:
    build(tmp_path / "checkpoint-60", f"model.safetensors  safetensors\n{more}")
    build(tmp_path / "checkpoint-60", 'trainer_state.json  json {"global_step": 60}\n')
    assert "TS-CKP-087" in errors(tmp_path)
    assert invoke(tmp_path).exit_code == 1


def test_a_model_without_a_tensor_next_to_shards_of_zero_is_none_of_the_loader(tmp_path: Path) -> None:
    root = tmp_path / "checkpoint-60"
    build(root, "model.safetensors  safetensors\nrng_state.pth  torch\n")
    build(root, 'trainer_state.json  json {"global_step": 60}\n')
    build(root, "global_step60/mp_rank_00_model_states.pt  torch module=F32[4] optimizer:1 global_steps:60\n")
    assert "TS-CKP-087" not in errors(tmp_path)


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("epoch=0-step=60.ckpt", {"global_step": "60", "pytorch-lightning_version": "2.5.0", "state_dict": {}}),
        ("epoch=0-step=60.ckpt", {"global_step": True, "pytorch-lightning_version": "2.5.0", "state_dict": {}}),
        ("optimizer.pt", {"state": {0: {"step": "60"}}, "param_groups": []}),
        ("scheduler.pt", {"last_epoch": True, "_step_count": 61}),
    ],
)
def test_a_count_that_is_no_number_is_reported(name: str, value: object, tmp_path: Path) -> None:
    state(tmp_path / name, value)
    assert "TS-CKP-083" in errors(tmp_path)


def whole(path: Path, step: int, *, seed: int = 0) -> None:
    """A state with model and optimizer, as nanoGPT saves it."""
    torch = pytest.importorskip("torch")
    torch.manual_seed(seed)
    model = torch.nn.Linear(4, 4)
    adam = torch.optim.AdamW(model.parameters())
    model(torch.ones(4)).sum().backward()
    adam.step()
    torch.save({"model": model.state_dict(), "optimizer": adam.state_dict(), "iter_num": step}, path)


def test_several_states_of_one_step_are_files_of_their_own(tmp_path: Path) -> None:
    whole(tmp_path / "ckpt_books.pt", 100, seed=1)
    whole(tmp_path / "ckpt_poems.pt", 100, seed=2)
    os.utime(tmp_path / "ckpt_poems.pt", (1, 1))
    found = next(judged_newest_first(tmp_path))
    assert (found.path, found.faults) == ((tmp_path / "ckpt_books.pt").as_posix(), ())
    words = "ckpt_books.pt and ckpt_poems.pt are states of the same model and step, and their contents differ"
    assert f"{words}; the one that was changed last is taken" in found.notes
    (tmp_path / "ckpt_poems.pt").write_bytes((tmp_path / "ckpt_books.pt").read_bytes())
    assert not any(words in note for note in next(judged_newest_first(tmp_path)).notes), "a copy is as new"
    whole(tmp_path / "ckpt_poems.pt", 100, seed=1)  # the same state, saved under another name
    assert not any("contents differ" in note for note in next(judged_newest_first(tmp_path)).notes)


def test_ranks_of_one_save_are_one_checkpoint(tmp_path: Path) -> None:
    for rank in (0, 1):
        whole(tmp_path / f"state_{rank}.pt", 100, seed=rank)
    assert next(judged_newest_first(tmp_path)).path == tmp_path.as_posix()


def test_states_of_fairseq_are_told_apart(tmp_path: Path) -> None:
    torch = pytest.importorskip("torch")
    for n, name in enumerate(("en-de", "de-en")):
        torch.manual_seed(n)
        adam = {"state": {0: {"step": 100, "exp_avg": torch.ones(4)}}, "param_groups": []}
        value = {"model": torch.nn.Linear(4, 4).state_dict(), "last_optimizer_state": adam}
        torch.save({**value, "optimizer_history": [{"num_updates": 100}]}, tmp_path / f"wmt.{name}.pt")
    os.utime(tmp_path / "wmt.en-de.pt", (1, 1))
    assert next(judged_newest_first(tmp_path)).path == (tmp_path / "wmt.de-en.pt").as_posix()


def test_directories_of_other_names_are_no_series(tmp_path: Path) -> None:
    for name, loss in (("burgers", "0.5"), ("heat", "0.25")):
        value = {"global_step": 20 if name == "heat" else 10, "pytorch-lightning_version": "2.5.0", "state_dict": {}}
        state(tmp_path / name / f"epoch=1-val_loss={loss}.ckpt", value)
        build(tmp_path, f"{name}/weights.safetensors  safetensors w=F32[{len(name) * 100}]\n")
    assert not next(judged_newest_first(tmp_path)).faults
    assert not remarks(tmp_path, "heat")
    assert not [one for one in validate([tmp_path]).findings if one.requirement == "TS-CKP-096"]


def test_directories_of_other_names_with_steps_are_no_series(tmp_path: Path) -> None:
    build(tmp_path, "".join(f"checkpoint-{step}/optimizer.pt  torch w=F32[4]\n" for step in (10, 20, 30)))
    build(tmp_path, "global_step30/mp_rank_00_model_states.pt  torch module=F32[4] optimizer:1 global_steps:30\n")
    assert not remarks(tmp_path, "global_step30")


def test_parts_in_directories_below_the_name_of_a_save_are_one_checkpoint(tmp_path: Path) -> None:
    """As ColossalAI writes them, whose steps begin anew in each epoch."""
    for epoch, step in ((0, 2000), (1, 1000), (1, 2000)):
        folder = f"epoch-{epoch}_step-{step}"
        build(tmp_path, f"{folder}/modeling/model.safetensors  safetensors weight=F32[4]\n")
        build(tmp_path, f"{folder}/optimizer/pytorch_optim-00001.bin  torch\n{folder}/running_states.json  json {{}}\n")
        os.utime(tmp_path / folder, (10**9 + 3000 * epoch + step,) * 2)
    assert invoke(tmp_path).stdout == f"{tmp_path}/epoch-1_step-2000\n"
    assert invoke(tmp_path / "epoch-1_step-2000").stdout == f"{tmp_path}/epoch-1_step-2000\n"
    os.truncate(tmp_path / "epoch-1_step-2000/modeling/model.safetensors", 20)
    assert invoke(tmp_path).stdout == f"{tmp_path}/epoch-1_step-1000\n"
    (tmp_path / "epoch-1_step-1000/running_states.json").unlink()
    found = invoke(tmp_path)
    assert found.stdout == f"{tmp_path}/epoch-0_step-2000\n" or "running_states.json is missing" in found.stderr


def test_a_model_and_its_optimizer_side_by_side_are_no_checkpoints(tmp_path: Path) -> None:
    """Neither shows that the other is whole."""
    build(tmp_path, "run/modeling/model.safetensors  safetensors weight=F32[4]\n")
    build(tmp_path, "run/optimizer/pytorch_optim-00001.bin  torch\n")
    with pytest.raises(SeveralSeriesError, match=r"modeling and \S+optimizer are parts of one checkpoint"):
        next(judged_newest_first(tmp_path / "run"))
