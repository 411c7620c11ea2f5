"""Decides which documents belong together: by reference, by name, or by being the only one of their kind."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from trainspec_validate.documents.types import CheckpointPolicy, ClusterProfile, Document, Reference, TrainingPlan
from trainspec_validate.model.finding import Finding, Pointer
from trainspec_validate.model.requirements import Index
from trainspec_validate.model.suggest import did_you_mean, hint, meant
from trainspec_validate.pipeline.engine import Binding, Member
from trainspec_validate.system.repository import MARKS, outermost, top_of

DANGLING = "TS-DOC-011"
OUTSIDE_TREE = "TS-DOC-012"
PROJECT_MARKS = ("trainspec.toml", "pyproject.toml")
_LONGEST = 200
"""Characters of a path in a message."""

Kind = type[Document]


@dataclass(frozen=True, slots=True)
class Link:
    """A reference of one document to another kind."""

    member: Member
    key: str
    kind: Kind
    reference: Reference


@dataclass(frozen=True, slots=True)
class Absent:
    """Why a document that another one names is not judged with it, and what to do."""

    reason: str
    help: str
    may_exist: bool = False
    """Whether a place that was not searched may hold the document."""
    several: bool = False
    """Whether several files of the tree declare the name."""


@dataclass(frozen=True, slots=True)
class ReferenceFailure:
    """A reference that leads nowhere or where it must not."""

    requirement: str
    path: str
    pointer: Pointer
    message: str
    help: str

    def finding(self, index: Index) -> Finding:
        """The finding on it."""
        return index.finding(index.by_id[self.requirement], self.message, self.help, self.path, pointer=self.pointer)


def links(member: Member) -> Iterator[Link]:
    """The references that a document holds."""
    document = member.document
    if isinstance(document, (TrainingPlan, CheckpointPolicy)) and document.cluster:
        yield Link(member, "cluster", ClusterProfile, document.cluster)
    if isinstance(document, CheckpointPolicy) and document.plan:
        yield Link(member, "plan", TrainingPlan, document.plan)


def referenced_files(
    members: Iterable[Member], is_given: Callable[[Path], bool], tree: Callable[[str], Path] | None = None
) -> Iterator[tuple[Link, Path | ReferenceFailure]]:
    """The file behind each reference by file, or why it is not followed. Nothing is opened here.

    `is_given` says whether a file is judged anyway, so that a reference to it opens nothing. `tree` gives the directory
    that references of a document must not leave, `tree_of` by default.
    """
    for member in members:
        for link in links(member):
            if link.reference.file:
                yield link, _inside_tree(link, link.reference.file, is_given, tree or tree_of)


def other_cluster(plan: Member, cluster: Member) -> str:
    """That a plan refers to another cluster profile than one that is given for it; empty where it does not.

    A name counts before a file: a profile of that name may be a copy in another place.
    """
    reference = next((link.reference for link in links(plan) if link.kind is ClusterProfile), None)
    if reference is None:
        return ""
    name = cluster.document.metadata.name
    if reference.file and not reference.name:
        wanted = Path(plan.path).parent / reference.file
        if os.path.realpath(wanted) != os.path.realpath(cluster.path):
            return f"the plan is for the cluster in {_cut(os.path.normpath(wanted))}, not for {cluster.path}"
    if reference.name and reference.name != name:
        return f"the plan is for cluster {reference.name!r}, and {cluster.path} is {name!r}"
    return ""


def tree_of(path: str) -> Path:
    """The directory that references of a document must not leave: the working directory, or its own if elsewhere."""
    directory = Path(path).parent
    inside = Path(os.path.realpath(directory)).is_relative_to(os.path.realpath(Path.cwd()))
    if not inside:
        return directory
    return Path.cwd() if directory.is_absolute() else Path()


def repository_of(path: str) -> Path:
    """The repository or project that the tree of a document is in, else that tree.

    A directory of version control shows a repository. Where there is none, a settings file shows a project: a change
    can add such a file, so it never narrows a repository. A working directory that is in no repository may hold
    several: the tree is then the one of the document.
    """
    tree = tree_of(path)
    found = top_of(tree, MARKS) or outermost(Path(path).parent, tree) or top_of(tree, PROJECT_MARKS)
    if found is None or found == Path(os.path.realpath(tree)):
        return tree
    return found if tree.is_absolute() else Path(os.path.relpath(found))


def _inside_tree(
    link: Link, file: str, is_given: Callable[[Path], bool], tree: Callable[[str], Path]
) -> Path | ReferenceFailure:
    """The path of a referenced file, if it is given, or stays in the tree of the document."""
    pointer: Pointer = (link.key, "file")
    if Path(file).is_absolute() or "://" in file or "\\" in file or "\0" in file:
        message = f"{file!r} is not a relative path with forward slashes"
        return ReferenceFailure(OUTSIDE_TREE, link.member.path, pointer, message, "write it relative to this document")
    directory = Path(link.member.path).parent
    try:
        target = Path(os.path.realpath(directory / file))
    except ValueError:
        message = f"{_shown(file)} is no name of a file"
        return ReferenceFailure(DANGLING, link.member.path, pointer, message, "write the path of a file in UTF-8")
    if not target.is_relative_to(os.path.realpath(tree(link.member.path))) and not is_given(target):
        if target.is_relative_to(os.path.realpath(repository_of(link.member.path))) and not os.path.lexists(target):
            return _missing(link, file, target)  # beyond the repository nothing says what there is
        message = f"{file!r} leads out of the tree that is being validated"
        help_text = "keep both documents in one tree and run from its top directory"
        return ReferenceFailure(OUTSIDE_TREE, link.member.path, pointer, message, help_text)
    if not os.path.isfile(target):  # noqa: PTH113 - Path.is_file raises for a name that is too long
        return _missing(link, file, target)
    return Path(os.path.normpath(directory / file))


def _missing(link: Link, file: str, target: Path) -> ReferenceFailure:
    """The failure of a reference that leads to no file."""
    exists = os.path.exists(target)  # noqa: PTH110 - Path.exists raises for a name that is too long
    message = f"{_shown(file)} is not a file" if exists else f"{_shown(file)} does not exist"
    expected = f"expected the {link.kind.__name__} at {_cut((Path(link.member.path).parent / file).as_posix())}"
    help_text = f"name the file of the {link.kind.__name__}" if exists else _nearby(target) or expected
    return ReferenceFailure(DANGLING, link.member.path, (link.key, "file"), message, help_text)


def _shown(file: str) -> str:
    return repr(_cut(file))


def _cut(path: str) -> str:
    """A path for a message, without its middle where it is long."""
    return path if len(path) <= _LONGEST else f"{path[: _LONGEST - 50]}…{path[-49:]}"


def _nearby(target: Path) -> str:
    """A file beside the missing one whose name is like it."""
    try:
        names = [entry.name for entry in target.parent.iterdir() if entry.is_file()]
    except OSError:
        return ""
    near = did_you_mean(target.name, names)
    return meant(target.name, near) if near else ""


def bindings(
    members: Sequence[Member],
    by_file: Callable[[str], Member | None],
    may_be_unread: Callable[[str, str], bool] = lambda _kind, _name: False,
    tree: Callable[[str], Path] = tree_of,
    absent: Mapping[tuple[str, str], Absent] | None = None,
) -> tuple[list[Binding], list[ReferenceFailure]]:
    """For each document, the documents that it is judged with.

    A reference decides; without one, the only document of a kind in the same directory does, else the only one of
    the whole set. `by_file` finds the member of a referenced path; `may_be_unread` says whether a document of this
    kind and name may be one that has findings of its own, so that no second finding says that it is missing.
    `absent` says of a complete set, by path and key, why a named document was not found. Without it the set is no
    complete one, and a name that none of it has is no error.
    """
    resolver = _Resolver(members, by_file, may_be_unread, tree, absent)
    bound = [resolver.bind(member) for member in members]
    return bound, resolver.failures


class _Resolver:
    def __init__(
        self,
        members: Sequence[Member],
        by_file: Callable[[str], Member | None],
        may_be_unread: Callable[[str, str], bool],
        tree: Callable[[str], Path],
        absent: Mapping[tuple[str, str], Absent] | None,
    ) -> None:
        self._of_kind: dict[Kind, list[Member]] = {}
        self._beside: dict[tuple[Kind, Path], list[Member]] = {}
        self._named: dict[tuple[Kind, str], list[Member]] = {}
        for member in members:
            kind = type(member.document)
            self._of_kind.setdefault(kind, []).append(member)
            self._beside.setdefault((kind, Path(member.path).parent), []).append(member)
            self._named.setdefault((kind, member.document.metadata.name), []).append(member)
        self._by_file = by_file
        self._may_be_unread = may_be_unread
        self._tree = tree
        self._absent = absent
        self._done: dict[int, Binding] = {}
        self.failures: list[ReferenceFailure] = []

    def bind(self, member: Member) -> Binding:
        key = id(member.document)
        if key not in self._done:
            self._done[key] = self._bind(member)
        return self._done[key]

    def _bind(self, member: Member) -> Binding:
        bound: dict[Kind, Member] = {type(member.document): member}
        if isinstance(member.document, CheckpointPolicy):
            plan = self._other(member, TrainingPlan)
            if plan:
                bound[TrainingPlan] = plan
        if not isinstance(member.document, ClusterProfile):
            has_own = any(link.kind is ClusterProfile for link in links(member))
            through_plan = None if has_own or TrainingPlan not in bound else bound[TrainingPlan]
            cluster = None
            if through_plan and through_plan is not member:
                cluster = self.bind(through_plan).get(ClusterProfile)
            cluster = cluster or self._other(member, ClusterProfile)
            if cluster:
                bound[ClusterProfile] = cluster
            if cluster and has_own and TrainingPlan in bound and bound[TrainingPlan] is not member:
                self._compare(member, cluster, bound[TrainingPlan])
        return bound

    def _compare(self, policy: Member, cluster: Member, plan: Member) -> None:
        """Report a policy that names another cluster than its plan does."""
        other = self.bind(plan).get(ClusterProfile)
        if other is None or other is cluster or not any(link.kind is ClusterProfile for link in links(plan)):
            return
        names = (cluster.document.metadata.name, other.document.metadata.name)
        message = f"the policy names cluster {names[0]!r}, but its plan {plan.path} names {names[1]!r}"
        help_text = "name one cluster in both, or leave it out of the policy, which then has that of its plan"
        self.failures.append(ReferenceFailure(DANGLING, policy.path, ("cluster",), message, help_text))

    def _other(self, member: Member, kind: Kind) -> Member | None:
        link = next((link for link in links(member) if link.kind is kind), None)
        if link:
            return self._follow(link)
        for choice in (self._beside.get((kind, Path(member.path).parent), ()), self._of_kind.get(kind, ())):
            if len(choice) == 1:
                return choice[0]
        return None

    def _follow(self, link: Link) -> Member | None:
        reference, path = link.reference, link.member.path
        if not reference.file and not reference.name:
            message = f"the reference names no {link.kind.__name__}"
            help_text = "give `file`, `name` or both, or leave the key out"
            self.failures.append(ReferenceFailure(DANGLING, path, (link.key,), message, help_text))
            return None
        if reference.file:
            target = _inside_tree(link, reference.file, lambda path: self._by_file(str(path)) is not None, self._tree)
            found = self._by_file(str(target)) if isinstance(target, Path) else None
            if found is None:
                return None  # already reported, or the file has findings of its own
            if not isinstance(found.document, link.kind):
                message = f"{reference.file!r} is a {type(found.document).__name__}, not a {link.kind.__name__}"
                self.failures.append(ReferenceFailure(DANGLING, path, (link.key, "file"), message, "name another file"))
                return None
            if reference.name and reference.name != found.document.metadata.name:
                message = f"{reference.file!r} is named {found.document.metadata.name!r}, not {reference.name!r}"
                help_text = f"write name: {found.document.metadata.name}, or name another file"
                self.failures.append(ReferenceFailure(DANGLING, path, (link.key, "name"), message, help_text))
            return found
        candidates = self._of_kind.get(link.kind, [])
        matches = self._named.get((link.kind, reference.name or ""), [])
        if len(matches) == 1:
            return matches[0]
        if not matches and reference.name and self._may_be_unread(link.kind.__name__, reference.name):
            return None  # that document has findings of its own
        absent = None if self._absent is None else self._absent.get((path, link.key), Absent("", ""))
        if reference.name and absent and not absent.may_exist:
            kind, is_several = link.kind.__name__, bool(matches) or absent.several
            set_ = "in the tree" if absent.several else "among the judged documents"
            which = f"several {kind}s {set_} have" if is_several else f"no {kind} {set_} has"
            message = f"{which} the name {reference.name!r}"
            names = [other.document.metadata.name for other in candidates]
            nearest = hint(reference.name, names) if names else f"add the {kind}, or leave the key out"
            help_text = "refer to it by file" if is_several else nearest
            self.failures.append(ReferenceFailure(DANGLING, path, (link.key, "name"), message, help_text))
        return None
