"""Derives which requirements were judged on which file, and the verdicts on requirements of form."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

from trainspec_validate.checking.selection import Selection, taken_by
from trainspec_validate.checking.suppress import NEVER_SILENCED
from trainspec_validate.model.finding import Finding, Outcome, Verdict, verdict_of
from trainspec_validate.pipeline.engine import Binding
from trainspec_validate.pipeline.reading import DocumentSet
from trainspec_validate.pipeline.references import DANGLING

NAME_TAKEN = "TS-DOC-013"
_NEEDS_OTHERS = frozenset({DANGLING, NAME_TAKEN})
"""Requirements that the pipeline can judge only beside other documents."""


def judged_on(
    documents: DocumentSet,
    selection: Selection,
    bound: Sequence[Binding],
    outcomes: Iterable[Outcome],
    elsewhere: Mapping[str, frozenset[str]],
) -> Callable[[str, str], bool]:
    """Whether a requirement was judged on a file, so that a silencer which silenced nothing there is idle.

    `elsewhere` holds the files and directories that each other way of checking has judged.
    """
    answered = {o.requirement for o in outcomes if o.verdict in {Verdict.PASS, Verdict.FAIL, Verdict.WARN}}

    def judged(identifier: str, path: str) -> bool:
        if not selection.takes(documents.index, identifier):
            return False
        if documents.index.by_id[identifier].check == "rule":
            wanted = set(documents.index.by_id[identifier].documents)
            sets = [binding for binding in bound if wanted <= {kind.__name__ for kind in binding}]
            return identifier in answered and any(path == m.path for binding in sets for m in binding.values())
        if documents.index.by_id[identifier].check in elsewhere:
            those = elsewhere[documents.index.by_id[identifier].check]
            return identifier in answered and any(path == one or path.startswith(f"{one}/") for one in those)
        if identifier in _NEEDS_OTHERS:
            return path in documents.complete and len(documents.complete) > 1
        return path in documents.kinds

    return judged


def outcomes_of_form(
    documents: DocumentSet, findings: Iterable[Finding], selection: Selection, judged: Callable[[str, str], bool]
) -> Iterator[Outcome]:
    """The verdicts on what the loader and the schemas check; silencers are left out, they are judged last."""
    counts = Counter(finding.requirement for finding in findings)
    taken = taken_by(selection, documents.index)
    for requirement in documents.index.by_id.values():
        identifier = requirement.id
        if requirement.check not in {"load", "schema"} or identifier in NEVER_SILENCED:
            continue
        if identifier not in taken or not documents.files:
            continue
        if counts[identifier] or any(judged(identifier, path) for path in documents.kinds):
            yield Outcome(identifier, verdict_of(requirement.severity, counts[identifier]), counts[identifier])
        else:
            yield Outcome(identifier, Verdict.NOT_APPLICABLE, reason="no document that it could be judged on")


_WITHOUT_INPUT = {
    "rule": "no document was given",
    "stream": "no stream of a run was given",
    "artifact": "no checkpoint was given",
    "runtime": "trainspec-conformance checks it on a running stack",
    "manual": "people check it",
}


def without_input(
    documents: DocumentSet, selection: Selection, elsewhere: Mapping[str, frozenset[str]]
) -> Iterator[Outcome]:
    """The requirements that were selected one by one or by chapter, and that nothing given can be judged by."""
    given = {check for check, paths in elsewhere.items() if paths} | ({"rule"} if documents.files else set())
    taken = taken_by(selection, documents.index)
    for requirement in documents.index.by_id.values() if selection.select else ():
        reason = _WITHOUT_INPUT.get(requirement.check)
        if reason and requirement.check not in given and requirement.id in taken:
            yield Outcome(requirement.id, Verdict.NOT_RUN, reason=reason)
