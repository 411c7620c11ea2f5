"""Finds checkpoints below a directory and lists their files, without following a link."""

from __future__ import annotations

import os
import re
from collections.abc import Collection, Sequence
from dataclasses import dataclass, field, replace
from itertools import islice
from pathlib import Path

from trainspec_validate.checkpoints import bundles, regions, trainer_files
from trainspec_validate.checkpoints.content import (
    JUDGED,
    OF_MACOS,
    STATE_SUFFIXES,
    is_blank,
    is_of_a_container,
    is_of_macos,
    is_of_torch,
    kind_of,
)
from trainspec_validate.checkpoints.flat_saves import are_two_networks, pairs_side_by_side, saves_side_by_side
from trainspec_validate.checkpoints.format_table import FORMATS
from trainspec_validate.checkpoints.hub_cache import blob_of, sha256_of
from trainspec_validate.checkpoints.large_files import START as LARGE_FILE
from trainspec_validate.checkpoints.limits import DEPTH, ENTRIES
from trainspec_validate.checkpoints.lone_values import is_lone
from trainspec_validate.checkpoints.opening import open_file
from trainspec_validate.checkpoints.pickle_code import code_of
from trainspec_validate.checkpoints.progress import progress_of
from trainspec_validate.checkpoints.save_names import EPOCHS, STEP_NAME, STEP_WORDS, counts_in, is_counted, names_rank
from trainspec_validate.checkpoints.tree import fact_of, irregular, walk
from trainspec_validate.checkpoints.view import MANIFEST_NAME, Checkpoint
from trainspec_validate.system.process import memory_of_the_machine

POINTERS = frozenset(
    {"latest", "latest_universal", "latest_checkpointed_iteration.txt", "dlrover_latest.txt", "latest_checkpoint.txt"}
)
_NAMES = frozenset(name for entry in FORMATS for name in entry.names)
_ROOTS = frozenset(name for entry in FORMATS for name in entry.roots)
_SUFFIXES = tuple(suffix for entry in FORMATS for suffix in entry.suffixes)
_TORCH_SUFFIXES = (".pt", ".pth", ".pth.tar", ".ckpt", ".bin")
_NAMED_SUFFIXES = (*_SUFFIXES, *(suffix for suffix in STATE_SUFFIXES if suffix != ".bin"))
"""Of a file that was named, so that it need not show by its start what it is."""
_ZIP_START = b"PK\x03\x04"
_PICKLE_STARTS = tuple(bytes([0x80, protocol]) for protocol in range(2, 6))
_PART_NAMES = frozenset({"model", "models", "modeling", "weights", "optim", "optimizer", "optimizers"})
"""Directories for parts of one save: https://github.com/hpcaitech/ColossalAI/blob/v0.4.9/applications/Colossal-LLaMA/
colossal_llama/utils/ckpt_io.py, and `weights` of NeMo."""
_NUM_PAIRS = 3
"""Saves that are read to see whether files next to each other are parts; one of them may be damaged."""
_MODEL = re.compile(r"(?:model|weights|checkpoint|ckpt)(?:(?:[-_.]\w+)*\.(?:h5|hdf5))?", re.ASCII | re.IGNORECASE)
"""A model of Keras in HDF5, or a state of `torch.save` under a bare name, in a directory that says the step."""
_SKIPPED = frozenset({"node_modules", "__pycache__", "site-packages"})


@dataclass(slots=True)
class Group:
    """Checkpoint directories that are next to each other."""

    root: Path
    """The directory that holds them; the checkpoint itself where it was named."""
    members: list[Path] = field(default_factory=list)
    """Directories; and, where files side by side are one, the directory with what their names have in common."""
    files: dict[Path, list[str]] = field(default_factory=dict)
    """Names of the files of those members that are no directories."""
    cut: str = ""
    """Why not all below was searched; empty where it was."""
    deep: list[Path] = field(default_factory=list)
    """Directories that are nested too deep, which were not searched."""
    top: Path | None = None
    """Where the search began; None where a file was named."""


def find(directory: Path) -> list[Group]:
    """The checkpoint directories at or below a directory, by the directory that holds them."""
    groups: dict[Path, Group] = {}
    pending = [(directory, 0)]
    num_seen = 0
    while pending:
        current, depth = pending.pop()
        entries = _entries(current)
        num_seen += len(entries)
        if num_seen > ENTRIES.most:
            words = f"{directory}: more than {ENTRIES.most:,} files are below"
            groups.setdefault(directory, Group(directory)).cut = words
            break
        if depth > DEPTH.most:
            groups.setdefault(directory, Group(directory)).deep.append(current)
            continue
        below = [Path(entry.path) for entry in entries if entry.is_dir(follow_symlinks=False)]
        has_parts = is_counted(current.name) and _has_parts(below)
        is_named = current == directory and STEP_NAME.match(current.name) is not None
        numbered = _bundles(current, entries)
        if numbered:
            groups[current] = Group(current, list(numbered), numbered)
        is_one = is_checkpoint(entries) or has_parts or (is_named and _is_or_holds(current))
        members = [current] if is_one and not numbered else []
        if members:
            root = current if current == directory else current.parent
            groups.setdefault(root, Group(root)).members += members
        if members and (has_parts or STEP_NAME.match(current.name) or any(entry.name in _ROOTS for entry in entries)):
            continue
        stepped = [path for path in below if STEP_NAME.match(path.name)]
        if any(_is_or_holds(path) for path in stepped):
            groups.setdefault(current, Group(current)).members += stepped
            below = [path for path in below if path not in stepped]
        pending += [(path, depth + 1) for path in below if _is_searched(path)]
    for group in groups.values():
        group.top = directory
    return [groups[root] for root in sorted(groups)]


def without_sealed_runs(groups: Sequence[Group]) -> list[Group]:
    """Without the directories that a manifest alone makes a checkpoint, where what it lists is several of them."""
    found: list[Group] = []
    for group in groups:
        members = [member for member in group.members if not _is_sealed_run(member, groups)]
        saves = [(member, _saves_under_a_manifest(member)) for member in members if member not in group.files]
        found += [Group(root, list(files), files, top=group.top) for root, files in saves if files]
        members = [member for member in members if (member, {}) in saves or member in group.files]
        if members or group.cut or group.deep:
            found.append(replace(group, members=members))
    return found


def _is_sealed_run(member: Path, groups: Sequence[Group]) -> bool:
    """Whether a directory has a manifest, no state of its own, and checkpoints below it."""
    below = (one for group in groups for one in group.members if member in one.parents)
    if STEP_NAME.match(member.name) or not os.path.isfile(member / MANIFEST_NAME) or next(below, None) is None:  # noqa: PTH113
        return False
    return not any(path.lower().endswith(STATE_SUFFIXES) for path in inventory(member).files)


def _saves_under_a_manifest(member: Path) -> dict[Path, list[str]]:
    """The files of several saves side by side, next to which is one manifest; none where there is another mark."""
    entries = _entries(member)
    others = [entry for entry in entries if entry.name != MANIFEST_NAME]
    if STEP_NAME.match(member.name) or len(others) == len(entries):
        return {}
    found = _bundles(member, others)
    return found if len(found) > 1 else {}


def find_named(path: Path) -> Group | None:
    """The checkpoint that a file is, or is a part of, or that the files with a prefix are; None for anything else.

    A link that was named is followed, unless it is of a cache and keeps the name of its file.
    """
    if os.path.islink(path) and blob_of(path) is None:  # noqa: PTH114 - raises for a long name
        path = Path(os.path.realpath(path))
    name = path.name
    prefix = bundles.prefix_of(name) if bundles.is_data(name) or bundles.is_table(path) else ""
    if bundles.is_table(path.parent / f"{name}{bundles.INDEX}"):
        prefix = name
    if prefix:
        return Group(path.parent / prefix, [path.parent / prefix])
    is_torch = _is_state(path) or kind_of(path) in JUDGED
    if os.path.isfile(path) and (is_torch or name.lower().endswith(_NAMED_SUFFIXES)):  # noqa: PTH113 - raises for a long name
        return Group(path, [path], {path: [name]})
    return None


def _is_searched(path: Path) -> bool:
    return path.name not in _SKIPPED and not path.name.startswith(".") and not path.name.endswith(bundles.STAGING)


def _bundles(directory: Path, entries: Sequence[os.DirEntry[str]]) -> dict[Path, list[str]]:
    """Checkpoints that are files side by side and not directories, where their names count them."""
    files = [entry for entry in entries if entry.is_file(follow_symlinks=False)]
    if several := saves_side_by_side(entry.name for entry in files):
        return {directory / first: names for first, names in several.items()}
    pairs = pairs_side_by_side(entry.name for entry in files)
    if any(_hold_others(directory, names) for names in islice(pairs.values(), _NUM_PAIRS)):
        return {directory / first: names for first, names in pairs.items()}
    states = bundles.states_of_lightning({entry.name: Path(entry.path) for entry in files})
    is_one = STEP_NAME.match(directory.name) and len(states) < 2
    found: dict[str, list[str]] = {} if is_one else {prefix: [] for prefix in bundles.prefixes(files)}
    others = []
    for entry in files:
        prefix = bundles.part_of(entry.name, found)
        if prefix:
            found[prefix].append(entry.name)
        else:
            others.append(entry)
    if len(states) > 1:
        apart = [entry for entry in others if entry.name.lower().endswith(STATE_SUFFIXES)]
        found |= {entry.name: [entry.name] for entry in apart}
        others = [entry for entry in others if entry not in apart]
    elif not any(bundles.step_of(prefix) is not None for prefix in found):
        return {}
    apart = [entry for entry in others if _is_further(entry.name, found)]
    found |= {entry.name: [entry.name] for entry in apart}
    if is_checkpoint([entry for entry in others if entry not in apart]):
        return {}
    return {directory / prefix: names for prefix, names in found.items()}


def _is_further(name: str, saves: Collection[str]) -> bool:
    """Whether a name counts on where those of saves do, with signs that their names do not have; a rank does not."""
    if not name.lower().endswith(STATE_SUFFIXES) or names_rank(name):
        return False
    own = counts_in(name)
    others = [counts_in(save) for save in saves]
    return any(word in own and all(own[word] != other.get(word) for other in others) for word in (*STEP_WORDS, *EPOCHS))


def _hold_others(directory: Path, names: Sequence[str]) -> bool:
    """Whether files hold different tensors, or are named so, as a generator and a discriminator do."""
    if are_two_networks(names):
        return True
    read = [progress_of(directory / name) for name in names]
    tensors = [one.tensors for one in read if one and one.tensors]
    return len(tensors) == len(names) == len(set(tensors)) > 1


def _is_or_holds(path: Path) -> bool:
    """Whether a directory is a checkpoint, or a directory in it is one."""
    entries = _entries(path)
    below = (Path(entry.path) for entry in entries if entry.is_dir(follow_symlinks=False))
    return is_checkpoint(entries) or any(is_checkpoint(_entries(inner)) for inner in below)


def _has_parts(folders: Sequence[Path]) -> bool:
    """Whether some of the directories in one are parts of a save, by their names."""
    return any(path.name.lower() in _PART_NAMES and is_checkpoint(_entries(path)) for path in folders)


def _is_one_save(root: Path) -> bool:
    """Whether all directories below one are its own."""
    if not is_counted(root.name):
        return False
    return _has_parts([Path(entry.path) for entry in _entries(root) if entry.is_dir(follow_symlinks=False)])


def _entries(directory: Path) -> list[os.DirEntry[str]]:
    try:
        with memory_of_the_machine(), os.scandir(directory) as entries:
            found = sorted(islice(entries, int(ENTRIES.most) + 1), key=lambda entry: entry.name)
            return [entry for entry in found if not is_of_macos(Path(entry.path))]
    except OSError:
        return []


def is_checkpoint(entries: Sequence[os.DirEntry[str]]) -> bool:
    """Whether the names of files, or the start of one, make a checkpoint."""
    files = [entry for entry in entries if not entry.is_dir(follow_symlinks=False)]
    if any(entry.name in _NAMES or entry.name.endswith(_SUFFIXES) for entry in files):
        return True
    held = {entry.name for entry in entries if not STEP_NAME.match(entry.name)}
    if held and trainer_files.is_checkpoint(Path(entries[0].path).parent.name, held):
        return True
    if any(_is_state(Path(entry.path)) for entry in files):
        return True
    if files and STEP_NAME.match(Path(files[0].path).parent.name) and any(map(_is_one_of_a_step, files)):
        return True
    return bool(bundles.prefixes(files)) or any(
        regions.NAME.match(entry.name) and regions.is_whole(Path(entry.path)) for entry in files
    )


def _is_one_of_a_step(entry: os.DirEntry[str]) -> bool:
    """Whether a file in a directory that is named after a step is a model by its name and its start."""
    if _MODEL.fullmatch(entry.name) is None:
        return False
    kind = kind_of(Path(entry.path))
    return kind == "HDF5" if "." in entry.name else kind in JUDGED


def _is_state(path: Path) -> bool:
    """Whether a file with the name of a file of state is a zip container, a pickle or a pointer, or would run code.

    One of `torch.save` may have the name of a save with any end.
    """
    name = path.name.lower()
    if not name.endswith(_TORCH_SUFFIXES) and bundles.is_of_a_save(path):
        return True
    if not name.endswith(STATE_SUFFIXES):
        return False
    try:
        with open_file(path) as file:
            start = file.read(len(LARGE_FILE))
            if name.endswith(_TORCH_SUFFIXES) and (start.startswith(_ZIP_START) or start[:2] in _PICKLE_STARTS):
                return not is_lone(path)
            if name.endswith(_TORCH_SUFFIXES) and start == LARGE_FILE and is_of_a_container(name):
                return True
            if name.endswith(_TORCH_SUFFIXES) and not start.strip(b"\0") and is_blank(file, name):
                return True
            file.seek(0)
            code = code_of(file)
            return bool(code.denied or code.limit or code.damage)
    except OSError:
        return False


def inventory(root: Path, names: Sequence[str] | None = None) -> Checkpoint:
    """The files of a checkpoint; other checkpoints below it are none of its own, and part of its tree.

    `names` are those of its files where it is no directory; None looks for them.
    """
    if names is not None or not root.is_dir():
        return _bundle(root.parent, root.name, names)
    match = STEP_NAME.match(root.name)
    others: set[str] = set()
    if match is None and not _is_one_save(root):
        members = {member for group in find(root) for member in group.members} - {root}
        others = {member.relative_to(root).as_posix() for member in members}
    tree = walk(root)
    checkpoint = Checkpoint(root, root.as_posix(), int(match["step"]) if match else None, tree.files)
    checkpoint.tree, checkpoint.tree_folders, checkpoint.empty_folders = tree.files, tree.folders, tree.empty_folders
    own = {""}
    for path in tree.folders:  # in order: what holds a directory is before it
        if path not in others and _folder_of(path) in own:
            own.add(path)
    checkpoint.folders = tuple(path for path in tree.folders if path in own)
    checkpoint.files = {path: fact for path, fact in tree.files.items() if _folder_of(path) in own}
    for path in [path for path in checkpoint.files if is_of_macos(root / path)]:
        del checkpoint.files[path]
        checkpoint.doubts[path] = (OF_MACOS, "remove it, as a loader that lists a directory takes it for state")
    checkpoint.unnamed = _unnamed(checkpoint)
    checkpoint.unlisted = tuple((path, words) for _, path, words in tree.unlisted)
    for aspect, path, words in tree.unlisted:
        checkpoint.report(aspect, path, words, "nothing beyond was looked at")
    _check_links(checkpoint)
    return checkpoint


def _unnamed(checkpoint: Checkpoint) -> frozenset[str]:
    """Files of `torch.save` at the top of a checkpoint whose names end otherwise."""
    known = (*STATE_SUFFIXES, *_SUFFIXES)  # the parts of a save of PyTorch DCP begin so too
    others = (path for path in checkpoint.files if "/" not in path and not path.lower().endswith(known))
    return frozenset(path for path in others if is_of_torch(checkpoint.root / path))


def _folder_of(path: str) -> str:
    return path.rpartition("/")[0]


def _bundle(directory: Path, prefix: str, names: Sequence[str] | None) -> Checkpoint:
    """The files of a checkpoint that lies beside others in one directory, and what an unfinished save left of it."""
    if names is None:
        names = [entry.name for entry in _entries(directory) if bundles.part_of(entry.name, {prefix})]
    staging = directory / f"{prefix}{bundles.STAGING}"
    left = [f"{staging.name}/{entry.name}" for entry in _entries(staging) if not entry.is_dir(follow_symlinks=False)]
    files = {name: fact for name in (*names, *left) if (fact := fact_of(directory / name, name)) is not None}
    checkpoint = Checkpoint(directory, (directory / prefix).as_posix(), bundles.step_of(prefix), files, prefix)
    checkpoint.folders = (staging.name,) if staging.is_dir() else ()
    checkpoint.tree = files
    checkpoint.unnamed = _unnamed(checkpoint)
    _check_links(checkpoint)
    return checkpoint


def _check_links(checkpoint: Checkpoint) -> None:
    checkpoint.examined.add("paths")
    for fact in checkpoint.files.values():
        if fact.kind == "file" and (digest := sha256_of(fact.target)):
            checkpoint.recorded[fact.path] = digest
        words, remedy = irregular(checkpoint.root, fact)
        if words:
            checkpoint.report("paths", fact.path, words, remedy)
