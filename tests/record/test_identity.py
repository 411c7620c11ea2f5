"""Who a process is, from the environment as each launcher sets it."""

from __future__ import annotations

from pathlib import Path

import pytest

from trainspec_record import guard
from trainspec_record.identity import Identity, identity

RUN = {"TRAINSPEC_RUN": "/runs/r-1", "TRAINSPEC_HOST": "n"}

# As torchrun 2.5 sets it on the second of two nodes, after one restart.
TORCHRUN = {
    "LOCAL_RANK": "3", "RANK": "11", "GROUP_RANK": "1", "ROLE_RANK": "11", "ROLE_NAME": "default",
    "LOCAL_WORLD_SIZE": "8", "WORLD_SIZE": "16", "GROUP_WORLD_SIZE": "2", "ROLE_WORLD_SIZE": "16",
    "MASTER_ADDR": "n0", "MASTER_PORT": "29500", "TORCHELASTIC_RESTART_COUNT": "1", "TORCHELASTIC_MAX_RESTARTS": "3",
    "TORCHELASTIC_RUN_ID": "llama-7", "TORCHELASTIC_USE_AGENT_STORE": "True", "OMP_NUM_THREADS": "1",
}  # fmt: skip
# As srun sets it in a job that was queued again.
SLURM = {
    "SLURM_JOB_ID": "4242", "SLURM_PROCID": "5", "SLURM_LOCALID": "1", "SLURM_NODEID": "1", "SLURM_NTASKS": "8",
    "SLURM_STEP_NUM_TASKS": "8", "SLURM_RESTART_COUNT": "2", "SLURMD_NODENAME": "gpu-17",
    "SLURM_JOB_NODELIST": "gpu-[16-17]", "SLURM_STEP_ID": "0",
}  # fmt: skip
OPENMPI = {
    "OMPI_COMM_WORLD_RANK": "2", "OMPI_COMM_WORLD_SIZE": "4", "OMPI_COMM_WORLD_LOCAL_RANK": "0",
    "OMPI_COMM_WORLD_NODE_RANK": "0", "OMPI_UNIVERSE_SIZE": "4", "PMIX_RANK": "2", "PMIX_NAMESPACE": "1234567",
}  # fmt: skip
MPICH = {"PMI_RANK": "3", "PMI_SIZE": "4", "MPI_LOCALRANKID": "1", "MPI_LOCALNRANKS": "2"}
JAX = {"JAX_COORDINATOR_ADDRESS": "n0:1234", "JAX_NUM_PROCESSES": "8", "JAX_PROCESS_ID": "6"}
TPU = {"TPU_WORKER_ID": "1", "TPU_WORKER_HOSTNAMES": "t-0,t-1,t-2,t-3", "TPU_ACCELERATOR_TYPE": "v5litepod-16"}
# A JobSet whose template passes the annotation on, and names its node through the downward interface.
KUBERNETES = {
    "JOB_COMPLETION_INDEX": "2", "JOBSET_NAME": "llama", "JOBSET_RESTART_ATTEMPT": "4", "NODE_NAME": "gke-7",
    "HOSTNAME": "llama-workers-0-2",
}  # fmt: skip


def who(environment: dict[str, str]) -> Identity:
    found = identity({**RUN, **environment})
    assert found is not None
    return found


@pytest.mark.parametrize(
    ("environment", "expected"),
    [
        (TORCHRUN, ("torchrun", 11, 16, 3, 1)),
        (SLURM, ("slurm", 5, 8, 1, 2)),
        (OPENMPI, ("openmpi", 2, 4, 0, 0)),
        (MPICH, ("mpich", 3, 4, 1, 0)),
        (JAX, ("jax", 6, 8, 0, 0)),
        (TPU, ("tpu", 1, 4, 0, 0)),
        (KUBERNETES, ("kubernetes", 2, None, 0, 4)),
        ({}, (None, 0, 1, 0, 0)),
    ],
)
def test_each_launcher(environment: dict[str, str], expected: tuple[str | None, int, int | None, int, int]) -> None:
    found = who(environment)
    assert (found.launcher, found.rank, found.world_size, found.local_rank, found.attempt) == expected
    assert (found.run, found.folder) == ("r-1", Path("/runs/r-1"))


def test_torchrun_inside_of_slurm_has_the_ranks_of_torchrun_and_restarts_of_both() -> None:
    found = who({**SLURM, "SLURM_NTASKS": "2", "SLURM_PROCID": "1", **TORCHRUN})
    assert (found.launcher, found.rank, found.world_size, found.attempt) == ("torchrun", 11, 16, 3)


def test_mpirun_inside_of_slurm_has_the_ranks_of_mpi() -> None:
    assert (who({**SLURM, **OPENMPI}).launcher, who({**SLURM, **OPENMPI}).rank) == ("openmpi", 2)


@pytest.mark.parametrize(
    ("environment", "name"),
    [
        (TORCHRUN, "llama-7"),
        ({**TORCHRUN, "TORCHELASTIC_RUN_ID": "none", "SLURM_JOB_ID": "4242"}, "slurm-4242"),
        (SLURM, "slurm-4242"),
        (OPENMPI, "mpi-1234567"),
        (KUBERNETES, "llama"),
        ({"JOB_NAME": "a/../b"}, "a-..-b"),
        ({}, "run"),
    ],
)
def test_a_directory_of_runs_has_the_name_of_the_launcher(environment: dict[str, str], name: str) -> None:
    found = who({**environment, "TRAINSPEC_RUN": "/runs/"})
    assert (found.run, found.folder) == (name, Path("/runs") / name)


@pytest.mark.parametrize("value", ["", "  "])
def test_without_a_folder_nothing_is_recorded(value: str) -> None:
    assert identity({"TRAINSPEC_RUN": value}) is None
    assert identity({}) is None


def test_hosts_are_named_by_the_scheduler() -> None:
    hosts = [identity({"TRAINSPEC_RUN": "/r/x", **environment}) for environment in (SLURM, KUBERNETES)]
    assert [host.host for host in hosts if host] == ["gpu-17", "gke-7"]


def test_devices_are_named_by_uuid_and_never_by_index() -> None:
    ranks = {"RANK": "1", "LOCAL_RANK": "1", "WORLD_SIZE": "2"}
    assert who({**ranks, "CUDA_VISIBLE_DEVICES": "GPU-1c, GPU-2d"}).device == "GPU-2d"
    assert who({**ranks, "CUDA_VISIBLE_DEVICES": "MIG-77"}).device == "MIG-77"
    assert who({**ranks, "CUDA_VISIBLE_DEVICES": "0,1"}).device is None
    assert who({**ranks, "ROCR_VISIBLE_DEVICES": "GPU-aa,GPU-bb"}).device == "GPU-bb"
    assert who({**ranks, "TRAINSPEC_DEVICE": "chip 7"}).device == "chip 7"


def test_nonsense_is_taken_for_nothing() -> None:
    found = who({"RANK": "-1", "WORLD_SIZE": "many", "TORCHELASTIC_RESTART_COUNT": "1e9", "SLURM_PROCID": "٣"})
    assert (found.launcher, found.rank, found.attempt) == (None, 0, 0)
    assert who({"RANK": "9", "WORLD_SIZE": "4"}).world_size is None


def test_the_launcher_says_which_attempt_is_the_last() -> None:
    assert not who(TORCHRUN).is_last_attempt
    assert who({**TORCHRUN, "TORCHELASTIC_RESTART_COUNT": "3"}).is_last_attempt
    assert not who(SLURM).is_last_attempt


@pytest.mark.parametrize(
    ("environment", "world_size", "message"),
    [
        ({"RANK": "x", "WORLD_SIZE": "2"}, None, "RANK is 'x', which is no rank"),
        ({"RANK": "-2", "WORLD_SIZE": "2"}, None, "RANK is '-2', which is no rank"),
        ({"RANK": "5", "WORLD_SIZE": "2"}, None, "torchrun gives rank 5 and a world size of 2"),
        ({"TRAINSPEC_ATTEMPT": "-1"}, 1, "TRAINSPEC_ATTEMPT is '-1', which is no number of an attempt"),
    ],
)
def test_what_a_launcher_cannot_mean_is_reported(
    environment: dict[str, str], world_size: int | None, message: str, caplog: pytest.LogCaptureFixture
) -> None:
    guard._told.clear()
    assert who(environment).world_size == world_size
    assert message in caplog.text
