"""A zip container that programs read in different ways is told, whatever one of them finds in it."""

from __future__ import annotations

import io
import struct
import zipfile
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.trees import call, name, pickled, short_text, torch_bytes
from trainspec_validate import validate
from trainspec_validate.checkpoints.read import read_checkpoint

EVIL = pickled(call(name("posix", "system"), short_text("true")))
GOOD = pickled(b"}")
Entries = list[tuple[str, bytes]]


def container(*entries: tuple[str, bytes]) -> bytes:
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w") as archive:
        for entry, content in (*entries, ("archive/version", b"3\n")):
            archive.writestr(entry, content)
    return buffer.getvalue()


def second(content: bytes, old: bytes, new: bytes) -> bytes:
    """The last of two places changed: that of the directory."""
    before, _, after = content.rpartition(old)
    return before + new + after


def at_end(content: bytes, offset: int, change: Callable[[int], int], kind: str = "<H") -> bytes:
    changed = bytearray(content)
    place = len(content) - 22 + offset
    struct.pack_into(kind, changed, place, change(struct.unpack_from(kind, changed, place)[0]))
    return bytes(changed)


def with_extra(kind: int, content: bytes, times: int = 1) -> bytes:
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w") as archive:
        entry = zipfile.ZipInfo("archive/data.pkl")
        entry.extra = (struct.pack("<HH", kind, len(content)) + content) * times
        archive.writestr(entry, GOOD)
    return buffer.getvalue()


STATE = ("archive/data.pkl", GOOD)
WAYS: dict[str, bytes] = {
    "other-case": container(("archive/DATA.PKL", EVIL)),
    "cut-name": container(("archive/data.pkl", EVIL), ("archive/data.pklQz", GOOD)).replace(b"pklQz", b"pkl\0z"),
    "evil-first": container(("archive/data.pkl", EVIL), STATE),
    "evil-last": container(STATE, ("archive/data.pkl", EVIL)),
    "twin": container(("archive/Data.pkl", EVIL), STATE),
    "folder-twin": container(("ARCHIVE/data.pkl", GOOD), ("archive/data.pkl", EVIL)),
    "harmless-twin": container(STATE, ("archive/DATA.pkl", GOOD)),
    "control": container(STATE, ("archive/da\x01ta", b"")),
    "other-local-name": second(container(("archive/data.pkl", EVIL)), b"archive/data.pkl", b"archive/data.txt"),
    "no-name": container(("archive/data", EVIL)),
    "comment": at_end(container(STATE), 20, lambda _: 4) + b"text",
    "after": container(STATE) + b"x",
    "second-end": container(("archive/data.pkl", EVIL)) + container(STATE),
    "before": b"PK\x03\x04" + container(STATE),
    "fewer-entries": at_end(at_end(container(STATE), 8, lambda n: n - 1), 10, lambda n: n - 1),
    "moved-directory": at_end(container(STATE), 16, lambda n: n - 1, "<L"),
    "other-disk": at_end(container(STATE), 8, lambda n: n - 1),
    "second-name": with_extra(0x7075, b"\1" + bytes(4) + b"archive/x.txt"),
}


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("file", ["optimizer.pt", "pytorch_model.bin"])
def test_a_container_with_two_readings_is_an_error(tmp_path: Path, way: str, file: str) -> None:
    (tmp_path / file).write_bytes(WAYS[way])
    report = validate([str(tmp_path)])
    told = {found.requirement for found in report.findings if found.severity == "error"}
    assert told & {"TS-SEC-001", "TS-SEC-003", "TS-CKP-083"}, report.findings


def wide(content: bytes, told: int = 0, entries: int = 0) -> bytes:
    """The container with an end in 64 bits before its end, as PyTorch writes it."""
    *_, count, size, begin, _ = struct.unpack("<4s4H2LH", content[-22:])
    place = begin + size
    end = struct.pack("<4sQ2H2L4Q", b"PK\x06\x06", 44, 45, 45, 0, 0, count + entries, count + entries, size, begin)
    return content[:-22] + end + struct.pack("<4sLQL", b"PK\x06\x07", 0, place + told, 1) + content[-22:]


@pytest.mark.parametrize("content", [wide(container(STATE)), container(STATE)], ids=["64-bit", "32-bit"])
def test_a_container_with_one_reading_is_whole(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "model.pt").write_bytes(content)
    assert read_checkpoint(tmp_path).troubles == []


@pytest.mark.parametrize(
    "content", [wide(container(STATE), told=1), wide(container(STATE), entries=1)], ids=["place", "entries"]
)
def test_two_ends_that_contradict_each_other_are_told(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "model.pt").write_bytes(content)
    assert read_checkpoint(tmp_path).troubles != []


@pytest.mark.parametrize("place", [1, -30, -29, -22])
def test_an_entry_that_is_not_where_its_directory_says(tmp_path: Path, place: int) -> None:
    """The last entry of the directory leads into another one, or to where too few bytes are left for an entry."""
    content = bytearray(container(STATE))
    struct.pack_into("<L", content, content.rindex(b"PK\x01\x02") + 42, place % len(content))
    (tmp_path / "model.pt").write_bytes(content)
    (trouble,) = read_checkpoint(tmp_path).troubles
    assert (trouble.aspect, trouble.path) == ("code", "model.pt")
    assert "the entry 'archive/version' is not where its directory says" in trouble.message


def test_entries_whose_sizes_follow_them_have_one_reading(tmp_path: Path) -> None:
    """As PyTorch writes them, and Python where it cannot go back."""

    class Stream(io.BytesIO):
        def seekable(self) -> bool:
            return False

        def seek(self, *_: int) -> int:
            raise io.UnsupportedOperation

        def tell(self) -> int:
            raise io.UnsupportedOperation

    stream = Stream()
    with zipfile.ZipFile(stream, "w") as archive:
        archive.writestr("archive/data.pkl", GOOD)
        with archive.open("archive/data/0", "w", force_zip64=True) as entry:
            entry.write(b"12345678")
    (tmp_path / "model.pt").write_bytes(stream.getvalue())
    assert read_checkpoint(tmp_path).troubles == []


def test_a_whole_container_stays_whole(tmp_path: Path) -> None:
    (tmp_path / "model.pt").write_bytes(torch_bytes("weight=F32[4]"))
    assert read_checkpoint(tmp_path).troubles == []


@pytest.mark.parametrize("protocol", [6, 255])
def test_a_protocol_that_is_unknown_is_told(tmp_path: Path, protocol: int) -> None:
    (tmp_path / "model.pt").write_bytes(container(("archive/data.pkl", bytes([0x80, protocol]) + b"}.")))
    assert [trouble.aspect for trouble in read_checkpoint(tmp_path).troubles] == ["container"]
