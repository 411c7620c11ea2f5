"""Judges which step checkpoints hold, and when their files were written."""

from __future__ import annotations

from collections.abc import Iterator

from trainspec_validate.checkpoints.checks import NotApplicable, Series, Violation, check

TOLERANCE_SECONDS = 60
"""Writers end within the same minute; the next save begins later than that."""


@check("TS-CKP-088")
def step_agreement(series: Series) -> Iterator[Violation]:
    """All places that say the step say the same."""
    num_compared = 0
    for one in series.checkpoints:
        named = "name" if one.is_bundle else "name of the directory"
        said = [] if one.step is None else [(one.step, f"the {named} ({one.label})")]
        for claim in one.claims:
            num_compared += bool(said)
            other = next((words for step, words in said if step != claim.step), "")
            if other:
                step = said[0][0]
                words = f"{claim.words} is {claim.step:,}, and {other} says {step:,}"
                yield Violation(one.place(claim.path), words, "resume from a checkpoint whose parts agree")
            else:
                said.append((claim.step, claim.words))
    if not num_compared:
        raise NotApplicable("no checkpoint that says its step in two places")


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
