"""Trains an example with Keras on several TensorFlow workers, as guides show, and writes a trace."""

from __future__ import annotations

import json
import os
import re
import shutil
import sys
from pathlib import Path
from typing import Any

os.environ["KERAS_BACKEND"] = "tensorflow"  # Keras reads it when it is imported

import keras
import numpy as np
import tensorflow as tf
from tracing import MANIFEST, Rank, read_task

NUM_FEATURES, NUM_HIDDEN = 16, 32
PREFIX, DATA = "ckpt", ".data-00000-of-00001"


def example(dropout: float) -> Any:
    """A small network."""
    return keras.Sequential(
        [
            keras.layers.Input((NUM_FEATURES,)),
            keras.layers.Dense(NUM_HIDDEN, activation="tanh"),
            keras.layers.Dropout(dropout),
            keras.layers.Dense(1),
        ]
    )


def data_set(job: dict[str, Any], num_done: int) -> tf.data.Dataset:
    """Global batches, shuffled anew in each epoch, after so many that are done: numbers, inputs and targets."""
    ids = np.arange(job["samples_per_epoch"])
    drawn = [np.random.default_rng([job["seed"], one]).normal(size=NUM_FEATURES) for one in ids]
    inputs = np.stack(drawn).astype("f4")
    samples = tf.data.Dataset.from_tensor_slices((ids, inputs, np.sin(3 * inputs[:, :4]).sum(1, keepdims=True)))
    order = samples.shuffle(len(ids), seed=job["seed"], reshuffle_each_iteration=True).repeat()
    return order.batch(job["global_sequences"]).skip(num_done)


class Run:
    """One attempt of one worker."""

    def __init__(self, rank: Rank, strategy: tf.distribute.Strategy) -> None:
        self._rank, self._job, self._strategy = rank, rank.job, strategy
        self._rate = keras.optimizers.schedules.PolynomialDecay(3e-3, self._job["num_steps"], 3e-5)
        with strategy.scope():
            self._model = example(self._job["dropout"])
            self._optimizer = keras.optimizers.AdamW(self._rate)
            self._optimizer.build(self._model.trainable_variables)
            self._loss = keras.losses.MeanSquaredError(reduction="none")
        checkpoint = tf.train.Checkpoint(model=self._model, optimizer=self._optimizer)
        self._checkpoint, self._store = checkpoint, Path(rank.checkpoints)
        place = self._place()
        found = tf.train.latest_checkpoint(str(place)) if rank.resumes else None
        if found:
            checkpoint.restore(found).assert_existing_objects_matched()
        common = self._manager_of(place)
        self._manager = self._manager_of(self._store / f"workertemp_{rank.rank}") if rank.rank else common
        self._handler = tf.distribute.experimental.PreemptionCheckpointHandler(
            strategy.cluster_resolver,
            common,  # it restores the newest of its manager, which has to be the same one for each worker
            termination_config=tf.distribute.experimental.TerminationConfig(exit_fn=self._leave, save_fn=self._save),
        )
        name = Path(found).name + DATA if found and rank.gate is None else place.name
        rank.restored(self._step, name if found else None)

    def _place(self) -> Path:
        """Where the state to resume from is: the store, or behind the gate the directory of one save."""
        newest = self._rank.gate.newest() if self._rank.gate is not None and self._rank.resumes else None
        return newest or self._store

    def _manager_of(self, directory: Path) -> tf.train.CheckpointManager:
        kept = {"max_to_keep": self._job["num_kept"], "checkpoint_name": PREFIX}
        return tf.train.CheckpointManager(self._checkpoint, str(directory), **kept)

    @property
    def _step(self) -> int:
        return int(keras.ops.convert_to_numpy(self._optimizer.iterations))

    def _save(self) -> None:
        is_sealed = self._rank.gate is not None and self._rank.rank == 0
        name = f"{PREFIX}-{self._step}{DATA}" if self._rank.gate is None else f"step-{self._step}"
        if self._rank.rank == 0:
            self._rank.trace.tell("save", checkpoint=name, step=self._step, stage="begin")
        with self._rank.telling_failure(self._step, name):
            if is_sealed:
                self._save_alone(self._store / name)
            else:
                self._manager.save(checkpoint_number=self._step)
        self._rank.saved(self._step, name)

    def _save_alone(self, directory: Path) -> None:
        """Save into a directory of its own, seal it, and delete the oldest: a manifest is of one directory."""
        from trainspec_record.checkpoints import seal_in_background  # noqa: PLC0415 - with the gate alone

        part = directory.with_name(f".{directory.name}")
        for left in (part, directory):
            shutil.rmtree(left, ignore_errors=True)
        self._manager_of(part).save(checkpoint_number=self._step)
        part.rename(directory)
        seal_in_background(directory)
        kept = sorted(self._store.glob("step-*"), key=lambda one: int(one.name.removeprefix("step-")))
        for old in kept[: -self._job["num_kept"]]:
            if (old / MANIFEST).is_file():
                shutil.rmtree(old)

    def _leave(self) -> None:
        self._rank.ended(self._step)
        sys.exit(0)

    @tf.function
    def _update(self, iterator: Any) -> tuple[Any, Any]:
        def replica(batch: tuple[Any, Any, Any]) -> tuple[Any, Any]:
            ids, inputs, targets = batch
            with tf.GradientTape() as tape:
                losses = self._loss(targets, self._model(inputs, training=True))
                loss = tf.nn.compute_average_loss(losses, global_batch_size=self._job["global_sequences"])
            weights = self._model.trainable_variables
            self._optimizer.apply_gradients(zip(tape.gradient(loss, weights), weights, strict=True))
            return loss, ids

        loss, ids = self._strategy.run(replica, args=(next(iterator),))
        return self._strategy.reduce(tf.distribute.ReduceOp.SUM, loss, axis=None), ids

    def train(self) -> None:
        """Train to the end."""
        step = self._step
        batches = iter(self._strategy.experimental_distribute_dataset(data_set(self._job, step)))
        while step < self._job["num_steps"]:
            self._rank.fail_if_planned(step)
            loss, ids = self._handler.run(self._update, batches)
            step += 1
            (own,) = self._strategy.experimental_local_results(ids)
            self._rank.stepped(step, float(loss), float(self._rate(step - 1)), own.numpy().tolist())
            if step % self._job["checkpoint_interval_steps"] == 0:
                self._save()
        self._rank.ended(step)


def main(path: str) -> None:
    """Train as the task says, on one worker."""
    workers = [f"127.0.0.1:{port}" for port in os.environ["PORTS"].split(",")]
    rank = Rank(read_task(path), int(os.environ["RANK"]))
    os.environ["TF_CONFIG"] = json.dumps(
        {"cluster": {"worker": workers}, "task": {"type": "worker", "index": rank.rank}}
    )
    keras.utils.set_random_seed(rank.job["seed"])
    run = Run(rank, tf.distribute.MultiWorkerMirroredStrategy())
    try:
        run.train()
    except tf.errors.UnavailableError as error:  # what TensorFlow says of a worker that is lost
        said = error.message.rpartition("aborted by: ")[2]
        lost = re.search(r"/task:(\d+)", said)
        blamed = {"rank": int(lost[1])} if lost else {}
        rank.trace.tell("fault", kind="hang" if "heartbeats" in said else "process", reason=said[:1000], **blamed)
        raise


if __name__ == "__main__":
    main(sys.argv[1])
