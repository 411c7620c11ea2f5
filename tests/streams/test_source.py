"""Files are opened by content: plain, gzip and zstd; damage is told, and lines have their places."""

from __future__ import annotations

import gzip
import io
from pathlib import Path

import pytest
import zstandard
from hypothesis import given
from hypothesis import strategies as st

from trainspec_validate.telemetry.formats import (
    FORMATS,
    Refusal,
    SourceError,
    head_bytes,
    lines_of,
    opened,
    read,
    uncompressed,
)
from trainspec_validate.telemetry.formats.source import MAX_LINE_BYTES, rejoined

TEXT = b"".join(b'{"k":"m","time_us":%d,"seq":%d,"m":{"train.step.count":1.0}}\n' % (n, n) for n in range(2_000))


def packed(kind: str) -> bytes:
    if kind == "gzip":
        return gzip.compress(TEXT)
    return zstandard.compress(TEXT) if kind == "zstd" else TEXT


@pytest.mark.parametrize("kind", ["plain", "gzip", "zstd"])
@pytest.mark.parametrize("name", ["stream.jsonl", "stream.txt", "stream.gz"])
def test_a_file_is_opened_by_content(tmp_path: Path, kind: str, name: str) -> None:
    (tmp_path / name).write_bytes(packed(kind))
    with opened(tmp_path / name) as stream:
        found = list(lines_of(stream))
    assert [line for _, line in found] == TEXT.splitlines()
    assert [offset for offset, _ in found] == [n for n in range(len(TEXT)) if n == 0 or TEXT[n - 1 : n] == b"\n"]


@pytest.mark.parametrize("kind", ["gzip", "zstd"])
def test_several_frames_are_one_file(kind: str) -> None:
    stream = uncompressed(io.BytesIO(packed(kind) * 2))
    assert sum(1 for _ in lines_of(stream)) == 4_000


@pytest.mark.parametrize(("kind", "keep"), [("gzip", 0.7), ("zstd", 0.7)])
def test_compressed_data_that_end_early(kind: str, keep: float) -> None:
    content = packed(kind)
    stream = uncompressed(io.BytesIO(content[: int(len(content) * keep)]))
    items = list(read(lines_of(stream), "file", FORMATS["metric-stream"]))
    refused = [entry for _, entry in items if isinstance(entry, Refusal)]
    assert kind == "zstd" or [entry.message for entry in refused] == ["the compressed data end early"]
    assert len(items) < 2_001


@pytest.mark.parametrize("kind", ["gzip", "zstd"])
def test_compressed_data_that_are_damaged(kind: str) -> None:
    content = bytearray(packed(kind))
    content[len(content) // 2 :] = bytes(255 - byte for byte in content[len(content) // 2 :])
    items = list(read(lines_of(uncompressed(io.BytesIO(bytes(content)))), "file", FORMATS["metric-stream"]))
    assert [entry.code for _, entry in items if isinstance(entry, Refusal)][-1] == "cut-off"


def test_a_small_file_that_grows_without_end() -> None:
    """A gigabyte of zeros takes a megabyte; no line of it ends."""
    stream = uncompressed(io.BytesIO(gzip.compress(bytes(64 * 1024 * 1024))))
    (found,) = list(lines_of(stream))
    assert len(found[1]) == MAX_LINE_BYTES + 1


@pytest.mark.parametrize("what", ["absent", "directory"])
def test_what_is_no_file(tmp_path: Path, what: str) -> None:
    path = tmp_path / "missing" if what == "absent" else tmp_path
    with pytest.raises(OSError, match=r"[Nn]o such file|not a regular file"), opened(path):
        pass


def test_without_the_library_of_zstd(monkeypatch: pytest.MonkeyPatch) -> None:
    import sys

    monkeypatch.setitem(sys.modules, "zstandard", None)
    with pytest.raises(SourceError, match="zstd cannot be read here") as caught:
        uncompressed(io.BytesIO(packed("zstd")))
    assert "pip install" in caught.value.help


def test_the_head_of_damaged_data(tmp_path: Path) -> None:
    (tmp_path / "f").write_bytes(packed("gzip")[:40])
    with pytest.raises(SourceError, match="the compressed data end early"), opened(tmp_path / "f") as stream:
        head_bytes(stream, 65_536)


@given(st.binary(max_size=200), st.integers(0, 200))
def test_a_stream_that_was_begun_is_read_whole(content: bytes, place: int) -> None:
    assert rejoined(content[:place], io.BytesIO(content[place:])).read() == content


@given(st.lists(st.binary(max_size=20).map(lambda line: line.replace(b"\n", b"").replace(b"\r", b"")), max_size=10))
def test_lines_have_their_places(lines: list[bytes]) -> None:
    content = b"\r\n".join(lines)
    found = list(lines_of(io.BufferedReader(io.BytesIO(content))))
    assert all(content[offset : offset + len(line)] == line for offset, line in found)
    assert b"".join(line for _, line in found) == b"".join(lines)
