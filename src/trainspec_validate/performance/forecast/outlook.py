"""Predicts one step of one layout on one machine: its memory, its time, its collectives."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Literal

from trainspec_validate.performance.costs import collectives
from trainspec_validate.performance.costs.activations import ActivationPolicy
from trainspec_validate.performance.costs.collectives import Estimate
from trainspec_validate.performance.costs.eager import EAGER_LOSS_BYTES_PER_LOGIT, foreach_bytes_per_parameter
from trainspec_validate.performance.costs.kernel_efficiency import AttentionKernel, Generation
from trainspec_validate.performance.costs.layout import Layout
from trainspec_validate.performance.costs.memory_overheads import XLA, Overheads
from trainspec_validate.performance.costs.model_flops import model_flops_utilisation
from trainspec_validate.performance.costs.network import Network
from trainspec_validate.performance.costs.rank_memory import RankMemory, peak
from trainspec_validate.performance.costs.software import DEFAULT, Software
from trainspec_validate.performance.costs.step_compute import CALIBRATION, Calibration
from trainspec_validate.performance.costs.step_errors import ErrorBand, band_of, family_of
from trainspec_validate.performance.costs.step_time import (
    StepTime,
    Work,
    least_seconds,
    seconds_of,
    step_time,
)
from trainspec_validate.performance.costs.step_traffic import Transfer, transfers
from trainspec_validate.performance.costs.transformer import parameters
from trainspec_validate.performance.forecast.facts import MachineFacts, ModelFacts, is_tpu
from trainspec_validate.performance.forecast.spans import axis_networks
from trainspec_validate.performance.topology.networks import RankOrder

Recompute = Literal["none", "selective", "full"]
GATHERED_GRADIENT_BYTES = Overheads().gathered_gradient_bytes
DEFAULT_ORDER = ("tensor", "context", "expert", "data", "pipeline")
WIDE_FORMATS = frozenset({"fp64", "fp32", "tf32", "bf16", "fp16"})
"""Formats of products that take inputs of 16 bits or more; narrower ones are made from 16 bits."""
MIXED = "node groups of several kinds"
"""The family of jobs on nodes of which some are slower, of which no run was measured."""
_NEWER = ("nvidia-h", "nvidia-b", "nvidia-gb")
_OLDER = ("nvidia-a100", "nvidia-v100", "google-tpu-v4", "google-tpu-v5", "intel-gaudi2", "amd-mi250")
"""Accelerators whose attention runs closer to the measured share of A100 than to that of H100."""


@dataclass(frozen=True, slots=True)
class Settings:
    """Facts of a plan besides its layout that a prediction needs."""

    recompute: Recompute = "selective"
    order: tuple[str, ...] = DEFAULT_ORDER
    """Axes from adjacent ranks outwards."""
    rank_order: RankOrder = "topology"
    software: Software = DEFAULT
    """Kernels and overlap of the framework, with what the plan itself states of them."""
    framework_named: bool = False
    """Whether a framework is named whose kernels and overlap are known."""
    overlap_gradients: bool = True
    overlap_parameters: bool = True
    data_stall_seconds: float = 0.0
    implementation_factor: float = 1.0
    """Factor of the activations that code keeps of a layer over the formula."""
    offloaded_parameters: float = 0.0
    offloaded_gradients: float = 0.0
    offloaded_optimizer: float = 0.0
    offloaded_activations: float = 0.0
    overheads: Overheads = field(default_factory=Overheads)
    """Memory that the allocator and the runtime of the accelerator add to the tensors."""

    @property
    def fused_attention(self) -> bool:
        """Whether attention keeps no scores."""
        return self.software.attention != "unfused"


@dataclass(frozen=True, slots=True)
class PlannedCollective:
    """One kind of message of a rank with the estimate of its time."""

    transfer: Transfer
    network: Network
    estimate: Estimate


@dataclass(frozen=True, slots=True)
class Outlook:
    """Prediction of the time of one step."""

    step: StepTime
    utilisation: float
    """Model operations over the peak, with causal attention and without the input table."""
    peak_format: str
    peak_flops_per_second: float
    matmul_measured: bool
    """Whether the speed of matrix products was measured on this accelerator; otherwise a usual share is used."""
    tokens_per_second: float
    family: str
    """Kind of job, by which errors of the model are known."""
    framework_named: bool

    @property
    def band(self) -> ErrorBand | None:
        """How far measured steps of the family were from predicted ones; None where no run of it was measured."""
        return band_of(self.family, named=self.framework_named)

    @property
    def low_seconds(self) -> float | None:
        """One measured run in ten of this family was faster than this, relative to its prediction."""
        return self.step.seconds * self.band.low if self.band else None

    @property
    def high_seconds(self) -> float | None:
        """One measured run in ten of this family was slower than this, relative to its prediction."""
        return self.step.seconds * self.band.high if self.band else None

    @property
    def exposed_share(self) -> float:
        """Share of a step that waits for communication."""
        return sum(self.step.exposed_seconds.values()) / self.step.seconds


def memory_of_stage(model: ModelFacts, layout: Layout, settings: Settings) -> tuple[int, RankMemory]:
    """The fullest pipeline stage and the bytes of one of its ranks.

    Raises:
        ValueError: the layers do not fit the stages, or the schedule has no formula.
    """
    return peak(model.shape, layout, model.state, *memory_policy(model, settings))


def memory_policy(model: ModelFacts, settings: Settings) -> tuple[ActivationPolicy, Overheads]:
    """Activations that are kept in every layout with these settings, and what an implementation adds to them."""
    eager = eager_bytes(model, settings.software)
    policy = ActivationPolicy(
        settings.software.selective_keeps if settings.recompute == "selective" else settings.recompute,
        fused_attention=settings.fused_attention,
        implementation_factor=settings.implementation_factor,
        loss_bytes_per_logit=EAGER_LOSS_BYTES_PER_LOGIT if eager else settings.overheads.loss_bytes_per_logit,
        eager_bytes=eager,
    )
    overheads = settings.overheads
    if eager:
        cached = 2.0 if eager > 2 else 0.0
        overheads = replace(overheads, gradients_come_late=True, optimizer_copies=1.0, cached_copy_bytes=cached)
    overheads = replace(
        overheads,
        gathered_gradient_bytes=GATHERED_GRADIENT_BYTES * model.trained_share,
        offloaded_parameters=settings.offloaded_parameters,
        offloaded_gradients=settings.offloaded_gradients,
        offloaded_optimizer=settings.offloaded_optimizer,
        offloaded_activations=settings.offloaded_activations,
    )
    return policy, overheads


def eager_bytes(model: ModelFacts, software: Software) -> int:
    """Bytes of a number between layers that run operation by operation; 0 where no such count holds.

    There is none for mixtures of experts, and none for products that are not of 16 bits.
    """
    if not software.eager or model.shape.num_experts or model.compute_formats[0] not in {"bf16", "fp16"}:
        return 0
    return 4 if model.state.weights > 2 else 2


def overheads_of(accelerator: str) -> Overheads:
    """Memory on an accelerator besides tensors."""
    return XLA if is_tpu(accelerator) else Overheads()


def _generation(accelerator: str) -> Generation:
    return "ampere" if accelerator.startswith(_OLDER) else "hopper"


def _kernel(accelerator: str) -> AttentionKernel:
    """The fastest fused attention that is usual on an accelerator: the third FlashAttention is for Hopper and later."""
    return "flash-3" if accelerator.startswith(_NEWER) else "flash-2"


def _optimizer_bytes(model: ModelFacts) -> float:
    """Bytes that the optimizer moves for a parameter: gradient read, own state read and written, weight written."""
    state = model.state
    weights = state.weights if model.trained_share == 1 else model.trained_share * model.parameter_bytes
    return state.gradients + 2 * state.optimizer + weights * (1 if state.master else 2)


def _gathered_bytes(model: ModelFacts, layout: Layout) -> float:
    """Bytes of a weight that a gather sends: of all that are sharded, else of those that the optimizer changes."""
    if model.trained_share < 1 and layout.sharding_stage == 3:
        return model.state.weights
    return model.trained_share * model.parameter_bytes


def work_of(model: ModelFacts, machine: MachineFacts, layout: Layout, settings: Settings) -> Work:
    """The step as one rank of the machine sees it.

    Raises:
        Unpredictable: no peak rate is known for the format.
    """
    (name, rate), software = machine.peak(model.compute_formats), settings.software
    return Work(
        shape=model.shape,
        layout=layout,
        peak_flops_per_second=rate,
        memory_bandwidth_bytes_per_second=machine.memory_bandwidth_bytes_per_second,
        matmul_fraction=machine.matmul_share(name)[0],
        generation=_generation(machine.accelerator),
        attention_peak_flops_per_second=machine.wide_peak,
        narrow=name not in WIDE_FORMATS,
        tpu=is_tpu(machine.accelerator),
        output_matmul_fraction=machine.matmul_share("bf16")[0],
        fused_attention=settings.fused_attention,
        attention_kernel=software.attention or _kernel(machine.accelerator),
        recompute=settings.recompute,
        recomputed_share=software.selective_share if settings.recompute == "selective" else None,
        overlap_tensor=software.overlap_tensor,
        overlap_expert=software.overlap_expert,
        overlap_input_gradients=software.overlap_input_gradients,
        overlap_pipeline=software.overlap_pipeline,
        overlap_warm_up=software.overlap_warm_up,
        fused_accumulation=software.fused_accumulation,
        loss_bytes_per_entry=software.loss_bytes_per_entry,
        overlap_gradients=settings.overlap_gradients,
        overlap_parameters=settings.overlap_parameters,
        data_stall_seconds=settings.data_stall_seconds,
        optimizer_bytes_per_parameter=foreach_bytes_per_parameter(model.state)
        if eager_bytes(model, software)
        else _optimizer_bytes(model),
        eager_bytes=eager_bytes(model, software),
        gradient_bytes=model.reduction_bytes,
        parameter_bytes=_gathered_bytes(model, layout),
        trained_share=model.trained_share,
    )


def networks_of(machine: MachineFacts, layout: Layout, settings: Settings) -> Mapping[str, Network]:
    """The network of the groups of every axis with several ranks; see `spans.axis_networks`."""
    return axis_networks(machine.topology, layout, settings.order, settings.rank_order)


def outlook(
    model: ModelFacts,
    machine: MachineFacts,
    layout: Layout,
    settings: Settings,
    calibration: Calibration = CALIBRATION,
) -> Outlook:
    """Time and utilisation of one step; another calibration than the fitted one serves to fit it.

    Raises:
        Unpredictable: no peak rate is known for the format.
        ValueError: the layout does not fit the model or the machine.
    """
    work = work_of(model, machine, layout, settings)
    step = step_time(work, networks_of(machine, layout, settings), seconds_of, calibration)
    name, rate = machine.peak(model.compute_formats)
    tokens = layout.data * layout.micro_sequences * layout.num_micro_batches * layout.sequence_length
    return Outlook(
        step=step,
        utilisation=_utilisation(model, layout, step.seconds, rate),
        peak_format=name,
        peak_flops_per_second=rate,
        matmul_measured=machine.matmul_share(name)[1],
        tokens_per_second=tokens / step.seconds,
        framework_named=settings.framework_named,
        family=_family(model, machine, layout, narrow=name not in WIDE_FORMATS),
    )


def _family(model: ModelFacts, machine: MachineFacts, layout: Layout, *, narrow: bool) -> str:
    if machine.is_mixed:
        return MIXED
    return family_of(
        machine.accelerator, model.shape, narrow=narrow, num_ranks=layout.num_ranks, has_adapters=model.has_adapters
    )


def most_tokens_per_second(model: ModelFacts, machine: MachineFacts, num_ranks: int, sequence_length: int) -> float:
    """Tokens per second of ranks that do nothing but model operations at their peak rate: no layout has more.

    Raises:
        Unpredictable: no peak rate is known for the format.
    """
    alone = Layout(sequence_length=sequence_length)
    share = _utilisation(model, alone, 1.0, machine.peak(model.compute_formats)[1])
    return num_ranks * sequence_length / share


def _utilisation(model: ModelFacts, layout: Layout, seconds: float, rate: float) -> float:
    """Share of the peak that model operations take, without the two of six that give gradients of frozen weights."""
    shape, tokens = model.shape, layout.micro_batch_tokens * layout.context * layout.num_micro_batches * layout.data
    tables = 0 if shape.tied_embeddings else shape.embedding_parameters
    frozen = 2 * (1 - model.trained_share) * (parameters(shape).active - tables) * tokens
    return model_flops_utilisation(shape, layout, seconds, rate) - frozen / (seconds * layout.num_ranks * rate)


def least_seconds_of(model: ModelFacts, machine: MachineFacts, layout: Layout, settings: Settings) -> float:
    """Seconds below which no sharding brings a step of a layout, with its recomputation.

    Raises:
        Unpredictable: no peak rate is known for the format.
        ValueError: the layout does not fit the model or the machine.
    """
    plain = replace(layout, sharding_stage=0, sharding_degree=None)
    lean = replace(settings, software=replace(settings.software, fused_accumulation=True))
    return least_seconds(work_of(model, machine, plain, lean), networks_of(machine, plain, lean))


def planned_collectives(
    model: ModelFacts, machine: MachineFacts, layout: Layout, settings: Settings
) -> tuple[PlannedCollective, ...]:
    """Every kind of message of a rank with the estimate of the collective that a well-tuned library would pick.

    Raises:
        ValueError: the layout does not fit the machine.
    """
    work, networks = work_of(model, machine, layout, settings), networks_of(machine, layout, settings)
    sent = transfers(
        model.shape,
        layout,
        gradient_bytes=work.trained_share * work.gradient_bytes,
        parameter_bytes=work.parameter_bytes,
    )
    return tuple(
        PlannedCollective(item, network, collectives.best(item.operation, item.message_bytes, network))
        for item in sent
        # Experts that no rank splits have the groups of all other weights, as in `step_time`.
        for network in (networks.get(item.axis) or (networks.get("data") if item.axis == "expert-data" else None),)
        if network is not None
    )
