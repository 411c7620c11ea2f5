"""Trains a small language model on several JAX processes: the shortest JAX stack at the level `recoverable`.

Put your data and model in place of `tokens_of` and `loss_of`, and your settings in place of the task.
"""

from __future__ import annotations

import hashlib
import math
import multiprocessing
import os
import shutil
import signal
import socket
import sys
import time
import traceback
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax
import orbax.checkpoint as ocp
from jax.sharding import AxisType, NamedSharding, PartitionSpec
from task import Fields, Rank, Trace, global_batch, read_task, step_of

import trainspec_record
from trainspec_record.checkpoints import commit, newest_good

VOCABULARY_SIZE, SEQUENCE_LENGTH, HIDDEN_SIZE, PEAK_RATE, CLIP_NORM = 128, 16, 32, 3e-3, 1.0
MAX_RESTARTS_WITHOUT_PROGRESS, CRASH_LOOP_STATUS = 3, 10
HANG_SECONDS = 12.0  # longer than a step, and than a save that training waits for
OPTIMIZER = optax.chain(optax.clip_by_global_norm(CLIP_NORM), optax.scale_by_adam(), optax.add_decayed_weights(0.01))


def tokens_of(job: Fields, sample_ids: list[int]) -> np.ndarray:
    """Token ids, (samples, sequence + 1): a sample is a walk through the vocabulary, drawn by its id."""
    walks = [np.random.default_rng([job["seed"], one]).integers(1, 4, SEQUENCE_LENGTH + 1) for one in sample_ids]
    return np.cumsum(np.reshape(walks, (-1, SEQUENCE_LENGTH + 1)), axis=1) % VOCABULARY_SIZE


def first_state(seed: int) -> Fields:
    """Weights of a model of the next token, given the last one, and the state of their optimizer."""
    wide = (VOCABULARY_SIZE, HIDDEN_SIZE)
    shapes = {"embedding": wide, "hidden": (HIDDEN_SIZE, HIDDEN_SIZE), "output": wide[::-1]}
    keys = dict(zip(shapes, jax.random.split(jax.random.key(seed), len(shapes)), strict=True))
    weights = {name: 0.1 * jax.random.normal(keys[name], shape) for name, shape in shapes.items()}
    return {"weights": weights, "optimizer": OPTIMIZER.init(weights)}


def loss_of(weights: Fields, micro: Fields, dropout: float) -> tuple[jax.Array, jax.Array]:
    """Contribution of a micro-batch to the loss of the global batch; the first one has planted faults."""
    hidden = jax.nn.gelu(weights["embedding"][micro["tokens"][:, :-1]] @ weights["hidden"])
    hidden *= jax.random.bernoulli(jax.random.key(micro["seed"][0]), 1.0 - dropout, hidden.shape) / (1.0 - dropout)
    losses = optax.softmax_cross_entropy_with_integer_labels(hidden @ weights["output"], micro["tokens"][:, 1:])
    shares = losses.mean(axis=1) * micro["share"]
    return (shares * micro["poison"]).sum(), shares.sum()


@partial(jax.jit, donate_argnums=0)
def update(state: Fields, batch: Fields, asked: jax.Array, rate: float, dropout: float) -> tuple[Fields, jax.Array]:
    """One optimizer step over all micro-batches: the new state; loss, gradient norm, number of ranks asked to end."""

    def add(sums: Any, micro: Fields) -> tuple[Any, None]:
        (_, loss), gradient = jax.value_and_grad(loss_of, has_aux=True)(state["weights"], micro, dropout)
        return jax.tree.map(jnp.add, sums, (loss, gradient)), None

    (loss, gradient), _ = jax.lax.scan(add, (0.0, jax.tree.map(jnp.zeros_like, state["weights"])), batch)
    change, optimizer = OPTIMIZER.update(gradient, state["optimizer"], state["weights"])
    new = {"weights": jax.tree.map(lambda one, by: one - rate * by, state["weights"], change), "optimizer": optimizer}
    norm = optax.global_norm(gradient)  # of the mean over all ranks, so they decide alike
    state = jax.tree.map(lambda one, other: jnp.where(jnp.isfinite(norm), one, other), new, state)
    return state, jnp.stack([loss, norm, asked.sum()])


def state_digest(state: Fields) -> str:
    """SHA-256 of all arrays, by which a restored state is known to be the saved one."""
    return "sha256:" + hashlib.sha256(b"".join(one.tobytes() for one in jax.tree.leaves(state))).hexdigest()


class Trainer:
    """One rank in one attempt."""

    def __init__(self, task: Fields, rank: Rank, run: Any) -> None:
        self._job, self._rank, self._run, self._store = task["job"], rank, run, Path(task["checkpoint_directory"])
        self._asked: list[int] = []
        signal.signal(signal.SIGTERM, lambda number, _: self._asked.append(number))
        mesh = jax.make_mesh((self._job["num_ranks"],), ("data",), axis_types=(AxisType.Auto,))
        self._same, split = NamedSharding(mesh, PartitionSpec()), NamedSharding(mesh, PartitionSpec(None, "data"))
        self._split = partial(jax.make_array_from_process_local_data, split)  # each rank has its part of the 2nd axis
        self._state = jax.jit(first_state, out_shardings=self._same)(self._job["seed"])
        self._counts = np.zeros(2, np.int64)  # optimizer steps and samples since the start of the run
        # Replicas are equal, so rank 0 alone writes: with Orbax on all ranks a failed write would block the others.
        alone = ocp.options.MultiprocessingOptions(primary_host=rank.number, active_processes={rank.number})
        handler = ocp.PyTreeCheckpointHandler(multiprocessing_options=alone)
        self._files = ocp.Checkpointer(handler, multiprocessing_options=alone)
        self._thread = ThreadPoolExecutor(1)
        self._last_save = self._thread.submit(lambda: None)

    def _copy(self) -> Fields:
        return {"counts": self._counts.copy(), **jax.tree.map(np.array, self._state)}

    def restore(self, checkpoint: Path | None) -> None:
        """Load a checkpoint that the launcher has verified, or begin the run."""
        found: Fields = {"source": "initial"}
        if checkpoint is not None:
            with self._run.restore(checkpoint.name, step_of(checkpoint)):
                held = self._files.restore(checkpoint, item=self._copy())
                self._counts = held.pop("counts")
                self._state = jax.device_put(held, self._same)
            found = {"source": "checkpoint", "checkpoint": checkpoint.name, "digest": state_digest(self._copy())}
        self._rank.trace.write("restore", rank=self._rank.number, step=int(self._counts[0]), **found)

    def train(self, beats: Any) -> None:
        """Train until all optimizer steps are done, or until a rank is asked to end."""
        is_asked = False
        while (step := int(self._counts[0])) < self._job["num_steps"] and not is_asked:
            is_asked = self._train_step(step)
            beats[self._rank.number] = time.monotonic()
            is_due = self._counts[0] > step and self._counts[0] % self._job["checkpoint_interval_steps"] == 0
            if (is_asked or is_due) and self._rank.number == 0:
                self._save(f"step-{self._counts[0]}", int(self._counts[0]))
        self._last_save.result()
        if self._rank.number == 0:
            reason = "preempted" if is_asked else "completed"
            self._rank.trace.write("end", reason=reason, step=int(self._counts[0]))

    def _batch(self, step: int, mine: list[int], num_samples: int) -> Fields:
        """The micro-batches of all ranks, filled up to equal sizes with samples of no share."""
        job, num_parts = self._job, self._job["accumulation_steps"]
        largest = max([job["global_sequences"], *(stage["global_sequences"] for stage in job["batch_ramp"])])
        form = (num_parts, -(-largest // (job["num_ranks"] * num_parts)))  # one size in all stages: compiled once
        tokens, share = np.zeros((*form, SEQUENCE_LENGTH + 1), np.int32), np.zeros(form, np.float32)
        tokens.reshape(-1, SEQUENCE_LENGTH + 1)[: len(mine)] = tokens_of(job, mine)
        share.reshape(-1)[: len(mine)] = 1 / num_samples
        seed = np.arange(num_parts)[:, None] + hash((job["seed"], step)) % 2**31  # no random state to save
        poison = np.full(form, self._rank.planted(step), np.float32)
        local = {"tokens": tokens, "share": share, "poison": poison, "seed": seed.astype(np.uint32)}
        return {name: self._split(one) for name, one in local.items()}

    def _train_step(self, step: int) -> bool:
        begin, job = time.monotonic(), self._job
        with self._run.step(step):
            ids = global_batch(job, step, int(self._counts[1]))
            mine, rate = ids[self._rank.number :: job["num_ranks"]], PEAK_RATE * (1 - step / job["num_steps"])
            batch, asked = self._batch(step, mine, len(ids)), self._split(np.array([[len(self._asked)]], np.float32))
            self._state, measured = update(self._state, batch, asked, rate, job["dropout"])
            loss, norm, num_asked = np.asarray(measured).tolist()
            self._counts += [int(math.isfinite(norm)), len(ids)]
            fields = {"loss": loss, "learning_rate": rate}
            fields |= {"gradient_norm": norm} if math.isfinite(norm) else {"skipped": "non_finite"}
            self._run.log(samples=len(ids), tokens=len(ids) * SEQUENCE_LENGTH, **fields)
            time.sleep(max(job["step_seconds"] - (time.monotonic() - begin), 0))
        step = int(self._counts[0])
        self._rank.trace.write("step", rank=self._rank.number, step=step, sample_ids=mine, **fields)
        return bool(num_asked)

    def _save(self, name: str, step: int) -> None:
        """Copy the state, and write the copy in the background; training waits for it only where the task says so."""
        self._last_save.result()
        write = partial(self._rank.trace.write, "save", checkpoint=name, step=step)
        write(stage="begin")
        with self._run.checkpoint(name, asynchronous=True) as recorded:
            copy = self._copy()
            write(stage="snapshot")
            self._last_save = self._thread.submit(self._persist, copy, name, write, recorded)
            if not self._job["asynchronous_saves"]:
                self._last_save.result()

    def _persist(self, copy: Fields, name: str, write: Any, recorded: Any) -> None:
        part = self._store / f".{name}"
        try:
            self._files.save(part.absolute(), copy, force=True)
            commit(part, self._store / name)  # manifest, fsync, rename
            (self._store / "latest.new").write_text(name, encoding="utf-8")
            (self._store / "latest.new").rename(self._store / "latest")  # for people: no restore relies on it
            for old in sorted(self._store.glob("step-*"), key=step_of)[: -self._job["num_kept"]]:
                shutil.rmtree(old, ignore_errors=True)
            recorded.commit()
            write(stage="committed", digest=state_digest(copy))
        except (OSError, ValueError) as error:  # the store fails: training continues
            shutil.rmtree(part, ignore_errors=True)
            recorded.fail(type(error).__name__)
            write(stage="failed", reason=str(error)[:500])


def train(number: int, task: Fields, port: int, checkpoint: Path | None, beats: Any) -> None:
    """Train on one rank in one attempt, in a process of its own."""
    rank = Rank(task, number)
    jax.config.update("jax_cpu_collectives_implementation", "gloo")
    jax.distributed.initialize(f"127.0.0.1:{port}", task["job"]["num_ranks"], number, [number])  # a GPU of its own
    try:
        with trainspec_record.run(loss_reduction="global-token-mean") as run:
            trainer = Trainer(task, rank, run)
            trainer.restore(checkpoint)
            trainer.train(beats)
    except Exception:
        traceback.print_exc()
        os._exit(1)  # the end of the interpreter would wait for the other ranks, which wait for this one


def fault_of(ranks: list[Any], beats: Any) -> Fields | None:
    """Wait until all ranks have ended; the fault, if a rank ends with an error or none completes a step in time."""
    while any(one.exitcode != 0 for one in ranks):
        if lost := sorted((one.exitcode > 0, rank, one.exitcode) for rank, one in enumerate(ranks) if one.exitcode):
            # The first that a signal ended, if any: the others end as they miss it.
            return {"kind": "process", "rank": lost[0][1], "reason": f"its exit status is {lost[0][2]}"}
        if min(beats) and time.monotonic() - max(beats) > HANG_SECONDS:  # the first step of a rank has no limit
            return {"kind": "hang", "reason": f"no rank completed a step for {HANG_SECONDS:g} s"}
        time.sleep(0.05)
    return None


def launch(task: Fields) -> int:
    """Start all ranks, again after a fault, until the job ends or makes no progress; gives the exit status."""
    trace, store, num_barren, newest = Trace(task, "controller"), Path(task["checkpoint_directory"]), 0, -1
    spawn, num_ranks = multiprocessing.get_context("spawn"), task["job"]["num_ranks"]
    store.mkdir(parents=True, exist_ok=True)
    while num_barren < MAX_RESTARTS_WITHOUT_PROGRESS:
        for part in store.glob(".step-*"):  # saves that never ended
            shutil.rmtree(part)
        good = newest_good(store, refused=trace.refuse) if task["resume"] else None
        with socket.create_server(("127.0.0.1", 0)) as free:
            port = free.getsockname()[1]
        beats = spawn.Array("d", num_ranks, lock=False)
        ranks = [spawn.Process(target=train, args=(one, task, port, good, beats)) for one in range(num_ranks)]
        for one in ranks:
            one.start()
        signal.signal(signal.SIGTERM, lambda *_, ranks=ranks: [one.terminate() for one in ranks])
        if (fault := fault_of(ranks, beats)) is None:
            return 0
        trace.write("fault", **fault)
        for one in ranks:
            one.kill()
            one.join()
        trace.write("decision", action="restart")
        reached = max(map(step_of, store.glob("step-*")), default=0)
        num_barren, newest = (0, reached) if reached > newest else (num_barren + 1, newest)
        task |= {"attempt": task["attempt"] + 1, "resume": True}
    trace.write("end", reason="crash-loop", step=newest)
    return CRASH_LOOP_STATUS


if __name__ == "__main__":
    sys.exit(launch(read_task(sys.argv[1])))
