"""Turns a plan into flags of XLA for JAX on GPUs."""

from __future__ import annotations

import math

from trainspec_validate.interop.writers._target import Exported, Format, Job, header, joined, require_gpus

FILE = "xla-flags.sh"
CHECKED = "jaxlib 0.10.2"


def _flags(job: Job) -> list[tuple[str, str]]:
    """Flags with the keys that they follow from; jaxlib ends a process that names a flag which it does not know."""
    talk, found = job.plan.communication, []
    if talk and talk.overlap_gradients is not None:
        value = str(talk.overlap_gradients).lower()
        because = "plan: communication.overlap_gradients (TS-COM-011)"
        found.append((f"--xla_gpu_enable_latency_hiding_scheduler={value}", because))
    if talk and talk.bucket_bytes is not None:
        sharded = job.plan.parallelism.sharding in {"gradients", "parameters"}
        collective = "reduce_scatter" if sharded else "all_reduce"
        flag = f"--xla_gpu_{collective}_combine_threshold_bytes={int(talk.bucket_bytes)}"
        found.append((flag, "plan: communication.bucket_bytes, gradients that travel together (TS-COM-012)"))
    if talk and talk.timeout_seconds is not None:
        flag = f"--xla_gpu_nccl_termination_timeout_seconds={math.ceil(talk.timeout_seconds)}"
        found.append((flag, "plan: communication.timeout_seconds (TS-COM-004)"))
    if job.plan.precision.deterministic:
        found.append(("--xla_gpu_deterministic_ops=true", "plan: precision.deterministic (TS-CKP-037)"))
    return found


def _mesh(job: Job) -> str:
    """The shape of the device mesh: the outermost axis first, as jax.make_mesh takes it."""
    p = job.plan.parallelism
    used = [(axis, getattr(p, axis)) for axis in reversed(p.order) if axis != "expert" and getattr(p, axis) > 1]
    return ", ".join(f"{axis} {degree}" for axis, degree in used) or "one device"


def write(job: Job) -> Exported:
    """The flags as a file for `source`.

    Raises:
        NotExpressible: the accelerators are no GPUs; flags of libtpu are not published with its versions.
    """
    require_gpus(job)
    notes, talk = [], job.plan.communication
    if talk and talk.overlap_parameters is not None:
        notes.append("communication.overlap_parameters: XLA's scheduler hides gathers and reductions by one flag")
    if talk and talk.collectives:
        notes.append("communication.collectives: XLA calls NCCL, whose variables `--to nccl-env` writes")
    lines = header(job, CHECKED)
    lines.append(f"# Device mesh, outermost axis first (plan: parallelism.order): {_mesh(job)}")
    found = _flags(job)
    for flag, because in found:
        lines += ["", f"# {because}", f'XLA_FLAGS="${{XLA_FLAGS:-}} {flag}"']
    lines += ["", "export XLA_FLAGS"] if found else ["", "# The plan implies no flag; XLA's defaults hold."]
    return Exported(FILE, joined(lines), tuple(notes))


FORMATS = (Format("xla-flags", f"XLA_FLAGS for JAX on GPUs, a shell file ({CHECKED})", write),)
