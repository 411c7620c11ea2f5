"""Judges incidents by the criteria of scenarios, where the records of a run hold what a criterion needs."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import pairwise

import msgspec

from trainspec_conformance.criteria import Case
from trainspec_conformance.formats.reasons import UNJUDGED
from trainspec_conformance.judging import Judged, judge_criterion
from trainspec_conformance.reading import all_scenarios
from trainspec_conformance.records import Entry, Listed, Streams
from trainspec_conformance.replaying.clocks import BY_ORDER, DIFFER, clocks_differ, impossible_order
from trainspec_conformance.replaying.facts import Facts
from trainspec_conformance.replaying.histories import EARLY, LATE, first_time, history, ranks, repeated, usable_saves
from trainspec_conformance.replaying.incidents import FAULTS, Incident, own_reports
from trainspec_conformance.replaying.records import CriterionResult, Kind, Verdict
from trainspec_conformance.view import View
from trainspec_validate.documents.types import CheckpointPolicy
from trainspec_validate.documents.types.conformance import Claims, Store
from trainspec_validate.documents.types.scenario import Criterion, Scenario
from trainspec_validate.telemetry.checks._attributes import word
from trainspec_validate.telemetry.checks._restarts import PEERS
from trainspec_validate.telemetry.checks._saves import checkpoint_id

SCENARIOS: Mapping[Kind, tuple[str, ...]] = {
    "process-failure": ("kill-rank",),
    "device-failure": ("kill-rank",),
    "unknown-fault": ("kill-rank",),
    "unreported-fault": ("kill-rank",),
    "node-failure": ("kill-host",),
    "network-failure": ("blackhole",),
    "storage-failure": ("kill-rank",),
    "hang": ("stop-rank", "livelock"),
    "out-of-memory": ("killed-for-memory",),
    "silent-corruption": ("replica-flip",),
    "preemption": ("grace-signal",),
    "planned-restart": ("resume-equivalence",),
    "restart": ("resume-equivalence",),
    "resize": ("reshard",),
    "failed-save": ("write-error",),
    "failed-restore": ("flipped-shard",),
}
"""Scenarios whose criteria apply to a kind of incident; the kinds without any are named and not judged."""
FROM_CHECKPOINT = "kill-controller"
"""Scenario of a job that restarts from a checkpoint after a fault."""
TELEMETRY = ("reported-faults", "every-rank-reports")
"""Scenarios of telemetry over a fault and over a restart."""
AFTER_READING = frozenset({"newest-is-whole", "stream-is-valid"})
"""Criteria that need the findings on all files."""
OF_A_CHOICE = frozenset({"restores-newest-good", "resumes-within", "lost-steps-at-most", "not-from-nothing"})
"""Criteria about the state that a job continued from: it was right to skip newer checkpoints that were damaged."""
_CHANGES = ("train.hyperparameter.changed", "train.data.position.changed", "train.batch_size.changed")
_NO_AFTER = "the files have no later attempt that trains"
_RANK_RESTORES = "a stream reports the restore of the whole job, and not the state of each rank"
NOT_IN_RECORDS: Mapping[str, str] = {
    "completes": "the files hold neither the exit status of the command nor the step that was planned as the last",
    "ends-in-time": "the files do not hold the exit of the command",
    "no-orphans": "processes that were left on the nodes are not in the files",
    "same-samples": "streams do not name samples",
    "each-sample-once": "streams do not name samples",
    "agree-on-restore": _RANK_RESTORES,
    "restored-as-saved": "streams carry no digest of a state",
    "same-end-where-bitwise": "there is no run without the fault to compare with",
    "fault-kind": "the report of the stack is the only source of the cause",
    "blamed-rank": "the report of the stack is the only source of the rank",
    "names-damage": "no record says which checkpoint was damaged, and when",
    "ends-in-grace": "the moment of the notice is not in the files",
    "noticed-within": "the claimed time is of the test job; a policy states those of production (TS-REC-004)",
    "save-fails-openly": "no record says from when to when the storage target failed",
    "earlier-untouched": "no record says which checkpoints the storage target held at the fault",
    "keeps-newest": "no record says which checkpoints the storage target held at the end of the job",
}
"""Criteria that no stream can answer, with the reason."""
_ONLY_INJECTED = "it needs damage or a change that the suite itself brings about"


@dataclass(frozen=True)
class Terms:
    """Numbers that incidents are judged by."""

    claims: Claims
    are_claimed: bool = False
    """Whether somebody claims these numbers for the job; the defaults of a descriptor are about the test job."""
    policy: CheckpointPolicy | None = None
    store: Store | None = None
    """Of the stack that was named."""


@dataclass(frozen=True, slots=True)
class Skipped:
    """Committed checkpoints that a restart left out: only their files show whether they were damaged."""

    names: tuple[str, ...]
    """From the oldest step to the newest."""
    written_again: frozenset[str]
    """Names of which a later attempt wrote another checkpoint."""


@dataclass(frozen=True)
class Judge:
    """Judges one incident of a run."""

    facts: Facts
    incident: Incident
    terms: Terms
    is_last: bool = True
    """Whether no later incident of the run ended an attempt."""

    @cached_property
    def histories(self) -> tuple[list[Entry], list[Entry]]:
        """The incident on both readings of its records."""
        return history(self.facts, self.incident, LATE), history(self.facts, self.incident, EARLY)

    def criteria(self) -> Iterator[tuple[Scenario, Criterion]]:
        """Criteria of all scenarios that apply, each once."""
        names = [*SCENARIOS.get(self.incident.kind, ())]
        if self.incident.after is not None:
            restart = self.facts.restarts.get(self.incident.after.number)
            source = restart.source if restart is not None else None
            if self.incident.kind in FAULTS and source != PEERS and self.incident.kind != "silent-corruption":
                names.append(FROM_CHECKPOINT)
            names += TELEMETRY
        seen: set[Criterion] = set()
        for name in names:
            scenario = all_scenarios()[name]
            for criterion in scenario.criteria:
                if criterion not in seen:
                    seen.add(criterion)
                    yield scenario, criterion

    def results(self) -> list[CriterionResult]:
        """Verdict on each criterion; one of `AFTER_READING` that can be judged is `not-run` without a reason."""
        return [self._result(scenario, criterion) for scenario, criterion in self.criteria()]

    def _result(self, scenario: Scenario, criterion: Criterion) -> CriterionResult:
        reason = self._bar(criterion)
        if reason or criterion.check in AFTER_READING:
            return result(scenario, criterion, "not-run", (reason,) if reason else ())
        late, early = self._judged(scenario, criterion)
        return self._softened(scenario, criterion, late, early)

    # --- what cannot be judged

    def _bar(self, criterion: Criterion) -> str:
        """Why a criterion cannot be judged for this incident; empty where it can."""
        check = criterion.check
        if check in NOT_IN_RECORDS:
            return NOT_IN_RECORDS[check]
        if check not in BARS:
            return _ONLY_INJECTED
        if self.incident.kind == "failed-restore" and check not in AFTER_READING:
            return self.incident.ambiguities[0]
        if self.incident.in_attempt and check not in AFTER_READING:
            return "the job continued in the same attempt, and the criteria are about a new one"
        if self._needs_after(check) and self.incident.after is None:
            return _NO_AFTER
        numbers = {span.number for span in (self.incident.before, self.incident.after) if span is not None}
        if numbers & self.facts.falls.keys() and check not in AFTER_READING:
            return "the step count falls within an attempt"
        if check in BY_ORDER and clocks_differ(self.facts, self.incident):
            return DIFFER
        return BARS[check](self)

    @staticmethod
    def _needs_after(check: str) -> bool:
        return check not in {"newest-is-whole", "stream-is-valid", "saves-again", "detected-within"}

    def no_clock(self) -> str:
        """Why times cannot be judged."""
        if not self.facts.has_clock:
            return "the records have no times of day"
        before, after = self.incident.before, self.incident.after
        spans = [span for span in (before, *self.incident.between, after) if span is not None]
        if not all(self.facts.has_one_clock(span.number) for span in spans):
            return "a clock was stepped, or clocks of hosts differ by more than 5 s"
        return DIFFER if clocks_differ(self.facts, self.incident) else impossible_order(self.facts, self.incident)

    def no_detection(self) -> str:
        """Why the time to the report cannot be judged."""
        if self.incident.kind == "hang":
            return NOT_IN_RECORDS["noticed-within"]
        if not own_reports(self.facts, self.incident):
            return "the stack itself reported no fault"
        return self.no_claim() or self.no_steps_before() or self.no_clock()

    def no_steps_before(self) -> str:
        """Why the attempt that ended says nothing."""
        before = self.incident.before
        return (
            ""
            if before is not None and self.facts.has_trained(before.number)
            else "no optimizer step before it is in the files"
        )

    def no_restore(self) -> str:
        """Why the state that was restored is not known."""
        after = self.incident.after
        if after is None or self.facts.restored_step(after.number) is None:
            return "no record says from which state the next attempt continued"
        return ""

    def no_recovery(self) -> str:
        """Why the recovery time cannot be judged."""
        return self.no_claim() or self.no_times()

    def no_times(self) -> str:
        """Why the moments of the recovery are not known."""
        return self.no_clock() or self.no_steps_before() or self.no_restore()

    def no_claim(self) -> str:
        """Why no limit of time applies: the default of a claim is about the test job, and not about production."""
        named = "no descriptor claims a time for this job; TS-REC-003 compares recoveries with the budget of a policy"
        return "" if self.terms.are_claimed else named

    def no_resumption(self) -> str:
        """Why the steps that were lost are not known."""
        return self.no_steps_before() or self.no_restore()

    def no_interval(self) -> str:
        """Why the limit of lost steps is not known."""
        known = (
            "" if self.interval_steps is not None else "neither a policy nor evenly spaced commits give the interval"
        )
        return self.no_resumption() or known

    def no_commit(self) -> str:
        """Why the choice of a checkpoint cannot be judged."""
        known = "" if usable_saves(self.facts, self.incident) else "no checkpoint was committed before the restart"
        return self.no_restore() or known

    def no_lineage(self) -> str:
        """Why two attempts cannot be compared in time."""
        before = self.incident.before
        known = before is not None and self.facts.restored_step(before.number) is not None
        told = "" if known else "no record says from which state the attempt before it continued"
        return self.no_clock() or self.no_restore() or told

    def no_baseline(self) -> str:
        """Why repeated steps cannot be compared with their first execution."""
        before, after = self.incident.before, self.incident.after
        if not self.facts.is_native:
            return "printed numbers are rounded or averaged, and the claimed tolerance is smaller"
        if before is None or after is None or before.world_size != after.world_size or before.world_size is None:
            return "the attempts have another number of ranks, or no record states it"
        if self.incident.kind == "silent-corruption":
            return "the first execution of these steps may be the corrupt one"
        if self._changed_on_purpose():
            return "data, batch or a hyperparameter was changed in between"
        return self.no_restore()

    def no_native(self) -> str:
        """Why events cannot be compared."""
        return "" if self.facts.is_native else "the run has no metric stream of its own"

    def no_fault(self) -> str:
        """Why the number of reports cannot be judged."""
        reports, own = self.incident.reports, own_reports(self.facts, self.incident)
        if self.incident.between:
            return "attempts in between completed no step, and no record says how many faults there were"
        if len(own) > 1:
            return "several faults were reported, and no record says how many there were"
        if not own and reports:
            return "a witness reports the fault, and its records are not those of the stack"
        if not reports:
            return self.no_native()
        return ""

    def no_events(self) -> str:
        """Why the events of a recovery cannot be judged."""
        before, after = self.incident.before, self.incident.after
        if before is None or after is None or self.facts.progress is None:
            return "no optimizer step is in the files"
        if self.incident.kind not in FAULTS:
            return "no record says that there was a fault"
        last, reached = self.facts.progress.last(before.number), self.facts.progress.last(after.number)
        if last is not None and reached is not None and reached.step <= last.step:
            return "the job had not caught up by the end of the next attempt"
        return self.no_native() or self.no_fault() or self.no_steps_before()

    def no_ranks(self) -> str:
        """Why the reports of ranks cannot be judged."""
        after = self.incident.after
        if after is None or after.world_size is None:
            return "no record states the number of ranks"
        reason = word(after.ended, "train.attempt.reason") if after.ended is not None else None
        if reason != "completed":
            return "the next attempt did not end as completed, and last records of its ranks may be lost"
        return self.no_native()

    def no_listing(self) -> str:
        """Why the checkpoints in the directory say nothing of this incident."""
        return "" if self.is_last else "the directory shows the checkpoints after the last incident alone"

    def always(self) -> str:
        """Nothing is missing."""
        return ""

    @property
    def interval_steps(self) -> int | None:
        """Optimizer steps between saves, as the policy says or as all commits of the attempt before it are apart."""
        policy = self.terms.policy
        if policy is not None and policy.interval.steps is not None:
            return policy.interval.steps
        before = self.incident.before
        found = sorted(
            {
                save.step
                for save in self.facts.saves
                if save.committed and save.step is not None and before and save.committed.attempt == before.number
            }
        )
        distances = {later - earlier for earlier, later in pairwise(found)}
        return distances.pop() if len(distances) == 1 and len(found) > 2 else None

    def _changed_on_purpose(self) -> bool:
        """Whether an event of the next attempt says that something was changed."""
        after = self.incident.after
        return after is not None and any(e.attempt == after.number for e in self.facts.run.events_named(*_CHANGES))

    # --- verdicts

    def _judged(self, scenario: Scenario, criterion: Criterion) -> tuple[Judged, Judged]:
        """The verdict of the criterion on both readings."""
        if criterion.check in {"same-trajectory", "same-rates"}:
            metric = "train.loss.mean" if criterion.check == "same-trajectory" else "train.learning_rate"
            trial, control = repeated(self.facts, self.incident, metric), first_time(self.facts, self.incident, metric)
            found = self._judge(scenario, criterion, trial, control)
            return found, found
        if criterion.check == "every-rank-tells" and self.incident.after is not None:
            found = self._judge(scenario, criterion, ranks(self.facts, self.incident.after))
            return found, found
        late, early = self.histories
        return self._judge(scenario, criterion, late), self._judge(scenario, criterion, early)

    def _judge(
        self, scenario: Scenario, criterion: Criterion, trial: Sequence[Entry], control: Sequence[Entry] | None = None
    ) -> Judged:
        job = msgspec.structs.replace(scenario.job, faults=())
        if self.interval_steps is not None:
            job = msgspec.structs.replace(job, checkpoint_interval_steps=self.interval_steps)
        about = msgspec.structs.replace(scenario, job=job)
        store = self.terms.store or Store()
        case = Case(about, self.terms.claims, View(trial), None if control is None else View(control), store)
        found = judge_criterion(case, criterion, trial)
        after = self.incident.after
        if criterion.check != "recovered-within" or found.passed or found.is_own_failure or after is None:
            return found
        injected = case.trial.injections()
        if not injected or next(case.trial.first_steps(injected[-1][0].seconds), None) is not None:
            return found
        if not self.facts.has_trained(after.number):
            return found
        words = f"attempt {after.number} completed optimizer steps, and none with a reported finite loss"
        return replace(found, messages=(words,))

    def _softened(self, scenario: Scenario, criterion: Criterion, late: Judged, early: Judged) -> CriterionResult:
        """One verdict of two: none where they differ, or where somebody may have chosen what is wrong."""
        verdict, messages = verdict_of(late)
        other, more = verdict_of(early)
        places = late.places
        if "error" in {verdict, other}:
            return result(scenario, criterion, "error", messages if verdict == "error" else more)
        if verdict != other:
            words = self._interval_words()
            told = (more or messages)[:1]
            return result(
                scenario, criterion, "not-run", (f"it depends on {words}: at worst, {told[0] if told else other}",)
            )
        if verdict == "fail" and (doubt := self._doubt(criterion.check)):
            return result(scenario, criterion, "not-run", (f"{doubt}: {messages[0]}",))
        return result(scenario, criterion, verdict, messages, places if verdict == "fail" else ())

    def _interval_words(self) -> str:
        seconds = (self.incident.latest_us - self.incident.earliest_us) / 1e6
        return f"the time of the fault, open for {seconds:.3g} s, and on steps without a reported loss"

    def _doubt(self, check: str) -> str:
        """Why a failure may be no failure of the stack; empty where it is one."""
        if check in OF_A_CHOICE and (self.incident.by_choice or self._changed_on_purpose()):
            return "somebody may have chosen the state that the job continued from"
        if check in OF_A_CHOICE and self._gave_up():
            return "the restore of a newer checkpoint was given up, and no record says whether it was damaged"
        if check == "one-lineage" and not self._has_one_host():
            return "the times are of two hosts"
        if check == "saves-again" and not self._saved_later():
            return "the files end before another save began"
        return ""

    @cached_property
    def skipped(self) -> Skipped | None:
        """Newer checkpoints than the one that was restored; None where there are none."""
        after = self.incident.after
        restored = self.facts.restored_step(after.number) if after is not None else None
        if after is None or restored is None:
            return None
        newer = [save for save in usable_saves(self.facts, self.incident) if (save.step or 0) > restored]
        names = tuple(save.id for save in sorted(newer, key=lambda save: save.step or 0))
        begun = self.facts.run.events_named("train.checkpoint.begin", "train.checkpoint.commit")
        again = {checkpoint_id(event) for event in begun if event.attempt >= after.number}
        return Skipped(names, frozenset(name for name in names if name in again)) if names else None

    def _gave_up(self) -> bool:
        """Whether a restore was given up between the attempt that ended and the first step of the one that followed."""
        before, after = self.incident.before, self.incident.after
        if before is None or after is None:
            return False
        return any(before.number < number <= after.number for number in self.facts.given_up)

    def _has_one_host(self) -> bool:
        spans = [span for span in (self.incident.before, self.incident.after) if span is not None]
        hosts = [
            {h.record.host for h in self.facts.run.heads if h.record.att == span.number and "job" in h.record.scopes}
            for span in spans
        ]
        return len(hosts) == 2 and hosts[0] == hosts[1] and len(hosts[0]) == 1 and None not in hosts[0]

    def _saved_later(self) -> bool:
        begun = self.facts.run.events_named("train.checkpoint.begin")
        return any(event.time_us > self.incident.latest_us for event in begun)


BARS: Mapping[str, Callable[[Judge], str]] = {
    "detected-within": Judge.no_detection,
    "recovered-within": Judge.no_recovery,
    "lost-steps-at-most": Judge.no_interval,
    "not-from-nothing": Judge.no_commit,
    "restores-newest-good": Judge.no_commit,
    "resumes-within": Judge.no_resumption,
    "one-lineage": Judge.no_lineage,
    "same-trajectory": Judge.no_baseline,
    "same-rates": Judge.no_baseline,
    "faults-reported": Judge.no_fault,
    "faults-as-seen": Judge.no_events,
    "every-rank-tells": Judge.no_ranks,
    "saves-again": Judge.always,
    "newest-is-whole": Judge.no_listing,
    "stream-is-valid": Judge.no_native,
}
"""Criteria that records can answer, with what says why they do not."""


def verdict_of(judged: Judged) -> tuple[Verdict, tuple[str, ...]]:
    """Verdict and messages of a check: it was not run where its input, or a part of it, is missing."""
    if judged.is_own_failure:
        return "error", judged.messages
    if not judged.passed and judged.messages and judged.messages[0].startswith(UNJUDGED):
        return "not-run", (judged.messages[0].removeprefix(UNJUDGED),)
    if judged.passed and judged.messages:
        return "not-run", judged.messages
    return ("pass" if judged.passed else "fail"), judged.messages


def result(
    scenario: Scenario,
    criterion: Criterion,
    verdict: Verdict,
    messages: Sequence[str] = (),
    places: Sequence[str] = (),
) -> CriterionResult:
    """A verdict as a replay states it."""
    return CriterionResult(
        scenario=scenario.metadata.name,
        requirement=scenario.requirement,
        check=criterion.check,
        verdict=verdict,
        messages=tuple(messages),
        places=tuple(places),
    )


def judged_after(
    check: str, record: Listed | Streams, terms: Terms, scenario: Scenario
) -> tuple[Verdict, tuple[str, ...]]:
    """Verdict on a criterion about the files, from what the validator found in them."""
    criterion = next(one for one in scenario.criteria if one.check == check)
    trial = [Entry(seconds=0.0, record=record)]
    case = Case(scenario, terms.claims, View(trial), store=terms.store or Store())
    return verdict_of(judge_criterion(case, criterion, trial))
