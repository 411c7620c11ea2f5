"""Searches the space of choices for those with the shortest predicted step, and for the plans to recommend.

Predictions distinguish layouts of one job to a few per cent only, so the recommended plan is the simplest one among
those whose predicted times a prediction cannot distinguish from the shortest.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from math import inf

from trainspec_validate.documents.types.base import SoftwareComponent
from trainspec_validate.performance.costs.layout import Layout
from trainspec_validate.performance.costs.memory_overheads import Overheads
from trainspec_validate.performance.costs.rank_memory import Activations, RankMemory, activations, stage_peaks
from trainspec_validate.performance.costs.software import is_known, software_of
from trainspec_validate.performance.forecast.outlook import (
    Outlook,
    Recompute,
    Settings,
    least_seconds_of,
    memory_policy,
    outlook,
    overheads_of,
)
from trainspec_validate.performance.forecast.predict import UNKNOWN_HOST_WORK
from trainspec_validate.performance.topology.networks import NotJoined
from trainspec_validate.planner.space import (
    OFFLOADED,
    ORDERS,
    RECOMPUTATIONS,
    Choice,
    Complexity,
    Goal,
    Offload,
    dimensions,
    layouts,
    shardings,
)

_LOOK_AFTER = 64
INDIFFERENCE = 0.03
"""Share of a step below which predictions do not distinguish two layouts of one job: the ratio of two predicted times
misses the measured ratio by 2.9 % in the median of 22 pairs of published runs (benchmarks/score_step_time.py)."""
CONTEXT_INDIFFERENCE = 0.05
"""Share of a step that context ranks have to save over fewer of them. Predictions distinguish them worse: the ratio
misses the measured one by 30 % in the median of 20 pairs of published runs that differ in context ranks, 19 of which
took longer with more of them than predicted."""
Progress = Callable[[int, int], None]
"""Called with the number of layouts looked at and their total."""


@dataclass(frozen=True, slots=True)
class Scored:
    """A choice with what is predicted of it."""

    choice: Choice
    stage: int
    """The fullest pipeline stage."""
    memory: RankMemory
    """Bytes of one of its ranks."""
    outlook: Outlook
    seconds: float
    """Of a step, kept next to the outlook because comparisons ask for it a million times.

    For a plan that offloads it is the time on the device alone, by which such plans are ordered and nothing else.
    """
    host_bytes: float = 0.0
    """Memory of its host that the rank with most offloaded state takes."""

    @property
    def rank_key(self) -> tuple[float, tuple[object, ...]]:
        """Shortest predicted step first; equal times in the order of choices."""
        return self.seconds, self.choice.key

    @property
    def untimed(self) -> str | None:
        """Why the time of a step is not predicted; None where it is."""
        return None if self.choice.offload == "none" else UNKNOWN_HOST_WORK


@dataclass(frozen=True, slots=True)
class Ranking:
    """The best choices, and how many there were."""

    best: tuple[Scored, ...]
    """The shortest predicted steps, often of choices that hardly differ."""
    plans: tuple[Scored, ...]
    """The plans to show: first the simplest of those that are as good as the fastest, then one of every other kind."""
    alternatives: Mapping[tuple[str, Hashable], Scored]
    """The best choice for every value of every dimension, by the names of `dimensions`."""
    num_layouts: int
    num_too_large: int
    """Layouts of which no form fits into memory."""
    num_compared: int
    """Choices that fit, compared by their prediction or, where that is enough, by a bound of it."""


class _Plans:
    """Collects the fastest choice of each kind and complexity, from which the plans to show are taken."""

    def __init__(self) -> None:
        self._kinds: dict[Hashable, dict[Complexity, Scored]] = {}

    def note(self, scored: Scored) -> None:
        """Look at one more choice."""
        simplest = self._kinds.setdefault(scored.choice.kind, {})
        complexity = scored.choice.complexity
        known = simplest.get(complexity)
        if known is None or (scored.seconds <= known.seconds and scored.rank_key < known.rank_key):
            simplest[complexity] = scored

    def slowest_shown(self, number: int) -> float:
        """Seconds beyond which no choice changes which plans are shown.

        A plan takes no longer than its kind's fastest choice by more than `CONTEXT_INDIFFERENCE`. So there are enough
        plans up to that much above the fastest choices of so many kinds, and as much again are their simpler forms.
        """
        fastest = sorted(min(one.seconds for one in kind.values()) for kind in self._kinds.values())
        return fastest[number - 1] * (1 + CONTEXT_INDIFFERENCE) ** 2 if len(fastest) >= number else inf

    def shown(self, number: int) -> tuple[Scored, ...]:
        """The plan to recommend, and the best ones that differ from it and from each other in kind."""
        first = _simplest(scored for kind in self._kinds.values() for scored in kind.values())
        if first is None:
            return ()
        others = [_simplest(kind.values()) for key, kind in self._kinds.items() if key != first.choice.kind]
        ordered = sorted((scored for scored in others if scored is not None), key=lambda scored: scored.rank_key)
        return (first, *ordered[: number - 1])


def _simplest(candidates: Iterable[Scored]) -> Scored | None:
    """The simplest of the choices that predictions do not distinguish from the fastest.

    Context ranks need a reason: a choice with fewer of them is preferred unless it is slower by more than predictions
    of layouts with other context ranks miss.
    """
    every = list(candidates)
    if not every:
        return None
    fastest: dict[int, float] = {}
    for scored in every:
        context = scored.choice.layout.context
        fastest[context] = min(scored.seconds, fastest.get(context, scored.seconds))
    limit = min(fastest.values()) * (1 + CONTEXT_INDIFFERENCE)
    context = min(degree for degree, seconds in fastest.items() if seconds <= limit)
    limit = max(fastest[context], min(limit, fastest[context] * (1 + INDIFFERENCE)))
    as_fast = (one for one in every if one.choice.layout.context == context and one.seconds <= limit)
    return min(as_fast, key=lambda one: (one.choice.complexity, one.rank_key))


def settings_of(choice: Choice, framework: SoftwareComponent | None = None) -> Settings:
    """Facts of a choice besides its layout that a prediction needs."""
    shares = {f"offloaded_{what}": 1.0 for what in OFFLOADED[choice.offload]}
    plain = Settings(recompute=choice.recompute, order=choice.order, **shares)  # type: ignore[arg-type]
    if framework is None:
        return plain
    software = software_of(framework.name, framework.version)
    return replace(plain, software=software, framework_named=is_known(framework.name))


def fitting(goal: Goal, layout: Layout, offload: Offload = "none") -> Iterator[tuple[Choice, int, RankMemory]]:
    """The forms of a layout that fit into memory and are not slower than another by construction.

    More recomputation only adds operations, so that the least that fits is never slower. More sharding among the same
    ranks only adds messages, so that it is looked at where it saves recomputation.
    """
    orders = ORDERS if layout.pipeline > 1 and layout.data > 1 else ORDERS[:1]
    forms = _Forms(goal, layout, offload)
    for growing in shardings(goal, layout):
        least = len(RECOMPUTATIONS)
        for sharded in growing:
            if not goal.abilities.offloads(sharded, offload):
                continue
            for index, recompute in enumerate(RECOMPUTATIONS[:least]):
                held = forms.held(sharded, recompute)
                if held:
                    yield from ((Choice(sharded, recompute, order, offload), *held) for order in orders)
                    least = index
                    break


class _Forms:
    """Memory of the forms of a layout, whose activations are counted once for each recomputation."""

    def __init__(self, goal: Goal, layout: Layout, offload: Offload = "none") -> None:
        self._goal, self._layout, self._offload = goal, layout, offload
        self._kept: dict[Recompute, tuple[Activations, Overheads]] = {}

    def held(self, sharded: Layout, recompute: Recompute) -> tuple[int, RankMemory] | None:
        """The fullest stage and the bytes of one of its ranks; None where they do not fit."""
        goal, fullest = self._goal, None
        for found in stage_peaks(goal.model.shape, sharded, goal.model.state, *self._counted(recompute)):
            if not goal.holds(found[1]):
                return None
            fullest = found if fullest is None or found[1].total > fullest[1].total else fullest
        return fullest

    def _counted(self, recompute: Recompute) -> tuple[Activations, Overheads]:
        if recompute not in self._kept:
            goal, choice = self._goal, Choice(self._layout, recompute, offload=self._offload)
            plain = settings_of(choice, goal.framework)
            policy, overheads = memory_policy(
                goal.model, replace(plain, overheads=overheads_of(goal.machine.accelerator))
            )
            self._kept[recompute] = activations(goal.model.shape, self._layout, policy), overheads
        return self._kept[recompute]


def search(goal: Goal, num_best: int = 5, progress: Progress | None = None) -> Ranking:
    """The choices with the shortest predicted step, in a fixed order; exact over the space of `planner.space`.

    Raises:
        ValueError: fewer than one choice is asked for.
    """
    return _search(goal, num_best, progress, "none")


def search_offloaded(goal: Goal, num_best: int = 5, progress: Progress | None = None) -> Ranking | None:
    """The choices that fit with as little on the host as possible; None where none does.

    They are for a goal of which nothing fits without: their time is not predicted.

    Raises:
        ValueError: fewer than one choice is asked for.
    """
    if goal.host_bytes_per_rank is None:
        return None
    rankings = (_search(goal, num_best, progress, offload) for offload in OFFLOADED if offload != "none")
    return next((ranking for ranking in rankings if ranking.plans), None)


def _search(goal: Goal, num_best: int, progress: Progress | None, offload: Offload) -> Ranking:
    if num_best < 1:
        raise ValueError(f"{num_best} choices are asked for")
    found, too_large = _Found(num_best), 0
    bounds = sorted((_Bound(goal, layout) for layout in layouts(goal)), key=lambda bound: bound.least)
    for index, bound in enumerate(bounds):
        if progress is not None:
            progress(index, len(bounds))
        fits = False
        for choice, stage, memory in fitting(goal, bound.layout, offload):
            host = host_bytes(goal, choice) if offload != "none" else 0.0
            if host > (goal.host_bytes_per_rank or 0.0):
                continue
            fits = True
            found.note(_scored(goal, choice, stage, memory, host) if found.may_show(choice, bound) else bound)
        too_large += not fits
    return found.ranking(len(bounds), too_large)


class _Bound:
    """Seconds below which no form of a layout is predicted, less what sums of floats may differ by."""

    def __init__(self, goal: Goal, layout: Layout) -> None:
        self._goal, self.layout = goal, layout
        self._with: dict[Recompute, float] = {}
        self.least = self.of("none")

    def of(self, recompute: Recompute) -> float:
        """The bound of the forms with a recomputation."""
        if recompute not in self._with:
            goal, settings = self._goal, settings_of(Choice(self.layout, recompute), self._goal.framework)
            try:
                found = least_seconds_of(goal.model, goal.machine, self.layout, settings) * (1 - 1e-9)
            except NotJoined:
                found = 0.0
            self._with[recompute] = found
        return self._with[recompute]


class _Found:
    """Collects what a ranking shows, and says which choices cannot be in it.

    The bound of a choice is compared with the best of every value that it has, and with the slowest plan that may be
    shown. So what a ranking holds is the same as if every choice were predicted, in whatever order.
    """

    def __init__(self, number: int) -> None:
        self._number = number
        self._best: list[Scored] = []
        self._plans = _Plans()
        self._alternatives: dict[tuple[str, Hashable], Scored] = {}
        self._num_compared = self._num_predicted = 0
        self._slowest = inf

    def may_show(self, choice: Choice, bound: _Bound) -> bool:
        """Whether a choice may be in the ranking, for all that is known before its prediction."""
        if bound.least <= self._slowest and bound.of(choice.recompute) <= self._slowest:
            return True
        known, least = self._alternatives, bound.of(choice.recompute)
        return any(entry not in known or least <= known[entry].seconds for entry in dimensions(choice).items())

    def note(self, scored: Scored | _Bound | None) -> None:
        """Look at one more choice: its prediction, or the bound that rules it out, or None without links for it."""
        self._num_compared += scored is not None
        if not isinstance(scored, Scored):
            return
        self._num_predicted += 1
        self._best.append(scored)
        self._plans.note(scored)
        _note(self._alternatives, scored)
        if self._num_predicted % _LOOK_AFTER == 0:
            self._best = _best(self._best, self._number)
            self._slowest = self._plans.slowest_shown(self._number)

    def ranking(self, num_layouts: int, num_too_large: int) -> Ranking:
        """All of it."""
        best = tuple(_best(self._best, self._number))
        plans = self._plans.shown(self._number)
        return Ranking(best, plans, self._alternatives, num_layouts, num_too_large, self._num_compared)


def _best(scored: list[Scored], number: int) -> list[Scored]:
    return sorted(scored, key=lambda item: item.rank_key)[:number]


def _note(alternatives: dict[tuple[str, Hashable], Scored], scored: Scored) -> None:
    for entry in dimensions(scored.choice).items():
        known = alternatives.get(entry)
        if known is None or (scored.seconds <= known.seconds and scored.rank_key < known.rank_key):
            alternatives[entry] = scored


def host_bytes(goal: Goal, choice: Choice) -> float:
    """Bytes of model state that the fullest rank of a choice leaves on its host."""
    kept, whole = _states(goal, choice), _states(goal, replace(choice, offload="none"))
    return max(every - some for some, every in zip(kept, whole, strict=True))


def _states(goal: Goal, choice: Choice) -> list[float]:
    """Bytes of model state on the device of a rank of each stage that may be the fullest."""
    settings = replace(settings_of(choice, goal.framework), overheads=overheads_of(goal.machine.accelerator))
    policy, overheads = memory_policy(goal.model, settings)
    held = replace(overheads, optimizer_copies=0.0)
    stages = stage_peaks(goal.model.shape, choice.layout, goal.model.state, policy, held)
    return [memory.weights + memory.gradients + memory.optimizer for _, memory in stages]


def _scored(goal: Goal, choice: Choice, stage: int, memory: RankMemory, host: float) -> Scored | None:
    """The prediction of a choice; None where the machine has no links for it."""
    try:
        found = outlook(goal.model, goal.machine, choice.layout, settings_of(choice, goal.framework))
    except NotJoined:
        return None
    return Scored(choice, stage, memory, found, found.step.seconds, host)
