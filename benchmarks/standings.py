"""Ranks published plans among the candidates of the planner's space; see `plans_published`."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, replace
from itertools import product

from available_means import Means, means_of
from plan_rows import TOLD, goal_of, published_choices
from training_sets import Run

from trainspec_validate.performance.costs.layout import Layout
from trainspec_validate.performance.costs.step_time import step_time
from trainspec_validate.performance.forecast.outlook import Settings, memory_of_stage, networks_of, seconds_of, work_of
from trainspec_validate.planner.search import fitting, search, settings_of
from trainspec_validate.planner.space import ORDERS, RECOMPUTATIONS, Choice, Goal, layouts, planned_bytes, shardings

_FAR = 2
"""Times the measured step from which on a prediction is of another plan."""
SAME = 1e-9
"""Difference of two predictions that is none."""


@dataclass(frozen=True, slots=True)
class Timed:
    """A choice with its predicted step and the memory of its fullest rank, the reserve included."""

    choice: Choice
    seconds: float
    memory_bytes: float
    compared: bool = True
    """False where the search knows without a prediction that another form of the same layout is as fast."""


@dataclass(frozen=True, slots=True)
class Standing:
    """A published plan among all choices of a space."""

    published: Timed
    best: Timed
    num_candidates: int
    num_faster: int
    """Candidates that fit and are faster than the published plan."""
    num_faster_than_degrees: int
    """Candidates that fit and are faster than the best choice with the published degrees."""
    compared_rank: float
    """Share of the candidates that the search compares, which are faster than the published plan."""
    rank_with_repeats: float
    """The rank where candidates that are the same plan in effect count each for itself."""
    over_bytes: float
    """Memory of the published plan beyond what a plan may use; 0 where it fits."""

    @property
    def ratio(self) -> float:
        """Step of the best choice over that of the published plan."""
        return self.best.seconds / self.published.seconds

    @property
    def rank(self) -> float:
        """Share of the candidates that are faster than the published plan."""
        return self.num_faster / self.num_candidates

    @property
    def rank_of_degrees(self) -> float:
        """Share of the candidates that are faster than the best choice with the published degrees."""
        return self.num_faster_than_degrees / self.num_candidates


@dataclass(frozen=True, slots=True)
class Comparison:
    """A published run with its rank by both ways of counting."""

    run: Run
    planner: Standing
    its_time: Standing


@dataclass(frozen=True, slots=True)
class Own:
    """A run whose kernels, overlap and means are those of a prediction."""

    run: Run
    means: Means


@dataclass(frozen=True, slots=True)
class Candidate:
    """A choice of a space with its prediction; None where it does not fit."""

    choice: Choice
    timed: Timed | None


@dataclass(frozen=True, slots=True)
class Space:
    """The candidates of each layout, and whether their attention is fused."""

    forms: Callable[[Goal, Layout], Iterator[Candidate]]
    fused_attention: bool

    def effect(self, choice: Choice) -> Choice:
        """The same for choices that are one plan in effect, in time and in memory.

        Selective recomputation repeats the scores that attention keeps unless it is fused (arXiv:2205.05198, section
        5); with fused attention it repeats nothing.
        """
        plain = self.fused_attention and choice.recompute == "selective"
        return replace(choice, recompute="none") if plain else choice


def _timed(goal: Goal, choice: Choice, own: Own | None) -> Timed:
    """The prediction of a choice, whether it fits or not."""
    settings = _settings(choice, own)
    work = work_of(goal.model, goal.machine, choice.layout, settings)
    networks = networks_of(goal.machine, choice.layout, settings)
    seconds = step_time(work if own is None else own.means.own(work, own.run.work), networks, seconds_of).seconds
    memory = memory_of_stage(goal.model, choice.layout, settings)[1]
    return Timed(choice, seconds, planned_bytes(memory, goal.machine.accelerator, goal.reserve_bytes))


def _settings(choice: Choice, own: Own | None) -> Settings:
    settings = settings_of(choice)
    return settings if own is None else replace(settings, software=own.run.prediction.settings.software)


def _of_planner(goal: Goal, layout: Layout) -> Iterator[Candidate]:
    """Every form of a layout in the planner's space, whether the search compares it or not."""
    compared = {choice for choice, _, _ in fitting(goal, layout)}
    orders = ORDERS if layout.pipeline > 1 and layout.data > 1 else ORDERS[:1]
    sharded = dict.fromkeys(form for group in shardings(goal, layout) for form in group)
    for form, recompute, order in product(sharded, RECOMPUTATIONS, orders):
        choice = Choice(form, recompute, order)
        fits = goal.holds(memory_of_stage(goal.model, form, settings_of(choice))[1])
        timed = replace(_timed(goal, choice, None), compared=choice in compared) if fits else None
        yield Candidate(choice, timed)


def _of_its_time(goal: Goal, layout: Layout, own: Own, row: dict[str, str]) -> Iterator[Candidate]:
    """Every form of a layout that the software of a run had."""
    if not own.means.allows(layout, goal.model.shape.num_layers):
        return
    for form, recompute in own.means.forms(layout, own.run, row):
        choice = Choice(form, recompute, TOLD[own.run.dataset].order)
        fits = goal.holds(memory_of_stage(goal.model, form, _settings(choice, own))[1])
        yield Candidate(choice, _timed(goal, choice, own) if fits else None)


def _published(goal: Goal, run: Run, row: dict[str, str], own: Own | None) -> Timed:
    """The published plan, with what is not told at its best among what fits and may be what was measured."""
    choices = list(published_choices(run, row))
    if own is not None:
        layers = goal.model.shape.num_layers
        choices = [choice for choice in choices if own.means.allows(choice.layout, layers)] or choices
    candidates = [_timed(goal, choice, own) for choice in choices]
    near = [one for one in candidates if one.seconds <= _FAR * run.seconds] or candidates
    fit = [one for one in near if one.memory_bytes <= goal.machine.memory_bytes]
    return min(fit or near, key=lambda one: one.seconds)


def _roomy(goal: Goal, memory_bytes: float) -> Goal:
    """The goal with as much memory as a published plan needs by the model."""
    needed = max(goal.machine.memory_bytes, memory_bytes)
    return replace(goal, machine=replace(goal.machine, memory_bytes=needed))


def _standing(goal: Goal, published: Timed, space: Space) -> Standing:
    over = max(0.0, published.memory_bytes - goal.machine.memory_bytes)
    goal = _roomy(goal, published.memory_bytes)
    every = [one for layout in layouts(goal) for one in space.forms(goal, layout)]
    apart: dict[Choice, Candidate] = {}
    for one in every:
        apart.setdefault(space.effect(one.choice), one)
    fit = _fitting(apart.values())
    if not fit:
        raise ValueError(f"nothing fits next to {published.choice}")
    compared = [one for one in fit if one.compared]
    return Standing(
        published=published,
        best=min(fit, key=lambda one: one.seconds),
        num_candidates=len(apart),
        num_faster=_faster(fit, published.seconds),
        num_faster_than_degrees=_faster(fit, _with_degrees(published, fit)),
        compared_rank=_faster(compared, published.seconds) / len(compared),
        rank_with_repeats=_faster(_fitting(every), published.seconds) / len(every),
        over_bytes=over,
    )


def _fitting(candidates: Iterable[Candidate]) -> list[Timed]:
    return [one.timed for one in candidates if one.timed is not None]


def _with_degrees(published: Timed, fit: list[Timed]) -> float:
    """Seconds of the best choice with the published degrees."""

    def degrees(one: Timed) -> tuple[int, int, int]:
        layout = one.choice.layout
        return layout.tensor, layout.pipeline, layout.context

    alike = [one.seconds for one in fit if degrees(one) == degrees(published)]
    return min([published.seconds, *alike])


def _faster(timed: list[Timed], seconds: float) -> int:
    return sum(other.seconds < seconds * (1 - SAME) for other in timed)


def compare(run: Run, row: dict[str, str]) -> Comparison:
    """Search a plan for the constraints of a run, and rank the published one among the candidates.

    Raises:
        ValueError: nothing fits, or the search has missed the fastest choice of its own space.
    """
    goal, own = goal_of(run), Own(run, means_of(row))

    def of_its_time(goal: Goal, layout: Layout) -> Iterator[Candidate]:
        return _of_its_time(goal, layout, own, row)

    planner = _standing(goal, _published(goal, run, row, None), Space(_of_planner, fused_attention=True))
    found = search(_roomy(goal, planner.published.memory_bytes), 1).best[0]
    if found.outlook.step.seconds > planner.best.seconds * (1 + SAME):
        raise ValueError(f"{run.row}: the search found {found.choice}, but {planner.best.choice} is faster")
    its_time = Space(of_its_time, run.work.fused_attention)
    return Comparison(run, planner, _standing(goal, _published(goal, run, row, own), its_time))
