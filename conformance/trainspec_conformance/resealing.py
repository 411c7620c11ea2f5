"""Changes the values of a checkpoint while nothing runs, and gives it a manifest that fits its files again."""

from __future__ import annotations

import random
from pathlib import Path

import msgspec

from trainspec_conformance.stored_values import opened_checkpoint, scale
from trainspec_validate.checkpoints.hashing import digests
from trainspec_validate.checkpoints.opening import UnreadableError
from trainspec_validate.checkpoints.paths import fault
from trainspec_validate.checkpoints.view import SIGNATURE_NAME
from trainspec_validate.documents.types.manifest import SealedFile
from trainspec_validate.system.atomic import write_atomically

LEAST_CHANGE, MOST_CHANGE = 0.02, 0.1
"""Relative change of each value: a number of 8 bits still shows the smallest one."""


def factor(chance: random.Random) -> float:
    """Factor of the values."""
    return 1 + chance.uniform(LEAST_CHANGE, MOST_CHANGE)


def change(kind: str, path: Path, chance: random.Random) -> float:
    """Make a checkpoint another sound one; gives what its values were multiplied with.

    Raises:
        NoValuesError: there are no values that the suite can change.
        UnreadableError: a file, or the manifest, cannot be read.
    """
    by = 1.0 if kind == "resealed" else factor(chance)
    if by != 1.0:
        scale(path, by, chance if kind == "scaled-tensor" else None)
    _seal(path, f"{chance.getrandbits(128):032x}")
    return by


def _seal(path: Path, save_id: str) -> None:
    """Write the manifest anew where there is one: as another save, without the data of others and the signature.

    What an extension says of the state, such as a digest of its own, would be of the state before the change.
    """
    checkpoint = opened_checkpoint(path)
    place = checkpoint.root / checkpoint.manifest_name
    if checkpoint.manifest is None:
        if place.is_file():
            raise UnreadableError(f"{checkpoint.label}: the manifest {checkpoint.manifest_problem}")
        return
    wanted = [file.path for file in checkpoint.manifest.files if not fault(file.path)]
    found = digests(checkpoint.root, wanted)
    files = tuple(_sealed(checkpoint.root, name, found[name]) for name in wanted)
    manifest = msgspec.structs.replace(checkpoint.manifest, save_id=save_id, files=files, extensions={})
    write_atomically(place, msgspec.json.format(msgspec.json.encode(manifest), indent=1) + b"\n")
    (checkpoint.root / SIGNATURE_NAME).unlink(missing_ok=True)


def _sealed(root: Path, name: str, digest: str | OSError) -> SealedFile:
    if isinstance(digest, OSError):
        raise UnreadableError(f"{name} cannot be read: {digest}") from digest
    return SealedFile(path=name, size_bytes=(root / name).lstat().st_size, sha256=digest)
