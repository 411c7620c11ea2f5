"""Histories of runs that never were, sound ones, and ways to spoil them, for tests of what checks say about them."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any

import msgspec
from trainspec_conformance.criteria.synchrony import batch_of
from trainspec_conformance.records import (
    Damaged,
    Ended,
    Entry,
    Exited,
    Injected,
    Listed,
    Started,
    Stored,
    Streamed,
    Streams,
)

from trainspec_validate.documents.types.conformance import TestJob
from trainspec_validate.documents.types.trace import Decision, End, FaultSeen, Process, Refused, Restore, Save, StepDone

STEP_SECONDS, SAVE_SECONDS, WAIT_SECONDS = 0.1, 0.05, 0.01
TOKENS = 32
"""Of a sample."""
PER_TOKEN = 1e8
UNITS = 4.0
"""Of gradient noise."""
Change = Callable[[list[Entry]], list[Entry]]


def digest(step: int) -> str:
    return f"sha256:{step:064x}"


class Made:
    """A run as the suite sees it, told act by act; every step takes a tenth of a second."""

    def __init__(self, job: TestJob, delays: dict[int, float] | None = None) -> None:
        self.job, self.delays = job, delays or {}
        """Time by which an optimizer step takes longer, for the wait of the last rank."""
        self.entries: list[Entry] = []
        self.streamed: list[Streamed] = []
        self.now, self.attempt, self.num_ranks = 0.0, 0, job.num_ranks
        self.ahead_seconds = [0.0] * self.num_ranks
        """Of the clocks of ranks."""
        self.shift = 0.0
        """By which losses differ from those of any other run."""
        self.values: dict[int, str] = {}
        """Digests of states that were changed, by update."""
        self._samples = self._consumed = 0
        self._waits = [0.0] * self.num_ranks

    def tell(self, record: Any, seconds: float = 0.0) -> None:
        self.now += seconds
        file = "" if type(record).__module__.endswith("conformance.records") else "out/trace/all.jsonl"
        self.entries.append(Entry(seconds=self.now, record=record, file=file, line=len(self.entries) + 1))

    def time_us(self, rank: int = 0) -> int:
        return int((1_700_000_000 + self.now + self.ahead_seconds[rank]) * 1e6)

    def start(self, step: int = 0, *, resume: bool = False, refuses: int | None = None) -> None:
        """The command is started; it may refuse the checkpoint of an update."""
        told = {"attempt": self.attempt, "num_ranks": self.num_ranks, "seed": self.job.seed}
        told["learning_rate_factor"] = float(self.job.learning_rate_factor)
        self.tell(Started(pid=100, resume=resume, **told))
        self.tell(Process(time_us=self.time_us(), role="controller", pid=101), 1)
        if refuses is not None:
            told = {"checkpoint": f"step-{refuses}", "reason": "its digest is another"}
            self.tell(Refused(time_us=self.time_us(), attempt=self.attempt, **told), 1)
        self.form(step)

    def form(self, step: int = 0) -> None:
        """Ranks hold a state and train from it."""
        held = {"source": "checkpoint", "checkpoint": f"step-{step}"} if step else {"source": "initial"}
        self.event("train.attempt.start")
        for rank in range(self.num_ranks):
            told = {"time_us": self.time_us(rank), "attempt": self.attempt, "rank": rank}
            self.tell(Restore(**told, step=step, digest=self.digest(step), **held))
        self._consumed = sum(batch_of(self.job, one) for one in range(1, step + 1))

    def train(self, first: int, last: int, *, failing_saves: bool = False) -> None:
        for step in range(first, last + 1):
            self.now += STEP_SECONDS + self.delays.get(step, 0)
            size = batch_of(self.job, step)
            ids = [number % self.job.samples_per_epoch for number in range(self._consumed, self._consumed + size)]
            self._consumed += size
            for rank in range(self.num_ranks):
                self.step(step, rank, tuple(ids[rank :: self.num_ranks]))
            self.report(step)
            if step % self.job.checkpoint_interval_steps == 0:
                self.save(step, fails=failing_saves)

    def step(self, step: int, rank: int, ids: Sequence[int], skipped: str | None = None) -> None:
        told = {"time_us": self.time_us(rank), "attempt": self.attempt, "rank": rank, "step": step, "skipped": skipped}
        loss = self.loss(step + 1 if skipped else step)
        self.tell(
            StepDone(
                **told,
                loss=loss,
                learning_rate=0.01 * self.job.learning_rate_factor,
                sample_ids=tuple(ids),
                gradient_norm=1.0,
            )
        )

    def loss(self, step: int) -> float:
        """It falls, but where nothing is learned; then it is that of the samples."""
        if not self.job.learning_rate_factor:
            return 5 + step % (self.job.samples_per_epoch // self.job.global_sequences) / 100 + self.shift
        return 5 - step / 100 + self.shift

    def digest(self, step: int) -> str:
        return self.values.get(step, digest(step))

    def report(self, step: int) -> None:
        """What streams say of an update."""
        for rank in range(self.num_ranks):
            self._waits[rank] += WAIT_SECONDS + (self.delays.get(step, 0) if rank == self.num_ranks - 1 else 0)
            took = STEP_SECONDS + self.delays.get(step, 0)
            own = {"train.rank.step": step, "train.step.duration": took, "train.data.wait.time": self._waits[rank]}
            self.sample(step, rank, own)
        shared = {"train.step.count": step, "train.sample.count": self._consumed, "train.loss.mean": 5 - step / 100}
        shared |= {"train.token.count": self._consumed * TOKENS, "train.learning_rate": 0.01, "train.gradient.norm": 1}
        shared |= {"train.gradient.signal": 0.5, "train.gradient.variance": 0.5 * UNITS}
        if self.job.peak_flops_per_second and step % 30 == 0:
            rate = self.job.global_sequences * TOKENS / STEP_SECONDS
            shared["train.flops.utilization"] = rate * PER_TOKEN / self.job.peak_flops_per_second / self.num_ranks
        self.sample(step, None, shared)

    def sample(self, step: int, rank: int | None, values: dict[str, float]) -> None:
        told = {"attempt": self.attempt, "time_us": self.time_us(), "rank": rank, "step": step}
        self.streamed.append(Streamed(kind="sample", **told, values={name: float(one) for name, one in values.items()}))

    def event(self, name: str, step: int | None = None) -> None:
        told = {"attempt": self.attempt, "time_us": self.time_us(), "name": name, "step": step}
        self.streamed.append(Streamed(kind="event", **told))

    def save(self, step: int, *, fails: bool = False) -> None:
        told = {"attempt": self.attempt, "checkpoint": f"step-{step}", "step": step}
        self.tell(Save(time_us=self.time_us(), stage="begin", rank=0, **told))
        self.tell(Save(time_us=self.time_us(), stage="snapshot", rank=0, digest=self.digest(step), **told))
        if fails:
            self.tell(Save(time_us=self.time_us(), stage="failed", reason="no space left", **told), SAVE_SECONDS)
            return
        self.tell(Save(time_us=self.time_us(), stage="committed", digest=self.digest(step), **told), SAVE_SECONDS)
        self.event("train.checkpoint.begin", step)
        self.event("train.checkpoint.commit", step)
        duration = "train.checkpoint.duration{{train.checkpoint.phase={}}}".format
        times = {duration("total"): SAVE_SECONDS, duration("blocking"): 0.0}
        self.sample(step, None, {**times, "train.checkpoint.step": step})

    def inject(self, kind: str, step: int, value: float = 0.0) -> None:
        self.tell(Injected(kind=kind, target="rank", ranks=(self.num_ranks - 1,), step=step, value=value))

    def recover(self, step: int, kind: str = "process") -> None:
        """Tell of a fault of the last rank, and go on from a checkpoint in a new attempt."""
        blamed = {"kind": kind, "rank": self.num_ranks - 1}
        self.tell(FaultSeen(time_us=self.time_us(), attempt=self.attempt, **blamed), 1)
        self.event("train.fault.detected")
        self.tell(Decision(time_us=self.time_us(), attempt=self.attempt, action="restart"), 1)
        self.attempt += 1
        self.now += 1
        self.form(step)
        self.event("train.recovery.end")

    def stop(self, status: int = 0) -> None:
        """The suite ends the command."""
        self.tell(Exited(pid=100, status=status, asked=True), 1)
        self.list()
        self.attempt += 1

    def list(self) -> None:
        kept = {save.checkpoint: save.step for save in self.committed()}
        names = sorted(kept, key=kept.__getitem__)[-self.job.num_kept :]
        newest = names[-1] if names else None
        self.tell(Listed(checkpoints=tuple(names), pointer=newest, newest=newest))

    def committed(self) -> Iterable[Save]:
        saves = [entry.record for entry in self.entries if isinstance(entry.record, Save)]
        return [save for save in saves if save.stage == "committed"]

    def damage(self, kind: str, step: int) -> None:
        self.tell(Damaged(kind=kind, checkpoint=f"step-{step}"))
        self.now += 1

    def change(self, kind: str, step: int, factor: float = 1.0) -> None:
        """Another sound checkpoint takes the place of one, whose values the suite reads before and after."""
        self.read_values(step)
        self.tell(Damaged(kind=kind, checkpoint=f"step-{step}", factor=factor))
        if factor != 1.0:
            self.values[step] = digest(1000 + step)
        self.read_values(step)
        self.now += 1

    def read_values(self, last: int) -> None:
        for step in range(self.job.checkpoint_interval_steps, last + 1, self.job.checkpoint_interval_steps):
            self.tell(Stored(checkpoint=f"step-{step}", digest=self.digest(step)[::-1], num_bytes=100))

    def close(self, reason: str = "completed", status: int = 0) -> list[Entry]:
        """The run has ended."""
        last = max((one.record.step for one in self.entries if isinstance(one.record, StepDone)), default=0)
        self.tell(End(time_us=self.time_us(), attempt=self.attempt, reason=reason, step=last, digest=digest(last)))
        self.tell(Exited(pid=100, status=status), 1)
        self.list()
        self.read_values(last)
        self.tell(Streams(num_files=3))
        declared = {"train.gradient.group_sizes": [2], "train.gradient.num_groups": 2, "unsupported": []}
        rates = {"train.flops.per_token": PER_TOKEN, "train.flops.peak": self.job.peak_flops_per_second}
        self.tell(Streamed(kind="head", attempt=0, time_us=0, attributes={**declared, **rates}))
        for record in self.streamed:
            self.tell(record)
        self.tell(Ended(reason="done"))
        return self.entries


# --- ways to spoil a history ---------------------------------------------------------------------------------


def changed(kind: type, where: Callable[[Any], bool] = lambda _: True, /, **changes: Any) -> Change:
    """Records of a kind are told otherwise."""
    return lambda entries: [
        msgspec.structs.replace(one, record=msgspec.structs.replace(one.record, **changes))
        if isinstance(one.record, kind) and where(one.record)
        else one
        for one in entries
    ]


def dropped(kind: type, where: Callable[[Any], bool] = lambda _: True) -> Change:
    """Records of a kind are not told."""
    return lambda entries: [one for one in entries if not (isinstance(one.record, kind) and where(one.record))]


def added(record: Any) -> Change:
    """One more record, seen last of all."""
    return lambda entries: [*entries, Entry(seconds=entries[-1].seconds + 1, record=record)]


def late(kind: type, seconds: float, where: Callable[[Any], bool] = lambda _: True) -> Change:
    """The first record of a kind is seen so much later, and all that follow it."""

    def change(entries: list[Entry]) -> list[Entry]:
        first = next(i for i, one in enumerate(entries) if isinstance(one.record, kind) and where(one.record))
        later = [msgspec.structs.replace(one, seconds=one.seconds + seconds) for one in entries[first:]]
        return [*entries[:first], *later]

    return change


def told(metric: str, factor: float, where: Callable[[Streamed], bool] = lambda _: True) -> Change:
    """Streams tell so many times the value of a metric."""

    def change(entries: list[Entry]) -> list[Entry]:
        return [_scaled(one, metric, factor) if _carries(one, metric, where) else one for one in entries]

    return change


def _carries(entry: Entry, metric: str, where: Callable[[Streamed], bool]) -> bool:
    record = entry.record
    return isinstance(record, Streamed) and metric in record.values and where(record)


def _scaled(entry: Entry, metric: str, factor: float) -> Entry:
    values = {**entry.record.values, metric: entry.record.values[metric] * factor}
    return msgspec.structs.replace(entry, record=msgspec.structs.replace(entry.record, values=values))
