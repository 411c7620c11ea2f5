"""Turns a job into TF_CONFIG and the strategy that reads it."""

from __future__ import annotations

from trainspec_validate.interop.writers._target import (
    Exported,
    Format,
    Job,
    NotExpressible,
    header,
    joined,
    require_gpus,
)

FILE = "tf_config.py"
CHECKED = "TensorFlow 2.21.0"
_POLICIES = {"bf16": "mixed_bfloat16", "fp16": "mixed_float16"}
_FUNCTION = '''\
def tf_config(hosts: list[str], index: int, port: int = 12345) -> str:
    """The value of TF_CONFIG for one worker; hosts in rank order, one for each node."""
    if len(hosts) != NUM_WORKERS:
        raise ValueError(f"{len(hosts)} hosts, but the plan takes {NUM_WORKERS}")
    workers = [f"{host}:{port}" for host in hosts]
    return json.dumps({"cluster": {"worker": workers}, "task": {"type": "worker", "index": index}})
'''


def _refuse(job: Job) -> None:
    p = job.plan.parallelism
    others = {"tensor": p.tensor, "pipeline": p.pipeline, "context": p.context, "expert": p.expert}
    used = [f"{axis} {degree}" for axis, degree in others.items() if degree > 1]
    if used:
        message = f"MultiWorkerMirroredStrategy has data ranks only; the plan has {', '.join(used)}"
        raise NotExpressible(message, "export it for a framework that splits models")


def _options(job: Job) -> list[str]:
    """Arguments of CommunicationOptions that the plan implies."""
    talk, words = job.plan.communication, []
    if talk and talk.bucket_bytes is not None:
        words.append(f"    bytes_per_pack={int(talk.bucket_bytes)},  # plan: communication.bucket_bytes (TS-COM-012)")
    if talk and talk.timeout_seconds is not None:
        words.append(
            f"    timeout_seconds={talk.timeout_seconds:g},  # plan: communication.timeout_seconds (TS-COM-004)"
        )
    if talk and talk.library and talk.library.name.casefold() in {"nccl", "rccl"}:
        words.append("    implementation=tf.distribute.experimental.CommunicationImplementation.NCCL,")
    return words


def _head(job: Job) -> list[str]:
    """The module up to the body of its last function."""
    return [
        *header(job, CHECKED),
        "import json",
        "",
        "import tensorflow as tf",
        "",
        f"NUM_WORKERS = {job.num_nodes}  # one for each node; each drives its {job.ranks_per_node} accelerators",
        f"GLOBAL_BATCH_SIZE = {job.plan.batch.global_sequences}  # plan: batch.global_sequences",
        "",
        "",
        *_FUNCTION.splitlines(),
        "",
        "",
        "def strategy() -> tf.distribute.Strategy:",
        '    """The strategy; set TF_CONFIG before TensorFlow starts and make the strategy before anything else."""',
    ]


def write(job: Job) -> Exported:
    """A Python module with a function that gives each worker its TF_CONFIG, and one that makes the strategy.

    Raises:
        NotExpressible: the accelerators are no GPUs, or the plan splits the model.
    """
    require_gpus(job)
    _refuse(job)
    plan, notes = job.plan, []
    if plan.parallelism.sharding != "none":
        notes.append("parallelism.sharding: MultiWorkerMirroredStrategy keeps a whole copy on each rank (TS-MEM-002)")
    if plan.batch.accumulation_steps > 1:
        notes.append("batch.accumulation_steps: the training loop accumulates, the strategy does not")
    if job.policy:
        notes.append("the checkpoint policy: tf.keras.callbacks.BackupAndRestore and the program follow it")
    body = _head(job)
    if plan.precision.compute in _POLICIES:
        policy = _POLICIES[plan.precision.compute]
        body.append(f'    tf.keras.mixed_precision.set_global_policy("{policy}")  # plan: precision.compute')
    options = _options(job)
    if options:
        body += ["    options = tf.distribute.experimental.CommunicationOptions("]
        body += [*(f"    {word}" for word in options), "    )"]
        body.append("    return tf.distribute.MultiWorkerMirroredStrategy(communication_options=options)")
    else:
        body.append("    return tf.distribute.MultiWorkerMirroredStrategy()")
    return Exported(FILE, joined(body), tuple(notes))


FORMATS = (Format("tf-config", f"TF_CONFIG and MultiWorkerMirroredStrategy, a Python module ({CHECKED})", write),)
