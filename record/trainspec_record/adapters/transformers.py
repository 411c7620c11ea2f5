"""Records what the Trainer of Hugging Face Transformers does."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from transformers import TrainerCallback

import trainspec_record
from trainspec_record.adapters.blocks import Blocks
from trainspec_record.adapters.checkpoints import Mark, mark_of, read_mark, size_bytes, write_mark
from trainspec_record.adapters.pytorch import Shapes, log_rates, rates
from trainspec_record.checkpoints import seal_in_background
from trainspec_record.guard import never_raises, tell_once
from trainspec_record.silent import NO_RUN, NO_SPAN
from trainspec_record.values import key

if TYPE_CHECKING:
    from trainspec_record.recording import Run
    from trainspec_record.silent import SilentRun

LOSS = key("train.loss.mean", train__loss__name="total")
NO_GRADIENT = "the Trainer shows no gradient before it is reduced over ranks"


class TrainspecCallback(TrainerCallback):  # type: ignore[misc]
    """Records `Trainer.train`, in a run that is given, or in one that lasts as long as the training.

    Settings are those of `trainspec_record.run`. A run that is given reports errors that end the training; the Trainer
    does not report them to its callbacks.
    """

    def __init__(self, run: Run | SilentRun | None = None, **settings: Any) -> None:
        self._given, self._settings = run, settings
        self._blocks = Blocks(run or NO_RUN)
        self._shapes: Shapes | None = None
        self._rates: list[float] = []
        self._evaluation: Any = NO_SPAN
        self._save: Any = NO_SPAN
        self._mark: Mark | None = None
        self._step = self._logged_step = 0

    @property
    def run(self) -> Run | SilentRun:
        """Run that it records in."""
        return self._blocks.run

    # --- begin and end --------------------------------------------------------------------------------------

    @never_raises(None)
    def on_train_begin(self, args: Any, state: Any, control: Any, **more: Any) -> None:  # noqa: ARG002 - a hook
        """Training begins; a checkpoint is loaded already."""
        if self._given is None:
            refused = {**unsupported(args), **self._settings.get("unsupported", {})}
            self._blocks = Blocks(trainspec_record.run(**{**self._settings, "unsupported": refused}))
        if not self.run.is_active:
            return
        self._shapes = Shapes(more["model"])
        self._step = self._logged_step = state.global_step
        if state.global_step:
            folder = Path(args.output_dir, f"checkpoint-{state.global_step}")
            mark = read_mark(folder) or Mark(folder.name, state.global_step, {})
            with self.run.restore(mark.checkpoint, mark.step, state=mark.counters):
                self._step = mark.step
        self._wait()

    @never_raises(None)
    def on_train_end(self, args: Any, state: Any, control: Any, **more: Any) -> None:  # noqa: ARG002 - a hook
        """Training is over."""
        self._blocks.leave()
        if self._shapes is not None:
            self._shapes.close()
        if self._given is None:
            self.run.end("completed")

    # --- optimizer steps --------------------------------------------------------------------------------------------

    def on_step_begin(self, args: Any, state: Any, control: Any, **more: Any) -> None:  # noqa: ARG002 - a hook
        """All micro-batches of the step are there."""
        self._blocks.leave()
        self._blocks.begin(self._step)

    @never_raises(None)
    def on_pre_optimizer_step(self, args: Any, state: Any, control: Any, **more: Any) -> None:  # noqa: ARG002
        """The schedule has not moved on yet."""
        self._rates = rates(more["optimizer"])

    @never_raises(None)
    def on_step_end(self, args: Any, state: Any, control: Any, **more: Any) -> None:
        """The step is completed, or was skipped by the loss scaler."""
        words: dict[str, Any] = self._shapes.take(args.world_size) if self._shapes is not None else {}
        if getattr(more["optimizer"], "step_was_skipped", False):
            words["skipped"] = "overflow"
        self._blocks.complete(**words)
        if "skipped" not in words:
            log_rates(self.run, self._rates)
        self._updated(state, control)

    def on_epoch_end(self, args: Any, state: Any, control: Any, **more: Any) -> None:  # noqa: ARG002 - a hook
        """All of the data was seen."""
        self._updated(state, control)

    @never_raises(None)
    def on_log(self, args: Any, state: Any, control: Any, logs: dict[str, Any] | None = None, **_: Any) -> None:  # noqa: ARG002
        """The Trainer brought its values to the host; the loss is a mean over the steps since the log before."""
        logs = logs or {}
        if "loss" not in logs:  # the end of an evaluation or of the training
            return
        values = {LOSS: logs["loss"], "train.gradient.norm": logs.get("grad_norm")}
        if state.global_step - self._logged_step != 1:
            del values[LOSS]
        self._logged_step = state.global_step
        self.run.log({name: value for name, value in values.items() if value is not None})
        self._logged(control)

    # --- evaluations and saves: the Trainer logs, evaluates, saves and fetches in this order ----------------------

    def _updated(self, state: Any, control: Any) -> None:
        if not control.should_log or state.global_step == self._logged_step:
            self._logged(control)

    def _logged(self, control: Any) -> None:
        if control.should_evaluate:
            self._evaluation = self._blocks.enter(self.run.evaluation())
        else:
            self._evaluated(control)

    @never_raises(None)
    def on_evaluate(self, args: Any, state: Any, control: Any, metrics: dict[str, Any], **_: Any) -> None:  # noqa: ARG002
        """An evaluation ends."""
        self._evaluation.log(loss=metrics.get("eval_loss"))
        self._evaluation = NO_SPAN
        self._blocks.leave()
        self._evaluated(control)

    def _evaluated(self, control: Any) -> None:
        if control.should_save and self.run.is_active:
            name = f"checkpoint-{self.run.num_steps}"  # type: ignore[union-attr]
            self._mark = mark_of(self.run, name)
            self._save = self._blocks.enter(self.run.checkpoint(name, asynchronous=True))
        else:
            self._wait()

    @never_raises(None)
    def on_save(self, args: Any, state: Any, control: Any, **_: Any) -> None:  # noqa: ARG002 - a hook
        """A save is over."""
        self._blocks.leave()
        if self._save is NO_SPAN and self.run.is_active:
            tell_once("a save was not recorded: the Trainer decided on it too late for its callbacks")
        folder = Path(args.output_dir, f"checkpoint-{state.global_step}")
        write_mark(self._mark, folder)
        self._save.commit(size_bytes=size_bytes(folder))
        self._save, self._mark = NO_SPAN, None
        self._wait()

    def _wait(self) -> None:
        self._blocks.enter(self.run.phase("data_wait"))


class SealCallback(TrainerCallback):  # type: ignore[misc]
    """Seals each checkpoint of a Trainer while training continues; the last of the callbacks."""

    @never_raises(None)
    def on_save(self, args: Any, state: Any, control: Any, **_: Any) -> None:  # noqa: ARG002 - a hook
        """A save is over on this rank, and soon on all."""
        import torch.distributed as dist  # noqa: PLC0415 - the Trainer has loaded it

        if dist.is_available() and dist.is_initialized():
            dist.barrier()
        if state.is_world_process_zero:
            seal_in_background(Path(args.output_dir, f"checkpoint-{state.global_step}"), step=state.global_step)


def unsupported(args: Any) -> dict[str, str]:
    """Metrics that a Trainer with these arguments cannot give, and why."""
    found = {"train.gradient.variance": NO_GRADIENT, "train.gradient.signal": NO_GRADIENT}
    if args.logging_strategy != "steps" or args.logging_steps != 1:
        found["train.loss.mean"] = "the Trainer reports the mean of several steps; logging_steps=1 gives each"
    return found
