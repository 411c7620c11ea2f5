"""Makes checkpoints of TensorFlow for tests, by hand: a table, messages in it, and values."""

from __future__ import annotations

import struct
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path

from trainspec_validate.system.crc32c import crc32c, masked

FLOAT, TEXT, INTEGER_64, VARIANT = 1, 7, 9, 21
VALUE = "/.ATTRIBUTES/VARIABLE_VALUE"
_MAGIC = struct.pack("<Q", 0xDB4775248B80FB57)


@dataclass(frozen=True)
class Held:
    """A tensor to write."""

    content: bytes
    shape: tuple[int, ...]
    kind: int = FLOAT
    shard: int = 0


def varint(value: int) -> bytes:
    """A number of variable length."""
    value &= (1 << 64) - 1
    found = bytearray()
    while value >= 0x80:
        found.append(value & 0x7F | 0x80)
        value >>= 7
    return bytes([*found, value])


def number(field: int, value: int) -> bytes:
    """A field with a number; zero is left out, as the format does."""
    return varint(field << 3) + varint(value) if value else b""


def message(field: int, content: bytes) -> bytes:
    """A field with a text or a message."""
    return varint(field << 3 | 2) + varint(len(content)) + content


def block(pairs: Iterable[tuple[bytes, bytes]], kind: int = 0) -> bytes:
    """A block of a table with its trailer; every fourth key is written whole."""
    body, restarts, last = b"", [], b""
    for count, (key, value) in enumerate(pairs):
        shared = 0
        if count % 4 == 0:
            restarts.append(len(body))
        else:
            while shared < min(len(key), len(last)) and key[shared] == last[shared]:
                shared += 1
        body += varint(shared) + varint(len(key) - shared) + varint(len(value)) + key[shared:] + value
        last = key
    body += struct.pack(f"<{len(restarts or [0]) + 1}L", *(restarts or [0]), len(restarts or [0]))
    return body + bytes([kind]) + struct.pack("<L", masked(crc32c(body + bytes([kind]))))


def table(pairs: Iterable[tuple[bytes, bytes]], per_block: int = 3, kind: int = 0) -> bytes:
    """A table of several blocks, all of which say that they are compressed in this way."""
    listed = list(pairs)
    whole, index = b"", []
    for start in range(0, len(listed), per_block):
        part = listed[start : start + per_block]
        made = block(part, kind)
        index.append((part[-1][0], varint(len(whole)) + varint(len(made) - 5)))
        whole += made
    return table_of(whole, index)


def table_of(blocks: bytes, index: Iterable[tuple[bytes, bytes]]) -> bytes:
    """A table of these blocks, with a last key and a place for each."""
    about, root = block([]), block(index)
    places = varint(len(blocks)) + varint(len(about) - 5) + varint(len(blocks) + len(about)) + varint(len(root) - 5)
    return blocks + about + root + places.ljust(40, b"\0") + _MAGIC


def shape(sizes: Iterable[int]) -> bytes:
    """The message of a shape."""
    return b"".join(message(2, number(1, size)) for size in sizes)


def entry(held: Held, offset: int, checksum: int) -> bytes:
    """The message of a tensor."""
    start = number(1, held.kind) + message(2, shape(held.shape)) + number(3, held.shard)
    return start + number(4, offset) + number(5, len(held.content)) + b"\x35" + struct.pack("<L", masked(checksum))


def header(num_shards: int = 1, endianness: int = 0, least: int = 0) -> bytes:
    """The message that an index begins with."""
    return number(1, num_shards) + number(2, endianness) + message(3, number(1, 1) + number(2, least))


def texts(words: Iterable[bytes]) -> tuple[bytes, int]:
    """Texts as they lie in the file, and their checksum."""
    held = list(words)
    lengths = b"".join(struct.pack("<L", len(word)) for word in held)
    middle = struct.pack("<L", masked(crc32c(lengths)))
    written = b"".join(varint(len(word)) for word in held)
    return written + middle + b"".join(held), crc32c(lengths + middle + b"".join(held))


def floats(*values: float) -> bytes:
    """Values of type float."""
    return struct.pack(f"<{len(values)}f", *values)


def bundle(directory: Path, prefix: str, tensors: Mapping[str, Held], num_shards: int = 1) -> None:
    """Write a checkpoint: files with values, then the index."""
    directory.mkdir(parents=True, exist_ok=True)
    shards = [b""] * num_shards
    pairs = [(b"", header(num_shards))]
    for name, held in sorted(tensors.items()):
        content, checksum = held.content, crc32c(held.content)
        if held.kind == TEXT:
            content, checksum = texts([held.content])
        told = Held(content, held.shape, held.kind, held.shard)
        pairs.append((name.encode(), entry(told, len(shards[held.shard]), checksum)))
        shards[held.shard] += content
    for place, content in enumerate(shards):
        (directory / f"{prefix}.data-{place:05}-of-{num_shards:05}").write_bytes(content)
    (directory / f"{prefix}.index").write_bytes(table(pairs))


def training(step: int) -> dict[str, Held]:
    """What a small trainer saves."""
    weights = Held(floats(*(0.5 * n + step for n in range(12))), (3, 4))
    return {
        "_CHECKPOINTABLE_OBJECT_GRAPH": Held(b"graph of objects", (), TEXT),
        f"model/dense/kernel{VALUE}": weights,
        f"optimizer/_iterations{VALUE}": Held(struct.pack("<q", step), (), INTEGER_64),
        f"optimizer/_variables/2{VALUE}": weights,
        f"save_counter{VALUE}": Held(struct.pack("<q", 3), (), INTEGER_64),
    }


def pointer(directory: Path, *prefixes: str) -> None:
    """The file that names the newest, the last of these."""
    lines = [f'model_checkpoint_path: "{prefixes[-1]}"', *(f'all_model_checkpoint_paths: "{p}"' for p in prefixes)]
    lines += [f"all_model_checkpoint_timestamps: {1.7e9 + n}" for n in range(len(prefixes))]
    text = "\n".join([*lines, "last_preserved_timestamp: 1795314218.78905"])
    (directory / "checkpoint").write_text(f"{text}\n", encoding="utf-8")
