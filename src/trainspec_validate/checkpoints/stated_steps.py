"""Reads the counts of steps that a state says under the keys that programs choose, and compares them with names.

Such a key may count micro-steps, or begin anew in each epoch. That it counts what names do is known only where an older
checkpoint of the same directory has the number of its own name under the same key.
"""

from __future__ import annotations

import re
import struct
from collections.abc import Callable, Iterator, Sequence
from itertools import islice
from typing import Any

from trainspec_validate.checkpoints.bundles import form_of
from trainspec_validate.checkpoints.pickle_values import Inert, Name, Pairs
from trainspec_validate.checkpoints.save_names import STEP_WORDS, counts_in
from trainspec_validate.checkpoints.view import Checkpoint, is_count

_KEY = re.compile(
    r"_?(?:(?P<of>global|train(?:ed|ing|er)?|completed|curr?(?:ent)?|n|num|opt(?:imizer)?|total)_?)?"
    r"(?:step|iter|iteration|it|update|batch)(?P<many>e?s)?(?:_?(?:num|nr|idx|count))?|save_counter",
    re.ASCII | re.IGNORECASE,
)
_PART = re.compile(
    r"(?:train(?:er|ing)?_|extra_)?(?:state|progress|status|meta|metadata|info|loop|timestamp)|train(?:er|ing)?",
    re.ASCII | re.IGNORECASE,
)
_EPOCHS = ("epoch", "current_epoch")
_FROM_THE_START = frozenset({"global", "completed", "opt", "optimizer"})
_PLANNED = frozenset({"n", "num", "total", "train", "training"})
"""With more than one step, the number may be the end of training, the same in all checkpoints."""
_DEPTH = 4
_NUM_KEYS = 1_000
_INDEX = 1
_WORDS = frozenset(STEP_WORDS)
_NUMPY = {"i4": "i", "i8": "q", "u4": "I", "u8": "Q", "f4": "f", "f8": "d"}


def stated_steps(value: Any, scalar: Callable[[Any], int | None]) -> dict[str, int]:
    """Counts of steps and epochs in a state and its parts, by their keys with points.

    Args:
        value: as a pickle of it was followed, or as JSON was read.
        scalar: reads the whole number in a tensor of one element.
    """
    return dict(islice(_stated(value, scalar, "", _DEPTH), _NUM_KEYS))


def is_step_key(key: str) -> bool:
    """Whether a key is one under which programs count steps.

    >>> [is_step_key(key) for key in ("step", "train_steps", "iter", "max_steps", "stepsize", "epoch")]
    [True, True, True, False, False, False]
    """
    return _KEY.fullmatch(key) is not None


def named_step(label: str) -> int | None:
    """The number in a name, unless a word says that it counts something else than steps.

    >>> [named_step(name) for name in ("300", "run-step-300", "epoch=3-step=40", "model_0000299.pth", "epoch_3")]
    [300, 300, 40, 299, None]
    """
    counts = counts_in(label)
    word = next((word for word in (*STEP_WORDS, "checkpoint", "ckpt") if word in counts), None)
    if word is None and len(counts) == 1 and not next(iter(counts)).isalpha():
        (word,) = counts
    return counts[word][-1] if word is not None else None


def behind_its_name(checkpoint: Checkpoint, older: Sequence[Checkpoint]) -> Iterator[tuple[str, str]]:
    """Counts that are less than the name says, where those of older checkpoints are what their names say."""
    named = named_step(checkpoint.label)
    if named is None or _agrees(checkpoint, named):
        return
    for path, key, step in _steps(checkpoint):
        if step + _INDEX < named and (words := _counted_alike(checkpoint, path, key, older)):
            yield path, f"{key} is {step:,}, older than {named:,} of the name, {words}"


def not_compared(checkpoint: Checkpoint, older: Sequence[Checkpoint]) -> Iterator[tuple[str, str]]:
    """The first count that is less than the name says, where nothing shows that both count the same."""
    named = named_step(checkpoint.label)
    if named is None or _agrees(checkpoint, named) or _WORDS.isdisjoint(counts_in(checkpoint.label)):
        return
    for path, key, step in _steps(checkpoint):
        if step > 0 and step + _INDEX < named and not _may_be_planned(key):
            words = "and no older checkpoint next to it shows whether both count the same" if not older else ""
            words = words or "and those of older ones are not the numbers of their names either"
            yield path, f"{key} is {step:,}, less than {named:,} of the name, {words}"
            return


def _stated(value: Any, scalar: Callable[[Any], int | None], above: str, depth: int) -> Iterator[tuple[str, int]]:
    state = value.texts() if isinstance(value, Pairs) else value if isinstance(value, dict) else {}
    for key, one in state.items():
        if isinstance(key, str) and (is_step_key(key) or key in _EPOCHS):
            number = one if is_count(one) else _of_numpy(one)
            number = number if number is not None or not isinstance(one, Inert) else scalar(one)
            if number is not None:
                yield f"{above}{key}", number
    for key, one in state.items():
        if depth > 1 and isinstance(key, str) and _PART.fullmatch(key):
            yield from _stated(one, scalar, f"{above}{key}.", depth - 1)


def _of_numpy(value: Any) -> int | None:
    """The whole number in a scalar of NumPy, or in a fraction of Python."""
    if isinstance(value, float):
        return int(value) if 0 <= value < 1 << 53 and value.is_integer() else None
    if not isinstance(value, Inert) or not isinstance(value.function, Name) or value.function.name != "scalar":
        return None
    kind, content = (*value.arguments, None, None)[:2] if isinstance(value.arguments, tuple) else (None, None)
    if isinstance(content, Inert) and isinstance(content.arguments, tuple):  # as protocol 2 writes bytes
        text = content.arguments[0] if content.arguments else None
        content = text.encode("latin-1", "replace") if isinstance(text, str) else None
    said = kind.arguments[0] if isinstance(kind, Inert) and isinstance(kind.arguments, tuple) and kind.arguments else ""
    form = _NUMPY.get(said) if isinstance(said, str) else None
    if form is None or not isinstance(content, bytes) or len(content) != struct.calcsize(f"<{form}"):
        return None
    state = kind.state if isinstance(kind, Inert) else None
    order = ">" if isinstance(state, tuple) and len(state) > 1 and state[1] == ">" else "<"
    (number,) = struct.unpack(f"{order}{form}", content)
    return _of_numpy(number) if isinstance(number, float) else number if is_count(number) else None


def _steps(checkpoint: Checkpoint) -> Iterator[tuple[str, str, int]]:
    for path, counts in checkpoint.stated.items():
        yield from ((path, key, step) for key, step in counts.items() if is_step_key(key.rpartition(".")[2]))


def _agrees(checkpoint: Checkpoint, named: int) -> bool:
    """Whether some count in a checkpoint is that of its name."""
    said = [claim.step for claim in (*checkpoint.claims, *checkpoint.own_steps, *checkpoint.hinted_steps)]
    return any(0 <= named - step <= _INDEX for step in (*said, *(step for _, _, step in _steps(checkpoint))))


def _counted_alike(checkpoint: Checkpoint, path: str, key: str, older: Sequence[Checkpoint]) -> str:
    """That older checkpoints have the numbers of their names under a key, in words; empty where it is not known."""
    found = {}
    for other in older:
        named, counts = named_step(other.label), _counts_of(other, path)
        step = counts.get(key)
        is_own = named is not None and step is not None and 0 <= named - step <= _INDEX and step > 0
        is_older = step is not None and checkpoint.stated[path][key] < step
        if is_own and (is_older or _are_named_alike(checkpoint, other)):
            if _begins_anew(key) and _epoch(checkpoint.stated[path]) > _epoch(counts):
                return ""
            found[step] = other.label
    if not found or (_may_be_planned(key) and len(found) < 2):
        return ""
    return f"and that of {next(iter(found.values()))} is the number of its name"


def _are_named_alike(one: Checkpoint, other: Checkpoint) -> bool:
    """Whether two names differ in their numbers only, or both count steps."""
    words = [_WORDS.intersection(counts_in(each.label)) for each in (one, other)]
    return form_of(one.label) == form_of(other.label) or all(words)


def _counts_of(other: Checkpoint, path: str) -> dict[str, int]:
    """What the file of another checkpoint says whose name differs in its numbers only, or the one file that it has."""
    alike = [counts for each, counts in other.stated.items() if form_of(each) == form_of(path)]
    exact = other.stated.get(path)
    return exact or (alike[0] if len(alike) == 1 else {})


def _begins_anew(key: str) -> bool:
    """Whether a program may count from 0 in each epoch under a key."""
    match = _KEY.fullmatch(key.rpartition(".")[2])
    return match is not None and (match["of"] or "").lower() not in _FROM_THE_START


def _may_be_planned(key: str) -> bool:
    match = _KEY.fullmatch(key.rpartition(".")[2])
    return match is not None and match["many"] is not None and ((match["of"] or "n").lower() in _PLANNED)


def _epoch(counts: dict[str, int]) -> int:
    return max((step for key, step in counts.items() if key.rpartition(".")[2] in _EPOCHS), default=0)
