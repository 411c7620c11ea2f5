"""Whole files arrive block by block as they are, whatever way the system has to them, and nobody waits in vain."""

from __future__ import annotations

import ctypes
import errno
import hashlib
import mmap
import os
import time
import tracemalloc
from collections.abc import Callable, Iterable
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.examples import examples
from trainspec_validate.checkpoints import blocks, hashing, read_rates
from trainspec_validate.checkpoints.opening import open_file, open_past_memory

SMALL_BLOCK = 8192
LARGE_BLOCK = blocks.BLOCK_BYTES
LENGTHS = [0, 1, SMALL_BLOCK - 1, SMALL_BLOCK, SMALL_BLOCK + 1, 2 * SMALL_BLOCK, 9 * SMALL_BLOCK, 9 * SMALL_BLOCK + 511]
NUM_BLOCKS = 16
NUM_LARGE = 100


@pytest.fixture(autouse=True)
def small_blocks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(blocks, "BLOCK_BYTES", SMALL_BLOCK)


@pytest.fixture
def files(tmp_path: Path) -> dict[str, str]:
    """Digests of files that end before, at and after the ends of blocks."""
    contents = {f"{length}": os.urandom(length) for length in LENGTHS}
    for name, content in contents.items():
        (tmp_path / name).write_bytes(content)
    return {name: hashlib.sha256(content).hexdigest() for name, content in contents.items()}


def drop(root: Path, names: Iterable[str]) -> None:
    read_rates.forget(root, names)


def keep(root: Path, names: Iterable[str]) -> None:
    for name in names:
        (root / name).read_bytes()


def keep_some(root: Path, names: Iterable[str]) -> None:
    drop(root, names)
    for name in names:
        with (root / name).open("rb", buffering=0) as file:
            os.pread(file.fileno(), 1, 3 * SMALL_BLOCK)


@pytest.mark.parametrize("before", [drop, keep, keep_some])
def test_every_length_arrives_whole(
    tmp_path: Path, files: dict[str, str], before: Callable[[Path, Iterable[str]], None]
) -> None:
    before(tmp_path, files)
    assert hashing.digests(tmp_path, files) == files


@pytest.mark.skipif(not hasattr(os, "RWF_NOWAIT"), reason="this system does not tell what it holds in memory")
@pytest.mark.parametrize("error", [errno.EOPNOTSUPP, errno.EAGAIN])
def test_a_file_system_that_does_not_tell_what_memory_holds_is_read(
    tmp_path: Path, files: dict[str, str], monkeypatch: pytest.MonkeyPatch, error: int
) -> None:
    read = os.preadv

    def preadv(file: int, buffers: list[memoryview], offset: int, flags: int = 0) -> int:
        if flags:
            raise OSError(error, os.strerror(error))
        return read(file, buffers, offset)

    monkeypatch.setattr(os, "preadv", preadv)
    assert hashing.digests(tmp_path, files) == files


@pytest.mark.skipif(not hasattr(os, "RWF_NOWAIT"), reason="this system has no way past its memory")
def test_a_storage_that_refuses_to_be_read_past_memory_is_read(
    tmp_path: Path, files: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    read, refused = os.preadv, []

    def preadv(file: int, buffers: list[memoryview], offset: int, flags: int = 0) -> int:
        if flags:
            raise BlockingIOError
        if not refused or file in refused:  # The first read of all is past memory
            refused.append(file)
            raise OSError(errno.EINVAL, "")
        return read(file, buffers, offset)

    largest = max(files, key=int)
    if not _has_way_past(tmp_path / largest):
        pytest.skip("the file system of temporary files has no way past memory")
    monkeypatch.setattr(os, "preadv", preadv)
    assert hashing.digests(tmp_path, [largest]) == {largest: files[largest]}
    assert refused


def _has_way_past(path: Path) -> bool:
    with open_file(path) as file:
        storage = open_past_memory(path, file)
        if storage is not None:
            storage.close()
        return storage is not None


def test_another_file_that_took_the_place_is_not_read_past_memory(tmp_path: Path) -> None:
    path = tmp_path / "model"
    path.write_bytes(b"old")
    with open_file(path) as file:
        (tmp_path / "new").write_bytes(b"new")
        (tmp_path / "new").replace(path)
        assert open_past_memory(path, file) is None


def test_damage_within_a_file_is_told_and_the_others_are_hashed(
    tmp_path: Path, files: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    largest, damaged = max(files, key=int), 4 * SMALL_BLOCK
    read, inode = os.preadv, (tmp_path / largest).stat().st_ino

    def preadv(file: int, buffers: list[memoryview], offset: int, flags: int = 0) -> int:
        if offset == damaged and os.fstat(file).st_ino == inode:
            raise OSError(errno.EIO, "input/output error")
        return read(file, buffers, offset, flags)

    monkeypatch.setattr(os, "preadv", preadv)
    found = hashing.digests(tmp_path, files)
    error = found.pop(largest)
    assert isinstance(error, OSError)
    assert error.errno == errno.EIO
    assert found == {name: digest for name, digest in files.items() if name != largest}


def test_reads_that_give_less_than_they_were_asked_for_go_on(
    tmp_path: Path, files: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    read = os.preadv

    def preadv(file: int, buffers: list[memoryview], offset: int, flags: int = 0) -> int:
        return read(file, [buffers[0][:1000]], offset, flags)

    monkeypatch.setattr(os, "preadv", preadv)
    assert hashing.digests(tmp_path, files) == files


def test_no_buffer_is_given_away_while_it_is_still_filled(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("damaged", "whole"):
        (tmp_path / name).write_bytes(os.urandom(8 * SMALL_BLOCK))
    read, inode = os.preadv, (tmp_path / "damaged").stat().st_ino
    busy: set[int] = set()
    twice: list[int] = []

    def preadv(file: int, buffers: list[memoryview], offset: int, flags: int = 0) -> int:
        if flags:
            return read(file, buffers, offset, flags)
        buffer = id(buffers[0].obj)
        if buffer in busy:
            twice.append(buffer)
        busy.add(buffer)
        try:
            if os.fstat(file).st_ino == inode:
                if offset == 0:
                    raise OSError(errno.EIO, "input/output error")
                time.sleep(0.2)  # The others are under way when the first fails
            return read(file, buffers, offset)
        finally:
            busy.discard(buffer)

    monkeypatch.setattr(os, "preadv", preadv)
    monkeypatch.setattr(hashing, "_MAX_FILES", 1)
    found = hashing.digests(tmp_path, ["damaged", "whole"])
    assert isinstance(found["damaged"], OSError)
    assert found["whole"] == hashlib.sha256((tmp_path / "whole").read_bytes()).hexdigest()
    assert not twice


def test_files_wait_for_buffers_and_no_more_are_made_than_are_said(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    made: list[int] = []
    monkeypatch.setattr(hashing, "_MAX_FILES", 3)
    monkeypatch.setattr(hashing.threads, "num_processors", lambda: 1)
    monkeypatch.setattr(blocks, "_NUM_BUFFERS_PER_FILE", 1)
    monkeypatch.setattr(blocks, "_pages", lambda num_bytes: made.append(num_bytes) or bytearray(num_bytes))
    wanted = {}
    for number in range(12):
        content = os.urandom(20 * SMALL_BLOCK + number)
        (tmp_path / f"{number}").write_bytes(content)
        wanted[f"{number}"] = hashlib.sha256(content).hexdigest()
    assert hashing.digests(tmp_path, wanted) == wanted
    assert 1 <= len(made) <= 3


@examples(20)
@given(st.lists(st.integers(0, 12 * SMALL_BLOCK), min_size=1, max_size=12))
def test_files_that_share_buffers_do_not_mix(tmp_path_factory: pytest.TempPathFactory, lengths: list[int]) -> None:
    root = tmp_path_factory.mktemp("files")
    wanted = {}
    for number, length in enumerate(lengths):
        content = bytes([number]) * length
        (root / f"{number}").write_bytes(content)
        wanted[f"{number}"] = hashlib.sha256(content).hexdigest()
    read_rates.forget(root, wanted)
    assert hashing.digests(root, wanted) == wanted


def test_who_interrupts_does_not_wait_for_the_rest(tmp_path: Path) -> None:
    num_bytes = 2_000 * SMALL_BLOCK
    for number in range(NUM_LARGE):
        with (tmp_path / f"{number}").open("wb") as file:
            file.truncate(num_bytes)
    hashed: list[int] = []

    def interrupt(done: int, _total: int) -> None:
        hashed.append(done)
        if len(hashed) == 1:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        hashing.digests(tmp_path, [f"{number}" for number in range(NUM_LARGE)], interrupt)
    assert max(hashed) < NUM_LARGE / 2 * num_bytes


def test_a_file_that_claims_to_be_huge_takes_no_memory_for_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(blocks, "BLOCK_BYTES", LARGE_BLOCK)
    with (tmp_path / "huge").open("wb") as file:
        try:
            file.truncate(8 << 40)
        except OSError:
            pytest.skip("the file system has no files of such a size")

    def interrupt(_done: int, _total: int) -> None:
        raise KeyboardInterrupt

    tracemalloc.start()
    try:
        with pytest.raises(KeyboardInterrupt):
            hashing.digests(tmp_path, ["huge"], interrupt)
        assert tracemalloc.get_traced_memory()[1] < 10_000_000
    finally:
        tracemalloc.stop()


def test_what_is_read_once_pushes_nothing_out_of_memory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(blocks, "BLOCK_BYTES", LARGE_BLOCK)
    path = tmp_path / "large"
    path.write_bytes(os.urandom(NUM_BLOCKS * LARGE_BLOCK))
    read_rates.forget(tmp_path, [path.name])
    held = _share_held(path) if _has_way_past(path) else None
    if held is None or held > 1 / 4:
        pytest.skip("the system has no way past its memory here, or does not tell what it holds")
    hashing.digests(tmp_path, [path.name])
    held = _share_held(path)
    assert held is not None
    assert held < 1 / 2  # A busy system may keep a page that it was asked to forget


def test_a_page_that_arrives_by_being_asked_for_was_not_in_memory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A quick storage answers before the system has said that the page is not there."""
    path = tmp_path / "large"
    path.write_bytes(os.urandom(9 * SMALL_BLOCK))
    if not _has_way_past(path):
        pytest.skip("the file system of temporary files has no way past memory")
    read, asked, from_storage, num_reads = os.preadv, [], [], [0]

    def preadv(file: int, buffers: list[memoryview], offset: int, flags: int = 0) -> int:
        if flags:
            asked.append(offset)
            num_reads[0] += 1
            return read(file, buffers, offset)
        from_storage.append(offset)
        return read(file, buffers, offset)

    monkeypatch.setattr(os, "preadv", preadv)
    monkeypatch.setattr(blocks, "_num_reads", lambda: num_reads[0])
    ways: list[int] = []
    monkeypatch.setattr(
        blocks._File, "_from_storage", lambda _self, _storage, _buffer, offset: ways.append(offset) or 0
    )
    hashing.digests(tmp_path, [path.name])
    assert asked
    assert sorted(ways) == sorted(asked)


def _share_held(path: Path) -> float | None:
    """Share of a file that the system holds in memory, without a read of it; None where it does not tell."""
    size = path.stat().st_size
    pages = (ctypes.c_ubyte * -(-size // mmap.PAGESIZE))()
    with path.open("rb") as file, mmap.mmap(file.fileno(), size, access=mmap.ACCESS_COPY) as mapped:
        view = (ctypes.c_char * size).from_buffer(mapped)
        try:
            code = ctypes.CDLL(None).mincore(ctypes.c_void_p(ctypes.addressof(view)), ctypes.c_size_t(size), pages)
        except AttributeError:
            return None
        finally:
            del view
    return sum(page & 1 for page in pages) / len(pages) if code == 0 else None


@pytest.mark.parametrize("read", [read_rates.plain_read, read_rates.quickest_read])
def test_reads_take_what_can_be_read(
    tmp_path: Path, files: dict[str, str], read: Callable[[Path, Iterable[str]], float]
) -> None:
    (tmp_path / "link").symlink_to("1")
    assert read(tmp_path, [*files, "link", "missing"]) > 0
