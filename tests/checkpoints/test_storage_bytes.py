"""A file of PyTorch passes only where every storage that its pickle describes is there with all its bytes."""

from __future__ import annotations

import io
import json
import pickle
import struct
import zipfile
from collections.abc import Callable
from pathlib import Path

import pytest
from click.testing import CliRunner

from tests.trees import pickled, tensor, torch_bytes
from trainspec_validate.cli.validate import command

WHOLE = torch_bytes("a=F32[4]", "b=BF16[3]", "c=F32[2,2]")


def rewritten(content: bytes, change: Callable[[str, bytes], bytes | None]) -> bytes:
    """The same container with other entries and valid checksums."""
    buffer = io.BytesIO()
    with zipfile.ZipFile(io.BytesIO(content)) as old, zipfile.ZipFile(buffer, "w") as new:
        for name in old.namelist():
            entry = change(name, old.read(name))
            if entry is not None:
                new.writestr(name, entry)
    return buffer.getvalue()


def legacy(storage: bytes, keys: list[str]) -> bytes:
    """What `torch.save` wrote before it wrote containers."""
    head = b"".join(pickle.dumps(one, 2) for one in (0x1950A86A20F9469CFC6C, 1001, {"little_endian": True}))
    state = pickled(tensor("F32", (4,), "0", 4))
    return head + state + pickle.dumps(keys, 2) + storage


def files_of(root: Path, *words: str) -> list[str]:
    """Messages of TS-CKP-082."""
    told = CliRunner().invoke(command, ["--format", "json", *words, str(root)])
    return [one["message"] for one in json.loads(told.stdout)["findings"] if one["requirement"] == "TS-CKP-082"]


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (lambda name, content: None if "/data/" in name else content, "'archive/data/0', 'archive/data/1'"),
        (lambda name, content: None if name.endswith("/data/1") else content, "missing: 'archive/data/1'"),
        (lambda name, content: content[:-4] if name.endswith("/data/0") else content, "with 12 of 16 bytes"),
        (lambda name, content: content + b"more" if name.endswith("/data/0") else content, "with 20 of 16 bytes"),
        (lambda name, content: b"" if name.endswith("/data/2") else content, "with 0 of 16 bytes"),
        (lambda name, content: None if name.endswith("/version") else content, "'archive/version' is missing"),
        (lambda name, content: None if name.endswith("/data.pkl") else content, "'archive/data.pkl' is missing"),
    ],
    ids=["all", "one", "short", "long", "empty", "version", "pickle"],
)
@pytest.mark.parametrize("name", ["model.pt", "pytorch_model.bin", "last.ckpt"])
@pytest.mark.parametrize("options", [(), ("--values",)], ids=["names", "values"])
def test_a_container_without_all_bytes_is_damaged(
    tmp_path: Path, change: Callable[[str, bytes], bytes | None], words: str, name: str, options: tuple[str, ...]
) -> None:
    (tmp_path / "step-10").mkdir()
    (tmp_path / "step-10" / name).write_bytes(rewritten(WHOLE, change))
    (message,) = files_of(tmp_path, *options)
    assert words in message


@pytest.mark.parametrize(
    ("content", "words"),
    [
        (legacy(struct.pack("<q", 4) + bytes(16), ["0"]), ""),
        (legacy(struct.pack("<q", 4) + bytes(12), ["0"]), "ends 4 bytes before the end of storage 1 of 1"),
        (legacy(b"", ["0"]), "ends 24 bytes before"),
        (legacy(b"", []), "not listed: '0'"),
    ],
    ids=["whole", "short", "cut", "unlisted"],
)
def test_a_file_of_old_versions_is_judged(tmp_path: Path, content: bytes, words: str) -> None:
    (tmp_path / "step-10").mkdir()
    (tmp_path / "step-10" / "model.pt").write_bytes(content)
    found = files_of(tmp_path)
    assert bool(found) == bool(words)
    assert words in "".join(found)


def test_whole_containers_pass(tmp_path: Path) -> None:
    (tmp_path / "step-10").mkdir()
    for name in ("a.pt", "b.pth"):
        (tmp_path / "step-10" / name).write_bytes(rewritten(WHOLE, lambda _, content: content))
    assert not files_of(tmp_path)


def test_containers_that_pytorch_writes_pass(tmp_path: Path) -> None:
    torch = pytest.importorskip("torch")
    (tmp_path / "step-10").mkdir()
    shared = torch.zeros(10)
    state = {
        "a": torch.zeros(3, 4),
        "empty": torch.empty(0),
        "b": torch.ones(5, dtype=torch.bool),
        "c": torch.zeros(2, dtype=torch.complex128),
        "x": shared[:3],
        "y": shared[5:],
        "m": torch.zeros(3).half(),
        "s": torch.UntypedStorage(7),
        "meta": torch.zeros(3, device="meta"),
        "l": torch.zeros(3, dtype=torch.int64),
    }
    torch.save({**state, "u": torch.zeros(3, dtype=torch.uint16)}, tmp_path / "step-10" / "new.pt")
    torch.save(state, tmp_path / "step-10" / "old.pt", _use_new_zipfile_serialization=False)
    assert not files_of(tmp_path)
    whole = (tmp_path / "step-10" / "old.pt").read_bytes()
    (tmp_path / "step-10" / "old.pt").write_bytes(whole[:-1])
    assert len(files_of(tmp_path)) == 1
