"""Judges whether losses and digests depend on what they are of: stored values, seed, learning rate and samples."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from decimal import Decimal
from itertools import pairwise

from trainspec_conformance.criteria import CannotJudgeError, Case, NotArrivedError, Problem, check
from trainspec_conformance.criteria.checkpoints import resumes
from trainspec_conformance.criteria.trajectory import Step, final_steps, steps
from trainspec_conformance.records import Damaged, Ended, Entry, Injected, Started, Stored, Unread, Waited
from trainspec_conformance.view import View
from trainspec_validate.documents.types.scenario import Criterion
from trainspec_validate.documents.types.trace import Restore, Save
from trainspec_validate.model.units import counted

NOISE = 10.0
"""How many times the difference without a change of values a difference must be, to be one of the change."""
ONE_TENSOR = "scaled-tensor"
"""A change that need not change the first loss: the tensor may be a moment, or be normalized afterwards."""
LEAST_DIFFERENCE = 1e-9
"""Relative difference of two losses, where a run repeats bit by bit."""

LEAST_STEPS = 10
"""Pairs of optimizer steps in a row by which it is judged whether steps change the loss."""
LEAST_RATE = 0.1
"""Share of the highest learning rate below which an optimizer step may be too small to be seen."""
STEADY = 300.0
"""How many times the noise half of the other changes must be, so that repeated losses are no chance."""
MOST_DECIMALS = 12
"""Digits after the point up to which a loss counts as one that was rounded."""


def _not_arrived(case: Case, reason: str) -> CannotJudgeError:
    """Why nothing is said: the suite's own doing, but where the stack did not come so far."""
    ended = [record.reason for _, record in case.trial.of(Ended)]
    came = ended == ["done"] and all(record.seen for _, record in case.trial.of(Waited))
    return NotArrivedError(reason) if came and list(case.trial.of(Started)) else CannotJudgeError(reason)


def _control(case: Case) -> View:
    if case.control is None:
        raise CannotJudgeError("there is no run without faults to compare with")
    return case.control


def _difference(mine: Step, theirs: Step) -> float:
    """Relative difference of two losses; infinite where one is not finite."""
    found = abs(mine.loss - theirs.loss) / max(abs(theirs.loss), 1e-30)
    return found if found == found else float("inf")  # noqa: PLR0124 - not a number


# --- stored values ----------------------------------------------------------------------------------------------


def _first_steps(case: Case) -> Iterator[tuple[float, Step, Step, int]]:
    """For each resume from a changed checkpoint: the factor, the first step, that of the baseline run, its number."""
    wanted = final_steps(_control(case))
    done = steps(case.trial)
    for _, restored, damaged in resumes(case.trial):
        factors = [one.factor for _, one in damaged if one.is_sound and one.kind != ONE_TENSOR]
        if not factors:
            continue
        own = {key: one for key, one in done.items() if key[0] in {record.attempt for _, record in restored}}
        first = min(own, default=None)
        if first is None or first[1] not in wanted:
            raise CannotJudgeError("no step after a resume can be compared with the baseline run")
        yield factors[-1], own[first], wanted[first[1]], first[1]


@check("loss-follows-values")
def loss_follows_values(case: Case, criterion: Criterion) -> Iterator[Problem]:
    """The first loss after a resume is that of the baseline run, and another one after a change of values."""
    noise, seen = LEAST_DIFFERENCE / NOISE, set()
    tolerance = 0.0 if case.claims.resume_class == "bitwise" else case.claims.relative_tolerance
    for factor, mine, theirs, step in _first_steps(case):
        found = _difference(mine, theirs)
        seen.add(factor == 1.0)
        entries = (mine.entry, theirs.entry)
        if factor == 1.0:
            noise = max(noise, found)
            if found > tolerance:
                message = f"the loss of step {step} is {mine.loss!r} after a new manifest, {theirs.loss!r} without it"
                yield Problem(message, entries)
        elif found <= NOISE * noise:
            message = f"the loss of step {step} is {mine.loss!r}, and {theirs.loss!r} without the change of all values"
            yield Problem(f"{message} by the factor {factor:.3f}", entries)
    if seen != {True, False}:
        raise _not_arrived(case, "no resume followed a new manifest, or none a change of values")


@check("recovery-follows-values")
def recovery_follows_values(case: Case, criterion: Criterion) -> Iterator[Problem]:
    """After a change of values in a running job, a recovery from them does not repeat the loss of before."""
    struck = [entry.seconds for entry, record in case.trial.of(Injected) if record.kind == "kill"]
    changes = [
        record
        for entry, record in case.trial.of(Damaged, case.trial.start_seconds)
        if record.factor != 1.0 and struck and entry.seconds < struck[-1]
    ]
    if not changes:
        raise _not_arrived(case, "no values were changed while the job ran, or no process was killed afterwards")
    name, restored = changes[-1].checkpoint, case.trial.restores(struck[-1])
    if not restored:
        raise CannotJudgeError("no rank reported from which state it recovered")
    entry, state = restored[0]
    if state.source != "checkpoint" or state.checkpoint != name:
        message = f"it continued from step {state.step} ({state.checkpoint or state.source}), not from {name}"
        yield Problem(f"the recovery was not judged: {message}", (entry,), is_remark=True)
        return
    saved = [save.attempt for _, save in case.trial.saves("committed") if save.checkpoint == name]
    before = steps(case.trial).get((saved[-1] if saved else -1, state.step + 1))
    after = steps(case.trial).get((state.attempt, state.step + 1))
    if before is None:
        raise _not_arrived(case, f"step {state.step + 1} was not seen before the values of {name} were changed")
    if after is None:
        raise CannotJudgeError(f"step {state.step + 1} was not seen after the recovery")
    if _difference(after, before) <= NOISE * _noise(case):
        message = f"the loss of step {state.step + 1} is {after.loss!r} after the recovery, {before.loss!r} before"
        yield Problem(f"{message} all values of {name} were changed", (after.entry, before.entry))


def _noise(case: Case) -> float:
    """Largest difference between a resume from unchanged values and the baseline run."""
    found = [_difference(mine, theirs) for factor, mine, theirs, _ in _first_steps(case) if factor == 1.0]
    return max(found, default=0.0) or LEAST_DIFFERENCE / NOISE


def _stored_before_change(view: View) -> dict[str, tuple[Entry, Stored]]:
    found: dict[str, tuple[Entry, Stored]] = {}
    for entry in view.entries:
        if isinstance(entry.record, Damaged):
            break
        if isinstance(entry.record, Stored):
            found[entry.record.checkpoint] = (entry, entry.record)
    return found


@check("values-change")
def values_change(case: Case, criterion: Criterion) -> Iterator[Problem]:
    """No two checkpoints of a run hold the same values."""
    saved = {save.checkpoint: save.step for _, save in case.trial.saves("committed")}
    found = _stored_before_change(case.trial)
    names = sorted(found.keys() & saved.keys(), key=saved.__getitem__)
    if not found:
        raise _not_arrived(case, "the values of no checkpoint were read")
    if len(names) < 2:
        raise CannotJudgeError("values of fewer than two committed checkpoints were read")
    for one, other in pairwise(names):
        if found[one][1].digest == found[other][1].digest:
            yield Problem(f"{other} holds the values of {one}, {found[one][1].num_bytes:,} bytes", (found[other][0],))


@check("digest-follows-values")
def digest_follows_values(case: Case, criterion: Criterion) -> Iterator[Problem]:
    """A state digest that is reported is the same exactly where the values in the checkpoint are."""
    if not list(case.trial.of(Stored)):
        raise _not_arrived(case, "the values of no checkpoint were read")
    if not case.trial.restores():
        raise CannotJudgeError("no rank reported from which state it continued")
    by_values: dict[str, str] = {}
    by_digest: dict[str, str] = {}
    for name, values, digest, entry in _reported(case.trial):
        if by_values.setdefault(values, digest) != digest:
            yield Problem(f"{name}: two digests were reported of the same values", (entry,))
            return
        if by_digest.setdefault(digest, values) != values:
            yield Problem(f"{name}: the digest that is reported was reported of other values too", (entry,))
            return


@check("values-follow-seed")
def values_follow_seed(case: Case, criterion: Criterion) -> Iterator[Problem]:
    """Checkpoints of a run hold different values, and with another seed others than in the baseline run."""
    _seeds_differ(case)
    if not final_steps(case.trial):
        raise CannotJudgeError("the trace reports no step")
    seen: dict[str, str] = {}
    for view, words in ((_control(case), "of the baseline run"), (case.trial, "with another seed")):
        found = list(view.of(Stored))
        if not found:
            reasons = [record.reason for _, record in view.of(Unread)] or ["there is none that was committed"]
            yield Problem(f"values of checkpoints {words} were not judged: {reasons[0]}", is_remark=True)
        for entry, record in found:
            name = f"{record.checkpoint} {words}"
            before = seen.setdefault(record.digest, name)
            if before != name:
                yield Problem(f"{name} holds the values of {before}, {record.num_bytes:,} bytes", (entry,))
                return


def _reported(view: View) -> Iterator[tuple[str, str, str, Entry]]:
    """Checkpoint, digest of its values by the suite, and the digest that the stack reported of it then."""
    told: dict[str, str] = {}
    values: dict[str, str] = {}
    for entry in view.entries:
        match entry.record:
            case Save(checkpoint=name, digest=str(digest)):
                told[name] = digest
                values.pop(name, None)
            case Damaged(checkpoint=name, factor=factor) if factor != 1.0:
                told.pop(name, None)
            case Stored(checkpoint=name, digest=digest):
                values[name] = digest
                if name in told:
                    yield name, digest, told[name], entry
            case Restore(checkpoint=str(name), digest=str(digest)) if name in values:
                yield name, values[name], digest, entry


# --- seed -------------------------------------------------------------------------------------------------------


def _seeds_differ(case: Case) -> None:
    """Refuse to judge where both runs had one seed."""
    own = {record.seed for _, record in case.trial.of(Started)}
    theirs = {record.seed for _, record in _control(case).of(Started)}
    if own & theirs or None in own | theirs or not own or not theirs:
        raise _not_arrived(case, "both runs had the same seed, or it is not known")


@check("loss-follows-seed")
def loss_follows_seed(case: Case, criterion: Criterion) -> Iterator[Problem]:
    """With another seed, most losses are others than those of the baseline run."""
    _seeds_differ(case)
    done, wanted = final_steps(case.trial), final_steps(_control(case))
    common, least = sorted(done.keys() & wanted.keys()), criterion.steps or 10
    if len(common) < least:
        raise CannotJudgeError(
            f"only {counted(len(common), 'step')} can be compared with the baseline run, not {least}"
        )
    same = [step for step in common if _difference(done[step], wanted[step]) <= (criterion.tolerance or 0.0)]
    if 2 * len(same) > len(common):
        message = f"{len(same)} of {counted(len(common), 'loss')} are those of the baseline run, which had another seed"
        yield Problem(message, (done[same[0]].entry, wanted[same[0]].entry))


@check("digest-follows-seed")
def digest_follows_seed(case: Case, criterion: Criterion) -> Iterator[Problem]:
    """With another seed, no state digest that is reported of a save is that of the baseline run."""
    _seeds_differ(case)
    if not final_steps(case.trial):
        raise CannotJudgeError("the trace reports no step")
    theirs = {save.digest: save.step for save in _saves(_control(case))}
    for entry, save in case.trial.of(Save):
        if save.digest is not None and save.digest in theirs:
            message = f"the state digest of step {save.step} is that of the baseline run, which had another seed"
            yield Problem(message, (entry,))
            return


def _saves(view: View) -> Iterator[Save]:
    yield from (save for _, save in view.of(Save) if save.digest is not None)


# --- steps ----------------------------------------------------------------------------------------------------


@check("loss-follows-updates")
def loss_follows_updates(case: Case, criterion: Criterion) -> Iterator[Problem]:
    """On the same samples optimizer steps change the loss, and the last loss is below the first.

    A change by chance is as small as a sum in another order makes it; that losses repeat several times is no chance.
    """
    done = final_steps(case.trial)
    pairs = [(step, done[step], done[step + 1]) for step in sorted(done) if step + 1 in done]
    if len(pairs) < LEAST_STEPS:
        raise CannotJudgeError(f"the trace reports {counted(len(pairs), 'pair')} of optimizer steps, not {LEAST_STEPS}")
    if len({one.sample_ids for one in done.values()}) > 1:
        raise CannotJudgeError("optimizer steps have different samples")
    rates = [before.learning_rate for _, before, _ in pairs]
    moved = [one for one, rate in zip(pairs, rates, strict=True) if rate > LEAST_RATE * max(rates)]
    noise = max(criterion.tolerance or 0.0, relative_resolution([one.loss for one in done.values()]))
    repeated = [one for one in moved if _difference(one[2], one[1]) <= noise]
    changes = sorted(found for _, before, after in moved if (found := _difference(after, before)) > noise)
    is_clear = len(changes) >= LEAST_STEPS and changes[len(changes) // 2] >= STEADY * noise
    if len(repeated) >= (criterion.num or 1) and is_clear:
        step, before, after = repeated[0]
        message = f"{len(repeated)} of {len(moved)} optimizer steps left the loss of the same samples as it was"
        yield Problem(f"{message}, the first is step {step} with {before.loss!r}", (before.entry, after.entry))
    first, last = pairs[0][1], pairs[-1][2]
    if not last.loss < first.loss:
        message = (
            f"the loss of the same samples is {last.loss!r} after {len(done)} optimizer steps, {first.loss!r} before"
        )
        yield Problem(message, (first.entry, last.entry))


def relative_resolution(losses: Sequence[float]) -> float:
    """The smallest relative difference that losses of so many digits show, in bits, or in decimals if rounded."""
    finite = [abs(one) for one in losses if math.isfinite(one) and one]
    if not finite:
        return 0.0
    bits = max(_num_bits(one) for one in finite)
    decimals = max(-int(Decimal(repr(one)).as_tuple().exponent) for one in finite)
    return max(2.0**-bits, 10.0**-decimals / min(finite) if decimals < MOST_DECIMALS else 0.0)


def _num_bits(number: float) -> int:
    """Bits of the fraction of a number without those at its end that are zero."""
    whole = number.as_integer_ratio()[0]
    return (whole // (whole & -whole)).bit_length()


# --- learning rate and samples ----------------------------------------------------------------------------------


@check("rate-is-zero")
def rate_is_zero(case: Case, criterion: Criterion) -> Iterator[Problem]:
    """Each learning rate is zero, as the task asks."""
    if case.scenario.job.learning_rate_factor:
        raise _not_arrived(case, "the task asks for another learning rate")
    done = final_steps(case.trial)
    if not done:
        raise CannotJudgeError("the trace reports no step")
    for step, one in sorted(done.items()):
        if one.learning_rate:
            yield Problem(
                f"the learning rate of step {step} is {one.learning_rate!r}, and the task asks for 0", (one.entry,)
            )
            return


def _factors(case: Case) -> float:
    """Factor of the learning rate, where it is another than that of the baseline run."""
    own = {record.learning_rate_factor for _, record in case.trial.of(Started)}
    theirs = {record.learning_rate_factor for _, record in _control(case).of(Started)}
    if len(own) != 1 or own & theirs or 0.0 in theirs or len(theirs) != 1:
        raise _not_arrived(case, "both runs had the same learning rate, or it is not known")
    return own.pop() / theirs.pop()


@check("rate-follows-factor")
def rate_follows_factor(case: Case, criterion: Criterion) -> Iterator[Problem]:
    """Learning rates are those of the baseline run times the factor of the task."""
    factor, done, wanted = _factors(case), final_steps(case.trial), final_steps(_control(case))
    common = sorted(done.keys() & wanted.keys())
    if not common:
        raise CannotJudgeError("no step can be compared with the baseline run")
    for step in common:
        mine, theirs = done[step].learning_rate, wanted[step].learning_rate * factor
        if not abs(mine - theirs) <= (criterion.tolerance or 0.0) * abs(theirs):
            message = f"the learning rate of step {step} is {mine!r}, and {theirs!r} follows from the factor {factor}"
            yield Problem(message, (done[step].entry, wanted[step].entry))
            return


@check("loss-follows-rate")
def loss_follows_rate(case: Case, criterion: Criterion) -> Iterator[Problem]:
    """With another learning rate the first loss is that of the baseline run, and most of the later ones are not."""
    _factors(case)
    done, wanted = final_steps(case.trial), final_steps(_control(case))
    common, least = sorted(done.keys() & wanted.keys()), criterion.steps or 10
    if len(common) < least:
        raise CannotJudgeError(
            f"only {counted(len(common), 'step')} can be compared with the baseline run, not {least}"
        )
    first, *later = common
    bitwise = case.claims.resume_class == "bitwise"
    if _difference(done[first], wanted[first]) > (0.0 if bitwise else case.claims.relative_tolerance):
        message = f"the loss of step {first} is {done[first].loss!r} before any optimizer step, {wanted[first].loss!r}"
        yield Problem(f"{message} in the baseline run", (done[first].entry, wanted[first].entry))
    same = [step for step in later if _difference(done[step], wanted[step]) <= (criterion.tolerance or 0.0)]
    if 2 * len(same) > len(later):
        message = f"{len(same)} of {counted(len(later), 'loss')} are those of the baseline run, which had another rate"
        yield Problem(message, (done[same[0]].entry, wanted[same[0]].entry))


@check("loss-follows-samples")
def loss_follows_samples(case: Case, criterion: Criterion) -> Iterator[Problem]:
    """While nothing is learned, losses of different samples differ, and each epoch has the same mean loss."""
    job, done = case.scenario.job, final_steps(case.trial)
    if job.learning_rate_factor or job.samples_per_epoch % job.global_sequences:
        raise _not_arrived(case, "the task asks for training, or an epoch is no whole number of steps")
    length = job.samples_per_epoch // job.global_sequences
    epochs = [
        [done[step] for step in range(first, first + length)]
        for first in range(1, max(done, default=0) - length + 2, length)
        if all(step in done for step in range(first, first + length))
    ]
    if len(epochs) < 2 or not all(one.sample_ids for epoch in epochs for one in epoch):
        raise CannotJudgeError("the trace does not report two whole epochs with their samples")
    means = [sum(one.loss for one in epoch) / length for epoch in epochs]
    tolerance = criterion.tolerance or 0.0
    for number, mean in enumerate(means):
        if not abs(mean - means[0]) <= tolerance * abs(means[0]):
            message = f"the mean loss of epoch {number + 1} is {mean!r}, of the first {means[0]!r}, at learning rate 0"
            yield Problem(message, (epochs[number][0].entry,))
            return
    losses = [one.loss for one in epochs[0]]
    if max(losses) - min(losses) <= tolerance * abs(means[0]):
        message = f"the losses of {counted(length, 'step')} with different samples are all {losses[0]!r}"
        yield Problem(message, (epochs[0][0].entry,))
