"""Figures of the checkpoint policy of a planned job."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

from trainspec_validate.documents.types.cluster import StorageTarget
from trainspec_validate.model.units import bytes_, bytes_per_second, number, seconds
from trainspec_validate.performance.costs.reliability import job_mtbf_seconds, recommended_interval, spare_nodes
from trainspec_validate.performance.derived.policy import domain_size
from trainspec_validate.planner.request import Request
from trainspec_validate.planner.search import Scored
from trainspec_validate.planner.starter.checkpoint import PolicyFigures, TierFigures
from trainspec_validate.planner.starter.plan import TIMEOUT_SECONDS

USUAL_FAILURES = 6.5
"""Failures per 1000 node-days that stop a job: arXiv:2410.21680."""
_USUAL_REPAIR_SECONDS = 86400.0
_USUAL_SPARE_SECONDS = 60.0
_USUAL_BLOCKING_SECONDS = 5.0
_COPY_SHARE = 0.5
"""Share of the host link that a copy of the state reaches; pinned copies were measured at 0.35 to 0.79 of it on A100
(NVIDIA developer forum, thread 352186) and at 0.88 on H200 (stas00/ml-engineering@744d01e1:network/README.md)."""
_SLOW_RESTORE_SECONDS = 20.0
"""A restore beyond this leaves no room in 90 s for detection, restart and a first step: a copy in memory is added."""
_PARTNER_SHARE = 0.5
"""Share of the NICs that reading a partner's copy reaches while all nodes read; assumed."""
_PARTNER_COPIES = 4
"""Shares of a checkpoint in the memory of a node: its own and its partner's, of the newest and of the one under way."""
_MEMORY_COPIES = 6
"""Shares that a tier with two replicas of the two newest and one under way counts on a node (TS-CKP-113)."""
_MOST_FILLED = 0.9
_STORE_STRETCH = 1.5
"""How much longer the slowest save of twenty takes than its bytes at the sustained rate; assumed."""
_LEAST_HANG_SECONDS = 60.0
_MUCH_WAITING = 0.5
_MORE_WORK = "use a larger batch, longer sequences or fewer ranks"
_LEAST_STATE_BYTES = 2.0


@dataclass(frozen=True, slots=True)
class Names:
    """How the documents of a plan refer to each other, each reference as YAML writes it on one line."""

    plan: str
    policy: str
    cluster_reference: str
    plan_reference: str


def hang_seconds(step_seconds: float, blocking_seconds: float) -> float:
    """Time without a step after which a running job hangs: three steps and a save, so that a slow step is no fault."""
    return float(math.ceil(max(_LEAST_HANG_SECONDS, 3 * step_seconds + blocking_seconds)))


def collective_seconds(step_seconds: float, blocking_seconds: float) -> float:
    """Time-out of collectives: as a hang, and no less than a first set-up may take, since libraries know no other."""
    return max(float(TIMEOUT_SECONDS), hang_seconds(step_seconds, blocking_seconds))


@dataclass(frozen=True, slots=True)
class _Copies:
    """Where checkpoints go and how fast they come back."""

    tiers: tuple[TierFigures, ...]
    persist_seconds: float
    restore_seconds: float
    restore_reason: str
    store_reason: str


def _copies(request: Request, size: float) -> _Copies:
    """A durable copy, and one in a partner's memory where reading the durable one takes too long."""
    store, rate_out, rate_in, words = _store(request, size)
    persist = max(1.0, math.ceil(_STORE_STRETCH * size / rate_out))
    restore = max(1.0, math.ceil(1.2 * size / rate_in))
    durable = TierFigures("durable", store.failure_domain if store else "cluster", store.name if store else None)
    memory, partner = _memory(request, size), _partner_rate(request, _PARTNER_COPIES * size / request.num_nodes)
    if restore <= _SLOW_RESTORE_SECONDS or request.num_nodes < 2 or not partner or memory is None:
        return _Copies((durable,), persist, restore, f"derived: size over read rate and a fifth more{words}", words)
    partner = min(partner, memory.read_bandwidth_bytes_per_second or partner)
    near = max(1.0, math.ceil(1.2 * size / request.num_nodes / partner))
    reason = "derived: a node's share from a partner over its NICs; measure it"
    near_tier = TierFigures("partner-memory", "node", memory.name, num_replicas=2)
    return _Copies((near_tier, durable), persist, near, reason, words)


def _memory(request: Request, size: float) -> StorageTarget | None:
    """The memory of each node as the profile declares it for checkpoints, which a tier has to name (TS-CKP-017)."""
    held = _MEMORY_COPIES * size / request.num_nodes
    for target in request.cluster.storage_targets:
        room = target.capacity_bytes if target.free_bytes is None else target.free_bytes
        fits = room is None or held <= _MOST_FILLED * room
        if target.kind == "host-memory" and target.scope == "node" and target.failure_domain != "process" and fits:
            return target
    return None


def nowhere(request: Request) -> str | None:
    """Why no policy can be written for the stores of the profile; None where one can, or it declares no store."""
    targets = request.cluster.storage_targets
    if not targets or any(_lasting(target) for target in targets):
        return None
    return (
        "no storage target of the profile outlives the job, so no policy can be written (TS-CKP-019): "
        "declare one with scope: cluster and failure_domain: rack, cluster or site"
    )


def _lasting(target: StorageTarget) -> bool:
    return target.scope == "cluster" and domain_size(target.failure_domain) >= domain_size("rack")


def _saved_parameters(request: Request) -> tuple[float, float]:
    """Parameters that a checkpoint holds, and bytes of each with the state of its optimizer.

    The parameters under adapters do not change, so that a checkpoint holds the adapters alone.
    """
    model = request.goal.model
    if not request.adapters:
        return model.num_parameters, max(_LEAST_STATE_BYTES, model.state.weights + model.state.optimizer)
    share = model.trained_share
    return share * model.num_parameters, model.parameter_bytes + model.state.optimizer / share


def policy_figures(request: Request, scored: Scored, names: Names) -> PolicyFigures:
    """Interval, tiers and recovery of a planned job: Daly's interval over the store and failure rate of the cluster."""
    step = scored.outlook.step.seconds
    parameters, each = _saved_parameters(request)
    blocking, blocking_reason = _blocking(request, each * parameters)
    copies = _copies(request, each * parameters)
    mtbf, mtbf_reason = _mtbf(request)
    best = recommended_interval(blocking, mtbf, copies.persist_seconds)
    planned = planned_seconds(request, scored)
    spare, repair = _replacement(request)
    return PolicyFigures(
        name=names.policy,
        cluster=names.cluster_reference,
        plan=names.plan_reference,
        step_seconds=float(f"{step:.4g}"),
        interval_steps=min(max(1, math.ceil(best / step)), num_steps(request)),
        final_only=planned <= best,
        interval_reason="Daly's interval (doi:10.1016/j.future.2004.11.016), no shorter than a save takes",
        checkpoint_bytes=each * parameters,
        bytes_per_parameter=each,
        num_parameters=parameters,
        blocking_seconds=blocking,
        blocking_reason=blocking_reason,
        persist_seconds=copies.persist_seconds,
        persist_reason=f"derived: size over write rate and half as much again{copies.store_reason}",
        restore_seconds=copies.restore_seconds,
        restore_reason=copies.restore_reason,
        num_nodes=request.num_nodes,
        planned_seconds=planned,
        mtbf_seconds=mtbf,
        mtbf_reason=mtbf_reason,
        tiers=copies.tiers,
        loss_scaling=request.precision.loss_scaling is not None,
        low_precision_scales=request.precision.recipe is not None,
        hang_seconds=hang_seconds(step, blocking),
        collective_seconds=collective_seconds(step, blocking),
        spare_seconds=spare,
        repair_seconds=repair,
    )


def _replacement(request: Request) -> tuple[float | None, float]:
    """Seconds until a spare has joined, None where there is none, and until a node is repaired."""
    known = request.cluster.reliability
    repair = (known.replacement_seconds if known else None) or _USUAL_REPAIR_SECONDS
    if known is None or not known.num_spare_nodes:
        return None, repair
    return known.spare_start_seconds or _USUAL_SPARE_SECONDS, repair


def with_spares(request: Request, figures: PolicyFigures) -> PolicyFigures | None:
    """The figures if spares were ready; None where they are, or one node is all."""
    if figures.spare_seconds is not None or request.num_nodes == 1:
        return None
    return replace(figures, spare_seconds=_USUAL_SPARE_SECONDS)


def advice(request: Request, scored: Scored) -> tuple[str, ...]:
    """Change that would make the job lose less time, with the number."""
    names = Names("plan", "policy", "{name: cluster}", "{name: plan}")
    figures = policy_figures(request, scored, names)
    better, waiting = with_spares(request, figures), scored.outlook.exposed_share
    notes: tuple[str, ...] = (
        () if waiting <= _MUCH_WAITING else (f"{waiting:.0%} of a step waits for communication; {_MORE_WORK}",)
    )
    notes += _slow_restore(request, figures)
    if better is None:
        return notes
    reliability = request.cluster.reliability
    rate = reliability.failures_per_1000_node_days if reliability else USUAL_FAILURES
    spares = spare_nodes(request.num_nodes, rate, figures.repair_seconds)
    unused = request.nodes.group.num_nodes - request.num_nodes
    left = f" (the job leaves {number(unused)} unused)" if unused > 0 else ""
    now = f"a lost node waits for its repair, and {figures.effective_share:.2%} of the time makes progress"
    nodes = f"{spares} spare node{'s' if spares > 1 else ''} (99 % quantile)"
    return (
        *notes,
        f"the profile declares no spare nodes{left}: {now}; with {nodes} it would be {better.effective_share:.2%}",
    )


def _slow_restore(request: Request, figures: PolicyFigures) -> tuple[str, ...]:
    """That recovery is slow for want of a copy nearby."""
    if figures.restore_seconds <= _SLOW_RESTORE_SECONDS or request.num_nodes < 2 or len(figures.tiers) > 1:
        return ()
    share = bytes_(_MEMORY_COPIES * figures.checkpoint_bytes / request.num_nodes / _MOST_FILLED)
    store = figures.tiers[-1].storage or "the durable tier"
    note = (
        f"a restore takes {seconds(figures.restore_seconds)} from {store}; copies in the memory of partners are "
        f"faster, where nodes have {share} for them: declare a storage target with kind: host-memory and scope: node"
    )
    return (note,)


def num_steps(request: Request) -> int:
    """Optimizer steps of the job."""
    return max(1, math.ceil(request.num_tokens / (request.goal.global_sequences * request.goal.sequence_length)))


def planned_seconds(request: Request, scored: Scored) -> float:
    """Time of all steps and a twentieth more for saves, validation and start-up."""
    return float(f"{1.05 * num_steps(request) * scored.outlook.step.seconds:.4g}")


def _blocking(request: Request, size: float) -> tuple[float, str]:
    link = request.goal.machine.host_bytes_per_second
    if link is None:
        return _USUAL_BLOCKING_SECONDS, "replace: the profile states no host link; measure it"
    time = size / request.goal.num_ranks / (link * _COPY_SHARE)
    return float(
        f"{max(0.1, time):.2g}"
    ), "derived: a rank's share to the host at half the rate of its link; measure it"


def _store(request: Request, size: float) -> tuple[StorageTarget | None, float, float, str]:
    """The store for durable copies with its write and read rate; a usual rate where the profile declares none."""
    shared = [target for target in request.cluster.storage_targets if _lasting(target)]
    known = [target for target in shared if target.write_bandwidth_bytes_per_second]
    if known:
        store = max(known, key=lambda target: target.write_bandwidth_bytes_per_second or 0.0)
        rate_out = store.write_bandwidth_bytes_per_second or 1.0
        return (
            store,
            rate_out,
            store.read_bandwidth_bytes_per_second or rate_out,
            f"; the rate is that of {store.name}, measure it",
        )
    rate = max(10e9, math.ceil(size / 15 / 10e9) * 10e9)
    link = request.goal.machine.topology.fabric
    if link is not None:
        rate = min(rate, link.bandwidth_bytes_per_second * request.goal.num_ranks)
    words = f"; {bytes_per_second(rate)} is assumed, since the profile declares no store with a rate"
    return (shared[0] if shared else None), rate, rate, words


def _partner_rate(request: Request, held_bytes: float) -> float | None:
    """What a node reads of its partner's copy; None where no fabric leads there or host memory cannot hold it."""
    link, host = request.goal.machine.topology.fabric, request.nodes.group.host
    if host is not None and host.memory_bytes is not None and held_bytes > host.memory_bytes:
        return None
    return link.bandwidth_bytes_per_second * request.nodes.ranks_per_node * _PARTNER_SHARE if link else None


def _mtbf(request: Request) -> tuple[float, str]:
    reliability = request.cluster.reliability
    rate = reliability.failures_per_1000_node_days if reliability else USUAL_FAILURES
    words = (
        ""
        if reliability
        else "the profile states no failure rate; 6.5 per 1000 node-days were published for 2048 nodes"
    )
    return job_mtbf_seconds(request.num_nodes, rate), words
