"""A job as a JobSet for Kubernetes, with topology requests for Kueue."""

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

FILE = "jobset.yaml"
CHECKED = "JobSet 0.12.0 and Kueue 0.19.2"


def _script(job: Job, name: str) -> str:
    """What each pod runs; the index of a pod is the rank of its node."""
    where = torchrun.Rendezvous('"${JOB_COMPLETION_INDEX}"', f"{name}-node-0-0.{name}", name)
    return " ".join(["exec torchrun", *torchrun.arguments(job, where, 0), '"$@"'])


def _container(job: Job, name: str, notes: list[str]) -> list[str]:
    """The container of a pod: image, command, variables and devices."""
    return [
        "containers:",
        "  - name: training",
        "    image: IMAGE # replace: it holds the framework and the training program",
        f"    command: [bash, -c, {json.dumps(_script(job, name))}, torchrun]",
        "    args: [train.py] # replace: the training program and its arguments",
        *indented(variables(job, notes), 4),
        "    resources:",
        *indented(devices(job, notes), 6),
        *indented([*locked_memory(job, notes), *mounts()], 4),
    ]


def _pod(job: Job, name: str, notes: list[str]) -> list[str]:
    lines = [*metadata(job, notes), "spec:", "  restartPolicy: Never", *indented(grace(job), 2)]
    return lines + indented([*_container(job, name, notes), *volumes()], 2)


def write(job: Job) -> Exported:
    """A JobSet whose pods are the nodes of the job.

    Raises:
        NotExpressible: the accelerators are no GPUs, or the ranks do not fill nodes.
    """
    require_gpus(job)
    name, nodes = job_name(job), job.num_nodes
    notes = [note.replace("torchrun does not see", "JobSet does not see") for note in torchrun.left_out(job)]
    lines = [*header(job, f"{CHECKED}, {torchrun.CHECKED}"), *torchrun.about_order(job)]
    lines += [
        "apiVersion: jobset.x-k8s.io/v1alpha2",
        "kind: JobSet",
        "metadata:",
        f"  name: {json.dumps(name)}",
        "  labels:",
    ]
    lines += ["    kueue.x-k8s.io/queue-name: QUEUE # replace: the LocalQueue of your namespace", "spec:"]
    if job.policy:
        lines += ["  failurePolicy:", "    # policy: restart.max_restarts (TS-CKP-051)"]
        lines += [f"    maxRestarts: {job.policy.restart.max_restarts}"]
    lines += ["  network:", "    enableDNSHostnames: true", "  replicatedJobs:", "    - name: node"]
    lines += ["      replicas: 1", "      template:", "        spec:", "          completionMode: Indexed"]
    lines += ["          # plan: parallelism.num_accelerators over ranks of a node (TS-TOP-018)"]
    lines += [f"          completions: {nodes}", f"          parallelism: {nodes}", "          backoffLimit: 0"]
    lines += ["          template:", *indented(_pod(job, name, notes), 12)]
    return Exported(FILE, joined(lines), tuple(notes))


FORMATS = (Format("kubernetes", f"JobSet with topology requests for Kueue ({CHECKED})", write),)
