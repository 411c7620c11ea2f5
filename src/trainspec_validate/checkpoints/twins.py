"""Finds files of an optimizer that are those of another checkpoint, next to weights that are not."""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Iterator, Sequence
from itertools import pairwise
from pathlib import Path

from trainspec_validate.checkpoints.agreement import unexplained
from trainspec_validate.checkpoints.content import STATE_SUFFIXES
from trainspec_validate.checkpoints.opening import open_file
from trainspec_validate.checkpoints.save_names import STEP_NAME, counts_in
from trainspec_validate.checkpoints.view import Checkpoint

_BLOCK_BYTES = 1 << 20
_MOST_BLOCKS = 8
"""Of weights at the start, and as many at the end."""
NUM_BESIDE = 16
"""Other checkpoints whose files are compared, those next in step first."""
_ANY = (*STATE_SUFFIXES, ".distcp")
_NUM_BEFORE = 2
"""Checkpoints before one whose shards are compared with its own."""
_WEIGHTS = re.compile(
    r"(?:^|/)(?:[^/]*\.safetensors|(?:model|modeling|weights)/(?:[^/]+/)*[^/]+\.(?:pt|pth|bin)|(?:pytorch_model|adapter_model)[^/]*\.bin|[^/]*model_states\.pt|model[^/]*\.pt|pytorch_model_fsdp_[0-9]+/[^/]+\.distcp)$"
)

_NO_WEIGHTS = re.compile(
    r"optim|sched|scaler|rng|random|training_args|data_?loader|data_reader|sampler|trainer", re.IGNORECASE
)
_STATE = re.compile(rf"{_WEIGHTS.pattern}|\.distcp$")
_SHARD = re.compile(r"-[0-9]{5}-of-[0-9]{5}\.(?:safetensors|bin)$", re.ASCII)
_STORE = "manifest.ocdbt"
"""The names of files with values in a store of OCDBT are made by chance, and its manifest holds them."""


def borrowed(checkpoint: Checkpoint, others: Iterable[Path]) -> Iterator[tuple[str, str]]:
    """Files of an optimizer that another directory has byte for byte, whose weights differ; and that, in words.

    Args:
        checkpoint: as it was read.
        others: directories of other checkpoints of the same run.
    """
    if checkpoint.is_bundle:
        return
    paths = list(unexplained(checkpoint))
    beside = [other for other in others if other != checkpoint.root and other.is_dir()] if paths else []
    for other in sorted(beside, key=lambda other: _distance(checkpoint, other))[:NUM_BESIDE]:
        yield from _shared(checkpoint, other, paths)
    for other in _before(checkpoint, others) if checkpoint.moments else ():
        yield from _shared(checkpoint, other, sorted(checkpoint.moments))


def _distance(checkpoint: Checkpoint, other: Path) -> int:
    """How many steps are between two checkpoints; those without a step are next to all."""
    match = STEP_NAME.match(other.name)
    return abs(int(match["step"]) - checkpoint.step) if match and checkpoint.step is not None else 0


def _before(checkpoint: Checkpoint, others: Iterable[Path]) -> list[Path]:
    """The few directories of the steps before."""
    steps = {other: int(match["step"]) for other in others if (match := STEP_NAME.match(other.name))}
    older = [other for other, step in steps.items() if checkpoint.step is not None and step < checkpoint.step]
    return sorted(older, key=lambda other: steps[other])[-_NUM_BEFORE:]


def _shared(checkpoint: Checkpoint, other: Path, paths: Sequence[str]) -> Iterator[tuple[str, str]]:
    """Those of the paths that another directory has with the same bytes, where other state of it differs."""
    there = {path: other / _there(path, checkpoint, other) for path in checkpoint.files if _STATE.search(path)}
    there |= {path: other / _there(path, checkpoint, other) for path in paths}
    same = [path for path in paths if is_same(checkpoint.root / path, there[path])]
    same = [path for path in same if not _is_own(checkpoint, other, path)]
    if not same:
        return
    rest = [path for path in there if path not in same and os.path.isfile(there[path])]  # noqa: PTH113
    if any(not is_same(checkpoint.root / path, there[path]) for path in rest):
        for path in same:
            said = checkpoint.said.get(path)
            counts = f": it counts {said.optimizer_step:,}" if said and said.optimizer_step is not None else ""
            yield path, f"the file is that of {other.name}, byte for byte, next to other weights{counts}"


def _is_own(checkpoint: Checkpoint, other: Path, path: str) -> bool:
    """Whether a file that two checkpoints share is of this one: it says this step, or none and this is the earlier.

    A file that counts the step of neither may be of both, where a checkpoint says its step. Where none does, names may
    number saves, as those of Accelerate do, and the file is of the earlier one.
    """
    match = STEP_NAME.match(other.name)
    if match is None or checkpoint.step is None:
        return False
    said = checkpoint.said.get(path)
    counts = [claim.step for claim in checkpoint.claims if claim.path == path]
    counts += [said.optimizer_step] if said and said.optimizer_step is not None else []
    steps = (checkpoint.step, int(match["step"]))
    here, there = (sum((abs(count - step) <= 1) + (count == step) for count in counts) for step in steps)
    if here or there or (counts and checkpoint.claims):
        return here > there
    return checkpoint.step < int(match["step"])


def copied_from(checkpoint: Checkpoint, others: Iterable[Path]) -> Iterator[str]:
    """The earlier save that a checkpoint is a copy of, whose optimizer no step has changed; in words.

    Args:
        checkpoint: as it was read.
        others: directories of other checkpoints, or files that are one.
    """
    counted = any(said.optimizer_step for said in checkpoint.said.values())
    held = [path for path in checkpoint.files if path.lower().endswith(_ANY) or path.endswith(_STORE)]
    held += sorted(checkpoint.unnamed)
    if not held or not (counted or checkpoint.moments or any(path.endswith(_STORE) for path in held)):
        return
    shards = [path for path in held if path.endswith(".distcp")]
    held = shards if shards and checkpoint.moments else held
    own = checkpoint.root / checkpoint.bundle if checkpoint.is_bundle else checkpoint.root
    before = [other for other in others if other != own and _is_earlier(other.name, checkpoint.label)]
    for other in sorted(before, key=lambda other: -_number(other.name))[:_NUM_BEFORE]:
        if checkpoint.is_bundle:
            pairs = [(own, other)] if len(checkpoint.files) == 1 else []
        else:
            pairs = [(own / path, other / _there(path, checkpoint, other)) for path in held]
        if pairs and all(is_same(*pair, _MOST_BLOCKS) for pair in pairs):
            yield f"it is a copy of {other.name}, byte for byte: no step has changed its optimizer"
            return


def _number(name: str) -> int:
    return next((counts[-1] for counts in counts_in(name).values()), -1)


def _is_earlier(name: str, other: str) -> bool:
    """Whether one name counts less than another that counts the same."""
    counts = counts_in(name), counts_in(other)
    shared = counts[0].keys() & counts[1].keys()
    return any(counts[0][word] < counts[1][word] for word in shared) and not any(
        counts[0][word] > counts[1][word] for word in shared
    )


def stale_weights(checkpoint: Checkpoint, others: Iterable[Path]) -> Iterator[str]:
    """The checkpoint that has all the same weights and another optimizer, in words: no step changed them.

    Args:
        checkpoint: as it was read.
        others: directories of other checkpoints of the same run.
    """
    if other := weights_of(checkpoint, others):
        yield f"the weights are those of {other.name}, byte for byte, and the optimizer is another"


def weights_of(checkpoint: Checkpoint, others: Iterable[Path]) -> Path | None:
    """The first of other checkpoints that has all the same weights and another optimizer.

    Weights are each file of state but those of optimizers, schedules, random numbers and settings, so that a trained
    part next to a frozen one counts.
    """
    optimizers = [path for path, said in checkpoint.said.items() if said.optimizer_step and not _WEIGHTS.search(path)]
    optimizers += [path for path in checkpoint.moments if not _WEIGHTS.search(path)]
    weights = _weights(checkpoint) if optimizers and not checkpoint.is_bundle else []
    if any(
        claim.path in weights and claim.step == checkpoint.step for claim in (*checkpoint.own_steps, *checkpoint.claims)
    ):
        return None  # it is the other one that has them from here
    for other in others if weights else ():
        pairs = [(checkpoint.root / path, other / _there(path, checkpoint, other)) for path in weights]
        if other != checkpoint.root and all(is_same(*pair, _MOST_BLOCKS) for pair in pairs):
            held = [(checkpoint.root / path, other / _there(path, checkpoint, other)) for path in optimizers]
            if any(os.path.isfile(place) and not is_same(own, place) for own, place in held):  # noqa: PTH113
                return other
    return None


def stale_shards(checkpoint: Checkpoint, run: Iterable[Path]) -> Iterator[tuple[str, Path]]:
    """Shards of a model that the checkpoint before has too, next to shards that it does not; and that checkpoint.

    Shards that the step before did not change either are frozen.

    Args:
        checkpoint: as it was read.
        run: directories of all checkpoints.
    """
    before = _before(checkpoint, run)
    shards = [path for path in checkpoint.files if _SHARD.search(path)] if len(before) == _NUM_BEFORE else []
    if not shards:
        return
    earlier, last = before
    same = [path for path in shards if is_same(checkpoint.root / path, last / path, _MOST_BLOCKS)]
    if len(same) < len(shards):
        found = [path for path in same if not is_same(last / path, earlier / path, _MOST_BLOCKS)]
        yield from ((path, last) for path in found if _have_one_size(last / path, earlier / path))


def are_misplaced(checkpoint: Checkpoint, run: Sequence[Path]) -> bool:
    """Whether weights that another checkpoint has too are from there, and did not stop to change.

    They are where a checkpoint between both has others, or where both are the only ones that share theirs in a run
    whose steps change weights. Files of other sizes say nothing, as they are cut or of another model.

    Args:
        checkpoint: as it was read; its weights are those of another one.
        run: directories of all checkpoints, from the newest on.
    """
    paths = _weights(checkpoint)
    held = [[root / _there(path, checkpoint, root) for path in paths] for root in run]
    own = [checkpoint.root / path for path in paths]
    held = [places for places in held if all(map(_have_one_size, own, places))]
    most = [_MOST_BLOCKS] * len(paths)
    shared = [place for place, places in enumerate(held) if all(map(is_same, own, places, most))]
    if not shared or shared[-1] - shared[0] >= len(shared):
        return bool(shared)
    rest = [places for place, places in enumerate(held) if place not in shared[1:]]
    changes = sum(not all(map(is_same, *pair, most)) for pair in pairwise(rest))
    return len(shared) == len(("one", "other")) and changes == len(rest) - 1 > 0


def share_weights(checkpoint: Checkpoint, other: Path) -> bool:
    """Whether a directory has the weights of a checkpoint, as far as their begin and their end show."""
    pairs = [(checkpoint.root / path, other / _there(path, checkpoint, other)) for path in _weights(checkpoint)]
    return bool(pairs) and all(is_same(*pair, _MOST_BLOCKS) for pair in pairs)


def _have_one_size(one: Path, other: Path) -> bool:
    try:
        return one.stat().st_size == other.stat().st_size
    except OSError:
        return False


def _weights(checkpoint: Checkpoint) -> list[str]:
    """The files of weights; none where there are no such names."""
    if not any(map(_WEIGHTS.search, checkpoint.files)):
        return []
    state = (path for path in checkpoint.files if path.lower().endswith(STATE_SUFFIXES) or _WEIGHTS.search(path))
    return [path for path in state if _WEIGHTS.search(path) or not _NO_WEIGHTS.search(path)]


def _there(path: str, checkpoint: Checkpoint, other: Path) -> str:
    """The path in another checkpoint, whose step may be in it."""
    match = STEP_NAME.match(other.name)
    if checkpoint.step is None or match is None:
        return path
    return re.sub(rf"(?<=global_step){checkpoint.step}(?![0-9])", str(int(match["step"])), path)


def is_same(one: Path, other: Path, most: int | None = None) -> bool:
    """Whether two files have the same bytes; not where one cannot be read.

    Args:
        one: a file.
        other: another one.
        most: blocks that are compared at the start, and as many at the end; None for all of them.
    """
    try:
        with open_file(one) as first, open_file(other) as second:
            size = os.fstat(first.fileno()).st_size
            if size != os.fstat(second.fileno()).st_size:
                return False
            for start in {0, 0 if most is None else max(0, size - _BLOCK_BYTES * most)}:
                first.seek(start)
                second.seek(start)
                for _ in range(size // _BLOCK_BYTES + 1 if most is None else most):
                    block = first.read(_BLOCK_BYTES)
                    if block != second.read(_BLOCK_BYTES):
                        return False
                    if not block:
                        break
    except OSError:
        return False
    return True
