"""Shows the plans of a ranking side by side, as a table or as JSON."""

from __future__ import annotations

import json
from dataclasses import asdict
from typing import Any

from trainspec_validate.cli import terminal
from trainspec_validate.cli.commands import tables
from trainspec_validate.model.units import bytes_, number, percent, seconds
from trainspec_validate.performance.costs.step_errors import NO_RUN, ErrorBand
from trainspec_validate.performance.forecast.outlook import Outlook, PlannedCollective
from trainspec_validate.planner.explain import SHARDINGS, collectives_of, reasons
from trainspec_validate.planner.groups import GroupAnswer
from trainspec_validate.planner.job_cost import JobCost, job_cost
from trainspec_validate.planner.request import Request
from trainspec_validate.planner.safety import Names, advice, policy_figures, with_spares
from trainspec_validate.planner.search import Ranking, Scored
from trainspec_validate.planner.space import OFFLOADED
from trainspec_validate.planner.uncertainty import Band, effective_band, memory_band, utilisation_band
from trainspec_validate.system.neutral import printable

_PLANS_SIDE_BY_SIDE = 5
_SECONDS_PER_DAY = 86400.0
_BAND = "  eight of ten"
_UNNAMED = Names("plan", "policy", "{name: cluster}", "{name: plan}")


def show(request: Request, ranking: Ranking, num_shown: int, style: str, groups: tuple[GroupAnswer, ...] = ()) -> None:
    """Print the best plans; what was assumed goes to standard error."""
    best = ranking.plans[:num_shown]
    if style == "json":
        shown = {**_json(request, ranking, num_shown), "node_groups": [asdict(answer) for answer in groups]}
        terminal.emit(json.dumps(shown, indent=2, ensure_ascii=False) + "\n", "json")
        return
    for first in range(0, len(best), _PLANS_SIDE_BY_SIDE):
        group = best[first : first + _PLANS_SIDE_BY_SIDE]
        columns = [_column(request, scored) for scored in group]
        header = ("", *(f"plan {first + place}" for place in range(1, len(group) + 1)))
        rows = [(label, *(column[place][1] for column in columns)) for place, (label, _) in enumerate(columns[0])]
        tables.show(header, rows, frozenset(range(1, len(header))))
    terminal.emit(_told(request, ranking))
    for note in [
        *(f"assumed {words}" for words in request.assumptions),
        *request.notes,
        *_doubts(request, best[0]),
    ]:
        terminal.tell(note)


def _doubts(request: Request, scored: Scored) -> list[str]:
    """How far the prediction of a plan can be trusted, and what would make its job lose less time."""
    if scored.untimed:
        why = f"step time: not predicted: {scored.untimed}"
        order = "plans are in the order of their steps without the transfers; measure the first ones"
        return [why, order, *tight(request, scored)]
    return [accuracy(scored.outlook), *tight(request, scored), *advice(request, scored)]


def _column(request: Request, scored: Scored) -> list[tuple[str, str]]:
    """What is shown of one plan: labels of rows, which are the same for all plans of a request, and values."""
    if scored.untimed:
        offload = [("on the host", scored.choice.offload), ("  of a rank", bytes_(scored.host_bytes))]
        return [("step", "not predicted"), *_memory_rows(request, scored), *offload, *_layout_rows(request, scored)]
    outlook, step = scored.outlook, scored.outlook.step
    band, shares = outlook.band, utilisation_band(scored)
    return [
        ("step", _short(step.seconds)),
        (_BAND, _seconds(step.seconds, band) if band else NO_RUN),
        ("MFU", f"{outlook.utilisation:.1%}"),
        (_BAND, _shares(shares) if shares else NO_RUN),
        *_memory_rows(request, scored),
        ("exposed", f"{outlook.exposed_share:.1%}"),
        ("idle", f"{step.bubble_seconds / step.seconds:.1%}"),
        *_effective(request, scored),
        *_whole_job(request, scored),
        *_layout_rows(request, scored),
    ]


def _memory_rows(request: Request, scored: Scored) -> list[tuple[str, str]]:
    capacity = request.goal.machine.memory_bytes
    return [
        ("memory", f"{scored.memory.total / capacity:.0%}"),
        (_BAND, _shares(memory_band(scored), capacity)),
    ]


def _layout_rows(request: Request, scored: Scored) -> list[tuple[str, str]]:
    layout = scored.choice.layout
    chunks = f" x {layout.num_virtual_stages}" if layout.num_virtual_stages > 1 else ""
    shards = f" / {layout.num_shards}" if layout.sharding_stage and layout.sharding_degree else ""
    return [
        ("tensor", str(layout.tensor)),
        ("context", str(layout.context)),
        ("pipeline", f"{layout.pipeline}{chunks}"),
        *([("expert", str(layout.expert))] if request.model.experts else []),
        ("data", str(layout.data)),
        ("micro-batches", f"{layout.micro_sequences} x {layout.num_micro_batches}"),
        ("recompute", scored.choice.recompute),
        ("sharding", f"{SHARDINGS[layout.sharding_stage]}{shards}"),
        ("outermost", scored.choice.order[-1]),
    ]


def _effective(request: Request, scored: Scored) -> list[tuple[str, str]]:
    """Share of wall time that makes lasting progress, with spare nodes ready; `advice` says what it is without."""
    figures = policy_figures(request, scored, _UNNAMED)
    better = with_spares(request, figures)
    label, each = ("progress", figures) if better is None else ("progress, spares", better)
    return [(label, f"{each.effective_share:.2%}"), (_BAND, _shares(effective_band(request, each), digits=2))]


def _whole_job(request: Request, scored: Scored) -> list[tuple[str, str]]:
    """What the job takes, with spare nodes ready: time, energy of its nodes, and money where a price is known."""
    cost, band = _cost(request, scored), scored.outlook.band
    if cost is None:
        return [("job", "never ends"), (_BAND, "")]
    energy, price = cost.node_kilowatt_hours, cost.price
    return [
        ("job", _short(cost.seconds)),
        (_BAND, _seconds(cost.seconds, band) if band else NO_RUN),
        *([] if energy is None else [("energy of nodes", f"{_rounded(energy)} kWh")]),
        *([] if price is None else [("cost", _rounded(price))]),
    ]


def _cost(request: Request, scored: Scored) -> JobCost | None:
    """Cost of the whole job; None where faults come so often that no time makes progress."""
    figures = policy_figures(request, scored, _UNNAMED)
    share = (with_spares(request, figures) or figures).effective_share
    return job_cost(request, scored, share, request.price_per_accelerator_hour) if share > 0 else None


def _rounded(value: float) -> str:
    """A number with three digits.

    >>> _rounded(1_117_944), _rounded(0.5)
    ('1,120,000', '0.5')
    """
    rounded = float(f"{value:.3g}")
    return f"{rounded:,.0f}" if rounded >= 100 else f"{rounded:g}"


def _seconds(step: float, band: ErrorBand) -> str:
    return f"{_short(step * band.low)} to {_short(step * band.high)}"


def accuracy(outlook: Outlook) -> str:
    """How far measured steps of the kind of job were from their predictions."""
    band = outlook.band
    if band is None:
        return f"step time: {NO_RUN} ({outlook.family}), so that no band is given"
    software = "framework named" if outlook.framework_named else "no framework named, see --framework"
    error = f"mean error {percent(round(band.mean_error, 3))} of {number(band.num_runs)} runs outside of the fit"
    inside = f"eight of ten took {band.low:.2f} to {band.high:.2f} times the prediction"
    return f"step time ({software}): {outlook.family}, {error}; {inside}"


def _shares(band: Band, whole: float = 1.0, digits: int = 0) -> str:
    """A band in per cent of a whole."""
    return f"{band.low / whole:.{digits}%} to {band.high / whole:.{digits}%}"


def _idle(request: Request, scored: Scored) -> frozenset[str]:
    """Dimensions that a plan does not have."""
    dense = () if request.model.experts else ("expert",)
    whole = () if scored.choice.layout.sharding_degree else ("sharding_degree",)
    return frozenset((*dense, *whole))


def tight(request: Request, scored: Scored) -> list[str]:
    """That a plan may need more memory than a rank has."""
    capacity, band = request.goal.machine.memory_bytes, memory_band(scored)
    if band.high <= capacity:
        return []
    words = f"eight of ten such runs need {_shares(band, capacity)} of a rank's memory"
    return [f"plan 1 may not fit: {words}; measure its peak first, or ask for more --reserve-bytes"]


def _told(request: Request, ranking: Ranking) -> str:
    best = ranking.plans[0]
    lines = [
        "",
        _counts(ranking),
        "Why plan 1:",
        *(f"  {name:20} {why}" for name, why in reasons(ranking).items() if name not in _idle(request, best)),
        "Collectives of plan 1:",
        *(_collective(item) for item in collectives_of(request, best)),
        "Memory of its fullest rank:",
        *(f"  {name:20} {bytes_(value)}" for name, value in asdict(best.memory).items()),
    ]
    return "".join(f"{printable(line)}\n" for line in lines)


def _counts(ranking: Ranking) -> str:
    compared, layouts = number(ranking.num_compared), number(ranking.num_layouts)
    large = number(ranking.num_too_large)
    return f"Compared {compared} plans of {layouts} layouts; {large} layouts do not fit into memory."


def _short(value: float) -> str:
    """A time with three digits."""
    if value >= _SECONDS_PER_DAY:
        return f"{value / _SECONDS_PER_DAY:.3g} d"
    return seconds(float(f"{value:.3g}"))


def _collective(item: PlannedCollective) -> str:
    sent, found = item.transfer, item.estimate
    band = f"{seconds(found.low_seconds)} to {seconds(found.high_seconds)}, {found.calibration}"
    what = f"{sent.axis:12} {sent.operation:15} {bytes_(sent.message_bytes):>10}"
    return f"  {what} {found.algorithm:16} {seconds(found.seconds):>9} ({band})"


def _json(request: Request, ranking: Ranking, num_shown: int) -> dict[str, Any]:
    return {
        "model": request.model.name,
        "cluster": request.cluster.metadata.name,
        "num_ranks": request.goal.num_ranks,
        "global_sequences": request.goal.global_sequences,
        "node_group": None if request.takes_all_groups else request.nodes.group.name,
        "assumptions": list(request.assumptions),
        "notes": list(request.notes),
        "num_layouts": ranking.num_layouts,
        "num_compared": ranking.num_compared,
        "reasons": reasons(ranking),
        "plans": [_plan_json(request, scored) for scored in ranking.plans[:num_shown]],
    }


def _plan_json(request: Request, scored: Scored) -> dict[str, Any]:
    timed = {"step_seconds": None, "not_predicted": scored.untimed} if scored.untimed else _time_json(request, scored)
    return {
        "layout": {**asdict(scored.choice.layout), "sharding_degree": scored.choice.layout.num_shards},
        "recompute": scored.choice.recompute,
        "order": list(scored.choice.order),
        "offload": list(OFFLOADED[scored.choice.offload]),
        **timed,
        "memory_bytes": {**asdict(scored.memory), "total": scored.memory.total, "stage": scored.stage},
        "memory_band_bytes": asdict(memory_band(scored)),
        "host_memory_bytes": scored.host_bytes,
        "collectives": [
            {**asdict(item.transfer), **asdict(item.estimate), "num_ranks": item.network.num_ranks}
            for item in collectives_of(request, scored)
        ],
    }


def _time_json(request: Request, scored: Scored) -> dict[str, Any]:
    step, figures = scored.outlook.step, policy_figures(request, scored, _UNNAMED)
    ready = with_spares(request, figures) or figures
    return {
        "step_seconds": step.seconds,
        "family": scored.outlook.family,
        "low_seconds": scored.outlook.low_seconds,
        "high_seconds": scored.outlook.high_seconds,
        "compute_seconds": step.compute_seconds,
        "bubble_seconds": step.bubble_seconds,
        "exposed_seconds": dict(step.exposed_seconds),
        "optimizer_seconds": step.optimizer_seconds,
        "model_flops_utilisation": scored.outlook.utilisation,
        "model_flops_utilisation_band": asdict(band) if (band := utilisation_band(scored)) else None,
        "tokens_per_second": scored.outlook.tokens_per_second,
        "interval_seconds": figures.interval_seconds,
        "effective_training_time": figures.effective_share,
        "effective_training_time_band": asdict(effective_band(request, figures)),
        "effective_training_time_with_spares": ready.effective_share,
        "job": asdict(cost) if (cost := _cost(request, scored)) else None,
    }
