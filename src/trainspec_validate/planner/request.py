"""Turns a cluster, a model and options into a goal, and notes every assumption that this takes."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from math import log2
from typing import Literal

from trainspec_validate.documents.types import ClusterProfile, TrainingPlan, changed
from trainspec_validate.documents.types.adapters import Lora
from trainspec_validate.documents.types.base import SoftwareComponent
from trainspec_validate.documents.types.fabric import Fabric
from trainspec_validate.documents.types.model import Model
from trainspec_validate.documents.types.precision import FrozenFormat, LossScaling, LowPrecisionRecipe, Precision
from trainspec_validate.model.catalog import models
from trainspec_validate.model.units import bytes_, number
from trainspec_validate.performance.costs.software import RELEASES, is_known, is_version, release_of
from trainspec_validate.performance.derived.groups import choose
from trainspec_validate.performance.derived.job import JobNodes
from trainspec_validate.performance.derived.trained import trained_of, with_adapters
from trainspec_validate.performance.forecast.facts import MachineFacts, ModelFacts, is_tpu, machine_facts, model_facts
from trainspec_validate.performance.forecast.gaps import gaps
from trainspec_validate.performance.forecast.joint import joint_of
from trainspec_validate.performance.forecast.predict import UNMASKED
from trainspec_validate.planner.constraints import FREE, Constraints
from trainspec_validate.planner.slices import no_slice
from trainspec_validate.planner.space import VOCABULARY_TILE, Goal, layouts

NumberFormat = Literal["bf16", "fp16", "fp8"]
RESERVE_BYTES = 4e9
"""Of a GPU, for its context and collectives (TS-MEM-005)."""
_LARGE_PARAMETERS = 100e9
_LARGE_BATCH_TOKENS, _BATCH_TOKENS = 16 * 2**20, 4 * 2**20
_DOUBLINGS = 6
_LONGEST_STEP_SECONDS = 15.0
"""Longer steps leave no room in 90 s for a recovery that ends with one (TS-CKP-042)."""
_LONGEST_RUN_SECONDS = 365 * 86400.0
_USUAL_UTILISATION = 0.25
"""A low one, so that few steps turn out longer."""
_TOKENS_PER_PARAMETER = 20
_MOST_OF_HOST = 0.9
"""Share of the memory of a host that tensors of its ranks may take, as page-locked memory may (TS-MEM-013)."""
_MAX_LAYERS = 10_000
"""Splits of layers over stages are written out; the deepest published model has fewer than 200."""


class Impossible(Exception):  # noqa: N818 - an answer, not an error
    """The cluster cannot be planned for; the text says what is absent or contradictory."""


@dataclass(frozen=True, slots=True)
class Wishes:
    """Request of a person; None leaves it to the planner."""

    num_ranks: int | None = None
    node_group: str | None = None
    global_sequences: int | None = None
    sequence_length: int | None = None
    num_tokens: float | None = None
    number_format: NumberFormat = "bf16"
    reserve_bytes: float | None = None
    framework: str | None = None
    """Name of the training framework, with `==` and its version where that is known."""
    constraints: Constraints = FREE
    price_per_accelerator_hour: float | None = None


@dataclass(frozen=True, slots=True)
class Adapters:
    """Low-rank adapters that are trained in place of the model's own parameters."""

    lora: Lora
    frozen_parameters: FrozenFormat | None = None
    """Format of the parameters under them; None means that of weights."""


@dataclass(frozen=True, slots=True)
class Request:
    """A job to be planned, with the documents that it comes from."""

    cluster: ClusterProfile
    nodes: JobNodes
    fabric: Fabric | None
    model: Model
    precision: Precision
    goal: Goal
    num_tokens: float
    assumptions: tuple[str, ...]
    """Facts that were neither in the documents nor asked for, in words."""
    price_per_accelerator_hour: float | None = None
    adapters: Adapters | None = None
    takes_all_groups: bool = False
    """Whether the job takes every node of several node groups; `nodes` then has all of them as one group."""
    notes: tuple[str, ...] = ()
    """Other answers than the plans, in words."""

    @property
    def num_nodes(self) -> int:
        """Nodes that the job fills."""
        return -(-self.goal.num_ranks // self.nodes.ranks_per_node)


@dataclass(frozen=True, slots=True)
class _Place:
    """The part of a cluster that a job is planned for."""

    nodes: JobNodes
    fabric: Fabric | None
    machine: MachineFacts
    takes_all_groups: bool = False


def request(
    cluster: ClusterProfile,
    model: Model,
    wishes: Wishes,
    adapters: Adapters | None = None,
    *,
    takes_all_groups: bool = False,
) -> Request:
    """The goal for a model on a node group of a cluster, or on all of its groups together.

    Raises:
        Impossible: the node group is unknown or one of several, or has too few ranks, or they cannot reach each other,
            or the reserve is all of their memory, or nothing says how long adapters are trained.
        Unpredictable: a figure of the accelerator or the shape of the model is not known, or no group of several is
            the slowest.
    """
    place = _all_groups(cluster) if takes_all_groups else _one_group(cluster, wishes)
    return _request(cluster, model, wishes, adapters, place)


def _request(
    cluster: ClusterProfile, model: Model, wishes: Wishes, adapters: Adapters | None, place: _Place
) -> Request:
    assumptions: list[str] = []
    machine, num_ranks = place.machine, place.machine.topology.num_ranks
    precision = precision_of(wishes.number_format, routed=model.experts is not None)
    facts = _facts(model, precision, wishes, adapters)
    model, sequence_length = _model(model, wishes, assumptions)
    reserve = usual_reserve(machine.accelerator) if wishes.reserve_bytes is None else wishes.reserve_bytes
    _refuse(machine, reserve)
    batch = _Batch(model, num_ranks, num_ranks * machine.peak(facts.compute_formats)[1])
    tokens = wishes.num_tokens or batch.usual_tokens(assumptions)
    sequences = wishes.global_sequences or batch.usual()
    asked = (num_ranks, sequences, sequence_length, reserve)
    framework = _framework(wishes.framework)
    goal = Goal(facts, machine, *asked, _host_bytes(place.nodes, num_ranks), framework, wishes.constraints)
    assumptions.extend(_software(goal))
    if not wishes.global_sequences:
        goal = _divisible(goal)
        assumptions.append(batch.told(goal.global_sequences))
    assumptions.extend(_indivisible(goal))
    _refuse_few(tokens, goal)
    return Request(
        cluster,
        place.nodes,
        place.fabric,
        model,
        precision,
        goal,
        tokens,
        tuple(assumptions),
        wishes.price_per_accelerator_hour,
        adapters,
        place.takes_all_groups,
        tuple(gaps(model)),
    )


def model_of(plan: TrainingPlan) -> tuple[Model, Adapters | None]:
    """The model of a plan, and the adapters that it trains in place of all parameters.

    Raises:
        Impossible: the plan freezes parts of the model that it does not name.
    """
    if plan.lora is not None:
        return plan.model, Adapters(plan.lora, plan.precision.frozen_parameters)
    trained = trained_of(plan)
    if trained.num_frozen:
        part = f"trains {number(round(trained.num_trained))} parameters next to {number(round(trained.num_frozen))}"
        raise Impossible(
            f"the plan {part} frozen ones, and no key says which layers they are; "
            "take num_parameters_trained out to plan a job that trains all"
        )
    return plan.model, None


def _facts(model: Model, precision: Precision, wishes: Wishes, adapters: Adapters | None) -> ModelFacts:
    if model.bidirectional_attention:
        raise Impossible(f"steps of {model.name} are not predicted: {UNMASKED}")
    if adapters is None:
        return model_facts(model, precision)
    trained = with_adapters(model, adapters.lora, adapters.frozen_parameters or precision.parameters)
    if trained is None:
        raise Impossible(f"the shape of {model.name} does not give the parameters of its adapters")
    if wishes.num_tokens is None or wishes.global_sequences is None:
        raise Impossible("no custom says how long adapters are trained; ask for --tokens and --global-sequences")
    return model_facts(model, precision, trained=trained)


def _framework(asked: str | None) -> SoftwareComponent | None:
    """The framework of a wish.

    Raises:
        Impossible: its kernels and overlap are not known.
    """
    if asked is None:
        return None
    name, stated, version = asked.partition("==")
    if not is_known(name):
        known = ", ".join(dict.fromkeys(release.name for release in RELEASES))
        raise Impossible(f"kernels and overlap of {name} are not known; known are {known}, or ask for none")
    if stated and not is_version(version):
        raise Impossible(f"{version!r} is no version of {name}; write numbers, such as {name}==0.12, or none")
    return SoftwareComponent(name=name.lower(), version=version or None)


def _one_group(cluster: ClusterProfile, wishes: Wishes) -> _Place:
    nodes = _nodes(cluster, wishes)
    num_ranks = wishes.num_ranks or nodes.num_ranks
    if num_ranks > nodes.num_ranks:
        raise Impossible(f"{number(num_ranks)} ranks are asked for, {nodes.group.name} has {number(nodes.num_ranks)}")
    fabric = _fabric(cluster, nodes)
    return _Place(nodes, fabric, machine_facts(cluster, nodes, fabric, num_ranks))


def _all_groups(cluster: ClusterProfile) -> _Place:
    joint = joint_of(cluster)
    return _Place(joint.nodes, joint.fabric, joint.machine, takes_all_groups=True)


def _host_bytes(nodes: JobNodes, num_ranks: int) -> float | None:
    """The share of a rank in the memory of its host; TS-MEM-010 would let it take all."""
    host = nodes.group.host
    if host is None or host.memory_bytes is None:
        return None
    return _MOST_OF_HOST * host.memory_bytes / min(nodes.ranks_per_node, num_ranks)


def _nodes(cluster: ClusterProfile, wishes: Wishes) -> JobNodes:
    if wishes.node_group is None and len(cluster.node_groups) > 1:
        names = ", ".join(group.name for group in cluster.node_groups)
        raise Impossible(f"{cluster.metadata.name} has several node groups; choose with --node-group: {names}")
    try:
        return choose(cluster, wishes.node_group)[0]
    except ValueError as error:
        raise Impossible(str(error)) from error


def _model(model: Model, wishes: Wishes, assumptions: list[str]) -> tuple[Model, int]:
    """The model with the sequence length that is asked for, and that length."""
    if wishes.sequence_length:
        model = changed(model, sequence_length=wishes.sequence_length)
    if model.sequence_length == 1:
        raise Impossible("a sequence of one token has nothing to predict; ask for a longer --sequence-length")
    if model.sequence_length is None:
        raise Impossible(f"{model.name} has no sequence length; ask for one")
    if (layers := model.num_layers or 0) > _MAX_LAYERS:
        raise Impossible(f"{model.name} has {number(layers)} layers; at most {number(_MAX_LAYERS)} are planned for")
    known = models().get(model.name)
    if not wishes.sequence_length and known and known.model.get("sequence_length") == model.sequence_length:
        length = f"{number(model.sequence_length)} tokens, as the catalog has {model.name}"
        assumptions.append(f"sequence: {length}; set --sequence-length")
    return model, model.sequence_length


def _fabric(cluster: ClusterProfile, nodes: JobNodes) -> Fabric | None:
    wanted = [nic.fabric for nic in nodes.group.nics if nic.role == "compute" and nic.fabric]
    found = [fabric for fabric in cluster.fabrics if fabric.name in wanted]
    if len(found) > 1:
        raise Impossible(
            f"compute NICs of {nodes.group.name} are on several fabrics: {', '.join(f.name for f in found)}"
        )
    return found[0] if found else None


def usual_reserve(accelerator: str) -> float:
    """Default of the memory of a rank that its framework's allocator leaves free.

    The memory that a GPU reports is also that of its context, 0.5 to 2 GiB, and of the collectives, 1 to 2 GiB
    (TS-MEM-005). A TPU reports what XLA leaves to programs.

    >>> usual_reserve("nvidia-h100-sxm-80gb"), usual_reserve("google-tpu-v5e")
    (4000000000.0, 0.0)
    """
    return 0.0 if is_tpu(accelerator) else RESERVE_BYTES


def _refuse(machine: MachineFacts, reserve_bytes: float) -> None:
    """Say what no layout could mend."""
    topology = machine.topology
    slices = no_slice(machine.accelerator, topology.num_ranks, topology.domain_num_ranks)
    if slices:
        raise Impossible(slices)
    joined = max(topology.domain_num_ranks, topology.ranks_per_node if topology.host else 1)
    if topology.fabric is None and topology.num_ranks > joined:
        absent = f"{topology.group} has no compute NICs on a fabric that joins its domains"
        raise Impossible(f"{absent}; ask for {number(joined)} rank{'s' if joined > 1 else ''} at most")
    if reserve_bytes >= machine.memory_bytes:
        raise Impossible(f"a reserve of {bytes_(reserve_bytes)} leaves nothing of {bytes_(machine.memory_bytes)}")


def _refuse_few(num_tokens: float, goal: Goal) -> None:
    """Say that a job has no whole optimizer step."""
    if num_tokens < goal.global_sequences * goal.sequence_length:
        step = f"{number(goal.global_sequences)} sequences of {number(goal.sequence_length)} tokens"
        few = f"{number(num_tokens)} tokens are fewer than an optimizer step takes, {step}"
        raise Impossible(f"{few}; ask for more --tokens")


@dataclass(frozen=True, slots=True)
class _Batch:
    """How large a batch is where nobody asks for a size."""

    model: Model
    num_ranks: int
    flops_per_second: float
    """Peak of all ranks together."""

    @property
    def _quick_tokens(self) -> float:
        active = self.model.num_active_parameters or self.model.num_parameters
        return _LONGEST_STEP_SECONDS * _USUAL_UTILISATION * self.flops_per_second / (6 * active)

    @property
    def _customary_tokens(self) -> int:
        return _LARGE_BATCH_TOKENS if self.model.num_parameters >= _LARGE_PARAMETERS else _BATCH_TOKENS

    def usual(self) -> int:
        """Customary tokens for the size of the model, less where a step would be long.

        The number is the odd part of the ranks times a power of two, since it has to divide over them.
        """
        wanted = max(min(self._customary_tokens, self._quick_tokens) / (self.model.sequence_length or 1), 1.0)
        odd = self.num_ranks // (self.num_ranks & -self.num_ranks)
        return odd << max(0, round(log2(wanted / odd)))

    def usual_tokens(self, assumptions: list[str]) -> float:
        """Twenty tokens for each parameter that a token uses, or what a year is enough for where that is less."""
        active = self.model.num_active_parameters or self.model.num_parameters
        wanted = _TOKENS_PER_PARAMETER * active
        year = _LONGEST_RUN_SECONDS * _USUAL_UTILISATION * self.flops_per_second / (6 * active)
        why = f"{_TOKENS_PER_PARAMETER} for each parameter that a token uses (arXiv:2203.15556)"
        if year < wanted:
            wanted, why = year, f"what a year is enough for, less than {why}"
        assumptions.append(f"length: {wanted / 1e9:,.4g} billion tokens, {why}; set --tokens")
        return wanted

    def told(self, sequences: int) -> str:
        """Where the size comes from, in words."""
        tokens = sequences * (self.model.sequence_length or 1)
        why = "near what published runs of this size use (arXiv:2407.21783)"
        if self._quick_tokens < self._customary_tokens:
            why = f"so that a step takes no more than about {_LONGEST_STEP_SECONDS:g} s"
        if sequences > self.usual():
            why = "the least power of two times the odd part of the ranks that keeps all of them busy"
        return f"batch: {number(sequences)} sequences, {number(tokens)} tokens, {why}; set --global-sequences"


def _software(goal: Goal) -> Iterator[str]:
    """The release whose kernels are taken for the framework that is asked for."""
    framework = goal.framework
    if framework is not None:
        version = f"for {framework.version}" if framework.version else f"set --framework {framework.name}==VERSION"
        yield f"software: kernels and overlap of {release_of(framework.name, framework.version)}; {version}"


def _indivisible(goal: Goal) -> Iterator[str]:
    """That tensor ranks are left out because nobody padded the vocabulary."""
    rows, topology = goal.model.shape.vocabulary_size, goal.machine.topology
    most = min(topology.domain_num_ranks, goal.num_ranks) if topology.has_scale_up else 1
    if most > 1 and rows % (2 * VOCABULARY_TILE):
        padded = -(-rows // (most * VOCABULARY_TILE)) * most * VOCABULARY_TILE
        yield f"tensor: 1, since ranks cannot divide a vocabulary of {number(rows)}; pad it to {number(padded)}"


def _divisible(goal: Goal) -> Goal:
    """The goal with its batch doubled until some layout divides it over the ranks, six times at most."""
    for doubled in range(_DOUBLINGS + 1):
        larger = replace(goal, global_sequences=goal.global_sequences << doubled)
        if next(layouts(larger), None) is not None:
            return larger
    return goal


def precision_of(number_format: NumberFormat, *, routed: bool = False) -> Precision:
    """Formats of a mixed-precision run: 16-bit weights, everything that is added up in fp32, and the router too."""
    narrow: Literal["bf16", "fp16"] = "fp16" if number_format == "fp16" else "bf16"
    scaling = LossScaling(
        mode="dynamic", initial_scale=65536, growth_factor=2, backoff_factor=0.5, growth_interval_steps=2000
    )
    recipe = LowPrecisionRecipe(
        format="fp8-hybrid",
        scaling="delayed",
        amax_history_steps=1024,
        amax_scope="group",
        high_precision_layers=("embedding", "output-head"),
        scaling_state_checkpointed=True,
    )
    return Precision(
        compute=narrow,
        parameters=narrow,
        master_parameters="fp32",
        gradients="fp32",
        accumulation="fp32",
        reduction="fp32",
        optimizer_state="fp32",
        loss_scaling=scaling if number_format == "fp16" else None,
        recipe=recipe if number_format == "fp8" else None,
        high_precision_operations=("softmax", "normalization", "loss", "reduction", *(("router",) if routed else ())),
        nonfinite_action="skip-step",
    )
