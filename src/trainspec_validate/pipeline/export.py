"""Reads a job from its documents, and writes it for a launcher or framework."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from trainspec_validate.documents.types import KINDS, CheckpointPolicy, ClusterProfile, Document, TrainingPlan
from trainspec_validate.interop.document import Exported, Job, NotExpressible, formats
from trainspec_validate.model.finding import Report
from trainspec_validate.model.suggest import did_you_mean, meant
from trainspec_validate.pipeline.engine import Member
from trainspec_validate.pipeline.form import read_whole, refuse_errors, typed
from trainspec_validate.pipeline.inputs import Input, name_of
from trainspec_validate.pipeline.references import bindings
from trainspec_validate.pipeline.validation import validate
from trainspec_validate.system.boundary import InputError


def export(plan: Input, to: str, *, cluster: Input | None = None, policy: Input | None = None) -> Exported:
    """Write a training plan for a launcher or framework, as `trainspec export` does. Nothing is written to a file.

    Args:
        plan: the training plan; documents that it refers to are read too.
        to: name of a format, one of `export_formats()`.
        cluster: its cluster profile, where the plan does not refer to one that is found.
        policy: checkpoint policy of the job.

    Returns:
        The text, the usual name of its file, and what the documents say and the format cannot express.

    Raises:
        InvalidDocumentError: the validator finds errors in the documents.
        NotExpressible: the program cannot run the job; the text says why, and `help` what would be right.
        InputError: a document cannot be read or is of another kind, the cluster of the plan is not known, or there is
            no such format.
        TypeError: an argument is none of `Input`.
    """
    known = {name.casefold(): entry for name, entry in formats().items()}
    if to.casefold() not in known:
        near = did_you_mean(to, formats())
        listed = meant(to, near) if near else f"there are {', '.join(formats())}"
        raise InputError(f"no format is called {to!r}; {listed}")
    given = [each for each in (plan, cluster, policy) if each is not None]
    report = validate(given)
    refuse_errors(report, "the job is not exported")
    names = [None if each is None else name_of(each) for each in (plan, cluster, policy)]
    kinds: tuple[type[Document], ...] = (TrainingPlan, ClusterProfile, CheckpointPolicy)
    for name, kind in zip(names, kinds, strict=True):
        if name is not None:
            typed(report, name, kind)
    job = job_of(report, names[0] or "", names[1], names[2], remedy="give it as cluster")
    return known[to.casefold()].write(job)


def export_formats() -> Mapping[str, str]:
    """The formats that a plan can be exported to: title by name, in the order of names."""
    return {name: entry.title for name, entry in formats().items()}


def _members(report: Report) -> tuple[dict[str, Member], dict[str, InputError]]:
    """The documents of a report by real path, and why others cannot be used."""
    members, refused = dict[str, Member](), dict[str, InputError]()
    for entry in report.documents:
        try:
            if entry.kind in KINDS:
                whole = read_whole(entry.kind, entry.text, entry.path)
                members[_real(entry.path)] = Member(entry.path, whole)
        except InputError as error:
            refused[_real(entry.path)] = error
    return members, refused


def job_of(report: Report, plan: str, cluster: str | None, policy: str | None, *, remedy: str) -> Job:
    """The typed documents of a report, bound as the validator binds them.

    Args:
        report: on documents, under these names among others.
        plan: name of the plan.
        cluster: name of the cluster profile.
        policy: name of the checkpoint policy.
        remedy: what to do where the cluster is not known.

    Raises:
        InputError: a document cannot be read as its kind, or the cluster of the plan is not there.
    """
    members, refused = _members(report)

    def of_kind(path: str, kind: type) -> Member:
        if _real(path) in refused:
            raise refused[_real(path)]
        found = members.get(_real(path))
        if found is not None and not isinstance(found.document, kind):
            raise InputError(f"{path}: a {kind.__name__} is wanted, this is a {type(found.document).__name__}")
        if found is None:
            raise InputError(f"{path}: this is no {kind.__name__} that can be read; see: trainspec-validate {path}")
        return found

    mine = of_kind(plan, TrainingPlan)
    bound, _ = bindings(list(members.values()), lambda path: members.get(_real(path)))
    binding = next(entry for entry in bound if entry.get(TrainingPlan) is mine and CheckpointPolicy not in entry)
    machine = binding.get(ClusterProfile)
    if machine is None:
        clusters = [_real(entry.path) for entry in report.documents if entry.kind == ClusterProfile.__name__]
        if why := next((refused[path] for path in clusters if path in refused), None):
            raise why
        raise InputError(_clusterless(report, mine, remedy))
    if cluster and of_kind(cluster, ClusterProfile) is not machine:
        raise InputError(f"{plan}: the plan is for the cluster in {machine.path}; change that, or leave --cluster out")
    rules = of_kind(policy, CheckpointPolicy).document if policy else None
    return Job(mine.document, machine.document, rules)  # type: ignore[arg-type]


def _clusterless(report: Report, plan: Member, remedy: str) -> str:
    """Why a plan, which may want the cluster in a file, is bound to none."""
    found = [entry for entry in report.findings if entry.path == plan.path and entry.pointer[:1] == ("cluster",)]
    why = "".join(f": {entry.message}; {entry.help}" for entry in found[:1])
    wanted = plan.document.cluster  # type: ignore[union-attr]
    if not why and wanted and wanted.file:
        return f"{plan.path}: its cluster in {wanted.file} cannot be read; see: trainspec-validate {plan.path}"
    return f"{plan.path}: the plan's cluster is not known{why or f'; {remedy}'}"


def _real(path: str) -> str:
    return str(Path(path).resolve())


__all__ = ["Exported", "NotExpressible", "export", "export_formats", "job_of"]
