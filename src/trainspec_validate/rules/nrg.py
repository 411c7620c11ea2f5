"""Judges how energy and carbon of a job are accounted."""

from __future__ import annotations

from collections.abc import Iterator

from trainspec_validate.documents.types import ClusterProfile, TrainingPlan
from trainspec_validate.documents.types.plan import Energy
from trainspec_validate.model.units import base, billions, number, percent, prefixed, seconds, watts
from trainspec_validate.performance.costs.energy import (
    BUSY_SHARE,
    WAITING_SHARE,
    least_joules,
    least_joules_per_token,
    most_joules,
)
from trainspec_validate.performance.derived import machine as machines
from trainspec_validate.performance.derived.trained import num_trained
from trainspec_validate.rules import NotApplicable, Uncovered, Unresolved, Violation, at, at_key, require, rule
from trainspec_validate.rules._machine import at_machine, machine_of

CADENCE = {"sampled": (1.0, 5.0), "counter": (60.0, 120.0)}
"""Longest median interval and longest gap in seconds, by method."""
IDENTITY_TOLERANCE = 0.05
LEAST_COVERAGE = 0.95


def _energy(plan: TrainingPlan) -> Energy:
    return require(plan.energy, "the plan keeps no energy account")


def _measured(plan: TrainingPlan) -> Energy:
    energy = _energy(plan)
    if energy.method == "estimated":
        raise NotApplicable("energy is estimated, not measured")
    return energy


@rule("TS-NRG-002")
def energy_account(plan: TrainingPlan) -> Iterator[Violation]:
    """A measured account says what its number leaves out."""
    energy = _measured(plan)
    wanted = ["sample_interval_seconds", "max_gap_seconds", "coverage", "missing_samples", "device_identity"]
    lacking = [key for key in wanted if getattr(energy, key) is None]
    if lacking:
        yield Violation(
            at_key(plan, "energy"),
            f"the {energy.method} account lacks {', '.join(lacking)}",
            f"add {', '.join(lacking)}",
        )


@rule("TS-NRG-003")
def energy_cadence(plan: TrainingPlan) -> Iterator[Violation]:
    """A sampled account is read every second or more often."""
    yield from _cadence(plan, "sampled")


@rule("TS-NRG-017")
def counter_cadence(plan: TrainingPlan) -> Iterator[Violation]:
    """A counter is read every minute or more often."""
    yield from _cadence(plan, "counter")


def _cadence(plan: TrainingPlan, method: str) -> Iterator[Violation]:
    energy = _measured(plan)
    if energy.method != method:
        raise NotApplicable(f"the account is a {energy.method} one")
    interval, gap = CADENCE[method]
    limits = {"sample_interval_seconds": interval, "max_gap_seconds": gap}
    stated = {key: value for key in limits if (value := getattr(energy, key)) is not None}
    if not stated:
        raise NotApplicable("the account states no interval and no gap")
    for key, value in stated.items():
        if value > limits[key]:
            yield Violation(
                at(plan, "energy", key),
                f"{key} is {seconds(value)}, too long for a {energy.method} account",
                f"bring it to {seconds(limits[key])} or below",
            )


@rule("TS-NRG-004")
def energy_gap(plan: TrainingPlan) -> Iterator[Violation]:
    """The longest gap is no shorter than the median interval."""
    energy = _energy(plan)
    interval, gap = energy.sample_interval_seconds, energy.max_gap_seconds
    if interval is None or gap is None:
        raise NotApplicable("the account does not state both an interval and a gap")
    if gap < interval:
        yield Violation(
            at(plan, "energy", "max_gap_seconds"),
            f"the longest gap is {seconds(gap)}, but half of the intervals are {seconds(interval)} or more",
            f"state a gap of {seconds(interval)} or more",
        )


@rule("TS-NRG-005")
def energy_coverage(plan: TrainingPlan) -> Iterator[Violation]:
    """Nearly all devices and time are covered."""
    coverage = require(_measured(plan).coverage, "the account states no coverage")
    if coverage < LEAST_COVERAGE:
        yield Violation(
            at(plan, "energy", "coverage"),
            f"the account covers {percent(coverage)} of devices and time",
            f"cover {percent(LEAST_COVERAGE)} or more",
        )


@rule("TS-NRG-006")
def missing_samples(plan: TrainingPlan) -> Iterator[Violation]:
    """A missing sample is missing, not zero."""
    value = require(_measured(plan).missing_samples, "the account does not say what a missing sample is recorded as")
    if value != "null":
        yield Violation(
            at(plan, "energy", "missing_samples"),
            f"a missing sample is recorded as {value}, which a reader takes for a measurement",
            'set missing_samples to "null"',
        )


@rule("TS-NRG-007")
def device_identity(plan: TrainingPlan) -> Iterator[Violation]:
    """A meter is tied to its device by a name that does not move."""
    value = require(_measured(plan).device_identity, "the account does not say how meters are tied to devices")
    if value == "index":
        yield Violation(
            at(plan, "energy", "device_identity"),
            "meters are tied to devices by index, which a visibility mask renumbers",
            "set device_identity to uuid, serial or pci-address",
        )


@rule("TS-NRG-008")
def counter_resets(plan: TrainingPlan) -> Iterator[Violation]:
    """A counter that falls is explained."""
    energy = _energy(plan)
    if energy.method != "counter":
        raise NotApplicable("the account does not read counters")
    if energy.counter_resets in (None, "undeclared"):
        stated = energy.counter_resets is not None
        yield Violation(
            at(plan, "energy", "counter_resets") if stated else at_key(plan, "energy"),
            "a counter starts again at zero when its driver is loaded, and the account does not say so",
            "record each reset and set counter_resets to declared, or to none where none can happen",
        )


@rule("TS-NRG-009")
def carbon_inputs(plan: TrainingPlan, cluster: ClusterProfile) -> Iterator[Violation]:
    """Reported carbon has an intensity, a basis and a source."""
    if not _energy(plan).report_carbon:
        raise NotApplicable("the plan reports no carbon")
    power = cluster.power
    keys = ("carbon_intensity_kilograms_per_kilowatt_hour", "carbon_basis", "carbon_source")
    lacking = [key for key in keys if power is None or getattr(power, key) is None]
    if lacking:
        yield Violation(
            at(plan, "energy", "report_carbon"),
            f"carbon is reported, but power of {cluster.metadata.name} lacks {', '.join(lacking)}",
            f"add {', '.join(lacking)} to the cluster, or do not report carbon",
        )


@rule("TS-NRG-011")
def facility_boundary(plan: TrainingPlan, cluster: ClusterProfile) -> Iterator[Violation]:
    """An account of the facility has the facility's factor."""
    if _energy(plan).boundary != "facility":
        raise NotApplicable("the boundary is not the facility")
    if cluster.power is None or cluster.power.power_usage_effectiveness is None:
        yield Violation(
            at(plan, "energy", "boundary"),
            f"the boundary is the facility, but {cluster.metadata.name} states no power usage effectiveness",
            "add power.power_usage_effectiveness to the cluster, or draw the boundary at the nodes",
        )


@rule("TS-NRG-012")
def energy_identity(plan: TrainingPlan) -> Iterator[Violation]:
    """Energy of a token times tokens is the energy of the job."""
    energy = _energy(plan)
    total, each = energy.expected_energy_joules, energy.expected_joules_per_token
    tokens = plan.job.num_tokens if plan.job else None
    if total is None or each is None or not tokens:
        raise NotApplicable("the plan does not state energy, energy per token and tokens")
    product = each * tokens
    if abs(product - total) > IDENTITY_TOLERANCE * total:
        yield Violation(
            at(plan, "energy", "expected_energy_joules"),
            f"{number(each)} J per token times {billions(tokens)} tokens is {prefixed(product, 'J')}, but "
            f"the job is expected to take {prefixed(total, 'J')}",
            f"set expected_energy_joules to {base(product)}, or fix the other two",
            related=((at(plan, "energy", "expected_joules_per_token"), "energy of one token"),),
        )


def _planned_seconds(plan: TrainingPlan) -> float:
    if plan.job and plan.job.planned_seconds:
        return plan.job.planned_seconds
    step = machines.step_seconds(plan)
    if step and plan.job and plan.job.num_steps:
        return step * plan.job.num_steps
    raise NotApplicable("the plan does not say how long the job runs")


def _expected(plan: TrainingPlan) -> tuple[str, float]:
    """Key and joules that the plan expects of the whole job."""
    energy = _energy(plan)
    if energy.expected_energy_joules is not None:
        return "expected_energy_joules", energy.expected_energy_joules
    if energy.expected_joules_per_token is not None and plan.job and plan.job.num_tokens:
        return "expected_joules_per_token", energy.expected_joules_per_token * plan.job.num_tokens
    raise NotApplicable("the plan expects no energy")


def _ceiling(plan: TrainingPlan, machine: machines.Machine, duration: float) -> float | None:
    boundary = _energy(plan).boundary
    if boundary == "device":
        each = machine.watts_per_accelerator
        return most_joules(each * machines.num_accelerators(plan, machine), duration) if each else None
    node = machine.group.node_power_watts
    if node is None:
        return None
    power = machine.cluster.power
    overhead = (power.power_usage_effectiveness if power else None) or 3.0
    return most_joules(
        node * machines.num_nodes(plan, machine),
        duration,
        with_network=boundary != "node",
        overhead=overhead if boundary == "facility" else 1,
    )


def _no_power(machine: machines.Machine, key: str) -> Unresolved:
    reason = f"does not give {key} of {machine.group.name}, and the catalog has no figure"
    return Unresolved(at_machine(machine), reason, f"state {key}")


@rule("TS-NRG-013")
def mean_power(plan: TrainingPlan, cluster: ClusterProfile) -> Iterator[Violation]:
    """The expected energy is no more than the machines can draw in the planned time."""
    key, joules = _expected(plan)
    machine, duration = machine_of(plan, cluster, whole_job=True), _planned_seconds(plan)
    most = _ceiling(plan, machine, duration)
    if most is None:
        key = "node_power_watts" if _energy(plan).boundary != "device" else "accelerator.power_watts"
        raise _no_power(machine, key)
    mean = f"{prefixed(joules, 'J')} in {seconds(duration)} is {watts(joules / duration)} on average"
    related = ((at(plan, "energy", "boundary"), "the boundary"),)
    if joules > most:
        message = f"{mean}, above the {watts(most / duration)} that the boundary can draw"
        yield Violation(at(plan, "energy", key), message, f"expect {prefixed(most, 'J')} at most", related=related)


@rule("TS-NRG-015")
def mean_power_share(plan: TrainingPlan, cluster: ClusterProfile) -> Iterator[Violation]:
    """The expected energy is at least what idle accelerators draw in the planned time."""
    key, joules = _expected(plan)
    machine, duration = machine_of(plan, cluster, whole_job=True), _planned_seconds(plan)
    if machine.watts_per_accelerator is None:
        raise _no_power(machine, "accelerator.power_watts")
    least = least_joules(machine.watts_per_accelerator, machines.num_accelerators(plan, machine), duration)
    if joules < least:
        mean = f"{prefixed(joules, 'J')} in {seconds(duration)} is {watts(joules / duration)} on average"
        related = ((at(plan, "energy", "boundary"), "the boundary"),)
        message = f"{mean}, below the {watts(least / duration)} that idle accelerators draw"
        yield Violation(at(plan, "energy", key), message, f"expect {prefixed(least, 'J')} at least", related=related)


@rule("TS-NRG-016")
def power_swing(plan: TrainingPlan, cluster: ClusterProfile) -> Iterator[Violation]:
    """A job that changes its power more than the supply allows is smoothed."""
    supply = cluster.power
    if supply is None or supply.max_swing_watts is None:
        raise NotApplicable("the cluster states no largest swing of power")
    machine = machine_of(plan, cluster, whole_job=True)
    node = machine.group.node_power_watts
    if node is None:
        raise _no_power(machine, "node_power_watts")
    nodes = machines.num_nodes(plan, machine)
    swing = (BUSY_SHARE - WAITING_SHARE) * node * nodes
    if swing > supply.max_swing_watts and not supply.smoothing:
        yield Violation(
            at(cluster, "power", "max_swing_watts"),
            f"{number(nodes)} nodes change their power by {watts(swing)} between working and waiting, the supply "
            f"allows {watts(supply.max_swing_watts)}",
            "state the smoothing that keeps power level, or use fewer nodes",
        )


def _of_token(plan: TrainingPlan) -> tuple[str, float]:
    """Key and joules that the plan expects of a token, stated or from those of the job."""
    energy, tokens = _energy(plan), plan.job.num_tokens if plan.job else None
    if energy.expected_joules_per_token is not None:
        return "expected_joules_per_token", energy.expected_joules_per_token
    if energy.expected_energy_joules is not None and tokens:
        return "expected_energy_joules", energy.expected_energy_joules / tokens
    raise NotApplicable("the plan expects no energy of a token")


@rule("TS-NRG-014")
def token_energy(plan: TrainingPlan, cluster: ClusterProfile) -> Iterator[Violation]:
    """A token does not cost less than its operations."""
    (key, stated), model = _of_token(plan), plan.model
    machine = machine_of(plan, cluster, whole_job=True)
    if machine.watts_per_accelerator is None:
        raise _no_power(machine, "accelerator.power_watts")
    if not machine.peak_rates:
        reason = f"does not give a peak rate of {machine.group.accelerator.model}, which the catalog does not list"
        raise Unresolved(at_machine(machine, "accelerator"), reason, "state accelerator.peak_rates")
    if model.family not in {"dense-transformer", "moe-transformer"}:
        reason = f"gives the energy of a token of the family {model.family}, whose operations are not counted"
        raise Uncovered(at(plan, "model", "family"), reason)
    active = model.num_active_parameters or model.num_parameters
    partly = num_trained(plan) < model.num_parameters
    least = least_joules_per_token(
        active, max(machine.peak_rates.values()), machine.watts_per_accelerator, operations=4 if partly else 6
    )
    if stated < least:
        yield Violation(
            at(plan, "energy", key),
            f"{stated:.3g} J per token is less than the operations of {billions(active)} parameters "
            f"cost: {number(least)} J at the peak rate and half the power limit",
            f"expect {number(least)} J per token or more",
            related=((at_machine(machine, "accelerator"), "the accelerator"),),
        )
