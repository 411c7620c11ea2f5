"""Reads the documents that those of a set refer to, by file or by name, and where asked those that refer to them."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path

from trainspec_validate.documents.load import LoadError
from trainspec_validate.model.finding import Finding, Origin, Unjudged
from trainspec_validate.pipeline import excluded
from trainspec_validate.pipeline.engine import Member
from trainspec_validate.pipeline.named import Trees
from trainspec_validate.pipeline.reading import DocumentSet, ReadFile, read_named
from trainspec_validate.pipeline.references import (
    DANGLING,
    Absent,
    ReferenceFailure,
    links,
    referenced_files,
    repository_of,
    tree_of,
)
from trainspec_validate.pipeline.texts import KEYS, KINDS_OF_KEYS, REFERENCES
from trainspec_validate.system.boundary import UnreadableError, unreadable, untrusted

WITH_DEPENDENTS = "give it too, or --dependents"
_WITH_DEPENDENTS = frozenset({"given", "naming", "unnamed", "stranded"})
"""Origins of the documents whose dependents are judged too."""


@dataclass(frozen=True, slots=True)
class Completion:
    """A set of documents with those that belong to it."""

    documents: DocumentSet
    absent: Mapping[tuple[str, str], Absent] = field(default_factory=dict)
    """By path and key of a reference, why the document that it names was not found."""
    findings: tuple[Finding, ...] = ()
    """On references that lead nowhere."""
    failures: tuple[str, ...] = ()
    """Inputs that could not be read."""
    unreached: tuple[Unjudged, ...] = ()
    """Inputs that refer to a document of the set, or may, and were not given or not read."""

    def including(self, file: ReadFile) -> Completion:
        """With one more file."""
        return replace(self, documents=self.documents.including([file]))

    def reporting(self, finding: Finding) -> Completion:
        """With one more finding."""
        return replace(self, findings=(*self.findings, finding))

    def failing(self, words: str) -> Completion:
        """With one more file that cannot be read."""
        return self if words in self.failures else replace(self, failures=(*self.failures, words))


def complete(documents: DocumentSet, *, dependents: bool, named: Collection[str] = ()) -> Completion:
    """The set with what its documents refer to by file or by name; with `dependents`, what refers to them too.

    Without it, what refers to the files that the user `named` is listed.
    """
    trees = Trees(repository_of, excluded.takes) if dependents else Trees(tree_of)
    done = Completion(documents)
    pending: Iterable[Member] = documents.judged.values()
    while True:
        done = _with_referenced(done, pending, trees)
        before = done.documents.judged
        if dependents:
            done = _with_only(_with_dependents(done, trees), trees)
        done = _with_named(done, trees, dependents=dependents)
        pending = [member for path, member in done.documents.judged.items() if path not in before]
        if not pending:
            return _with_unreached(done, trees) if dependents else replace(done, unreached=_alone(done, trees, named))


def _read(documents: DocumentSet, path: Path, origin: Origin) -> ReadFile | LoadError | UnreadableError:
    name = path.as_posix()
    try:
        with untrusted(unreadable(name)):
            return read_named(documents.index, path, name, origin)
    except (LoadError, UnreadableError) as error:
        return error


def _with_referenced(done: Completion, pending: Iterable[Member], trees: Trees) -> Completion:
    """The set with the files that the pending documents refer to, and those that these refer to."""
    left = list(pending)
    while left:
        member = left.pop()
        for link, target in referenced_files([member], done.documents.knows, trees.tree_of):
            if isinstance(target, ReferenceFailure):
                done = done.reporting(target.finding(done.documents.index))
                continue
            if done.documents.known_as(target) is not None:
                continue
            file = _read(done.documents, target, "referenced")
            if isinstance(file, LoadError):
                place = (link.key, "file")
                failure = ReferenceFailure(DANGLING, member.path, place, file.message, file.help)
                done = done.reporting(failure.finding(done.documents.index))
            elif isinstance(file, UnreadableError):
                done = done.failing(str(file))
            else:
                done = done.including(file)
                left += [file.member] if file.member else []
    return done


def _with_dependents(done: Completion, trees: Trees) -> Completion:
    """The set with the documents that name one that was given, or one that names it, from the tree of that one.

    Those that claim the name of one that was given belong to it: who refers to it by name may mean either. A document
    that was given may have had another name before, or be what is left of a change that removed one: those that name
    a document which the tree has not belong to it too.
    """
    for member in done.documents.judged.values():
        kind, name = type(member.document).__name__, member.document.metadata.name
        origin = done.documents.files[member.path].origin
        if origin not in _WITH_DEPENDENTS:
            continue
        for path in trees.naming(member.path, kind, name):
            done = _with_dependent(done, path, "naming")
        for path in trees.unnamed(member.path, kind):
            done = _with_dependent(done, path, "unnamed")
        for path in trees.namesakes(member.path, kind, name) if origin == "given" else ():
            done = _with_dependent(done, path, "namesake")
    given = (file.path for file in list(done.documents.files.values()) if file.origin == "given")
    for place in {trees.tree_of(path): path for path in given}.values():
        for path in trees.stranded(place, done.documents.provides):
            done = _with_dependent(done, path, "stranded")
    return done


def _alone(done: Completion, trees: Trees, named: Collection[str]) -> tuple[Unjudged, ...]:
    """The files that name a document which the user named by its path, and are not judged with it."""
    found: dict[str, Unjudged] = {}
    for one in done.documents.judged.values():
        kind, name = type(one.document).__name__, one.document.metadata.name
        for path in trees.naming(one.path, kind, name) if one.path in named else ():
            if done.documents.known_as(path) is None:
                reason = f"names {KEYS[kind]} {name!r}, which is judged without it"
                found.setdefault(path.as_posix(), Unjudged(path.as_posix(), reason, WITH_DEPENDENTS, ()))
    return tuple(entry for _, entry in sorted(found.items()))


def _with_only(done: Completion, trees: Trees) -> Completion:
    """The set with what its documents are for without naming it: the only one of a kind in the directory or tree."""
    for member in done.documents.judged.values():
        kind = type(member.document).__name__
        named = {link.key for link in links(member)}
        for key in REFERENCES.get(kind, ()):
            # a policy that leads to a plan has the cluster of that plan
            if key in named or (kind == "CheckpointPolicy" and key == "cluster" and _leads_to_plan(member, trees)):
                continue
            path = trees.only(member.path, KINDS_OF_KEYS[key])
            done = _with_dependent(done, path, "only") if path is not None else done
    return done


def _leads_to_plan(member: Member, trees: Trees) -> bool:
    return any(link.key == "plan" for link in links(member)) or trees.only(member.path, "TrainingPlan") is not None


def _with_unreached(done: Completion, trees: Trees) -> Completion:
    """The set with what may refer to a document of it and was not read."""
    unreached: dict[str, Unjudged] = {}
    for member in done.documents.judged.values():
        kind, name = type(member.document).__name__, member.document.metadata.name
        origin = done.documents.files[member.path].origin
        if origin in _WITH_DEPENDENTS:
            found = [*trees.unreached(member.path, kind, name)]
            found += trees.undecided(member.path, kind) if origin == "given" else ()
            for entry in found:
                if not done.documents.knows(entry.path):
                    unreached.setdefault(entry.path, entry)
    return replace(done, unreached=tuple(unreached.values()))


def _with_dependent(done: Completion, path: Path, origin: Origin) -> Completion:
    if done.documents.known_as(path) is not None:
        return done
    file = _read(done.documents, path, origin)
    return done.including(file) if isinstance(file, ReadFile) else done.failing(str(file))


def _with_named(done: Completion, trees: Trees, *, dependents: bool) -> Completion:
    """The set with the documents that are named and were not given, from the trees of those that name them.

    Where several claim a name, none is taken; with `dependents` all are judged, and their finding is on the name.
    """
    absent: dict[tuple[str, str], Absent] = {}
    for member in done.documents.judged.values():
        for link in links(member):
            kind, name = link.kind.__name__, link.reference.name
            if link.reference.file or not name or done.documents.declares(link.kind, name):
                continue
            if done.documents.may_be_unread(kind, name):
                continue
            target = trees.named(member.path, link.key, kind, name)
            file = target if isinstance(target, Absent) else _read(done.documents, target, "named")
            namesakes = trees.namesakes(member.path, kind, name) if dependents and isinstance(file, Absent) else []
            if isinstance(file, ReadFile):
                done = done.including(file)
            elif namesakes:
                for path in namesakes:
                    done = _with_dependent(done, path, "named")
            elif isinstance(file, Absent):
                absent[member.path, link.key] = file
            else:
                reason = file.message if isinstance(file, LoadError) else file.reason
                absent[member.path, link.key] = Absent(
                    f"names {link.key} {name!r}: {reason}", file.help, may_exist=True
                )
    return replace(done, absent=absent)
