"""The only place that trains the example with Ray Train, as its documentation shows, and tells a trace."""

from __future__ import annotations

import os
import shutil
import sys
import tempfile
from pathlib import Path
from typing import Any

import ray
import torch
from example import Model, Samples
from ray.train import Checkpoint, CheckpointConfig, FailureConfig, RunConfig, ScalingConfig, UserCallback
from ray.train.torch import TorchTrainer
from tracing import Rank, Trace, read_task

MAX_FAILURES = 3


class Telling(UserCallback):  # type: ignore[misc]
    """Tells of the failures that the controller of Ray gives to callbacks, and counts them."""

    def __init__(self, task: dict[str, Any]) -> None:
        self._task = task
        self._trace: Trace | None = None

    def after_exception(self, run_context: Any, worker_exceptions: dict[int, Exception]) -> None:  # noqa: ARG002
        """Workers have failed; the controller decides what follows, and tells nobody."""
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


def loop(settings: dict[str, str]) -> None:
    """What one worker does."""
    import ray.train.torch  # noqa: PLC0415 - this function runs in a process of its own

    task = read_task(settings["task"])
    context = ray.train.get_context()
    rank = Rank(task, context.get_world_rank(), failures(task))
    job = rank.job
    torch.manual_seed(job["seed"])
    example = Model(job["dropout"])
    model = ray.train.torch.prepare_model(example)
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-3)
    samples, step, name = Samples(job["samples_per_epoch"], job["seed"]), 0, None
    found = ray.train.get_checkpoint()
    if found:
        with found.as_directory() as directory:
            state = torch.load(Path(directory) / "state.pt", weights_only=True)
        example.load_state_dict(state["model"])
        optimizer.load_state_dict(state["optimizer"])
        torch.set_rng_state(state["random"])  # the same on all ranks: each draws for as many samples
        step, name = state["step"], Path(found.path).name
    rank.restored(step, name)
    sampler = torch.utils.data.DistributedSampler(samples, shuffle=job["sample_order"] == "any", seed=job["seed"])
    chance = torch.Generator()  # of its own: an iterator draws from it, and would from the random state of dropout
    loader = torch.utils.data.DataLoader(samples, batch_size=rank.micro_batch, sampler=sampler, generator=chance)
    while step < job["num_steps"]:
        epoch, skipped = divmod(step, len(loader))
        sampler.set_epoch(epoch)
        for number, batch in enumerate(loader):
            if number >= skipped and step < job["num_steps"]:
                rank.fail_if_planned(step)
                model(**batch)["loss"].backward()
                optimizer.step()
                optimizer.zero_grad()
                step += 1
                loss, sample_ids = example.taken()
                rank.stepped(step, loss, 3e-3, sample_ids)
                if step % job["checkpoint_interval_steps"] == 0:
                    state = {"model": example.state_dict(), "optimizer": optimizer.state_dict(), "step": step}
                    save(rank, step, {**state, "random": torch.get_rng_state()})
    rank.ended(step)


def save(rank: Rank, step: int, state: dict[str, Any]) -> None:
    """Report a checkpoint as the documentation shows: one worker brings it, and all report."""
    import ray.train  # noqa: PLC0415

    name = f"step_{step}"
    with tempfile.TemporaryDirectory() as directory:
        checkpoint = None
        if rank.rank == 0:
            torch.save(state, Path(directory) / "state.pt")
            checkpoint = Checkpoint.from_directory(directory)
        ray.train.report({"step": step}, checkpoint=checkpoint, checkpoint_dir_name=name)
    rank.saved(step, name)


def main(path: str) -> int:
    """Run a trainer with as many workers as the task wants, on this machine alone."""
    task = read_task(path)
    os.environ["PYTHONPATH"] = str(Path(__file__).parent)
    os.environ.pop("TRAINSPEC_RUN", None)  # a recorder that is installed beside the stack would make it another one
    directory = tempfile.mkdtemp(prefix="ray-")  # names of sockets may have about a hundred letters
    num_ranks, job, store = task["job"]["num_ranks"], task["job"], Path(task["checkpoint_directory"])
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
