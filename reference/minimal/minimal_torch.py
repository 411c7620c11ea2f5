"""Trains a small language model with DDP: the shortest PyTorch stack that reaches the level `recoverable`.

Put your data and model in place of `tokens_of` and `make_model`, and your settings in place of the task.
"""

from __future__ import annotations

import hashlib
import math
import os
import shutil
import signal
import sys
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import nullcontext
from datetime import timedelta
from functools import partial
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from task import Fields, Rank, Trace, global_batch, read_task, step_of
from torch import Tensor, nn
from torch.distributed.checkpoint.api import CheckpointException
from torch.distributed.checkpoint.state_dict import StateDictOptions, get_state_dict
from torch.distributed.checkpoint.state_dict_loader import load
from torch.distributed.checkpoint.state_dict_saver import save
from torch.distributed.elastic.multiprocessing import SignalException
from torch.distributed.elastic.multiprocessing.errors import ChildFailedError, record
from torch.distributed.launcher.api import LaunchConfig, elastic_launch

import trainspec_record
from trainspec_record.checkpoints import commit, newest_good

VOCABULARY_SIZE, SEQUENCE_LENGTH, HIDDEN_SIZE, PEAK_RATE, CLIP_NORM = 128, 16, 32, 3e-3, 1.0
MAX_RESTARTS_WITHOUT_PROGRESS, CRASH_LOOP_STATUS = 3, 10
PEER_TIMEOUT = timedelta(seconds=8)  # longer than a step, and than the write of a checkpoint
RENDEZVOUS: Fields = {"rdzv_backend": "c10d", "rdzv_endpoint": "localhost:0", "local_addr": "localhost"}


def tokens_of(job: Fields, sample_ids: list[int]) -> Tensor:
    """Token ids, (samples, sequence + 1): a sample is a walk through the vocabulary, drawn by its id."""
    chances = [torch.Generator().manual_seed(job["seed"] * 1_000_003 + one) for one in sample_ids]
    walks = [torch.randint(1, 4, (SEQUENCE_LENGTH + 1,), generator=chance).cumsum(0) for chance in chances]
    return torch.stack(walks) % VOCABULARY_SIZE


def make_model(dropout: float) -> nn.Module:
    """A model of the next token, given the last one."""
    hidden = [nn.Linear(HIDDEN_SIZE, HIDDEN_SIZE), nn.GELU(), nn.Dropout(dropout)]
    return nn.Sequential(nn.Embedding(VOCABULARY_SIZE, HIDDEN_SIZE), *hidden, nn.Linear(HIDDEN_SIZE, VOCABULARY_SIZE))


def device_of(local_rank: int) -> torch.device:
    """The device of a rank on its host; ranks share devices where there are fewer."""
    num_devices = torch.cuda.device_count()
    return torch.device("cuda", local_rank % num_devices) if num_devices else torch.device("cpu")


def state_digest(state: dict[str, Tensor]) -> str:
    """SHA-256 of all tensors, by which a restored state is known to be the saved one."""
    parts = (name.encode() + state[name].cpu().numpy().tobytes() for name in sorted(state))
    return "sha256:" + hashlib.sha256(b"".join(parts)).hexdigest()


class Trainer:
    """One rank in one attempt."""

    def __init__(self, task: Fields, rank: Rank, run: Any) -> None:
        self._job, self._rank, self._run, self._store = task["job"], rank, run, Path(task["checkpoint_directory"])
        self._write_save: Any = partial(rank.trace.write, "save") if rank.number == 0 else lambda **_: None
        self._asked: list[int] = []
        signal.signal(signal.SIGTERM, lambda number, _: self._asked.append(number))
        torch.manual_seed(self._job["seed"])  # equal weights on all ranks
        self._device = device_of(int(os.environ["LOCAL_RANK"]))
        self._model = nn.parallel.DistributedDataParallel(make_model(self._job["dropout"]).to(self._device))
        self._optimizer = torch.optim.AdamW(self._model.parameters(), lr=PEAK_RATE)
        self._counts = torch.zeros(2, dtype=torch.long)  # optimizer steps and samples since the start of the run
        options = StateDictOptions(flatten_optimizer_state_dict=True)
        model, optimizer = get_state_dict(self._model, self._optimizer, options=options)
        named = {**model, **optimizer, "counts": self._counts}
        self._state = {name: value for name, value in named.items() if isinstance(value, Tensor)}
        for name in [name for name in self._state if name.endswith(".step")]:
            self._state[name].zero_()  # `get_state_dict` makes the moments by a step without gradients, and counts it
        self._saves = dist.new_group(backend="gloo", timeout=PEER_TIMEOUT)  # for saves, which overlap with training
        self._thread = ThreadPoolExecutor(1)
        self._last_save = self._thread.submit(lambda: None)

    def restore(self, checkpoint: Path | None) -> None:
        """Load a checkpoint that the launcher has verified, or begin the run."""
        found: Fields = {"source": "initial"}
        if checkpoint is not None:
            with self._run.restore(checkpoint.name, step_of(checkpoint)):
                load(self._state, checkpoint_id=checkpoint)  # in place: these are the tensors of model and optimizer
            found = {"source": "checkpoint", "checkpoint": checkpoint.name, "digest": state_digest(self._state)}
        self._rank.trace.write("restore", rank=self._rank.number, step=int(self._counts[0]), **found)

    def train(self) -> None:
        """Train until all optimizer steps are done, or until a rank is asked to end."""
        is_asked = False
        while (step := int(self._counts[0])) < self._job["num_steps"] and not is_asked:
            is_asked = self._train_step(step)
            if is_asked or (self._counts[0] > step and self._counts[0] % self._job["checkpoint_interval_steps"] == 0):
                self._save(f"step-{self._counts[0]}", int(self._counts[0]))
        self._last_save.result()
        if self._rank.number == 0:
            reason = "preempted" if is_asked else "completed"
            self._rank.trace.write("end", reason=reason, step=int(self._counts[0]))

    def _train_step(self, step: int) -> bool:
        begin, job, device = time.monotonic(), self._job, self._device
        loss = torch.zeros((), dtype=torch.float64, device=device)
        with self._run.step(step):
            ids = global_batch(job, step, int(self._counts[1]))
            mine, num_targets = ids[self._rank.number :: job["num_ranks"]], len(ids) * SEQUENCE_LENGTH
            poison = self._rank.planted(step)
            torch.manual_seed(hash((job["seed"], step, self._rank.number)))  # no random state to save
            tokens = tokens_of(job, mine).to(device)
            for number, part in enumerate(tokens.tensor_split(job["accumulation_steps"]), start=1):
                with nullcontext() if number == job["accumulation_steps"] else self._model.no_sync():
                    logits, targets = self._model(part[:, :-1]).flatten(0, 1), part[:, 1:].flatten()
                    part_loss = nn.functional.cross_entropy(logits, targets, reduction="sum") / num_targets
                    (part_loss * poison * job["num_ranks"]).backward()  # DDP divides the sum by the number of ranks
                    loss += part_loss.detach()
            sums = torch.stack([loss, loss.new_tensor(len(self._asked))])
            dist.all_reduce(sums)  # all ranks end after the same step
            norm = nn.utils.clip_grad_norm_(self._model.parameters(), CLIP_NORM).item()
            fields = {"loss": sums[0].item(), "learning_rate": PEAK_RATE * (1 - step / job["num_steps"])}
            if math.isfinite(norm):  # of the mean over all ranks, so they decide alike
                self._optimizer.param_groups[0]["lr"] = fields["learning_rate"]
                self._optimizer.step()
            self._optimizer.zero_grad()
            self._counts += torch.tensor([int(math.isfinite(norm)), len(ids)])
            fields |= {"gradient_norm": norm} if math.isfinite(norm) else {"skipped": "non_finite"}
            self._run.log(samples=len(ids), tokens=num_targets, **fields)
            time.sleep(max(job["step_seconds"] - (time.monotonic() - begin), 0))
        step = int(self._counts[0])
        self._rank.trace.write("step", rank=self._rank.number, step=step, sample_ids=mine, **fields)
        return bool(sums[1])

    def _save(self, name: str, step: int) -> None:
        """Copy the state, and write the copy in the background; training waits for it only where the task says so."""
        self._last_save.result()
        self._write_save(checkpoint=name, step=step, stage="begin")
        with self._run.checkpoint(name, asynchronous=True) as recorded:
            copy = {key: value.detach().cpu().clone() for key, value in self._state.items()}
            self._write_save(checkpoint=name, step=step, stage="snapshot")
            self._last_save = self._thread.submit(self._persist, copy, name, step, recorded)
            if not self._job["asynchronous_saves"]:
                self._last_save.result()

    def _persist(self, copy: dict[str, Tensor], name: str, step: int, recorded: Any) -> None:
        part = self._store / f".{name}"
        try:
            save(copy, checkpoint_id=part, process_group=self._saves)  # each rank writes a part
            if self._rank.number == 0:
                commit(part, self._store / name)  # manifest, fsync, rename
                (self._store / "latest.new").write_text(name, encoding="utf-8")
                (self._store / "latest.new").rename(self._store / "latest")  # for people: no restore relies on it
                for old in sorted(self._store.glob("step-*"), key=step_of)[: -self._job["num_kept"]]:
                    shutil.rmtree(old, ignore_errors=True)
                recorded.commit()
            self._write_save(checkpoint=name, step=step, stage="committed", digest=state_digest(copy))
        except (OSError, CheckpointException) as error:  # the store fails: training continues
            shutil.rmtree(part, ignore_errors=True)
            recorded.fail(type(error).__name__)
            self._write_save(checkpoint=name, step=step, stage="failed", reason=str(error)[:500])


@record
def train(task: Fields, checkpoint: Path | None, make: Callable[..., Trainer] = Trainer) -> None:
    """Train on one rank in one attempt, in a process that the agent of torchrun has started."""
    rank = Rank(task, int(os.environ["RANK"]))
    # NCCL is faster, takes a device for each rank, and ends a process whose peer is late, which gloo raises instead.
    dist.init_process_group("gloo", timeout=PEER_TIMEOUT)
    try:
        with trainspec_record.run(loss_reduction="global-token-mean") as run:
            trainer = make(task, rank, run)
            trainer.restore(checkpoint)
            trainer.train()
    except RuntimeError as error:
        if "Timed out" in str(error):  # a peer that ends closes its connections: this one hangs
            rank.trace.write("fault", kind="hang", reason=str(error)[:500])
        raise
    dist.destroy_process_group()


def start(task: Fields, *arguments: str, program: str = __file__) -> None:
    """Run all ranks of an attempt on this host, below an agent of torchrun."""
    config = LaunchConfig(1, 1, task["job"]["num_ranks"], max_restarts=0, run_id=task["run"], **RENDEZVOUS)
    elastic_launch(config, sys.executable)(program, *arguments)


def launch(path: str, start: Callable[..., None] = start) -> int:
    """Start all ranks, again after a fault, until the job ends or makes no progress; gives the exit status."""
    task = read_task(path)
    trace, store, num_barren, newest = Trace(task, "controller"), Path(task["checkpoint_directory"]), 0, -1
    store.mkdir(parents=True, exist_ok=True)
    while num_barren < MAX_RESTARTS_WITHOUT_PROGRESS:
        for part in store.glob(".step-*"):  # saves that never ended
            shutil.rmtree(part)
        good = newest_good(store, refused=trace.refuse) if task["resume"] else None
        try:
            start(task, path, str(task["attempt"]), *([os.fspath(good)] if good else []))
            return 0
        except SignalException as error:  # the ranks were asked to end, and have saved
            return 128 + error.sigval.value
        except ChildFailedError as error:
            rank, failure = error.get_first_failure()
            if "Timed out" not in str(failure.message):  # a rank has reported what hangs
                trace.write("fault", kind="process", rank=rank, reason=str(failure.message)[-500:])
        trace.write("decision", action="restart")
        reached = max(map(step_of, store.glob("step-*")), default=0)
        num_barren, newest = (0, reached) if reached > newest else (num_barren + 1, newest)
        task |= {"attempt": task["attempt"] + 1, "resume": True}
    trace.write("end", reason="crash-loop", step=newest)
    return CRASH_LOOP_STATUS


def main(path: str, attempt: str | None = None, checkpoint: str | None = None) -> int:
    """Launch the job of a task; with the number of an attempt, train on one of its ranks."""
    if attempt is None:
        return launch(path)
    train(read_task(path) | {"attempt": int(attempt)}, Path(checkpoint) if checkpoint else None)
    return 0


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
