"""Predicts what a plan does on its cluster, from the two documents."""

from __future__ import annotations

from dataclasses import dataclass, replace

from trainspec_validate.documents.types import ClusterProfile, TrainingPlan
from trainspec_validate.performance.costs.layout import Layout
from trainspec_validate.performance.costs.rank_memory import RankMemory
from trainspec_validate.performance.costs.software import DEFAULT, Software, is_known, software_of
from trainspec_validate.performance.derived.state import offloaded_share
from trainspec_validate.performance.derived.trained import trained_of
from trainspec_validate.performance.forecast.facts import (
    MachineFacts,
    ModelFacts,
    Unpredictable,
    is_tpu,
    layout_of,
    machine_of,
    model_facts,
)
from trainspec_validate.performance.forecast.joint import joint_of, takes_all
from trainspec_validate.performance.forecast.outlook import (
    Outlook,
    PlannedCollective,
    Settings,
    memory_of_stage,
    outlook,
    overheads_of,
    planned_collectives,
)

UNKNOWN_DEPTH = "no key says which layers are frozen, and so how far back gradients go"
"""Why time and traffic of a job with frozen layers are not predicted."""
UNMASKED = "tokens attend to later ones, and no measured run counts the operations of that"
"""Why the time of an encoder is not predicted."""
UNKNOWN_HOST_WORK = "no measured run moves model state to the host, where transfers and updates take time"
"""Why the time of a job that offloads parameters, gradients or its optimizer is not predicted."""
UNKNOWN_TRANSFERS = "no measured run on this kind of accelerator moves activations to the host, which takes time"
"""Why the time of a job that offloads activations is not predicted; on TPUs it is measured."""


@dataclass(frozen=True, slots=True)
class Prediction:
    """A plan in plain numbers, with what is predicted of it."""

    model: ModelFacts
    machine: MachineFacts
    layout: Layout
    settings: Settings
    outlook: Outlook
    memory: tuple[int, RankMemory] | None
    """The fullest pipeline stage and its bytes; None for a schedule without a formula."""
    collectives: tuple[PlannedCollective, ...]

    @property
    def unknown_work(self) -> str | None:
        """Why only the memory is predicted, whatever is offloaded: see `UNKNOWN_DEPTH` and `UNMASKED`."""
        if self.model.trained_share < 1 and not self.model.has_adapters:
            return UNKNOWN_DEPTH
        return None if self.model.is_causal else UNMASKED

    @property
    def untimed(self) -> str | None:
        """Why the time of a step is not predicted; None where it is."""
        if self.unknown_work:
            return self.unknown_work
        s = self.settings
        if s.offloaded_parameters or s.offloaded_gradients or s.offloaded_optimizer:
            return UNKNOWN_HOST_WORK
        is_measured = is_tpu(self.machine.accelerator)
        return UNKNOWN_TRANSFERS if s.offloaded_activations and not is_measured else None


def settings_of(plan: TrainingPlan) -> Settings:
    """Facts of a plan beyond its layout; facts that it leaves open are taken as the specification recommends them."""
    communication, memory = plan.communication, plan.memory
    policy = memory.activation_policy if memory else "selective"
    return Settings(
        recompute="none" if policy == "offload" else policy,
        order=plan.parallelism.order,
        rank_order=plan.parallelism.rank_order or "topology",
        software=software_named(plan),
        framework_named=plan.framework is not None and is_known(plan.framework.name),
        overlap_gradients=communication is None or communication.overlap_gradients is not False,
        overlap_parameters=communication is None or communication.overlap_parameters is not False,
        offloaded_parameters=min(1.0, offloaded_share(plan, "parameters")),
        offloaded_gradients=min(1.0, offloaded_share(plan, "gradients")),
        offloaded_optimizer=min(1.0, offloaded_share(plan, "optimizer")),
        offloaded_activations=min(1.0, offloaded_share(plan, "activations")),
    )


def software_named(plan: TrainingPlan) -> Software:
    """Defaults of the framework that a plan names, and the overlap that it states."""
    named, communication = plan.framework, plan.communication
    found = software_of(named.name, named.version) if named else DEFAULT
    if communication is None:
        return found
    tensor, expert = communication.overlap_tensor, communication.overlap_expert
    return replace(
        found,
        overlap_tensor=found.overlap_tensor if tensor is None else tensor,
        overlap_expert=found.overlap_expert if expert is None else expert,
    )


def predict(plan: TrainingPlan, cluster: ClusterProfile) -> Prediction:
    """Prediction of a plan on a cluster.

    Raises:
        Unpredictable: the documents lack a figure or contradict each other.
    """
    model = model_facts(plan.model, plan.precision, plan.optimizer, trained_of(plan))
    machine = _machine(plan, cluster)
    layout, settings = layout_of(plan), replace(settings_of(plan), overheads=overheads_of(machine.accelerator))
    if layout.num_ranks != plan.parallelism.num_accelerators:
        raise Unpredictable("the degrees do not multiply to the ranks")
    try:
        found = outlook(model, machine, layout, settings)
        talk = planned_collectives(model, machine, layout, settings)
    except ValueError as error:
        raise Unpredictable(str(error)) from error
    return Prediction(model, machine, layout, settings, found, _memory(model, layout, settings), talk)


def _machine(plan: TrainingPlan, cluster: ClusterProfile) -> MachineFacts:
    if not takes_all(plan, cluster):
        return machine_of(plan, cluster)
    return joint_of(cluster, plan.communication.fabric if plan.communication else None).machine


def _memory(model: ModelFacts, layout: Layout, settings: Settings) -> tuple[int, RankMemory] | None:
    try:
        return memory_of_stage(model, layout, settings)
    except ValueError:
        return None
