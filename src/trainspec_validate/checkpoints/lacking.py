"""Compares the files of a checkpoint with those of older ones, where nothing else says what belongs to it."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence, Set
from dataclasses import dataclass
from math import prod
from pathlib import Path

from trainspec_validate.checkpoints.bundles import form_of
from trainspec_validate.checkpoints.flat_saves import form_of_part
from trainspec_validate.checkpoints.inventory import inventory
from trainspec_validate.checkpoints.limits import STATE_BYTES, LimitError, UnreadableError
from trainspec_validate.checkpoints.opening import read_json, read_small
from trainspec_validate.checkpoints.save_names import STEP_NAME, is_counted
from trainspec_validate.checkpoints.view import Checkpoint, is_count
from trainspec_validate.model.quantities import singular_of_one

NUM_COMPARED = 2
"""Older checkpoints whose files a newer one is expected to have."""
_NUM_FORMS = 4
"""Numbers in a path that are equal to the step and each may be something else."""
_OF_STEP = "N"
_NEEDED = re.compile(
    r"(?:^|/)(?:[^/]*config\.json|[^/]*\.index\.json|running_states\.json|modules\.json|params\.json|model_config\.yaml|_sharding)$"
)
"""Files in JSON or YAML without which loaders build no model, or find no shard, and which no evaluation adds."""
_RANK = re.compile(
    r"(?<![A-Za-z])(?P<word>(?:[a-z]+_)?rank|(?:[a-z]+_)?states?|world_size|shard|part|[tdpc]p|sdp|ep|exp|of)(?P<sign>[-_.]?)[0-9]{1,7}|"
    r"__[0-9]{1,7}_(?=[0-9]{1,7}\.distcp)",
    re.ASCII,
)
_RANDOM_STATE = re.compile(r"(?:^|/)(?:rng_state|random_states)_(?P<rank>[0-9]{1,7})\.(?:pth|pkl)$", re.ASCII)
_SIZES = ("world_size", "num_ranks", "num_processes", "args.world_size")
"""Keys of the number of ranks that saved a state."""
_NUM_SIZES = 64
"""Files that are asked for it."""
Saved = tuple[Path, Sequence[str] | None]
"""A checkpoint: its directory, or its name and files where it is no directory."""


@dataclass(frozen=True, slots=True)
class _Files:
    """What a checkpoint has, in forms that do not depend on its step."""

    state: list[set[str]]
    needed: set[str]

    def lacks(self, present: Set[str], *, with_state: bool) -> list[set[str]]:
        """Forms of each file of which another checkpoint has none."""
        forms = [*(self.state if with_state else ()), *({path} for path in self.needed)]
        return [each for each in forms if present.isdisjoint(each)]


def lacking(checkpoint: Checkpoint, older: Sequence[Saved]) -> Iterator[str]:
    """Without manifest, mark and index, only older checkpoints say which files belong to one; what lacks, in words.

    Fewer ranks than before are none that lack where the checkpoint itself says so; where it does not, that is said.

    Args:
        checkpoint: as it was read.
        older: those before it, from the newest on.
    """
    older = [each for each in older if is_of_a_series(checkpoint, each)]
    if checkpoint.manifest or not older:
        return
    if gaps := _ranks_without_random_state(checkpoint, older[0]):
        yield f"{gaps[0]} is missing, which {older[0][0].name} has, and the random state of a later rank is there"
        return
    if last := _last_random_state(checkpoint, older):
        yield f"{last} is missing, which the {len(older)} checkpoints before have, and no further rank is"
        return
    own = _files(checkpoint)
    present = {form for forms in own.state for form in forms} | own.needed
    others = [_files(inventory(*each)) for each in older]
    first, *rest = [other.lacks(present, with_state=not checkpoint.marks) for other in others]
    both = [forms for forms in first if all(any(forms & found for found in other) for other in rest)]
    absent = sorted(max(forms, key=lambda form: (form.count(_OF_STEP), form)) for forms in both)
    fewer, absent = _fewer_ranks(own, absent)
    if absent:
        shown = ", ".join(absent[:3]) + (f" and {len(absent) - 3:,} more" if len(absent) > 3 else "")
        yield f"{shown} is missing, which older checkpoints next to it have"
    elif fewer and (words := _of_fewer(checkpoint, own, others[0], older[0][0])):
        yield words


def _random_states(paths: Iterable[str]) -> dict[str, int]:
    return {path: int(match["rank"]) for path in paths if (match := _RANDOM_STATE.search(path))}


def _last_random_state(checkpoint: Checkpoint, older: Sequence[Saved]) -> str:
    """The random state of the last rank, where it is the only one that lacks and all older ones have the same."""
    own = _random_states(checkpoint.files)
    there = [_random_states(inventory(*each).files) for each in older]
    if len(there) < NUM_COMPARED or any(each != there[0] for each in there):
        return ""
    absent = sorted(there[0].keys() - own.keys())
    return absent[0] if own and len(absent) == 1 and own.keys() < there[0].keys() else ""


def _ranks_without_random_state(checkpoint: Checkpoint, older: Saved) -> list[str]:
    """Files of random state for ranks before the last, which the checkpoint before has."""
    ranks, there = _random_states(checkpoint.files), _random_states(inventory(*older).files)
    return sorted(path for path in there if path not in ranks and there[path] < max(ranks.values(), default=0))


def forms_of_state(checkpoint: Checkpoint) -> set[str]:
    """The paths of files of state, with a sign in place of the step."""
    return {max(forms, key=lambda form: form.count(_OF_STEP)) for forms in _files(checkpoint).state}


def is_of_a_series(checkpoint: Checkpoint, older: Saved) -> bool:
    """Whether names differ in numbers only; directories of other names are of other runs."""
    root, files = older
    names = (*(files or ()), root.name)
    if (files is not None) != checkpoint.is_bundle or form_of(checkpoint.label) not in map(form_of, names):
        return False
    return checkpoint.is_bundle or is_counted(root.name) or STEP_NAME.match(root.name) is not None


def _files(checkpoint: Checkpoint) -> _Files:
    state = checkpoint.state_files
    if checkpoint.is_bundle:
        needed = [path for path in checkpoint.files if path.endswith(".json")]
        return _Files([{form_of_part(path)} for path in state], {form_of_part(path) for path in needed})
    found = [_forms(path, checkpoint.step) for path in state]
    return _Files(found, {path for path in checkpoint.files if _NEEDED.search(path)})


def _forms(path: str, step: int | None) -> set[str]:
    """A path, and the same with a sign in place of the step: a number that is equal may be the rank of a process."""
    if step is None:
        return {path}
    *parts, last = re.split(rf"(?<![0-9])(0*{step})(?![0-9])", path)
    if len(parts) > 2 * _NUM_FORMS:
        return {path, "".join([*(_OF_STEP if n % 2 else part for n, part in enumerate(parts)), last])}
    forms = {""}
    for n, part in enumerate(parts):
        forms = {form + word for form in forms for word in ((part, _OF_STEP) if n % 2 else (part,))}
    return {form + last for form in forms}


def _family(form: str) -> str:
    """A path without the numbers of ranks.

    >>> _family("model_world_size_4_rank_3.pt"), _family("tp_01/rank_3.pt")
    ('model_world_size_#_rank_#.pt', 'tp_#/rank_#.pt')
    """
    return _RANK.sub(lambda match: f"{match['word'] or '_'}{match['sign'] or ''}#", form)


def _families(files: _Files) -> Counter[str]:
    """How many files of ranks there are of each kind."""
    forms = (max(forms, key=lambda form: form.count(_OF_STEP)) for forms in files.state)
    return Counter(_family(form) for form in forms if _RANK.search(form))


def _fewer_ranks(own: _Files, absent: Iterable[str]) -> tuple[list[str], list[str]]:
    """Absent files of further ranks of what is there for the first ones; and those that are nothing like it."""
    held = _families(own)
    further: tuple[list[str], list[str]] = ([], [])
    for form in absent:
        further[not (_RANK.search(form) and held[_family(form)])].append(form)
    return further


def _of_fewer(checkpoint: Checkpoint, own: _Files, other: _Files, root: Path) -> str:
    """That files of ranks are fewer than before, unless the checkpoint says that it has so many; in words."""
    held, before = _families(own), _families(other)
    family = max(
        (one for one in before if held[one] and held[one] < before[one]), key=lambda one: before[one] - held[one]
    )
    counts = singular_of_one(f"{held[family]:,} files {family}")
    said = _num_ranks(checkpoint)
    if held[family] in said or _is_named_whole(own):
        return ""
    if said:
        return f"it has {counts}, and says that {max(said):,} ranks saved it"
    words = f"nothing in it says how many ranks saved it: it has {counts}, and {root.name} has {before[family]:,}"
    return f"whether files of ranks are missing is not known, as {words}"


def _is_named_whole(own: _Files) -> bool:
    """Whether the names say how many ranks there are, and no rank of these is missing."""
    totals: dict[str, set[int]] = {}
    counts: Counter[str] = Counter()
    for forms in own.state:
        for form in forms:
            sizes = re.findall(r"(?:world_size|(?<![A-Za-z])of)[-_]([0-9]{1,7})", form)
            if sizes:
                totals.setdefault(_family(form), set()).add(prod(map(int, sizes)))
                counts[_family(form)] += 1
    return bool(totals) and all(counts[family] >= max(those) for family, those in totals.items())


def _num_ranks(checkpoint: Checkpoint) -> set[int]:
    """The ranks that saved a checkpoint, as its files say."""
    found = {said.count(key) for said in checkpoint.said.values() for key in _SIZES}
    small = [path for path in checkpoint.files if path.endswith(".json") and path.count("/") < 2]
    for path in small[:_NUM_SIZES]:
        try:
            content = read_json(read_small(checkpoint.root / path, STATE_BYTES))
        except (LimitError, UnreadableError):
            continue
        found |= {content.get(key) for key in _SIZES} if isinstance(content, dict) else set()
    return {number for number in found if is_count(number) and number}
