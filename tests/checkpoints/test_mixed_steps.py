"""State of another step among the parts of one checkpoint is reported, and what healthy runs leave is not."""

from __future__ import annotations

import json
import shutil
import time
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import pytest

from tests.torch_saves import save as state
from tests.trees import build
from trainspec_validate.checkpoints.newest import judged_newest_first
from trainspec_validate.checkpoints.read import read_checkpoint
from trainspec_validate.pipeline.validation import validate


def optimizer(step: int | None) -> dict[str, Any]:
    return {"state": {} if step is None else {0: {"step": step}, 1: {"step": step}}, "param_groups": [{"lr": 0.1}]}


def schedule(step: int, **more: object) -> dict[str, Any]:
    return {"last_epoch": step, "_step_count": step + 1, **more}


def trainer(root: Path, step: int, updates: int | None, steps: int | None, *more: str) -> None:
    """A checkpoint of the Trainer whose optimizer and schedule count so many steps."""
    folder = root / f"checkpoint-{step}"
    build(folder, f"model.safetensors  safetensors weight=F32[{step}]\nrng_state.pth  torch\n")
    state(folder / "optimizer.pt", optimizer(updates))
    state(folder / "scheduler.pt", {"kind": "mine"} if steps is None else schedule(steps))
    build(folder, "".join(more) + f'trainer_state.json  json {{"global_step": {step}}}\n')


def judged(root: Path, name: str) -> str:
    """What is said of a checkpoint: `fault`, `remark`, or nothing; the same by both commands."""
    report = validate([root])
    faults = [one for one in report.findings if one.requirement == "TS-CKP-088" and name in one.path]
    remarks = [one for one in report.unjudged if name in one.path and "of another step" in one.reason]
    refused = [fault for one in judged_newest_first(root) if name in one.path for fault in one.faults]
    assert bool(faults) == bool(refused)
    return "fault" if faults else "remark" if remarks else ""


@pytest.mark.parametrize(
    ("updates", "steps", "more", "wanted"),
    [
        (20, 20, "", ""),
        (19, 20, "", ""),  # SOAP does not count its first step
        (None, 20, "", ""),  # SGD without momentum
        (20, 40, "", ""),  # a step of the schedule for each of two processes
        (None, None, "", ""),
        (18, 18, "scaler.pt  torch\n", ""),  # two steps skipped under loss scaling
        (18, 20, "scaler.pt  torch\n", "remark"),
        (10, 10, "", "remark"),  # resumed from weights alone at step 10
        (100, 20, "", "remark"),  # a second call of train
        (None, 10, "", "remark"),
        (10, 20, "", "fault"),
        (0, 20, "", "fault"),
        (20, 10, "", "fault"),
        (30, 10, "", "fault"),
    ],
)
def test_counts_of_the_trainer(updates: int | None, steps: int | None, more: str, wanted: str, tmp_path: Path) -> None:
    trainer(tmp_path, 20, updates, steps, more)
    assert judged(tmp_path, "checkpoint-20") == wanted


def test_a_schedule_of_evaluations_is_no_count_of_steps(tmp_path: Path) -> None:
    trainer(tmp_path, 20, 20, 20)
    state(tmp_path / "checkpoint-20/scheduler.pt", schedule(2, num_bad_epochs=0))
    assert not judged(tmp_path, "checkpoint-20")


def test_an_optimizer_of_another_checkpoint_is_known_by_its_bytes(tmp_path: Path) -> None:
    for step in (10, 20, 30):
        trainer(tmp_path, step, 80 + step, step)
    shutil.copyfile(tmp_path / "checkpoint-30/optimizer.pt", tmp_path / "checkpoint-20/optimizer.pt")
    found = [one for one in validate([tmp_path]).findings if one.requirement == "TS-CKP-088"]
    messages = [one.message for one in found if "checkpoint-20" in one.path]
    assert messages == ["the file is that of checkpoint-30, byte for byte, next to other weights: it counts 110"]


@pytest.mark.parametrize("value", [{"iteration": 20, "model": {}}, {"random": 7}], ids=["says its step", "says none"])
def test_the_checkpoint_that_a_file_was_copied_from_is_whole(value: dict[str, Any], tmp_path: Path) -> None:
    for step in (10, 20, 30):
        accelerate(tmp_path, step, step)
        state(
            tmp_path / f"step_{step}/random_states_1.pkl", value | {"iteration": step} if len(value) > 1 else {0: step}
        )
    state(tmp_path / "step_20/random_states_1.pkl", value)
    state(tmp_path / "step_20/optimizer.bin", optimizer(20))
    for name in ("random_states_1.pkl", "optimizer.bin"):
        shutil.copyfile(tmp_path / "step_20" / name, tmp_path / "step_30" / name)
    assert [judged(tmp_path, f"step_{step}") for step in (20, 30)] == ["", "fault"]


def accelerate(root: Path, step: int, updates: int) -> None:
    build(root, f"step_{step}/model.safetensors  safetensors weight=F32[{step}]\n")
    state(root / f"step_{step}/optimizer.bin", optimizer(updates))
    for rank in (0, 1):
        state(root / f"step_{step}/random_states_{rank}.pkl", {"step": step, "rank": rank})


def test_parts_of_accelerate(tmp_path: Path) -> None:
    for step in (10, 20, 30):
        accelerate(tmp_path, step, step // 5)
    assert not judged(tmp_path, "step_30")
    shutil.copyfile(tmp_path / "step_10/optimizer.bin", tmp_path / "step_30/optimizer.bin")
    assert judged(tmp_path, "step_30") == "fault"
    accelerate(tmp_path, 30, 6)
    shutil.copyfile(tmp_path / "step_10/random_states_1.pkl", tmp_path / "step_30/random_states_1.pkl")
    assert judged(tmp_path, "step_30") == "fault"


def test_two_saves_without_an_update_between_them_are_no_copies(tmp_path: Path) -> None:
    accelerate(tmp_path, 10, 5)
    shutil.copytree(tmp_path / "step_10", tmp_path / "step_20")
    state(tmp_path / "step_20/random_states_0.pkl", {"step": 10, "rank": 7})
    assert not judged(tmp_path, "step_20")


def deepspeed(root: Path, step: int, updates: tuple[int, int], skipped: int = 0) -> None:
    folder = root / f"global_step{step}"
    sizes = {"dp_world_size": 2, "mp_world_size": 1}
    state(
        folder / "mp_rank_00_model_states.pt", {"global_steps": step, "skipped_steps": skipped, "module": {}, **sizes}
    )
    for rank, number in enumerate(updates):
        inner = {"base_optimizer_state": optimizer(number), "rank": rank}
        state(folder / f"zero_pp_rank_{rank}_mp_rank_00_optim_states.pt", {"optimizer_state_dict": inner})


@pytest.mark.parametrize(
    ("updates", "skipped", "wanted"),
    [
        ((20, 20), 0, ""),
        ((15, 15), 5, ""),
        ((10, 10), 0, "remark"),
        ((20, 10), 0, "fault"),
        ((30, 30), 0, "fault"),
    ],
)
def test_counts_of_deepspeed(updates: tuple[int, int], skipped: int, wanted: str, tmp_path: Path) -> None:
    deepspeed(tmp_path, 20, updates, skipped)
    assert judged(tmp_path, "global_step20") == wanted


def test_shards_of_an_older_step_of_deepspeed(tmp_path: Path) -> None:
    for step in (10, 20):
        deepspeed(tmp_path, step, (step, step))
    for rank in (0, 1):
        name = f"zero_pp_rank_{rank}_mp_rank_00_optim_states.pt"
        shutil.copyfile(tmp_path / "global_step10" / name, tmp_path / "global_step20" / name)
    assert judged(tmp_path, "global_step20") == "fault"


@pytest.mark.parametrize(("second", "wanted"), [(20, ""), (10, "fault")])
def test_ranks_of_megatron_count_the_same(second: int, wanted: str, tmp_path: Path) -> None:
    for rank, updates in enumerate((20, second)):
        value = {"iteration": 20, "model": {}, "optimizer": {"optimizer": optimizer(updates)}}
        state(tmp_path / f"iter_0000020/mp_rank_{rank:02}/model_optim_rng.pt", value)
    assert judged(tmp_path, "iter_0000020") == wanted


def lightning(path: Path, step: int, **said: Any) -> None:
    loop, updates = said["loop"], said["updates"]
    version, by_hand = said.get("version", "2.5.0"), said.get("by_hand", 0)
    counts = {"total": {"ready": loop, "completed": loop}}
    loops = {
        "epoch_loop.automatic_optimization.optim_progress": {"optimizer": {"step": counts}},
        "epoch_loop.manual_optimization.optim_step_progress": {"total": {"completed": by_hand}},
    }
    value = {"epoch": 0, "global_step": step, "pytorch-lightning_version": version, "state_dict": {}}
    state(path, {**value, "loops": {"fit_loop": loops}, "optimizer_states": [optimizer(updates)]})


@pytest.mark.parametrize(
    ("values", "wanted"),
    [
        ({"step": 20, "loop": 20, "updates": 20}, ""),
        ({"step": 20, "loop": 20, "updates": 12}, ""),  # optimizer steps skipped under loss scaling
        ({"step": 40, "loop": 0, "updates": 20, "by_hand": 40}, ""),  # two optimizers that a program steps
        ({"step": 0, "loop": 0, "updates": 20}, ""),  # steps around Lightning, which it does not count
        ({"step": 20, "loop": 40, "updates": 40, "version": "1.5.9"}, ""),
        ({"step": 20, "loop": 10, "updates": 10}, "fault"),
        ({"step": 20, "loop": 20, "updates": 30}, "fault"),
    ],
)
def test_counts_of_lightning(values: dict[str, Any], wanted: str, tmp_path: Path) -> None:
    lightning(tmp_path / f"epoch=0-step={values['step']}.ckpt", **values)
    assert judged(tmp_path, "epoch=0") == wanted


def test_steps_in_tensors_are_read(tmp_path: Path) -> None:
    torch = pytest.importorskip("torch")
    model = torch.nn.Linear(4, 1)
    adam = torch.optim.AdamW(model.parameters())
    trainer(tmp_path, 20, 20, 20)
    for _ in range(10):
        model(torch.ones(4)).sum().backward()
        adam.step()
    torch.save(adam.state_dict(), tmp_path / "checkpoint-20/optimizer.pt")
    assert judged(tmp_path, "checkpoint-20") == "fault"


def run(root: Path, steps: Iterable[int], *, rates: Mapping[int, float] | None = None, stopped: int = 1_000) -> None:
    """Checkpoints whose weights have one size each, and other values up to a step; and the learning rates of some."""
    groups = {step: {"param_groups": [{"lr": rate}]} for step, rate in (rates or {}).items()}
    for step in steps:
        trainer(root, step, step, step)
        path = root / f"checkpoint-{step}"
        build(path, "model.safetensors  safetensors weight=F32[4]\n")
        content = (path / "model.safetensors").read_bytes()
        (path / "model.safetensors").write_bytes(content[:-1] + bytes([min(step, stopped)]))
        state(path / "optimizer.pt", optimizer(step) | groups.get(step, {}))


@pytest.mark.parametrize(
    ("steps", "rates"),
    [
        ((10, 20, 30, 40), {30: 0.0, 40: 0.0}),  # the learning rate has reached 0
        ((10, 20, 30, 40), {10: 1e-3, 20: 1e-9, 30: 1e-13, 40: 1e-18}),  # it has decayed to nearly nothing
        ((10, 20, 30, 40, 50), {}),  # three that are equal, such as with values too small for the type
    ],
)
def test_weights_that_have_stopped_to_change_are_noted(
    steps: tuple[int, ...], rates: dict[int, float], tmp_path: Path
) -> None:
    run(tmp_path, steps, rates=rates, stopped=30)
    found = next(judged_newest_first(tmp_path))
    assert found.path == f"{tmp_path}/checkpoint-{steps[-1]}"
    assert (found.faults, any("the weights are those of" in note for note in found.notes)) == ((), True)


@pytest.mark.parametrize(
    "rates",
    [
        {10: 1e-3, 20: 1e-4, 30: 1e-5, 40: 0.0},  # a schedule that ends at 0, before which steps changed weights
        dict.fromkeys((10, 20, 30, 40), 0.0),  # one that begins anew after each checkpoint
        {10: 1e-3, 20: 1e-9, 30: 1e-8, 40: 1e-9},
    ],
)
def test_a_low_rate_excuses_no_weights_of_another_checkpoint(rates: dict[int, float], tmp_path: Path) -> None:
    run(tmp_path, (10, 20, 30, 40), rates=rates, stopped=30)
    found = {Path(one.path).name: one.faults for one in judged_newest_first(tmp_path)}
    assert [name for name, faults in found.items() if not faults] == ["checkpoint-20", "checkpoint-10"]


def test_a_low_rate_excuses_no_weights_from_before_other_ones(tmp_path: Path) -> None:
    run(tmp_path, (10, 20, 30), rates=dict.fromkeys((10, 20, 30), 0.0))
    shutil.copyfile(tmp_path / "checkpoint-10/model.safetensors", tmp_path / "checkpoint-30/model.safetensors")
    assert next(judged_newest_first(tmp_path)).faults


def test_a_cut_file_does_not_show_that_weights_change(tmp_path: Path) -> None:
    run(tmp_path, (10, 20, 30), stopped=10)
    path = tmp_path / "checkpoint-30/model.safetensors"
    path.write_bytes(path.read_bytes()[:-2])
    found = {Path(one.path).name: one for one in judged_newest_first(tmp_path)}
    assert [name for name, one in found.items() if not one.faults] == ["checkpoint-20", "checkpoint-10"]


@pytest.mark.parametrize(("source", "target"), [(10, 30), (20, 30), (30, 20)])
def test_weights_of_another_checkpoint_are_refused(source: int, target: int, tmp_path: Path) -> None:
    run(tmp_path, (10, 20, 30, 40)[: 3 + (source > target)])
    paths = {step: tmp_path / f"checkpoint-{step}/model.safetensors" for step in (source, target)}
    paths[target].write_bytes(paths[source].read_bytes())
    words = "the weights are those of {}, byte for byte, and the optimizer is another"
    named = [one.path for one in validate([tmp_path]).unjudged if "the weights are those of" in one.reason]
    assert named == [paths[max(source, target)].parent.as_posix()]
    found = {Path(one.path).name: one for one in judged_newest_first(tmp_path)}
    for one, other in ((source, target), (target, source)):
        expected = words.format(f"checkpoint-{other}")
        assert any(expected in fault for fault in found[f"checkpoint-{one}"].faults)
    assert [name for name, one in found.items() if not one.faults]


def test_weights_that_no_update_changes_are_noted(tmp_path: Path) -> None:
    for step in (10, 20, 30):
        trainer(tmp_path, step, step, step)
        first = tmp_path / "checkpoint-10/model.safetensors"
        (tmp_path / f"checkpoint-{step}/model.safetensors").write_bytes(first.read_bytes())
    found = next(judged_newest_first(tmp_path))
    assert (found.faults, any("the weights are those of" in note for note in found.notes)) == ((), True)


def test_a_trained_part_next_to_frozen_weights_counts(tmp_path: Path) -> None:
    for step in (10, 20, 30, 40):
        trainer(tmp_path, step, step, step)
        state(tmp_path / f"checkpoint-{step}/projector.bin", {"weight": [step]})
        frozen = tmp_path / f"checkpoint-{min(step, 30)}/model.safetensors"
        (tmp_path / f"checkpoint-{step}/model.safetensors").write_bytes(frozen.read_bytes())
    found = next(judged_newest_first(tmp_path))
    assert (found.faults, [note for note in found.notes if "the weights" in note]) == ((), [])


@pytest.mark.parametrize(
    ("first", "rates", "is_refused"),
    [
        ((1, 2, 3, 3), {}, True),  # the shard of step 30
        ((1, 2, 2, 2), {}, False),  # frozen from step 20 on
        ((7, 7, 7, 7), {}, False),
        ((1, 2, 3, 3), {30: 1e-13, 40: 0.0}, False),
    ],
)
def test_a_shard_of_the_step_before_is_refused(
    first: tuple[int, ...], rates: dict[int, float], is_refused: bool, tmp_path: Path
) -> None:
    names = [f"model-0000{number}-of-00002.safetensors" for number in (1, 2)]
    run(tmp_path, (10, 20, 30, 40), rates=rates)
    for step, value in zip((10, 20, 30, 40), first, strict=True):
        path = tmp_path / f"checkpoint-{step}"
        content = (path / "model.safetensors").read_bytes()[:-1]
        (path / "model.safetensors").unlink()
        weights = dict.fromkeys(("a", "b"), "")
        for name, key, last in zip(names, weights, (value, step), strict=True):
            (path / name).write_bytes(content.replace(b"weight", key.ljust(6).encode()) + bytes([last]))
            weights[key] = name
        index = json.dumps({"weight_map": {key.ljust(6): name for key, name in weights.items()}})
        (path / "model.safetensors.index.json").write_text(index)
    found = next(judged_newest_first(tmp_path))
    words = f"{names[0]} is that of checkpoint-30, byte for byte, and other shards are not"
    assert (words in "".join(found.faults), bool(found.faults)) == (is_refused, is_refused), found.faults


@pytest.mark.parametrize(("before", "wanted"), [(10, "fault"), (40, "remark")])
def test_an_optimizer_ahead_of_its_step_is_of_another_save(before: int, wanted: str, tmp_path: Path) -> None:
    trainer(tmp_path, 10, before, 10)
    trainer(tmp_path, 20, 30, 20)
    assert judged(tmp_path, "checkpoint-20") == wanted


@pytest.mark.parametrize(
    ("steps", "is_named"),
    [(30, False), (60, False), (3, False), (90, False), (20, True), (10, True), (40, True)],
)
def test_a_schedule_of_accelerate_counts_as_its_optimizer(steps: int, is_named: bool, tmp_path: Path) -> None:
    accelerate(tmp_path, 30, 30)
    state(tmp_path / "step_30/scheduler.bin", schedule(steps))
    named = [one.path for one in validate([tmp_path]).unjudged if "may be of another step" in one.reason]
    assert named == ([(tmp_path / "step_30/scheduler.bin").as_posix()] if is_named else [])


def test_a_shard_of_an_older_step_is_known_by_its_bytes(tmp_path: Path) -> None:
    torch = pytest.importorskip("torch")
    saves = pytest.importorskip("torch.distributed.checkpoint")
    for step in (10, 20, 30):
        state_dict = {f"model.w{n}": torch.rand(100) for n in range(3)}
        state_dict |= {f"optim.w{n}.exp_avg": torch.rand(100) for n in range(3)}
        frozen = {"model.frozen": torch.ones(100)}
        writer = saves.FileSystemWriter(tmp_path / f"step-{step}", thread_count=4)
        saves.save({**state_dict, **frozen}, storage_writer=writer)
    assert not judged(tmp_path, "step-30")
    names = sorted(path.name for path in (tmp_path / "step-30").glob("*.distcp"))
    shutil.copyfile(tmp_path / "step-20" / names[0], tmp_path / "step-30" / names[0])
    assert judged(tmp_path, "step-30") == "fault"


def test_optimizers_that_hold_each_other_are_read_once(tmp_path: Path) -> None:
    inner: dict[str, Any] = {"state": {0: {"step": 7}}}
    for _ in range(4):
        inner = {f"optimizer_{n}": inner for n in range(1_000)}
    state(tmp_path / "checkpoint-20/optimizer.pt", inner)
    round_list: list[Any] = []
    round_list.append(round_list)
    state(tmp_path / "checkpoint-20/scheduler.pt", {"optimizer_states": round_list})
    begin = time.monotonic()
    read_checkpoint(tmp_path / "checkpoint-20")
    assert time.monotonic() - begin < 10


@pytest.mark.parametrize("value", [None, {}, []])
def test_an_optimizer_without_state_is_refused(value: object, tmp_path: Path) -> None:
    trainer(tmp_path / "trainer", 20, 20, 20)
    state(tmp_path / "trainer/checkpoint-20/optimizer.pt", value)
    accelerate(tmp_path / "accelerate", 20, 20)
    (name,) = [path.parent.name for path in (tmp_path / "accelerate").glob("*/optimizer.bin")]
    state(tmp_path / "accelerate" / name / "optimizer.bin", value)
    for root in (tmp_path / "trainer", tmp_path / "accelerate"):
        (one,) = judged_newest_first(root)
        assert any("holds no state of an optimizer" in fault for fault in one.faults)


def dcp_with_steps(root: Path, step: int, said: dict[str, int]) -> None:
    """A distributed checkpoint with numbers next to its tensor, as `state_dict` of torchtitan has them."""
    torch = pytest.importorskip("torch")
    saving = pytest.importorskip("torch.distributed.checkpoint")
    values = {key: torch.tensor(number) if "." in key else number for key, number in said.items()}
    saving.save({"w": torch.full((4,), float(step)), **values}, checkpoint_id=root / f"step-{step}", no_dist=True)


@pytest.mark.parametrize("key", ["step", "train_state.step"])
def test_a_shard_of_dcp_says_an_older_step(key: str, tmp_path: Path) -> None:
    for step in (5, 10, 20):
        dcp_with_steps(tmp_path, step, {key: step})
    (newest, *_) = judged_newest_first(tmp_path)
    assert newest.faults == ()
    shutil.copyfile(tmp_path / "step-10/__0_0.distcp", tmp_path / "step-20/__0_0.distcp")
    (newest, *_) = judged_newest_first(tmp_path)
    assert any(f"({key}) is 10, older than 20 of the name" in fault for fault in newest.faults), newest


def test_steps_of_optimizers_in_dcp_are_compared_with_names(tmp_path: Path) -> None:
    key = "optimizer.state.w.step"
    for step, count in ((5, 5), (10, 10), (20, 20)):
        dcp_with_steps(tmp_path, step, {key: count})
    (newest, *_) = judged_newest_first(tmp_path)
    assert newest.faults == ()
    dcp_with_steps(tmp_path, 30, {key: 25})
    (newest, *_) = judged_newest_first(tmp_path)
    assert newest.faults == ()
    assert any("it counts 25 optimizer steps" in note for note in newest.notes)
    dcp_with_steps(tmp_path, 40, {key: 50})
    (newest, *_) = judged_newest_first(tmp_path)
    assert any("more than the 40 steps of the name" in fault for fault in newest.faults)
