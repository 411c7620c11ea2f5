"""Records what `fit` of Keras 3 does, on TensorFlow, JAX and PyTorch."""

from __future__ import annotations

import json
import os
import threading
from collections import deque
from collections.abc import Callable, Mapping
from functools import wraps
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any

from trainspec_record.adapters.blocks import Blocks
from trainspec_record.adapters.checkpoints import saving
from trainspec_record.adapters.place import run_of
from trainspec_record.guard import never_raises

if TYPE_CHECKING:
    from trainspec_record.recording import Run
    from trainspec_record.silent import SilentRun

keras: Any = import_module("keras")  # has no types where it is not installed
NO_GRADIENTS = "Keras shows callbacks no gradients"
NO_BATCH_SIZE = "Keras shows callbacks no size of a batch: pass samples to the callback"
NO_TOKENS = "the number of tokens of a step is unknown: pass tokens to the callback"
OF_GRADIENTS = ("train.gradient.norm", "train.gradient.variance", "train.gradient.signal")
SAVES = ("save", "save_weights")
"""Methods of a model that callbacks such as `ModelCheckpoint` save with."""


def begin(*, samples: int | None = None, tokens: int | None = None, **settings: Any) -> Run | SilentRun:
    """Begin to record, as the rank that the backend knows; settings are those of `trainspec_record.run`."""
    refused = dict.fromkeys(OF_GRADIENTS, NO_GRADIENTS)
    if samples is None:
        refused |= dict.fromkeys(("train.sample.count", "train.batch.size"), NO_BATCH_SIZE)
    if tokens is None:
        refused["train.token.rate"] = NO_TOKENS
    unsupported = {**refused, **settings.pop("unsupported", {})}
    return run_of(*place(), unsupported=unsupported, **settings)


def place() -> tuple[int, int, int]:
    """Rank, world size and local rank of this process, where no launcher sets them."""
    backend = keras.backend.backend()
    if backend == "jax":
        import jax  # noqa: PLC0415 - only where it is the backend

        return jax.process_index(), jax.process_count(), 0
    if backend == "tensorflow":
        return _of_tensorflow(os.environ.get("TF_CONFIG", ""))
    return 0, 1, 0  # ranks of PyTorch are started by a launcher


def _of_tensorflow(config: str) -> tuple[int, int, int]:
    """Place of a worker by `TF_CONFIG`; alone where it says nothing of workers."""
    try:
        told = json.loads(config)
        return int(told["task"]["index"]), len(told["cluster"]["worker"]), 0
    except (ValueError, KeyError, TypeError):
        return 0, 1, 0


class Recorder(keras.callbacks.Callback):  # type: ignore[misc]
    """Records `fit`: optimizer steps, loss, learning rate, validation, and what callbacks save.

    Samples and tokens are those of one step on all ranks together. The loss of a step is what it adds to the mean
    of its epoch, which is all that Keras reports; so it has as many digits fewer as the number of steps of an epoch
    has. A learning rate that another callback changes within an epoch is seen in the next one. Without a `run` the
    callback begins one with its settings, and ends it with the training. With `steps_per_execution` a run that is given
    takes the same number as `report_interval_steps`.
    """

    async_safe = True
    """Ends of batches may be reported by other threads, so that Keras need not wait for the device between them."""

    def __init__(
        self,
        run: Run | SilentRun | None = None,
        *,
        samples: int | None = None,
        tokens: int | None = None,
        **settings: Any,
    ) -> None:
        super().__init__()
        self._given = run
        self._settings = settings
        self._counted = {key: value for key, value in {"samples": samples, "tokens": tokens}.items() if value}
        self._lock = threading.Lock()
        self._begun: deque[int] = deque()
        self._ended: dict[int, Any] = {}
        self._blocks: Blocks | None = None
        self._number = 0
        self._total = 0.0
        self._seen = 0
        self._rate: Callable[[int], float] | None = None
        self._evaluation: Any = None

    @never_raises(None)
    def on_train_begin(self, logs: Mapping[str, Any] | None = None) -> None:  # noqa: ARG002 - of Keras
        """The run begins, unless it is given."""
        if self._given is None:
            told = {"report_interval_steps": self.model.steps_per_execution, **self._counted, **self._settings}
            self._blocks = Blocks(begin(**told))
        else:
            self._blocks = Blocks(self._given)
        self._number = int(keras.ops.convert_to_numpy(self.model.optimizer.iterations))
        self._record_saves(self.model)

    @never_raises(None)
    def on_epoch_begin(self, epoch: int, logs: Mapping[str, Any] | None = None) -> None:  # noqa: ARG002 - of Keras
        """Means begin again."""
        with self._lock:
            self._total, self._seen, self._rate = 0.0, 0, None

    @never_raises(None)
    def on_train_batch_begin(self, batch: int, logs: Mapping[str, Any] | None = None) -> None:  # noqa: ARG002 - of Keras
        """An optimizer step begins, or several where Keras executes more than one at a time."""
        with self._lock:
            if self._rate is None:
                self._rate = _rate_of(self.model.optimizer)
            self._begun.append(batch)
            if self._blocks is not None:
                self._blocks.begin(self._number)

    @never_raises(None)
    def on_train_batch_end(self, batch: int, logs: Mapping[str, Any] | None = None) -> None:
        """Optimizer steps are completed, in their order, whichever thread reports them first."""
        with self._lock:
            self._ended[batch] = dict(logs or {}).get("loss")
            while self._begun and (last := self._end_of_first()) is not None:
                self._complete(last - self._begun.popleft() + 1, self._ended.pop(last))

    def _end_of_first(self) -> int | None:
        """The last batch of those that were begun first, where their end is known."""
        bound = self._begun[1] if len(self._begun) > 1 else None
        found = (end for end in self._ended if end >= self._begun[0] and (bound is None or end < bound))
        return min(found, default=None)

    def _complete(self, num_updates: int, mean: Any) -> None:
        if self._blocks is None:
            return
        words: dict[str, Any] = dict(self._counted)
        self._seen += num_updates
        if mean is not None:
            total = float(mean) * self._seen
            words["loss"] = (total - self._total) / num_updates
            self._total = total
        for _ in range(num_updates):
            self._blocks.begin(self._number)
            rate = self._rate(self._number) if self._rate is not None else None
            self._blocks.complete(learning_rate=rate, **words)
            self._number += 1

    # --- evaluations and saves ------------------------------------------------------------------------------

    @never_raises(None)
    def on_test_begin(self, logs: Mapping[str, Any] | None = None) -> None:  # noqa: ARG002 - of Keras
        """Training waits for a validation."""
        if self._blocks is not None:
            self._evaluation = self._blocks.enter(self._blocks.run.evaluation("validation"))

    @never_raises(None)
    def on_test_end(self, logs: Mapping[str, Any] | None = None) -> None:
        """The validation ends, with its mean loss."""
        if self._blocks is not None:
            self._evaluation.log(loss=(logs or {}).get("loss"))
            self._blocks.leave()

    def _record_saves(self, model: Any) -> None:
        """From now on the model tells of it when it is saved."""
        if self._blocks is None or not self._blocks.run.is_active:
            return
        for name in SAVES:
            setattr(model, name, _recorded(self._blocks.run, getattr(model, name)))

    @never_raises(None)
    def on_train_end(self, logs: Mapping[str, Any] | None = None) -> None:  # noqa: ARG002 - of Keras
        """The run ends, unless it was given; saves are the model's own again."""
        for name in SAVES:
            self.model.__dict__.pop(name, None)
        if self._blocks is not None and self._given is None:
            self._blocks.run.end()
        self._blocks = None


def _rate_of(optimizer: Any) -> Callable[[int], float]:
    """The learning rate of the step after a number of steps."""
    schedule = getattr(optimizer, "_learning_rate", None)
    if isinstance(schedule, keras.optimizers.schedules.LearningRateSchedule):
        return lambda number: float(keras.ops.convert_to_numpy(schedule(number)))
    rate = float(keras.ops.convert_to_numpy(optimizer.learning_rate))
    return lambda _: rate


def _recorded(run: Run | SilentRun, save: Callable[..., Any]) -> Callable[..., Any]:
    """A method that saves to a file, told of as a checkpoint."""

    @wraps(save)
    def inner(filepath: Any, *args: Any, **kwargs: Any) -> Any:
        with saving(run, filepath, _name(filepath)):
            return save(filepath, *args, **kwargs)

    return inner


def _name(path: Any) -> str:
    """Name of a checkpoint: the file without its endings, `.weights.h5` or `.keras`."""
    return Path(path).name.removesuffix(".h5").removesuffix(".weights").removesuffix(".keras")
