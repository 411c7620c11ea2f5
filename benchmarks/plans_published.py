"""The only place that compares published layouts with the planner's, under one model and the same constraints.

Ranks, batch, sequence length, memory and number formats are those of the run for both. What a publication does not
tell of its plan is set to what the model likes best, which favours the published plan. Everything is compared twice:

- planner: with the kernels, the overlap and the memory savings that the planner counts on;
- its time: with the kernels and overlap of the run, only what its software could do (sharding, sequence parallelism,
  splitting of sequences), and the published recomputation, so that an old plan is not blamed for its age.

A published plan that does not fit by the memory model ran all the same; then both may use as much memory as it needs.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from statistics import median

from plan_rows import TOLD, goal_of, published_choices, recomputations
from plan_tables import LEGEND, short, table
from training_sets import Run, load, rows

from trainspec_validate.costs.layout import Layout
from trainspec_validate.costs.step_time import Work, step_time
from trainspec_validate.forecast.outlook import (
    Recompute,
    Settings,
    memory_of_stage,
    networks_of,
    seconds_of,
    work_of,
)
from trainspec_validate.planner.goal import Goal
from trainspec_validate.planner.search import fitting, search, settings_of
from trainspec_validate.planner.space import RECOMPUTATIONS, Choice, layouts

TOP_SHARE = 0.1
_SAME = 1e-9
_LARGE_ERROR = 0.15
_MANY = 100
"""Compared choices below which a tenth says little."""
SHORT_ROWS = ("llama3_t4-002", "megatron2021_t1-010", "korthikanti2022_t5-004", "megatron_h100_2024-009")


@dataclass(frozen=True, slots=True)
class Timed:
    """A choice with its predicted step and the memory of its fullest rank."""

    choice: Choice
    seconds: float
    memory_bytes: float


@dataclass(frozen=True, slots=True)
class Standing:
    """A published plan among all choices that fit."""

    published: Timed
    best: Timed
    num_compared: int
    faster_share: float
    """Share of the compared choices that are faster than the published plan."""
    faster_share_of_degrees: float
    """Share of them that are faster than the best choice with the published degrees."""
    over_bytes: float
    """Memory of the published plan beyond what a plan may use; 0 where it fits."""

    @property
    def ratio(self) -> float:
        """Step of the best choice over that of the published plan."""
        return self.best.seconds / self.published.seconds


@dataclass(frozen=True, slots=True)
class Comparison:
    """A published run with its standing by both ways of counting."""

    run: Run
    planner: Standing
    its_time: Standing


def _own(work: Work, run: Work) -> Work:
    """The work with the kernels and the overlap of a run."""
    return replace(
        work,
        fused_attention=run.fused_attention,
        attention_kernel=run.attention_kernel,
        overlap_gradients=run.overlap_gradients,
        overlap_parameters=run.overlap_parameters,
        overlap_tensor=run.overlap_tensor,
        gradient_bytes=run.gradient_bytes,
    )


def _timed(goal: Goal, choice: Choice, own: Run | None) -> Timed:
    """The prediction of a choice, whether it fits or not."""
    fused = own is None or own.work.fused_attention
    settings = replace(settings_of(choice), fused_attention=fused)
    work = work_of(goal.model, goal.machine, choice.layout, settings)
    networks = networks_of(goal.machine, choice.layout, settings)
    seconds = step_time(work if own is None else _own(work, own.work), networks, seconds_of).seconds
    return Timed(choice, seconds, memory_of_stage(goal.model, choice.layout, settings)[1].total)


def _forms_of_its_time(goal: Goal, layout: Layout, run: Run, allowed: tuple[Recompute, ...]) -> Iterator[Choice]:
    """The forms of a layout that fit into memory and that the software of a run had, with the least recomputation."""
    told, fused = TOLD[run.dataset], run.work.fused_attention
    if layout.context > 1 and not told.splits_context:
        return
    parallel = run.work.layout.sequence_parallel or run.work.layout.tensor == 1
    layout = replace(layout, sequence_parallel=parallel and layout.tensor > 1)
    alone = layout.data * layout.context == 1
    for stage in (0,) if alone else sorted({0, *told.sharding_stages}):
        sharded = replace(layout, sharding_stage=stage)
        for recompute in allowed:
            settings = Settings(recompute=recompute, fused_attention=fused)
            if memory_of_stage(goal.model, sharded, settings)[1].total <= goal.memory_budget_bytes:
                yield Choice(sharded, recompute, told.order)
                break


def _published(goal: Goal, run: Run, row: dict[str, str], own: Run | None) -> Timed:
    """The published plan, with what is not told at its best among what fits."""
    candidates = [_timed(goal, choice, own) for choice in published_choices(run, row)]
    fit = [one for one in candidates if one.memory_bytes <= goal.memory_budget_bytes]
    return min(fit or candidates, key=lambda one: one.seconds)


def _roomy(goal: Goal, memory_bytes: float) -> Goal:
    """The goal with as much memory as a published plan needs by the model."""
    needed = max(goal.machine.memory_bytes, memory_bytes + goal.reserve_bytes)
    return replace(goal, machine=replace(goal.machine, memory_bytes=needed))


def _standing(goal: Goal, published: Timed, forms: Callable[[Goal, Layout], Iterator[Timed]]) -> Standing:
    w, times, alike = published.choice.layout, [], [published.seconds]
    over = max(0.0, published.memory_bytes - goal.memory_budget_bytes)
    goal, best = _roomy(goal, published.memory_bytes), None
    for layout in layouts(goal):
        for one in forms(goal, layout):
            times.append(one.seconds)
            if (layout.tensor, layout.pipeline, layout.context) == (w.tensor, w.pipeline, w.context):
                alike.append(one.seconds)
            if best is None or one.seconds < best.seconds:
                best = one
    if best is None:
        raise ValueError(f"nothing fits beside {published.choice}")
    return Standing(published, best, len(times), _faster(times, published.seconds), _faster(times, min(alike)), over)


def _faster(times: list[float], seconds: float) -> float:
    return sum(other < seconds * (1 - _SAME) for other in times) / len(times)


def compare(run: Run, row: dict[str, str]) -> Comparison:
    """Search a plan for the constraints of a run, and rank the published one among all that fit.

    Raises:
        ValueError: nothing fits, or the search has missed the fastest choice of its own space.
    """
    goal, allowed = goal_of(run), recomputations(row)

    def of_planner(goal: Goal, layout: Layout) -> Iterator[Timed]:
        return (_timed(goal, choice, None) for choice, _, _ in fitting(goal, layout))

    def of_its_time(goal: Goal, layout: Layout) -> Iterator[Timed]:
        return (_timed(goal, choice, run) for choice in _forms_of_its_time(goal, layout, run, allowed))

    planner = _standing(goal, _published(goal, run, row, None), of_planner)
    found = search(_roomy(goal, planner.published.memory_bytes), 1).best[0]
    if found.outlook.step.seconds > planner.best.seconds * (1 + _SAME):
        raise ValueError(f"{run.row}: the search found {found.choice}, but {planner.best.choice} is faster")
    return Comparison(run, planner, _standing(goal, _published(goal, run, row, run), of_its_time))


def why(one: Standing, measured: float) -> str:
    """What a plan shows that misses a target."""
    published, words = one.published.choice, list[str]()
    if one.ratio > 1 + _SAME:
        split = published.layout.stage_layers
        words.append("chunks without layers, which the planner lacks" if 0 in split else "a form the planner lacks")
    if one.over_bytes:
        words.append(f"published plan {one.over_bytes / 1e9:.1f} GB over the memory less reserve")
    if one.faster_share > TOP_SHARE:
        words += _slower(one)
        error = one.published.seconds / measured - 1
        if abs(error) > _LARGE_ERROR:
            words.append(f"the model is {error:+.0%} off the measured step")
    return ", ".join(words)


def _slower(one: Standing) -> list[str]:
    """What the published plan does that the best one does not."""
    published, best, words = one.published.choice, one.best.choice, []
    if RECOMPUTATIONS.index(published.recompute) > RECOMPUTATIONS.index(best.recompute):
        words.append(f"{published.recompute} recomputation where {best.recompute} fits")
    if published.layout.sharding_stage < best.layout.sharding_stage:
        words.append("optimizer not sharded")
    if published.layout.tensor > 1 and best.layout.sequence_parallel > published.layout.sequence_parallel:
        words.append("no sequence parallelism")
    if one.faster_share_of_degrees > TOP_SHARE:
        words.append("the model likes other degrees")
    return words or ["the model likes other chunks or another micro-batch"]


def print_published(*, small: bool) -> None:
    """Print the comparison of every published row."""
    known = {row["row_id"]: row for row in rows()}
    runs = [run for run in load()[0] if run.dataset in TOLD and (not small or run.row in SHORT_ROWS)]
    results = [compare(run, known[run.row]) for run in runs]
    print("\n== Published plans beside the planner's ==\n" + (__doc__ or "").split("\n\n", 1)[1])
    print(LEGEND)
    print("ratio: best over published (aim: at most 1); faster: share of the compared choices that are faster than the")
    print("published plan (aim: at most 10 %); degrees: the same for the best choice with the published degrees.\n")
    middle = ("published s", "planner s", "ratio", "compared", "faster", "degrees")
    head = ("row", "ranks", "measured s", *middle, "| its time s", "best s", *middle[2:])
    print(table(head, [_figures(one) for one in results]))
    plans = [
        (one.run.row, *(short(item.choice) for item in (one.planner.published, one.planner.best, one.its_time.best)))
        for one in results
    ]
    print("\n" + table(("row", "published, untold at its best", "planner", "best of its time"), plans))
    for name, standings in (
        ("planner", [one.planner for one in results]),
        ("its time", [one.its_time for one in results]),
    ):
        _summary(name, runs, standings)


def _figures(one: Comparison) -> tuple[str, ...]:
    run = one.run
    start = (run.row, f"{run.work.layout.num_ranks:,}", f"{run.seconds:.2f}")
    return (*start, *_columns(one.planner, ""), *_columns(one.its_time, "| "))


def _columns(one: Standing, before: str) -> tuple[str, ...]:
    return (
        f"{before}{one.published.seconds:.2f}",
        f"{one.best.seconds:.2f}",
        f"{one.ratio:.3f}",
        f"{one.num_compared:,}",
        f"{one.faster_share:.1%}",
        f"{one.faster_share_of_degrees:.1%}",
    )


def _summary(name: str, runs: list[Run], standings: list[Standing]) -> None:
    count, many = len(standings), [one for one in standings if one.num_compared >= _MANY]
    reached, ratio = sum(one.ratio <= 1 + _SAME for one in standings), median(one.ratio for one in standings)
    print(
        f"\nCounted as {name}: best plan at or below the published one in {reached} of {count} rows (aim: all),", end=""
    )
    print(f" median ratio {ratio:.3f};\npublished plan in the top tenth in {_top(standings)} (aim: all), ", end="")
    print(f"in {_top(many)} with {_MANY} choices or more;")
    degrees = sum(one.faster_share_of_degrees <= TOP_SHARE for one in standings)
    print(f"the best plan with the published degrees in the top tenth in {degrees} of {count} rows. What misses shows:")
    for run, one in zip(runs, standings, strict=True):
        if words := why(one, run.seconds):
            print(f"  {run.row:24} {words}")


def _top(standings: list[Standing]) -> str:
    return f"{sum(one.faster_share <= TOP_SHARE for one in standings)} of {len(standings)} rows"
