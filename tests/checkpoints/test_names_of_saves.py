"""The names of saves say which is newer, which files are one save, and which are left by a copy or a save under way."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from tests.trees import build
from trainspec_validate.cli.toolbox import command as toolbox
from trainspec_validate.pipeline.validation import validate

MODEL = "model.safetensors  safetensors w=F32[8]"
WHOLE = "torch w=F32[4] step:{}"


def invoke(directory: Path) -> Result:
    return CliRunner().invoke(toolbox, ["checkpoint", "newest-good", str(directory)])


def chosen(directory: Path) -> str | int:
    """The path that is printed, or the exit status."""
    result = invoke(directory)
    return Path(result.stdout.strip()).relative_to(directory).as_posix() if result.stdout else result.exit_code


def folders(directory: Path, names: tuple[str, ...]) -> None:
    """Directories of one model each, from the oldest on."""
    for place, name in enumerate(names):
        build(directory / name, f"{MODEL}\n")
        content = bytearray((directory / name / "model.safetensors").read_bytes())
        content[-1] = place
        (directory / name / "model.safetensors").write_bytes(content)
        os.utime(directory / name, (10**9 + place, 10**9 + place))


@pytest.mark.parametrize(
    "names",
    [
        ("step-999", "step-1k"),
        ("step-999", "step-1e3"),
        ("step-999", "step-1,000"),
        ("step5", "step-18446744073709551617"),
        ("step2000-unsharded", "step2000", "step3000-unsharded"),
        ("global_step-0100", "global_step-0200-final"),
        (
            "model--val_loss=1.00-step=99-consumed_samples=800.0",
            "model--val_loss=0.90-step=199-consumed_samples=1600.0",
        ),
        ("step-1000-of-9999", "step-2000-of-9999"),
        ("iter-9b", "iter-10b"),
        ("tokens-900M", "tokens-1B", "tokens-2T"),
    ],
)
@pytest.mark.parametrize("is_reversed", [False, True])
def test_the_number_in_a_name_decides(tmp_path: Path, names: tuple[str, ...], is_reversed: bool) -> None:
    folders(tmp_path, names[::-1] if is_reversed else names)
    assert chosen(tmp_path) == names[-1]


@pytest.mark.parametrize(
    ("name", "at_last"),
    [
        *((name, name) for name in ("step-30.bak", "_step-30", "step-30-copy", "old_step-30")),
        *((name, 1) for name in ("step-30~", "step-30 copy 2")),  # no name for a shell
    ],
)
def test_a_save_that_was_set_aside_is_tried_last(tmp_path: Path, name: str, at_last: str | int) -> None:
    folders(tmp_path, ("step-10", "step-20", name))
    assert chosen(tmp_path) == "step-20"
    assert f"{name}: its name says that it was set aside" in invoke(tmp_path).stderr
    for step in ("step-10", "step-20"):
        (tmp_path / step / "model.safetensors").write_bytes(b"")
    assert chosen(tmp_path) == at_last


@pytest.mark.parametrize(
    "name",
    [
        *("step-30.partial", "step-30.incomplete", "step-30_tmp", "step-30-tmp"),
        *("step-30.part", "tmp.step-30", "trash-step-30", "step-30.corrupt"),
    ],
)
def test_a_name_that_a_save_under_way_has_is_not_chosen(tmp_path: Path, name: str) -> None:
    folders(tmp_path, ("step-10", "step-20", name))
    assert chosen(tmp_path) == "step-20"
    found = {one.path for one in validate([tmp_path]).findings if one.requirement == "TS-CKP-081"}
    assert found == {f"{tmp_path}/{name}"}


@pytest.mark.parametrize("name", ["step-20.bak", "step-20-copy", "_step-20"])
def test_of_two_with_one_step_the_plain_name_is_chosen(tmp_path: Path, name: str) -> None:
    folders(tmp_path, ("step-10", "step-20", name))
    assert chosen(tmp_path) == "step-20"


def test_a_later_save_without_a_step_chooses_nothing(tmp_path: Path) -> None:
    folders(tmp_path, ("step-10", "step-20", "final"))
    assert chosen(tmp_path) == 2
    assert "final says no step, and was changed after step-20" in invoke(tmp_path).stderr
    (tmp_path / "best").mkdir()
    (tmp_path / "final/model.safetensors").rename(tmp_path / "best/model.safetensors")
    (tmp_path / "final").rmdir()
    assert chosen(tmp_path) == "step-20", "the best one is as old as another, or older"


RANKS = tuple(f"ep{epoch}-ba{step}-rank{rank}.pt" for epoch, step in ((0, 10), (0, 20), (1, 30)) for rank in (0, 1))
NANOCHAT = tuple(
    name.format(step)
    for step in (100, 200, 300)
    for name in ("meta_{:06}.json", "model_{:06}.pt", "optim_{:06}_rank0.pt")
)


@pytest.mark.parametrize(
    ("names", "newest", "before"),
    [
        (RANKS, "ep1-ba30-rank0.pt", "ep0-ba20-rank0.pt"),
        (NANOCHAT, "model_000300.pt", "model_000200.pt"),
    ],
)
def test_files_of_one_save_side_by_side(tmp_path: Path, names: tuple[str, ...], newest: str, before: str) -> None:
    for place, name in enumerate(names):
        build(
            tmp_path,
            f"{name}  json {{}}\n" if name.endswith(".json") else f"{name}  torch w{place % 2}=F32[{place + 4}]\n",
        )
    assert chosen(tmp_path) == newest
    os.truncate(tmp_path / names[1], 9)
    assert chosen(tmp_path) == newest, "an older save that is damaged refuses no newer one"
    for name in names[-3 if "nano" in newest or "model" in newest else -2 :]:
        if name == newest:
            continue
        content = (tmp_path / name).read_bytes()
        (tmp_path / name).unlink()
        assert chosen(tmp_path) == before, name
        remarks = " ".join(one.reason for one in validate([tmp_path]).unjudged if one.path.endswith(newest))
        assert "missing" in remarks, name
        (tmp_path / name).write_bytes(content)


@pytest.mark.parametrize(
    "names",
    [
        ("model_0.pt", "optim_0.pt", "model_1.pt", "optim_1.pt"),
        ("model_rank0.pt", "model_rank1.pt", "optim_rank0.pt", "optim_rank1.pt"),
    ],
)
def test_numbers_of_ranks_make_no_saves(tmp_path: Path, names: tuple[str, ...]) -> None:
    build(tmp_path, "".join(f"{name}  torch {name[:5]}=F32[4]\n" for name in names))
    assert chosen(tmp_path) == "."


def test_fewer_ranks_are_whole_where_the_checkpoint_says_so(tmp_path: Path) -> None:
    for step, size in ((10, 4), (20, 4), (30, 2)):
        for rank in range(size):
            build(tmp_path, f"step_{step}/rank{rank}.pt  torch w=F32[4] world_size:{size}\n")
            build(tmp_path, f"named/global_step_{step}/model_world_size_{size}_rank_{rank}.pt  torch w=F32[4]\n")
    for folder in (tmp_path / "named", tmp_path):
        if folder == tmp_path:
            (tmp_path / "named").rename(tmp_path.parent / f"{tmp_path.name}-named")
        assert chosen(folder) == f"{'global_' if folder != tmp_path else ''}step_30"
    (tmp_path / "step_30/rank1.pt").unlink()
    assert chosen(tmp_path) == "step_20"
    assert "it has 1 file rank#.pt, and says that 2 ranks saved it" in invoke(tmp_path).stderr


def test_models_for_use_next_to_a_whole_state(tmp_path: Path) -> None:
    """As ESPnet keeps them."""
    build(tmp_path, "checkpoint.pth  torch model=F32[4] optimizer:1\n")
    build(tmp_path, "8epoch.pth  torch model=F32[4]\n9epoch.pth  torch model=F32[5]\n")
    assert chosen(tmp_path) == "checkpoint.pth"


def test_files_that_differ_in_a_date(tmp_path: Path) -> None:
    build(tmp_path, "model_20240201.pt  torch w=F32[4]\nmodel_20240101.pt  torch w=F32[4]\n")
    assert chosen(tmp_path) == "model_20240201.pt"


COUNTED = [
    ("ep0-ba10-rank0.pt", "ep1-ba20-rank0.pt"),
    ("ep0-ba10.pt", "ep1-ba20.pt"),
    ("ep9.pt", "ep10.pt"),
    ("checkpoint_1_2500.pt", "checkpoint_3_5000.pt"),
    ("model_0004999.pth", "model_0009999.pth"),
    ("last_walker_ep_100_rew_5.1.pth", "last_walker_ep_200_rew_9.2.pth"),
    ("step_1000_loss_2.53.pt", "step_2000_loss_2.41.pt"),
    ("rwkv-11.pth", "rwkv-24.pth"),
]


def torch_files(root: Path, names: tuple[str, ...], *, is_cut: bool = False) -> None:
    """Files of one model each without a count, from the oldest on; the last one may be cut."""
    for place, name in enumerate(names):
        build(root, f"{name}  torch w=F32[4]\n")
        os.utime(root / name, (10**9 + place, 10**9 + place))
    if is_cut:
        content = (root / names[-1]).read_bytes()
        (root / names[-1]).write_bytes(content[: len(content) // 2])


@pytest.mark.parametrize("names", COUNTED)
@pytest.mark.parametrize("is_cut", [False, True])
def test_files_whose_names_count_are_each_a_save(tmp_path: Path, names: tuple[str, ...], is_cut: bool) -> None:
    torch_files(tmp_path, names, is_cut=is_cut)
    assert chosen(tmp_path) == names[0 if is_cut else -1]


@pytest.mark.parametrize(
    "names",
    [
        ("model_tp0.pt", "model_tp1.pt"),
        ("model-rank0.pt", "model-rank1.pt"),
        ("step_100_ep_0.pt", "step_100_ep_1.pt"),
        ("model_ep0.pt", "model_ep1.pt"),
        ("model_0.pt", "model_1.pt"),
        ("block_10.pt", "block_11.pt"),
        ("checkpoint_10_0.pt", "checkpoint_10_1.pt"),
        ("checkpoint_0-of-2.pt", "checkpoint_1-of-2.pt"),
        ("model_rank0.pt", "optim_rank0.pt"),
    ],
)
def test_a_part_that_is_cut_refuses_its_save(tmp_path: Path, names: tuple[str, ...]) -> None:
    torch_files(tmp_path, names, is_cut=True)
    assert chosen(tmp_path) == 1


def test_layers_next_to_each_other_are_one_save(tmp_path: Path) -> None:
    build(tmp_path, "layer_20.pt  torch a=F32[4]\nlayer_40.pt  torch b=F32[4]\n")
    assert chosen(tmp_path) == "."


def test_a_link_to_the_newest_of_the_files_is_no_save(tmp_path: Path) -> None:
    torch_files(tmp_path, ("ep0-ba10-rank0.pt", "ep1-ba20-rank0.pt"))
    (tmp_path / "latest-rank0.pt").symlink_to("ep1-ba20-rank0.pt")
    result = invoke(tmp_path)
    assert "latest" not in result.stderr
    assert chosen(tmp_path) == "ep1-ba20-rank0.pt"


@pytest.mark.parametrize("pointer", ["latest", "latest_checkpointed_iteration.txt"])
def test_an_empty_pointer_is_noted(tmp_path: Path, pointer: str) -> None:
    folders(tmp_path, ("global_step10", "global_step20"))
    (tmp_path / pointer).touch()
    assert f"{pointer}: is empty, so it names no checkpoint" in invoke(tmp_path).stderr
    assert chosen(tmp_path) == "global_step20"


@pytest.mark.parametrize(
    ("names", "wanted"),
    [
        (["fold0_epoch3.pt", "fold1_epoch3.pt"], ""),
        (["fold_0_best_model.pt", "fold_1_best_model.pt"], ""),
        (["model_seed1_step10.pt", "model_seed42_step20.pt"], ""),
        (["model_seed42_step10.pt", "model_seed42_step20.pt"], "model_seed42_step20.pt"),
        (["step_1.pt", ".step_3.pt"], "step_1.pt"),
        (["watch_model_ep01_loss0.91.pth", "watch_model_ep02_loss0.42.pth"], "watch_model_ep02_loss0.42.pth"),
    ],
)
def test_runs_and_metrics_in_names(names: list[str], wanted: str, tmp_path: Path) -> None:
    torch = pytest.importorskip("torch")
    for number, name in enumerate(names):
        torch.save({"model": {"w": torch.full((2,), float(number))}}, tmp_path / name)
    result = CliRunner().invoke(toolbox, ["checkpoint", "newest-good", str(tmp_path)])
    assert (result.exit_code, Path(result.stdout.strip()).name) == ((0, wanted) if wanted else (2, "")), result.output


@pytest.mark.parametrize(
    ("names", "wanted"),
    [
        (("rwkv-0.pth", "rwkv-1.pth", "rwkv-2.pth", "rwkv-final.pth"), "rwkv-final.pth"),
        (("model_10k.pt", "model_12k.pt"), "model_12k.pt"),
        (("model_900.pt", "model_10k.pt"), "model_10k.pt"),
        (("resnet50_acc71.2.pth", "resnet50_acc73.4.pth"), 2),
        (("model_10k_0.5123.pt", "model_12k_0.4567.pt"), 2),
    ],
)
def test_whole_models_under_other_names_are_each_a_save(
    names: tuple[str, ...], wanted: str | int, tmp_path: Path
) -> None:
    torch_files(tmp_path, names)
    assert chosen(tmp_path) == wanted, invoke(tmp_path).output
