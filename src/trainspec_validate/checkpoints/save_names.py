"""Reads what the name of a save counts, and whether it is one that programs write under or that a copy has."""

from __future__ import annotations

import re
from collections.abc import Iterable

from trainspec_validate.checkpoints.bundles import form_of
from trainspec_validate.checkpoints.content import FURTHER_SUFFIXES, STATE_SUFFIXES

STEP_NAME = re.compile(
    r"^(?:(?:checkpoint|step|global_step|iter|ckpt|epoch|save)[-_]?)?(?P<step>[0-9]{1,12})(?P<rest>\.orbax-checkpoint-tmp.*)?$",
    re.ASCII,
)
_ENDS_OF_STATE = sorted((*STATE_SUFFIXES, *FURTHER_SUFFIXES), key=len, reverse=True)
_END = re.compile(rf"(?:\.weights\.h5|{'|'.join(map(re.escape, _ENDS_OF_STATE))})$", re.IGNORECASE)
_NUMBER = (
    r"(?P<number>[0-9]{1,3}(?:,[0-9]{3})+|[0-9]{1,30}(?:_[0-9]{1,12})?)"
    r"(?P<unit>(?:[kKMBT]|e[0-9]{1,2})(?![A-Za-z0-9]))?"
)
_COUNT = re.compile(
    r"(?:^|[^A-Za-z])(?P<word>checkpoint|ckpt|epoch|ep|global_?step|step|iter|iteration|update|batch|ba|save|tokens)"
    rf"[-_=]?{_NUMBER}(?![0-9]|\.[0-9])",
    re.ASCII | re.IGNORECASE,
)
_BEFORE = re.compile(
    r"(?<![A-Za-z0-9.])(?P<number>[0-9]{1,30})(?P<unit>[kKMB])?[-_]?(?P<word>epoch|step|iter|iteration|update)s?(?![A-Za-z0-9])",
    re.ASCII | re.IGNORECASE,
)
"""A number before its word, as in `9epoch.pth` and `model_9000_steps.pt`."""
_LAST = re.compile(r"(?<![0-9]\.)(?<![0-9])(?P<number>[0-9]{1,12})(?P<unit>[kK])?$", re.ASCII)
_SCORED = re.compile(r"(?<=[-_])(?P<number>[0-9]{1,12})_[A-Za-z]\w{0,99}=-?[0-9]{1,30}(?:\.[0-9]{1,30})?$", re.ASCII)
"""A number before a score, as Ignite writes it: https://docs.pytorch.org/ignite/generated/ignite.handlers.checkpoint.Checkpoint.html."""
_EPOCH = re.compile(r"(?:^|(?<=[-_.]))(?P<number>[0-9]{1,12})[-_][0-9]{1,12}\.[0-9]{1,12}$", re.ASCII)
"""An epoch before a loss, as in `weights.{epoch:02d}-{val_loss:.2f}`: https://keras.io/api/callbacks/model_checkpoint/."""
_RANKS = re.compile(
    r"(?:^|[-_.])(?:mp|tp|pp|dp|cp|rank|shard|part|proc|process|worker|gpu|node|of)[-_.]?[0-9]",
    re.ASCII | re.IGNORECASE,
)
_DATE = re.compile(
    r"(?<![0-9])(?P<number>(?:19|20)[0-9][0-9][-_]?(?:0[1-9]|1[0-2])[-_]?(?:0[1-9]|[12][0-9]|3[01]))(?![0-9])", re.ASCII
)
DATE = "date"
"""Word of a day, which some names have in place of a count."""
STEP_WORDS = ("globalstep", "step", "iteration", "iter", "update", "batch", "ba")
"""Words of optimizer steps in names."""
EPOCHS = ("epoch", "ep")
WORDS = (*STEP_WORDS, "tokens", *EPOCHS, "checkpoint", "ckpt", "save", DATE)
"""Words of counts in names, from those that decide first."""
_UNITS = {"k": 3, "m": 6, "b": 9, "t": 12}
_UNFINISHED = (
    r"(?:tmp|temp|part|partial|incomplete|in_?progress|unfinished|uploading|downloading|download|crdownload|filepart"
    r"|gstmp|swp|corrupt(?:ed)?|broken|trash|deleted)"
)
_BEGINS = re.compile(rf"^[._]?{_UNFINISHED}[-_.](?P<rest>.+)$", re.IGNORECASE)
_ENDS = re.compile(rf"^(?P<rest>.+?)[-_.]{_UNFINISHED}[0-9]*$", re.IGNORECASE)
_ASIDE = r"(?:bak|backup|old|orig|original|copy|failed|bad)"
_ASIDE_BEGINS = re.compile(rf"^(?:[._]+|{_ASIDE}(?:[-_. ]of)?[-_. ])(?P<rest>.+)$", re.IGNORECASE)
_ASIDE_ENDS = re.compile(rf"^(?P<rest>.+?)(?:~|[-_. ]{_ASIDE}[-_. ]?[0-9]*)$", re.IGNORECASE)


def counts_in(name: str) -> dict[str, tuple[int, ...]]:
    """Numbers that a name counts, by the word next to the number; by the form of the name where there is no word.

    >>> counts_in("epoch-1_step-1k"), counts_in("9epoch.pth"), list(counts_in("best_model_9_acc=0.77.pt").values())
    ({'epoch': (1,), 'step': (1000,)}, {'epoch': (9,)}, [(9,)])
    """
    stem = _END.sub("", name)
    matches = [*_COUNT.finditer(stem), *_BEFORE.finditer(stem)]
    found = {match["word"].lower().replace("_", ""): _numbers(match) for match in reversed(matches)}
    found = {word: found[word] for word in sorted(found)}
    if not found and (match := _DATE.search(stem)):
        return {DATE: (int(re.sub(r"[^0-9]", "", match["number"])),)}
    if not found and (match := _SCORED.search(stem) or _EPOCH.search(stem)):
        return {form_of(stem): (int(match["number"]),)}
    last = _LAST.search(stem)
    if found or not last:
        return found
    form = form_of(stem.removesuffix(last["unit"] or ""))  # the other units are sizes of models, such as 7b
    return {form: (int(last["number"]) * (1_000 if last["unit"] else 1),)}


def _numbers(match: re.Match[str]) -> tuple[int, ...]:
    word, text, unit = match["word"].lower().replace("_", ""), match["number"].replace(",", ""), match["unit"]
    if word in STEP_WORDS and re.fullmatch(r"[0-9]{1,3}_000", text):
        text = text.replace("_", "")  # thousands
    numbers = tuple(map(int, text.split("_")))
    exponent = 0 if not unit else _UNITS.get(unit.lower()) or int(unit[1:])
    return (*numbers[:-1], numbers[-1] * 10**exponent)


def step_in(name: str) -> int | None:
    """The optimizer step that a name says next to other words; None where it counts something else, or nothing.

    >>> step_in("step3000-unsharded"), step_in("best-5"), step_in("epoch-3")
    (3000, None, None)
    """
    found = counts_in(name)
    return next((found[word][-1] for word in (*STEP_WORDS, "checkpoint", "ckpt") if word in found), None)


def names_rank(name: str) -> bool:
    """Whether a name has the number of a rank or a shard of one save.

    >>> [names_rank(name) for name in ("ep1-ba10-rank0.pt", "step_9_of_20.pt", "model_9.pt")]
    [True, True, False]
    """
    return _RANKS.search(name) is not None


def is_counted(name: str) -> bool:
    """Whether a name has a word of saves with a number, as those of ColossalAI and NeMo have among others.

    >>> [is_counted(name) for name in ("epoch-1_step-100", "model--val_loss=1.00-step=9-last", "weights")]
    [True, True, False]
    """
    return not counts_in(name).keys().isdisjoint(WORDS[:-1])


def is_unfinished(name: str) -> bool:
    """Whether the name of a save has a word by which programs and people mark what is no whole one.

    >>> [is_unfinished(name) for name in ("step_9_tmp.pt", "checkpoint-9.partial", "tmp-run", "checkpoint-9.bak")]
    [True, True, False, False]
    """
    stem = _END.sub("", name)
    match = _BEGINS.match(stem) or _ENDS.match(stem)
    return match is not None and (is_counted(match["rest"]) or STEP_NAME.match(match["rest"]) is not None)


def is_set_aside(name: str) -> bool:
    """Whether the name of a save has a word by which people mark what they keep and do not resume from.

    >>> [is_set_aside(name) for name in ("checkpoint-9.bak", "_checkpoint-9", "old_step_9.pt", "step9-unsharded")]
    [True, True, True, False]
    """
    stem = _END.sub("", name)
    match = _ASIDE_BEGINS.match(stem) or _ASIDE_ENDS.match(stem)
    return match is not None and (is_counted(match["rest"]) or STEP_NAME.match(match["rest"]) is not None)


def agree(words: Iterable[str]) -> tuple[str, str] | None:
    """The word of an epoch and that of a step among words of a name that has both."""
    held = set(words)
    epoch = next((word for word in EPOCHS if word in held), None)
    step = next((word for word in STEP_WORDS if word in held), None)
    return (epoch, step) if epoch and step else None
