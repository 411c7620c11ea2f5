"""Trains the example with Ray Train, as its documentation shows, and writes a trace."""

from __future__ import annotations

import itertools
import os
import shutil
import sys
import tempfile
from pathlib import Path
from typing import Any

import ray.train.torch
import torch
from example import Model, Samples
from ray.train import Checkpoint, CheckpointConfig, FailureConfig, RunConfig, ScalingConfig, UserCallback
from ray.train.torch import TorchTrainer
from tracing import SEAL_SECONDS, Rank, Trace, read_task

MAX_FAILURES, RATE = 3, 3e-3


class Telling(UserCallback):  # type: ignore[misc]
    """Reports the failures that the controller of Ray gives to callbacks, and counts them."""

    def __init__(self, task: dict[str, Any]) -> None:
        self._task = task
        self._trace: Trace | None = None

    def after_exception(self, run_context: Any, worker_exceptions: dict[int, Exception]) -> None:  # noqa: ARG002
        """Workers have failed; the controller decides what follows, without a report."""
        path, attempt = num_failures(self._task), self._task["attempt"] + failures(self._task)
        if self._trace is None:  # the controller is another process than the one that made this object
            self._trace = Trace(self._task["trace_directory"], "agent", attempt)
        self._trace.attempt = attempt
        for rank, error in worker_exceptions.items():
            self._trace.tell("fault", kind="process", rank=int(rank), reason=str(error)[:200])
        path.write_text(str(failures(self._task) + 1), encoding="ascii")


def num_failures(task: dict[str, Any]) -> Path:
    """Where the controller counts failures, for the workers that it starts next."""
    return Path(task["trace_directory"]).with_name(f"failures-{task['attempt']}")


def failures(task: dict[str, Any]) -> int:
    """Failures so far."""
    path = num_failures(task)
    return int(path.read_text(encoding="ascii")) if path.exists() else 0


class Run:
    """Training of one worker in one attempt."""

    def __init__(self, rank: Rank) -> None:
        self._rank, job = rank, rank.job
        torch.manual_seed(job["seed"])
        self._example = Model(job["dropout"])
        self._model = ray.train.torch.prepare_model(self._example)
        self._optimizer = torch.optim.AdamW(self._model.parameters(), lr=RATE)
        samples, is_shuffled = Samples(job["samples_per_epoch"], job["seed"]), job["sample_order"] == "any"
        self._sampler = torch.utils.data.DistributedSampler(samples, shuffle=is_shuffled, seed=job["seed"])
        chance = torch.Generator()  # of its own: an iterator draws from it, and would from the random state of dropout
        self._loader = torch.utils.data.DataLoader(
            samples, batch_size=rank.micro_batch, sampler=self._sampler, generator=chance
        )
        self._step = 0

    def restore(self) -> None:
        """Load the checkpoint that Ray names, where it names one; behind the gate the newest that is whole."""
        found = ray.train.get_checkpoint()
        if self._rank.gate is not None:
            newest = self._rank.gate.newest() if self._rank.resumes else None
            found = None if newest is None else Checkpoint.from_directory(newest)
        if found:
            with found.as_directory() as directory:
                state = torch.load(Path(directory) / "state.pt", weights_only=True)
            self._example.load_state_dict(state["model"])
            self._optimizer.load_state_dict(state["optimizer"])
            torch.set_rng_state(state["random"])  # the same on all ranks: each draws for as many samples
            self._step = state["step"]
        self._rank.restored(self._step, Path(found.path).name if found else None)

    def train(self) -> None:
        """Train to the end, from the batch of the epoch at which the state was saved."""
        num_steps = self._rank.job["num_steps"]
        while self._step < num_steps:
            epoch, skipped = divmod(self._step, len(self._loader))
            self._sampler.set_epoch(epoch)
            for batch in itertools.islice(self._loader, skipped, skipped + num_steps - self._step):
                self._update(batch)
        self._rank.ended(self._step)

    def _update(self, batch: dict[str, torch.Tensor]) -> None:
        self._rank.fail_if_planned(self._step)
        self._model(**batch)["loss"].backward()
        self._optimizer.step()
        self._optimizer.zero_grad()
        self._step += 1
        loss, sample_ids = self._example.taken()
        self._rank.stepped(self._step, loss, RATE, sample_ids)
        if self._step % self._rank.job["checkpoint_interval_steps"] == 0:
            self._save()

    def _save(self) -> None:
        """Report a checkpoint as the documentation shows: one worker brings it, and all report."""
        state = {"model": self._example.state_dict(), "optimizer": self._optimizer.state_dict(), "step": self._step}
        name = f"step_{self._step}"
        with tempfile.TemporaryDirectory() as directory:
            checkpoint = None
            if self._rank.rank == 0:
                torch.save({**state, "random": torch.get_rng_state()}, Path(directory) / "state.pt")
                self._seal(directory)
                checkpoint = Checkpoint.from_directory(directory)
            with self._rank.telling_failure(self._step, name):
                ray.train.report({"step": self._step}, checkpoint=checkpoint, checkpoint_dir_name=name)
        self._rank.saved(self._step, name)

    def _seal(self, directory: str) -> None:
        """Behind the gate seal a checkpoint before Ray copies it to the store."""
        if self._rank.gate is not None:
            from trainspec_record.checkpoints import seal_in_background  # noqa: PLC0415 - with the gate alone

            seal_in_background(directory, step=self._step).wait(SEAL_SECONDS)


def loop(settings: dict[str, str]) -> None:
    """Work of one worker, in a process of its own."""
    task = read_task(settings["task"])
    run = Run(Rank(task, ray.train.get_context().get_world_rank(), failures(task)))
    run.restore()
    run.train()


def main(path: str) -> int:
    """Run a trainer with as many workers as the task wants, on this machine alone."""
    task = read_task(path)
    os.environ["PYTHONPATH"] = str(Path(__file__).parent)
    os.environ.pop("TRAINSPEC_RUN", None)  # a recorder that is installed beside the stack would make it another one
    directory = tempfile.mkdtemp(prefix="ray-")  # names of sockets may have about a hundred letters
    num_ranks, job, store = task["job"]["num_ranks"], task["job"], Path(task["checkpoint_directory"])
    if task["resume"] and "RESUME_GATE" in os.environ:  # a step that is saved again would be in its list twice
        (store / "checkpoint_manager_snapshot.json").unlink(missing_ok=True)
    ray.init(num_cpus=num_ranks + 1, include_dashboard=False, log_to_driver=False, _temp_dir=directory)
    try:
        TorchTrainer(
            loop,
            train_loop_config={"task": path},
            scaling_config=ScalingConfig(num_workers=num_ranks),
            run_config=RunConfig(
                name=store.name,
                storage_path=str(store.parent),
                failure_config=FailureConfig(max_failures=MAX_FAILURES),
                checkpoint_config=CheckpointConfig(num_to_keep=job["num_kept"]),
                callbacks=[Telling(task)],
            ),
        ).fit()
    except ray.train.TrainingFailedError as error:
        print(error, file=sys.stderr)  # noqa: T201 - the log of the command
        Trace(task["trace_directory"], "other", task["attempt"] + failures(task)).tell("end", reason="fault", step=0)
        return 1
    finally:
        ray.shutdown()
        shutil.rmtree(directory, ignore_errors=True)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1]))
