"""Measures gradient noise in PyTorch: where gradients are tapped, and how ranks add up."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor
from torch.distributed.algorithms.ddp_comm_hooks.default_hooks import allreduce_hook
from torch.distributed.fsdp import FSDPModule
from torch.distributed.tensor import DTensor, Replicate

from trainspec_record.guard import never_raises, tell_once
from trainspec_record.noise.estimate import Norms
from trainspec_record.noise.meter import NoiseMeter

Hook = Callable[[Any, Any], torch.futures.Future[Tensor]]
SYNC_EVERY = 16
"""Readings after which ranks add up and the device is waited for."""


def square(tensor: Tensor) -> Tensor:
    """Squared norm, added up in 64 bits on the device."""
    norm: Tensor = torch.linalg.vector_norm(tensor.detach(), dtype=torch.float64)
    return norm.square()


class TorchNoise:
    """Collects squared norms of groups of one step, on the device that the gradients are on.

    The gradient of a step must be the mean over all its noise units, as with a global mean of tokens: the part of a
    group in it is its mean gradient times its share of the units. Call `finish` after the last backward of a step,
    before the loss scale is taken out, before clipping and before the optimizer. Gradients of tensor parallel ranks are
    not added up.
    """

    def __init__(
        self,
        meter: NoiseMeter,
        parameters: Iterable[Tensor],
        *,
        process_group: dist.ProcessGroup | None = None,
        loss_scale: Callable[[], Any] | None = None,
        sync_every: int = SYNC_EVERY,
    ) -> None:
        self.process_group = process_group
        self.parameters = [each for each in parameters if each.requires_grad]
        self._meter, self._loss_scale, self._sync_every = meter, loss_scale, sync_every
        self._number = 0
        self._open: list[Tensor] = []
        self._groups: list[tuple[list[Tensor], float]] = []
        self._means: list[torch.futures.Future[Tensor]] = []
        self._is_spoiled = False
        self._rows: list[Tensor] = []

    @property
    def is_measured(self) -> bool:
        """Whether the step that is under way is one of those that give a reading."""
        return self._meter.is_on and self._number % self._meter.settings.every == 0

    @property
    def num_ranks(self) -> int:
        """Ranks whose gradients are averaged into one."""
        return dist.get_world_size(self.process_group) if dist.is_available() and dist.is_initialized() else 1

    def tap(self, gradient: Tensor) -> None:
        """A part of the gradient of the group that is open, before ranks add up."""
        if self.is_measured:
            try:
                self._open.append(square(gradient))
            except Exception as error:  # noqa: BLE001, RUF100 - training goes on, and this step gives no reading
                self.spoil(f"{type(error).__name__}: {error}")

    def spoil(self, why: str) -> None:
        """This step gives no reading."""
        self._is_spoiled = True
        tell_once(f"gradient noise of a step is left out: {why}")

    def mean(self, reduced: torch.futures.Future[Tensor]) -> None:
        """A squared norm of the mean over ranks that is under way, where the one that is applied is another."""
        self._means.append(reduced)

    @never_raises(None)
    def close_group(self, num_units: float) -> None:
        """A group is whole: a micro-batch with its number of noise units on this rank."""
        if self._open and self.is_measured:
            self._groups.append((self._open, num_units))
        self._open = []

    @never_raises(None)
    def finish(self, num_units: float = 0) -> None:
        """The gradient of the step is there; `num_units` are those of the group that is still open."""
        try:
            self.close_group(num_units)
            if self.is_measured:
                self._rows.append(self._row())
                if len(self._rows) >= self._sync_every:
                    self.flush()
        finally:
            self._number += 1
            self._groups, self._means, self._is_spoiled = [], [], False

    def _row(self) -> Tensor:
        """Squares over units, units, groups, and the share of this rank in the square of the mean."""
        device = self._groups[0][0][0].device if self._groups else torch.device("cpu")
        row = torch.zeros(4, dtype=torch.float64, device=device)
        for squares, num_units in self._groups:
            row[0] += torch.stack(squares).sum() / max(num_units, 1e-300)
            row[1] += num_units
            row[2] += 1
        row[3] = self._share_of_mean(device)
        if self._loss_scale is not None:
            scale = torch.as_tensor(self._loss_scale(), dtype=torch.float64, device=device)
            row[0] /= scale**2
            row[3] /= scale**2
        return torch.full_like(row, torch.nan) if self._is_spoiled else row

    def _share_of_mean(self, device: torch.device) -> Tensor:
        shares = [future.wait().to(device) / self.num_ranks for future in self._means]
        if not shares:
            shares = [self._share(each.grad).to(device) for each in self.parameters if each.grad is not None]
        return torch.stack(shares).sum() if shares else torch.zeros((), dtype=torch.float64, device=device)

    def _share(self, gradient: Tensor) -> Tensor:
        """Squares of what this rank holds of a gradient; what several ranks hold counts once among them."""
        if not isinstance(gradient, DTensor):
            return square(gradient) / self.num_ranks
        mesh = gradient.device_mesh
        copies = [mesh.size(axis) for axis, each in enumerate(gradient.placements) if isinstance(each, Replicate)]
        return square(gradient.to_local()) / torch.tensor(copies or [1]).prod().item()

    @never_raises(None)
    def flush(self) -> None:
        """Add the readings that wait up over all ranks; every rank must call it after the same update."""
        if not self._rows:
            return
        rows, self._rows = torch.stack(self._rows), []
        ranks = self.num_ranks
        if ranks > 1:
            dist.all_reduce(rows, group=self.process_group)
        for part, units, groups, square_of_mean in rows.tolist():
            self._meter.add(Norms(groups, units, units * part / ranks**2, square_of_mean))


# --- where gradients are tapped -----------------------------------------------------------------------------


def tap_parameters(noise: TorchNoise) -> list[Any]:
    """Tap what each backward adds to whole parameters: micro-batches of one device, DDP, ZeRO of stages 1 and 2.

    Call `close_group` after each backward. The handles that are returned take the taps off again.
    """
    return [each.register_hook(noise.tap) for each in noise.parameters]  # type: ignore[no-untyped-call]


def ddp_hook(noise: TorchNoise, inner: Hook | None = None, inner_state: Any = None) -> Hook:
    """A communication hook that taps the gradient of a rank and then does what `inner` does, or the average over ranks.

    With an inner hook, which may compress, the mean without compression is formed too, in steps that are measured.
    """

    def hook(state: Any, bucket: Any) -> torch.futures.Future[Tensor]:
        noise.tap(bucket.buffer())
        if inner is None:
            return allreduce_hook(state, bucket)
        if noise.is_measured:
            exact = bucket.buffer().to(torch.promote_types(bucket.buffer().dtype, torch.float32), copy=True)
            exact.div_(noise.num_ranks)
            work = dist.all_reduce(exact, group=noise.process_group, async_op=True)
            noise.mean(work.get_future().then(lambda done: square(done.value()[0])))
        return inner(inner_state, bucket)

    hook.__annotations__ = {}  # DDP compares annotations with classes, and here they are texts
    return hook


class _TappedReduceScatter:
    """Squares what is reduced and scattered, before it is."""

    def __init__(self, noise: TorchNoise, inner: Any) -> None:
        self.noise, self.inner = noise, inner

    def allocate(self, *args: Any, **kwargs: Any) -> Tensor:
        """Memory, as the inner one gives it."""
        found: Tensor = self.inner.allocate(*args, **kwargs)
        return found

    def __call__(
        self, output_tensor: Tensor, input_tensor: Tensor, group: dist.ProcessGroup, op: Any, async_op: bool = False
    ) -> Any:
        """Tap, reduce and scatter."""
        if op == dist.ReduceOp.AVG:
            self.noise.tap(input_tensor)
        else:
            self.noise.spoil("the gradient is divided before it is reduced; reduce in fp32 or bf16")
        return self.inner(output_tensor, input_tensor, group, op, async_op)


def tap_reduce_scatter(noise: TorchNoise, model: torch.nn.Module, inner: Any = None) -> None:
    """Tap what each rank gives to the reduce-scatter of `fully_shard`, before it is scattered.

    `inner` is the custom reduce-scatter of the model, where it has one. With several micro-batches in a step, call
    `close_group` after each backward that reduces.
    """
    from torch.distributed.fsdp._fully_shard._fsdp_collectives import DefaultReduceScatter  # noqa: PLC0415

    for module in model.modules():
        if isinstance(module, FSDPModule):
            module.set_custom_reduce_scatter(_TappedReduceScatter(noise, inner or DefaultReduceScatter()))  # type: ignore[arg-type]
