"""Files by the names of `torch.save` that `torch.load` reads nothing of."""

from __future__ import annotations

import io
import pickle
import zipfile
from pathlib import Path

import numpy as np
import pytest

from tests.checkpoints.test_functions import held, newest
from tests.torch_saves import save, saved_before_1_6
from trainspec_validate.checkpoints.newest import judged_newest_first

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


def bare(tmp_path: Path, name: str, value: object) -> str:
    """The one fault of a checkpoint whose state is a pickle that `pickle.dump` wrote; empty where there is none."""
    (tmp_path / "step_10").mkdir()
    (tmp_path / "step_10" / name).write_bytes(pickle.dumps(value, protocol=2))
    (found,) = judged_newest_first(tmp_path)
    return " ".join(found.faults)


@pytest.mark.parametrize("name", ["model.pt", "MODEL.PTH", "m.pth.tar", "optimizer.bin", "pytorch_model-1-of-2.bin"])
def test_a_bare_pickle_is_no_file_of_torch(name: str, tmp_path: Path) -> None:
    assert "is a bare pickle: torch.load wants what torch.save writes" in bare(tmp_path, name, {"step": 10})


def test_a_state_of_lightning_is_no_bare_pickle(tmp_path: Path) -> None:
    value = {"pytorch-lightning_version": "2.5", "state_dict": {"w": 1}, "global_step": 10}
    assert "is a bare pickle" in bare(tmp_path, "last.ckpt", value)


@pytest.mark.parametrize("name", ["params.ckpt", "vocabulary.bin"])
def test_a_bare_pickle_that_other_programs_read_is_whole(name: str, tmp_path: Path) -> None:
    assert bare(tmp_path, name, {"step": 10}) == ""


@pytest.mark.parametrize("protocol", range(6))
def test_torch_loads_no_bare_pickle(protocol: int, tmp_path: Path) -> None:
    """Neither by default nor with all code allowed, whatever the protocol."""
    (tmp_path / "model.pt").write_bytes(pickle.dumps({"step": 10}, protocol))
    for is_limited in (True, False):
        with pytest.raises((RuntimeError, pickle.UnpicklingError)):
            torch.load(tmp_path / "model.pt", weights_only=is_limited)


def test_torch_loads_what_tests_save(tmp_path: Path) -> None:
    save(tmp_path / "new.pt", {"step": 10})
    (tmp_path / "old.pt").write_bytes(saved_before_1_6({"step": 10}))
    assert [torch.load(tmp_path / name, weights_only=True) for name in ("new.pt", "old.pt")] == [{"step": 10}] * 2


REFERENCE = b"(X\x07\0\0\0storagectorch\nFloatStorage\nX\x01\0\0\x000X\x03\0\0\0cpuK\x04tQ"
TENSOR = (
    b"ctorch._utils\n_rebuild_tensor_v2\n(" + REFERENCE + b"K\0K\x04\x85K\x01\x85\x89ccollections\nOrderedDict\n)RtR"
)
"""Four zeros, as `torch.save` writes them."""
FORGED = {
    "size None": (b"K\x04\x85K\x01", b"N\x85K\x01"),
    "size float": (b"K\x04\x85K\x01", b"G\x40\x10\0\0\0\0\0\0\x85K\x01"),
    "size bool": (b"K\x04\x85K\x01", b"\x88\x85K\x01"),
    "stride text": (b"K\x01\x85\x89", b"X\x01\0\0\0a\x85\x89"),
    "offset bool": (b"tQK\0K\x04", b"tQ\x89K\x04"),
    "gradient text": (b"K\x01\x85\x89", b"K\x01\x85X\x01\0\0\0a"),
    "gradient number": (b"K\x01\x85\x89", b"K\x01\x85K\0"),
    "elements text": (b"cpuK\x04tQ", b"cpuX\x01\0\0\x004tQ"),
    "elements negative": (b"cpuK\x04tQ", b"cpuJ\xff\xff\xff\xfftQ"),
    "elements None": (b"cpuK\x04tQ", b"cpuNtQ"),
    "another word": (b"X\x07\0\0\0storage", b"X\x07\0\0\0sturage"),
    "no storage": (b"FloatStorage", b"Size"),
    "four values": (b"cpuK\x04tQ", b"cputQ"),
    "six values": (b"cpuK\x04tQ", b"cpuK\x04NtQ"),
    "state number": (b"OrderedDict\n)R", b"OrderedDict\n)RK\x05b"),
    "state text": (b"OrderedDict\n)R", b"OrderedDict\n)RX\x01\0\0\0ab"),
    "letter beyond Latin-1": (
        b"\x89ccollections\nOrderedDict\n)R",
        b"\x89c_codecs\nencode\nX\x02\0\0\0\xc4\x80X\x06\0\0\0latin1\x86R",
    ),
}  # fmt: skip


def forged(step: Path, before: bytes = b"", after: bytes = b"") -> Path:
    """A checkpoint with one tensor, in whose pickle bytes are replaced."""
    assert before in TENSOR
    step.mkdir()
    with zipfile.ZipFile(step / "model.pt", "w") as archive:
        archive.writestr("a/data.pkl", b"\x80\x02}X\x01\0\0\0w" + TENSOR.replace(before, after) + b"s.")
        archive.writestr("a/version", b"3\n")
        archive.writestr("a/data/0", bytes(16))
    return step / "model.pt"


@pytest.mark.parametrize("case", sorted(FORGED))
def test_a_pickle_that_torch_refuses_is_passed_over(case: str, tmp_path: Path) -> None:
    assert torch.load(forged(tmp_path / "step-1"), weights_only=True)["w"].tolist() == [0.0] * 4
    path = forged(tmp_path / "step-2", *FORGED[case])
    for is_limited in (True, False):
        with pytest.raises(
            (RuntimeError, TypeError, ValueError, AttributeError, AssertionError, pickle.UnpicklingError)
        ):
            torch.load(path, weights_only=is_limited)
    result = newest(tmp_path)
    assert (result.exit_code, result.stdout) == (0, f"{tmp_path / 'step-1'}\n"), result.stderr


@pytest.mark.parametrize(
    ("before", "after"),
    [
        (b"X\x03\0\0\0cpu", b"X\x07\0\0\0cuda:99"),
        (b"X\x03\0\0\0cpu", b"K\x01"),
        (b"K\x01\x85\x89", b"K\0\x85\x89"),
        (b"K\x01\x85\x89", b"K\x01\x85\x88"),
        (b"OrderedDict\n)R", b"OrderedDict\n)R}X\x01\0\0\0aK\x01sb"),
        (b"\x89ccollections\nOrderedDict\n)R", b"\x89c_codecs\nencode\nX\x02\0\0\0\xc3\xbfX\x06\0\0\0latin1\x86R"),
    ],
)
def test_an_odd_pickle_that_torch_reads_is_whole(before: bytes, after: bytes, tmp_path: Path) -> None:
    path = forged(tmp_path / "step-1", before, after)
    torch.load(path, weights_only=True, map_location="cpu")
    assert newest(tmp_path).stdout == f"{tmp_path / 'step-1'}\n"


@pytest.mark.parametrize("number", [b"N", b"J\xff\xff\xff\xff", b"X\x01\x00\x00\x004"])
def test_an_old_file_without_a_number_of_elements(number: bytes, tmp_path: Path) -> None:
    step = tmp_path / "step-1"
    step.mkdir()
    torch.save({"w": torch.zeros(4)}, step / "model.pt", _use_new_zipfile_serialization=False)
    assert newest(tmp_path).exit_code == 0
    content = (step / "model.pt").read_bytes()
    place = content.index(b"K\x04Nt")
    (step / "model.pt").write_bytes(content[:place] + number + content[place + 2 :])
    result = newest(tmp_path)
    assert (result.exit_code, "as its number of elements" in result.stderr) == (1, True), result.stderr
