"""Judges what a stack does with checkpoints: which it trusts, refuses, commits and keeps."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterator

from trainspec_conformance.criteria import CannotJudgeError, Case, NotArrivedError, Problem, check
from trainspec_conformance.records import Damaged, Entry, Injected, Listed, Started
from trainspec_conformance.view import View
from trainspec_validate.documents.types.scenario import Criterion
from trainspec_validate.documents.types.trace import Refused, Restore, StepDone

WINDOW_SECONDS = 1.0
"""How late the suite may see a line of one process, with lines of another in time: each writes a file of its own."""


def resumes(view: View) -> Iterator[tuple[Entry, list[tuple[Entry, Restore]], list[tuple[Entry, Damaged]]]]:
    """Each start that must resume from a checkpoint, with the restores of its ranks and the damage before it."""
    starts = [entry for entry, record in view.of(Started)]
    restored_after: dict[float, list[tuple[Entry, Restore]]] = {}
    """Restores between a start and the next start, by the time of the start."""
    times = sorted({entry.seconds for entry in starts})
    for at, one in view.restores():
        if (number := bisect_left(times, at.seconds)) and at.seconds not in times[number : number + 1]:
            restored_after.setdefault(times[number - 1], []).append((at, one))
    for number, (entry, record) in enumerate(view.of(Started)):
        if not record.resume:
            continue
        before = starts[number - 1].seconds if number else -1.0
        restored = restored_after.get(entry.seconds, [])
        first = {one.attempt for _, one in restored[:1]}
        damaged = [(at, one) for at, one in view.of(Damaged, before) if at.seconds < entry.seconds]
        yield entry, [(at, one) for at, one in restored if one.attempt in first], damaged


def _resumes(case: Case) -> list[tuple[Entry, list[tuple[Entry, Restore]], list[tuple[Entry, Damaged]]]]:
    found = list(resumes(case.trial))
    if not found:
        raise CannotJudgeError("nothing was resumed from a checkpoint")
    for _, restored, _ in found:
        if not restored:
            raise CannotJudgeError("after a start no rank reported the state that it resumed from")
    return found


def _committed(view: View, before: float) -> dict[str, int]:
    """Checkpoints that were committed, and are there, before a time: their steps by name."""
    listed = [record for entry, record in view.of(Listed) if entry.seconds < before]
    there = set(listed[-1].checkpoints) if listed else None
    found = {save.checkpoint: save.step for entry, save in view.saves("committed") if entry.seconds < before}
    return {name: step for name, step in found.items() if there is None or name in there}


@check("restores-newest-good")
def restores_newest_good(case: Case, criterion: Criterion) -> Iterator[Problem]:
    """Each resumed start restores the newest checkpoint that was committed and not damaged."""
    for start, restored, damaged in _resumes(case):
        bad = {one.checkpoint for _, one in damaged if not one.kind.startswith("pointer-") and not one.is_sound}
        good = {name: step for name, step in _committed(case.trial, start.seconds).items() if name not in bad}
        if not good:
            raise CannotJudgeError("no checkpoint was committed and left undamaged before the start")
        newest = max(good.values())
        for entry, record in restored:
            problem = None
            if record.source == "initial" or record.step == 0:
                problem = f"it resumed from the initial state, not from step {newest}"
            elif record.checkpoint in bad:
                problem = f"it resumed from {record.checkpoint}, which is damaged"
            elif record.step < newest:  # a newer one may have been committed just before it could be told
                problem = f"it resumed from step {record.step}, the newest good checkpoint is of {newest}"
            if problem is not None:
                yield Problem(problem, (start, entry))
                break


@check("names-damage")
def names_damage(case: Case, criterion: Criterion) -> Iterator[Problem]:
    """Each damaged checkpoint is refused by name, with a reason, before ranks train.

    Ranks that restore and the process that refuses write at the same time, so that their order is not looked at: what
    is refused up to the first step is.
    """
    for start, restored, damaged in _resumes(case):
        steps = [entry.seconds for entry, _ in case.trial.of(StepDone, start.seconds)]
        until = min(steps, default=restored[-1][0].seconds) + WINDOW_SECONDS
        for at, one in damaged:
            is_whole_gone = one.kind == "delete-file" and not one.file  # it was one file: nothing is left to refuse
            is_whole = one.is_sound or one.kind == "partial-directory" or is_whole_gone
            if one.kind.startswith("pointer-") or is_whole:
                continue
            refused = case.trial.of(Refused, at.seconds)
            told_seconds = [entry.seconds for entry, record in refused if record.checkpoint == one.checkpoint]
            if not any(seconds <= until for seconds in told_seconds):
                message = f"{one.checkpoint} was damaged ({one.kind}) and was not refused by name"
                yield Problem(message, (at,), by_load=bool(told_seconds))


@check("recovers-from-undamaged")
def recovers_from_undamaged(case: Case, criterion: Criterion) -> Iterator[Problem]:
    """A recovery of a running job leaves out a checkpoint that was damaged after its commit."""
    damaged = {record.checkpoint: entry for entry, record in case.trial.of(Damaged)}
    struck = [entry.seconds for entry, _ in case.trial.injections()]
    if not damaged or not struck:
        raise CannotJudgeError("no checkpoint was damaged, or no process was killed afterwards")
    restored = case.trial.restores(struck[0])
    if not restored:
        raise CannotJudgeError("no rank reported from which state it recovered")
    for entry, record in restored:
        if record.checkpoint in damaged:
            message = f"rank {record.rank} recovered from {record.checkpoint}, which is damaged"
            yield Problem(message, (damaged[record.checkpoint], entry))
            return
    steps = {save.checkpoint: save.step for _, save in case.trial.saves("committed")}
    newest = max((steps.get(name, 0) for name in damaged), default=0)
    first = restored[0][1]
    if first.source != "checkpoint" or first.step > newest:
        reason = f"the recovery continued from step {first.step} ({first.source}), and not from before the damage"
        yield Problem(f"damage was not judged: {reason}", (restored[0][0],), is_remark=True)


@check("agree-on-restore")
def agree_on_restore(case: Case, criterion: Criterion) -> Iterator[Problem]:
    """All ranks of an attempt resume from the same state."""
    by_attempt: dict[int, list[tuple[Entry, Restore]]] = {}
    for entry, record in case.trial.restores():
        by_attempt.setdefault(record.attempt, []).append((entry, record))
    if not by_attempt:
        raise CannotJudgeError("no rank reported the state that it resumed from")
    for found in by_attempt.values():
        steps = {record.step for _, record in found}
        digests = {record.digest for _, record in found if record.digest}
        if len(steps) > 1:
            yield Problem(f"ranks resumed from steps {sorted(steps)}", tuple(entry for entry, _ in found))
        elif len(digests) > 1:
            yield Problem("ranks resumed from states with different digests", tuple(entry for entry, _ in found))


@check("restored-as-saved")
def restored_as_saved(case: Case, criterion: Criterion) -> Iterator[Problem]:
    """Restored state has the digest that was reported at its save."""
    saved = {}
    for stage in ("begin", "committed", "snapshot"):
        saved.update({save.checkpoint: save.digest for _, save in case.trial.saves(stage) if save.digest})
    compared = 0
    for entry, record in case.trial.restores():
        if record.checkpoint in saved and record.digest:
            compared += 1
            if saved[record.checkpoint] != record.digest:
                yield Problem(f"{record.checkpoint} was restored with another digest than it was saved with", (entry,))
    if not compared:
        raise CannotJudgeError("the trace reports no digest of a state both when saved and when restored")


@check("newest-is-whole")
def newest_is_whole(case: Case, criterion: Criterion) -> Iterator[Problem]:
    """The newest committed checkpoint at the end passes the validator, and the pointer names it."""
    listed = list(case.trial.of(Listed))
    if not listed or listed[-1][1].newest is None:
        told = [save.checkpoint for _, save in case.trial.saves("committed")][-1:] or ["none"]
        where = f"the last one in the trace is {told[0]}, the descriptor has {case.store.directory}/{case.store.name}"
        raise CannotJudgeError(f"no committed checkpoint was left at the end: {where}")
    entry, record = listed[-1]
    errors = [finding for finding in record.findings if finding.startswith("error")]
    for finding in errors[:5]:
        yield Problem(f"{record.newest}: {finding}", (entry,))
    if record.pointer is not None and not record.pointer.endswith(str(record.newest)):
        yield Problem(f"the pointer says {record.pointer!r}, the newest is {record.newest}", (entry,))


@check("save-fails-openly")
def save_fails_openly(case: Case, criterion: Criterion) -> Iterator[Problem]:
    """While writes to storage fail, a save is reported as failed and none as committed, and steps continue."""
    kinds = {"fill-disk", "fail-writes", "fail-device"}
    broken = [entry for entry, one in case.trial.injections() if one.kind in kinds]
    if not broken:
        raise CannotJudgeError("the storage target was never made to fail")
    mends = [one for _, one in case.trial.of(Injected) if one.kind == "mend-device"]
    if mends and not any(one.value for one in mends):
        raise NotArrivedError("no write failed while the device did: no rank on its host writes to the store")
    since, last_step = broken[-1].seconds, case.trial.injections()[-1][1].step
    mended = min(
        (entry.seconds for entry in case.trial.entries if _mends(entry) and entry.seconds > since), default=1e9
    )
    failed = [entry for entry, _ in case.trial.saves("failed", since)]
    if not failed:
        yield Problem("no save was reported as failed while writes to storage failed", (broken[-1],))
    for entry, save in case.trial.saves("committed", since):
        if entry.seconds < mended and save.step > last_step:
            yield Problem(f"{save.checkpoint} was reported as committed while writes to storage failed", (entry,))
    if failed and not any(step > last_step for step in case.trial.steps_done(since).values()):
        yield Problem("no step was completed after the failed save", (failed[0],))


def _mends(entry: Entry) -> bool:
    return getattr(entry.record, "kind", "") in {"free-disk", "mend-writes", "mend-device"}


@check("saves-again")
def saves_again(case: Case, criterion: Criterion) -> Iterator[Problem]:
    """After the last fault, or the last start, a checkpoint is committed again."""
    entries = [entry for entry in case.trial.entries if _mends(entry)]
    since = max([case.trial.start_seconds, *(entry.seconds for entry in entries)])
    since = max([since, *(entry.seconds for entry, _ in case.trial.injections())])
    if not case.trial.saves("committed", since):
        yield Problem("no checkpoint was committed afterwards")


@check("earlier-untouched")
def earlier_untouched(case: Case, criterion: Criterion) -> Iterator[Problem]:
    """A checkpoint that was the newest before the fault outlives it."""
    injected = case.trial.injections()
    if not injected:
        raise CannotJudgeError("nothing was injected")
    before = [save for entry, save in case.trial.saves("committed") if entry.seconds < injected[0][0].seconds]
    if not before:
        raise CannotJudgeError("no checkpoint was committed before the fault")
    after = case.trial.saves("committed", injected[0][0].seconds)
    listed = list(case.trial.of(Listed))
    if not listed:
        raise CannotJudgeError("the suite did not list the storage target at the end")
    if len(after) < case.scenario.job.num_kept and before[-1].checkpoint not in listed[-1][1].checkpoints:
        yield Problem(f"{before[-1].checkpoint} is gone, and only {len(after)} newer ones were committed")


@check("canary-lives")
def canary_lives(case: Case, criterion: Criterion) -> Iterator[Problem]:
    """Nothing that a checkpoint holds was executed."""
    if not list(case.trial.of(Damaged)):
        raise CannotJudgeError("no hostile file was planted")
    for entry, record in case.trial.of(Listed):
        if record.canary:
            yield Problem("reading a checkpoint executed what it holds", (entry,))
            return


@check("saves-over-left-over")
def saves_over_left_over(case: Case, criterion: Criterion) -> Iterator[Problem]:
    """A step with a partial checkpoint in the store is committed all the same, under that name or another one."""
    left = [(entry, one) for entry, one in case.trial.of(Damaged) if one.kind == "partial-directory"]
    if not left:
        raise CannotJudgeError("no partial directory was left")
    entry, one = left[-1]
    committed = [save for _, save in case.trial.saves("committed", entry.seconds)]
    names = {
        name for save in committed for name in (save.checkpoint, case.store.name.replace("{step}", str(save.step)))
    }
    if one.checkpoint not in names:
        yield Problem(f"{one.checkpoint}, of which a partial directory existed, was never committed", (entry,))
