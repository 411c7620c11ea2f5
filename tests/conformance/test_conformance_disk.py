"""A disk that is filled takes no byte more, keeps what it holds, has its room again afterwards, and goes in the end."""

from __future__ import annotations

import errno
from collections.abc import Iterator
from pathlib import Path
from threading import Timer

import pytest
from trainspec_conformance import disk as disks
from trainspec_conformance.disk import CannotMountError, SmallDisk

SIZE_BYTES = 1 << 20


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[SmallDisk]:
    """A disk of a megabyte."""
    try:
        made = SmallDisk(tmp_path / "store", SIZE_BYTES)
    except CannotMountError as error:
        pytest.skip(f"nothing can be mounted here: {error}")
    yield made
    if made.directory.is_mount():
        made.close()


@pytest.mark.parametrize("num_bytes", [0, 1, 4096, 100_000])
def test_a_full_disk_takes_nothing_more_until_it_is_freed(disk: SmallDisk, num_bytes: int) -> None:
    held, more = disk.directory / "held", disk.directory / "more"
    held.write_bytes(bytes(num_bytes))
    disk.fill_disk()
    with pytest.raises(OSError, match="space") as refused:
        more.write_bytes(bytes(2 * 4096))
    assert refused.value.errno == errno.ENOSPC
    assert held.read_bytes() == bytes(num_bytes)
    disk.free_disk()
    more.write_bytes(bytes(SIZE_BYTES // 2))


def test_a_disk_that_is_written_refuses_writes_as_soon_as_it_can(disk: SmallDisk) -> None:
    written = (disk.directory / "written").open("wb")
    Timer(0.3, written.close).start()
    disk.fail_writes()
    assert written.closed
    with pytest.raises(OSError, match="Read-only"):
        (disk.directory / "more").write_bytes(b"1")
    disk.mend_writes()
    (disk.directory / "more").write_bytes(b"1")


def test_a_disk_that_is_written_without_end_is_told(disk: SmallDisk, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(disks, "_PATIENCE_SECONDS", 0.2)
    with (disk.directory / "written").open("wb"), pytest.raises(CannotMountError, match="busy"):
        disk.fail_writes()


def test_a_disk_that_is_let_go_of_in_a_moment_is_unmounted(disk: SmallDisk) -> None:
    """A killed process may hold its files until a busy machine has taken it apart."""
    held = (disk.directory / "read").open("wb")
    Timer(0.3, held.close).start()
    disk.close()
    assert not disk.directory.is_mount()


def test_a_disk_that_is_used_without_end_is_told_and_left_nowhere(
    disk: SmallDisk, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(disks, "_PATIENCE_SECONDS", 0.2)
    with (disk.directory / "read").open("wb"), pytest.raises(CannotMountError, match="busy"):
        disk.close()
    assert not disk.directory.is_mount()
