"""Judges a plan that names no node group on each group that its job may run on, for the engine."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from functools import lru_cache
from itertools import islice

from trainspec_validate.documents.types import ClusterProfile, Document, TrainingPlan, UnknownValueError, changed
from trainspec_validate.model.finding import Pointer
from trainspec_validate.performance.derived.groups import Candidates, candidates, is_open
from trainspec_validate.performance.derived.job import Same, nodes_by_name
from trainspec_validate.rules import NotApplicable, Place, Rule, Unresolved, Violation, at
from trainspec_validate.system.budget import Limit


class OpenGroup(NotApplicable):
    """Raised by a rule whose answer depends on the node group, which the plan leaves open."""

    def __init__(self, *, whole_job: bool = False) -> None:
        super().__init__("the plan does not say which node group it runs on")
        self.whole_job = whole_job
        """True where a figure of all ranks is judged: groups that differ do not decide it, each for itself."""


def ask_group(plan: TrainingPlan, cluster: ClusterProfile, *, whole_job: bool = False) -> None:
    """Have the rule run once for each node group that the job may run on, where the plan names none of several.

    Raises:
        OpenGroup: it names none.
        Unresolved: it names one that the cluster does not have.
    """
    check_group(plan, cluster)
    if is_open(plan, cluster):
        raise OpenGroup(whole_job=whole_job)


def check_group(plan: TrainingPlan, cluster: ClusterProfile) -> None:
    """Accept a plan that names a node group of the cluster, or none.

    Raises:
        Unresolved: the cluster has no group of that name.
    """
    if plan.node_group is None:
        return
    names = nodes_by_name(Same(cluster))
    if plan.node_group not in names:
        reason = f"names node_group {plan.node_group!r}, which cluster {cluster.metadata.name} does not have"
        raise Unresolved(at(plan, "node_group"), reason, f"one of: {_listed([*names], 'or')}")


MAX_VIOLATIONS = 100
"""Violations of one requirement that differ in one set of documents and are listed; one more says there are others."""
MAX_PLACES = 500
"""Violations of one requirement in one set of documents that are counted, those that say the same of many items too."""
_DIFFERENT = Limit("a plan without `node_group`", 100, "different node groups that its job may run on")
_Kind = tuple[type[Document], Pointer, bool]
"""A place without the position of the node group that it is in."""


@dataclass(slots=True)
class _Answers:
    """What a rule says of a job in each node group."""

    names: set[str] = field(default_factory=set)
    """Groups that were judged."""
    found: dict[_Kind, list[tuple[tuple[str, ...], Violation]]] = field(default_factory=dict)
    reasons: dict[str, None] = field(default_factory=dict)

    def add(self, names: tuple[str, ...], violation: Violation) -> None:
        self.found.setdefault(_kind(violation.place), []).append((names, violation))


def violations_of(rule: Rule, arguments: Mapping[str, Document]) -> Iterator[Violation]:
    """Violations of a rule; for an open node group, those of the groups that the job may run on.

    Raises:
        NotApplicable: as the rule does.
        UnknownValueError: the rule needs a value that a document does not give; violations before it are yielded.
    """
    found: list[Violation] = []
    try:
        for violation in islice(rule.function(**arguments), MAX_PLACES + 1):
            found.append(violation)  # noqa: PERF402 - a rule may raise after some
    except OpenGroup as question:
        yield from _over_groups(rule, arguments, question)
        return
    except (NotApplicable, UnknownValueError):
        yield from found
        raise
    yield from found


def _over_groups(rule: Rule, arguments: Mapping[str, Document], question: OpenGroup) -> Iterator[Violation]:
    plan = next(document for document in arguments.values() if isinstance(document, TrainingPlan))
    cluster = next(document for document in arguments.values() if isinstance(document, ClusterProfile))
    choice, alike = _choice(Same(plan), Same(cluster))
    answers = _Answers()
    if len(alike) > _DIFFERENT.most:
        reason = f"names no node_group, and its job may run on {len(alike):,} different ones"
        raise Unresolved(at(plan, "parallelism"), reason, f"name one; at most {_DIFFERENT.most} are judged one by one")
    unresolved: Unresolved | None = None
    for names in alike:
        named = _naming(Same(plan), names[0])
        variant = {key: named if document is plan else document for key, document in arguments.items()}
        try:
            for violation in islice(rule.function(**variant), MAX_PLACES + 1):
                answers.add(names, _moved(violation, named, plan))
        except Unresolved as reason:
            reason.place = _given(reason.place, named, plan)
            unresolved = unresolved or reason
        except NotApplicable as reason:
            answers.reasons[str(reason)] = None
        else:
            answers.names.update(names)
    if answers.found or not unresolved:
        yield from _merged(answers, choice, question, plan)
    if unresolved:
        raise unresolved


def _merged(answers: _Answers, choice: Candidates, question: OpenGroup, plan: TrainingPlan) -> Iterator[Violation]:
    every = {nodes.group.name for nodes in choice.groups}
    undecided: set[str] = set()
    for found in answers.found.values():
        failing = {name for names, _ in found for name in names}
        if failing != every and choice.together and question.whole_job:
            undecided |= failing
        elif failing != every and not choice.together:
            others = sorted(answers.names - failing)
            yield from (_possible(names, violation, others) for names, violation in found)
        else:
            yield from _certain(found, everywhere=failing == every)
    if undecided:
        some, rest = _listed(undecided, "and"), _listed(every - undecided, "and")
        reason = f"names no node_group, and its job spans {some}, where the requirement fails, and {rest}"
        raise Unresolved(at(plan, "parallelism"), reason, "name the node_group, where there is one")
    if not answers.names:
        raise NotApplicable("; ".join(answers.reasons))


def _certain(found: list[tuple[tuple[str, ...], Violation]], *, everywhere: bool) -> Iterator[Violation]:
    """Violations at one place in groups that the job needs: once where all groups agree, else for each."""
    by_group: dict[tuple[str, ...], list[Violation]] = {}
    for names, violation in found:
        by_group.setdefault(names, []).append(violation)
    answers = {tuple((v.place.pointer, v.message) for v in violations) for violations in by_group.values()}
    if everywhere and len(answers) == 1:
        yield from next(iter(by_group.values()))
        return
    for names, violation in found:
        yield replace(violation, message=f"in node group {_listed(names, 'and')}: {violation.message}")


def _possible(names: tuple[str, ...], violation: Violation, others: list[str]) -> Violation:
    """A violation in some of the groups that the job may run on."""
    message = f"if the job runs in node group {_listed(names, 'or')}: {violation.message}"
    instead = f"set node_group to {_listed(others, 'or')}" if others else ""
    remedy = "; or ".join(filter(None, (violation.help, instead)))
    return replace(violation, message=message, help=remedy, at_most_warning=True)


def _listed(names: set[str] | list[str] | tuple[str, ...], last: str) -> str:
    quoted = [repr(name) for name in sorted(names)]
    return f" {last} ".join(filter(None, (", ".join(quoted[:-1]), quoted[-1])))


@lru_cache(maxsize=8)
def _choice(plan: Same[TrainingPlan], cluster: Same[ClusterProfile]) -> tuple[Candidates, list[tuple[str, ...]]]:
    """The groups that the job may run on, and those of them that are alike."""
    found = candidates(plan.document, cluster.document)
    return found, _alike(found)


def _alike(choice: Candidates) -> list[tuple[str, ...]]:
    """Names of the groups, those of equal groups together: one answer holds for all of them."""
    found: dict[str, list[str]] = {}
    for nodes in choice.groups:
        found.setdefault(repr(changed(nodes.group, name="-")), []).append(nodes.group.name)
    return [tuple(names) for names in found.values()]


def _kind(place: Place) -> _Kind:
    pointer = place.pointer
    if pointer[:1] == ("node_groups",):
        pointer = ("node_groups", *pointer[2:])
    return type(place.document), pointer, place.key


def _moved(violation: Violation, named: TrainingPlan, plan: TrainingPlan) -> Violation:
    """The violation with places in the plan that was given in place of the one that names a group."""
    related = tuple((_given(place, named, plan), message) for place, message in violation.related)
    return replace(violation, place=_given(violation.place, named, plan), related=related)


@lru_cache(maxsize=128)
def _naming(same: Same[TrainingPlan], name: str) -> TrainingPlan:
    """The plan with a node group; one object for all rules, so that they share a prediction."""
    return changed(same.document, node_group=name)


def _given(place: Place, named: TrainingPlan, plan: TrainingPlan) -> Place:
    """The place in the plan that was given in place of the one that names a group."""
    return replace(place, document=plan) if place.document is named else place
