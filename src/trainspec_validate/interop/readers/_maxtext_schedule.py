"""Turns settings of MaxText into the optimizer, clipping and learning-rate schedule of a plan."""

from __future__ import annotations

from trainspec_validate.interop.readers._clipping_plan import put_clipping
from trainspec_validate.interop.readers._optimizer_plan import put_name, share_of
from trainspec_validate.interop.readers._plan_parts import Draft

_RATE = ("optimizer", "learning_rate")
_KINDS = {"cosine": "cosine", "wsd": "warmup-stable-decay", "constant": "constant"}
_SHARES = ("cosine_learning_rate_final_fraction", "learning_rate_final_fraction")
_TOTAL = "learning_rate_schedule_steps"
_ALL = ("opt_type", "gradient_clipping_threshold", "warmup_steps_fraction", _SHARES[0], _TOTAL)
"""Settings that a file has together which states everything, such as base.yml or a log."""


def write_optimizer(draft: Draft) -> None:
    """Everything that settings say of the optimizer; what they leave out is in base.yml, and stays open."""
    draft.lacks(("job", "num_steps"), _missing("steps"))
    put_name(draft, ("", ""), "opt_type")
    draft.lacks(("optimizer", "name"), _missing("opt_type"))
    put_clipping(draft, (0.0, ""), "gradient_clipping_threshold")
    if draft.values.get("gradient_clipping_threshold") is None:
        draft.lacks(("optimizer", "clipping"), _missing("gradient_clipping_threshold"))
    peak = draft.number("learning_rate")
    if peak is not None and peak > 0:
        draft.put((*_RATE, "peak"), peak)
    for reason in draft.reasons("learning_rate"):
        draft.lacks((*_RATE, "peak"), reason)
    draft.lacks((*_RATE, "peak"), _missing("learning_rate"))
    kind = _put_kind(draft)
    total = _put_total(draft)
    _put_warmup(draft, total)
    _put_final(draft, kind)


def _missing(name: str) -> str:
    return f"the settings do not state {name}; base.yml or another file that the job starts from decides it"


def _put_kind(draft: Draft) -> str | None:
    """The form of the schedule, which was a cosine before MaxText had a setting for it."""
    word = draft.word("lr_schedule_type")
    for reason in draft.reasons("lr_schedule_type"):
        draft.lacks((*_RATE, "kind"), reason)
        return None
    if word:
        kind = _KINDS.get(word.casefold(), "other")
        draft.put((*_RATE, "kind"), kind, "" if kind == word else f"the schedule {word[:60]}")
        return kind
    if all(draft.values.get(name) is not None for name in _ALL):
        draft.put((*_RATE, "kind"), "cosine", "no lr_schedule_type among all settings: a version with cosines alone")
        return "cosine"
    draft.lacks((*_RATE, "kind"), _missing("lr_schedule_type"))
    return None


def _put_total(draft: Draft) -> int | None:
    """Steps over which the learning rate is scheduled; -1 takes those of the job."""
    place = (*_RATE, "total_steps")
    if draft.look(_TOTAL) == -1:
        steps = draft.counted("job", "num_steps")
        if steps:
            draft.put(place, steps, f"{_TOTAL} -1: the steps of the job")
        else:
            draft.lacks(place, f"{_TOTAL} is -1, which takes the steps of the job; {_missing('steps')}")
        return steps
    found = draft.copy(place, _TOTAL)
    draft.lacks(place, _missing(_TOTAL))
    return found


def _put_warmup(draft: Draft, total: int | None) -> None:
    place, share = (*_RATE, "warmup_steps"), draft.number("warmup_steps_fraction")
    if share is not None and total and 0 <= share <= 1:
        draft.put(place, int(total * share), f"{share:g} of {total} steps")
    elif share is not None:
        draft.lacks(place, f"{share:g} of the steps of the schedule, whose number is not stated")
    reason = next(iter(draft.reasons("warmup_steps_fraction")), _missing("warmup_steps_fraction"))
    draft.lacks(place, reason)


def _put_final(draft: Draft, kind: str | None) -> None:
    """The last learning rate as a share of the peak."""
    place, share, peak = (*_RATE, "final"), draft.number(*_SHARES), draft.get(*_RATE, "peak")
    if kind == "constant":
        return
    if share is not None and peak and kind == "cosine":
        draft.put(place, share_of(share, peak), "a share of the peak")
    elif share is not None:
        draft.lacks(place, f"{share:g} of the peak where the schedule is a cosine and the peak is stated")
    draft.lacks(place, next(iter(draft.reasons(*_SHARES)), _missing(_SHARES[0])))
