"""Mutants that train on a part of the samples that they report."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import msgspec
import numpy as np
from registry import Mutant, add, mutant
from trainspec_conformance.testbed.plain import reduction
from trainspec_reference.common.backend import Gradients, MicroBatch
from trainspec_reference.common.data import Loaded
from trainspec_reference.common.trainer import Trainer

from trainspec_validate.documents.types.conformance import Task

LAYOUTS = {f"TS-CNF-{number}": "the number of ranks changes there" for number in (127, 205)} | {
    "TS-CNF-207": "shares of the ranks change there"
}

SAMPLES = {**LAYOUTS, "TS-CNF-318": "losses are compared with the samples that are reported"}


@mutant("rank0", "TS-CNF-314", "Drops the gradients of all ranks but the first.", also=LAYOUTS)
def rank0() -> None:
    def first_alone(exchange: Any, vector: Any, loss_scale: float, *_: object) -> Any:
        payload = exchange.copy_from(0, np.asarray(vector, np.float32).tobytes())
        return np.frombuffer(payload, np.float32) / np.float32(loss_scale)

    reduction.total = first_alone


def _trains_on(part: Callable[[Trainer, Loaded], Sequence[MicroBatch]]) -> None:
    """Compute gradients of other batches than those that are reported."""
    gradients = Trainer._gradients

    def other(self: Trainer, loaded: Loaded, arrived: Callable[[], None]) -> Gradients:
        return gradients(self, replace(loaded, micro_batches=tuple(part(self, loaded))), arrived)

    Trainer._gradients = other  # type: ignore[method-assign]


@mutant("half-batch", "TS-CNF-314", "Trains on the first half of each rank's samples.", also=SAMPLES)
def half_batch() -> None:
    def half(_: Trainer, loaded: Loaded) -> Sequence[MicroBatch]:
        left, batches = max(1, len(loaded.sample_ids) // 2), []
        for batch in loaded.micro_batches:
            size = min(left, len(batch.sample_ids))
            left -= size
            if size:
                inputs, targets = batch.inputs[:size], batch.targets[:size]
                batches.append(replace(batch, inputs=inputs, targets=targets, sample_ids=batch.sample_ids[:size]))
        return batches

    _trains_on(half)


@mutant("first-micro-batch", "TS-CNF-314", "Drops all micro-batches of a rank but the first.", also=LAYOUTS)
def first_micro_batch() -> None:
    _trains_on(lambda _, loaded: loaded.micro_batches[:1])


@mutant("last-micro-batch", "TS-CNF-314", "Drops all micro-batches of a rank but the last.", also=LAYOUTS)
def last_micro_batch() -> None:
    _trains_on(lambda _, loaded: loaded.micro_batches[-1:])


@mutant("same-data", "TS-CNF-314", "Trains each rank on the samples of rank 0.", also=SAMPLES)
def same_data() -> None:
    def first(self: Trainer, _: Loaded) -> Sequence[MicroBatch]:
        request = self._feed._request(self.state, self._feed.schedule.at(self.state))
        return self._feed.made(replace(request, data_rank=0)).micro_batches

    _trains_on(first)


def _on_two_ranks(task: Task) -> Task:
    job = msgspec.structs.replace(task.job, num_ranks=min(task.job.num_ranks, 2))
    return msgspec.structs.replace(task, job=job)


add(
    Mutant(
        "two-ranks",
        "Trains on two ranks, however many are asked for.",
        "TS-CNF-127",
        also={
            f"TS-CNF-{number}": "more than two ranks are asked for there"
            for number in (102, 105, 106, 123, 205, 302, 312, 313, 314)
        },
        task=_on_two_ranks,
    )
)
