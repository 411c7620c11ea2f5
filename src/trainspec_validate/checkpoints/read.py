"""Makes series of checkpoints out of a directory."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path

from trainspec_validate.checkpoints.formats import read_all
from trainspec_validate.checkpoints.formats.manifest import listed_in
from trainspec_validate.checkpoints.inventory import Group, inventory
from trainspec_validate.checkpoints.lacking import NUM_COMPARED, lacking
from trainspec_validate.checkpoints.limits import as_one_checkpoint
from trainspec_validate.checkpoints.lost_tensors import lost_tensors
from trainspec_validate.checkpoints.pointers import note_unreached, pointers
from trainspec_validate.checkpoints.saves import Saved, in_order
from trainspec_validate.checkpoints.twins import stale_weights
from trainspec_validate.checkpoints.usable import counted_behind
from trainspec_validate.checkpoints.view import Checkpoint, SavedStep, Series

_NUM_OTHERS = 16
"""Earlier checkpoints whose weights are compared."""


def read_checkpoint(root: Path, names: Sequence[str] | None = None) -> Checkpoint:
    """One checkpoint with all that its formats say; `names` are its files where it is no directory, if known."""
    checkpoint = inventory(root, names)
    with as_one_checkpoint():
        read_all(checkpoint)
    return checkpoint


def read_group(
    group: Group,
    saved: tuple[SavedStep, ...] | None = None,
    seen: Callable[[], None] | None = None,
    *,
    reads_values: bool = False,
) -> Series:
    """The checkpoints of a directory in the order of their steps, and its pointers."""
    found = []
    listed: dict[Path, frozenset[str]] = {}
    for root in group.members:
        found.append(read_checkpoint(root, group.files.get(root)))
        if group.top is not None:
            _note_cover(found[-1], group.top, listed)
        _tell_empty(found[-1])
        if seen:
            seen()
    found.sort(key=lambda one: (-1 if one.step is None else one.step, one.name))
    beside = () if group.members == [group.root] else tuple(pointers(group.root, found))
    note_unreached(found, beside)
    roots = [one.root for one in found if one.step is not None and one.formats and not one.is_bundle]
    for place, root in enumerate(roots):
        _note_weights(next(one for one in found if one.root == root), roots[max(0, place - _NUM_OTHERS) : place])
    _note_lacking(group, found)
    return Series(group.root, group.root.as_posix(), tuple(found), beside, saved, reads_values)


def _note_weights(checkpoint: Checkpoint, before: Sequence[Path]) -> None:
    """Note weights that are those of an earlier checkpoint, as updates that are too small for their type leave them."""
    for words in stale_weights(checkpoint, before):
        checkpoint.doubts[""] = (f"may be of two saves: {words}", "look for a file of another save")


def _note_lacking(group: Group, found: Sequence[Checkpoint]) -> None:
    """Note what the newest checkpoint lacks of those before it, which a model that was saved for use may lack."""
    known = [one for one in found if one.formats]
    stepped = [one for one in known if one.step is not None and not one.is_bundle]
    if not stepped:
        by_name = {one.label: one for one in known if one.step is None}
        stepped = [by_name[one.name] for one in in_order(Saved(name, None, 0) for name in by_name)][::-1]
    for newest in stepped[-1:]:
        for path, words in counted_behind(newest, stepped[-2:-1]):
            newest.doubts[path] = (words, "look for a file of another save, unless the optimizer was made anew")
        before = [_place(group, one) for one in reversed(stepped[:-1])][:NUM_COMPARED]
        older = stepped[-2 : -2 - NUM_COMPARED : -1]
        for words in (*lacking(newest, before), *lost_tensors(newest, older)):
            newest.doubts[""] = (f"may be none to resume from: {words}", "resume from an earlier checkpoint")


def _place(group: Group, one: Checkpoint) -> tuple[Path, Sequence[str] | None]:
    root = one.root / one.bundle if one.bundle else one.root
    return root, group.files.get(root)


def _note_cover(checkpoint: Checkpoint, top: Path, listed: dict[Path, frozenset[str]]) -> None:
    """Note where the manifest of a directory above, no higher than the search began, lists every file."""
    if checkpoint.manifest is not None or checkpoint.is_bundle or not checkpoint.files:
        return
    for directory in checkpoint.root.parents:
        if not directory.is_relative_to(top):
            return
        if directory not in listed:
            listed[directory] = listed_in(directory)
        prefix = checkpoint.root.relative_to(directory).as_posix()
        if listed[directory].issuperset(f"{prefix}/{path}" for path in checkpoint.files):
            checkpoint.is_covered = True
            return


def _tell_empty(checkpoint: Checkpoint) -> None:
    """A directory that is named after a step, beside checkpoints, and is none: loaders take it as the newest."""
    if checkpoint.step is not None and not checkpoint.formats:
        words = "the directory is named after a step and holds no file of a known format"
        checkpoint.report("mark", "", words, "remove it: a loader that looks for the newest step takes it")
