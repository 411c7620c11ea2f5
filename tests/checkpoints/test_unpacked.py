"""What a loader unpacks of a compressed file before it notices a damage is looked into, and the damage is told."""

from __future__ import annotations

import bz2
import gzip
import io
import lzma
import pickle
import zlib
from collections.abc import Callable
from pathlib import Path
from typing import BinaryIO

import pytest
from click.testing import CliRunner
from hypothesis import given
from hypothesis import strategies as st

from tests.checkpoints.test_zip_readings import EVIL
from tests.trees import build
from trainspec_validate import validate
from trainspec_validate.checkpoints.unpacked import is_damaged, unpacked
from trainspec_validate.cli.toolbox import command as toolbox

PLAIN = gzip.compress(EVIL)


def member(flags: int, extra: bytes = b"") -> bytes:
    """A member of gzip with flags, and what follows its header for them."""
    return PLAIN[:3] + bytes([flags]) + PLAIN[4:10] + extra + PLAIN[10:]


LENIENT = {
    "zeros-between-members": gzip.compress(b"") + bytes(70_000) + PLAIN,
    "code-on-both-sides-of-zeros": gzip.compress(EVIL[:9]) + bytes(8) + gzip.compress(EVIL[9:]),
    "checksum": PLAIN[:-8] + bytes(4) + PLAIN[-4:],
    "length": PLAIN[:-4] + b"\xff" * 4,
    "checksum-of-the-header": member(2, b"xy"),
    "reserved-flags": member(0xE0),
    "everything-in-the-header": member(0xFF, b"\x2c\x01" + b"e" * 300 + b"n" * 200_000 + b"\0comment\0xy"),
    "cut": PLAIN[:-8],
}


@pytest.mark.parametrize("way", LENIENT)
def test_code_is_told_wherever_python_unpacks_it(way: str, tmp_path: Path) -> None:
    assert gzip.GzipFile(fileobj=io.BytesIO(LENIENT[way])).read1(len(EVIL)) in {EVIL, EVIL[:9]}
    build(tmp_path, "model.safetensors  safetensors weight=F32[4]\n")
    (tmp_path / "opt.pkl").write_bytes(LENIENT[way])
    assert "TS-SEC-001" in {one.requirement for one in validate([tmp_path]).findings}


@pytest.mark.parametrize(
    ("file", "told"), [("opt.pkl", True), ("rank_3", True), ("notes.txt.gz", False), ("run.jsonl.gz", False)]
)
@pytest.mark.parametrize("damage", ["deflate", "cut"])
def test_a_damaged_file_of_state_is_none(file: str, told: bool, damage: str, tmp_path: Path) -> None:
    good = gzip.compress(pickle.dumps({"step": 3, "w": bytes(range(256)) * 40}))
    bad = {"deflate": good[:10] + b"\xff" * 20 + good[30:], "cut": good[:-40]}
    build(tmp_path, "step-20/model.safetensors  safetensors weight=F32[4]\n")
    build(tmp_path, "step-30/model.safetensors  safetensors weight=F32[4]\n")
    (tmp_path / "step-20" / file).write_bytes(good)
    (tmp_path / "step-30" / file).write_bytes(bad[damage])
    printed = CliRunner().invoke(toolbox, ["checkpoint", "newest-good", str(tmp_path)])
    newest = Path(printed.stdout.strip()).name
    assert newest == ("step-20" if told else "step-30"), printed.stderr


LIBRARIES: dict[str, tuple[Callable[[bytes], bytes], Callable[[BinaryIO], io.BufferedIOBase]]] = {
    "gzip": (lambda content: gzip.compress(content, 1), lambda file: gzip.GzipFile(fileobj=file)),
    "bz2": (bz2.compress, bz2.BZ2File),
    "xz": (lzma.compress, lzma.LZMAFile),
}


@pytest.mark.parametrize("library", LIBRARIES)
@given(
    parts=st.lists(st.binary(max_size=3000), min_size=1, max_size=3),
    num_zeros=st.sampled_from([0, 4, 9]),
    change=st.tuples(st.integers(0, 9000), st.integers(0, 255)) | st.none(),
)
def test_no_more_is_unpacked_by_the_library(
    library: str, parts: list[bytes], num_zeros: int, change: tuple[int, int] | None
) -> None:
    compress, opened = LIBRARIES[library]
    packed = bytearray(b"".join(compress(part) + bytes(num_zeros) for part in parts))
    if change is not None:
        packed[7 + change[0] % (len(packed) - 7)] = change[1]
    expected = bytearray()
    try:
        reader = opened(io.BytesIO(packed))
        while block := reader.read1(io.DEFAULT_BUFFER_SIZE):
            expected += block
    except (OSError, EOFError, ValueError, lzma.LZMAError, zlib.error):
        pass
    file = unpacked(io.BytesIO(packed), bytes(packed[:512]))
    assert file is not None
    found = file.read()
    assert found.startswith(expected) or is_damaged(file)
