"""For every check of a history, runs that it has to fail."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import msgspec
from made_runs import Change, added, changed, digest, dropped, late, told
from made_stories import (
    calm,
    changed_values,
    damaged_and_struck,
    flipped,
    flipped_and_struck,
    full,
    hung,
    left_beside,
    left_over,
    looping,
    noticed,
    offset,
    overfitted,
    reseeded,
    resumed,
    skipping,
    slowed,
    slower,
    stored,
    struck,
    waiting,
)
from trainspec_conformance.records import (
    Applied,
    Damaged,
    Ended,
    Entry,
    Exited,
    Injected,
    Listed,
    Orphans,
    Started,
    Stored,
    Streamed,
    Streams,
)

from trainspec_validate.documents.types.scenario import Scenario
from trainspec_validate.documents.types.trace import Decision, End, FaultSeen, Refused, Restore, Save, StepDone

Maker = Callable[[Scenario], list[Entry]]
OWED = "train.memory.allocator.reserved"


@dataclass(frozen=True)
class Row:
    """A sound history, and one that is spoilt."""

    check: str
    scenario: str
    maker: Maker
    change: Change
    words: str


def applied(step: int) -> Callable[[StepDone], bool]:
    return lambda one: one.step == step and one.skipped is None


def without_pauses(entries: list[Entry]) -> list[Entry]:
    """The suite sees an entry in each tenth of a second."""
    return [msgspec.structs.replace(one, seconds=number / 10) for number, one in enumerate(entries)]


def stalled(entries: list[Entry]) -> list[Entry]:
    """The first optimizer step after each save comes a second late."""
    waited, found = 0.0, []
    for one in entries:
        is_first = isinstance(one.record, StepDone) and one.record.rank == 0 and one.record.step % 10 == 1
        waited += 0.9 if is_first and one.record.step > 1 else 0.0
        found.append(msgspec.structs.replace(one, seconds=one.seconds + waited))
    return found


def evenly(entries: list[Entry]) -> list[Entry]:
    """The trace spaces optimizer steps by 0.05 s, which take twice as long."""
    return [
        msgspec.structs.replace(one, record=msgspec.structs.replace(one.record, time_us=50_000 * one.record.step))
        if isinstance(one.record, StepDone)
        else one
        for one in entries
    ]


def at_step(step: int, rank: int = 0) -> Callable[[StepDone], bool]:
    return lambda one: one.step == step and one.rank == rank


def later(one: Restore | StepDone) -> bool:
    return one.attempt > 0


def committed(step: int) -> Callable[[Save], bool]:
    return lambda one: one.stage == "committed" and one.step >= step


def behind(rank: int, seconds: float) -> Change:
    """A rank is so much behind the others, by its own clock alone."""

    def change(entries: list[Entry]) -> list[Entry]:
        return [
            msgspec.structs.replace(
                one, record=msgspec.structs.replace(one.record, time_us=one.record.time_us + int(seconds * 1e6))
            )
            if isinstance(one.record, StepDone) and one.record.rank == rank
            else one
            for one in entries
        ]

    return change


def seen_last(rank: int) -> Change:
    """Optimizer steps of a rank are seen when the others have completed all of theirs."""

    def change(entries: list[Entry]) -> list[Entry]:
        own = [one for one in entries if isinstance(one.record, StepDone) and one.record.rank == rank]
        others = [one for one in entries if one not in own]
        end = entries[-1].seconds + 10
        return [*others, *(msgspec.structs.replace(one, seconds=end) for one in own)]

    return change


def unshifted(entries: list[Entry]) -> list[Entry]:
    """Losses are those of any other run."""
    return [
        msgspec.structs.replace(one, record=msgspec.structs.replace(one.record, loss=5 - one.record.step / 100))
        if isinstance(one.record, StepDone)
        else one
        for one in entries
    ]


def repeated(num: int) -> Change:
    """So many losses are those of the step before."""

    def change(entries: list[Entry]) -> list[Entry]:
        for step in range(5, 5 + 3 * num, 3):
            entries = changed(StepDone, at_any_rank(step), loss=5 * 0.97 ** (step - 1))(entries)
        return entries

    return change


def restored_late(one: Restore) -> bool:
    """Of the last attempt, which recovers after a change of values while the job runs."""
    return one.attempt == 4


def repeats_losses(entries: list[Entry]) -> list[Entry]:
    """The last attempt has the losses of the attempt before."""
    before = {one.record.step: one.record.loss for one in entries if _is_step_of(one, 3)}
    return [
        msgspec.structs.replace(one, record=msgspec.structs.replace(one.record, loss=before[one.record.step]))
        if _is_step_of(one, 4) and one.record.step in before
        else one
        for one in entries
    ]


def _is_step_of(one: Entry, attempt: int) -> bool:
    return isinstance(one.record, StepDone) and one.record.attempt == attempt


def at_any_rank(step: int) -> Callable[[StepDone], bool]:
    return lambda one: one.step == step


FAULT = FaultSeen(time_us=0, kind="storage")
OF_RANK_2 = StepDone(time_us=0, rank=2, step=1, loss=1.0, learning_rate=0.01)
OTHER = Save(time_us=0, checkpoint="other", step=20, stage="committed", digest=digest(21))
SECOND = Streamed(kind="event", attempt=0, time_us=0, name="train.fault.detected")
LAST = "train.sample.count"
ROWS = [
    Row("completes", "null-run", calm, changed(Exited, status=1), "with status 1"),
    Row("completes", "null-run", calm, dropped(StepDone, lambda one: one.step == 60), "the last update is 59"),
    Row("completes", "null-run", calm, dropped(End), "no process reported the end"),
    Row("quiet", "null-run", calm, added(FAULT), "nothing was wrong"),
    Row("quiet", "long-pause", waiting, without_pauses, "was to pause for 1.5 s at step 30"),
    Row("completes", "null-run", calm, dropped(StepDone, lambda one: one.rank == 1), "reported by rank 0"),
    Row("completes", "null-run", calm, added(OF_RANK_2), "reported by rank 0, 1, 2"),
    Row("no-orphans", "null-run", calm, added(Orphans(processes=("7 sleep",))), "7 sleep"),
    Row("detected-within", "kill-rank", struck, late(FaultSeen, 100), "reported after"),
    Row("detected-within", "kill-rank", struck, dropped(FaultSeen), "never reported"),
    Row("noticed-within", "livelock", hung, late(FaultSeen, 500), "after the last step"),
    Row("noticed-within", "livelock", hung, dropped(FaultSeen), "never reported"),
    Row("recovered-within", "kill-rank", struck, late(Decision, 500), "the first step was completed after"),
    Row("recovered-within", "kill-rank", struck, dropped(StepDone, later), "no new attempt"),
    Row("lost-steps-at-most", "kill-rank", struck, changed(Restore, later, step=5), "19 steps were lost"),
    Row("not-from-nothing", "kill-rank", struck, changed(Restore, later, source="initial"), "initial state"),
    Row("faults-reported", "kill-rank", struck, added(FAULT), "2 faults were reported, 1 happened"),
    Row("fault-kind", "livelock", hung, changed(FaultSeen, kind="storage"), "reported as storage"),
    Row("blames-no-other-rank", "rank-to-blame", struck, changed(FaultSeen, rank=0), "rank 0 is blamed"),
    Row("blamed-rank", "slow-rank", slowed, changed(FaultSeen, rank=0), "rank 0 is blamed"),
    Row("blamed-rank", "livelock", hung, changed(FaultSeen, rank=0), "rank 0 is blamed"),
    Row("one-attempt", "slow-rank", slowed, changed(StepDone, at_step(40), attempt=1), "2 attempts"),
    Row("one-lineage", "partition", struck, added(StepDone(time_us=0, rank=1, step=25, loss=1, learning_rate=1)),
        "attempt 0 continued"),
    Row("one-content-of-a-step", "partition", struck, added(OTHER), "step 20 hold different states"),
    Row("agree-on-restore", "kill-rank", struck, changed(Restore, lambda one: later(one) and one.rank, step=10),
        "from steps [10, 20]"),
    Row("agree-on-restore", "kill-rank", struck, changed(Restore, lambda one: one.rank, digest=digest(3)), "digests"),
    Row("ends-in-grace", "grace-signal", noticed, changed(Exited, lambda one: one.asked, status=-9), "signal 9"),
    Row("resumes-within", "grace-signal", noticed, changed(Restore, later, step=20), "4 optimizer steps were lost"),
    Row("restores-before-damage", "replica-flip", flipped, changed(Restore, later, step=36), "step 36"),
    Row("restores-before-damage", "replica-flip", flipped, dropped(Restore, later), "never rolled back"),
    Row("restores-before-damage", "replica-flip", flipped_and_struck, dropped(Save, lambda one: one.attempt == 1),
        "rolled back to step 40"),
    Row("ends-in-time", "out-of-memory", calm, dropped(End), "reported the end"),
    Row("ends-in-time", "out-of-memory", calm, changed(Ended, reason="budget"), "budget"),
    Row("each-sample-once", "repeated-resume", calm, changed(StepDone, at_step(5), sample_ids=(0, 2, 4, 6)), "once"),
    Row("once-per-epoch", "each-sample-once", calm, changed(StepDone, at_step(5), sample_ids=(0, 3, 6)), "used 2"),
    Row("same-end-where-bitwise", "resume-equivalence", noticed, changed(End, digest=digest(1)), "differs"),
    Row("same-trajectory", "resume-equivalence", noticed, changed(StepDone, at_step(40), loss=9.0), "loss of step"),
    Row("same-rates", "resume-equivalence", noticed, changed(StepDone, at_step(40), learning_rate=9.0), "rate of"),
    Row("same-samples", "resume-equivalence", noticed, changed(StepDone, at_step(40), sample_ids=(1, 2)), "samples"),
    Row("restores-newest-good", "flipped-shard", resumed, changed(Restore, later, step=10), "from step 10"),
    Row("restores-newest-good", "flipped-shard", resumed, changed(Restore, later, checkpoint="step-30"), "damaged"),
    Row("restores-newest-good", "flipped-shard", resumed, changed(Restore, later, step=0), "the initial state"),
    Row("names-damage", "flipped-shard", resumed, dropped(Refused), "not refused by name"),
    Row("restored-as-saved", "reshard", noticed, changed(Restore, later, digest=digest(2)), "another digest"),
    Row("newest-is-whole", "kill-rank", struck, changed(Listed, findings=("error TS-CKP-001: torn",)), "torn"),
    Row("newest-is-whole", "kill-rank", struck, changed(Listed, pointer="step-10"), "the pointer says"),
    Row("save-fails-openly", "disk-full", full, dropped(Save, lambda one: one.stage == "failed"), "reported as failed"),
    Row("save-fails-openly", "device-error", full, added(Injected(kind="mend-device", target="rank", value=0.0)),
        "no write failed while the device did"),
    Row("save-fails-openly", "disk-full", full, changed(Save, lambda one: one.step == 60, stage="committed"),
        "step-60 was reported as committed"),
    Row("saves-again", "disk-full", full, dropped(Save, committed(60)), "no checkpoint was committed afterwards"),
    Row("earlier-untouched", "disk-full", full, changed(Listed, checkpoints=()), "step-50 is gone"),
    Row("canary-lives", "hostile-checkpoint", resumed, changed(Listed, canary=True), "executed"),
    Row("saves-over-left-over", "left-over-directory", left_over, dropped(Save, committed(30)), "never committed"),
    Row("saves-over-left-over", "left-over-directory", left_beside, dropped(Save, committed(30)), "never committed"),
    Row("tells-no-fault", "clock-jump", offset, added(FAULT), "no rank had failed"),
    Row("clock-was-offset", "clock-jump", offset, behind(1, -600), "did not follow their clock"),
    Row("durations-hold", "clock-jump", offset, told("train.step.duration", 6000), "by the clock of the suite"),
    Row("gives-up", "crash-loop", looping, changed(End, reason="fault"), "crash loop"),
    Row("gives-up", "crash-loop", looping, changed(Exited, status=0), "status 0"),
    Row("keeps-newest", "crash-loop", looping, changed(Listed, checkpoints=()), "step-20 is gone"),
    Row("stays-finite", "nan-gradient", skipping, changed(StepDone, at_step(20), loss="NaN"), "the loss NaN"),
    Row("tells-nonfinite", "nan-gradient", skipping, dropped(StepDone, lambda one: one.skipped), "0 steps were"),
    Row("batch-as-asked", "ramp-at-steps", calm, changed(StepDone, at_step(16), sample_ids=()), "its batch has 12"),
    Row("batch-as-told", "ramp-at-steps", calm, told(LAST, 2, lambda one: one.step == 20), "its batch has 12"),
    Row("ranks-agree", "ranks-in-step", calm, changed(StepDone, at_step(5, 1), gradient_norm=2.0), "gradient_norm"),
    Row("ranks-agree", "ranks-in-step", calm, dropped(StepDone, at_step(5, 1)), "reported by 2 ranks of 3"),
    Row("ranks-agree", "ranks-in-step", calm, changed(StepDone, at_step(5, 1), step=6), "twice"),
    Row("in-step", "ranks-in-step", calm, behind(1, 1), "has completed step"),
    Row("in-step", "ranks-in-step", calm, seen_last(1), "has completed step"),
    Row("slow-rank-answered", "uneven-load", slowed, dropped(FaultSeen), "is slow, is not reported"),
    Row("loss-follows-values", "changed-values", changed_values,
        changed(StepDone, lambda one: one.attempt == 2 and one.step == 31, loss=4.69), "without the change of all"),
    Row("loss-follows-values", "changed-values", changed_values,
        changed(StepDone, lambda one: one.attempt == 1 and one.step == 31, loss=4.0), "after a new manifest"),
    Row("loss-follows-values", "changed-values", changed_values, dropped(Damaged), "no resume followed"),
    Row("loss-follows-values", "changed-values", changed_values, dropped(Damaged, lambda one: one.factor != 1),
        "or none a change of values"),
    Row("values-change", "changed-values", changed_values,
        changed(Stored, lambda one: one.checkpoint == "step-20", digest=digest(10)[::-1]), "the values of step-10"),
    Row("values-change", "changed-values", changed_values, dropped(Stored), "of no checkpoint were read"),
    Row("digest-follows-values", "changed-values", changed_values,
        changed(Restore, lambda one: one.attempt == 2, digest=digest(30)), "of other values too"),
    Row("digest-follows-values", "changed-values", changed_values,
        changed(Restore, lambda one: one.attempt == 1, digest=digest(31)), "of the same values"),
    Row("digest-follows-values", "changed-values", changed_values, dropped(Stored), "of no checkpoint were read"),
    Row("loss-follows-seed", "changed-seed", reseeded, unshifted, "60 of 60 losses are those of the baseline run"),
    Row("loss-follows-seed", "changed-seed", reseeded, changed(Started, seed=7), "both runs had the same seed"),
    Row("digest-follows-seed", "changed-seed", reseeded,
        changed(Save, lambda one: one.step == 10, digest=digest(10)), "the state digest of step 10"),
    Row("digest-follows-seed", "changed-seed", reseeded, changed(Started, seed=7), "both runs had the same seed"),
    Row("values-follow-seed", "changed-seed", reseeded,
        changed(Stored, digest=digest(20)[::-1]), "step-10 with another seed holds the values of step-20 of the base"),
    Row("values-follow-seed", "changed-seed", reseeded, added(Stored(checkpoint="step-20",
        digest=digest(2010)[::-1], num_bytes=9)), "holds the values of step-10 with another seed, 9 bytes"),
    Row("values-follow-seed", "changed-seed", reseeded, changed(Started, seed=7), "both runs had the same seed"),
    Row("loss-follows-updates", "one-batch", overfitted, repeated(3), "3 of 29 optimizer steps left the loss"),
    Row("loss-follows-updates", "one-batch", calm, changed(StepDone, at_any_rank(30), loss=6.0), "6.0 after 30"),
    Row("loss-follows-updates", "one-batch", calm, changed(StepDone, loss=6.0), "6.0 after 30"),
    Row("loss-follows-updates", "one-batch", calm, changed(StepDone, at_step(3), sample_ids=(1,)), "different samples"),
    Row("rate-follows-factor", "changed-learning-rate", slower, changed(StepDone, learning_rate=0.01), "0.005 follows"),
    Row("rate-follows-factor", "changed-learning-rate", slower, changed(Started, learning_rate_factor=1.0), "the same"),
    Row("loss-follows-rate", "changed-learning-rate", slower, unshifted, "16 of 16 losses are those of the baseline"),
    Row("loss-follows-rate", "changed-learning-rate", slower, changed(StepDone, at_step(1), loss=4.0), "before any"),
    Row("loss-follows-rate", "changed-learning-rate", slower, changed(Started, learning_rate_factor=1.0), "the same"),
    Row("recovers-from-undamaged", "damage-before-recovery", damaged_and_struck,
        changed(Restore, later, checkpoint="step-60"), "recovered from step-60, which is damaged"),
    Row("recovers-from-undamaged", "damage-before-recovery", damaged_and_struck, dropped(Damaged), "was damaged"),
    Row("recovers-from-undamaged", "damage-before-recovery", damaged_and_struck, dropped(Restore, later), "no rank"),
    Row("rate-is-zero", "zero-learning-rate", calm, changed(StepDone, at_step(3), learning_rate=0.1), "asks for 0"),
    Row("loss-follows-samples", "zero-learning-rate", calm, changed(StepDone, at_step(15), loss=4.0), "of epoch 2"),
    Row("loss-follows-samples", "zero-learning-rate", calm, changed(StepDone, loss=4.0), "are all 4.0"),
    Row("order-as-declared", "declared-order", calm, changed(StepDone, at_step(3), sample_ids=(1,)), "declared order"),
    Row("stream-is-valid", "stream-without-errors", calm, changed(Streams, findings=("error X: y",)), "error X: y"),
    Row("owes-nothing", "stream-without-errors", calm, changed(Streams, absent=(OWED,)), OWED),
    Row("every-rank-tells", "every-rank-reports", calm, dropped(Streamed, lambda one: one.rank == 1), "rank 1 has no"),
    Row("every-rank-tells", "every-rank-reports", calm,
        dropped(Streamed, lambda one: one.rank == 1 and one.step == 30), "of rank 1 ends at step 29"),
    Row("steps-as-seen", "reported-steps", skipping, told("train.step.count", 2), "80 optimizer steps are counted"),
    Row("steps-as-seen", "reported-steps", skipping, dropped(StepDone, lambda one: one.skipped), "were to be skipped"),
    Row("steps-as-seen", "reported-steps", skipping, told("train.step.skipped", 0), "0 skipped steps"),
    Row("step-time-as-seen", "reported-step-times", calm, told("train.step.duration", 2), "by the clock of the suite"),
    Row("step-time-as-seen", "reported-step-times", calm, evenly, "of the trace of rank 0 took 0.75 s"),
    Row("skipped-without-effect", "nan-gradient", skipping, changed(StepDone, applied(35), loss=4.9), "the skipped"),
    Row("samples-as-seen", "reported-samples", calm, told(LAST, 2), "samples are counted after step 1"),
    Row("samples-as-seen", "reported-samples", calm, told("train.token.count", 2, at_step(9, None)), "tokens, and"),
    Row("losses-as-seen", "reported-losses", calm, told("train.loss.mean", 1.1), "train.loss.mean of step 1 is"),
    Row("losses-as-seen", "reported-losses", calm, told("train.learning_rate", 2), "train.learning_rate of step 1 is"),
    Row("steps-as-applied", "reported-losses", stored, changed(Applied, rates=(0.001, 0.001)),
        "0.01 as reported, 0.001 by"),
    Row("steps-as-applied", "reported-losses", stored, changed(Applied, rates=(0.02, 0.001)),
        "rates from 0.001 to 0.02"),
    Row("steps-as-applied", "reported-losses", stored, changed(Applied, resting=("embedding",)),
        "the moments of embedding"),
    Row("steps-as-applied", "reported-losses", stored, changed(StepDone, at_any_rank(38), gradient_norm=0.5),
        "step 38 is 0.5 as reported, 1 by the moments"),
    Row("steps-as-applied", "reported-losses", stored, changed(Applied, lambda one: one.step == 38, squared_norm=0.25),
        "step 38 is 1 as reported, 0.5 by the moments"),
    Row("recovery-follows-values", "changed-values", changed_values, repeats_losses, "after the recovery, "),
    Row("recovery-follows-values", "changed-values", changed_values, changed(Restore, restored_late, source="peer"),
        "was not judged: it continued from step 40"),
    Row("recovery-follows-values", "changed-values", changed_values, dropped(Injected), "no process was killed"),
    Row("recovery-follows-values", "changed-values", changed_values, dropped(StepDone, lambda one: one.step == 41),
        "step 41 was not seen before the values of"),
    Row("steps-as-applied", "reported-losses", stored, dropped(Applied),
        "was not judged: no checkpoints of such steps"),
    Row("saves-as-seen", "reported-saves", calm,
        dropped(Streamed, lambda one: one.name == "train.checkpoint.commit" and one.step == 20), "[10, 30, 40]"),
    Row("saves-as-seen", "reported-saves", calm, told("train.checkpoint.step", 0), "never says 40"),
    Row("save-time-as-seen", "reported-saves", calm,
        told("train.checkpoint.duration{train.checkpoint.phase=total}", 100), "a save takes 5 s"),
    Row("stall-as-seen", "reported-saves", calm, stalled, "training waits 0 s for a save as reported, 0.95 s by"),
    Row("faults-as-seen", "reported-faults", struck, added(SECOND), "2 faults are reported"),
    Row("faults-as-seen", "reported-faults", struck,
        dropped(Streamed, lambda one: one.name == "train.attempt.start" and later(one)), "[0, 1] trained"),
    Row("faults-as-seen", "reported-faults", struck, dropped(Streamed, lambda one: one.name == "train.recovery.end"),
        "0 recoveries"),
    Row("faults-as-seen", "reported-faults", struck,
        changed(Streamed, lambda one: one.name == "train.recovery.end",
                attributes={"train.recovery.outcome": "failed"}), "0 recoveries"),
    Row("waits-as-seen", "data-stall", waiting, told("train.data.wait.time", 0.1), "reports a wait of"),
    Row("noise-as-seen", "reported-noise", calm, told("train.gradient.variance", 2), "squared norms"),
    Row("utilisation-as-seen", "reported-mfu", calm, told("train.flops.utilization", 2), "is reported as 0.256"),
]  # fmt: skip
