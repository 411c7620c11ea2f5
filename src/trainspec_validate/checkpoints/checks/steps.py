"""Judges which step checkpoints hold, and when their files were written."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import chain

from trainspec_validate.checkpoints.checks import Checkpoint, NotApplicable, Series, Violation, check
from trainspec_validate.checkpoints.lacking import NUM_COMPARED
from trainspec_validate.checkpoints.named_steps import step_of_name
from trainspec_validate.checkpoints.stated_steps import behind_its_name
from trainspec_validate.checkpoints.twins import borrowed, copied_from
from trainspec_validate.checkpoints.usable import counted_ahead
from trainspec_validate.checkpoints.view import StepClaim

_AGREE = "resume from a checkpoint whose parts agree"
TOLERANCE_SECONDS = 60
"""Writers end within the same minute; the next save begins later than that."""


@check("TS-CKP-088")
def step_agreement(series: Series) -> Iterator[Violation]:
    """All places that say the step say the same."""
    num_compared = sum("step" in one.examined for one in series.checkpoints)
    mixed = list(_mixed(series))
    num_compared += len(mixed)
    yield from mixed
    for one in series.checkpoints:
        named = "name" if one.is_bundle else "name of the directory"
        beside = chain((each for each in series.checkpoints if each is not one), series.beside)
        step = step_of_name(one, beside)
        said = [] if step is None else [(step, f"the {named} ({one.label})")]
        for claim in one.claims if step is not None else _claims_of_parts(one):
            num_compared += bool(said)
            other = next((words for step, words in said if step != claim.step), "")
            if other:
                step = said[0][0]
                words = f"{claim.words} is {claim.step:,}, and {other} says {step:,}"
                yield Violation(one.place(claim.path), words, _AGREE)
            else:
                said.append((claim.step, claim.words))
    if not num_compared:
        raise NotApplicable("no checkpoint that says its step in two places")


def _mixed(series: Series) -> Iterator[Violation]:
    """Parts that count other steps than the rest, and those that are of another checkpoint next to it."""
    roots = [one.root for one in series.checkpoints if not one.is_bundle]
    places = [one.root / one.bundle if one.is_bundle else one.root for one in series.checkpoints]
    for one in series.checkpoints:
        told = [trouble for trouble in one.troubles if trouble.aspect == "step"]
        yield from (Violation(one.place(each.path), each.message, each.help) for each in told)
        known = {each.path for each in told}
        for path, words in borrowed(one, roots):
            if path not in known:
                yield Violation(one.place(path), words, _AGREE)
        before = _before(one, series)
        for path, words in (*counted_ahead(one, before), *behind_its_name(one, before)):
            if path not in known:
                yield Violation(one.place(path), words, _AGREE)
        yield from (Violation(one.name, words, _AGREE) for words in copied_from(one, places))


def _before(one: Checkpoint, series: Series) -> list[Checkpoint]:
    """The few checkpoints of the steps before, from the newest on."""
    older = [each for each in series.checkpoints if each.step is not None and one.step is not None]
    older = sorted((each for each in older if (each.step or 0) < (one.step or 0)), key=lambda each: -(each.step or 0))
    return older[:NUM_COMPARED]


def _claims_of_parts(one: Checkpoint) -> list[StepClaim]:
    """Claims of the parts of one state; two files of Lightning, such as best.ckpt and last.ckpt, are two states."""
    states = [claim for claim in one.claims if claim.path.endswith(".ckpt") and "/" not in claim.path]
    return [claim for claim in one.claims if claim not in states] if len(states) > 1 else one.claims


@check("TS-CKP-090")
def unmodified_since_commit(series: Series) -> Iterator[Violation]:
    """No file is newer than the mark that commits the checkpoint, where no manifest vouches for the files."""
    marked = [one for one in series.checkpoints if one.marks and not one.manifest]
    if not marked:
        raise NotApplicable("no completion mark without a manifest that vouches for the files")
    for one in marked:
        mark = max(one.marks, key=lambda path: one.files[path].modified_ns)
        for path, fact in one.files.items():
            seconds = (fact.modified_ns - one.files[mark].modified_ns) / 1e9
            if seconds > TOLERANCE_SECONDS and fact.kind == "file":
                words = f"the file is {seconds:,.0f} s newer than {mark}, which is written last"
                yield Violation(
                    one.place(path), words, "a later save into the same directory was interrupted, or a copy was"
                )
