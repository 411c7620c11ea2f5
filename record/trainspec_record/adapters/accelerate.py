"""Records a training loop written with Hugging Face Accelerate."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from functools import wraps
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, TypeVar

from accelerate.tracking import GeneralTracker

from trainspec_record.adapters.checkpoints import restoring, saving
from trainspec_record.adapters.pytorch import Loop, host_number
from trainspec_record.guard import never_raises
from trainspec_record.values import key

if TYPE_CHECKING:
    from trainspec_record.recording import Run
    from trainspec_record.silent import SilentRun

T = TypeVar("T")
METRICS: Mapping[str, str] = MappingProxyType(
    {"loss": key("train.loss.mean", train__loss__name="total"), "grad_norm": "train.gradient.norm"}
)
"""Names that a script passes to `Accelerator.log`, and the metrics of the catalog that they are."""


class TrainspecTracker(GeneralTracker):  # type: ignore[misc]
    """A tracker of `Accelerator(log_with=...)` that records in a run.

    `follow` makes each step of the optimizer a step, and each `save_state` and `load_state` a save and a restore.
    Values that the script passes to `Accelerator.log` are recorded under `metrics`, as values of the job.
    """

    name = "trainspec"
    requires_logging_directory = False
    main_process_only = False

    def __init__(self, run: Run | SilentRun, metrics: Mapping[str, str] = METRICS) -> None:
        super().__init__()
        self._run, self._metrics = run, metrics
        self._loop: Loop | None = None

    @property
    def tracker(self) -> Run | SilentRun:
        """The run."""
        return self._run

    def log(self, values: Mapping[str, Any], step: int | None = None, **_: Any) -> None:  # noqa: ARG002 - the run counts
        """Values of the job at the step that was completed last, as far as the host holds them."""
        known = {self._metrics[name]: host_number(value) for name, value in values.items() if name in self._metrics}
        if known:
            self._run.log(known)

    @never_raises(None)
    def follow(self, accelerator: Any, model: Any, optimizer: Any) -> None:
        """Record what a prepared model and optimizer, and the accelerator, do from now on."""
        inner = getattr(optimizer, "optimizer", optimizer)
        self._loop = Loop(self._run, inner, model, accelerator.num_processes)
        if self._run.is_active:
            accelerator.save_state = _recorded(accelerator.save_state, self._run, saving)
            accelerator.load_state = _recorded(accelerator.load_state, self._run, restoring)

    def batches(self, loader: Iterable[T]) -> Iterator[T]:
        """Batches of a prepared loader; waiting for one is data wait."""
        return self._loop.batches(loader) if self._loop is not None else iter(loader)


def _recorded(method: Any, run: Run | SilentRun, block: Any) -> Any:
    """`save_state` or `load_state` of an accelerator; without a folder, Accelerate chooses one, and nothing is told."""

    @wraps(method)
    def inner(folder: Any = None, *args: Any, **options: Any) -> Any:
        told = folder or options.get("output_dir") or options.get("input_dir")
        given = () if folder is None else (folder,)
        if told is None:
            return method(*given, *args, **options)
        with block(run, told):
            return method(*given, *args, **options)

    return inner
