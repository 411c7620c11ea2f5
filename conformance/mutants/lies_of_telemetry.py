"""Mutants of the metrics that a stack reports, and of the batch that its ranks share."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

from registry import mutant
from trainspec_reference.common import data, telemetry, trainer
from trainspec_reference.common.batch_schedule import BatchSchedule, StepBatch
from trainspec_reference.common.data import Request
from trainspec_reference.common.ports import Surroundings
from trainspec_reference.common.saver import WorkerPorts
from trainspec_reference.common.state import TrainerState
from trainspec_reference.common.trace import TraceWriter

from trainspec_record import job, rank, stream
from trainspec_record.noise import meter
from trainspec_record.silent import SilentRun
from trainspec_record.spans import Save
from trainspec_validate.documents.types.trace import StepDone

SLOW_STORE_SECONDS = 0.5
SHARED = "the samples of a batch are compared there too"


@mutant("tells-milliseconds", "TS-CNF-301", "Writes the time of its records in milliseconds.",
        also={"TS-CNF-308": "the stream is judged there too"})  # fmt: skip
def tells_milliseconds() -> None:
    put = stream.Stream._put

    def coarse(self: stream.Stream, record: dict[str, Any]) -> None:
        put(self, {**record, "time_us": record["time_us"] // 1000})

    stream.Stream._put = coarse  # type: ignore[method-assign]


@mutant("one-rank-only", "TS-CNF-302", "Lets rank 0 alone write a stream.",
        also={"TS-CNF-221": "the last rank waits for data there"})  # fmt: skip
def one_rank_only() -> None:
    begin = telemetry.begin

    def first_alone(job: Any, formation: Any, documents: Any = ()) -> telemetry.Recorder:
        return SilentRun() if formation.rank else begin(job, formation, documents)

    telemetry.begin = first_alone


def _logs(change: Callable[[trainer.Step, dict[str, Any]], dict[str, Any]]) -> None:
    """Change the words of each step before they reach the recorder."""

    class Changed:
        def __init__(self, recorder: Any, of: trainer.Step) -> None:
            self._recorder, self._of = recorder, of

        def log(self, **words: Any) -> None:
            self._recorder.log(**change(self._of, words))

    log = trainer.Step.log

    def changed(self: trainer.Step, surroundings: Surroundings, clip_norm: float | None) -> None:
        recorder: Any = Changed(surroundings.recorder, self)
        log(self, replace(surroundings, recorder=recorder), clip_norm)

    trainer.Step.log = changed  # type: ignore[method-assign]


@mutant("counts-skipped", "TS-CNF-303", "Counts optimizer steps that it skipped as completed.")
def counts_skipped() -> None:
    _logs(lambda _, words: {**words, "skipped": None})


def _durations(change: Callable[[int], int]) -> None:
    of_rank, of_job = rank.Rank.complete, job.Job.complete

    def rank_tells(self: rank.Rank, now_us: int, duration_us: int, gauges: Any) -> None:
        of_rank(self, now_us, change(duration_us), gauges)

    def job_tells(self: job.Job, now_us: int, duration_us: int, counted: Any, gauges: Any) -> None:
        of_job(self, now_us, change(duration_us), counted, gauges)

    rank.Rank.complete, job.Job.complete = rank_tells, job_tells  # type: ignore[method-assign]


@mutant("constant-step-time", "TS-CNF-304", "Reports the same time for each optimizer step.",
        also=dict.fromkeys(("TS-CNF-301", "TS-CNF-308"), "the validator adds up the time of steps"))  # fmt: skip
def constant_step_time() -> None:
    _durations(lambda _: 50_000)


@mutant("tenth-of-step-time", "TS-CNF-304", "Divides the time of steps by ten, and reports each.",
        also={f"TS-CNF-{number}": "the validator finds it in the stream" for number in (301, 308)})  # fmt: skip
def tenth_of_step_time() -> None:
    _durations(lambda duration_us: duration_us // 10)


@mutant("counts-own-samples", "TS-CNF-305", "Counts the samples of one rank.",
        also={"TS-CNF-311": "the stream reports the batch there"})  # fmt: skip
def counts_own_samples() -> None:
    _logs(lambda of, words: {**words, "samples": len(of.loaded.sample_ids)})


@mutant("smooths-loss", "TS-CNF-306", "Reports a moving average of the loss as the loss.")
def smooths_loss() -> None:
    average: dict[str, float] = {}

    def smooth(_: trainer.Step, words: dict[str, Any]) -> dict[str, Any]:
        average["loss"] = 0.9 * average.get("loss", words["loss"]) + 0.1 * words["loss"]
        return {**words, "loss": average["loss"]}

    _logs(smooth)


@mutant("made-up-noise", "TS-CNF-309", "Reports a constant as gradient variance.")
def made_up_noise() -> None:
    values = meter._values

    def constant(reading: Any) -> Iterator[Any]:
        for name, value, interval in values(reading):
            yield name, 0.125 if name == "train.gradient.variance" else value, interval

    meter._values = constant


@mutant("constant-utilisation", "TS-CNF-310", "Reports a constant as MFU.")
def constant_utilisation() -> None:
    put = stream.Stream._put

    def constant(self: stream.Stream, record: dict[str, Any]) -> None:
        if "train.flops.utilization" in record.get("m", {}):
            record["m"]["train.flops.utilization"] = 0.42
        put(self, record)

    stream.Stream._put = constant  # type: ignore[method-assign]


@mutant("forgets-saves", "TS-CNF-307", "Reports every second save.")
def forgets_saves() -> None:
    commit, count = Save.commit, [0]

    def sometimes(self: Save, **more: Any) -> None:
        count[0] += 1
        if count[0] % 2:
            commit(self, **more)

    Save.commit = sometimes  # type: ignore[method-assign]


@mutant("blocking-saves", "TS-CNF-307", "Waits half a second longer for each save than it reports.")
def blocking_saves() -> None:
    save = WorkerPorts.save

    def blocking(self: WorkerPorts, state: TrainerState) -> None:
        save(self, state)
        self.wait()
        time.sleep(SLOW_STORE_SECONDS)

    WorkerPorts.save = blocking  # type: ignore[method-assign]


@mutant("hides-faults", "TS-CNF-308", "Recovers, and reports no fault in its stream.")
def hides_faults() -> None:
    event = job.Job.event

    def quiet(self: job.Job, time_us: int, name: str, **more: Any) -> None:
        if not name.startswith(("train.fault", "train.recovery")):
            event(self, time_us, name, **more)

    job.Job.event = quiet  # type: ignore[method-assign]


@mutant("ramps-mid-step", "TS-CNF-311", "Lets one rank take the next batch of a ramp an optimizer step early.")
def ramps_mid_step() -> None:
    at = BatchSchedule.at

    def early(self: BatchSchedule, state: TrainerState) -> StepBatch:
        ahead = at(self, state).global_sequences * self.sequence_length if os.environ.get("RANK") == "1" else 0
        return at(self, replace(state, num_tokens=state.num_tokens + ahead))

    BatchSchedule.at = early  # type: ignore[method-assign]


@mutant("shards-nothing", "TS-CNF-312", "Gives all ranks the same samples.",
        also={f"TS-CNF-{number}": SHARED for number in (126, 127, 205, 207, 305, 311, 314, 315, 318, 319)})  # fmt: skip
def shards_nothing() -> None:
    request = data.Feed._request

    def same(self: data.Feed, state: TrainerState, batch: StepBatch) -> Request:
        return replace(request(self, state, batch), data_rank=0)

    data.Feed._request = same  # type: ignore[method-assign]


@mutant("draws-with-replacement", "TS-CNF-312", "Draws each sample anew, so that some come twice and some never.",
        also={"TS-CNF-315": "samples are to come in order there",
              "TS-CNF-126": "samples are counted over the epoch there",
              "TS-CNF-318": "samples are counted over the epoch there",
              "TS-CNF-319": "samples are counted over the epoch there"})  # fmt: skip
def draws_with_replacement() -> None:
    ids = data.SampleOrder.ids

    def drawn(self: data.SampleOrder, position: int, count: int) -> tuple[int, ...]:
        places = (hash((7, position + one)) % self.num_samples for one in range(count))
        return tuple(ids(self, place, 1)[0] for place in places)

    data.SampleOrder.ids = drawn  # type: ignore[method-assign]


@mutant("tells-own-norm", "TS-CNF-313", "Reports a norm of the gradient that each rank computes for itself.",
        also={"TS-CNF-306": "the stream has another norm", "TS-CNF-311": "ranks are compared there too",
              "TS-CNF-309": "noise is compared with the norm"})  # fmt: skip
def tells_own_norm() -> None:
    tell = TraceWriter.tell

    def own(self: TraceWriter, kind: Any, /, **told: Any) -> None:
        if kind is StepDone and not isinstance(told["gradient_norm"], str):  # as which it is told when not finite
            told["gradient_norm"] *= 1 + told["rank"] / 100
        tell(self, kind, **told)

    TraceWriter.tell = own  # type: ignore[method-assign]


@mutant("never-waits", "TS-CNF-221", "Reports the time of waiting for data as time of computation.")
def never_waits() -> None:
    enter = telemetry.StepTimes.enter

    def busy(self: telemetry.StepTimes, phase: str) -> None:
        enter(self, "forward_backward" if phase == "data_wait" else phase)

    telemetry.StepTimes.enter = busy  # type: ignore[method-assign]
