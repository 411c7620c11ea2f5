"""Runs the loop of a worker: the parts of each step, in their order."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, replace

from trainspec_reference.common.backend import Backend, Gradients
from trainspec_reference.common.batch_schedule import LearningRates, StepBatch, Stopwatch, of_data_ranks, rebalanced
from trainspec_reference.common.data import Feed, Loaded
from trainspec_reference.common.job import Job
from trainspec_reference.common.noise_scale import NoiseMeter
from trainspec_reference.common.ports import Surroundings, TrainingFaultError, Wish
from trainspec_reference.common.ranks import RankGrid
from trainspec_reference.common.state import TrainerState
from trainspec_reference.common.telemetry import StepTimes, noise_log
from trainspec_reference.common.trace import number
from trainspec_validate.documents.types.trace import Decision, FaultSeen, StepDone

_NUM_HEX_DIGITS = 12
"""48 bits of a digest, which a float64 holds exactly."""


def compare_replicas(backend: Backend, step: int) -> None:
    """Compare the digests of the state of all ranks after an optimizer step; all ranks call it.

    Raises:
        TrainingFaultError: they differ. The rank to blame is the one that a majority does not agree with.
    """
    word = int(backend.digest().removeprefix("sha256:")[:_NUM_HEX_DIGITS], 16)
    found = backend.agree(float(word))
    (most, num_most), *others = Counter(found).most_common()
    if others:
        culprit = next(rank for rank, value in enumerate(found) if value != most)
        is_majority = 2 * num_most > len(found)
        reason = f"replicas differ after step {step}"
        raise TrainingFaultError("corruption", reason, rank=culprit if is_majority else None)


@dataclass(frozen=True, slots=True)
class Step:
    """One step of one rank after its gradient is known."""

    batch: StepBatch
    loaded: Loaded
    gradients: Gradients
    learning_rate: float
    loss_scale: float | None
    """That the loss was multiplied with; None where the plan scales no loss."""
    skipped: str | None
    """Why the step is not applied."""

    def log(self, surroundings: Surroundings, clip_norm: float | None) -> None:
        """Report to the recorder, while its step is under way."""
        norm = self.gradients.norm
        surroundings.recorder.log(
            loss=self.gradients.loss,
            learning_rate=self.learning_rate,
            gradient_norm=norm,
            samples=self.batch.global_sequences,
            tokens=self.loaded.num_targets,
            clipped=None if clip_norm is None else int(norm > clip_norm),
            skipped=self.skipped,
        )

    def tell(self, surroundings: Surroundings, num_updates: int) -> None:
        """Write to the trace, with the steps that are completed now."""
        surroundings.trace.tell(
            StepDone,
            rank=surroundings.formation.rank,
            step=num_updates,
            loss=number(self.gradients.loss),
            learning_rate=self.learning_rate,
            sample_ids=self.loaded.sample_ids,
            gradient_norm=number(self.gradients.norm),
            loss_scale=self.loss_scale,
            skipped=self.skipped,
            global_sequences=self.batch.global_sequences,
        )


MAX_SKIPPED_IN_A_ROW = 50
"""Skipped steps after which training is going nowhere."""
NUM_HELD_OUT_BATCHES = 2


class Trainer:
    """The loop of one worker in one formation; the backend has joined it and holds the tensors of the state."""

    def __init__(self, job: Job, backend: Backend, surroundings: Surroundings, state: TrainerState) -> None:
        self.job, self.backend, self.surroundings = job, backend, surroundings
        formation, batch = surroundings.formation, job.plan.batch
        grid = RankGrid(job.plan.parallelism, formation.num_ranks)
        self._data_ranks = [grid.place(rank)["data"] for rank in range(formation.num_ranks)]
        self._feed = Feed(job, self._data_ranks[formation.rank], grid.degrees["data"])
        self._rates = LearningRates(job.rates, batch)
        per_sample = job.model.num_targets_per_sample
        self._meter = NoiseMeter(batch.noise_scale, per_sample, batch.micro_sequences) if batch.noise_scale else None
        self._noise_log = noise_log(job, grid.degrees["data"], surroundings.recorder)
        self._stopwatch = Stopwatch(job.rebalance_interval_steps or 1)
        self._saved_step, self._saved_at = state.step, time.monotonic()
        self.state = state if len(state.shares) == grid.degrees["data"] else replace(state, shares=())
        """After the last completed step."""

    def run(self) -> bool:
        """Train until all steps are done; gives whether a wish has stopped the loop before, at a boundary of steps.

        Raises:
            PeerLostError: a peer is gone; `state` is that after the last step that this rank completed.
            TrainingFaultError: the numbers are wrong; nothing is to be saved.
        """
        try:
            while self.state.step < self.job.num_steps:
                wish = self._wish()
                if wish:
                    self._save()
                if wish & Wish.STOP:
                    return True
                self._step()
                self._between_steps()
            self._save()
            return False
        finally:
            self._feed.close()

    def _wish(self) -> Wish:
        """The wishes of all ranks, which are granted by all ranks or by none."""
        mine = self.surroundings.ports.wishes()
        if self._is_save_due():
            mine |= Wish.SAVE
        if self.surroundings.formation.num_ranks == 1:
            return mine
        joined = Wish.NONE
        for value in self.backend.agree(float(mine)):
            joined |= Wish(int(value))
        return joined

    def _is_save_due(self) -> bool:
        """Whether the time between saves is over, by the clock of rank 0, where the policy counts no updates."""
        interval = self.job.policy.interval if self.job.policy is not None else None
        if interval is None or interval.seconds is None or interval.steps is not None:
            return False
        return self.surroundings.formation.rank == 0 and time.monotonic() - self._saved_at >= interval.seconds

    # --- one step -------------------------------------------------------------------------------------------

    def _step(self) -> None:
        began = time.monotonic()
        around, times = self.surroundings, StepTimes(self.surroundings.recorder)
        times.enter("data_wait")
        loaded = self._feed.next(self.state)
        times.end()
        with around.recorder.step(self.state.step):
            times.enter("forward_backward")
            gradients = self._gradients(loaded, self._arrived(loaded, began, times))
            times.enter("optimizer")
            step = self._judged(loaded, gradients)
            if step.skipped is None:
                self.backend.update(step.learning_rate, self.job.rates.clip_norm)
            else:
                self.backend.discard()
            times.end()
            self._advance(step)
            step.log(around, self.job.rates.clip_norm)
            _rest(self.job.min_step_seconds - (time.monotonic() - began))
        step.tell(around, self.state.step)
        around.ports.done(self.state.step)

    def _arrived(self, loaded: Loaded, began: float, times: StepTimes) -> Callable[[], None]:
        number = self.state.step + 1

        def arrived() -> None:
            self._stopwatch.note(len(loaded.sample_ids), time.monotonic() - began)
            times.enter("communication_exposed")
            self.surroundings.ports.arrived(number)

        return arrived

    def _gradients(self, loaded: Loaded, arrived: Callable[[], None]) -> Gradients:
        telemetry = self.job.plan.telemetry
        interval = (telemetry.gradient_interval_steps if telemetry else None) or 1
        return self.backend.gradients(
            loaded.micro_batches,
            num_targets=loaded.num_targets,
            loss_scale=self.state.loss_scale.scale,
            measure_noise=self._meter is not None and self.state.step % interval == 0,
            arrived=arrived,
        )

    def _judged(self, loaded: Loaded, gradients: Gradients) -> Step:
        batch = self._feed.schedule.at(self.state)
        scaling = self.job.plan.precision.loss_scaling
        return Step(
            batch=batch,
            loaded=loaded,
            gradients=gradients,
            learning_rate=self._rates.at(self.state.step + 1, batch, self._noise_sequences),
            loss_scale=self.state.loss_scale.scale if scaling is not None else None,
            skipped=None if gradients.is_finite else self._refusal(),
        )

    def _refusal(self) -> str | None:
        """Why a gradient that is not finite is not applied; None where the plan applies it.

        Raises:
            TrainingFaultError: the plan does not go on after such a gradient.
        """
        precision, state = self.job.plan.precision, self.state
        is_scaled = precision.loss_scaling is not None and precision.loss_scaling.mode != "none"
        action = "skip-step" if is_scaled else precision.nonfinite_action or "skip-step"
        if action == "ignore":
            return None
        if action != "skip-step":
            raise TrainingFaultError("numeric", f"gradient of step {state.step + 1} is not finite", action=action)
        if state.num_skipped_in_a_row >= MAX_SKIPPED_IN_A_ROW:
            raise TrainingFaultError("numeric", f"{MAX_SKIPPED_IN_A_ROW} steps in a row were skipped")
        return "overflow" if is_scaled else "non_finite"

    def _advance(self, step: Step) -> None:
        """The state after a step: a skipped one consumes its samples and moves the loss scale, nothing else."""
        scaling, gradients = self.job.plan.precision.loss_scaling, step.gradients
        state = replace(
            self.state,
            num_samples=self.state.num_samples + step.batch.global_sequences,
            num_tokens=self.state.num_tokens + step.loaded.num_targets,
            loss_scale=self.state.loss_scale.after(scaling, is_finite=gradients.is_finite),
        )
        if step.skipped is not None:
            in_a_row = state.num_skipped_in_a_row + 1
            self.state = replace(state, num_skipped=state.num_skipped + 1, num_skipped_in_a_row=in_a_row)
            return
        state = replace(state, step=state.step + 1, num_skipped_in_a_row=0)
        norms = self._meter.norms(gradients) if self._meter else None
        if norms is not None:
            state = replace(state, noise=state.noise.after(norms.signal_sq, norms.noise_trace))
            if self._noise_log is not None:
                self._noise_log.add(norms)
        decided = self._feed.schedule.decided(state)
        self.state = state if decided is None else replace(state, global_sequences=decided)

    @property
    def _noise_sequences(self) -> float | None:
        scale = self.state.noise.noise_scale
        if scale is None or self._meter is None:
            return None
        return scale * self._meter.targets_per_unit / self._meter.sequence_length

    # --- between steps --------------------------------------------------------------------------------------

    def _between_steps(self) -> None:
        job, step = self.job, self.state.step
        if self.state.num_skipped_in_a_row:
            return
        if _is_due(job.replica_check_steps, step):
            compare_replicas(self.backend, step)
        if _is_due(job.rebalance_interval_steps, step):
            self._rebalance()
        if _is_due(job.evaluation_interval_steps, step):
            self._evaluate()
        if job.policy is not None and _is_due(job.policy.interval.steps, step):
            self._save()

    def _save(self) -> None:
        if self.job.policy is None or self._saved_step == self.state.step:
            return
        self._saved_step, self._saved_at = self.state.step, time.monotonic()
        self.state = replace(self.state, counters=self.surroundings.recorder.state())
        self.surroundings.ports.save(self.state)

    def _rebalance(self) -> None:
        """Share the samples by the speeds that were measured since the last time."""
        found = self.backend.agree(self._stopwatch.samples_per_second())
        change = rebalanced(self._feed.shares(self.state), of_data_ranks(found, self._data_ranks))
        if change is None:
            return
        self.state = replace(self.state, shares=change.shares)
        if self.surroundings.formation.rank == 0:
            trace = self.surroundings.trace
            if change.straggler is not None:
                trace.tell(FaultSeen, kind="slow", rank=self._data_ranks.index(change.straggler))
            trace.tell(Decision, action="rebalance", reason=f"samples of each data rank: {change.shares}")

    def _evaluate(self) -> None:
        """Mean loss over samples that no epoch holds."""
        losses = []
        with self.surroundings.recorder.evaluation("held-out") as evaluation:
            for number in range(NUM_HELD_OUT_BATCHES):
                loaded = self._feed.held_out(self.state, number)
                losses.append(self.backend.evaluate(loaded.micro_batches, num_targets=loaded.num_targets))
            evaluation.log(loss=sum(losses) / len(losses))


def _is_due(interval: int | None, step: int) -> bool:
    return interval is not None and step % interval == 0


def _rest(seconds: float) -> None:
    if seconds > 0:  # sleeping for no time gives the processor away
        time.sleep(seconds)
