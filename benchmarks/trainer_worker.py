"""Runs one rank of a setup and times its steps and its waits for checkpoints."""

from __future__ import annotations

import os
import shutil
import time
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import torch
from trainer_setups import Setup
from trainspec_reference.common.backend import Formation, Weights
from trainspec_reference.common.data import Feed
from trainspec_reference.common.job import ModelShape
from trainspec_reference.common.state import TrainerState
from trainspec_reference.common.weights import initial_weights
from trainspec_reference.torch.backend import TorchBackend

import trainspec_record

WARM_STEPS = 2


@dataclass(frozen=True, slots=True)
class Measured:
    """Measurements of one rank in one run."""

    step_seconds: float
    """Wall time of all steps over their number, saves included."""
    exposed_seconds: float
    """Of each step: waiting for the exchange after the backward pass."""
    stall_seconds: float
    """Checkpoint stall of each save."""
    computing_seconds: float = 0.0
    """Of each step: its wall time without the stall of the save."""
    peak_bytes: int | None = None
    """Most memory of the device that tensors took; None where it is not counted, as on a host."""


@cache
def _weights(shape: ModelShape) -> Weights:
    """Drawn once in a process: hundreds of millions of numbers take half a minute."""
    return initial_weights(shape, 0)


def unfused(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> torch.Tensor:
    """Causal attention as the textbook writes it, with the scores in memory."""
    scores = q @ k.transpose(-1, -2) / q.shape[-1] ** 0.5
    length = q.shape[-2]
    hidden = torch.ones(length, length, dtype=torch.bool, device=q.device).triu(1)
    return scores.masked_fill(hidden, float("-inf")).softmax(-1).to(v.dtype) @ v


class Loop:
    """The steps of one rank."""

    def __init__(self, formation: Formation, setup: Setup, device: str, num_steps: int, directory: Path) -> None:
        job = setup.job(device, num_steps)
        self._is_counted = device == "cuda"
        if self._is_counted:
            torch.cuda.empty_cache()
            torch.cuda.reset_peak_memory_stats()
        self._setup, self._num_steps, self._directory, self._rank = setup, num_steps, directory, formation.rank
        self._backend = TorchBackend(job)
        self._backend.join(formation)
        self._backend.build(_weights(job.model))
        if not setup.is_attention_fused:
            for module in self._backend._model.modules():
                if hasattr(module, "attend"):
                    module.attend = unfused
        self._feed = Feed(job, formation.rank, formation.num_ranks)
        self._state = TrainerState.first(job.plan)
        self._writer = ThreadPoolExecutor(1)
        self._synchronize: Callable[[], None] = torch.cuda.synchronize if device == "cuda" else lambda: None

    def run(self) -> Measured:
        """Train, with one save in the middle."""
        self._steps(WARM_STEPS)
        self._backend.agree(0.0)
        self._synchronize()
        start = time.perf_counter()
        exposed = self._steps(self._num_steps // 2)
        saving, stall = self._save()
        exposed += self._steps(self._num_steps - self._num_steps // 2)
        self._synchronize()
        seconds = time.perf_counter() - start
        saving.result()
        self._backend.agree(0.0)
        self._feed.close()
        self._writer.shutdown()
        self._backend.leave()
        peak = torch.cuda.max_memory_allocated() if self._is_counted else None
        of_step = [each / self._num_steps for each in (seconds, exposed, seconds - stall)]
        return Measured(of_step[0], of_step[1], stall, of_step[2], peak)

    def _steps(self, count: int) -> float:
        exposed = 0.0
        for _ in range(count):
            if self._setup.is_input_ahead:
                loaded = self._feed.next(self._state)
            else:
                loaded = self._feed.made(self._feed._request(self._state, self._feed.schedule.at(self._state)))
            found = self._backend.gradients(
                loaded.micro_batches, num_targets=loaded.num_targets, loss_scale=1.0, measure_noise=False, arrived=int
            )
            exposed += found.exposed_seconds
            self._backend.update(1e-3, 1.0)
        return exposed

    def _save(self) -> tuple[Future[Any], float]:
        start = time.perf_counter()
        snapshot = self._backend.snapshot()
        saving = self._writer.submit(self._backend.write, snapshot, self._directory)
        if not self._setup.saves_beside:
            saving.result()
        return saving, time.perf_counter() - start


def measure(formation: Formation, setup: Setup, device: str, num_steps: int, root: Path) -> Measured:
    """One run of a setup."""
    directory = root / str(formation.number)
    directory.mkdir(exist_ok=True)
    try:
        return Loop(formation, setup, device, num_steps, directory).run()
    finally:
        if formation.rank == 0:
            shutil.rmtree(directory, ignore_errors=True)


def recorded(formation: Formation, setup: Setup, device: str, num_steps: int, folder: Path | None) -> float:
    """Seconds of a step with the recorder on, or off where there is no folder."""
    os.environ["TRAINSPEC_RUN"] = str(folder) if folder else ""
    os.environ.update(RANK=str(formation.rank), WORLD_SIZE=str(formation.num_ranks))
    loop = Loop(formation, setup, device, num_steps, Path())
    with trainspec_record.run(flops_per_token=6e6, peak_flops=1e12) as run:
        loop._steps(WARM_STEPS)
        loop._backend.agree(0.0)
        start = time.perf_counter()
        for number in range(num_steps):
            with run.step(number):
                loop._steps(1)
                run.log(loss=1.0, learning_rate=1e-3, gradient_norm=1.0, tokens=2048, samples=8)
        loop._synchronize()
        seconds = time.perf_counter() - start
    loop._feed.close()
    loop._writer.shutdown()
    loop._backend.agree(0.0)
    loop._backend.leave()
    return seconds / num_steps
