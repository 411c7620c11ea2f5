"""Makes the checkpoints of tests: every format by hand, from lines of path and content."""

from __future__ import annotations

import json
import math
import os
import shlex
import struct
import subprocess
import zipfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from trainspec_validate.checkpoints import signature
from trainspec_validate.checkpoints.read import read_checkpoint
from trainspec_validate.checkpoints.seal import Facts, seal, write

NOW_SECONDS = 1_780_000_000
_SIZES = {"F32": 4, "BF16": 2, "I64": 8}
_STORAGES = {"F32": "FloatStorage", "BF16": "BFloat16Storage", "I64": "LongStorage"}
_DTYPES = {"F32": "float32", "BF16": "bfloat16", "I64": "int64"}


def build(directory: Path, text: str) -> None:
    """Make what the lines say, one after the other; every file is as old as the others unless a line says how old."""
    for line in text.splitlines():
        if not line.strip():
            continue
        place, *words = shlex.split(line.partition("  # <--")[0], posix=True) if " json " not in line else _json(line)
        path = directory / place
        path.parent.mkdir(parents=True, exist_ok=True)
        MAKERS[words[0]](path, *words[1:])
        if path.is_file() and not path.is_symlink() and words[0] != "age":
            os.utime(path, (NOW_SECONDS, NOW_SECONDS))


def _json(line: str) -> list[str]:
    place, _, rest = line.partition("  # <--")[0].partition(" json ")
    return [place.strip(), "json", rest.strip()]


def tensors(words: tuple[str, ...]) -> dict[str, tuple[str, tuple[int, ...], int]]:
    """Type, shape and size in bytes by name, out of `name=F32[2,3]`."""
    found = {}
    for word in words:
        name, _, kind = word.partition("=")
        dtype, _, shape = kind.rstrip("]").partition("[")
        sizes = tuple(int(size) for size in shape.split(",") if size)
        count = 1
        for size in sizes:
            count *= size
        found[name] = (dtype, sizes, count * _SIZES[dtype])
    return found


def safetensors(path: Path, *words: str) -> None:
    """A safetensors file."""
    header: dict[str, Any] = {}
    place = 0
    for name, (dtype, shape, size) in tensors(words).items():
        header[name] = {"dtype": dtype, "shape": list(shape), "data_offsets": [place, place + size]}
        place += size
    raw_safetensors(path, json.dumps(header).encode(), payload(place))


def raw_safetensors(path: Path, header: bytes, content: bytes) -> None:
    """A safetensors file with this header, right or wrong."""
    path.write_bytes(struct.pack("<Q", len(header)) + header + content)


def payload(size: int) -> bytes:
    """Bytes that are no long run of one value."""
    return bytes(n * 31 % 119 for n in range(size))


def short_text(text: str) -> bytes:
    """The operation that pushes a text."""
    encoded = text.encode()
    return b"X" + struct.pack("<I", len(encoded)) + encoded


def name(module: str, attribute: str) -> bytes:
    """The operation that pushes a name of code."""
    return f"c{module}\n{attribute}\n".encode()


def tuple_of(*values: bytes) -> bytes:
    """The operations that push a tuple."""
    return b"(" + b"".join(values) + b"t"


def number(value: int) -> bytes:
    """The operation that pushes a number."""
    return b"J" + struct.pack("<i", value) if value < 1 << 31 else b"\x8a\x08" + struct.pack("<q", value)


def call(function: bytes, *arguments: bytes) -> bytes:
    """The operations of a call."""
    return function + tuple_of(*arguments) + b"R"


def mapping(pairs: dict[bytes, bytes]) -> bytes:
    """The operations that push a mapping."""
    return b"}(" + b"".join(key + value for key, value in pairs.items()) + b"u"


def pickled(value: bytes) -> bytes:
    """A pickle of protocol 2."""
    return b"\x80\x02" + value + b"."


def tensor(dtype: str, shape: tuple[int, ...], key: str, count: int) -> bytes:
    """The operations that push a tensor as `torch.save` writes it."""
    storage = tuple_of(
        short_text("storage"), name("torch", _STORAGES[dtype]), short_text(key), short_text("cpu"), number(count)
    )
    sizes = tuple_of(*map(number, shape))
    strides = tuple_of(*(number(math.prod(shape[place + 1 :])) for place in range(len(shape))))
    hooks = name("collections", "OrderedDict") + b")R"
    return call(name("torch._utils", "_rebuild_tensor_v2"), storage + b"Q", number(0), sizes, strides, b"\x89", hooks)


def torch(path: Path, *words: str) -> None:
    """A file of `torch.save`; `call=module.name` adds a call of that name, and `key:1` a number."""
    path.write_bytes(torch_bytes(*words))


def torch_bytes(*words: str, is_bare: bool = False) -> bytes:
    """The bytes of such a file; a bare one holds its first tensor alone, as the pieces of PyTorch DCP do."""
    import io

    calls = [word.removeprefix("call=") for word in words if word.startswith("call=")]
    held = tensors(tuple(word for word in words if "=" in word and not word.startswith("call=")))
    state = {
        short_text(key): tensor(dtype, shape, str(n), size // _SIZES[dtype])
        for n, (key, (dtype, shape, size)) in enumerate(held.items())
    }
    for dotted in calls:
        module, _, attribute = dotted.rpartition(".")
        state[short_text(dotted)] = call(name(module, attribute), short_text("canary"))
    for word in words:
        if "=" not in word:
            key, _, value = word.partition(":")
            state[short_text(key)] = number(int(value))
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w") as archive:
        archive.writestr("archive/data.pkl", pickled(next(iter(state.values())) if is_bare else mapping(state)))
        for n, (_, _, size) in enumerate(held.values()):
            archive.writestr(f"archive/data/{n}", payload(size))
        archive.writestr("archive/version", "3\n")
    return buffer.getvalue()


_METADATA = "torch.distributed.checkpoint.metadata"


def size_of(values: tuple[int, ...]) -> bytes:
    """The operations that push a `torch.Size`."""
    return call(name("torch", "Size"), tuple_of(*(number(value) for value in values)))


def object_of(module: str, kind: str, **fields: bytes) -> bytes:
    """The operations that push an object with these fields."""
    state = mapping({short_text(key): value for key, value in fields.items()})
    return name(module, kind) + b")\x81" + state + b"b"


def dcp(path: Path, ranks: str, *words: str) -> None:
    """A directory of PyTorch DCP: the first dimension of each tensor is spread over the ranks."""
    path.mkdir(parents=True, exist_ok=True)
    count = int(ranks)
    files = {f"__{rank}_0.distcp": b"" for rank in range(count)}
    metadata, storage = {}, {}
    for key, (dtype, shape, _) in tensors(words).items():
        piece = (shape[0] // count, *shape[1:])
        chunks = b""
        for rank, file in enumerate(files):
            offset = (rank * piece[0], *(0 for _ in piece[1:]))
            blob = torch_bytes(f"{key}={dtype}[{','.join(map(str, piece))}]", is_bare=True)
            chunks += object_of(_METADATA, "ChunkStorageMetadata", offsets=size_of(offset), sizes=size_of(piece))
            fields = {"fqn": short_text(key), "offset": size_of(offset), "index": number(rank)}
            place = {"relative_path": short_text(file), "offset": number(len(files[file])), "length": number(len(blob))}
            info = object_of("torch.distributed.checkpoint.filesystem", "_StorageInfo", **place)
            storage[object_of(_METADATA, "MetadataIndex", **fields)] = info
            files[file] += blob
        named = tuple_of(name("torch", _DTYPES[dtype]), name("torch", "strided"), b"\x89", b"N", b"\x89")
        properties = name(_METADATA, "TensorProperties") + b")\x81" + named + b"b"
        held = {"properties": properties, "size": size_of(shape), "chunks": b"](" + chunks + b"e"}
        metadata[short_text(key)] = object_of(_METADATA, "TensorStorageMetadata", **held)
    for file, content in files.items():
        (path / file).write_bytes(content)
        os.utime(path / file, (NOW_SECONDS, NOW_SECONDS))
    fields = {"state_dict_metadata": mapping(metadata), "planner_data": b"N", "storage_data": mapping(storage)}
    (path / ".metadata").write_bytes(pickled(object_of(_METADATA, "Metadata", **fields)))
    os.utime(path / ".metadata", (NOW_SECONDS, NOW_SECONDS))


def sealed(path: Path, *words: str) -> None:
    """The manifest of the directory as it is now; `key=value` words say more."""
    facts = dict(word.split("=", 1) for word in words)
    states = tuple(facts.pop("state", "").split(",")) if "state" in facts else ()
    created = facts.pop("created", None)
    numbers = {key: int(facts.pop(key)) for key in ("step", "num_tokens", "num_ranks") if key in facts}
    known = Facts(("tests", "1"), state=states, **numbers, **facts)  # type: ignore[arg-type]
    manifest = seal(read_checkpoint(path.parent), known)
    write(path.parent, {**manifest, **({"created": created} if created else {})})


def signed(path: Path) -> None:
    """A signature of the manifest as it is now, by nobody's key."""
    content = signature.bundle(signature.statement(read_checkpoint(path.parent)), b"", "0" * 64)
    path.write_text(json.dumps(content), encoding="utf-8")


def flipped(path: Path) -> None:
    """One bit of the last byte of the middle turned."""
    content = bytearray(path.read_bytes())
    at = len(content) - 1 if path.suffix == ".safetensors" else content.find(payload(8)) + 1
    content[at] ^= 1
    path.write_bytes(bytes(content))


def put(path: Path, offset: str, number: str) -> None:
    """A number of type F32 at a place, counted from the end where it is negative."""
    content = bytearray(path.read_bytes())
    place = int(offset) % len(content)
    content[place : place + 4] = struct.pack("<f", float(number))
    path.write_bytes(bytes(content))


def zeroed(path: Path, size: str) -> None:
    """So many last bytes set to zero."""
    content = path.read_bytes()
    path.write_bytes(content[: -int(size)] + bytes(int(size)))


def aged(path: Path, seconds: str) -> None:
    """Last written so many seconds before (or with a minus, after) all others."""
    os.utime(path, (NOW_SECONDS - int(seconds), NOW_SECONDS - int(seconds)))


MAKERS: dict[str, Callable[..., Any]] = {
    "folder": lambda path: path.mkdir(parents=True, exist_ok=True),
    "text": lambda path, text="": path.write_text(text, encoding="utf-8"),
    "json": lambda path, text: path.write_text(text, encoding="utf-8"),
    "safetensors": safetensors,
    "torch": torch,
    "dcp": dcp,
    "sealed": sealed,
    "signed": signed,
    "cut": lambda path, size: path.write_bytes(path.read_bytes()[: -int(size)]),
    "flipped": flipped,
    "value": put,
    "zeros": zeroed,
    "claims": lambda path, size: path.write_bytes(struct.pack("<Q", int(size)) + path.read_bytes()[8:]),
    "removed": lambda path: path.unlink(),
    "link": lambda path, target: path.symlink_to(target),
    "age": aged,
}


@contextmanager
def deep_tree(root: Path, num_levels: int = 1_200) -> Iterator[None]:
    """Directories `a` in each other with a `file` in the last, deeper than Python recurses."""
    place = os.open(root, os.O_RDONLY)
    for _ in range(num_levels):  # a path of the whole could be too long
        os.mkdir("a", dir_fd=place)
        deeper = os.open("a", os.O_RDONLY, dir_fd=place)
        os.close(place)
        place = deeper
    os.close(os.open("file", os.O_CREAT | os.O_WRONLY, dir_fd=place))
    os.close(place)
    try:
        yield
    finally:  # `shutil.rmtree` recurses
        subprocess.run(["rm", "-rf", str(root / "a")], check=True)
