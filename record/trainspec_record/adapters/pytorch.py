"""Records a training loop written in plain PyTorch."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from concurrent.futures import Future
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from trainspec_record.adapters.blocks import Blocks
from trainspec_record.adapters.checkpoints import mark_of, restoring, size_bytes, write_mark
from trainspec_record.guard import never_raises
from trainspec_record.silent import SilentRun
from trainspec_record.values import key

if TYPE_CHECKING:
    import torch

    from trainspec_record.recording import Run

T = TypeVar("T")
RATE = "train.learning_rate"


def host_number(value: Any) -> Any:
    """The number in a tensor of one element that is in the memory of the host; any other value as it is.

    A tensor on a device stays a tensor, for which the recorder will not wait. So does one that is spread over ranks.
    """
    device = getattr(getattr(value, "device", None), "type", None)
    if device != "cpu" or hasattr(value, "full_tensor") or value.numel() != 1:
        return value
    return value.item()


def rates(optimizer: torch.optim.Optimizer) -> list[float]:
    """Learning rate of each group of parameters, as far as the host knows them."""
    found = [host_number(group["lr"]) for group in optimizer.param_groups if "lr" in group]
    return [rate for rate in found if isinstance(rate, float | int)]


def log_rates(run: Run | SilentRun, learning_rates: list[float]) -> None:
    """Rates that were applied in the step that was completed last, one for each group where they differ."""
    if len(set(learning_rates)) == 1:
        run.log({RATE: learning_rates[0]})
        return
    run.log({key(RATE, train__parameter__group=str(n)): rate for n, rate in enumerate(learning_rates)})


class Loop:
    """Optimizer steps of a training loop: each step of the optimizer is one.

    Values that are passed to `log` are those of the job, of all ranks together, as in `Run.log`; tensors are read where
    the host holds them. With a model samples and tokens are counted by the shapes that it is called with, times the
    data ranks.
    """

    def __init__(
        self,
        run: Run | SilentRun,
        optimizer: torch.optim.Optimizer,
        model: torch.nn.Module | None = None,
        data_ranks: int = 1,
    ) -> None:
        self.run = run
        self._blocks = Blocks(run)
        self._data_ranks = data_ranks
        self._shapes: Shapes | None = None
        self._rates: list[float] = []
        if run.is_active:
            self._shapes = Shapes(model) if model is not None else None
            optimizer.register_step_pre_hook(self._begin)
            optimizer.register_step_post_hook(self._complete)

    def batches(self, loader: Iterable[T]) -> Iterator[T]:
        """Batches of a loader, in its order; waiting for one is data wait."""
        return self._blocks.batches(loader)

    def log(self, values: Mapping[str, Any] | None = None, **words: Any) -> None:
        """`Run.log`, which takes tensors in the memory of the host too."""
        plain = {name: host_number(value) for name, value in (values or {}).items()}
        self.run.log(plain or None, **{word: host_number(value) for word, value in words.items()})

    def skip(self, reason: str = "overflow") -> None:
        """The gradients of the step that is under way are thrown away, as a loss scaler does."""
        if self._shapes is not None:
            self._shapes.take(0)
        self._blocks.complete(skipped=reason)

    @never_raises(None)
    def _begin(self, optimizer: torch.optim.Optimizer, *_: Any) -> None:
        self._blocks.begin()
        self._rates = rates(optimizer)

    @never_raises(None)
    def _complete(self, *_: Any) -> None:
        self._blocks.complete(**(self._shapes.take(self._data_ranks) if self._shapes is not None else {}))
        log_rates(self.run, self._rates)


def batch_sizes(batch: Any) -> tuple[int, int]:
    """Samples and tokens of a batch, by shapes alone.

    Samples are the first dimension of the first tensor. Tokens are the elements of `input_ids`, 0 where there is none.
    """
    if isinstance(batch, Mapping):
        ids = batch.get("input_ids")
        num_tokens = 0 if ids is None else int(ids.numel())
        return next(filter(None, (batch_sizes(each)[0] for each in batch.values())), 0), num_tokens
    if isinstance(batch, list | tuple):
        return next((found for each in batch if any(found := batch_sizes(each))), (0, 0))
    return (int(batch.shape[0]), 0) if getattr(batch, "ndim", 0) else (0, 0)


def counted(num_samples: int, num_tokens: int) -> dict[str, int]:
    """Words of `log` for what is known of an update."""
    return {word: count for word, count in {"samples": num_samples, "tokens": num_tokens}.items() if count}


class Shapes:
    """Samples and tokens that go into a module in training, by the shapes of what it is called with."""

    def __init__(self, module: torch.nn.Module) -> None:
        self._num_samples = self._num_tokens = 0
        self._handle = module.register_forward_pre_hook(_outside_of_graphs(self._count), with_kwargs=True)

    @never_raises(None)
    def _count(self, module: torch.nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        if module.training:
            num_samples, num_tokens = batch_sizes({**dict(enumerate(args)), **kwargs})
            self._num_samples += num_samples
            self._num_tokens += num_tokens

    def take(self, data_ranks: int) -> dict[str, int]:
        """Words of `log` for all data ranks since the call before, where each has as much as this one."""
        found = counted(self._num_samples * data_ranks, self._num_tokens * data_ranks)
        self._num_samples = self._num_tokens = 0
        return found

    def close(self) -> None:
        """Count no more."""
        self._handle.remove()


def _outside_of_graphs(function: Callable[..., None]) -> Any:
    """A function that `torch.compile` leaves alone."""
    import torch  # noqa: PLC0415 - nothing is loaded before it is needed

    return torch.compiler.disable(function)  # type: ignore[no-untyped-call]


def count_out_of_memory(run: Run | SilentRun, error: BaseException) -> None:
    """Count an error in `train.memory.oom` where it says that device memory is full."""
    import torch  # noqa: PLC0415 - nothing is loaded before it is needed

    if isinstance(error, torch.OutOfMemoryError):
        run.log(out_of_memory=1)


@contextmanager
def memory_counted(run: Run | SilentRun) -> Iterator[None]:
    """A block in which allocations that fail are counted; the error is raised on."""
    run.log(out_of_memory=0)
    try:
        yield
    except BaseException as error:
        count_out_of_memory(run, error)
        raise


def recorded_save(run: Run | SilentRun, folder: str | Path, save: Callable[[], Any]) -> Any:
    """Call a function that saves into a folder; the checkpoint is committed when it returns, or its future is done.

    A future that is given back is done after the commit, so that who waits for it does not end the run before.
    """
    mark = mark_of(run, Path(folder).name)
    with run.checkpoint(Path(folder).name, asynchronous=True) as span:
        answer = save()

    def commit() -> None:
        write_mark(mark, folder)
        span.commit(size_bytes=size_bytes(folder))

    if isinstance(answer, Future):
        return _after(answer, commit, span.fail)
    if hasattr(answer, "upload_completion"):  # a save with stages: `AsyncSaveResponse`
        return replace(answer, upload_completion=_after(answer.upload_completion, commit, span.fail))
    commit()
    return answer


def _after(future: Future[Any], commit: Callable[[], None], fail: Callable[[str], None]) -> Future[Any]:
    """A future that is done when another one is, and the recorder knows of it."""
    told: Future[Any] = Future()

    def end(done: Future[Any]) -> None:
        error = done.exception()
        if error is not None:
            fail(type(error).__name__)
            told.set_exception(error)
        else:
            commit()
            told.set_result(done.result())

    future.add_done_callback(end)
    return told


def save(run: Run | SilentRun, state: dict[str, Any], folder: str | Path, **options: Any) -> None:
    """`torch.distributed.checkpoint.save` into a folder, recorded."""
    import torch.distributed.checkpoint as dcp  # noqa: PLC0415 - nothing is loaded before it is needed

    recorded_save(run, folder, partial(dcp.save, state, checkpoint_id=str(folder), **options))  # type: ignore[attr-defined]


def async_save(run: Run | SilentRun, state: dict[str, Any], folder: str | Path, **options: Any) -> Any:
    """`torch.distributed.checkpoint.async_save` into a folder, recorded: it is committed when the future is done."""
    import torch.distributed.checkpoint as dcp  # noqa: PLC0415 - nothing is loaded before it is needed

    call = partial(dcp.async_save, state, checkpoint_id=str(folder), **options)  # type: ignore[attr-defined]
    return recorded_save(run, folder, call)


def load(run: Run | SilentRun, state: dict[str, Any], folder: str | Path, **options: Any) -> None:
    """`torch.distributed.checkpoint.load` from a folder that `save` or `async_save` wrote, recorded."""
    import torch.distributed.checkpoint as dcp  # noqa: PLC0415 - nothing is loaded before it is needed

    with restoring(run, folder):
        dcp.load(state, checkpoint_id=str(folder), **options)  # type: ignore[attr-defined]
