"""Turns documents into the plain numbers that a prediction starts from."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass

from trainspec_validate.documents.types import ClusterProfile, TrainingPlan
from trainspec_validate.documents.types.fabric import Fabric
from trainspec_validate.documents.types.model import Model
from trainspec_validate.documents.types.optimizer import Optimizer
from trainspec_validate.documents.types.precision import Precision
from trainspec_validate.performance.costs.kernel_efficiency import TPU_MATMUL_FRACTION, matmul_fraction
from trainspec_validate.performance.costs.layout import Layout
from trainspec_validate.performance.costs.memory import FORMAT_BYTES, ModelState, model_state
from trainspec_validate.performance.costs.transformer import Shape
from trainspec_validate.performance.derived.job import JobNodes, find_job_nodes, job_network
from trainspec_validate.performance.derived.machine import machine_of_group
from trainspec_validate.performance.derived.optimizer import optimizer_state
from trainspec_validate.performance.derived.plan import compute_formats, computed_shape_of, is_transformer
from trainspec_validate.performance.derived.state import STAGES
from trainspec_validate.performance.derived.trained import Trained, num_parameters
from trainspec_validate.performance.topology.graph import Topology, topology_of

USUAL_MATMUL_SHARE = 0.7
"""Share of the dense peak that the best matrix product reaches where none was measured; the measured ones of the
accelerator table are between 0.51 and 0.97 with a median of 0.78 (stas00/ml-engineering@744d01e1)."""


class Unpredictable(Exception):  # noqa: N818 - an answer, not an error
    """The documents lack what a prediction needs, or no formula covers what they state; the text says which."""

    def __init__(self, words: str, *, is_uncovered: bool = False) -> None:
        super().__init__(words)
        self.is_uncovered = is_uncovered


def is_tpu(accelerator: str) -> bool:
    """Whether an accelerator is a TPU, for which XLA compiles the whole step."""
    return accelerator.startswith("google-tpu")


@dataclass(frozen=True, slots=True)
class MachineFacts:
    """The part of a cluster that a job runs on; figures are those of one rank."""

    topology: Topology
    memory_bytes: float
    peak_flops_per_second: Mapping[str, float]
    """Dense peak by number format."""
    accelerator: str
    """Its name in the catalog, or the document's own."""
    memory_bandwidth_bytes_per_second: float
    host_bytes_per_second: float | None
    is_mixed: bool = False
    """Whether faster nodes of other kinds are among the ranks, which no measured run had."""

    def peak(self, formats: tuple[str, ...]) -> tuple[str, float]:
        """The first of these formats whose peak is known, with the peak.

        Raises:
            Unpredictable: none is.
        """
        for name in formats:
            if name in self.peak_flops_per_second:
                return name, self.peak_flops_per_second[name]
        known = ", ".join(sorted(self.peak_flops_per_second))
        raise Unpredictable(f"{self.accelerator} has no peak rate for {formats[0]}, only for {known}")

    @property
    def wide_peak(self) -> float | None:
        """Dense peak in 16 bits, which attention runs in; None where it is not known."""
        return self.peak_flops_per_second.get("bf16") or self.peak_flops_per_second.get("fp16")

    def matmul_share(self, number_format: str) -> tuple[float, bool]:
        """Best matrix product over the dense peak, and whether it was measured on this accelerator.

        A format that was not measured on a TPU gets as close to its peak there as 16 bits do, where those were.
        """
        tpu = is_tpu(self.accelerator)
        for known in (number_format, "bf16") if tpu else (number_format,):
            with suppress(ValueError):
                return matmul_fraction(self.accelerator, known), known == number_format
        return TPU_MATMUL_FRACTION if tpu else USUAL_MATMUL_SHARE, False


@dataclass(frozen=True, slots=True)
class ModelFacts:
    """Model and formats that are trained."""

    shape: Shape
    num_parameters: float
    state: ModelState
    compute_formats: tuple[str, ...]
    """Names of the number format of matrix products, the nearest first."""
    reduction_bytes: float
    """Bytes of one gradient entry when it travels."""
    parameter_bytes: float
    """Bytes of one weight when it is gathered."""
    trained_share: float = 1.0
    """Trained parameters, adapters among them, over those of the model."""
    has_adapters: bool = False
    """Whether adapters are what is trained."""
    is_causal: bool = True
    """Whether no token attends to later ones, as step times count attention."""


def machine_facts(cluster: ClusterProfile, nodes: JobNodes, fabric: Fabric | None, num_ranks: int) -> MachineFacts:
    """Figures of the first `num_ranks` ranks of a node group, declared ones before those of the catalog.

    Raises:
        Unpredictable: memory, its bandwidth or the peak rate of the accelerator is known neither from the document
            nor from the catalog.
    """
    known = machine_of_group(cluster, nodes.index)
    own = nodes.group.accelerator
    memory, memory_rate = known.memory_bytes_per_rank, known.memory_bytes_per_second_per_rank
    if memory is None or memory_rate is None or not known.peak_rates:
        figures = (
            ("memory", "memory_bytes", memory),
            ("memory bandwidth", "memory_bandwidth_bytes_per_second", memory_rate),
            ("peak rate", "peak_rates", known.peak_rates),
        )
        words, keys = zip(*((word, key) for word, key, value in figures if not value), strict=True)
        place = f"node_groups[{nodes.index}].accelerator"
        lacking = f"the {' and '.join(words)} of {own.model} {'is' if len(words) == 1 else 'are'} not known"
        raise Unpredictable(f"{lacking}; state {' and '.join(keys)} in {place}")
    return MachineFacts(
        topology=topology_of(cluster, nodes, fabric, num_ranks),
        memory_bytes=memory,
        peak_flops_per_second={name: rate / own.num_ranks_per_accelerator for name, rate in known.peak_rates.items()},
        accelerator=own.model,
        memory_bandwidth_bytes_per_second=memory_rate,
        host_bytes_per_second=known.host_bytes_per_second_per_rank,
    )


def machine_of(plan: TrainingPlan, cluster: ClusterProfile) -> MachineFacts:
    """The machine that a plan runs on.

    Raises:
        Unpredictable: the plan does not say where it runs, or a figure is not known.
    """
    nodes = find_job_nodes(plan, cluster)
    if nodes is None:
        raise Unpredictable("the plan does not say which node group it runs on")
    try:
        nodes, network = job_network(plan, cluster, nodes)
    except ValueError as error:
        raise Unpredictable(str(error)) from error
    return machine_facts(cluster, nodes, network, plan.parallelism.num_accelerators)


def model_facts(
    model: Model, precision: Precision, optimizer: Optimizer | None = None, trained: Trained | None = None
) -> ModelFacts:
    """Shape and formats of what is trained, by default all parameters; state is averaged over those of the model.

    Raises:
        Unpredictable: the model is no transformer with attention between positions, or its shape is incomplete.
    """
    shape = _shape(model)
    gradients = precision.accumulation or precision.gradients
    parts = trained or Trained(num_parameters(model), 0.0, 0.0)
    share = parts.num_trained / model.num_parameters
    state = model_state(precision.parameters, precision.master_parameters, gradients, "fp32", 0)
    moments = optimizer_state(optimizer, precision, model, parts.num_trained).num_bytes
    return ModelFacts(
        shape=shape,
        num_parameters=model.num_parameters,
        state=ModelState(
            weights=state.weights * share + parts.frozen_bytes * parts.num_frozen / model.num_parameters,
            master=state.master * share,
            gradients=state.gradients * share,
            moments=moments * share,
        ),
        trained_share=min(1.0, share) if parts.num_frozen else 1.0,
        has_adapters=parts.has_adapters,
        is_causal=not model.bidirectional_attention,
        compute_formats=compute_formats(precision),
        reduction_bytes=FORMAT_BYTES[precision.reduction],
        parameter_bytes=FORMAT_BYTES[precision.parameters],
    )


def _shape(model: Model) -> Shape:
    if not is_transformer(model):
        words = f"{model.name} is of the family {model.family}, for which there is no model of step time and memory"
        raise Unpredictable(words, is_uncovered=True)
    if model.attention in {"linear", "none"}:
        words = f"{model.name} has attention: {model.attention}, for which there is no model of step time and memory"
        raise Unpredictable(words, is_uncovered=True)
    shape = computed_shape_of(model)
    if shape is None:
        raise Unpredictable(f"the shape of {model.name} is not that of a complete transformer")
    return shape


def layout_of(plan: TrainingPlan) -> Layout:
    """How a plan divides its work.

    Raises:
        Unpredictable: groups of replicas step apart, the plan states no sequence length, or counts that contradict
            each other, or it shards over some of the context ranks of a sequence only.
    """
    p, length = plan.parallelism, plan.model.sequence_length
    if plan.synchrony.mode == "local-update":
        words = "groups of data ranks step apart, and their exchanges are not predicted"
        raise Unpredictable(words, is_uncovered=True)
    if length is None:
        raise Unpredictable("the plan states no sequence length")
    # A plan counts the context ranks among those that share a copy (TS-PAR-004), a layout does not.
    sharding_degree, rest = divmod(p.sharding_degree, p.context) if p.sharding_degree else (None, 0)
    if rest:
        raise Unpredictable(f"{p.sharding_degree} ranks share a copy, which {p.context} context ranks do not divide")
    try:
        return Layout(
            data=p.data,
            tensor=p.tensor,
            pipeline=p.pipeline,
            context=p.context,
            expert=p.expert,
            expert_tensor=p.expert_tensor,
            sequence_parallel=bool(p.sequence),
            schedule=p.schedule or "1f1b",
            num_virtual_stages=p.num_virtual_stages,
            stage_layers=p.stage_layers,
            sharding_stage=STAGES[p.sharding],
            sharding_degree=sharding_degree,
            micro_sequences=plan.batch.micro_sequences,
            num_micro_batches=plan.batch.accumulation_steps,
            sequence_length=length,
        )
    except ValueError as error:
        raise Unpredictable(str(error)) from error
