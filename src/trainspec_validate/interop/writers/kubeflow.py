"""A job as a TrainJob for Kubeflow Trainer, with topology requests for Kueue."""

from __future__ import annotations

import json

from trainspec_validate.interop.writers import torchrun
from trainspec_validate.interop.writers._pods import (
    devices,
    grace,
    indented,
    job_name,
    locked_memory,
    metadata,
    mounts,
    variables,
    volumes,
)
from trainspec_validate.interop.writers._target import Exported, Format, Job, header, joined, require_gpus

FILE = "trainjob.yaml"
CHECKED = "Kubeflow Trainer 2.3.0 and Kueue 0.19.2"
RUNTIME = "torch-distributed"
"""ClusterTrainingRuntime that Kubeflow Trainer installs; job and container in it are named `node`."""
_MANAGER = "trainspec.org/export"
"""Owner of a patch: a name with a domain, which no other owner uses."""


def _command(job: Job, name: str) -> list[str]:
    """The words of torchrun that Kubeflow does not give.

    Its plug-in sets PET_NNODES, PET_NPROC_PER_NODE, PET_NODE_RANK, PET_MASTER_ADDR and PET_MASTER_PORT, which torchrun
    reads as its options. Without further options hosts meet by static rendezvous.
    """
    restarts = job.policy.restart.max_restarts if job.policy else 0
    if job.num_nodes == 1:
        return ["torchrun", "--standalone", f"--max-restarts={restarts}"]
    if torchrun.keeps_order(job):
        return ["torchrun", "--max-restarts=0"]
    return [
        "torchrun",
        "--rdzv-backend=c10d",
        "--rdzv-endpoint=$(PET_MASTER_ADDR):$(PET_MASTER_PORT)",
        f"--rdzv-id={name}",
        f"--max-restarts={restarts}",
    ]


def _restarts(job: Job, notes: list[str]) -> list[str]:
    """The comment on restarts, and what a TrainJob cannot say of them."""
    if not job.policy:
        return []
    limit = job.policy.restart.max_restarts
    notes.append(
        f"restart.max_restarts is {limit}; a lost pod is replaced by failurePolicy.maxRestarts of the runtime's JobSet,"
        " which a TrainJob cannot set (TS-CKP-051)"
    )
    if job.num_nodes > 1 and torchrun.keeps_order(job):
        return ["# Static rendezvous cannot restart other nodes: the runtime restarts all of them."]
    return ["# policy: restart.max_restarts (TS-CKP-051)"]


def _trainer(job: Job, name: str, notes: list[str]) -> list[str]:
    """Image, command, nodes, ranks, devices and variables."""
    return [
        "trainer:",
        "  image: IMAGE # replace: it holds the framework and the training program",
        *indented(_restarts(job, notes), 2),
        f"  command: {json.dumps(_command(job, name))}",
        "  args: [train.py] # replace: the training program and its arguments",
        "  # plan: parallelism.num_accelerators over ranks of a node (TS-TOP-018)",
        f"  numNodes: {job.num_nodes}",
        f"  numProcPerNode: {job.ranks_per_node}",
        "  resourcesPerNode:",
        *indented(devices(job, notes), 4),
        *indented(variables(job, notes), 2),
    ]


def _patches(job: Job, notes: list[str]) -> list[str]:
    """What the runtime's pods have in addition: topology requests, time to end, shared and locked memory."""
    container = ["containers:", "  - name: node", *indented([*locked_memory(job, notes), *mounts()], 4)]
    pod = [*metadata(job, notes), "spec:", *indented([*grace(job), *container, *volumes()], 2)]
    return [
        "runtimePatches:",
        f"  - manager: {_MANAGER}",
        "    trainingRuntimeSpec:",
        "      template:",
        "        spec:",
        "          replicatedJobs:",
        "            - name: node",
        "              template:",
        "                spec:",
        "                  template:",
        *indented(pod, 20),
    ]


def write(job: Job) -> Exported:
    """A TrainJob whose training nodes are the nodes of the job.

    Raises:
        NotExpressible: the accelerators are no GPUs, or the ranks do not fill nodes.
    """
    require_gpus(job)
    name = job_name(job)
    notes = [note.replace("torchrun does not see", "Kubeflow does not see") for note in torchrun.left_out(job)]
    lines = [
        *header(job, f"{CHECKED}, {torchrun.CHECKED}"),
        *torchrun.about_order(job),
        "apiVersion: trainer.kubeflow.org/v1alpha1",
        "kind: TrainJob",
        "metadata:",
        f"  name: {json.dumps(name)}",
        "  labels:",
        "    kueue.x-k8s.io/queue-name: QUEUE # replace: the LocalQueue of your namespace",
        "spec:",
        "  runtimeRef:",
        f"    name: {RUNTIME} # or another runtime whose job and container are named node, with mlPolicy torch",
        *indented([*_trainer(job, name, notes), *_patches(job, notes)], 2),
    ]
    return Exported(FILE, joined(lines), tuple(notes))


FORMATS = (Format("kubeflow", f"TrainJob with topology requests for Kueue ({CHECKED})", write),)
