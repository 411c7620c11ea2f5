"""Files of `torch.save` are checkpoints by their content, whatever the end of their names is."""

from __future__ import annotations

import pickle
import tarfile
import zipfile
from pathlib import Path

import pytest

from tests.torch_saves import save, saved, saved_before_1_6
from trainspec_validate.checkpoints.inventory import find
from trainspec_validate.checkpoints.newest import SeveralSeriesError, judged_newest_first

NAMES = (
    *("checkpoint_{}.th", "epoch_{}.tar", "epoch_{}.model", "snapshot_iter_{}.chkpt", "checkpoint_{}", "ckpt_{}.pkl"),
    *("{:06}.tar", "model_{}.t7"),
)


def state(step: int) -> dict[str, object]:
    return {"epoch": step, "model": {"weight": [0.5]}, "optimizer": {"state": {0: {"step": step}}, "param_groups": []}}


def judged(root: Path) -> dict[str, tuple[str, ...]]:
    return {Path(one.path).name: one.faults for one in judged_newest_first(root)}


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("is_legacy", [False, True])
def test_a_series_under_any_end_of_names(name: str, is_legacy: bool, tmp_path: Path) -> None:
    for step in (100, 200, 300):
        path = tmp_path / name.format(step)
        if is_legacy:
            path.write_bytes(saved_before_1_6(state(step)))
        else:
            save(path, state(step))
    assert judged(tmp_path) == {name.format(step): () for step in (300, 200, 100)}
    assert list(judged(tmp_path)) == [name.format(step) for step in (300, 200, 100)]


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("damage", ["cut", "zeroed", "older"])
def test_a_damaged_one_of_them_is_named(name: str, damage: str, tmp_path: Path) -> None:
    for step in (100, 200, 300):
        save(tmp_path / name.format(step), state(step))
    path = tmp_path / name.format(300)
    content = path.read_bytes()
    changed = {"cut": content[:-40], "zeroed": bytes(len(content))}
    path.write_bytes(changed.get(damage, (tmp_path / name.format(200)).read_bytes()))
    found = judged(tmp_path)
    first = next(name for name, faults in found.items() if not faults)
    assert first == name.format(200)
    assert found.get(path.name) or (damage == "zeroed" and name.startswith(("{", "model")))


def test_one_file_alone_is_chosen(tmp_path: Path) -> None:
    save(tmp_path / "ckpt.t7", state(3))
    assert judged(tmp_path) == {"ckpt.t7": ()}


def test_files_whose_names_say_neither_steps_nor_parts_are_not_ordered(tmp_path: Path) -> None:
    for epoch in range(3):
        save(tmp_path / f"model_state_e{epoch}.th", {"weight": [0.5]})
        save(tmp_path / f"training_state_e{epoch}.th", {"optimizer": {"state": {0: {"step": 3}}}})
    with pytest.raises(SeveralSeriesError, match="several saves or parts of one"):
        next(judged_newest_first(tmp_path))


def test_arrays_of_numpy_and_archives_next_to_saves_are_named(tmp_path: Path) -> None:
    for step in (1, 2):
        save(tmp_path / f"step_{step}.pt", state(step))
    for name, entry in (("step_3.npz", "w.npy"), ("model_9_steps.zip", "_stable_baselines3_version")):
        with zipfile.ZipFile(tmp_path / name, "w") as archive:
            archive.writestr(entry, b"2.3.2")
    refused, chosen = list(judged_newest_first(tmp_path))[:2]
    assert [Path(one.path).name for one in (refused, chosen)] == ["step_3.npz", "step_2.pt"]
    assert "holds arrays of NumPy alone" in refused.faults[0]
    assert chosen.faults == ()
    assert any("model_9_steps.zip: is of Stable-Baselines3" in note for note in chosen.notes)


@pytest.mark.parametrize(("num_bytes", "is_whole"), [(1 << 20, True), (1 << 40, False)])
def test_bytes_that_no_memory_holds_are_damage(num_bytes: int, is_whole: bool, tmp_path: Path) -> None:
    size = pickle.LONG1 + b"\x08" + num_bytes.to_bytes(8, "little")
    content = b"\x80\x02}(X\x01\x00\x00\x00acbuiltins\nbytearray\n" + size + b"\x85RX\x04\x00\x00\x00stepK\x01u."
    (tmp_path / "step_1.pt").write_bytes(saved(content))
    assert (judged(tmp_path)["step_1.pt"] == ()) == is_whole


def test_other_files_of_those_names_are_none(tmp_path: Path) -> None:
    with tarfile.open(tmp_path / "epoch_3.tar", "w"):
        pass
    (tmp_path / "tokenizer.model").write_bytes(b"\n\x0e\n\x05<unk>\x15")
    save(tmp_path / "labels.cache", state(3))  # a data set
    assert find(tmp_path) == []
