"""Records what Lightning's Trainer does; found by it through an entry point."""

from __future__ import annotations

import os
from collections.abc import Mapping
from importlib import import_module
from typing import TYPE_CHECKING, Any

from trainspec_record.adapters.blocks import Blocks
from trainspec_record.adapters.lightning_listeners import PACKAGE, Listener, Saves, Values
from trainspec_record.adapters.place import run_of
from trainspec_record.adapters.pytorch import batch_sizes, count_out_of_memory, counted, log_rates, rates
from trainspec_record.checkpoints import seal_in_background
from trainspec_record.guard import never_raises
from trainspec_record.identity import VARIABLE
from trainspec_record.silent import NO_RUN, NO_SPAN
from trainspec_record.values import key

if TYPE_CHECKING:
    from trainspec_record.recording import Run
    from trainspec_record.silent import SilentRun

_callbacks = import_module(f"{PACKAGE}.callbacks")
LOSS = key("train.loss.mean", train__loss__name="total")
NAMED = {"loss": "train.loss.mean", "evaluation_loss": "train.evaluation.loss", "gradient_norm": "train.gradient.norm"}
"""Metrics that a module logs under names of its own, if at all."""
KEYS = ("TrainspecCallback.found", "TrainspecCallback")
NO_GRADIENT = "the Trainer shows no gradient before it is reduced over ranks"
ASYNCHRONOUS = "AsyncCheckpointIO does not say when a save is whole"


def callbacks() -> list[Any]:
    """Callbacks that the Trainer adds by itself: nothing where `TRAINSPEC_RUN` is not set."""
    return [TrainspecCallback()] if os.environ.get(VARIABLE) else []


class TrainspecCallback(_callbacks.Callback):  # type: ignore[misc, name-defined]
    """Records a `Trainer.fit`; `loss`, `evaluation_loss` and `gradient_norm` are names under which the module logs.

    Values that are logged under these names are of the job: with several ranks the module logs it with
    `sync_dist=True`. Further settings are those of `trainspec_record.run`.
    """

    def __init__(
        self,
        loss: str | None = None,
        evaluation_loss: str | None = None,
        gradient_norm: str | None = None,
        **settings: Any,
    ) -> None:
        self.names = {"loss": loss, "evaluation_loss": evaluation_loss, "gradient_norm": gradient_norm}
        self.run: Run | SilentRun = NO_RUN
        self._settings = settings
        self._blocks = Blocks(NO_RUN)
        self._saves: Saves | None = None
        self._evaluation: Any = NO_SPAN
        self._rates: list[float] = []
        self._num_samples = self._num_tokens = self._step = 0

    # --- begin and end --------------------------------------------------------------------------------------

    def setup(self, trainer: Any, pl_module: Any, stage: str) -> None:  # noqa: ARG002 - a hook of Lightning
        """The process group is formed; what the entry point added steps aside for a callback that a person added."""
        mine = [each for each in trainer.callbacks if isinstance(each, TrainspecCallback)]
        if stage == "fit" and self is max(mine, key=lambda each: each.is_told):
            self._record(trainer)

    @property
    def is_told(self) -> bool:
        """Whether a person said something to it."""
        return bool(self._settings or any(self.names.values()))

    @property
    def state_key(self) -> str:
        """Name of its state in a checkpoint; one that a person added and one that was found coexist."""
        return KEYS[self.is_told]

    @never_raises(None)
    def _record(self, trainer: Any) -> None:
        settings = {
            **self._settings,
            "unsupported": {**self._refused(trainer), **self._settings.get("unsupported", {})},
        }
        self.run = run_of(trainer.global_rank, trainer.world_size, trainer.local_rank, **settings)
        self._blocks = Blocks(self.run)
        if self.run.is_active:
            self.run.log(out_of_memory=0)
            self._saves = None if _saves_later(trainer) else Saves(self._blocks)
            trainer.profiler = Listener(trainer.profiler, self._blocks, self._saves)
            if trainer.loggers:
                trainer.loggers = [*trainer.loggers, Values(self._hear)]

    def _refused(self, trainer: Any) -> dict[str, str]:
        """Metrics that nobody can give, and why."""
        found = {"train.gradient.variance": NO_GRADIENT, "train.gradient.signal": NO_GRADIENT}
        for name, metric in NAMED.items():
            if not self.names[name]:
                found[metric] = f"the module logs it under a name of its own; give it as TrainspecCallback({name}=...)"
            elif not trainer.loggers:
                found[metric] = "the Trainer has no logger, so that what is logged does not come to the host"
        if _saves_later(trainer):
            found["train.checkpoint.duration"] = ASYNCHRONOUS
        return found

    def on_exception(self, trainer: Any, pl_module: Any, exception: BaseException) -> None:  # noqa: ARG002 - a hook
        """The attempt ends."""
        self._blocks.leave(exception)
        count_out_of_memory(self.run, exception)
        preempted = import_module(f"{PACKAGE}.utilities.exceptions").SIGTERMException
        if isinstance(exception, KeyboardInterrupt):
            self.run.end("operator")
        elif isinstance(exception, preempted):
            self.run.end("preempted")
        else:
            self.run.end("fault", error=type(exception).__name__)

    def teardown(self, trainer: Any, pl_module: Any, stage: str) -> None:  # noqa: ARG002 - a hook of Lightning
        """The Trainer is done."""
        if stage == "fit" and self.run.is_active:
            self._blocks.leave()
            trainer.profiler = trainer.profiler.profiler
            self.run.end("completed")

    # --- restores and optimizer steps -------------------------------------------------------------------------------

    @never_raises(None)
    def on_load_checkpoint(self, trainer: Any, pl_module: Any, checkpoint: dict[str, Any]) -> None:  # noqa: ARG002
        """The file is read, and the state goes where it belongs."""
        found: dict[str, Any] = next((state for name, state in checkpoint["callbacks"].items() if name in KEYS), {})
        step = int(found.get("step", checkpoint["global_step"]))
        name = found.get("checkpoint", f"step-{step}")
        self._blocks.enter(self.run.restore(name, step, state=found.get("counters")))

    def on_sanity_check_start(self, trainer: Any, pl_module: Any) -> None:  # noqa: ARG002 - a hook of Lightning
        """The state is where it belongs."""
        self._blocks.leave()

    def on_train_start(self, trainer: Any, pl_module: Any) -> None:  # noqa: ARG002 - a hook of Lightning
        """Training begins."""
        self._blocks.leave()
        self._step = trainer.global_step

    @never_raises(None)
    def on_train_batch_start(self, trainer: Any, pl_module: Any, batch: Any, batch_idx: int) -> None:  # noqa: ARG002
        """An optimizer step begins, or continues with another micro-batch."""
        self._blocks.begin(self._step)
        num_samples, num_tokens = batch_sizes(batch)
        self._num_samples += num_samples
        self._num_tokens += num_tokens

    @never_raises(None)
    def on_before_optimizer_step(self, trainer: Any, pl_module: Any, optimizer: Any) -> None:  # noqa: ARG002
        """The schedule has not moved on yet."""
        self._rates = rates(optimizer)

    @never_raises(None)
    def on_train_batch_end(self, trainer: Any, *_: Any) -> None:
        """An optimizer step is completed, unless gradients are accumulated."""
        if trainer.global_step == self._step:
            return
        self._step = trainer.global_step
        data_ranks = (getattr(trainer.strategy, "distributed_sampler_kwargs", None) or {}).get("num_replicas", 1)
        self._blocks.complete(**counted(self._num_samples * data_ranks, self._num_tokens * data_ranks))
        self._num_samples = self._num_tokens = 0
        log_rates(self.run, self._rates)

    # --- evaluations ----------------------------------------------------------------------------------------

    def on_validation_start(self, trainer: Any, pl_module: Any) -> None:  # noqa: ARG002 - a hook of Lightning
        """An evaluation begins."""
        if not trainer.sanity_checking:
            self._evaluation = self._blocks.enter(self.run.evaluation())

    def on_validation_end(self, trainer: Any, pl_module: Any) -> None:  # noqa: ARG002 - a hook of Lightning
        """An evaluation ends; what it found has come to the loggers."""
        self._blocks.leave()
        self._evaluation = NO_SPAN

    @never_raises(None)
    def _hear(self, values: Mapping[str, Any]) -> None:
        told = {name: values.get(str(key), values.get(f"{key}_step")) for name, key in self.names.items()}
        of_update = {LOSS: told["loss"], NAMED["gradient_norm"]: told["gradient_norm"]}
        self.run.log({metric: value for metric, value in of_update.items() if value is not None})
        self._evaluation.log(loss=told["evaluation_loss"])

    def state_dict(self) -> dict[str, Any]:
        """Record that is saved with a checkpoint, so that its restore is known."""
        return self._saves.state() if self._saves else {}


class SealCallback(_callbacks.Callback):  # type: ignore[misc, name-defined]
    """Seals what each ModelCheckpoint has saved, as soon as training continues; an asynchronous save is left out."""

    def __init__(self) -> None:
        self._sealed: set[str] = set()

    @never_raises(None)
    def on_train_batch_start(self, trainer: Any, *_: Any) -> None:
        """Training continues after a save."""
        self._seal(trainer)

    @never_raises(None)
    def on_fit_end(self, trainer: Any, *_: Any) -> None:
        """Training is over."""
        self._seal(trainer)

    def _seal(self, trainer: Any) -> None:
        if not trainer.is_global_zero or _saves_later(trainer):
            return
        for callback in trainer.checkpoint_callbacks:
            path = getattr(callback, "_last_checkpoint_saved", "") or getattr(callback, "best_model_path", "")
            if path and path not in self._sealed and os.path.exists(path):  # noqa: PTH110 - a text of Lightning
                self._sealed.add(path)
                seal_in_background(path)


def _saves_later(trainer: Any) -> bool:
    """Whether a save goes on while training does."""
    kind = import_module(f"{PACKAGE}.plugins.io").AsyncCheckpointIO
    return isinstance(trainer.strategy.checkpoint_io, kind)
