"""Compares the content of files with the checksums that their own format records."""

from __future__ import annotations

from collections.abc import Collection, Iterator

from trainspec_validate.checkpoints.boundary import failure
from trainspec_validate.checkpoints.hashing import digests
from trainspec_validate.checkpoints.opening import UnreadableError
from trainspec_validate.checkpoints.pieces import damaged
from trainspec_validate.checkpoints.view import Archive, Checkpoint
from trainspec_validate.checkpoints.zips import opened
from trainspec_validate.system.boundary import reason_of
from trainspec_validate.system.process import memory_of_the_machine

_SHOWN = 3


def compared(one: Checkpoint, vouched: Collection[str]) -> Iterator[tuple[str, str]]:
    """The files with a recorded checksum and what contradicts it, in words; empty words where content agrees.

    Args:
        one: a checkpoint that was read.
        vouched: files that something else vouches for, which are not compared.
    """
    for archive in one.archives:
        if archive.path not in vouched and archive.path not in one.recorded:
            words, is_recorded = _damage(one, archive)
            if words or is_recorded:
                yield archive.path, words
    pieces = [piece for piece in one.pieces if piece.crc32c is not None and piece.path not in vouched]
    yield from ((piece.path, "") for piece in pieces)
    for piece, words in damaged(one.root, pieces):
        yield piece.path, f"tensor {piece.name!r} {words}"
    recorded = {path: digest for path, digest in one.recorded.items() if path not in vouched}
    for path, found in digests(one.root, recorded).items():
        yield path, _contradiction(found, recorded[path])


def _contradiction(found: str | OSError, recorded: str) -> str:
    """What contradicts the SHA-256 of a file, in words; empty where nothing does."""
    if isinstance(found, OSError):
        return f"the file cannot be read: {reason_of(found)}"
    return "" if found == recorded else "the content contradicts its recorded SHA-256"


def _damage(one: Checkpoint, archive: Archive) -> tuple[str, bool]:
    """What contradicts the checksums of a container, and whether it has any."""
    try:
        with memory_of_the_machine(), opened(one.root / archive.path, archive) as container:
            wrong, is_recorded = container.damaged()
    except UnreadableError as error:
        return f"the container {error}", True
    except Exception as error:
        return f"the container {failure(error)[1]}", True
    if not wrong:
        return "", is_recorded
    shown = ", ".join(wrong[:_SHOWN]) + (", …" if len(wrong) > _SHOWN else "")
    return f"{len(wrong):,} entr{'ies' if len(wrong) > 1 else 'y'} contradict the checksum: {shown}", True
