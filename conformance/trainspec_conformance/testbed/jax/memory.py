"""Counts the memory of JAX on a host: of arrays that live, and of what XLA plans for a program."""

from __future__ import annotations

import atexit
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import jax
import jax.numpy as jnp
from trainspec_reference.common.job import Job
from trainspec_reference.jax.mesh import Group
from trainspec_reference.jax.programs import keep_programs

from trainspec_conformance.testbed.rehearsal import built, only_rank
from trainspec_conformance.testbed.resident import resident_bytes


def live_bytes() -> int:
    """Bytes of all arrays that live in this process; those that share a buffer count once."""
    first = [one.addressable_data(0) for one in jax.live_arrays()]
    return sum({one.unsafe_buffer_pointer(): one.nbytes for one in first}.values())


_run_as_it_is = Group.__dict__["run"]


class ProgramMemory:
    """The largest moment of the programs of a process: arrays that live as one begins, and the buffers that XLA plans.

    XLA lays out all temporary arrays of a program when it compiles, and allocates them as one block for each run.
    """

    def __init__(self) -> None:
        self._planned: dict[tuple[Any, ...], int] = {}
        self._peak_bytes = 0

    @contextmanager
    def counting(self, *, is_dry: bool = False) -> Iterator[ProgramMemory]:
        """Count programs; a dry one is compiled and not run, and gives zeros."""
        self.begin(is_dry=is_dry)
        try:
            yield self
        finally:
            Group.run = _run_as_it_is  # type: ignore[method-assign]

    def begin(self, *, is_dry: bool = False) -> None:
        """Count programs from now on to the end of the process."""
        Group.run = staticmethod(self._made_of_zeros if is_dry else self._run)  # type: ignore[method-assign]

    def take_peak(self) -> int:
        """The peak, which begins anew with what lives now."""
        peak, self._peak_bytes = self._peak_bytes, live_bytes()
        return peak

    def _run(self, program: Any, blocks: Any) -> Any:
        self._note(program, blocks)
        return program(*blocks)

    def _made_of_zeros(self, program: Any, blocks: Any) -> Any:
        self._note(program, blocks)
        compiled = program.lower(*blocks).compile()
        return jax.tree.map(
            lambda told, sharding: jnp.zeros(told.shape, told.dtype, device=sharding),
            compiled.out_info,
            compiled.output_shardings,
        )

    def _note(self, program: Any, blocks: Any) -> None:
        key = program, *((one.shape, one.dtype.name) for one in jax.tree.leaves(blocks))
        if key not in self._planned:
            plan = program.lower(*blocks).compile().memory_analysis()
            outputs = plan.output_size_in_bytes - plan.alias_size_in_bytes
            self._planned[key] = plan.temp_size_in_bytes + outputs
        self._peak_bytes = max(self._peak_bytes, live_bytes() + self._planned[key])


def predicted_bytes(job: Job) -> int:
    """Memory of this process at the largest moment of a step of one rank that holds the whole model.

    That is the process as compiling has left it, and its arrays as XLA plans them; no step is run. On a processor the
    compiler takes as much as the step of a small model, and the heap keeps that. Programs are kept on disk until the
    process ends, so that training in it compiles nothing again.
    """
    directory = tempfile.mkdtemp()
    atexit.register(shutil.rmtree, directory, ignore_errors=True)
    keep_programs(directory)
    memory = ProgramMemory()
    with memory.counting(is_dry=True), built("jax", job, only_rank()):
        return resident_bytes() - live_bytes() + memory.take_peak()
