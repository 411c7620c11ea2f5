"""Declares what a conformance test is made of: stacks, scenarios, and the task given to a stack."""

from __future__ import annotations

from typing import Annotated, Literal

import msgspec
from msgspec import Meta

from trainspec_validate.documents.types.base import (
    AcceleratorFlopsPerSecond,
    Count,
    CountOrZero,
    Extensions,
    Metadata,
    Name,
    PositiveSeconds,
    Record,
    Seconds,
    SoftwareComponent,
    Text,
)

Capability = Literal[
    "trace",
    "stream",
    "checkpoints",
    "resume",
    "in-job-recovery",
    "grace-signal",
    "reshard",
    "sample-ids",
    "state-digest",
    "deterministic",
    "manifest",
    "asynchronous-saves",
    "save-stages",
    "fault-reports",
    "straggler-reports",
    "replica-checks",
    "loss-scale",
    "batch-ramp",
    "evaluation",
    "gradient-noise",
    "utilisation",
    "several-hosts",
    "separate-hosts",
    "planted-exception",
    "planted-nan-gradient",
    "planted-inf-gradient",
    "planted-parameter-flip",
    "planted-livelock",
    "planted-slow-rank",
    "planted-data-delay",
    "sequential-order",
    "learning-rate-factor",
    "resealed-checkpoints",
    "probe-noise",
    "probe-accumulate",
    "probe-compress",
    "probe-quantise",
    "probe-loss-scale",
    "probe-reduce",
    "probe-stochastic-rounding",
    "probe-elastic",
    "probe-flops",
    "probe-update",
    "probe-converge",
    "probe-memory",
    "probe-peaks",
    "probe-shards",
    "probe-kernels",
    "probe-energy",
]
ConformanceLevel = Literal["described", "observable", "recoverable", "efficient"]
Probability = Annotated[float, Meta(ge=0.5, lt=1)]
Argument = Annotated[str, Meta(max_length=4096)]
Command = Annotated[tuple[Argument, ...], Meta(min_length=1, max_length=1000)]
FaultKind = Literal[
    "exception", "nan-gradient", "inf-gradient", "flip-parameter-bit", "livelock", "slow", "data-delay", "long-pause"
]


class Launch(Record, frozen=True, kw_only=True):
    """How the suite starts the stack. Commands run without a shell, in the directory of the descriptor.

    In arguments and variables, `{task}` is the file of the task, `{out}` the directory that everything is written to,
    `{num_ranks}`, `{attempt}`, `{port}` and `{python}` what their names say, `{input}` and `{output}` files of a probe.
    """

    train: Command
    """Starts the job: trains as the task says and ends with status 0."""
    probe: Command | None = None
    """Computes one numeric operation with the stack's own code."""
    versions: Command | None = None
    """Prints a JSON object of component and version."""
    environment: dict[Name, Argument] = msgspec.field(default_factory=dict)
    """Variables that the suite sets."""
    start_seconds: PositiveSeconds = 60
    """Longest time from the start to the first step."""
    stop_seconds: PositiveSeconds = 15
    """Longest time from the last step to the end of all processes."""
    restarts: Literal["stack", "platform"] = "stack"
    """Party that starts the job again when its command ends with an error: the stack, or the suite in place of a
    platform."""
    max_restarts: Annotated[int, Meta(ge=0, le=100)] = 3
    """Restarts by the platform."""
    crash_loop_statuses: tuple[Annotated[int, Meta(ge=1, le=255)], ...] = ()
    """Exit statuses that say: do not start this again."""


class Claims(Record, frozen=True, kw_only=True):
    """Promises of the makers of the stack, which it is judged by."""

    profile: Literal["core", "full"] = "core"
    """Scenarios that have to pass."""
    level: ConformanceLevel = "recoverable"
    """Level that the makers claim: each scenario up to it has to pass."""
    resume_class: Literal["bitwise", "statistical"] = "statistical"
    """`bitwise` promises the same numbers as an uninterrupted run in the same layout; `statistical` promises losses
    within `relative_tolerance` of them, and equal learning rates and samples. In a policy `statistical` promises less:
    distributions of losses."""
    relative_tolerance: Annotated[float, Meta(ge=0, le=0.1)] = 1e-5
    """Largest relative difference of losses from those of an uninterrupted run, for `statistical`."""
    quantile: Probability = 0.5
    """Share of faults that stay within the times below. The default claims half of them; duties of the contract that
    name 95 of 100 need 0.95. A larger share is tested as 0.95."""
    detection_seconds: PositiveSeconds = 15
    """From a lost process to the report of it."""
    hang_detection_seconds: PositiveSeconds = 15
    """From a stopped process to the report of it, in the test job; a policy states the time-outs of production."""
    recovery_seconds: Annotated[float, Meta(gt=0, le=90, extra_json_schema={"x-unit": "s"})] = 90
    """Recovery time as the suite sees it, from the injected fault, in the test job. A stack that needs more
    claims `observable`."""
    max_restarts_without_progress: CountOrZero = 3
    """Restarts in a row, after the first attempt, that reach no new optimizer step before the stack stops."""
    nonfinite_action: Literal["skip-step", "rollback", "stop"] = "skip-step"
    """Action when a gradient is not finite. With `stop`, no level above `described` is reached: scenarios that continue
    after such a gradient are unsupported."""
    replica_check_steps: Count | None = None
    """Steps between comparisons of replicas."""
    grace_seconds: PositiveSeconds = 30
    """Notice that a save on a signal needs."""


class Store(Record, frozen=True, kw_only=True):
    """Where the checkpoints of the stack are below `{out}`."""

    directory: Annotated[str, Meta(min_length=1, max_length=1024)] = "checkpoints"
    """Directory of all checkpoints."""
    name: Annotated[str, Meta(min_length=1, max_length=256)] = "step-{step}"
    """Name of one checkpoint."""
    pointer: Annotated[str, Meta(min_length=1, max_length=256)] | None = None
    """File that names the newest one."""
    pointer_line: Annotated[str, Meta(min_length=6, max_length=256, pattern=r"^[^\n]*\{step\}[^\n]*$")] | None = None
    """Its line, where it holds more than a name: such as `model_checkpoint_path: "ckpt-{step}"` of TensorFlow."""
    payload: tuple[Annotated[str, Meta(min_length=1, max_length=256)], ...] = ("**/*",)
    """Patterns of the files that hold state."""


class Missing(Record, frozen=True, kw_only=True):
    """Something that the stack cannot do, said beforehand."""

    capability: Capability
    """Capability that it lacks."""
    reason: Text
    """Cause for which the stack lacks the capability, in words for a reader of the report."""


class StackDescriptor(Record, frozen=True, kw_only=True, tag_field="kind", tag="StackDescriptor"):
    """How a conformance test launches a training stack, what it can do and what it promises."""

    apiVersion: Literal["trainspec/v1"]  # noqa: N815 - the key that selects the schema, spelled as other ecosystems do
    """Version of the document format."""
    metadata: Metadata
    """Identity of the stack."""
    components: Annotated[tuple[SoftwareComponent, ...], Meta(min_length=1)]
    """Components of the stack, for the report; `launch.versions` says more exactly what is installed."""
    documents: tuple[Annotated[str, Meta(min_length=1, max_length=1024)], ...] = ()
    """Cluster profile, training plan and checkpoint policy of the stack on its test job with two ranks, as paths from
    this file; with those that they refer to. They are validated together, and not compared with a scenario."""
    modifications: tuple[Text, ...] = ()
    """Every way in which the stack that is launched differs from what its makers ship."""
    launch: Launch
    """How it is started."""
    capabilities: tuple[Capability, ...]
    """Abilities that scenarios depend on."""
    missing: tuple[Missing, ...] = ()
    """Capabilities that it lacks, with reasons; scenarios that need it are unsupported."""
    claims: Claims = Claims()
    """Promises of the stack."""
    store: Store = Store()
    """Where its checkpoints are."""
    notes: Text | None = None
    """Anything a reader of its reports should know."""
    extensions: Extensions = msgspec.field(default_factory=dict)
    """Data of others, under reverse domain names."""


class Fault(Record, frozen=True, kw_only=True):
    """Damage that the stack does to itself, because nothing outside of it can."""

    kind: FaultKind
    """Damage that happens."""
    rank: Annotated[int, Meta(ge=-1, le=1_000_000)] = -1
    """Where; -1 is the last rank."""
    step: CountOrZero = 0
    """Optimizer step before which it happens."""
    num_steps: Count = 1
    """Consecutive optimizer steps that the fault hits, from `step` on."""
    seconds: Seconds = 0
    """Added time of each, for `slow`, `data-delay` and `long-pause`."""
    every_attempt: bool = False
    """Whether it happens again in each attempt."""


class RampStage(Record, frozen=True, kw_only=True):
    """A batch from an optimizer step on."""

    from_step: CountOrZero
    """Optimizer steps that are completed before."""
    global_sequences: Count
    """Samples of one optimizer step."""


class TestJob(Record, frozen=True, kw_only=True):
    """The job that the stack trains; model and data are its own, small enough for steps of a few milliseconds."""

    num_ranks: Count = 2
    """Processes that train; the stack divides them over its parallelism dimensions as it likes."""
    num_hosts: Count = 1
    """Hosts that the ranks are divided over, in equal parts; their names need no machine of their own."""
    num_steps: Count = 60
    """Optimizer steps in all."""
    global_sequences: Count = 8
    """Samples of one optimizer step."""
    samples_per_epoch: Count = 4000
    """Samples of the data set: each is consumed once before any is consumed again."""
    sample_order: Literal["any", "sequential"] = "any"
    """`sequential` asks for the samples in the order of their numbers, from 0 on, in each epoch."""
    accumulation_steps: Count = 1
    """Micro-batches of one rank in one optimizer step."""
    checkpoint_interval_steps: Count = 10
    """Optimizer steps between saves."""
    num_kept: Count = 3
    """Checkpoints that are kept."""
    asynchronous_saves: bool = False
    """Whether training continues while a save is written."""
    step_seconds: Seconds = 0.05
    """Least time of a step: a stack that is quicker sleeps for the rest."""
    seed: CountOrZero = 7
    """Of weights, data order and random states."""
    precision: Literal["fp32", "bf16", "fp16"] = "fp32"
    """Number format of computation."""
    compression: Literal["none", "fp16", "bf16", "power-sgd", "top-k"] = "none"
    """Compression of gradients that the stack uses."""
    batch_ramp: tuple[RampStage, ...] = ()
    """Stages of a batch ramp, each with the step that it begins at."""
    evaluation_interval_steps: Count | None = None
    """Optimizer steps between evaluations."""
    rebalance_interval_steps: Count | None = None
    """Optimizer steps between measurements of speed, by which samples are shared anew."""
    gradient_noise_half_life_steps: Annotated[float, Meta(ge=1, le=1e7)] | None = None
    """Optimizer steps after which a reading of gradient noise counts half; absent asks for no such reading."""
    peak_flops_per_second: AcceleratorFlopsPerSecond | None = None
    """Peak of one rank by which utilisation is divided; absent asks for no utilisation."""
    learning_rate_factor: Annotated[float, Meta(ge=0, le=1)] = 1
    """By which the learning rate of each optimizer step is multiplied; 0 leaves the parameters as they are."""
    dropout: Annotated[float, Meta(ge=0, lt=1)] = 0
    """Share of activations that are set to zero by a random state of each rank."""
    faults: tuple[Fault, ...] = ()
    """Faults that the stack causes in itself during the run."""


class TaskHost(Record, frozen=True, kw_only=True):
    """A host with a network, a clock or a disk of its own, on which ranks have to run."""

    name: Name
    """Name that its ranks report as their host."""
    address: Text
    """Under which other hosts reach it, in version 4 of the internet protocol."""
    interface: Text
    """Network interface that has the address."""
    enter: Command
    """Words before a command that make it run there, with all variables of the caller."""


class Task(Record, frozen=True, kw_only=True, tag_field="kind", tag="ConformanceTask"):
    """Task that the suite gives to a stack, as the file `{task}` in JSON."""

    apiVersion: Literal["trainspec/v1"]  # noqa: N815
    """Version of the document format."""
    run: Name
    """Run that the records of all attempts carry, chosen by the suite."""
    attempt: CountOrZero
    """Number of this start: the least attempt that its records may carry."""
    resume: bool
    """Whether to continue from the newest checkpoint that can be trusted; from nothing only if there is none at all."""
    trace_directory: Text
    """Directory for files of trace records, one for each process."""
    stream_directory: Text
    """Directory for metric streams; also in the variable TRAINSPEC_RUN."""
    checkpoint_directory: Text
    """Directory that saves go to and restores come from."""
    job: TestJob
    """Model that is trained."""
    hosts: tuple[TaskHost, ...] = ()
    """Hosts of the job, in the order of ranks; none where all ranks run where the command does."""
    address: Text = "127.0.0.1"
    """Under which hosts reach the one that the command runs on, which is none of them."""
