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

from tests.trees import call, name, number, pickled, tensor, torch_bytes, tuple_of
from trainspec_validate.cli.toolbox import command as toolbox
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
        (legacy(bytes(24), ["0"]), "storage 1 of 1 has 0 elements, and its tensors ask for 16 bytes"),
    ],
    ids=["whole", "short", "cut", "unlisted", "zeroed"],
)
def test_a_file_of_old_versions_is_judged(tmp_path: Path, content: bytes, words: str) -> None:
    (tmp_path / "step-10").mkdir()
    (tmp_path / "step-10" / "model.pt").write_bytes(content)
    found = files_of(tmp_path)
    assert bool(found) == bool(words)
    assert words in "".join(found)


def test_whole_containers_pass(tmp_path: Path) -> None:
    (tmp_path / "step-10").mkdir()
    for path in ("a.pt", "b.pth"):
        (tmp_path / "step-10" / path).write_bytes(rewritten(WHOLE, lambda _, content: content))
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


def test_tensors_within_their_storages_pass(tmp_path: Path) -> None:
    """Views, broadcasts, empty tensors, types without a storage of their own and quantized tensors."""
    torch = pytest.importorskip("torch")
    numpy = pytest.importorskip("numpy")
    base = torch.zeros(10)
    state = {
        "view": base[7:],
        "broadcast": base[9:].expand(50, 1),
        "end": base[10:],
        "scalar": torch.zeros(()),
        "transposed": torch.zeros(3, 4).t(),
        "parameter": torch.nn.Parameter(torch.zeros(2, 2)),
        "quantized": torch.quantize_per_tensor(torch.zeros(4), 1.0, 0, torch.quint8),
        "sparse": torch.eye(3).to_sparse(),
        "arrays": [
            numpy.zeros((2, 3)),
            numpy.zeros(0),
            numpy.zeros((), "<i4"),
            numpy.array(["a"]),
            numpy.zeros(3, "M8[s]"),
        ],
    }
    new = {"short": torch.zeros(3, dtype=torch.uint16), "byte": torch.zeros(3).to(torch.float8_e4m3fn)}
    (tmp_path / "step-10").mkdir()
    torch.save(state | new, tmp_path / "step-10" / "new.pt")
    torch.save(state, tmp_path / "step-10" / "old.pt", _use_new_zipfile_serialization=False)
    for protocol in range(2, 6):
        (tmp_path / "step-10" / f"states_{protocol}.pkl").write_bytes(pickle.dumps(state["arrays"], protocol))
    assert not files_of(tmp_path)


def rebuilt(offset: int, size: tuple[int, ...], stride: tuple[int, ...], *more: bytes, count: int = 4) -> bytes:
    """The operations that push a tensor with any offset, size and stride on a storage of four F32."""
    whole = tensor("F32", (4,), "0", count)
    storage = whole[whole.index(b"(", 1) : whole.index(b"Q") + 1]
    storage = storage[storage.index(b"(", 1) :]
    arguments = [storage, number(offset), *(tuple_of(*map(number, one)) for one in (size, stride))]
    return call(
        name("torch._utils", "_rebuild_tensor_v2"), *arguments, b"\x89", name("collections", "OrderedDict") + b")R"
    )


@pytest.mark.parametrize(
    ("geometry", "words"),
    [
        ((0, (4,), (1,)), ""),
        ((3, (9,), (0,)), ""),
        ((9, (0, 5), (5, 1)), ""),
        ((0, (5,), (1,)), "a tensor of shape [5] reaches byte 20 of storage '0', which has 16 bytes"),
        ((0, (1 << 40, 1 << 40), (1 << 40, 1)), "reaches byte"),
        ((0, (2, 2), (3, 1)), "reaches byte 20"),
        ((1, (4,), (1,)), "reaches byte 20"),
        ((4, (), ()), "reaches byte 20"),
        ((-1, (4,), (1,)), "an offset, a size or a stride that no tensor has"),
        ((0, (-4,), (1,)), "an offset, a size or a stride that no tensor has"),
        ((3, (4,), (-1,)), "an offset, a size or a stride that no tensor has"),
        ((0, (2, 2), (1,)), "an offset, a size or a stride that no tensor has"),
    ],
)
@pytest.mark.parametrize("is_old", [False, True], ids=["container", "old"])
@pytest.mark.parametrize("options", [(), ("--values",)], ids=["names", "values"])
def test_a_tensor_beyond_its_storage_is_damaged(
    tmp_path: Path,
    geometry: tuple[int, tuple[int, ...], tuple[int, ...]],
    words: str,
    is_old: bool,
    options: tuple[str, ...],
) -> None:
    state = pickled(b"}" + _text("a") + rebuilt(*geometry) + b"s")  # a mapping: one tensor alone is no checkpoint
    content = rewritten(torch_bytes("a=F32[4]"), lambda entry, old: state if entry.endswith("/data.pkl") else old)
    if is_old:
        head = b"".join(pickle.dumps(one, 2) for one in (0x1950A86A20F9469CFC6C, 1001, {"little_endian": True}))
        content = head + state + pickle.dumps(["0"], 2) + struct.pack("<q", 4) + bytes(16)
    (tmp_path / "step-10").mkdir()
    (tmp_path / "step-10" / "model.pt").write_bytes(content)
    found = files_of(tmp_path, *options)
    assert len(found) == bool(words)
    assert words in "".join(found)
    told = CliRunner().invoke(toolbox, ["checkpoint", "newest-good", str(tmp_path)])
    assert told.exit_code == bool(words), told.output


def test_many_tensors_beyond_their_storages_are_counted(tmp_path: Path) -> None:
    state = pickled(tuple_of(*(rebuilt(0, (n,), (1,)) for n in range(1, 11))))
    (tmp_path / "step-10").mkdir()
    content = rewritten(torch_bytes("a=F32[4]"), lambda entry, old: state if entry.endswith("/data.pkl") else old)
    (tmp_path / "step-10" / "model.pt").write_bytes(content)
    (message,) = files_of(tmp_path)
    assert message.endswith("; and 3 more")


def test_references_that_differ_are_damage(tmp_path: Path) -> None:
    """PyTorch makes a storage once, as the first reference describes it."""
    state = pickled(tuple_of(rebuilt(0, (2,), (1,), count=2), rebuilt(0, (4,), (1,))))
    (tmp_path / "step-10").mkdir()
    content = rewritten(torch_bytes("a=F32[4]"), lambda entry, old: state if entry.endswith("/data.pkl") else old)
    (tmp_path / "step-10" / "model.pt").write_bytes(content)
    (message,) = files_of(tmp_path)
    assert "'0' with 8 and with 16 bytes" in message


@pytest.mark.parametrize("protocol", range(2, 6))
def test_an_array_with_other_bytes_is_damaged(tmp_path: Path, protocol: int) -> None:
    """Random state of NumPy is saved so, next to the weights."""
    numpy = pytest.importorskip("numpy")
    content = pickle.dumps(numpy.zeros((7, 3), "<u4"), protocol)
    (tmp_path / "step-10").mkdir()
    (tmp_path / "step-10" / "model.pt").write_bytes(WHOLE)
    (tmp_path / "step-10" / "rng.pkl").write_bytes(content.replace(b"K\x07K\x03\x86", b"K\x08K\x03\x86"))
    (message,) = files_of(tmp_path)
    assert "an array of shape [8, 3] has 84 of 96 bytes" in message


def test_a_tensor_of_pickle_is_called_one(tmp_path: Path) -> None:
    torch = pytest.importorskip("torch")
    root = tmp_path / "step-5"
    root.mkdir()
    (root / "model.pkl").write_bytes(pickle.dumps({"w": torch.ones(3)}))
    result = CliRunner().invoke(toolbox, ["checkpoint", "newest-good", str(root)])
    assert result.exit_code == 1
    assert "_load_from_bytes, which unpickles a tensor once more" in result.stderr
    assert "attribute" not in result.stderr


def _text(words: str) -> bytes:
    return b"X" + struct.pack("<I", len(words)) + words.encode()


def _calls(module: str, called: str, *given: bytes) -> bytes:
    return b"c" + f"{module}\n{called}\n".encode() + b"(" + b"".join(given) + b"tR"


UNLOADABLE: dict[str, bytes] = {
    "set of a list": b"\x8f(]\x90",
    "frozen set of a list": b"(]\x91",
    "key is a set": b"}\x8fNs",
    "key holds a list": b"}]\x85Ns",
    "key is an array of bytes": b"}\x96\x01\0\0\0\0\0\0\0aNs",
    "key is a mapping": b"}ccollections\nOrderedDict\n)RNs",
    "values of a set": b"\x8f(K\x01e",
    "items of a list": b"](K\x01\x90",
    "values of a mapping": b"ccollections\nOrderedDict\n)RK\x01a",
    "negative number": b"Np-1\n",
    "number that is not remembered": b"g7\n",
    "nothing to take": b"00",
    "mark twice": b"(2",
    "mark remembered": b"(p0\nN",
    "odd pairs": b"}(K\x01u",
    "reference without a container": b"K\x01\x85Q",
    "no text": b"X\x01\0\0\0\xff",
    "too many arguments": _calls("collections", "OrderedDict", b"K\x01", b"K\x02"),
    "argument that is no mapping": _calls("collections", "OrderedDict", b"K\x01"),
    "factory": _calls("collections", "defaultdict", b"K\x01"),
    "bytes of a time": _calls("datetime", "datetime", b"C\x0a" + b"\xff" * 10),
    "day": _calls("datetime", "date", b"K\x01", b"K\x0d", b"K\x01"),
    "type of NumPy": _calls("numpy", "dtype", _text("zz9")),
    "identifier": _calls("uuid", "UUID", _text("zz")),
    "decimal": _calls("decimal", "Decimal", _text("zz")),
    "device": _calls("torch", "device", _text("no device")),
    "size": _calls("torch", "Size", _text("zz")),
    "tensor": _calls("torch._utils", "_rebuild_tensor_v2", b"K\x01"),
}


@pytest.mark.parametrize("case", sorted(UNLOADABLE))
def test_what_no_loader_takes_is_not_whole(case: str, tmp_path: Path) -> None:
    state = b"\x80\x04}X\x01\0\0\0s" + UNLOADABLE[case] + b"s."
    pytest.importorskip("torch")
    with pytest.raises((pickle.UnpicklingError, TypeError, ValueError, AttributeError, ArithmeticError, RuntimeError)):
        pickle.loads(state)
    for root, content in ((tmp_path / "step-5", pickle.dumps({"s": 1})), (tmp_path / "step-7", state)):
        root.mkdir()
        (root / "model.ckpt").write_bytes(content)
    result = CliRunner().invoke(toolbox, ["checkpoint", "newest-good", str(tmp_path)])
    assert (result.exit_code, result.stdout) == (0, f"{tmp_path / 'step-5'}\n"), result.stderr
    assert "has no attribute" not in result.stderr


def test_a_key_that_is_hashed_for_ever_is_refused(tmp_path: Path) -> None:
    (tmp_path / "optimizer.pt").write_bytes(b"\x80\x04})" + b"2\x86" * 60 + b"Ns.")
    result = CliRunner().invoke(toolbox, ["checkpoint", "newest-good", str(tmp_path)])
    assert result.exit_code == 1
    assert "a key holds too many values in values" in result.stderr


@pytest.mark.parametrize(
    ("record", "content"),
    [
        ("byteorder", b"weird"),
        ("byteorder", b"little\n"),
        ("version", b"many"),
        ("version", b"0"),
        ("version", b"11"),
        (".storage_alignment", b"wide"),
    ],
)
def test_a_record_that_no_loader_takes_is_reported(record: str, content: bytes, tmp_path: Path) -> None:
    torch = pytest.importorskip("torch")
    torch.save({"w": torch.ones(3)}, tmp_path / "ckpt_10.pt")
    whole = (tmp_path / "ckpt_10.pt").read_bytes()
    (tmp_path / "ckpt_20.pt").write_bytes(
        rewritten(whole, lambda name, old: content if name.endswith(f"/{record}") else old)
    )
    with pytest.raises((RuntimeError, ValueError)):
        torch.load(tmp_path / "ckpt_20.pt")
    result = CliRunner().invoke(toolbox, ["checkpoint", "newest-good", str(tmp_path)])
    assert (result.exit_code, result.stdout) == (0, f"{tmp_path / 'ckpt_10.pt'}\n"), result.stderr
    assert f"/{record}' " in result.stderr
