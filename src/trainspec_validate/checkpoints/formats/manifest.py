"""Reads the manifest of a checkpoint, and says which of its paths are safe."""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from itertools import islice
from pathlib import Path

from trainspec_validate.checkpoints.boundary import failure
from trainspec_validate.checkpoints.opening import LimitError, UnreadableError, read_json, read_small
from trainspec_validate.checkpoints.paths import fault, folded_twins, leads_to_any, shown_twins
from trainspec_validate.checkpoints.tree import fact_of
from trainspec_validate.checkpoints.view import MANIFEST_NAME, SIGNATURE_NAME, Checkpoint
from trainspec_validate.documents.load import Source
from trainspec_validate.documents.schema import SchemaFailure, failures
from trainspec_validate.documents.types import CheckpointManifest, SchemaMismatch, SealedFile, read_manifest
from trainspec_validate.system.boundary import OutOfMemoryError, words_of
from trainspec_validate.system.process import memory_of_the_machine

_MOST_SHOWN = 3
_HELP = "write every path relative to the directory of the manifest, with forward slashes and without . or .."


def read(checkpoint: Checkpoint) -> None:
    """Add the manifest where there is one."""
    if MANIFEST_NAME in checkpoint.folders:
        checkpoint.examined.add("container")
        checkpoint.manifest_problem = "is a directory"
        checkpoint.report("container", MANIFEST_NAME, "the manifest is a directory", "remove it, and seal again")
    name = checkpoint.manifest_name
    fact = fact_of(checkpoint.root / name, name) if checkpoint.is_bundle else checkpoint.files.get(name)
    if fact is None:
        return
    checkpoint.formats.append("TrainSpec manifest")
    checkpoint.examined |= {"container", "limits"}
    try:
        with memory_of_the_machine():
            content = read_small(checkpoint.root / name)
            manifest = _manifest_of(content)
    except LimitError as error:
        checkpoint.manifest_problem = str(error)
        checkpoint.report("limits", name, f"the manifest {error}")
    except UnreadableError as error:
        checkpoint.manifest_problem = str(error)
        checkpoint.report("container", name, f"the manifest {error}", "seal it again")
    except Exception as error:
        aspect, checkpoint.manifest_problem = failure(error)
        checkpoint.report(aspect, name, f"the manifest {checkpoint.manifest_problem}", "seal it again")
    else:
        checkpoint.manifest, checkpoint.manifest_digest = manifest, hashlib.sha256(content).hexdigest()
        _check_paths(checkpoint, manifest)
        if manifest.step is not None:
            checkpoint.claim(name, manifest.step, f"{name} (step)")


def _manifest_of(content: bytes) -> CheckpointManifest:
    """The manifest that a text is.

    Raises:
        UnreadableError: it is none; the words name the first places where it breaks the schema.
    """
    data = read_json(content, is_strict=True)
    try:
        return read_manifest(data)
    except SchemaMismatch as error:
        found = list(islice(failures(CheckpointManifest.__name__, data), _MOST_SHOWN + 1))
        if not found:
            raise UnreadableError(f"is not valid: {words_of(error)}") from error
        raise UnreadableError(f"is not valid: {_listed(content, data, found)}") from error


def _listed(content: bytes, data: object, found: Sequence[SchemaFailure]) -> str:
    text = content.decode("utf-8-sig").replace("\r\n", "\n").replace("\r", "\n")
    spans = Source("", text, data, "json").locate({(one.pointer, one.key) for one in found})
    shown = [
        f"line {spans[one.pointer, one.key].line}: {one.message}" + (f" ({one.help})" if one.help else "")
        for one in found[:_MOST_SHOWN]
    ]
    return "; ".join([*shown, "and more"] if len(found) > _MOST_SHOWN else shown)


def manifest_in(directory: Path) -> CheckpointManifest | None:
    """The manifest of a directory; None where it has none that can be read."""
    try:
        with memory_of_the_machine():
            return read_manifest(read_json(read_small(directory / MANIFEST_NAME), is_strict=True))
    except OutOfMemoryError:
        raise
    except Exception:
        return None


def listed_in(directory: Path) -> frozenset[str]:
    """Files that the manifest of a directory lists; none where it has no manifest that can be read."""
    manifest = manifest_in(directory)
    return frozenset(file.path for file in manifest.files) if manifest else frozenset()


def take_from_above(checkpoint: Checkpoint, top: Path) -> None:
    """Take what the manifest of a directory above lists of a checkpoint without its own for its manifest.

    Args:
        checkpoint: as it was read.
        top: the highest directory that is looked at.
    """
    if checkpoint.manifest is not None or checkpoint.manifest_problem:
        return
    above = (checkpoint.root, *checkpoint.root.parents) if checkpoint.is_bundle else checkpoint.root.parents
    for directory in above:
        if not directory.is_relative_to(top):
            return
        if manifest := manifest_in(directory):
            prefix = "" if directory == checkpoint.root else f"{checkpoint.root.relative_to(directory).as_posix()}/"
            checkpoint.manifest = _of_part(checkpoint, manifest, prefix)
        if checkpoint.manifest:
            return


def _of_part(checkpoint: Checkpoint, manifest: CheckpointManifest, prefix: str) -> CheckpointManifest | None:
    """What a manifest says of the files of one checkpoint; None where it lists none of them."""

    def own(paths: Iterable[str]) -> tuple[str, ...]:
        inner = (path.removeprefix(prefix) for path in paths if path.startswith(prefix))
        return tuple(path for path in inner if not checkpoint.is_bundle or path in checkpoint.files)

    listed = {file.path: file for file in manifest.files}
    found = [(path, listed[f"{prefix}{path}"]) for path in own(listed)]
    files = tuple(SealedFile(path=path, size_bytes=file.size_bytes, sha256=file.sha256) for path, file in found)
    if not files:
        return None
    unsealed, folders = own(manifest.unsealed), own(manifest.empty_folders)
    return CheckpointManifest(
        apiVersion="trainspec/v1", save_id="", files=files, unsealed=unsealed, empty_folders=folders
    )


def _contradictions(paths: frozenset[str], manifest: CheckpointManifest) -> Iterator[str]:
    """What one list of a manifest says of a path, and another denies."""
    unsealed, folders = frozenset(manifest.unsealed), frozenset(manifest.empty_folders)
    for path in sorted(paths & unsealed):
        yield f"the path {path!r} is among the files with a digest and among those without"
    listed = paths | unsealed
    in_order = sorted(listed)
    for folder in sorted(folders):
        if folder in listed or leads_to_any(folder, in_order):
            yield f"the path {folder!r} is among the empty directories, and the manifest lists a file there"


def _check_paths(checkpoint: Checkpoint, manifest: CheckpointManifest) -> None:
    paths = [file.path for file in manifest.files]
    for path in [*paths, *manifest.unsealed, *manifest.empty_folders]:
        why = fault(path)
        if why:
            checkpoint.report("paths", checkpoint.manifest_name, f"the path {path!r} {why}", _HELP)
    for path, number in Counter(paths).items():
        if number > 1:
            checkpoint.report(
                "paths", checkpoint.manifest_name, f"the path {path!r} appears {number} times", "list it once"
            )
    for words in _contradictions(frozenset(paths), manifest):
        checkpoint.report("paths", checkpoint.manifest_name, words, "seal it again")
    reserved = [checkpoint.manifest_name, SIGNATURE_NAME]
    for first, second in folded_twins([*reserved, *paths, *manifest.unsealed, *manifest.empty_folders]):
        one, other, how = shown_twins(first, second)
        words = f"the paths {one} and {other} differ {how}"
        checkpoint.report(
            "paths", checkpoint.manifest_name, words, "rename one: some file systems hold both as one file"
        )
