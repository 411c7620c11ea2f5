"""Writes the manifest of a checkpoint that exists."""

from __future__ import annotations

import json
import uuid
from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from trainspec_validate.checkpoints.boundary import AMBIGUOUS, CUT
from trainspec_validate.checkpoints.hashing import Progress, digests
from trainspec_validate.checkpoints.leftovers import leftovers
from trainspec_validate.checkpoints.opening import check_cost
from trainspec_validate.checkpoints.paths import fault, folded_twins, shown_twins, unwritable
from trainspec_validate.checkpoints.payload import compared
from trainspec_validate.checkpoints.tree import changes, irregular
from trainspec_validate.checkpoints.view import MANIFEST_NAME, SIGNATURE_NAME, Aspect, Checkpoint
from trainspec_validate.system.atomic import write_atomically
from trainspec_validate.system.boundary import reason_of
from trainspec_validate.system.budget import OverLimitError

_SHOWN = 20
_DAMAGE: frozenset[Aspect] = frozenset({"container", "files", "tiling", "checksum", "shards"})
"""What says that bytes of a format are wrong or missing; other matters are policy and do not depend on a manifest."""
_NAMED: frozenset[Aspect] = frozenset({"mark", "paths", "limits"})
"""What says that a save was interrupted, names a file elsewhere, or was not examined: a reason to look, no damage."""


class SealError(Exception):
    """A checkpoint cannot be sealed; each argument is one line of the reason."""

    def __str__(self) -> str:
        return "\n".join(map(str, self.args))


@dataclass(frozen=True, slots=True)
class Facts:
    """Facts in a manifest in addition to its files."""

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
    """The manifest of everything below the directory of a checkpoint, as plain values.

    Raises:
        SealError: it holds no file, something that cannot be sealed, or a file that cannot be read or changes.
    """
    ignored = {MANIFEST_NAME, SIGNATURE_NAME, *facts.unsealed, *leftovers(checkpoint)}
    paths = [path for path in checkpoint.tree if path not in ignored]
    _refuse(checkpoint, _obstacles(checkpoint, paths, facts.unsealed))
    if not paths:
        raise SealError(f"{checkpoint.name}: there is no file to seal")
    found = digests(checkpoint.root, paths, progress)
    files, unread = [], []
    for path, digest in found.items():
        if isinstance(digest, OSError):
            unread.append((path, f"cannot be read: {reason_of(digest)}"))
        else:
            files.append({"path": path, "size_bytes": checkpoint.tree[path].size_bytes, "sha256": digest})
    _refuse(checkpoint, [*unread, *changes(checkpoint, ignored)])
    more = {"unsealed": facts.unsealed, "empty_folders": checkpoint.empty_folders}
    return {**_head(checkpoint, facts), "files": files, **{key: value for key, value in more.items() if value}}


def check_damage(checkpoint: Checkpoint, unsealed: Collection[str]) -> list[str]:
    """Parts that a checkpoint lacks by its own indexes, or that were not examined; nothing may be damaged.

    A manifest vouches for bytes, and readers of it compare no checksum of the format any more.

    Raises:
        SealError: a file that would be sealed is damaged.
    """
    ignored = {MANIFEST_NAME, SIGNATURE_NAME, *unsealed}
    told = [one for one in checkpoint.troubles if one.path not in ignored]
    damaged = [one for one in told if one.aspect in _DAMAGE or one.help in {AMBIGUOUS, CUT}]
    wrong = [(one.path, one.message) for one in damaged if one.path in checkpoint.tree]
    wrong += [(path, words) for path, words in compared(checkpoint, {path for path, _ in wrong} | ignored) if words]
    remedy = "restore the file from another copy, or leave it out with --unsealed"
    _refuse(checkpoint, ((path, f"{words}; {remedy}") for path, words in wrong))
    named = [*damaged, *(one for one in told if one.aspect in _NAMED)]
    return [f"{checkpoint.place(one.path)}: {one.message}" for one in named]


def _refuse(checkpoint: Checkpoint, obstacles: Iterable[tuple[str, str]]) -> None:
    """Name what keeps a checkpoint from being sealed.

    Raises:
        SealError: there is something.
    """
    lines = [f"{checkpoint.place(path)}: {words}" for path, words in dict(obstacles).items()]
    if lines:
        more = [f"{checkpoint.name}: {len(lines) - _SHOWN:,} more"] if len(lines) > _SHOWN else []
        raise SealError(*lines[:_SHOWN], *more)


def _obstacles(checkpoint: Checkpoint, paths: Sequence[str], unsealed: Sequence[str]) -> Iterator[tuple[str, str]]:
    """What below the directory cannot be in a manifest, and why; nothing is left out in silence."""
    yield from checkpoint.unlisted
    for path in paths:
        if checkpoint.tree[path].kind == "link":
            yield path, f"a link to {checkpoint.tree[path].target!r}; only files can be sealed"
        elif checkpoint.tree[path].kind != "file":
            yield path, "a pipe, a socket or a device; only files can be sealed"
    for path in {MANIFEST_NAME, SIGNATURE_NAME}.intersection(checkpoint.tree):
        if checkpoint.tree[path].kind != "file":
            yield path, "a link or no regular file, which is not replaced; remove it"
    for path in unsealed:
        yield from ((path, words) for words, _ in [irregular(checkpoint.root, checkpoint.tree[path])] if words)
    for path in [*paths, *unsealed, *checkpoint.empty_folders]:
        why = fault(path) or unwritable(path)
        if why:
            yield path, f"the path {why}, and a manifest cannot hold it"
    reserved = [MANIFEST_NAME, SIGNATURE_NAME]  # what a seal adds
    for first, second in folded_twins([*reserved, *paths, *unsealed, *checkpoint.empty_folders]):
        one, other, how = shown_twins(first, second)
        yield second, f"{other} differs from {one} {how}; some file systems hold both as one file"


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
    """Put the manifest into its directory, whole or not at all.

    Raises:
        SealError: it is larger than readers of manifests accept.
        OSError: it cannot be written.
    """
    path = root / MANIFEST_NAME
    text = json.dumps(manifest, indent=1, ensure_ascii=False) + "\n"
    try:
        check_cost(text.encode())
    except OverLimitError as error:
        raise SealError(f"{path.as_posix()}: {error}") from error
    write_atomically(path, text, is_output=True)
    return path


def unsealed_matches(checkpoint: Checkpoint, patterns: Sequence[str]) -> tuple[str, ...]:
    """Files of the checkpoint whose path fits one of the patterns."""
    from fnmatch import fnmatchcase  # noqa: PLC0415

    return tuple(path for path in checkpoint.tree if any(fnmatchcase(path, pattern) for pattern in patterns))
