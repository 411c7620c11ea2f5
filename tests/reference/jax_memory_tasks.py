"""What the tests of the JAX backend's memory let a process do."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import jax
import jax.numpy as jnp
from trainspec_conformance.testbed import probe_runs
from trainspec_conformance.testbed.jax.memory import ProgramMemory, live_bytes
from trainspec_conformance.testbed.rehearsal import StepMemory, built, only_rank, trainer_of
from trainspec_reference.common.backend import Formation
from trainspec_reference.common.job import Job, Rates


def job(samples: int, num_steps: int = 4) -> Job:
    """A small one."""
    shape = replace(probe_runs._SHAPE, num_layers=1, hidden_size=16, sequence_length=32)
    return probe_runs._job(shape, Rates(), num_steps=num_steps, sequences=samples)


def planned(_: Formation, samples: int) -> tuple[int, list[float]]:
    """Peak of programs that are compiled and not run, and the numbers that one of them gave."""
    memory, before = ProgramMemory(), live_bytes()
    with memory.counting(is_dry=True), built("jax", job(samples), only_rank()) as backend:
        return memory.take_peak() - before, list(backend.agree(3.0))


def of_steps(_: Formation, samples: int, num_kept: int) -> tuple[list[int], int]:
    """Peak of each step, after each of which an array of so many entries is kept, and what lived before."""
    memory, peaks, kept = ProgramMemory(), [], []
    before = live_bytes()

    class Keeping(probe_runs.NoPorts):
        def done(self, step: int) -> None:
            peaks.append(memory.take_peak())
            kept.append(jnp.full(num_kept, float(step)))

    with memory.counting(), built("jax", job(samples), only_rank()) as backend:
        trainer_of(job(samples), backend, only_rank(), Keeping(), StepMemory()).run()
    return peaks, before


def counted(_: Formation) -> list[int]:
    """Bytes of what lives: before, with an array, with a second view of it, and without it."""
    told: list[int] = [live_bytes()]
    one: Any = jnp.arange(1000, dtype=jnp.float32)
    told.append(live_bytes())
    again = jax.make_array_from_single_device_arrays(one.shape, one.sharding, [one.addressable_data(0)])
    told.append(live_bytes())
    del one, again
    told.append(live_bytes())
    return told
