"""Turns a job into a torchrun line: nodes, ranks, rendezvous, rank order and restarts."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from trainspec_validate.interop.writers import nccl_environment
from trainspec_validate.interop.writers._target import (
    Exported,
    Format,
    Job,
    header,
    joined,
    rank_order,
    require_gpus,
)

FILE = "torchrun.sh"
CHECKED = "PyTorch 2.15.0 (torch/distributed/run.py)"
PORT = 29500
"""Default of torchrun's --master-port."""
SOURCE_ENVIRONMENT = (
    'here="$(cd -- "$(dirname -- "${BASH_SOURCE[0]}")" && pwd)"',
    "# Variables of the collective library, written by `trainspec export --to nccl-env`.",
    f'if [[ -r "${{here}}/{nccl_environment.FILE}" ]]; then',
    "  # shellcheck source=/dev/null",
    f'  source "${{here}}/{nccl_environment.FILE}"',
    "fi",
)


@dataclass(frozen=True, slots=True)
class Rendezvous:
    """How nodes find each other: shell words for the rank of a node, the first host, and the name of the run."""

    node_rank: str
    master: str
    run: str


def keeps_order(job: Job) -> bool:
    """Whether hosts must become ranks in the order that the launcher gives, which only static rendezvous does.

    Rendezvous of kind c10d sorts hosts by name, whatever --node-rank says (pytorch/pytorch issue 191190).
    """
    return job.plan.parallelism.rank_order in {"topology", "scheduler"}


def arguments(job: Job, rendezvous: Rendezvous, max_restarts: int) -> list[str]:
    """The options of torchrun, one shell word each."""
    words = [f"--nnodes={job.num_nodes}", f"--nproc-per-node={job.ranks_per_node}"]
    if job.num_nodes == 1:
        return [*words, "--standalone", f"--max-restarts={max_restarts}"]
    if keeps_order(job):
        return [
            *words,
            f"--node-rank={rendezvous.node_rank}",
            f"--master-addr={rendezvous.master}",
            f"--master-port={PORT}",
            "--max-restarts=0",
        ]
    return [
        *words,
        "--rdzv-backend=c10d",
        f"--rdzv-endpoint={rendezvous.master}:{PORT}",
        f"--rdzv-id={rendezvous.run}",
        f"--max-restarts={max_restarts}",
    ]


def about_order(job: Job) -> list[str]:
    """Comment lines: which axis is adjacent, and how hosts become ranks."""
    lines = [f"# {line}" for line in rank_order(job)]
    order = job.plan.parallelism.rank_order
    if job.num_nodes == 1:
        return ["# Rank order, from adjacent ranks outwards (plan: parallelism.order):", *lines]
    if keeps_order(job):
        how = f"plan: parallelism.rank_order is {order} (TS-TOP-022). Static rendezvous keeps the order of --node-rank."
    elif order == "alphabetical":
        how = "plan: parallelism.rank_order is alphabetical (TS-TOP-022). Rendezvous by c10d sorts hosts by name."
    else:
        how = "The plan states no rank_order (TS-TOP-022). Rendezvous by c10d sorts hosts by name."
    return ["# Rank order, from adjacent ranks outwards (plan: parallelism.order):", *lines, f"# {how}"]


def left_out(job: Job) -> list[str]:
    """Settings of the documents that torchrun cannot express."""
    notes = []
    elastic, policy = job.plan.batch.elastic, job.policy
    if elastic and len(elastic.data_degrees) > 1:
        notes.append("batch.elastic: torchrun would take any number of nodes in a range, so the number is fixed here")
    if policy and policy.restart.max_restarts_without_progress < policy.restart.max_restarts:
        limit = policy.restart.max_restarts_without_progress
        notes.append(f"restart.max_restarts_without_progress is {limit}; torchrun does not see progress (TS-CKP-052)")
    return notes


def broken_lines(first: str, words: Sequence[str], last: str, indent: str = "") -> list[str]:
    """A command over several lines of shell."""
    return [f"{indent}{first} \\", *(f"{indent}  {word} \\" for word in words), f"{indent}  {last}"]


def write(job: Job) -> Exported:
    """A shell script that starts the ranks of one node; run it on every node with the training program.

    Raises:
        NotExpressible: the accelerators are no GPUs, or the ranks do not fill nodes.
    """
    require_gpus(job)
    several = job.num_nodes > 1
    max_restarts = job.policy.restart.max_restarts if job.policy else 0
    notes = left_out(job)
    lines = ["#!/usr/bin/env bash", *header(job, CHECKED), *about_order(job)]
    given = (
        ("NODE_RANK=0 MASTER_ADDR=host " if keeps_order(job) else "MASTER_ADDR=host RUN_ID=name ") if several else ""
    )
    usage = f"usage: {given}$0 train.py [argument]..."
    lines += ["set -euo pipefail", f'(($# > 0)) || {{ echo "{usage}" >&2; exit 2; }}']
    lines += [*SOURCE_ENVIRONMENT]
    if job.policy and several and keeps_order(job):
        lines.append("# Static rendezvous cannot restart other nodes: what starts this script restarts all of them.")
        notes.append(
            f"restart.max_restarts is {max_restarts}; with static rendezvous the launcher counts them (TS-CKP-051)"
        )
    elif job.policy:
        lines.append("# policy: restart.max_restarts (TS-CKP-051)")
    where = Rendezvous('"${NODE_RANK:?this node}"', '"${MASTER_ADDR:?first host}"', '"${RUN_ID:?name of the run}"')
    lines += broken_lines("exec torchrun", arguments(job, where, max_restarts), '"$@"')
    return Exported(FILE, joined(lines), tuple(notes))


FORMATS = (Format("torchrun", f"shell script that starts the ranks of a node with torchrun ({CHECKED})", write),)
