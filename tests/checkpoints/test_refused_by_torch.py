"""Files by the names of `torch.save` that `torch.load` reads nothing of."""

from __future__ import annotations

import io
import pickle
import zipfile
from pathlib import Path

import numpy as np
import pytest

from tests.checkpoints.test_functions import held, newest

torch = pytest.importorskip("torch")


def container(*names: str) -> bytes:
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w") as archive:
        for name in names:
            archive.writestr(name, b"3\n")
    return buffer.getvalue()


def arrays() -> bytes:
    buffer = io.BytesIO()
    np.savez(buffer, a=np.arange(3))
    return buffer.getvalue()


REFUSED = {
    "empty container": container(),
    "others": container("a/b", "a/version"),
    "version alone": container("archive/version"),
    "state in another folder": container("archive/version", "other/data.pkl"),
    "arrays": arrays(),
}


@pytest.mark.parametrize("file", ["more.pt", "more.PTH", "more.pth.tar", "optimizer.bin"])
@pytest.mark.parametrize("case", sorted(REFUSED))
def test_a_save_without_its_state_is_passed_over(case: str, file: str, tmp_path: Path) -> None:
    for step in (1, 2):
        (tmp_path / f"step-{step}").mkdir()
        torch.save({"w": torch.rand(2)}, tmp_path / f"step-{step}" / "model.pt")
    path = tmp_path / "step-2" / file
    path.write_bytes(REFUSED[case])
    with pytest.raises((RuntimeError, pickle.UnpicklingError)):
        torch.load(path, weights_only=False)
    result = newest(tmp_path)
    assert (result.exit_code, result.stdout) == (0, f"{tmp_path / 'step-1'}\n"), result.stderr


@pytest.mark.parametrize("legacy", [True, False])
def test_what_torch_saves_is_whole(legacy: bool, tmp_path: Path) -> None:
    (tmp_path / "step-1").mkdir()
    for name in ("model.pt", "x.PTH", "optimizer.bin", "a.pth.tar"):
        path = tmp_path / "step-1" / name
        torch.save({"w": torch.rand(2), "n": np.float32(1)}, path, _use_new_zipfile_serialization=not legacy)
    result = newest(tmp_path)
    assert (result.exit_code, result.stdout) == (0, f"{tmp_path / 'step-1'}\n"), result.stderr


@pytest.mark.parametrize("kind", ["O", "O8", "|O"])
@pytest.mark.parametrize("module", ["numpy.core.multiarray", "numpy._core.multiarray"])
def test_a_number_of_the_type_of_objects_is_refused(kind: str, module: str, tmp_path: Path) -> None:
    number = f"c{module}\nscalar\n(cnumpy\ndtype\n(V{kind}\nK\x00K\x01tRC\x01NtR".encode()
    held(tmp_path / "step-1", b"\x80\x03](" + number + b"e.")
    result = newest(tmp_path)
    assert (result.exit_code, "a number of NumPy has the type of objects" in result.stderr) == (1, True), result.stderr
