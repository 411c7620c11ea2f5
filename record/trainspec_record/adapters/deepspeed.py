"""Records what an engine of DeepSpeed does."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from trainspec_record.adapters.blocks import Blocks
from trainspec_record.adapters.checkpoints import restoring, saving
from trainspec_record.adapters.pytorch import Shapes, host_number, log_rates, rates
from trainspec_record.guard import never_raises

if TYPE_CHECKING:
    from trainspec_record.recording import Run
    from trainspec_record.silent import SilentRun

T = TypeVar("T")
LATEST = "latest"
"""The file in which DeepSpeed names the newest checkpoint of a folder."""


class Recorded:
    """Records an engine: its steps, its skipped steps, its saves and restores, and the wait for its batches.

    The engine stays what it is. Its methods `step`, `save_checkpoint` and `load_checkpoint` are followed.
    """

    def __init__(self, run: Run | SilentRun, engine: Any) -> None:
        self.run, self.engine = run, engine
        self._blocks = Blocks(run)
        self._shapes: Shapes | None = None
        if run.is_active:
            self._follow()

    @never_raises(None)
    def _follow(self) -> None:
        engine = self.engine
        self._shapes = Shapes(engine.module)
        self._step, self._save, self._load = engine.step, engine.save_checkpoint, engine.load_checkpoint
        engine.step, engine.save_checkpoint, engine.load_checkpoint = self._stepped, self._saved, self._loaded

    def batches(self, loader: Iterable[T]) -> Iterator[T]:
        """Batches of a loader; waiting for one is data wait."""
        return self._blocks.batches(loader)

    def log(self, **words: Any) -> None:
        """`Run.log`, which takes tensors in the memory of the host too."""
        self.run.log(**{word: host_number(value) for word, value in words.items()})

    def _stepped(self, *args: Any, **options: Any) -> Any:
        is_update = self.engine.is_gradient_accumulation_boundary()
        self._blocks.begin()
        before = self._rates()
        answer = self._step(*args, **options)
        if is_update:
            self._completed(before)
        return answer

    @never_raises(list[float]())
    def _rates(self) -> list[float]:
        return rates(self.engine.optimizer)

    @never_raises(None)
    def _completed(self, before: list[float]) -> None:
        engine = self.engine
        words: dict[str, Any] = self._shapes.take(engine.dp_world_size) if self._shapes is not None else {}
        words["gradient_norm"] = host_number(engine.get_global_grad_norm())
        if not isinstance(words["gradient_norm"], float | int):
            del words["gradient_norm"]
        if not engine.was_step_applied():
            words["skipped"] = "overflow"
        self._blocks.complete(**words)
        if "skipped" not in words:
            log_rates(self.run, before)

    def _saved(self, save_dir: Any, tag: Any = None, *args: Any, **options: Any) -> Any:
        name = tag if tag is not None else f"global_step{self.engine.global_steps}"
        with saving(self.run, Path(save_dir, str(name))):
            return self._save(save_dir, tag, *args, **options)

    def _loaded(self, load_dir: Any, tag: Any = None, *args: Any, **options: Any) -> Any:
        newest = Path(load_dir, LATEST)
        name = tag if tag is not None else newest.read_text().strip() if newest.is_file() else None
        if name is None:
            return self._load(load_dir, tag, *args, **options)
        with restoring(self.run, Path(load_dir, str(name))):
            return self._load(load_dir, tag, *args, **options)
