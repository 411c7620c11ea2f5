"""Turns a job into a batch script for Slurm."""

from __future__ import annotations

import math
from collections.abc import Iterator

from trainspec_validate.interop.writers import torchrun
from trainspec_validate.interop.writers._target import (
    Exported,
    Format,
    Job,
    group_num_nodes,
    header,
    joined,
    require_gpus,
)

FILE = "job.sbatch"
CHECKED = "Slurm 26.05 (man pages of sbatch and srun) and " + torchrun.CHECKED
_SORT_HOSTS = """\
# Hosts in the order of their switches; where the topology plug-in reports no switches, in its own order.
hosts="$(mktemp "${TMPDIR:-/tmp}/hosts.${SLURM_JOB_ID}.XXXXXX")"
srun --ntasks-per-node=1 bash -c \\
  'a="${SLURM_TOPOLOGY_ADDR:-none.}"; printf "%s %s %s\\n" "${a%.*}" "${SLURM_PROCID}" "${SLURMD_NODENAME}"' |
  sort -k1,1 -k2,2n | awk '{print $3}' >"${hosts}"
export SLURM_HOSTFILE="${hosts}"
master="$(head -n 1 "${hosts}")"
"""
_SCHEDULER_HOSTS = """\
hosts="$(scontrol show hostnames "${SLURM_JOB_NODELIST}")"
master="${hosts%%$'\\n'*}"
"""
_NOTICE = """\
# The program looks for this file, which appears when the end is announced (policy: grace.poll_seconds).
export NOTICE_FILE="${SLURM_SUBMIT_DIR}/notice.${SLURM_JOB_ID}"
noticed=0
trap 'noticed=1; : >"${NOTICE_FILE}"' USR1
"""
_WAIT = """\
  local step=$! code
  # A signal ends `wait` early; the step continues.
  while true; do
    if wait "${step}"; then return 0; else code=$?; fi
    kill -0 "${step}" 2>/dev/null || return "${code}"
  done
}
"""


def _directives(job: Job, notes: list[str]) -> Iterator[tuple[str, str]]:
    """Options of sbatch, each with the key that it follows from."""
    group = job.nodes.group
    yield f"--job-name={job.plan.metadata.name}", "plan: metadata.name"
    yield f"--nodes={job.num_nodes}", "plan: parallelism.num_accelerators over ranks of a node (TS-TOP-018)"
    yield "--ntasks-per-node=1", "one torchrun for each node"
    yield f"--gpus-per-node={job.ranks_per_node}", f"cluster: node_groups[{group.name}], one device for each rank"
    if job.ranks_per_node == job.nodes.ranks_per_node:
        yield "--exclusive", "the job fills its nodes (TS-TOP-018)"
    if group.host and group.host.num_cores:
        yield f"--cpus-per-task={group.host.num_cores}", f"cluster: node_groups[{group.name}].host.num_cores"
    else:
        notes.append("host.num_cores is not stated; without --cpus-per-task Slurm gives the ranks of a node one core")
    yield from _topology(job, notes)
    if job.policy:
        yield "--requeue", "policy: recovery; a lost node ends the attempt, not the job"
        yield "--open-mode=append", "attempts share one log"
        grace = job.policy.grace
        if grace and grace.preemptible and grace.notice_seconds:
            yield f"--signal=B:USR1@{math.ceil(grace.notice_seconds)}", "policy: grace.notice_seconds (TS-CKP-054)"
            notes.append("grace: for preemption Slurm signals only with PreemptParameters=send_user_signal")


def _topology(job: Job, notes: list[str]) -> Iterator[tuple[str, str]]:
    """Segments for domains that span nodes, leaf switches for groups that stay below the lowest tier."""
    fabric = job.fabric
    lowest = fabric.tiers[0] if fabric and fabric.tiers else None
    for placement in job.plan.parallelism.placements:
        size = group_num_nodes(job, placement.axis)
        if placement.within == "scale-up-domain" and size > 1:
            block = job.nodes_per_domain
            if job.num_nodes > block and job.num_nodes % block:
                notes.append(f"{job.num_nodes} nodes are no multiple of domains of {block}, as --segment wants")
            else:
                yield f"--segment={block}", f"plan: placements[{placement.axis}], cluster: scale_up (TS-TOP-019)"
        elif placement.fabric_tier and lowest and placement.fabric_tier == lowest.name and lowest.group_num_nodes:
            usable = lowest.group_num_nodes // size * size
            if usable:
                because = f"plan: placements[{placement.axis}].fabric_tier is {lowest.name} (TS-TOP-020)"
                yield f"--switches={-(-job.num_nodes // usable)}", because
        elif placement.fabric_tier:
            notes.append(
                f"placements[{placement.axis}].fabric_tier is {placement.fabric_tier}; Slurm counts leaf switches only"
            )


def _warned(job: Job) -> bool:
    grace = job.policy.grace if job.policy else None
    return bool(grace and grace.preemptible and grace.notice_seconds)


def _hosts(job: Job) -> tuple[list[str], str]:
    """Lines that find the first host, and the distribution of srun that keeps the order."""
    if job.num_nodes == 1:
        return ["master=localhost"], "block"
    if job.plan.parallelism.rank_order == "topology":
        return _SORT_HOSTS.splitlines(), "arbitrary"
    return _SCHEDULER_HOSTS.splitlines(), "block"


def _launch(job: Job, distribution: str) -> list[str]:
    """A shell function that starts one attempt and waits for it."""
    where = torchrun.Rendezvous("", '"${master}"', '"${SLURM_JOB_ID}"')
    words = [word for word in torchrun.arguments(job, where, 0) if not word.startswith("--node-rank=")]
    options = [f"--ntasks={job.num_nodes}", f"--distribution={distribution}", "--kill-on-bad-exit=1"]
    host = job.nodes.group.host
    if host and host.num_cores:
        # Steps take over the cores of a task in some versions only.
        options.append(f"--cpus-per-task={host.num_cores}")
    program = "torchrun"
    if torchrun.keeps_order(job) and job.num_nodes > 1:
        # The rank of a node is known on the node only.
        program = """bash -c 'exec torchrun --node-rank="${SLURM_PROCID}" "$@"' torchrun"""
    command = [f"srun {' '.join(options)} \\", *torchrun.broken_lines(f"  {program}", words, '"$@" &', "  ")]
    return ["launch() {", f"  {command[0]}", *command[1:], *_WAIT.splitlines()]


def _restarts(job: Job) -> list[str]:
    if job.policy is None:
        return ['launch "$@"']
    return [
        "# policy: restart.max_restarts (TS-CKP-051). Restarts by Slurm count too.",
        f"max_restarts={job.policy.restart.max_restarts}",
        'restarts="${SLURM_RESTART_COUNT:-0}"',
        'until launch "$@"; do',
        *(["  if ((noticed)); then exit 0; fi"] if _warned(job) else []),
        "  if ((restarts >= max_restarts)); then",
        '    echo "given up after ${restarts} restarts" >&2',
        "    exit 1",
        "  fi",
        "  restarts=$((restarts + 1))",
        '  echo "restart ${restarts} of ${max_restarts}" >&2',
        "done",
    ]


def write(job: Job) -> Exported:
    """A batch script that starts torchrun on every node, in the order that the plan asks for.

    Raises:
        NotExpressible: the accelerators are no GPUs, or the ranks do not fill nodes.
    """
    require_gpus(job)
    notes = [note.replace("torchrun does not see", "Slurm does not see") for note in torchrun.left_out(job)]
    lines = ["#!/usr/bin/env bash", *header(job, CHECKED), *torchrun.about_order(job)]
    for option, because in dict(_directives(job, notes)).items():
        lines += [f"# {because}", f"#SBATCH {option}"]
    lines += ["set -euo pipefail", '(($# > 0)) || { echo "usage: sbatch $0 train.py [argument]..." >&2; exit 2; }']
    # Slurm runs a copy of the script elsewhere, so the file of variables is looked for where it was submitted.
    lines += ['here="${SLURM_SUBMIT_DIR}"', *torchrun.SOURCE_ENVIRONMENT[1:]]
    found, distribution = _hosts(job)
    lines += [*found, *(_NOTICE.splitlines() if _warned(job) else [])]
    return Exported(FILE, joined([*lines, *_launch(job, distribution), *_restarts(job)]), tuple(notes))


FORMATS = (Format("slurm", f"batch script for sbatch that starts torchrun ({CHECKED})", write),)
