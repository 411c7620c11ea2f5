"""Opens the streams of a process, and joins them to the attempts before."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING

from trainspec_record.claim import is_orphan
from trainspec_record.clock import Clock
from trainspec_record.guard import never_raises
from trainspec_record.identity import Identity
from trainspec_record.job import Job
from trainspec_record.ledger import Ledger
from trainspec_record.past import Past, attempts_of, mend, read_past
from trainspec_record.pump import Pump
from trainspec_record.rank import Rank
from trainspec_record.settings import Settings, rank_emitter
from trainspec_record.stream import Stream
from trainspec_record.succession import succeed

if TYPE_CHECKING:
    from trainspec_record.node.sampler import Sampler


@dataclass
class Writers:
    """Everything that a process writes with."""

    who: Identity
    settings: Settings
    clock: Clock
    ledger: Ledger
    pump: Pump
    rank: Rank
    job: Job | None
    formed_us: int
    """When the process joined the attempt."""
    sampler: Sampler | None = None

    def close(self) -> None:
        """Write what waits and close the files."""
        if self.sampler is not None:
            self.sampler.stop()
        self.pump.stop()


def open_writers(who: Identity, settings: Settings) -> Writers:
    """The streams of a process; rank 0 writes that of the job too.

    Raises:
        OSError: a file cannot be made.
        RuntimeError: no thread can be started.
    """
    who = _placed(who, settings)
    clock, pump = Clock(), Pump()
    formed_us = clock.now_us()
    _mend_predecessor(who, rank_emitter(who))
    job, ledger = None, Ledger(formed_us)
    if who.rank == 0:
        job, ledger = _open_job(who, settings, clock)
        pump.streams.append(job.stream)
    rank = Rank(Stream(who.folder, settings.rank_head(who, formed_us), clock, who.redaction), settings.interval)
    rank.stream.open()
    pump.streams.append(rank.stream)
    pump.start()
    rank.tick(clock.now_us(), is_due=True)
    return Writers(who, settings, clock, ledger, pump, rank, job, formed_us)


def _placed(who: Identity, settings: Settings) -> Identity:
    """With what the program says of itself, and the attempt that is free in the folder."""
    emitters = [rank_emitter(who), *(["job"] if who.rank == 0 else [])]
    used = [number for emitter in emitters for number, _ in attempts_of(who.folder, emitter)]
    return who._replace(
        attempt=max([who.attempt, *(number + 1 for number in used)]),
        world_size=settings.world_size or who.world_size,
        device=settings.device or who.device,
    )


def _open_job(who: Identity, settings: Settings, clock: Clock) -> tuple[Job, Ledger]:
    past = _past(who)
    past, faults = never_raises((past, past.faults))(succeed)(past, partial(_past, who), who.attempt, clock.now_us())
    now_us = clock.now_us()
    ledger = Ledger(now_us, past.totals_us)
    if past.files:
        away = "fault_wait" if faults else "idle"
        ledger.totals_us[away] += max(0, now_us - past.alive_us)
    stream = Stream(who.folder, settings.job_head(who, now_us, past.start_us or now_us), clock, who.redaction)
    stream.open()
    job = Job(stream, who, settings, past, faults)
    job.form(now_us, ledger)
    return job, ledger


def _past(who: Identity) -> Past:
    """What earlier attempts wrote; nothing where it cannot be read."""
    return never_raises(Past())(read_past)(who.folder, who.attempt)


@never_raises(None)
def _mend_predecessor(who: Identity, emitter: str) -> None:
    for _, path in attempts_of(who.folder, emitter)[-1:]:
        if is_orphan(path):
            mend(path)
