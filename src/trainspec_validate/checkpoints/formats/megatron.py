"""Reads what Megatron writes: ranks in directories, or settings, common state and digests of a distributed one."""

from __future__ import annotations

import re
from math import prod
from typing import Any

from trainspec_validate.checkpoints.formats.torch_zip import state_of
from trainspec_validate.checkpoints.opening import LimitError, UnreadableError, read_json, read_small
from trainspec_validate.checkpoints.paths import fault
from trainspec_validate.checkpoints.view import Checkpoint

MARK = "metadata.json"
_COMMON = "common.pt"
_INTEGRITY = "integrity.json"
_NAMED = re.compile(r"^iter_[0-9]{7}$")
_DIGEST = re.compile(r"^[0-9a-f]{64}$")
_RANK = re.compile(r"^(?P<kind>mp_rank|tp_rank)_[0-9]{2}(?:_(?:pp_rank_)?[0-9]{3}){0,2}$")
_NUMBER = re.compile(r"[0-9]+")
_OF_A_RANK = "model_optim_rng.pt"
_STATE = (".pt", ".ckpt")
_MOST_RANKS = 1_000_000
_BACKEND = "sharded_backend"
_BROKEN = "resume from an earlier checkpoint"


def read(checkpoint: Checkpoint) -> None:
    """Add what the files of Megatron say."""
    _check_ranks(checkpoint)
    held = checkpoint.files
    config = _json(checkpoint, MARK) if MARK in held and (_COMMON in held or ".metadata" in held) else None
    backend = config.get(_BACKEND) if isinstance(config, dict) else None
    if backend is None and not (_NAMED.match(checkpoint.root.name) and _COMMON in held):
        return
    checkpoint.formats.append("Megatron dist-checkpoint")
    checkpoint.examined |= {"mark", "files"}
    if backend is None:
        words = f"{MARK} with its {_BACKEND}, which Megatron writes after all state, is missing"
        checkpoint.report("mark", "", words, "the save was interrupted: resume from an earlier checkpoint")
        return
    checkpoint.marks.append(MARK)
    needed = [_COMMON, *([".metadata"] if backend == "torch_dist" else [])]
    for name in needed:
        if name not in held:
            checkpoint.report("files", name, "the file, which a checkpoint of Megatron needs, is missing", _BROKEN)
    if _COMMON in held:
        checkpoint.claim(_COMMON, state_of(checkpoint, _COMMON).get("iteration"), f"{_COMMON} (iteration)")
    if _INTEGRITY in held:
        _read_integrity(checkpoint)


def _check_ranks(checkpoint: Checkpoint) -> None:
    """Directories of ranks, which Megatron and NeMo write without a distributed checkpoint, are a whole grid."""
    found: dict[tuple[str, int], set[tuple[int, ...]]] = {}
    names: dict[str, set[str]] = {}
    for path in checkpoint.files:
        folder, _, name = path.partition("/")
        match = _RANK.match(folder) if name else None
        if match:
            ranks = tuple(map(int, _NUMBER.findall(folder)))
            found.setdefault((match["kind"], len(ranks)), set()).add(ranks)
            names.setdefault(folder, set()).update({name} if name.endswith(_STATE) else ())
    _check_names(checkpoint, names)
    for (kind, num_degrees), present in found.items():
        checkpoint.examined.add("shards")
        told = _degrees(checkpoint, num_degrees)
        sizes = [
            max(size, *ranks) for size, *ranks in zip(told, *([n + 1 for n in one] for one in present), strict=True)
        ]
        absent = prod(sizes) - len(present)
        if absent > 0:
            shape = " x ".join(f"{size:,}" for size in sizes)
            words = f"{absent:,} of {shape} directories {kind}_* are missing"
            checkpoint.report("shards", "", words, f"{_BROKEN}: state of these ranks is lost")


def _degrees(checkpoint: Checkpoint, number: int) -> list[int]:
    """What the arguments of the run say of the numbers in such a name: tensor, pipeline and expert parallel ranks."""
    said = [one for path, one in checkpoint.said.items() if path.endswith(f"/{_OF_A_RANK}")]
    degrees = [
        max((min(one.count(f"args.{word}_model_parallel_size") or 1, _MOST_RANKS) for one in said), default=1)
        for word in ("tensor", "pipeline", "expert")
    ]
    tensor, *others = degrees
    further = [size for size in others if size > 1]  # the name has the rank of each that is more than one
    return [tensor, *further] if len(further) == number - 1 else [1] * number


def _check_names(checkpoint: Checkpoint, names: dict[str, set[str]]) -> None:
    """Each rank wrote the files that the others wrote."""
    for name in sorted(set().union(*names.values())):
        absent = [folder for folder in sorted(names) if name not in names[folder]]
        if absent:
            words = f"{name} is missing in {len(absent):,} of {len(names):,} directories of ranks: {absent[0]}"
            checkpoint.report("shards", absent[0], words, f"{_BROKEN}: state of these ranks is lost")


def _json(checkpoint: Checkpoint, path: str) -> Any:
    checkpoint.examined |= {"container", "limits"}
    try:
        return read_json(read_small(checkpoint.root / path))
    except LimitError as error:
        checkpoint.report("limits", path, f"the file {error}")
    except UnreadableError as error:
        checkpoint.report("container", path, f"the file {error}", _BROKEN)
    return None


def _read_integrity(checkpoint: Checkpoint) -> None:
    """The digests that Megatron can write; it compares them only where it is asked to."""
    data = _json(checkpoint, _INTEGRITY)
    files = data.get("files") if isinstance(data, dict) and data.get("algorithm") == "sha256" else None
    if not isinstance(files, dict) or not all(isinstance(d, str) and _DIGEST.match(d) for d in files.values()):
        if data is not None:
            words = "the file has no algorithm sha256 with digests of files"
            checkpoint.report("container", _INTEGRITY, words, "write it again")
        return
    for path, digest in files.items():
        why = fault(path)
        if why:
            checkpoint.report("paths", _INTEGRITY, f"the path {path!r} {why}", "name files of the checkpoint only")
        elif path not in checkpoint.files or checkpoint.files[path].kind != "file":
            checkpoint.report("files", path, f"the file, which {_INTEGRITY} lists, is missing", _BROKEN)
        else:
            checkpoint.recorded[path] = digest
