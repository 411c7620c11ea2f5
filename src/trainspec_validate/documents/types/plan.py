"""Declares the TrainingPlan: what a job is going to do on a cluster."""

from __future__ import annotations

from typing import Annotated, Literal

import msgspec
from msgspec import Meta

from trainspec_validate.documents.types.adapters import Lora
from trainspec_validate.documents.types.base import (
    AcceleratorFlopsPerSecond,
    Count,
    Extensions,
    FlopsPerSecond,
    Fraction,
    KeyPath,
    Metadata,
    Name,
    Parameters,
    PositiveSeconds,
    Record,
    Reference,
    SoftwareComponent,
    Source,
    Text,
    Tokens,
)
from trainspec_validate.documents.types.batch import Batch
from trainspec_validate.documents.types.communication import Communication
from trainspec_validate.documents.types.data import Data, InitialCheckpoint, Rollout
from trainspec_validate.documents.types.hardware import NumberFormat
from trainspec_validate.documents.types.memory import Memory
from trainspec_validate.documents.types.model import Model
from trainspec_validate.documents.types.optimizer import Optimizer
from trainspec_validate.documents.types.parallelism import Parallelism, Synchrony
from trainspec_validate.documents.types.precision import KernelFloor, Precision

# Metrics rarer than every five minutes or thousand steps show nothing while it happens.
MetricSteps = Annotated[int, Meta(ge=1, le=1000)]


class Job(Record, frozen=True, kw_only=True):
    """How long the job runs."""

    num_steps: Count | None = None
    """Optimizer steps from the first to the last of the job."""
    num_tokens: Tokens | None = None
    """Tokens that the job trains on, with repetitions counted again."""
    planned_seconds: PositiveSeconds | None = None
    """Planned duration without failures."""
    seed: Annotated[int, Meta(ge=0, le=2**63 - 1)] | None = None
    """Number that random generators start from, such as those of initial weights and data order."""


class Performance(Record, frozen=True, kw_only=True):
    """Predicted or published speed of the whole job."""

    kind: Literal["predicted", "measured", "published"]
    """Where the figures come from."""
    step_seconds: PositiveSeconds | None = None
    """Time of one optimizer step."""
    tokens_per_second: Annotated[float, Meta(gt=0, le=1e13)] | None = None
    """Tokens of the whole job per second."""
    tokens_per_second_per_accelerator: Annotated[float, Meta(gt=0, le=1e9)] | None = None
    """Tokens per second and rank; an accelerator that carries two ranks counts twice."""
    samples_per_second: Annotated[float, Meta(gt=0, le=1e12)] | None = None
    """Samples of the whole job per second, such as images, for models without tokens."""
    flops_per_sample: Annotated[float, Meta(gt=0, le=1e24)] | None = None
    """Model operations of one sample, forward and backward, for models without tokens."""
    model_flops_per_second_per_accelerator: AcceleratorFlopsPerSecond | None = None
    """Model operations per second and rank."""
    model_flops_per_second: FlopsPerSecond | None = None
    """Model operations per second of the whole job."""
    flops_per_token: Annotated[float, Meta(gt=0, le=1e18)] | None = None
    """Model operations of one token, forward and backward."""
    flops_convention: (
        Literal[
            "6n-full-attention",
            "6n-causal-attention",
            "6n",
            "palm",
            "megatron-2021-hardware",
            "megatron-2022-model",
            "framework",
        ]
        | None
    ) = None
    """How operations are counted; a utilisation without it compares with nothing."""
    model_flops_utilisation: Fraction | None = None
    """Model operations per second over the peak."""
    hardware_flops_utilisation: Fraction | None = None
    """Operations done, recomputation included, per second over the peak."""
    peak_flops_per_second: AcceleratorFlopsPerSecond | None = None
    """Dense peak of one rank, which utilisations refer to."""
    peak_format: NumberFormat | None = None
    """Number format of that peak."""
    matmul_fraction: Fraction | None = None
    """Best measured matrix product over the peak, in the same run."""
    data_stall_fraction: Fraction | None = None
    """Share of a step that waits for input, by comparison with synthetic input."""
    data_stall_method: Literal["differential", "stopwatch"] | None = None
    """How the stall was found."""
    sources: tuple[Source, ...] = ()
    """Where published figures come from."""


class Energy(Record, frozen=True, kw_only=True):
    """How energy and carbon of the job are accounted."""

    boundary: Annotated[
        Literal["device", "node", "node-and-network", "facility"],
        Meta(extra_json_schema={"x-requirement": "TS-NRG-001"}),
    ]
    """Parts of the machine that are inside the account."""
    method: Annotated[
        Literal["counter", "sampled", "estimated"], Meta(extra_json_schema={"x-requirement": "TS-NRG-001"})
    ]
    """How energy is found."""
    sample_interval_seconds: Annotated[float, Meta(ge=0.02, le=86400, extra_json_schema={"x-unit": "s"})] | None = None
    """Median time between samples."""
    max_gap_seconds: Annotated[float, Meta(ge=0.02, le=864000, extra_json_schema={"x-unit": "s"})] | None = None
    """Longest time without a sample."""
    coverage: Fraction | None = None
    """Share of devices and time that is covered."""
    missing_samples: Literal["null", "zero", "last-value"] | None = None
    """Value that a missing sample is recorded as."""
    device_identity: Literal["uuid", "serial", "pci-address", "index"] | None = None
    """How a meter is tied to its device; a PCI address together with the name of its host."""
    counter_resets: Literal["declared", "undeclared", "none"] | None = None
    """Whether a falling counter is explained."""
    expected_joules_per_token: Annotated[float, Meta(gt=0, le=1e6)] | None = None
    """Predicted energy of one token inside the boundary."""
    expected_energy_joules: Annotated[float, Meta(gt=0, le=1e18)] | None = None
    """Predicted energy of the job inside the boundary."""
    report_carbon: bool = False
    """True when carbon is reported; the cluster then states intensity and basis."""


class Telemetry(Record, frozen=True, kw_only=True):
    """Which metrics the job emits, and how often."""

    profile: Literal["core", "full"]
    """Set of metrics."""
    step_interval: MetricSteps = 1
    """Steps between step metrics."""
    device_interval_seconds: Annotated[float, Meta(ge=0.02, le=300, extra_json_schema={"x-unit": "s"})] | None = None
    """Time between device metrics; counters of devices change every 20 milliseconds at most."""
    network_interval_seconds: Annotated[float, Meta(ge=0.001, le=300, extra_json_schema={"x-unit": "s"})] | None = None
    """Time between network metrics; congestion is watched by the millisecond."""
    gradient_interval_steps: MetricSteps | None = None
    """Steps between gradient statistics."""
    sink: Name | None = None
    """Where the stream goes."""


class TrainingPlan(Record, frozen=True, kw_only=True, tag_field="kind", tag="TrainingPlan"):
    """A training job: model, parallelism, batch, precision, communication, memory and what is expected of it."""

    apiVersion: Literal["trainspec/v1"]  # noqa: N815 - the key that selects the schema, spelled as other ecosystems do
    """Version of the document format."""
    metadata: Metadata
    """Identity of the document."""
    cluster: Reference | None = None
    """Cluster that the plan is for."""
    node_group: Name | None = None
    """Node group of the cluster that the job runs on; needed when there are several."""
    model: Model
    """Model that is trained."""
    parallelism: Parallelism
    """How the work is divided."""
    batch: Batch
    """How much data one step takes."""
    precision: Precision
    """Number formats."""
    framework: SoftwareComponent | None = None
    """Training framework that runs the plan. Predictions take its kernels and overlap where the plan states none;
    absent means those of an unnamed recent framework."""
    optimizer: Optimizer | None = None
    """How gradients become updates, and the state kept for it; absent means Adam: two moments of each trained
    parameter in `precision.optimizer_state`."""
    data: Data | None = None
    """Datasets that are read, and their order."""
    initial_checkpoint: InitialCheckpoint | None = None
    """Checkpoint that the job starts from; absent means random parameters, or that the plan does not say."""
    rollout: Rollout | None = None
    """Generation of the samples of reinforcement learning."""
    communication: Communication | None = None
    """How ranks communicate."""
    memory: Memory | None = None
    """Which data is where."""
    kernels: tuple[KernelFloor, ...] = ()
    """Least efficiency of kernels."""
    synchrony: Synchrony = Synchrony()
    """Whether replicas step together."""
    telemetry: Telemetry | None = None
    """Metrics and cadence."""
    energy: Energy | None = None
    """Energy and carbon account."""
    job: Job | None = None
    """How long the job runs."""
    performance: Performance | None = None
    """Predicted or published speed."""
    num_parameters_trained: Parameters | None = None
    """Parameters that receive gradients; absent means all, or those of the adapters of `lora`."""
    lora: Lora | None = None
    """Low-rank adapters; the parameters of the model are then frozen."""
    notes: Text | None = None
    """Anything a reader should know."""
    unknowns: tuple[KeyPath, ...] = ()
    """Keys that are absent because their values are not known, such as `parallelism.context`; requirements that need
    one are not judged, and no default takes its place."""
    extensions: Extensions = msgspec.field(default_factory=dict)
    """Vendor data, keyed by reverse domain name."""
