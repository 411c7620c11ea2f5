"""Recognises several saves that are files of one directory, which nothing orders, and that would be taken for one."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from itertools import pairwise
from pathlib import Path

from trainspec_validate.checkpoints.bundles import form_of
from trainspec_validate.checkpoints.formats.safetensors import SUFFIX, header
from trainspec_validate.checkpoints.inventory import Group
from trainspec_validate.checkpoints.opening import UnreadableError
from trainspec_validate.checkpoints.progress import progress_of
from trainspec_validate.checkpoints.read import read_checkpoint
from trainspec_validate.checkpoints.save_names import STEP_NAME, is_counted, names_rank
from trainspec_validate.checkpoints.view import Checkpoint

_SINGLE = frozenset({"torch.save", "safetensors", "Keras archive", "Keras weights in HDF5", "HDF5", "a pickle"})
"""Formats in which one file may be a whole save."""
_NUMBER = re.compile(r"[0-9]+", re.ASCII)
_PARTS = re.compile(
    r"(?:^|[-_.])(?:block|chunk|consolidated|expert|layer|optim(?:izer)?|random_states|rng(?:_state)?|sched(?:uler)?|stage)s?[-_.]?[0-9]",
    re.ASCII | re.IGNORECASE,
)
"""Words of parts of a save that are numbered."""
_NUM_READ = 16


def several_saves(group: Group) -> str:
    """Why files of a directory are not known to be one save, in words; empty where nothing shows several.

    They are several where their names differ in numbers alone, which leave out most or grow with time, and they hold
    the same tensors as far as these are read.
    """
    if len(group.members) != 1 or group.files or STEP_NAME.match(group.members[0].name):
        return ""
    root = group.members[0]
    checkpoint = read_checkpoint(root)
    if is_counted(root.name) or not root.is_dir() or not _may_be_files(checkpoint):
        return ""
    forms: dict[str, list[str]] = {}
    for path in sorted(checkpoint.state_files):
        if "/" not in path and not names_rank(path) and not _PARTS.search(path):
            forms.setdefault(form_of(path), []).append(path)
    for names in forms.values():
        are_in_turn = checkpoint.unnamed.issuperset(names) or _are_in_turn(checkpoint, names)
        if len(names) > 1 and are_in_turn and _have_one_form(root, names):
            words = f"{names[0]} and {names[-1]} differ in numbers of their names, and nothing says whether they are"
            return f"{words} several saves or parts of one; name the file to resume from"
    return ""


def _may_be_files(checkpoint: Checkpoint) -> bool:
    """Whether nothing in a checkpoint says what belongs together."""
    is_listed = checkpoint.manifest is not None or any(".index." in path for path in checkpoint.files)
    return bool(checkpoint.formats) and not is_listed and _SINGLE.issuperset(checkpoint.formats)


def _are_in_turn(checkpoint: Checkpoint, names: Sequence[str]) -> bool:
    """Whether numbers leave out most, or grow with the times of the last change; those of ranks and layers do not."""
    numbers = sorted(
        ([int(number) for number in _NUMBER.findall(name)], checkpoint.files[name].modified_ns) for name in names
    )
    columns = list(zip(*(counted for counted, _ in numbers), strict=False))
    if any(sorted(column) == list(range(len(names))) for column in columns):
        return False
    are_sparse = any(
        len(set(column)) == len(names) and max(column) - min(column) >= 2 * len(names) for column in columns
    )
    return are_sparse or all(one[1] < other[1] for one, other in pairwise(numbers))


def _have_one_form(root: Path, names: Sequence[str]) -> bool:
    """Whether no two of the files hold other tensors, as shards do."""
    held = [found for name in names[:_NUM_READ] if (found := frozenset(_tensors(root / name)))]
    return len(set(held)) <= 1


def _tensors(path: Path) -> Iterator[str]:
    if path.name.endswith(SUFFIX):
        try:
            yield from header(path)[1].keys() - {"__metadata__"}
        except UnreadableError:
            return
    else:
        found = progress_of(path)
        yield from found.tensors if found else ()
