"""Distinguishes states of several steps in one directory from parts of one state, in the order of training.

The evidence is what an engineer would look at: numbers in names, then counts in the state, then the step of its
optimizer, and the time of the last change at last.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cmp_to_key
from itertools import combinations
from pathlib import Path

from trainspec_validate.checkpoints.bundles import form_of
from trainspec_validate.checkpoints.content import FURTHER_SUFFIXES, is_of_torch
from trainspec_validate.checkpoints.inventory import inventory
from trainspec_validate.checkpoints.progress import EPOCH_KEYS, GLOBAL_KEYS, LOCAL_KEYS, Progress, progress_of
from trainspec_validate.checkpoints.save_names import DATE, EPOCHS, STEP_NAME, WORDS, agree, counts_in
from trainspec_validate.checkpoints.view import MANIFEST_NAME, Checkpoint

_SUFFIXES = (".pt", ".pth", ".pth.tar", ".ckpt")
_END = re.compile(
    rf"(?:{'|'.join(map(re.escape, sorted((*_SUFFIXES, *FURTHER_SUFFIXES), key=len, reverse=True)))})$", re.IGNORECASE
)
_SLOT = re.compile(r"(?:^|(?<=[-_.]))(?:best|last|latest|final)(?=[-_.]|$)", re.IGNORECASE)
"""Words that programs name a state after in place of its step."""
_STATES = re.compile(r"^(?:model|checkpoint|ckpt|weights|epoch|step|iter|save|state|net|network)?$", re.IGNORECASE)
"""What is left of such a name without that word and without numbers."""
_KEPT = re.compile("best|last|latest|final|ave", re.IGNORECASE)
_RANK = re.compile(
    r"(?:^|(?<=[-_.]))(?:mp|tp|pp|dp|ep|cp|rank|shard|part|proc|process|worker|gpu|cuda|node|fold|consolidated)[-_.]?[0-9]+",
    re.IGNORECASE,
)
_OF = re.compile(r"[0-9][-_]?of[-_]?[0-9]", re.IGNORECASE)
_EP = re.compile(r"ep[-_.]?[0-9]", re.IGNORECASE)
_METRIC = re.compile(r"[0-9]\.[0-9]{1,12}", re.ASCII)
_NUM_PAIRED = 100
"""States that are compared with each other to see whether there are several."""
_LEADING = ("last", "latest", "final")


@dataclass(frozen=True, slots=True)
class Saved:
    """A file that is a state, and what says how new it is."""

    name: str
    progress: Progress | None
    """None where the file cannot be read."""
    modified_ns: int

    @property
    def numbers(self) -> dict[str, tuple[int, ...]]:
        """Numbers in its name by the word before the number; by the form of the name where there is no word."""
        return counts_in(self.name)

    @property
    def number(self) -> int:
        """First number in its name: steps before epochs, and neither a loss nor a rate after them; -1 for nothing."""
        return next((counted[-1] for _, counted in sorted(self.numbers.items(), key=lambda one: _rank(one[0]))), -1)


@dataclass(frozen=True, slots=True)
class Sign:
    """One fact about which of two states is newer: 1 for the first, -1 for the other, 0 where they are equal."""

    value: int
    words: str
    is_sure: bool = True
    """Whether it always grows during training."""


def states_in(root: Path) -> list[str]:
    """The files of a directory that are states of their own; empty where they are parts of one state.

    A file with a manifest of its own was sealed as a whole state, so that those whose names differ in numbers alone are
    states too.
    """
    checkpoint = inventory(root)
    names = checkpoint.state_files
    forms = {form_of(name) for name in names if f"{name}.{MANIFEST_NAME}" in checkpoint.files}
    sealed = [name for name in names if form_of(name) in forms]
    names = [name for name in names if not _is_repeated(root, name, names)]
    if STEP_NAME.match(root.name) or _has_index(checkpoint):
        return []
    return (_apart(checkpoint, names) if len(names) > 1 and _are_alone(root, names) else []) or sealed


def _apart(checkpoint: Checkpoint, names: Sequence[str]) -> list[str]:
    """Those of the files of `torch.save` in a directory that are states, where these are several."""
    root = checkpoint.root
    saved = [Saved(name, progress_of(root / name), checkpoint.files[name].modified_ns) for name in names]
    are_apart = _are_several(saved) or _are_dated(saved) or _are_exports(saved) or _are_counted(saved)
    are_apart = are_apart or _are_weights(saved) or _are_measured(saved)
    return [one.name for one in states_of(saved)] if are_apart else []


def is_torch(path: Path) -> bool:
    """Whether a file is one of `torch.save` that may be a whole state, by its name or by its begin.

    Files that end in `.bin` are parts of one save as often.
    """
    name = path.name.lower()
    return name.endswith(_SUFFIXES) or (not name.endswith(".bin") and is_of_torch(path))


def _is_repeated(root: Path, name: str, names: Sequence[str]) -> bool:
    """Whether a name is a link to another one in the directory, as `latest-rank0.pt` of Composer is."""
    path = root / name
    if not path.is_symlink():
        return False
    end = os.path.realpath(path)
    return any(end == os.path.realpath(root / other) for other in names if other != name)


def _are_alone(root: Path, names: Sequence[str]) -> bool:
    """Whether files are of `torch.save`, and their names say no rank, or all the same one, as those of Composer do."""
    if not all("/" not in name and is_torch(root / name) for name in names):
        return False
    are_epochs = _are_epochs(names)
    return len({tuple(rank for rank in _ranks(name) if not (are_epochs and _EP.match(rank))) for name in names}) == 1


def _ranks(name: str) -> list[str]:
    return [rank.lower() for rank in _RANK.findall(name)]


def _are_epochs(names: Sequence[str]) -> bool:
    """Whether `ep` in names is an epoch and no rank of experts.

    Then each name has another step, or the numbers begin too high for ranks, or they begin at 1 and names with them.
    """
    counts = [counted for name in names if "ep" in (counted := counts_in(name))]
    pairs = [agree(counted) for counted in counts]
    steps = {counted[pair[1]] for counted, pair in zip(counts, pairs, strict=True) if pair}
    if not counts or len(steps) == len(counts):
        return True
    lowest = min(counted["ep"][-1] for counted in counts)
    begin = all(_EP.match(name) for name in names if "ep" in counts_in(name))
    are_sparse = _are_sparse([counted["ep"][-1] for counted in counts])
    metrics = [tuple(_METRIC.findall(name)) for name in names]
    if all(metrics) and len(set(metrics)) == len(metrics):
        return True  # ranks of one save have one loss
    return not steps and (lowest > len(counts) or (begin and lowest > 0) or are_sparse)


def _bare(name: str) -> str:
    """A name without its ranks and its ending."""
    stem = _END.sub("", name)
    for rank in _ranks(name):
        if not _EP.match(rank):
            stem = re.sub(rf"[-_.]?{re.escape(rank)}(?![0-9])", "", stem, count=1, flags=re.IGNORECASE)
    return stem


def _rest(name: str) -> str:
    """What is left of a name without its ranks, its numbers and a word such as `best`."""
    return re.sub(r"[-_.=#v]+", "", form_of(re.sub(r"(?<=[0-9])[kK]$", "", _SLOT.sub("", _bare(name)))))


def _has_index(checkpoint: Checkpoint) -> bool:
    """Whether some file says what belongs together."""
    names = {path.rpartition("/")[2] for path in checkpoint.files}
    is_listed = any(name.endswith(".index.json") for name in names)
    return is_listed or not names.isdisjoint({".metadata", "latest", "trainer_state.json", MANIFEST_NAME})


def states_of(saved: Sequence[Saved]) -> list[Saved]:
    """Those that may be states to resume from: where some are by their keys, others are only by their names."""
    if not any(one.progress and one.progress.is_state for one in saved):
        return list(saved)
    return [one for one in saved if one.progress is None or one.progress.is_state or _is_named(one)]


def _is_named(one: Saved) -> bool:
    """Whether the name is that of a whole state and of no part: of a word such as `best` or a number, and `model`."""
    is_counted = _SLOT.search(_bare(one.name)) is not None or bool(one.numbers)
    return is_counted and _STATES.match(_rest(one.name)) is not None


def _are_several(saved: Sequence[Saved]) -> bool:
    """Whether files hold the same model at several steps, or are named so that each is a state."""
    read = [one for one in saved if one.progress is None or one.progress.is_state]
    if len({one.progress.tensors for one in read if one.progress and one.progress.tensors}) > 1:
        return False  # such as a generator and a discriminator
    for one, other in combinations(read[:_NUM_PAIRED], 2):
        are_named = _is_named(one) and _is_named(other) and bool(_SLOT.search(one.name) or _SLOT.search(other.name))
        if are_named or (_are_of_one_model(one, other) and (_differ(one, other) or _are_whole(one, other))):
            return True
    return False


def _are_counted(saved: Sequence[Saved]) -> bool:
    """Whether names alike but for numbers count steps, epochs or saves, each another; `last` and `best` may be there.

    So a file that is cut hides no other one.
    """
    counted = [one for one in saved if one.numbers and not _SLOT.search(_bare(one.name))]
    if len(counted) < 2:
        counted = [one for one in saved if one.numbers]
    rests = {_rest(one.name) for one in counted}
    others = [one for one in saved if one not in counted]
    if len(counted) < 2 or len(rests) > 1 or not all(_is_named(one) or _rest(one.name) in rests for one in others):
        return False
    if len({one.progress.tensors for one in saved if one.progress and one.progress.tensors}) > 1:
        return False  # parts of one model
    word = min(counted[0].numbers, key=_rank)
    numbers = {one.numbers.get(word, ()) for one in counted}
    if len(numbers) < len(counted) or any(_OF.search(one.name) for one in counted):
        return False
    if word not in WORDS:
        return _are_no_ranks(counted)
    seconds = [number[-1] for number in numbers if len(number) > 1]  # the steps of fairseq, or ranks
    return not seconds or min(seconds) > len(counted)


def _are_no_ranks(counted: Sequence[Saved]) -> bool:
    """Whether numbers without a word begin too high for ranks, and do not follow each other as those of layers do.

    Files of layers next to each other hold different tensors.
    """
    numbers = [one.number for one in counted]
    has_gaps = max(numbers) - min(numbers) >= len(numbers)
    is_one_model = all(map(_are_of_one_model, counted, counted[1:]))
    are_named = all(map(_is_named, counted))
    if min(numbers) > len(numbers):
        return has_gaps or is_one_model or are_named
    read = [one for one in counted if one.progress]
    return min(numbers) > 1 < len(read) and are_named and all(map(_are_of_one_model, read, read[1:]))


def _are_weights(saved: Sequence[Saved]) -> bool:
    """Whether models without further state have the same tensors of the same sizes, and no names of ranks.

    Shards of one model may have the same tensors too: their numbers leave few out, and none is called `best`. Ranks
    count from 0, and save at the same time.
    """
    read = [one.progress for one in saved if one.progress]
    shapes = {one.shapes for one in read}
    if any(one.is_state for one in read) or len(shapes) != 1 or frozenset() in shapes:
        return False
    counted = [one.number for one in saved if not _SLOT.search(_bare(one.name))]
    if len({_rest(one.name) for one in saved}) > 1 or -1 in counted or any(_OF.search(one.name) for one in saved):
        return False
    are_no_shards = len(counted) < len(saved) or (len(counted) > 1 and _are_sparse(counted)) or _are_in_turn(saved)
    return not counted or (len(read) > 1 and are_no_shards)


def _are_in_turn(saved: Sequence[Saved]) -> bool:
    """Whether files are named as states, count from 1 or more, and were written in the order of their numbers.

    A file that cannot be read may have been changed at any time. Some times are equal where they are stored coarsely.
    """
    numbers = [one.number for one in saved]
    times = [time for _, time in sorted((one.number, one.modified_ns) for one in saved if one.progress)]
    are_later = times == sorted(times) and 2 * len(set(times)) > len(times) > 1
    return len(set(numbers)) == len(numbers) and min(numbers) > 0 and are_later and all(map(_is_named, saved))


def _are_measured(saved: Sequence[Saved]) -> bool:
    """Whether files hold the same tensors of the same sizes, and each name has a metric of its own."""
    metrics = [_metrics(one) for one in saved]
    shapes = {one.progress.shapes for one in saved if one.progress}
    return all(metrics) and len(set(metrics)) == len(metrics) and len(shapes) == 1 and frozenset() not in shapes


def _metrics(one: Saved) -> tuple[str, ...]:
    return tuple(_METRIC.findall(_END.sub("", one.name)))


def are_unordered(one: Saved, other: Saved) -> str:
    """Why nothing but the time of the last change orders two files with metrics in names, in words; else empty."""
    slots = [_SLOT.findall(_END.sub("", each.name).lower()) for each in (one, other)]
    are_measured = slots[0] == slots[1] and all(map(_metrics, (one, other)))
    if not are_measured or any(sign.value for sign in _signs(one, other)):
        return ""
    return f"neither names nor contents say which of {one.name} and {other.name} is newer"


def _are_sparse(numbers: Sequence[int]) -> bool:
    """Whether numbers differ and leave out more than a few, so that they count no ranks."""
    return len(set(numbers)) == len(numbers) and max(numbers) - min(numbers) >= 2 * len(numbers)


def _are_dated(saved: Sequence[Saved]) -> bool:
    """Whether files hold the same model, and their names differ in a date."""
    return all(map(_are_of_one_model, saved, saved[1:])) and len({one.numbers.get(DATE) for one in saved} - {None}) > 1


def _are_exports(saved: Sequence[Saved]) -> bool:
    """Whether one file is a whole state, and the others are models out of it that were kept for use."""
    whole = [one for one in saved if one.progress and one.progress.has_optimizer and one.progress.tensors]
    rest = [one for one in saved if one not in whole]
    return len(whole) == 1 and bool(rest) and all(_is_export(one, whole[0]) for one in rest)


def _is_export(one: Saved, whole: Saved) -> bool:
    """Whether a file holds the tensors of the model in a state, and its name says of which save they are."""
    if not (one.numbers or _KEPT.search(one.name)) or whole.progress is None:
        return False
    if one.progress is None:
        return True
    inner = {name.partition(".")[2] for name in whole.progress.tensors}
    names = one.progress.tensors
    return not one.progress.has_optimizer and bool(names) and (names <= inner or names <= whole.progress.tensors)


def _are_whole(one: Saved, other: Saved) -> bool:
    """Whether each has the whole of one model and an optimizer, and names in which more than a number differs.

    Ranks of one save have the same name but for a number.
    """
    have_optimizers = all(each.progress and each.progress.has_optimizer for each in (one, other))
    return have_optimizers and form_of(one.name) != form_of(other.name)


def _are_of_one_model(one: Saved, other: Saved) -> bool:
    names = [each.progress.tensors if each.progress else frozenset() for each in (one, other)]
    return names[0] == names[1] != frozenset()


def _differ(one: Saved, other: Saved) -> bool:
    return any(sign.value for sign in (*_of_counts(one, other), *_of_optimizers(one, other)))


def _rank(word: str) -> int:
    return WORDS.index(word) if word in WORDS else len(WORDS)


def _sign(one: tuple[int, ...], other: tuple[int, ...]) -> int:
    return (one > other) - (one < other)


def _begins_anew(one: Saved, other: Saved, epoch: str, step: str) -> bool:
    """Whether steps in names begin anew in each epoch, as those of ColossalAI do: time agrees with the epochs."""
    signs = [_sign(one.numbers[word], other.numbers[word]) for word in (epoch, step)]
    return signs[0] == -signs[1] == _sign((one.modified_ns,), (other.modified_ns,)) != 0


def _of_names(one: Saved, other: Saved) -> Iterator[Sign]:
    words = [one.numbers, other.numbers]
    shared = words[0].keys() & words[1].keys()
    if (pair := agree(shared)) and _begins_anew(one, other, *pair):
        shared -= {*pair[1:]}
    for word in sorted(shared, key=_rank):
        numbers = (each[word][-1] for each in words)
        what = f"{word} in their names is" if word in WORDS else "the numbers in their names are"
        yield Sign(_sign(words[0][word], words[1][word]), "{} {:,} and {:,}".format(what, *numbers))


def _of_counts(one: Saved, other: Saved) -> Iterator[Sign]:
    counts = [each.progress.counts if each.progress else {} for each in (one, other)]
    for key in (*GLOBAL_KEYS, *EPOCH_KEYS, *LOCAL_KEYS):
        if key in counts[0] and key in counts[1]:
            numbers = counts[0][key], counts[1][key]
            words = f"{key} is {numbers[0]:,} and {numbers[1]:,}"
            is_sure = key not in LOCAL_KEYS or _is_named_by(one, numbers[0])
            yield Sign(_sign(numbers[:1], numbers[1:]), words, is_sure)


def _of_optimizers(one: Saved, other: Saved) -> Iterator[Sign]:
    steps = [each.progress.optimizer_step if each.progress else None for each in (one, other)]
    if steps[0] is not None and steps[1] is not None:
        words = f"the steps of their optimizers are {steps[0]:,} and {steps[1]:,}"
        yield Sign(_sign((steps[0],), (steps[1],)), words, _is_named_by(one, steps[0]))


def _is_named_by(one: Saved, step: int) -> bool:
    """Whether the name of a state says the step in it, so that the step is counted from the start of training.

    A step that begins anew in each epoch is nowhere more than such a name says.
    """
    return not any(word in one.numbers for word in EPOCHS) and step > 0 and 0 <= one.number - step <= 1


def _signs(one: Saved, other: Saved) -> list[Sign]:
    """From what decides first to what decides last."""
    return [*_of_names(one, other), *_of_counts(one, other), *_of_optimizers(one, other)]


def _compared(one: Saved, other: Saved) -> int:
    known = next((sign.value for sign in _signs(one, other) if sign.value), 0)
    if known:
        return known
    words = [_END.sub("", each.name).lower() for each in (one, other)]
    leads = [any(word.startswith(lead) or word.endswith(lead) for lead in _LEADING) for word in words]
    return _sign((one.modified_ns, leads[0]), (other.modified_ns, leads[1]))


def newest_first(saved: Iterable[Saved]) -> list[Saved]:
    """In the order in which they are tried; files that cannot be read are tried, and refused, before others."""
    found = sorted(saved, key=cmp_to_key(_compared), reverse=True)
    return sorted(found, key=lambda one: one.progress is not None or bool(one.numbers))


def in_order(saved: Iterable[Saved]) -> list[Saved]:
    """Directories of saves, from the newest on."""
    return sorted(saved, key=cmp_to_key(_compared), reverse=True)


def contradiction(one: Saved, other: Saved) -> str:
    """Why it is not known which of two states is newer, in words, where the first would be taken; empty where it is."""
    signs = _signs(one, other)
    against = [sign for sign in signs if sign.value < 0 and sign.is_sure]
    if not against and next((sign.value for sign in signs if sign.value), 0) < 0:
        against = [sign for sign in signs if sign.value < 0]
    if not against:
        return ""
    words = next((f", and {sign.words} say the opposite" for sign in signs if sign.value > 0), "")
    return f"{other.name} may be newer than {one.name}: {against[0].words}{words}"


def state_of(root: Path) -> Saved | None:
    """The one file of state in a directory, under the name of the directory; None where it has none, or several."""
    checkpoint = inventory(root)
    names = checkpoint.state_files
    if len(names) != 1 or not is_torch(root / names[0]):
        return None
    return Saved(root.name, progress_of(root / names[0]), checkpoint.files[names[0]].modified_ns)


def are_parts(one: Saved, other: Saved) -> str:
    """Why two files are parts of one save, such as a generator and a discriminator, in words; empty where not."""
    names = [each.progress.tensors if each.progress else frozenset() for each in (one, other)]
    signs = _signs(one, other)
    if not all(names) or names[0] == names[1] or not signs or any(sign.value for sign in signs):
        return ""
    return f"{one.name} and {other.name} are of the same step and hold different tensors, so neither is a whole state"


def are_equal(one: Saved, other: Saved) -> str:
    """Why neither of two states is the newer one, and their names do not choose, in words; empty where one is."""
    named = any(_SLOT.search(_END.sub("", each.name)) for each in (one, other))
    if named or any(sign.value for sign in _signs(one, other)) or not _are_of_one_model(one, other):
        return ""
    words = f"{one.name} and {other.name} are states of the same model and step, and their contents differ"
    return words if _are_whole(one, other) else ""


def without_optimizer(one: Saved, others: Iterable[Saved]) -> str:
    """A model for use next to states that a run can resume from, in words."""
    if one.progress is None or one.progress.has_optimizer or not one.progress.tensors:
        return ""
    held = next((each.name for each in others if each.progress and each.progress.has_optimizer), "")
    return f"it holds no state of an optimizer, and {held} next to it does" if held else ""
