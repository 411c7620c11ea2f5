"""Reads from the environment which run, attempt, rank, host and device a process is."""

from __future__ import annotations

import socket
from collections.abc import Mapping
from pathlib import Path
from typing import NamedTuple

from trainspec_record.guard import tell_once
from trainspec_record.redaction import REDACT, Redaction, read_key
from trainspec_record.values import name

VARIABLE = "TRAINSPEC_RUN"
DEFAULT_DIRECTORY = "runs/"
"""Directory of runs where nothing names one."""
MAX_ATTEMPT = 1_000_000
MAX_RANK = 99_999_999


class Launcher(NamedTuple):
    """Variables by which a launcher gives each process its place; the first one that is set counts."""

    name: str
    rank: tuple[str, ...]
    world_size: tuple[str, ...] = ()
    local_rank: tuple[str, ...] = ()


LAUNCHERS = (
    Launcher("openmpi", ("OMPI_COMM_WORLD_RANK",), ("OMPI_COMM_WORLD_SIZE",), ("OMPI_COMM_WORLD_LOCAL_RANK",)),
    Launcher("torchrun", ("RANK",), ("WORLD_SIZE",), ("LOCAL_RANK",)),
    Launcher("mpich", ("PMI_RANK",), ("PMI_SIZE",), ("MPI_LOCALRANKID", "PMI_LOCAL_RANK")),
    Launcher("jax", ("JAX_PROCESS_ID",), ("JAX_NUM_PROCESSES", "JAX_PROCESS_COUNT"), ("JAX_LOCAL_PROCESS_ID",)),
    Launcher("slurm", ("SLURM_PROCID",), ("SLURM_STEP_NUM_TASKS", "SLURM_NTASKS"), ("SLURM_LOCALID",)),
    Launcher("tpu", ("TPU_WORKER_ID", "CLOUD_TPU_TASK_ID"), ("TPU_WORKER_HOSTNAMES",)),
    Launcher("kubernetes", ("JOB_COMPLETION_INDEX",), ("JOB_COMPLETIONS",)),
)
"""In this order: torchrun and MPI run inside of Slurm and Kubernetes, and their ranks are those of the job."""
RUNS = (
    *(("TORCHELASTIC_RUN_ID", ""), ("SLURM_JOB_ID", "slurm-"), ("JOBSET_NAME", "jobset-")),
    *(("PMIX_NAMESPACE", "mpi-"), ("MEGASCALE_JOB_NAME", ""), ("JOB_NAME", "")),
)
"""Variables that name a run, with what is put before a mere number."""
RESTARTS = ("TORCHELASTIC_RESTART_COUNT", "SLURM_RESTART_COUNT", "JOBSET_RESTART_ATTEMPT")
HOSTS = ("TRAINSPEC_HOST", "SLURMD_NODENAME", "NODE_NAME")
VISIBLE = ("CUDA_VISIBLE_DEVICES", "HIP_VISIBLE_DEVICES", "ROCR_VISIBLE_DEVICES")


class Identity(NamedTuple):
    """Identity of a process in its run."""

    folder: Path
    """Where the files of the run are."""
    run: str
    attempt: int
    """Attempt as the launcher counts it; files that are there already can make it a later one."""
    rank: int
    world_size: int | None
    local_rank: int
    host: str
    device: str | None
    launcher: str | None
    is_last_attempt: bool
    """Whether the launcher says that it will start the job no more."""
    redaction: Redaction | None = None
    """How names are hidden in what is written."""


def identity(environment: Mapping[str, str]) -> Identity | None:
    """Identity of the process of an environment; None where `TRAINSPEC_RUN` is not set.

    `TRAINSPEC_RUN` is the directory of the run, and its last part the name of the run. With a slash at the end it is a
    directory of runs, and the run is named by the launcher.

    Raises:
        ValueError: names are to be hidden, and there is no key to do so.
    """
    where = environment.get(VARIABLE, "").strip()
    if not where:
        return None
    folder = Path(where)
    if where.endswith("/") or not folder.name:
        folder /= _run(environment)
    launcher, rank, size, local = _place(environment)
    attempt = _whole(environment, ("TRAINSPEC_ATTEMPT",))
    if attempt is None:
        if given := environment.get("TRAINSPEC_ATTEMPT", "").strip():
            tell_once(f"TRAINSPEC_ATTEMPT is {given!r}, which is no number of an attempt; the launcher counts")
        attempt = sum(_whole(environment, (each,)) or 0 for each in RESTARTS)
    return Identity(
        folder=folder,
        run=name(folder.name),
        attempt=min(attempt, MAX_ATTEMPT),
        rank=rank,
        world_size=size if size is not None and rank < size else None,
        local_rank=local,
        host=host(environment),
        device=_device(environment, local),
        launcher=launcher,
        is_last_attempt=_is_last(environment),
        redaction=Redaction(read_key(environment[REDACT])) if environment.get(REDACT) else None,
    )


def host(environment: Mapping[str, str]) -> str:
    """Name of the host, the same for all processes on it."""
    return name(next((environment[each] for each in HOSTS if environment.get(each)), socket.gethostname()))


def rank_of(environment: Mapping[str, str]) -> int:
    """The rank of a process, 0 where no launcher sets it."""
    return _place(environment)[1]


def _run(environment: Mapping[str, str]) -> str:
    for variable, prefix in RUNS:
        value = environment.get(variable, "")
        if value and value != "none":  # torchrun says "none" where nobody gave it a name
            return name(f"{prefix if value.isdecimal() else ''}{value}").replace("/", "-")
    return "run"


def _place(environment: Mapping[str, str]) -> tuple[str | None, int, int | None, int]:
    """Launcher, rank, world size and local rank; one process alone where no launcher says otherwise.

    The number of ranks is unknown where what a launcher says is no rank.
    """
    for launcher in LAUNCHERS:
        rank = _whole(environment, launcher.rank)
        if rank is not None:
            size = _whole(environment, launcher.world_size)
            if size is not None and rank >= size:
                tell_once(f"{launcher.name} gives rank {rank} and a world size of {size}, which is left out")
            return launcher.name, min(rank, MAX_RANK), size or None, _whole(environment, launcher.local_rank) or 0
    odd = [(each, value) for one in LAUNCHERS for each in one.rank if (value := environment.get(each, "").strip())]
    if odd:
        tell_once("{} is {!r}, which is no rank; this process is recorded as rank 0".format(*odd[0]))
    return None, 0, None if odd else 1, 0


def _whole(environment: Mapping[str, str], names: tuple[str, ...]) -> int | None:
    """The first of some variables that is set, as a number; a list of names counts its entries."""
    for each in names:
        value = environment.get(each, "").strip()
        if value.isascii() and value.isdecimal() and len(value) < 12:
            return int(value)
        if value and each.endswith("HOSTNAMES"):
            return len([entry for entry in value.split(",") if entry.strip()])
    return None


def _device(environment: Mapping[str, str], local_rank: int) -> str | None:
    """UUID of the device, where the environment names devices by UUID; an index names a device of every host."""
    if environment.get("TRAINSPEC_DEVICE"):
        return name(environment["TRAINSPEC_DEVICE"])
    for variable in VISIBLE:
        entries = [entry.strip() for entry in environment.get(variable, "").split(",")]
        mine = entries[local_rank] if local_rank < len(entries) else entries[0] if len(entries) == 1 else ""
        if mine.startswith(("GPU-", "MIG-")):
            return name(mine)
    return None


def _is_last(environment: Mapping[str, str]) -> bool:
    most, count = (_whole(environment, (f"TORCHELASTIC_{each}",)) for each in ("MAX_RESTARTS", "RESTART_COUNT"))
    return most is not None and count is not None and count >= most
