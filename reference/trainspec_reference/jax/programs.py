"""Assembles the compiled functions of one job: backward pass, exchange, optimizer step, evaluation."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from trainspec_reference.common.backend import MicroBatch
from trainspec_reference.common.batch_schedule import micro_sequences, shares
from trainspec_reference.common.data import NOT_COUNTED, uncounted
from trainspec_reference.common.job import Job
from trainspec_reference.common.offers import all_reduce_algorithm
from trainspec_reference.common.ranks import own_positions
from trainspec_reference.jax.arithmetic import Formats
from trainspec_reference.jax.compression import Carried, Compressor
from trainspec_reference.jax.exchange import Exchange, Exchanged
from trainspec_reference.jax.layout import Layout, Shape
from trainspec_reference.jax.mesh import COPY_AXES, Group, Ranks
from trainspec_reference.jax.models import splits_of
from trainspec_reference.jax.passes import Batch, Passes, Sums
from trainspec_reference.jax.state import Rate, State, StateMaker, Trained, adamw

_NEXT_KEY = 2**31 - 1
"""Folded into the key by each step; no rank has this number."""


def keep_programs(directory: str | None) -> None:
    """Keep compiled programs in a directory, from which the next process takes them in place of compiling."""
    if directory is None:
        return
    jax.config.update("jax_compilation_cache_dir", directory)


class Programs:
    """All functions of one job in one formation.

    Raises:
        ValueError: the plan combines what this trainer cannot combine.
    """

    def __init__(self, job: Job, formats: Formats, ranks: Ranks, shapes: Mapping[str, Shape]) -> None:
        plan = job.plan
        sharding = plan.parallelism.sharding
        self._job, self._ranks, self._formats = job, ranks, formats
        self.shares_parameters = sharding == "parameters"
        num_shards = 1 if sharding == "none" else ranks.num_copies
        splits = splits_of(job.model, ranks.num_tensor)
        self.layout = Layout(shapes, splits, ranks.num_tensor, num_shards, ranks.num_stages)
        self.are_replicas_whole = sharding == "none" and ranks.num_parts == 1
        self.meets_peers = self.shares_parameters or ranks.num_parts * ranks.num_context > 1
        compressor = self._compressor()
        has_residual = compressor is not None and compressor.plan.error_feedback
        basis = np.zeros(1, np.float32) if compressor is None else compressor.first_basis(job.seed)
        residual_size = self.layout.width * num_shards if has_residual else 0
        self.maker = StateMaker(job, self.layout, formats, ranks, self.shares_parameters, residual_size, basis)
        self._is_decayed = self.maker.decayed()
        self._norm_weights = self.maker.weights_in_norm()
        self._compile(compressor)

    def _compressor(self) -> Compressor | None:
        communication = self._job.plan.communication
        plan = communication.compression if communication is not None else None
        if plan is None or plan.method == "none":
            return None
        return Compressor(plan, {name: shape for unit in self.layout.units for name, shape in unit.members})

    def _compile(self, compressor: Compressor | None) -> None:
        job, ranks = self._job, self._ranks
        memory, communication = job.plan.memory, job.plan.communication
        num_bytes = 4 * self.layout.width * self.layout.num_shards
        start_step = compressor.plan.start_step or 0 if compressor is not None else 0
        algorithm = all_reduce_algorithm(communication, num_bytes)
        exchange = Exchange(
            self.layout, self._formats, ranks.num_parts, algorithm, compressor, self.shares_parameters, start_step
        )
        passes = Passes(job, self.layout, self._formats, ranks.num_tensor, ranks.num_context, self.shares_parameters)
        near: Group = ranks.everyone if self.shares_parameters else ranks.replica
        shards_moments = self.layout.num_shards > 1 and not self.shares_parameters
        donates = memory is None or memory.donated_buffers is not False
        self._backward = {
            measured: near.program(passes.backward(measured=measured), (1,) if donates else ())
            for measured in (False, True)
        }
        self._forward = near.program(passes.forward)
        self._exchange = ranks.everyone.program(exchange.run, (0,) if donates else ())
        self._update = (ranks.everyone if shards_moments else ranks.alone).program(
            self._updated(shards_moments), (0, 1) if donates else ()
        )

    def _updated(self, shards_moments: bool) -> Any:
        step = adamw(self._job.rates, self._formats)

        def update(held: Trained, key: Any, gradient: Any, is_decayed: Any, rate: Rate) -> tuple[Trained, Any]:
            own = held.parameters if self.shares_parameters else held.parameters[0]
            if shards_moments:
                own = held.parameters[jax.lax.axis_index(COPY_AXES)]
            changed = step(held._replace(parameters=own), gradient, is_decayed, rate)
            whole = changed.parameters
            if shards_moments:
                whole = jax.lax.all_gather(whole, COPY_AXES)
            elif not self.shares_parameters:
                whole = whole[None]
            return changed._replace(parameters=whole), jax.random.fold_in(key, _NEXT_KEY)

        return update

    def warm(self, state: State) -> None:
        """Compile the step for the planned micro-batches, and connect to all peers, with samples that count nothing."""
        plan = self._job.plan.batch
        batch = uncounted(self._job.model, micro_sequences(plan, plan.global_sequences, self._ranks.num_data))
        sums, _ = self.backward(state, [batch] * self._num_together, 1.0, measured=False)
        self.exchange(state, sums, 1.0)

    @property
    def _num_together(self) -> int:
        """Planned micro-batches of one call of a compiled function: all of a step where they are in a pipeline."""
        batch, num_data = self._job.plan.batch, self._ranks.num_data
        if self._ranks.num_stages == 1:
            return 1
        own = shares(batch, batch.global_sequences, num_data)[self._ranks.data_rank]
        return -(-own // micro_sequences(batch, batch.global_sequences, num_data))

    def backward(
        self, state: State, batches: Sequence[MicroBatch], weight: float, measured: bool
    ) -> tuple[Sums, list[jax.Array]]:
        """Gradient and loss of this rank's micro-batches, each target weighted alike, and the squared norm of each.

        All of it is complete when the call returns.
        """
        shape = state.first.shape if self.shares_parameters else state.parameters.shape
        sums = Sums(jnp.zeros(shape, self._formats.wide), jnp.zeros((1,), self._formats.wide))
        squares = []
        for inputs in self._fed(batches, state, one_by_one=measured):
            sums, square = self._backward[measured](
                state.parameters, sums, inputs, self._number(weight), self._norm_weights
            )
            squares.append(square)
        found: tuple[Sums, list[jax.Array]] = jax.block_until_ready((sums, squares))
        return found

    def forward(self, state: State, batches: Sequence[MicroBatch], weight: float) -> float:
        """Loss of this rank's micro-batches, each target weighted alike."""
        loss = jnp.zeros((1,), self._formats.wide)
        for inputs in self._fed(batches, state):
            loss = self._forward(state.parameters, loss, inputs, self._number(weight))
        return float(loss[0])

    def exchange(self, state: State, sums: Sums, loss_scale: float) -> Exchanged:
        """Total of all ranks' sums, complete when the call returns."""
        carried = Carried(state.residual, state.basis)
        scale = self._number(loss_scale)
        found: Exchanged = jax.block_until_ready(self._exchange(sums, carried, state.count, scale, self._norm_weights))
        return found

    def update(self, state: State, gradient: jax.Array, learning_rate: float, clip_factor: float) -> State:
        """The state after one step of AdamW."""
        held = Trained(state.parameters, state.first, state.second, state.count)
        rate = Rate(self._number(learning_rate), self._number(clip_factor))
        changed, key = jax.block_until_ready(self._update(held, state.key, gradient, self._is_decayed, rate))
        return replace(state, key=key, **changed._asdict())

    def padded(self, batches: Sequence[MicroBatch], count: int, num_samples: int) -> list[MicroBatch]:
        """As many micro-batches of as many samples, filled up with samples that count nothing."""
        found = []
        for index in range(count):
            batch = batches[index] if index < len(batches) else uncounted(self._job.model, 0)
            spare = uncounted(self._job.model, num_samples - len(batch.inputs))
            positions = batch.inputs.shape[1:]
            if len(batch.inputs) and spare.inputs.shape[1:] != positions:
                spare = MicroBatch(spare.inputs[:, : positions[0]], spare.targets[:, : positions[0]], ())
            inputs = np.concatenate([batch.inputs, spare.inputs]) if len(batch.inputs) else spare.inputs
            targets = np.concatenate([batch.targets, spare.targets]) if len(batch.inputs) else spare.targets
            found.append(MicroBatch(inputs, targets, batch.sample_ids))
        return found

    def _fed(self, batches: Sequence[MicroBatch], state: State, *, one_by_one: bool = False) -> Iterator[Batch]:
        """What a compiled function takes in one call: a micro-batch, or all of those that a pipeline runs together.

        The gradient of each is known alone only where a pipeline runs them one by one, each through all stages.
        """
        if self._ranks.num_stages == 1:
            for index, batch in enumerate(batches):
                yield self._batch(batch.inputs, batch.targets, index, state)
        elif batches:
            alike = self.padded(batches, len(batches), max(len(batch.inputs) for batch in batches))
            inputs = np.stack([batch.inputs for batch in alike])
            targets, numbers = np.stack([batch.targets for batch in alike]), np.arange(len(alike))
            size = 1 if one_by_one else len(alike)
            for begin in range(0, len(alike), size):
                part = slice(begin, begin + size)
                yield self._batch(inputs[part], targets[part], numbers[part], state)

    def _batch(self, inputs: Any, targets: Any, numbers: Any, state: State) -> Batch:
        own = self._ranks.everyone.own
        inputs, targets = self._shared(inputs, 0), self._shared(targets, NOT_COUNTED)
        inputs = inputs if inputs.dtype.kind == "f" else inputs.astype(np.int32)
        rank, numbers = own(np.int32(self._ranks.data_rank)), own(np.asarray(numbers, np.int32))
        return Batch(own(inputs), own(targets.astype(np.int32)), state.key, rank, numbers)

    def _shared(self, whole: Any, filler: int) -> Any:
        """This rank's positions of sequences."""
        ranks, num_divisions = self._ranks, self._ranks.num_tensor if self._job.plan.parallelism.sequence else 1
        if ranks.num_context == 1:
            return whole
        return own_positions(whole, ranks.context_rank, ranks.num_context, filler, num_divisions)

    def _number(self, value: float) -> Any:
        return self._ranks.everyone.own(np.asarray(value, self._formats.wide))
