"""Trains an example with Flax, Optax and Orbax on several JAX processes, and writes a trace."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import Any

import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np
import optax
import orbax.checkpoint as ocp
from flax.training.train_state import TrainState
from jax.sharding import NamedSharding, PartitionSpec
from tracing import Rank, read_task

NUM_FEATURES, NUM_HIDDEN = 16, 32


class Model(nn.Module):
    """A small network."""

    dropout: float

    @nn.compact
    def __call__(self, inputs: jax.Array) -> jax.Array:
        """One number for each sample."""
        hidden = nn.tanh(nn.Dense(NUM_HIDDEN)(inputs))
        return nn.Dense(1)(nn.Dropout(self.dropout, deterministic=False)(hidden))[:, 0]


def samples(ids: np.ndarray, seed: int) -> tuple[np.ndarray, np.ndarray]:
    """Samples that are pure functions of their numbers: inputs (samples, features) and targets (samples)."""
    inputs = np.stack([np.random.default_rng([seed, one]).normal(size=NUM_FEATURES) for one in ids])
    return inputs.astype("f4"), np.sin(3 * inputs[:, :4]).sum(1).astype("f4")


class Run:
    """One attempt of one rank."""

    def __init__(self, rank: Rank, mesh: jax.sharding.Mesh) -> None:
        self._rank, self._job = rank, rank.job
        self._split = NamedSharding(mesh, PartitionSpec("data"))
        self._same = NamedSharding(mesh, PartitionSpec())
        self._rate = optax.linear_schedule(3e-3, 3e-5, self._job["num_steps"])
        self._model = Model(self._job["dropout"])
        self._update = jax.jit(self._updated, donate_argnums=0)
        self._state = jax.jit(self._initial, out_shardings=self._same)()
        self._manager = ocp.CheckpointManager(
            Path(rank.checkpoints).absolute(),
            options=ocp.CheckpointManagerOptions(
                save_interval_steps=self._job["checkpoint_interval_steps"],
                max_to_keep=self._job["num_kept"],
                enable_async_checkpointing=False,
            ),
        )

    def _initial(self) -> TrainState:
        key = jax.random.key(self._job["seed"])
        weights = self._model.init({"params": key, "dropout": key}, jnp.zeros((1, NUM_FEATURES)))
        return TrainState.create(apply_fn=self._model.apply, params=weights, tx=optax.adamw(self._rate))

    def _updated(self, state: TrainState, inputs: jax.Array, targets: jax.Array) -> tuple[TrainState, jax.Array]:
        key = jax.random.fold_in(jax.random.key(self._job["seed"]), state.step)

        def mean_loss(weights: Any) -> jax.Array:
            return jnp.mean((state.apply_fn(weights, inputs, rngs={"dropout": key}) - targets) ** 2)

        loss, gradients = jax.value_and_grad(mean_loss)(state.params)
        return state.apply_gradients(grads=gradients), loss

    def restore(self) -> None:
        """Load the newest checkpoint, where the run is to resume."""
        newest = self._manager.latest_step() if self._rank.resumes else None
        if self._rank.gate is not None and self._rank.resumes:
            found = self._rank.gate.newest()
            newest = None if found is None else int(found.name)
        if newest is not None:
            wanted = jax.tree.map(ocp.utils.to_shape_dtype_struct, self._state)
            self._state = self._manager.restore(newest, args=ocp.args.StandardRestore(wanted))
        self._rank.restored(int(self._state.step), None if newest is None else str(newest))

    def _ids(self, step: int) -> np.ndarray:
        """Samples of this rank in the step after so many: a permutation for each epoch, one after the other."""
        size, batch = self._job["samples_per_epoch"], self._job["global_sequences"]
        epoch, place = divmod(step * batch, size)
        order = np.concatenate(
            [np.random.default_rng([self._job["seed"], one]).permutation(size) for one in (epoch, epoch + 1)]
        )
        return order[place : place + batch][self._rank.rank :: self._job["num_ranks"]]

    def train(self) -> None:
        """Train to the end, or until a save on a signal is done."""
        step = int(self._state.step)
        while step < self._job["num_steps"]:
            self._rank.fail_if_planned(step)
            ids = self._ids(step)
            parts = [
                jax.make_array_from_process_local_data(self._split, one) for one in samples(ids, self._job["seed"])
            ]
            self._state, loss = self._update(self._state, *parts)
            rate = float(self._rate(step))
            step += 1
            self._rank.stepped(step, float(loss), rate, ids.tolist())
            with self._rank.telling_failure(step, str(step)):
                is_saved = self._manager.save(step, args=ocp.args.StandardSave(self._state))
            if is_saved:
                self._rank.saved(step, str(step))
                if self._rank.gate is not None and self._rank.rank == 0:
                    from trainspec_record.checkpoints import seal_in_background  # noqa: PLC0415 - with the gate alone

                    self._manager.wait_until_finished()
                    seal_in_background(Path(self._rank.checkpoints) / str(step))
            if self._manager.reached_preemption(step):
                break
        self._manager.close()
        self._rank.ended(step)


def main(path: str) -> None:
    """Train as the task says, on one rank."""
    rank = Rank(read_task(path), int(os.environ["RANK"]))
    jax.config.update("jax_cpu_collectives_implementation", "gloo")
    jax.distributed.initialize(
        f"127.0.0.1:{os.environ['PORT']}",
        rank.job["num_ranks"],
        rank.rank,
        heartbeat_timeout_seconds=10,
    )
    run = Run(rank, jax.make_mesh((rank.job["num_ranks"],), ("data",), axis_types=(jax.sharding.AxisType.Auto,)))
    run.restore()
    run.train()


if __name__ == "__main__":
    main(sys.argv[1])
