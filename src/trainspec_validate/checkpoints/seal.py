"""The only place that writes the manifest of a checkpoint that exists."""

from __future__ import annotations

import json
import os
import uuid
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from trainspec_validate.checkpoints.hashing import Progress, digests
from trainspec_validate.checkpoints.view import MANIFEST_NAME, SIGNATURE_NAME, Checkpoint


class SealError(Exception):
    """A checkpoint cannot be sealed; the text says why."""


@dataclass(frozen=True, slots=True)
class Facts:
    """What a manifest says beside its files."""

    tool: tuple[str, str]
    """Name and version of the program that writes it."""
    save_id: str | None = None
    """None for a new one."""
    step: int | None = None
    """None for the one that the checkpoint itself says."""
    num_tokens: float | None = None
    run: str | None = None
    num_ranks: int | None = None
    state: tuple[str, ...] = ()
    unsealed: tuple[str, ...] = ()


def seal(checkpoint: Checkpoint, facts: Facts, progress: Progress | None = None) -> dict[str, Any]:
    """The manifest of a checkpoint as plain values.

    Raises:
        SealError: it holds no file, or something that is no regular file, or a file cannot be read.
    """
    paths = [path for path in checkpoint.files if path not in {MANIFEST_NAME, SIGNATURE_NAME, *facts.unsealed}]
    strange = [path for path in paths if checkpoint.files[path].kind != "file"]
    if strange:
        raise SealError(f"{checkpoint.place(strange[0])}: a link or no regular file; only files can be sealed")
    if not paths:
        raise SealError(f"{checkpoint.name}: there is no file to seal")
    found = digests(checkpoint.root, paths, progress)
    files = []
    for path, digest in found.items():
        if isinstance(digest, OSError):
            raise SealError(f"{checkpoint.place(path)}: cannot be read: {(digest.strerror or str(digest)).lower()}")
        files.append({"path": path, "size_bytes": checkpoint.files[path].size_bytes, "sha256": digest})
    return {**_head(checkpoint, facts), "files": files, **({"unsealed": facts.unsealed} if facts.unsealed else {})}


def _head(checkpoint: Checkpoint, facts: Facts) -> dict[str, Any]:
    head = {
        "apiVersion": "trainspec/v1",
        "kind": "CheckpointManifest",
        "save_id": facts.save_id or uuid.uuid4().hex,
        "step": _step(checkpoint) if facts.step is None else facts.step,
        "num_tokens": facts.num_tokens,
        "created": datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ"),
        "run": facts.run,
        "tool": {"name": facts.tool[0], "version": facts.tool[1]},
        "layout": {"num_ranks": facts.num_ranks} if facts.num_ranks else None,
        "state": facts.state or None,
    }
    return {key: value for key, value in head.items() if value is not None}


def _step(checkpoint: Checkpoint) -> int | None:
    """The step that the parts of the checkpoint agree on.

    Raises:
        SealError: they do not.
    """
    said = {claim.step for claim in checkpoint.claims if claim.path != MANIFEST_NAME}
    said |= set() if checkpoint.step is None else {checkpoint.step}
    if len(said) > 1:
        steps = ", ".join(f"{step:,}" for step in sorted(said))
        raise SealError(f"{checkpoint.name}: its parts say different steps: {steps}; say which with --step")
    return next(iter(said), None)


def write(root: Path, manifest: dict[str, Any]) -> Path:
    """Put the manifest into its directory, whole or not at all."""
    path = root / MANIFEST_NAME
    new = root / f"{MANIFEST_NAME}.tmp"
    text = json.dumps(manifest, indent=1, ensure_ascii=False) + "\n"
    with new.open("w", encoding="utf-8", newline="\n") as file:
        file.write(text)
        file.flush()
        os.fsync(file.fileno())
    new.replace(path)
    return path


def unsealed_matches(checkpoint: Checkpoint, patterns: Sequence[str]) -> tuple[str, ...]:
    """Files of the checkpoint whose path fits one of the patterns."""
    from fnmatch import fnmatchcase  # noqa: PLC0415

    return tuple(path for path in checkpoint.files if any(fnmatchcase(path, pattern) for pattern in patterns))
