"""Judges the checkpoints of one run together, and the pointers to the newest of them."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise

from trainspec_validate.checkpoints.bundles import form_of
from trainspec_validate.checkpoints.checks import Checkpoint, CheckpointPolicy, NotApplicable, Series, Violation, check
from trainspec_validate.checkpoints.content import may_hold_state
from trainspec_validate.checkpoints.view import MANIFEST_NAME, Pointer

MAX_GROWTH = 0.01
_NO_POINTER = "no pointer next to checkpoints"
_TOO_FEW = "fewer than two whole checkpoints that name their steps"


def _resolved(series: Series) -> list[tuple[Pointer, Checkpoint]]:
    found = [(pointer, pointer.target) for pointer in series.pointers if pointer.target and not pointer.problem]
    if not found:
        raise NotApplicable(_NO_POINTER)
    return found


def _whole(series: Series, wanted: int = 2) -> list[Checkpoint]:
    found = [one for one in series.stepped if one.is_complete]
    if len(found) < wanted:
        raise NotApplicable(_TOO_FEW)
    return found


@check("TS-CKP-091")
def pointer_resolves(series: Series) -> Iterator[Violation]:
    """A pointer holds one word, which names a checkpoint next to it."""
    if not series.pointers:
        raise NotApplicable(_NO_POINTER)
    for pointer in series.pointers:
        if pointer.problem:
            yield Violation(pointer.name, f"the pointer {pointer.problem}", "write the name of one checkpoint into it")
        elif pointer.target is None:
            words = f"the pointer names {pointer.content!r}, and there is no such checkpoint next to it"
            newest = next((one.label for one in reversed(series.checkpoints) if one.is_complete), "")
            yield Violation(pointer.name, words, f"the newest whole checkpoint is {newest}" if newest else "")


@check("TS-CKP-092")
def pointer_complete(series: Series) -> Iterator[Violation]:
    """The checkpoint that a pointer names is whole."""
    for pointer, target in _resolved(series):
        if not target.is_complete:
            why = target.troubles[0].message if target.troubles else "it holds no file of a known format"
            words = f"the pointer names {target.label}, which is not whole: {why}"
            yield Violation(pointer.name, words, "move the pointer only when every rank has written its part")


@check("TS-CKP-093")
def pointer_current(series: Series) -> Iterator[Violation]:
    """A pointer lags no more than one whole checkpoint behind."""
    for pointer, target in _resolved(series):
        step = target.step
        newer = [one for one in series.stepped if one.is_complete and step is not None and (one.step or 0) > step]
        if len(newer) > 1:
            words = f"the pointer names {target.label}, and {len(newer):,} newer checkpoints are whole"
            yield Violation(pointer.name, words, f"the newest is {newer[-1].label}")


@check("TS-CKP-094")
def series_retention(series: Series, policy: CheckpointPolicy) -> Iterator[Violation]:
    """As many whole checkpoints are kept as the policy says, once there were so many saves."""
    whole = _whole(series, 1)
    steps = policy.interval.steps
    if steps is None:
        raise NotApplicable("no interval in steps in the policy")
    wanted = min(policy.retention.num_kept, (whole[-1].step or 0) // steps)
    if len(whole) < wanted:
        words = f"{len(whole):,} whole checkpoint{'s are' if len(whole) > 1 else ' is'} kept at step {whole[-1].step:,}"
        yield Violation(series.name, f"{words}, and the policy keeps {policy.retention.num_kept:,}", "keep older ones")


@check("TS-CKP-095")
def series_cadence(series: Series, policy: CheckpointPolicy) -> Iterator[Violation]:
    """The newest checkpoints are no further apart than the interval of the policy."""
    whole = _whole(series)
    if policy.interval.steps is None:
        raise NotApplicable("no interval in steps in the policy")
    for before, after in pairwise(whole[-policy.retention.num_kept :]):
        apart = (after.step or 0) - (before.step or 0)
        if apart > policy.interval.steps:
            words = f"{apart:,} steps are between {before.label} and {after.label}"
            remedy = f"the policy saves every {policy.interval.steps:,}: look for a save that failed"
            yield Violation(after.name, words, remedy)


@check("TS-CKP-096")
def series_growth(series: Series) -> Iterator[Violation]:
    """Neighbours of one layout have the same size."""
    for before, after in pairwise(_whole(series)):
        layouts = [one.manifest.layout if one.manifest else None for one in (before, after)]
        sizes = [_state_bytes(one) for one in (before, after)]
        if layouts[0] == layouts[1] and before.formats == after.formats and _is_one_series(before, after):
            change = abs(sizes[1] - sizes[0]) / max(1, *sizes)
            if change > MAX_GROWTH:
                words = f"the checkpoint has {sizes[1]:,} bytes of state, and {before.label} before it {sizes[0]:,}"
                yield Violation(after.name, words, "the same state has the same size: look for a lost or stale shard")


def _state_bytes(one: Checkpoint) -> int:
    """Bytes of values in containers, and of files that may hold state: a log next to them grows with each step."""
    held = {path: fact.size_bytes for path, fact in one.files.items() if may_hold_state(path)}
    return sum({**held, **one.value_bytes}.values())


def _is_one_series(before: Checkpoint, after: Checkpoint) -> bool:
    """Whether names have one form: `best.ckpt` may hold less than `last.ckpt` next to it, and `heat` than `burgers`."""
    return before.is_bundle == after.is_bundle and form_of(before.label) == form_of(after.label)


@check("TS-CKP-097")
def checkpoint_order(series: Series) -> Iterator[Violation]:
    """Later steps have consumed more tokens, and were sealed later."""
    sealed = [one for one in series.stepped if one.manifest]
    if len(sealed) < 2:
        raise NotApplicable(f"fewer than two checkpoints with a step and a {MANIFEST_NAME}")
    for before, after in pairwise(sealed):
        for words in _disorder(before, after):
            yield Violation(
                after.place(MANIFEST_NAME), f"{words} {before.label}", "look for a step that was named wrongly"
            )


def _disorder(before: Checkpoint, after: Checkpoint) -> Iterator[str]:
    if before.manifest is None or after.manifest is None:
        return
    tokens = before.manifest.num_tokens, after.manifest.num_tokens
    if tokens[0] is not None and tokens[1] is not None and tokens[1] <= tokens[0]:
        yield f"num_tokens is {tokens[1]:,.0f}, no more than the {tokens[0]:,.0f} of"
    created = before.manifest.created, after.manifest.created
    if created[0] and created[1] and created[1] < created[0]:
        yield f"created is {created[1]}, before the {created[0]} of"


@check("TS-CKP-098")
def reported_checkpoints_present(series: Series) -> Iterator[Violation]:
    """Saves that the streams report can be restored, from the oldest checkpoint that is kept."""
    if series.saved is None:
        raise NotApplicable("no stream of one run next to the checkpoints")
    whole = {one.step for one in _whole(series, 1)}
    oldest = min(step for step in whole if step is not None)
    wanted = [saved for saved in series.saved if saved.step >= oldest]
    if not wanted:
        raise NotApplicable("no save in the stream that belongs to the steps that are kept")
    for saved in wanted:
        if saved.step not in whole:
            words = (
                f"the stream says that {saved.id} was committed at step {saved.step:,}, and no whole checkpoint says so"
            )
            yield Violation(
                series.name, words, "report a deletion with train.checkpoint.delete, or look for what was lost"
            )
