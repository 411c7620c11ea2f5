"""Receives the events that Lightning passes to its profiler and loggers, but not to callbacks."""

from __future__ import annotations

import sys
from importlib import import_module
from typing import TYPE_CHECKING, Any

from trainspec_record.adapters.blocks import Blocks
from trainspec_record.guard import never_raises
from trainspec_record.silent import NO_SPAN, SilentRun

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

PACKAGE = "lightning.pytorch" if "lightning.pytorch" in sys.modules else "pytorch_lightning"
"""Lightning has two packages, and a callback of one is none of the other; this module is loaded after either."""
_loggers, _profilers = (import_module(f"{PACKAGE}.{name}") for name in ("loggers.logger", "profilers"))
WAIT = "[_TrainingEpochLoop].train_dataloader_next"
SAVE = "save_checkpoint"
"""Actions that the Trainer reports to its profiler."""


class Saves:
    """Saves of a Trainer, one after the other."""

    def __init__(self, blocks: Blocks) -> None:
        self._blocks = blocks
        self._numbers: dict[int, int] = {}
        self._save: Any = NO_SPAN
        self._state: dict[str, Any] = {}
        self._is_whole = False

    def state(self) -> dict[str, Any]:
        """Record to save with the checkpoint, so that its restore is known; asked for unless weights are saved."""
        self._is_whole = True
        return self._state

    @never_raises(None)
    def begin(self) -> None:
        """Training is paused for a save."""
        run = self._blocks.run
        if isinstance(run, SilentRun):
            return
        step = run.num_steps
        number = self._numbers[step] = self._numbers.get(step, 0) + 1
        name = f"step-{step}" if number == 1 else f"step-{step}-{number}"
        self._is_whole = False
        self._state = {"checkpoint": name, "step": step, "counters": run.state()}
        self._save = self._blocks.enter(run.checkpoint(name, asynchronous=True))

    @never_raises(None)
    def end(self, error: BaseException | None) -> None:
        """Training continues."""
        self._blocks.leave(error)
        if error is None and self._is_whole:
            self._save.commit()
        elif error is None:
            self._save.fail("it holds weights alone, from which training cannot continue")
        self._state = {}


class Listener(_profilers.Profiler):  # type: ignore[misc, name-defined]
    """A profiler that listens and passes everything on to the one that the Trainer was given."""

    def __init__(self, profiler: Any, blocks: Blocks, saves: Saves | None) -> None:
        super().__init__()
        self.profiler = profiler
        self._blocks, self._saves = blocks, saves
        self._error: BaseException | None = None

    def start(self, action_name: str) -> None:
        """An action begins."""
        self.profiler.start(action_name)
        if action_name == WAIT:
            self._blocks.enter(self._blocks.run.phase("data_wait"))
        elif action_name == SAVE and self._saves:
            self._error = sys.exc_info()[1]
            self._saves.begin()

    def stop(self, action_name: str) -> None:
        """An action ends, or an error ended it."""
        self.profiler.stop(action_name)
        if action_name == WAIT:
            self._blocks.leave()
        elif action_name == SAVE and self._saves:
            error = sys.exc_info()[1]
            self._saves.end(error if error is not self._error else None)

    def setup(self, *args: Any, **settings: Any) -> None:
        """The other one is set up."""
        self.profiler.setup(*args, **settings)

    def summary(self) -> str:
        """Summary of the other one."""
        return str(self.profiler.summary())

    def describe(self) -> None:
        """The other one writes its report."""
        self.profiler.describe()

    def teardown(self, stage: str | None) -> None:
        """The other one is torn down."""
        self.profiler.teardown(stage)

    def __del__(self) -> None:
        """The other one has its own end."""


class Values(_loggers.Logger):  # type: ignore[misc, name-defined]
    """A logger that hands on what the module logged, once the Trainer has brought it to the host."""

    def __init__(self, hear: Callable[[Mapping[str, Any]], None]) -> None:
        super().__init__()
        self._hear = hear

    @property
    def name(self) -> str:
        """Name of the logger."""
        return "trainspec"

    @property
    def version(self) -> str:
        """It has none."""
        return ""

    def log_metrics(self, metrics: Mapping[str, Any], step: int | None = None) -> None:  # noqa: ARG002 - the run counts
        """Values that the host knows."""
        self._hear(metrics)

    def log_hyperparams(self, *_: Any, **__: Any) -> None:
        """Not recorded."""
