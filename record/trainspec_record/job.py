"""Writes the stream of a job: the records of one process about all of it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from trainspec_record import values
from trainspec_record.catalog import events
from trainspec_record.identity import Identity
from trainspec_record.ledger import Ledger
from trainspec_record.past import GOODPUT, OpenFault, Past, action_of, counters_at, recovery_id
from trainspec_record.progress import Progress
from trainspec_record.settings import Settings
from trainspec_record.stream import DROPPED, LAG, Stream

SLOW_SECONDS = 30.0
"""Time between two reports of what changes slowly."""
WARMUP = "train.step.warmup"


class Job:
    """Writes what happens to a job. Times are microseconds since 1970, given by the caller, under its lock."""

    def __init__(
        self, stream: Stream, who: Identity, settings: Settings, past: Past, faults: tuple[OpenFault, ...]
    ) -> None:
        self.stream = stream
        self.progress = Progress(past.largest_step, past.num_repeated, settings.interval)
        self.ledger: Ledger | None = None
        self.num_active: float | None = who.world_size
        self.checkpoint_step = past.checkpoint_step
        self.num_faults = past.num_faults + len(faults) - len(past.faults)
        self.faults = list(faults)
        self._who, self._settings, self._past = who, settings, past
        self._largest_before: dict[str, int] = {}
        """The largest optimizer step before each fault of this attempt."""
        self._formed_us = 0
        self._restored_us = 0
        self._has_started = False
        self._slow_us = 0
        self._is_warmup = True

    def event(self, time_us: int, event: str, **more: Any) -> None:
        """An event at the step that the job has reached."""
        self.stream.event(time_us, event, step=self.progress.step, **more)

    # --- begin ----------------------------------------------------------------------------------------------

    def form(self, now_us: int, ledger: Ledger) -> None:
        """The process group is there: the run begins, or begins again after its end, unless it is still running."""
        self._formed_us = self._restored_us = now_us
        self.ledger = ledger
        if not self._past.files or self._past.has_ended:
            a = {
                "train.run.id": self._who.run,
                "train.policy.refs": self._settings.policies(),
                **({"train.world.size": self._who.world_size} if self._who.world_size else {}),
                **self._settings.flops,
                "train.units.profile": "base",
            }
            self.stream.event(now_us, events.RUN_START.name, step=self._past.step, id="run", a=a)
        self.slow(now_us)

    def start(self, step: int) -> None:
        """The attempt starts, from an optimizer step; it is recorded once, as soon as the step is known."""
        if self._has_started:
            return
        self._has_started = True
        self.progress.step = step
        a = {
            "train.run.attempt": self._who.attempt,
            **({"train.world.size": self._who.world_size} if self._who.world_size else {}),
            "train.rank.map": self._settings.rank_map or f"heads of rank-*.{self._who.attempt}.jsonl",
            "train.restore.step": step,
        }
        self.event(self._formed_us + 1, events.ATTEMPT_START.name, id=self._name, a=a)

    @property
    def _name(self) -> str:
        return f"attempt-{self._who.attempt}"

    def restored(self, step: int, counters: Mapping[str, float] | None, now_us: int) -> None:
        """The state of a step is loaded; counters have their values of then, as saved or as written."""
        found = counters or counters_at(self._past.files, step)
        self.progress.restored(step, {key: value for key, value in found.items() if values.number(value) is not None})
        self._restored_us = now_us

    def begin_training(self, step: int, now_us: int) -> None:
        """The first step of the attempt begins; `step` optimizer steps are completed, where no restore said so."""
        self.start(step)
        ledger = self._booked
        ledger.settle("productive", now_us)
        ledger.is_replay = self.progress.is_replay
        self.progress.begin(now_us, ledger.totals_us["evaluation"])
        counts = {"train.step.count": self.progress.step, **self.progress.counters}
        self.stream.sample(now_us, counts, step=self.progress.step)

    @property
    def _booked(self) -> Ledger:
        if self.ledger is None:
            raise RuntimeError("the process group is not formed")
        return self.ledger

    # --- optimizer steps --------------------------------------------------------------------------------------------

    def skip(self, now_us: int, reason: str, gauges: Mapping[str, Any]) -> None:
        """An optimizer step was computed and not applied."""
        m = {**self.progress.skip(reason), **gauges}
        self.stream.sample(now_us, m, step=self.progress.step)

    def miss(self, num_updates: int) -> None:
        """Optimizer steps were completed of which nothing is recorded."""
        self.progress.miss(num_updates)
        self._booked.is_replay = self.progress.is_replay

    def complete(self, now_us: int, duration_us: int, counted: Mapping[str, float], gauges: Mapping[str, Any]) -> None:
        """An optimizer step was completed in so many microseconds."""
        found = self.progress.complete(duration_us, counted)
        self._booked.is_replay = self.progress.is_replay
        mended = [fault for fault in self.faults if fault.recovery is not None and self._is_passed(fault)]
        if mended:
            found = found or self.progress.report()
        if found is not None:
            self._report(now_us, {**found, **gauges})
        for fault in mended:
            self._caught_up(fault, now_us)

    def _is_passed(self, fault: OpenFault) -> bool:
        """Whether an optimizer step is completed beyond the largest one before a fault."""
        return self.progress.step > self._largest_before.get(fault.id, self._past.largest_step)

    def _report(self, now_us: int, m: dict[str, Any]) -> None:
        rate = self.progress.rate(now_us, self._booked.totals_us["evaluation"])
        if rate is not None:
            m["train.token.rate"] = rate
            flops = self._settings.flops
            if flops and self._who.world_size:
                peak = flops["train.flops.peak"] * self._who.world_size * self._settings.num_devices_per_rank
                m["train.flops.utilization"] = rate * flops["train.flops.per_token"] / peak
        if now_us - self._slow_us >= SLOW_SECONDS * 1e6:
            m.update(self._slow_values(now_us))
        a = {WARMUP: self._is_warmup} if "train.step.duration" in m else None
        self._is_warmup = False
        self.stream.sample(now_us, m, step=self.progress.step, a=a)

    def warm_up_again(self, now_us: int, reason: str) -> None:
        """The next report is no sign of the pace."""
        self._is_warmup = True
        a = {"train.reason": reason}
        self.stream.event(now_us, events.STEP_WARMUP_RESET.name, step=self.progress.step + 1, a=a)

    def slow(self, now_us: int) -> None:
        """Records that are due every minute."""
        self.stream.sample(now_us, self._slow_values(now_us), step=self.progress.step)

    def tick(self, now_us: int) -> None:
        """Called now and then, also while no step is completed."""
        if now_us - self._slow_us >= SLOW_SECONDS * 1e6:
            self.slow(now_us)

    def _slow_values(self, now_us: int) -> dict[str, Any]:
        self._slow_us = now_us
        optional = {"train.world.active": self.num_active, "train.batch.size": self.progress.batch_size}
        return {
            **{f"{GOODPUT}{{train.time.category={name}}}": us / 1e6 for name, us in self._booked.until(now_us).items()},
            **{name: value for name, value in optional.items() if value is not None},
            "train.step.repeated": self.progress.num_repeated,
            "train.checkpoint.step": self.checkpoint_step,
            DROPPED: 0,
            LAG: 0,
        }

    # --- faults ---------------------------------------------------------------------------------------------

    def detect(self, now_us: int, domain: str, kind: str, details: Mapping[str, Any], alive_us: int) -> OpenFault:
        """Something failed; `alive_us` is the last sign that it had not."""
        self.num_faults += 1
        fault = OpenFault(f"fault-{self.num_faults}", self._who.attempt, now_us, alive_us)
        a = {"train.fault.id": fault.id, "train.fault.domain": domain, "train.fault.class": kind, **details}
        self.event(now_us, events.FAULT_DETECTED.name, id=fault.id, a=a)
        self.faults.append(fault)
        self._largest_before[fault.id] = self.progress.largest_step
        return fault

    def recover(self, fault: OpenFault, now_us: int, action: str) -> OpenFault:
        """An action against a fault begins, in the same attempt."""
        begun = fault._replace(recovery=recovery_id(fault, action, self._who.attempt), began_us=now_us)
        a = {"train.fault.id": fault.id, "train.recovery.action": action}
        self.event(now_us, events.RECOVERY_BEGIN.name, id=begun.recovery, a=a)
        self.faults = [begun if each.id == fault.id else each for each in self.faults]
        return begun

    def _caught_up(self, fault: OpenFault, now_us: int) -> None:
        """An optimizer step beyond all before the fault was completed."""
        phases = self._phases(fault, now_us)
        m: dict[str, Any] = {
            f"train.recovery.duration{{train.recovery.phase={phase}}}": values.once(us / 1e6)
            for phase, us in phases.items()
        }
        m["train.step.repeated"] = self.progress.num_repeated
        a = {"train.fault.id": fault.id, "train.recovery.action": action_of(fault), "train.recovery.outcome": "resumed"}
        self.event(now_us, events.RECOVERY_END.name, id=fault.recovery, a=a, m=m)
        self.event(now_us + 1, events.FAULT_CLEARED.name, id=fault.id, a={"train.fault.id": fault.id})
        self.faults.remove(fault)

    def _phases(self, fault: OpenFault, now_us: int) -> dict[str, int]:
        """Microseconds of each phase; a fault of this attempt has no restart and no restore."""
        began_us = fault.began_us or fault.detected_us
        is_new = fault.attempt != self._who.attempt
        started_us = max(began_us, self._formed_us) if is_new else began_us
        restored_us = max(started_us, self._restored_us) if is_new else began_us
        return {
            "detect": fault.detected_us - fault.alive_us,
            "decide": began_us - fault.detected_us,
            "restart": started_us - began_us,
            "restore": restored_us - started_us,
            "replay": now_us - restored_us,
            "total": now_us - fault.alive_us,
        }

    # --- end ------------------------------------------------------------------------------------------------

    def end(self, now_us: int, reason: str, status: str | None) -> None:
        """The attempt ends, and the run too where a status says how."""
        self.start(self.progress.step)
        rest = self.progress.report()
        if rest is not None:
            self.stream.sample(now_us, rest, step=self.progress.step, a={WARMUP: self._is_warmup})
        self._booked.abandon("fault_wait" if reason == "fault" else "idle", now_us)
        self.slow(now_us)
        m = {"train.step.count": self.progress.step}
        a = {"train.run.attempt": self._who.attempt, "train.attempt.reason": reason}
        self.event(now_us + 1, events.ATTEMPT_END.name, id=self._name, a=a, m=m)
        if status is not None:
            severity = 17 if status == "failed" else None
            a = {"train.run.id": self._who.run, "train.run.status": status}
            self.event(now_us + 2, events.RUN_END.name, id="run", a=a, m=m, severity=severity)
