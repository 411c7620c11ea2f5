"""Keeps the residuals of compression: in training, in checkpoints, and when ranks change."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path

import torch

from trainspec_reference.common.backend import CheckpointUnreadableError
from trainspec_reference.torch.algorithms import Sum
from trainspec_reference.torch.checkpoint import Box, host_copy, names_in, read
from trainspec_reference.torch.compression import Compressor, make_compressor
from trainspec_reference.torch.exchange import Bucket
from trainspec_reference.torch.flat import FlatState, boxes_of
from trainspec_reference.torch.groups import Groups
from trainspec_validate.documents.types.communication import Compression

RESIDUAL, FACTOR = "compression/residual", "compression/factor"


class Feedback:
    """The exchange of buckets through a compressor, with error feedback where the plan has it.

    What was not sent is added to the gradient of the next step; a step that is discarded leaves it as it was.
    """

    def __init__(self, plan: Compression, state: FlatState) -> None:
        self._plan, self._state = plan, state
        self.residual, self._pending = (torch.zeros_like(state.parameters) for _ in range(2))
        self._rank, self._num_ranks = 0, 0
        self._num_pending = 0
        """Entries of `_pending` that are of the step that was sent last."""
        self.compressor: Compressor | None = None
        self._learnt: Mapping[str, torch.Tensor] = {}

    def connect(self, groups: Groups) -> None:
        """Go on among these data ranks; of another number, each keeps what it has left to send, unless the plan resets.

        Raises:
            ValueError: the plan refuses another number of ranks, or its compressor is not here.
        """
        if groups.grid.num_ranks != groups.num_copies:
            raise ValueError("compression is for ranks that hold the whole model here")
        self._rank, num_ranks = groups.copy, groups.num_copies
        if self._num_ranks not in (0, num_ranks):
            if self._plan.residual_on_resize == "refuse":
                raise ValueError(f"the plan refuses {num_ranks} data ranks for the residuals of {self._num_ranks}")
            if self._plan.residual_on_resize == "reset":
                self.forget()
        factors = self.factors
        self._num_ranks = num_ranks
        self.compressor = make_compressor(self._plan, self._state, groups.copies) if groups.copies else None
        for name, factor in self.factors.items():
            factor.copy_(factors.get(name, factor))

    def disconnect(self) -> None:
        """Send no more; what was learnt stays."""
        self._learnt, self.compressor = self.factors, None

    def reduce(self, bucket: Bucket, total: Sum) -> None:
        """Replace the bucket's gradient by the sum of what all ranks sent, or by the sum before the first such step."""
        place = slice(bucket.spans[0].start, bucket.spans[-1].stop)
        if self._plan.error_feedback:
            bucket.gradient.add_(self.residual[place])
        self._num_pending *= bucket.number > 0
        if self.compressor is not None and self._has_begun:
            kept: torch.Tensor | float = self.compressor.send(bucket, total)
        else:  # what was left of a compressed step goes along
            total(bucket.gradient)
            kept = 0.0
        if self._plan.error_feedback:
            self._pending[place] = kept
            self._num_pending += place.stop - place.start

    @property
    def num_sent_bytes(self) -> int:
        """Of the last bucket, as this rank sent it to one other; 0 where it was not compressed."""
        return self.compressor.num_sent_bytes if self.compressor else 0

    def commit(self) -> None:
        """The step is applied: what it did not send waits for the next one."""
        if self._plan.error_feedback:
            self.residual, self._pending, self._num_pending = self._pending, self.residual, 0
        if self.compressor is not None:
            self.compressor.commit()

    def forget(self) -> None:
        """Nothing is left to be sent."""
        self.residual.zero_()
        self._num_pending = 0

    def catch_up(self, num_updates: int) -> None:
        """The state of another rank, with so many updates more, is taken over.

        Where it is one, all ranks have what this one sent last; of what was not sent whole, the rest is not known.
        """
        if num_updates == 1 and self._num_pending == len(self._pending):
            self.commit()
        elif num_updates:
            self.forget()

    def copied_boxes(self) -> dict[str, Box]:
        """Copies of this rank's residual, and of what all ranks have learnt alike from the first of them."""
        spans = self._state.spans if self._plan.error_feedback else ()
        boxes = dict(boxes_of(f"{RESIDUAL}/{self._rank}", host_copy(self.residual), 0, spans))
        if self._rank == 0:
            boxes |= {f"{FACTOR}/{name}": Box.whole(host_copy(factor)) for name, factor in self.factors.items()}
        return boxes

    def restore(self, directory: Path) -> None:
        """Read residuals and factors; those of another number of ranks are treated as the plan says.

        Raises:
            CheckpointUnreadableError: the checkpoint is damaged, or the plan refuses the number of ranks.
        """
        names = names_in(directory)
        writers = sorted({int(name.split("/")[2]) for name in names if name.startswith(f"{RESIDUAL}/")})
        self.forget()
        for writer in self._inherited(writers, directory):
            found = torch.zeros_like(self.residual, device="cpu")
            read(dict(boxes_of(f"{RESIDUAL}/{writer}", found, 0, self._state.spans)), directory)
            self.residual += found.to(self.residual.device)
        found_factors = {
            f"{FACTOR}/{name}": factor for name, factor in self.factors.items() if f"{FACTOR}/{name}" in names
        }
        hosted = {name: Box.whole(torch.zeros_like(factor, device="cpu")) for name, factor in found_factors.items()}
        read(hosted, directory)
        for name, factor in found_factors.items():
            factor.copy_(hosted[name].tensor)

    def _inherited(self, writers: list[int], directory: Path) -> Iterator[int]:
        """Ranks of the checkpoint whose residual this rank takes over."""
        if not writers or not self._plan.error_feedback:
            return
        if len(writers) == self._num_ranks:
            yield self._rank
        elif self._plan.residual_on_resize == "refuse":
            raise CheckpointUnreadableError(
                f"{directory}: the plan refuses {self._num_ranks} data ranks for the residuals of {len(writers)}"
            )
        elif self._plan.residual_on_resize != "reset":
            yield from (writer for writer in writers if writer % self._num_ranks == self._rank)

    @property
    def factors(self) -> Mapping[str, torch.Tensor]:
        """What has been learnt, alike on all ranks."""
        return self.compressor.factors if self.compressor else self._learnt

    @property
    def _has_begun(self) -> bool:
        return self._state.num_updates + 1 >= (self._plan.start_step or 0)
