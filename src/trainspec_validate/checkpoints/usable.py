"""Says why a checkpoint whose files are whole is none to resume from: its step is older, or a loader fails."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator

from trainspec_validate.checkpoints.limits import LimitError, UnreadableError, within
from trainspec_validate.checkpoints.opening import check_levels, not_json_words, read_small
from trainspec_validate.checkpoints.stated_steps import behind_its_name
from trainspec_validate.checkpoints.view import Checkpoint

_SETTINGS = "config.json"
"""End of the names of files that loaders of models read as JSON: those of the model, its adapter and its tokenizer."""
_NAMED = re.compile(
    r"^(?P<word>checkpoint|ckpt|step|global_step|iter)[-_]?(?P<step>[0-9]{1,12})(?:\.\w{1,10})*$", re.ASCII
)
_KEY = re.compile(r" \((?:[^()]{1,200}\.)?(?P<key>\w+)\)$", re.ASCII)
_ITERATIONS = frozenset({"iteration", "iter_num"})
_OF_A_PHASE = "current_step"
"""Some programs count it from 0 in each epoch."""
_INDEX = 1
"""Steps that may be indices from 0, where a name counts completed steps."""


def unusable(checkpoint: Checkpoint, older: Iterable[Checkpoint]) -> Iterator[str]:
    """Why a loader fails, or resumes from another step than the name says, in words."""
    yield from _settings(checkpoint)
    sure, hinted = list(_stale(checkpoint)), list(_stale(checkpoint, is_hint=True))
    others = list(older)
    behind = [f"{checkpoint.place(path)}: {words}" for path, words in behind_its_name(checkpoint, others)]
    if behind and not sure and not hinted:
        yield from behind
        return
    if not sure and not hinted:
        return
    if any(map(_differs, others)):
        return
    yield from sure
    if not _agrees(checkpoint) and any(map(_agrees, others)):
        yield from hinted


def counted_behind(checkpoint: Checkpoint, older: Iterable[Checkpoint]) -> Iterator[tuple[str, str]]:
    """Optimizers that count less than the name says, where those of older checkpoints count what their names say.

    An optimizer that was made anew counts less too, so it is said and decides nothing.
    """
    behind = {path: count for path, count in _updates(checkpoint) if count + _INDEX < (checkpoint.step or 0)}
    behind = {path: count for path, count in behind.items() if path not in checkpoint.doubts}
    for other in older if behind else ():
        for path, count in behind.items():
            if words := _counts_its_step(path, other):
                counts = f"it counts {count:,} optimizer steps, {words}"
                yield path, f"may be of another step than the rest, or was made anew: {counts}"
        return


def counted_ahead(checkpoint: Checkpoint, older: Iterable[Checkpoint]) -> Iterator[tuple[str, str]]:
    """Optimizers that count more than the name says, where those of older checkpoints count what their names say.

    No step updates an optimizer more often than those before it, and no way to resume makes one count more.
    """
    step = checkpoint.step
    ahead = {path: count for path, count in _updates(checkpoint) if step is not None and count > step + _INDEX}
    for other in older if ahead else ():
        for path, count in list(ahead.items()):
            if words := _counts_its_step(path, other):
                yield path, f"it counts {count:,} optimizer steps, more than the {step:,} steps of the name, {words}"
                del ahead[path]


def _updates(checkpoint: Checkpoint) -> Iterator[tuple[str, int]]:
    for path, said in checkpoint.said.items():
        if said.optimizer_step:
            yield path, said.optimizer_step


def _counts_its_step(path: str, other: Checkpoint) -> str:
    """That the same file of another checkpoint counts what its own name says, in words; empty where it does not."""
    said = other.said.get(path)
    is_own = said is not None and said.optimizer_step is not None and said.optimizer_step == other.step
    return f"and that of {other.label} as many as its name says" if is_own else ""


def _settings(checkpoint: Checkpoint) -> Iterator[str]:
    """Settings of a model that are no JSON."""
    for path, fact in checkpoint.files.items():
        if fact.kind != "file" or path.count("/") > 1 or not path.endswith(_SETTINGS):
            continue
        try:
            content = read_small(checkpoint.root / path)
        except (LimitError, UnreadableError):
            continue
        try:
            with within():
                check_levels(content)
            json.loads(content.decode("utf-8-sig"))
        except LimitError as error:
            yield f"{checkpoint.place(path)}: the file {error}"
        except ValueError as error:
            yield f"{checkpoint.place(path)}: the file {not_json_words(content, error)}"


def _stale(checkpoint: Checkpoint, *, is_hint: bool = False) -> Iterator[str]:
    """Files whose own step is older than the name of the checkpoint says, where both count the same.

    A hint is a step that may count something else: of another word than the name, next to no model, or of a part.
    """
    named = _NAMED.match(checkpoint.label)
    if named is None:
        return
    for claim in (*checkpoint.own_steps, *(checkpoint.hinted_steps if is_hint else ())):
        key = _KEY.search(claim.words)
        is_same = key is not None and (key["key"] in _ITERATIONS) == (named["word"] == "iter")
        is_sure = is_same and key is not None and key["key"] != _OF_A_PHASE and claim in checkpoint.own_steps
        if is_sure != is_hint and claim.step + _INDEX < int(named["step"]):
            words = f"{claim.words} is {claim.step:,}, older than {int(named['step']):,} of the name"
            yield f"{checkpoint.place(claim.path)}: {words}"


def _differs(checkpoint: Checkpoint) -> bool:
    """Whether the step of an older checkpoint differs from its name too, so that names count something else."""
    return any(True for _ in _stale(checkpoint))


def _agrees(checkpoint: Checkpoint) -> bool:
    """Whether some step in a checkpoint is that of its name, so that the name counts what the state does."""
    named = _NAMED.match(checkpoint.label)
    claims = (*checkpoint.own_steps, *checkpoint.hinted_steps)
    return named is not None and any(0 <= int(named["step"]) - claim.step <= _INDEX for claim in claims)
