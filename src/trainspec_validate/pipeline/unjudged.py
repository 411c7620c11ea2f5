"""Says which requirements were not judged on which document because another document is absent or cannot be read."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace

from trainspec_validate.checking.selection import NOT_READ
from trainspec_validate.documents.types import CheckpointPolicy, ClusterProfile, TrainingPlan
from trainspec_validate.model.finding import Cause, Finding, Outcome, Pointer, Unjudged, Verdict
from trainspec_validate.model.requirements import Requirement
from trainspec_validate.pipeline.engine import Binding, Lack, Member
from trainspec_validate.pipeline.reading import DocumentSet, value_at
from trainspec_validate.pipeline.references import Absent, Kind, Link, links

_MAX_KEYS = 4
_WANTS: Mapping[Kind, tuple[tuple[str, Kind], ...]] = {
    TrainingPlan: (("cluster", ClusterProfile),),
    CheckpointPolicy: (("cluster", ClusterProfile), ("plan", TrainingPlan)),
}
"""Key and kind of the documents that one of a kind is judged with."""


def unjudged_of(
    documents: DocumentSet,
    bound: Sequence[Binding],
    rules: Sequence[Requirement],
    absent: Mapping[tuple[str, str], Absent],
    lacks: Iterable[Lack],
) -> tuple[Unjudged, ...]:
    """Requirements that were not judged on each document, by the documents that it has and lacks.

    `absent` says by path and key why a named document was not found. `rules` are the requirements to judge by rules.
    """
    known = list(lacks)
    found = [*_broken(documents, rules), *_lacking(documents, (lack for lack in known if not lack.reason))]
    found += _unresolved(documents, (lack for lack in known if lack.reason))
    for member, binding in zip(documents.judged.values(), bound, strict=True):
        taken: set[str] = set()
        for key, kind in _WANTS.get(type(member.document), ()):
            if kind not in binding:
                ids = tuple(sorted(_on(rules, member, kind) - taken))
                taken.update(ids)
                if ids:
                    found.append(_entry(documents, member, key, ids, absent))
    return tuple(sorted(found, key=lambda entry: (entry.path, entry.reason)))


def _lacking(documents: DocumentSet, lacks: Iterable[Lack]) -> Iterator[Unjudged]:
    """What rules need and documents do not give, or give a value that their schema refuses."""
    by_path: dict[tuple[str, bool, bool], list[Lack]] = {}
    for lack in lacks:
        is_refused = isinstance(value_at(documents.sources[lack.path].data, lack.pointer), str | int | float)
        by_path.setdefault((lack.path, is_refused, _is_listed(documents, lack)), []).append(lack)
    for (path, is_refused, is_listed), those in by_path.items():
        keys = Counter(_words(lack.pointer) for lack in those)
        names = [name for name, _ in keys.most_common(_MAX_KEYS)]
        more = f" and {len(keys) - _MAX_KEYS} more" if len(keys) > _MAX_KEYS else ""
        ids = tuple(sorted({lack.requirement for lack in those}))
        told = f"{', '.join(names)}{more}"
        if is_refused:
            what = "a value that is" if len(keys) == 1 else "values that are"
            yield Unjudged(path, f"gives {told} {what} not known", "correct what the findings name", ids)
        elif is_listed:
            yield Unjudged(path, f"lists {told} as unknown", "give what becomes known", ids)
        else:
            yield Unjudged(path, f"does not give {told}", "add what is known", ids)


def _is_listed(documents: DocumentSet, lack: Lack) -> bool:
    """Whether a document lists what a rule needed, or what holds it, as unknown."""
    unknown = documents.files[lack.path].unknown
    return any(lack.pointer[:length] in unknown for length in range(1, len(lack.pointer) + 1))


def _unresolved(documents: DocumentSet, lacks: Iterable[Lack]) -> Iterator[Unjudged]:
    """What rules could not judge of what documents state, by their reasons."""
    by_reason: dict[tuple[str, Pointer, str, str, Cause], set[str]] = {}
    for lack in lacks:
        key = (lack.path, lack.pointer, lack.reason, lack.help, lack.cause)
        by_reason.setdefault(key, set()).add(lack.requirement)
    for (path, pointer, reason, remedy, cause), ids in by_reason.items():
        place = (pointer, False)
        span = documents.sources[path].locate({place}).get(place)
        yield Unjudged(path, reason, remedy, tuple(sorted(ids)), pointer, span, cause=cause)


def _words(pointer: Pointer) -> str:
    """The keys of a place; entries of one list are named alike.

    >>> _words(("node_groups", 0, "num_nodes"))
    'node_groups[].num_nodes'
    """
    return "".join("[]" if isinstance(step, int) else f".{step}" for step in pointer).removeprefix(".")


def _on(rules: Iterable[Requirement], member: Member, kind: Kind) -> set[str]:
    """The requirements on a document and on one of another kind, and on nothing that it is not judged with."""
    own, other = type(member.document).__name__, kind.__name__
    together = {own, *(kind.__name__ for _, kind in _WANTS[type(member.document)])}
    return {r.id for r in rules if {own, other} <= set(r.documents) <= together}


def _broken(documents: DocumentSet, rules: Iterable[Requirement]) -> Iterator[Unjudged]:
    """The files that no rule was run on."""
    present = set(documents.kinds.values())
    for path in documents.files:
        kind = documents.kinds.get(path)
        if path in documents.judged or kind not in _KIND_NAMES:
            continue
        ids = tuple(sorted(r.id for r in rules if kind in r.documents and present.issuperset(r.documents)))
        if ids:
            yield Unjudged(path, "has errors of form, which come first", "", ids)


_KIND_NAMES = {kind.__name__ for kind in (ClusterProfile, TrainingPlan, CheckpointPolicy)}


def _entry(
    documents: DocumentSet, member: Member, key: str, ids: tuple[str, ...], absent: Mapping[tuple[str, str], Absent]
) -> Unjudged:
    link = next((link for link in links(member) if link.key == key), None)
    pointer = (key,) if link else ()
    place = (pointer, False)
    span = documents.sources[member.path].locate({place}).get(place) if pointer else None
    why = absent.get((member.path, key)) or _why(key, link)
    return Unjudged(member.path, why.reason, why.help, ids, pointer, span)


def _why(key: str, link: Link | None) -> Absent:
    if link is None:
        return Absent(f"names no {key}, and nothing else says which one it is for", f"write {key}: {{name: ...}}")
    which = link.reference.name or link.reference.file or ""
    return Absent(f"names {key} {which!r}, which could not be judged with it", "")


def unexplained(unjudged: Iterable[Unjudged], findings: Iterable[Finding]) -> tuple[Unjudged, ...]:
    """The entries without those on whole files of which findings say already that nothing was judged."""
    told = {finding.path for finding in findings if finding.requirement in NOT_READ}
    return tuple(entry for entry in unjudged if entry.requirements or entry.span or entry.path not in told)


def with_reasons(outcomes: Iterable[Outcome], unjudged: Iterable[Unjudged]) -> Iterator[Outcome]:
    """The outcomes, where what found nothing to judge was not run because of an absent document."""
    reasons: dict[str, dict[str, None]] = {}
    for entry in unjudged:
        for requirement in entry.requirements:
            reasons.setdefault(requirement, {})[f"{entry.path} {entry.reason}"] = None
    for outcome in outcomes:
        why = reasons.get(outcome.requirement)
        if why and outcome.verdict is Verdict.NOT_APPLICABLE:
            yield replace(outcome, verdict=Verdict.NOT_RUN, reason="; ".join(why))
        else:
            yield outcome
