"""Runs that never were, each of one kind: calm, struck by a fault, resumed, on a full disk, and so on."""

from __future__ import annotations

from made_runs import Made, digest
from msgspec.structs import replace
from trainspec_conformance.records import Applied, Entry

from trainspec_validate.documents.types.conformance import Claims
from trainspec_validate.documents.types.scenario import Scenario
from trainspec_validate.documents.types.trace import FaultSeen, Save, StepDone

CLAIMS = Claims(resume_class="bitwise")


def begun(scenario: Scenario, last: int) -> Made:
    """A run that has trained so far."""
    made = Made(scenario.job)
    made.start()
    made.train(1, last)
    return made


def calm(scenario: Scenario) -> list[Entry]:
    return begun(scenario, scenario.job.num_steps).close()


def struck(scenario: Scenario, kind: str = "kill", fault: str = "process", at: int = 24) -> list[Entry]:
    made = begun(scenario, at)
    if not scenario.job.faults:
        made.inject(kind, at)
    made.recover(at // 10 * 10, fault)
    made.train(at // 10 * 10 + 1, scenario.job.num_steps)
    return made.close()


def hung(scenario: Scenario) -> list[Entry]:
    return struck(scenario, fault="hang", at=25)


def slowed(scenario: Scenario) -> list[Entry]:
    """A rank is slow and told of, and nothing starts again."""
    made = begun(scenario, 24)
    if not scenario.job.faults:
        made.inject("slow", 24)
    made.tell(FaultSeen(time_us=made.time_us(), kind="slow", rank=made.num_ranks - 1), 1)
    made.train(25, scenario.job.num_steps)
    return made.close()


def flipped(scenario: Scenario) -> list[Entry]:
    return struck(scenario, fault="corruption", at=37)


def flipped_and_struck(scenario: Scenario) -> list[Entry]:
    """After it went back, something else happens once a sound state is saved again."""
    made = begun(scenario, 42)
    made.recover(30, "corruption")
    made.train(31, 44)
    made.recover(40)
    made.train(41, scenario.job.num_steps)
    return made.close()


def resumed(scenario: Scenario) -> list[Entry]:
    """The newest checkpoint is damaged while nothing runs."""
    made = begun(scenario, 34)
    made.stop()
    made.damage("flip-bit", 30)
    made.start(20, resume=True, refuses=30)
    made.train(21, scenario.job.num_steps)
    return made.close()


def noticed(scenario: Scenario) -> list[Entry]:
    """Asked to end, the job saves and ends."""
    made = begun(scenario, 24)
    made.save(24)
    made.stop()
    made.start(24, resume=True)
    made.train(25, scenario.job.num_steps)
    return made.close()


def left_over(scenario: Scenario) -> list[Entry]:
    made = Made(scenario.job)
    made.start()
    made.damage("partial-directory", 30)
    made.train(1, scenario.job.num_steps)
    return made.close()


def left_beside(scenario: Scenario) -> list[Entry]:
    """The stack saves under another name where a part of a checkpoint lies."""
    return [
        replace(one, record=replace(one.record, checkpoint=f"{one.record.checkpoint}-again"))
        if isinstance(one.record, Save)
        else one
        for one in left_over(scenario)
    ]


def gone(scenario: Scenario) -> list[Entry]:
    """The newest checkpoint was one file, and is there no more."""
    made = begun(scenario, 34)
    made.stop()
    made.damage("delete-file", 30)
    made.start(20, resume=True)
    made.train(21, scenario.job.num_steps)
    return made.close()


def full(scenario: Scenario) -> list[Entry]:
    made = begun(scenario, 55)
    made.inject("fill-disk", 55)
    made.train(56, 65, failing_saves=True)
    made.inject("free-disk", 65)
    made.train(66, scenario.job.num_steps)
    return made.close()


def offset(scenario: Scenario) -> list[Entry]:
    """A clock is set, and the job is stopped and started again."""
    made = begun(scenario, 12)
    made.inject("offset-clock", 12, 600)
    made.ahead_seconds[-1] = 600
    made.train(13, 34)
    made.stop()
    made.ahead_seconds[-1] = 0
    made.start(30, resume=True)
    made.train(31, scenario.job.num_steps)
    return made.close()


def changed_values(scenario: Scenario) -> list[Entry]:
    """The newest checkpoint gets a new manifest, and then other values, also while the job runs."""
    made = begun(scenario, 34)
    made.stop()
    made.change("resealed", 30)
    made.start(30, resume=True)
    made.train(31, 33)
    made.stop()
    made.change("scaled-values", 30, 1.05)
    made.shift = 0.2
    made.start(30, resume=True)
    made.train(31, 33)
    made.stop()
    made.change("scaled-tensor", 30, 1.04)
    made.start(30, resume=True)
    made.train(31, 44)
    made.inject("stop", 44)
    made.change("scaled-values", 40, 1.06)
    made.inject("kill", 44)
    made.shift = 0.4
    made.recover(40)
    made.train(41, 44)
    return made.close()


def reseeded(scenario: Scenario) -> list[Entry]:
    """The job has another seed than that of any other story."""
    made = Made(replace(scenario.job, seed=scenario.job.seed + 1))
    made.shift = 0.1
    made.values = {step: digest(2000 + step) for step in range(scenario.job.num_steps + 1)}
    made.start()
    made.train(1, scenario.job.num_steps)
    return made.close()


def overfitted(scenario: Scenario) -> list[Entry]:
    """Losses of one batch, with all of their digits."""
    return [
        replace(one, record=replace(one.record, loss=5 * 0.97**one.record.step))
        if isinstance(one.record, StepDone)
        else one
        for one in calm(scenario)
    ]


def stored(scenario: Scenario) -> list[Entry]:
    """The suite computes rate and gradient of the last optimizer steps from their checkpoints."""
    *entries, end = calm(scenario)
    values = {"rates": (0.01, 0.01), "correction": 0.9, "squared_norm": 1.0, "dot": 0.1, "squared_values": 100.0}
    steps = range(scenario.job.num_steps - 6, scenario.job.num_steps + 1)
    applied = [Applied(checkpoint=f"step-{step}", step=step, **values) for step in steps]
    return [*entries, *(Entry(seconds=end.seconds, record=one) for one in applied), end]


def slower(scenario: Scenario) -> list[Entry]:
    """The job has half of the learning rate of any other story."""
    made = Made(replace(scenario.job, learning_rate_factor=0.5))
    made.start()
    made.train(1, 1)
    made.shift = 0.1
    made.train(2, 17)
    return made.close()


def damaged_and_struck(scenario: Scenario) -> list[Entry]:
    """The newest checkpoint is damaged while the job runs, and its ranks are lost."""
    made = begun(scenario, 64)
    made.damage("flip-bit", 60)
    made.inject("kill", 64)
    made.recover(30)
    made.train(31, scenario.job.num_steps)
    return made.close()


def looping(scenario: Scenario) -> list[Entry]:
    made = begun(scenario, 24)
    for _ in range(CLAIMS.max_restarts_without_progress):
        made.recover(20)
        made.train(21, 24)
    return made.close("crash-loop", 10)


def skipping(scenario: Scenario) -> list[Entry]:
    made = Made(scenario.job)
    made.start()
    steps = {fault.step: fault.num_steps for fault in scenario.job.faults}
    for step in range(1, scenario.job.num_steps + 1):
        for _ in range(steps.get(step, 0)):
            ids = range(scenario.job.global_sequences)
            for rank in range(made.num_ranks):
                made.step(step - 1, rank, ids[rank :: made.num_ranks], skipped="overflow")
            made.sample(step - 1, None, {"train.step.skipped": sum(n for at, n in steps.items() if at <= step)})
        made.train(step, step)
    return made.close()


def waiting(scenario: Scenario) -> list[Entry]:
    (fault,) = scenario.job.faults
    made = Made(scenario.job, dict.fromkeys(range(fault.step, fault.step + fault.num_steps), fault.seconds))
    made.start()
    made.train(1, scenario.job.num_steps)
    return made.close()
