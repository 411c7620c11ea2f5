"""Writes the events of a made run, from its start over saves and a fault to its end."""

from __future__ import annotations

from collections.abc import Sequence
from hashlib import sha256
from typing import Any

from trainspec_validate.documents.types.stream import HistogramValue

from .emitter import Emitter, text_number
from .learning import Learned
from .shape import FLOPS_PER_TOKEN, NUM_PARAMETERS, PEAK_FLOPS_PER_SECOND, Shape
from .timeline import Attempt, Evaluation, Fault, Save, Timeline

BYTES_PER_PARAMETER = 14
CHECKPOINT_BYTES = int(NUM_PARAMETERS * BYTES_PER_PARAMETER)
EVALUATION_SET = "held-out"


def write_incidents(
    out: Emitter, timeline: Timeline, attempt: Attempt, states: Sequence[Learned], policies: list[str]
) -> None:
    """All events of one attempt."""
    if not attempt.number:
        _run_start(out, policies)
    _attempt_start(out, attempt)
    for evaluation in attempt.evaluations:
        _evaluation(out, evaluation, states[evaluation.step])
    for save in attempt.saves:
        _save(out, save, attempt)
    fault = timeline.recovery()
    if fault and attempt.number:
        _recovered(out, attempt, fault)
    if fault and not attempt.number:
        _fault(out, fault)
        _attempt_end(out, attempt, "fault", fault.step)
    else:
        _attempt_end(out, attempt, "completed", attempt.steps[-1].number)
        end = {"train.run.id": out.shape.run, "train.run.status": "completed"}
        number = attempt.steps[-1].number
        out.event(timeline.end, "train.run.end", number, id="run", a=end, m={"train.step.count": number})


def _run_start(out: Emitter, policies: list[str]) -> None:
    attributes: dict[str, Any] = {
        "train.run.id": out.shape.run,
        "train.policy.refs": policies,
        "train.world.size": out.shape.world_size,
        "train.flops.convention": "6n",
        "train.flops.per_token": FLOPS_PER_TOKEN,
        "train.flops.peak": PEAK_FLOPS_PER_SECOND,
        "train.flops.precision": "bf16",
        "train.units.profile": "base",
    }
    out.event(0.0, "train.run.start", 0, id="run", a=attributes)


def rank_map(shape: Shape, attempt: int) -> str:
    """Host and device of each rank; the digest of that text where it is long."""
    pairs = [(host, device) for host in shape.hosts_of(attempt) for device in shape.devices(host)]
    text = " ".join(f"{rank}:{host}/{device}" for rank, (host, device) in enumerate(pairs))
    return text if len(text) <= 4000 else f"rank-map.{attempt}.txt sha256:{sha256(text.encode()).hexdigest()}"


def _attempt_start(out: Emitter, attempt: Attempt) -> None:
    attributes: dict[str, Any] = {
        "train.run.attempt": attempt.number,
        "train.world.size": out.shape.world_size,
        "train.rank.map": rank_map(out.shape, attempt.number),
        "train.restore.step": attempt.restored_step,
    }
    name = f"attempt-{attempt.number}"
    out.event(attempt.formed, "train.attempt.start", attempt.restored_step, id=name, a=attributes)
    if attempt.restore is None:
        return
    restored = {
        "train.restore.step": attempt.restored_step,
        "train.restore.source": f"ckpt-{attempt.restored_step}",
    }
    begin, end = attempt.restore
    for seconds, suffix in ((begin, "begin"), (end - 1e-3, "end")):
        event = f"train.checkpoint.restore.{suffix}"
        out.event(seconds, event, attempt.restored_step, id=f"restore-{attempt.number}", a=restored)


def _attempt_end(out: Emitter, attempt: Attempt, reason: str, number: int) -> None:
    attributes: dict[str, Any] = {"train.run.attempt": attempt.number, "train.attempt.reason": reason}
    values = {"train.step.count": number}
    out.event(attempt.end, "train.attempt.end", number, id=f"attempt-{attempt.number}", a=attributes, m=values)


def _evaluation(out: Emitter, evaluation: Evaluation, state: Learned) -> None:
    name, held_out = f"eval-{out.attempt}-{evaluation.step}", {"train.evaluation.set": EVALUATION_SET}
    out.event(evaluation.begin + 0.01, "train.evaluation.begin", evaluation.step, id=name, a=held_out)
    key = f"train.evaluation.loss{{train.evaluation.set={EVALUATION_SET},train.loss.name=total}}"
    values = {key: text_number(state.loss + 0.04)}
    ended = {**held_out, "train.evaluation.outcome": "completed"}
    out.event(evaluation.end - 0.01, "train.evaluation.end", evaluation.step, id=name, a=ended, m=values)


def once(value: float) -> HistogramValue:
    """A histogram of one value."""
    value = text_number(value, 9)
    return HistogramValue(count=1, sum=value, min=value, max=value)


def _save(out: Emitter, save: Save, attempt: Attempt) -> None:
    if save.commit > attempt.end:
        return
    name = f"ckpt-{save.step}"
    identifier = {"train.checkpoint.id": name}
    out.event(save.begin + 2e-6, "train.checkpoint.begin", save.step, id=name, a=identifier)
    places = {"train.checkpoint.location": "shared-file-system", "train.checkpoint.durability": "site"}
    phases = {"blocking": save.blocking, "persist": save.commit - save.begin, "total": save.commit - save.begin}
    values = {
        "train.checkpoint.size": CHECKPOINT_BYTES,
        "train.checkpoint.step": save.step,
        **{f"train.checkpoint.duration{{train.checkpoint.phase={name}}}": once(t) for name, t in phases.items()},
    }
    completed = max((step.number for step in attempt.steps if step.end <= save.commit), default=save.step)
    out.event(save.commit, "train.checkpoint.commit", completed, id=name, a={**identifier, **places}, m=values)


def lost_ranks(shape: Shape) -> tuple[int, ...]:
    """Ranks of the last node, or the last rank where there is one node."""
    num_lost = shape.devices_per_node if shape.num_nodes > 1 else 1
    return tuple(range(shape.world_size - num_lost, shape.world_size))


def _fault(out: Emitter, fault: Fault) -> None:
    shape, step = out.shape, fault.step
    host = shape.hosts[shape.num_nodes - 1]
    whole_node = shape.num_nodes > 1
    lost = list(lost_ranks(shape))
    identifier = {"train.fault.id": "fault-1"}
    active = {"train.world.active": shape.world_size - len(lost)}
    attributes: dict[str, Any] = {
        **identifier,
        "train.fault.domain": "infrastructure" if whole_node else "workload",
        "train.fault.class": "node" if whole_node else "process",
        "train.fault.component": host if whole_node else shape.devices(host)[-1],
        "train.fault.first_rank": 0,
    }
    out.event(fault.detected, "train.fault.detected", step, id="fault-1", a=attributes)
    lost_attributes = {"train.rank.ids": lost, **identifier}
    out.event(fault.detected + 1e-3, "train.rank.lost", step, a=lost_attributes, m=active)
    action = {**identifier, "train.recovery.action": "node_swap" if whole_node else "restart"}
    out.event(fault.decided, "train.recovery.begin", step, id="recovery-1", a=action)
    if whole_node:
        drained = {"host.id": host, "train.reason": "does not answer", **identifier}
        out.event(fault.decided + 0.1, "train.node.drained", step, id=f"drain-{host}", host=host, a=drained)


def _recovered(out: Emitter, attempt: Attempt, fault: Fault) -> None:
    identifier = {"train.fault.id": "fault-1"}
    assert attempt.restore is not None
    phases = {
        "detect": fault.detected - fault.at,
        "decide": fault.decided - fault.detected,
        "restart": attempt.restore[0] - fault.decided,
        "restore": attempt.restore[1] - attempt.restore[0],
        "replay": fault.recovered - attempt.restore[1],
        "total": fault.recovered - fault.at,
    }
    values = {
        **{f"train.recovery.duration{{train.recovery.phase={name}}}": once(t) for name, t in phases.items()},
        "train.step.repeated": fault.num_repeated,
    }
    action = "node_swap" if out.shape.num_nodes > 1 else "restart"
    ended = {**identifier, "train.recovery.action": action, "train.recovery.outcome": "resumed"}
    number = fault.step + 1
    out.event(fault.recovered + 1e-4, "train.recovery.end", number, id="recovery-1", a=ended, m=values)
    out.event(fault.recovered + 0.1, "train.fault.cleared", number, id="fault-1", a=identifier)
