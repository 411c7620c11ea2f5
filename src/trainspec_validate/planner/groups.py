"""Plans a job on each node group that has room for it, and keeps the group on which it trains fastest."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

from trainspec_validate.documents.types import ClusterProfile, changed
from trainspec_validate.documents.types.model import Model
from trainspec_validate.model.units import number
from trainspec_validate.performance.derived.plan import num_ranks
from trainspec_validate.performance.forecast.facts import Unpredictable
from trainspec_validate.performance.forecast.joint import joint_of
from trainspec_validate.performance.forecast.outlook import most_tokens_per_second
from trainspec_validate.planner.explain import nothing_fits
from trainspec_validate.planner.request import Adapters, Impossible, Request, Wishes, request
from trainspec_validate.planner.search import Progress, Ranking, search, search_offloaded

MOST_COMPARED = 32
"""Different node groups that are compared; each may take a search."""
_MOST_LISTED = 8


@dataclass(frozen=True, slots=True)
class GroupAnswer:
    """How fast the job trains on one node group, or why it does not run there."""

    name: str
    tokens_per_second: float | None = None
    """Of the plan that is recommended on the group; None without one."""
    most_tokens_per_second: float | None = None
    """Of its ranks at their peak rate, where that rules the group out before a search."""
    mean_error: float | None = None
    """Of predictions of jobs of the kind; None where no run of it was measured."""
    refused: str | None = None

    def __str__(self) -> str:
        if self.refused is not None:
            return f"{self.name}: {self.refused}"
        if self.tokens_per_second is not None:
            return f"{self.name}: {_rate(self.tokens_per_second)}"
        return f"{self.name}: at most {_rate(self.most_tokens_per_second or 0.0)} at its peak rate"


@dataclass(frozen=True, slots=True)
class Planned:
    """The plans of a job on the node group that it trains fastest on."""

    request: Request
    ranking: Ranking
    groups: tuple[GroupAnswer, ...] = ()
    """One for each node group of several, where none was asked for."""


def planned(  # noqa: PLR0913, PLR0917
    cluster: ClusterProfile,
    model: Model,
    wishes: Wishes,
    adapters: Adapters | None = None,
    num_best: int = 5,
    progress: Progress | None = None,
) -> Planned:
    """The plans on the node group that is asked for or the only one; else on the one of most tokens per second.

    A job that no group has room for takes all groups, where their slowest nodes bound a step (`forecast.joint`).

    Raises:
        Impossible: no group can be planned for; the text has the reason of each.
        Unpredictable: the same of the one that is asked for, or of all together.
    """
    if wishes.node_group is not None or len(cluster.node_groups) == 1:
        asked = request(cluster, model, wishes, adapters)
        return Planned(asked, _ranking(asked, num_best, progress))
    if wishes.num_ranks is not None and wishes.num_ranks > max(_sizes(cluster).values()):
        asked = _together(cluster, model, wishes, adapters)
        return Planned(asked, _ranking(asked, num_best, progress))
    return _Comparison(cluster, num_best, progress).fastest(*_requests(cluster, model, wishes, adapters))


def _ranking(asked: Request, num_best: int, progress: Progress | None) -> Ranking:
    """The plans of a request; where nothing fits, those that leave model state on the host."""
    found = search(asked.goal, num_best, progress)
    return found if found.plans else search_offloaded(asked.goal, num_best, progress) or found


def _sizes(cluster: ClusterProfile) -> Mapping[str, int]:
    return {group.name: num_ranks((group,)) for group in cluster.node_groups}


def _together(cluster: ClusterProfile, model: Model, wishes: Wishes, adapters: Adapters | None) -> Request:
    """The request of a job that no node group has room for."""
    every, wanted = num_ranks(cluster.node_groups), number(wishes.num_ranks or 0)
    sizes = _sizes(cluster)
    largest = max(sizes, key=sizes.__getitem__)
    if wishes.num_ranks != every:
        raise Impossible(
            f"{wanted} ranks are asked for, and the largest node group, {largest}, has {number(sizes[largest])}; a job "
            f"over several groups takes all of their {number(every)} ranks (TS-TOP-017)"
        )
    try:
        asked = request(cluster, model, wishes, adapters, takes_all_groups=True)
    except Unpredictable as error:
        raise Unpredictable(f"a job over all node groups is not predicted: {error}") from error
    slowest, names = cluster.node_groups[asked.nodes.index].name, ", ".join(sizes)
    note = f"node groups: all of {names}"
    if asked.goal.machine.is_mixed:
        note += f"; all ranks are predicted as those of {slowest}, the slowest, which bound each step"
    return replace(asked, assumptions=(note, *asked.assumptions))


def _requests(
    cluster: ClusterProfile, model: Model, wishes: Wishes, adapters: Adapters | None
) -> tuple[dict[str, Request], dict[str, tuple[str, ...]], list[GroupAnswer]]:
    """The request of each node group that has room, the names of equal groups by their first, and the refused ones."""
    alike: dict[str, list[str]] = {}
    for group in cluster.node_groups:
        alike.setdefault(repr(changed(group, name="-", description=None)), []).append(group.name)
    if len(alike) > MOST_COMPARED:
        several = f"{cluster.metadata.name} has {number(len(alike))} different node groups"
        raise Impossible(f"{several}, and at most {MOST_COMPARED} are compared; choose with --node-group")
    found: dict[str, Request] = {}
    refused: list[GroupAnswer] = []
    for names in alike.values():
        try:
            found[names[0]] = request(cluster, model, replace(wishes, node_group=names[0]), adapters)
        except (Impossible, Unpredictable) as error:
            refused += [GroupAnswer(name, refused=str(error)) for name in names]
    return found, {names[0]: tuple(names) for names in alike.values()}, refused


class _Comparison:
    """Searches groups in the order of their peak rates, until no other can be faster."""

    def __init__(self, cluster: ClusterProfile, num_best: int, progress: Progress | None) -> None:
        self._cluster, self._num_best, self._progress = cluster, num_best, progress
        self._best: tuple[float, Request, Ranking] | None = None
        self._offloaded: tuple[Request, Ranking] | None = None
        """Of the group of the highest peak rate that has plans with offload alone."""
        self._answers: list[GroupAnswer] = []

    def fastest(
        self, requests: Mapping[str, Request], alike: Mapping[str, tuple[str, ...]], refused: list[GroupAnswer]
    ) -> Planned:
        """The plans of the fastest group.

        Raises:
            Impossible: no group has a plan.
        """
        most = {name: _most(asked) for name, asked in requests.items()}
        for name in sorted(requests, key=lambda name: (-most[name], name)):
            answer = self._answer(name, requests[name], most[name])
            self._answers += [replace(answer, name=each) for each in alike[name]]
        self._answers += refused
        if self._best is None and self._offloaded is not None:
            asked, ranking = self._offloaded
            words = f"node group: {asked.nodes.group.name}, set --node-group for another; {_listed(self._answers)}"
            return Planned(replace(asked, assumptions=(words, *asked.assumptions)), ranking, tuple(self._answers))
        if self._best is None:
            reasons = {answer.refused or "" for answer in self._answers}
            words = reasons.pop() if len(reasons) == 1 else f"no node group has a plan: {_listed(self._answers)}"
            raise Impossible(words)
        _, asked, ranking = self._best
        assumptions = (self._choice(asked.nodes.group.name), *asked.assumptions)
        asked = replace(asked, assumptions=assumptions, notes=(*asked.notes, _all_together(self._cluster)))
        return Planned(asked, ranking, tuple(self._answers))

    def _answer(self, name: str, asked: Request, most: float) -> GroupAnswer:
        if self._best is not None and most < self._best[0]:
            return GroupAnswer(name, most_tokens_per_second=most)
        ranking = _ranking(asked, self._num_best, self._progress)
        if not ranking.plans:
            return GroupAnswer(name, refused=nothing_fits(asked, ranking))
        if ranking.plans[0].untimed:
            self._offloaded = self._offloaded or (asked, ranking)
            return GroupAnswer(name, refused="fits with offload to its hosts alone, and its step is not predicted")
        rate = ranking.plans[0].outlook.tokens_per_second
        if self._best is None or rate > self._best[0]:
            self._best = (rate, asked, ranking)
        band = ranking.plans[0].outlook.band
        return GroupAnswer(name, tokens_per_second=rate, mean_error=band.mean_error if band else None)

    def _choice(self, name: str) -> str:
        """Why the job runs on a group."""
        own = next(answer for answer in self._answers if answer.name == name)
        others = [answer for answer in self._answers if answer.name != name]
        words = _listed(others, [_doubt(own, other) for other in others])
        fastest = f"the fastest of {len(self._answers)} with {_rate(own.tokens_per_second or 0.0)}"
        return f"node group: {name}, {fastest}, set --node-group for another; {words}"


def _most(asked: Request) -> float:
    goal = asked.goal
    return most_tokens_per_second(goal.model, goal.machine, goal.num_ranks, goal.sequence_length)


def _all_together(cluster: ClusterProfile) -> str:
    """Whether a job over all node groups is predicted, and how to ask for it."""
    every = number(num_ranks(cluster.node_groups))
    try:
        joint = joint_of(cluster)
    except Unpredictable as error:
        return f"a job over all node groups is not predicted: {error}"
    bound = f", bound by {cluster.node_groups[joint.nodes.index].name}," if joint.machine.is_mixed else ""
    return f"a job over all {len(cluster.node_groups)} node groups{bound} is planned with --num-ranks {every}"


def _doubt(own: GroupAnswer, other: GroupAnswer) -> str:
    """That a group may be as fast as the one that is chosen, for all that predictions of both kinds miss."""
    rates = (own.tokens_per_second, other.tokens_per_second)
    if rates[0] is None or rates[1] is None:
        return ""
    errors = (own.mean_error, other.mean_error)
    is_known = None not in errors and rates[0] / rates[1] - 1 > max(error or 0.0 for error in errors)
    return "" if is_known else ", which predictions do not distinguish"


def _listed(answers: list[GroupAnswer], doubts: list[str] | None = None) -> str:
    words = [f"{answer}{doubt}" for answer, doubt in zip(answers, doubts or [""] * len(answers), strict=True)]
    more = len(words) - _MOST_LISTED
    return "; ".join([*words[:_MOST_LISTED], *([f"and {more} more"] if more > 0 else [])])


def _rate(tokens_per_second: float) -> str:
    return f"{number(round(float(f'{tokens_per_second:.3g}')))} tokens per second"
