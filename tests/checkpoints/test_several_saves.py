"""Files of several saves in one directory are ordered by the epoch in their names, or named as not ordered."""

from __future__ import annotations

import json
import zipfile
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from tests.hdf5_made import container
from tests.trees import build
from trainspec_validate.checkpoints.save_names import counts_in
from trainspec_validate.cli.toolbox import command as toolbox

torch = pytest.importorskip("torch")


def newest(root: Path) -> Result:
    return CliRunner().invoke(toolbox, ["checkpoint", "newest-good", str(root)])


def hdf5(path: Path, *, is_of_keras: bool = True) -> None:
    """A container of HDF5, and an attribute of a model of Keras at its end."""
    more = b"keras_version" if is_of_keras else b"other_version"
    path.write_bytes(container(400)[: -len(more)] + more)


def keras(path: Path) -> None:
    hdf5(path)
    values = path.read_bytes()
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("metadata.json", json.dumps({"keras_version": "3.8.0"}))
        archive.writestr("config.json", json.dumps({"module": "keras", "class_name": "Sequential", "config": {}}))
        archive.writestr("model.weights.h5", values)


def write(path: Path) -> None:
    if path.suffix in {".h5", ".hdf5"}:
        hdf5(path)
    elif path.suffix == ".keras":
        keras(path)
    elif path.suffix == ".safetensors":
        build(path.parent, f"{path.name}  safetensors w=F32[4]\n")
    else:
        torch.save({"w": torch.zeros(3), "b": torch.zeros(2)}, path)


@pytest.mark.parametrize(
    "form",
    [
        "weights.{:02d}-{:.2f}.hdf5",
        "weights.{:02d}-{:.2f}.keras",
        "weights.{:02d}-{:.2f}.weights.h5",
        "weights-improvement-{:02d}-{:.2f}.keras",
        "best_model_{:02d}_{:.2f}.h5",
        "m-{:02d}.h5",
        "model_{:02d}_{:.2f}.pt",
        "resnet18-{}-{:.3f}.pth",
    ],
)
def test_the_epoch_in_a_name_decides(form: str, tmp_path: Path) -> None:
    names = [form.format(epoch, 0.9 - epoch / 50) for epoch in (9, 10, 30)]
    for name in names:
        write(tmp_path / name)
    result = newest(tmp_path)
    assert result.stdout == f"{tmp_path}/{names[-1]}\n", result.stderr


def test_other_data_in_hdf5_is_no_save(tmp_path: Path) -> None:
    for number in (1, 2):
        hdf5(tmp_path / f"train_{number}.h5", is_of_keras=False)
    assert newest(tmp_path).exit_code == 1


@pytest.mark.parametrize("form", ["pytorch_model_{}.bin", "lora_{}.bin", "model-{}.safetensors", "unet_{}.safetensors"])
def test_files_that_nothing_orders_are_named(form: str, tmp_path: Path) -> None:
    names = [form.format(number) for number in (100, 200, 300)]
    for name in names:
        write(tmp_path / name)
    result = newest(tmp_path)
    assert (result.exit_code, result.stdout) == (2, "")
    assert f"{names[0]} and {names[-1]} differ in numbers" in result.stderr


@pytest.mark.parametrize(
    ("names", "tensors"),
    [
        (["part_0.safetensors", "part_1.safetensors"], ["w", "w"]),
        (["net_0.safetensors", "net_1.safetensors"], ["w", "w"]),  # such as ranks
        (["net_3.safetensors", "net_4.safetensors"], ["v", "w"]),  # shards
        (["layer_3.safetensors", "layer_4.safetensors"], ["w", "w"]),
        (["model.safetensors", "adapter_7.safetensors"], ["w", "v"]),
    ],
)
def test_parts_of_one_save_are_one(names: list[str], tensors: list[str], tmp_path: Path) -> None:
    lines = (f"{name}  safetensors {tensor}=F32[4]\n" for name, tensor in zip(names, tensors, strict=True))
    build(tmp_path, "".join(lines))
    result = newest(tmp_path)
    assert result.stdout == f"{tmp_path}\n", result.stderr


def test_a_number_before_a_loss_is_counted() -> None:
    found = [list(counts_in(name).values()) for name in ("model_03_0.60.pt", "weights.12-0.5.weights.h5", "gpt-4.5.pt")]
    assert found == [[(3,)], [(12,)], []]


@pytest.mark.parametrize("name", ["run_a", "features.tar", "labels.cache"])
def test_state_under_a_name_that_is_not_known_is_named(name: str, tmp_path: Path) -> None:
    write(tmp_path / name)
    result = newest(tmp_path)
    assert result.exit_code == 1
    assert f"{name}: is a zip container of state under a name that is not one of a checkpoint" in result.stderr


@pytest.mark.parametrize(("num_zeros", "is_whole"), [(1, True), (512, True), (65_000, True), (65_500, False)])
def test_zero_bytes_behind_a_container(num_zeros: int, is_whole: bool, tmp_path: Path) -> None:
    """PyTorch loads a container with the first three, and fails with the last."""
    for step in (10, 20):
        write(tmp_path / f"step_{step}.pt")
    path = tmp_path / "step_20.pt"
    content = path.read_bytes()
    path.write_bytes(content + bytes(num_zeros))
    assert newest(tmp_path).stdout == f"{tmp_path}/step_{20 if is_whole else 10}.pt\n"
    path.write_bytes(content + bytes(num_zeros - 1) + b"x")
    assert newest(tmp_path).stdout == f"{tmp_path}/step_10.pt\n"
