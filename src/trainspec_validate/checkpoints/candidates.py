"""Puts the checkpoints of a directory into the order in which they are tried, before any is read as a whole."""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from pathlib import Path

from trainspec_validate.checkpoints import bundles
from trainspec_validate.checkpoints.inventory import Group
from trainspec_validate.checkpoints.progress import progress_of
from trainspec_validate.checkpoints.read import read_checkpoint
from trainspec_validate.checkpoints.save_names import STEP_NAME, is_set_aside, step_in
from trainspec_validate.checkpoints.saves import Saved, in_order, is_torch, newest_first, states_of
from trainspec_validate.checkpoints.tree import fact_of

_PLAIN = re.compile(r"^[A-Za-z]*[-_]?[0-9]+$", re.ASCII)


@dataclass(frozen=True, slots=True)
class Candidate:
    """A checkpoint that was not read yet, and the place that it has in time."""

    root: Path
    """Its directory; or its directory with what the names of its files have in common."""
    files: list[str] | None
    """Names of its files where it is no directory."""
    step: int | None
    number: int
    """Number that its name counts."""
    modified_ns: int
    saved: Saved | None = None
    """Key that orders it among files of `torch.save` side by side, or among others without a step."""

    @property
    def order(self) -> tuple[int, int, int, int, str]:
        """Greater for newer ones; of two with one step, such as a copy, for that with the name of a save alone.

        The Trainer of Hugging Face leaves `global_step40` of DeepSpeed next to `checkpoint-40`, from which it resumes.
        """
        rank = 2 * (self.files is not None or _PLAIN.match(self.root.name) is not None)
        rank = rank or int(STEP_NAME.match(self.root.name) is not None)
        return (-1 if self.step is None else self.step, rank, self.number, self.modified_ns, self.root.name)


def _ordered(group: Group) -> list[Candidate]:
    """Files of `torch.save` side by side, from the newest on; empty where there are other members."""
    if any([root.name] != group.files.get(root) or not is_torch(root) for root in group.members):
        return []
    found = {root.name: _candidate(root, group.files[root]) for root in group.members}
    saved = [Saved(name, progress_of(one.root), one.modified_ns) for name, one in found.items()]
    return [replace(found[one.name], saved=one) for one in newest_first(states_of(saved))]


def candidates_of(group: Group) -> tuple[list[Candidate], list[Candidate]]:
    """From the newest on, those set aside by their names last; and those without a step, where others have one."""
    found, others = _by_time(group)
    return sorted(found, key=lambda one: is_set_aside(one.root.name)), others


def _by_time(group: Group) -> tuple[list[Candidate], list[Candidate]]:
    if ordered := _ordered(group):
        return ordered, []
    found = [_candidate(root, group.files.get(root)) for root in group.members]
    if not any(one.step is not None for one in found):
        by_name = {one.root.name: one for one in found}
        return [by_name[one.name] for one in in_order(one.saved for one in found if one.saved)], []
    found = [one if one.step is not None else replace(one, step=step_in(one.root.name)) for one in found]
    stepped = sorted((one for one in found if one.step is not None), key=lambda one: one.order, reverse=True)
    return stepped, [one for one in found if one.step is None]


def _candidate(root: Path, files: list[str] | None) -> Candidate:
    """The content is asked for its step where the name says none, or counts something else."""
    match = STEP_NAME.match(root.name)
    step = bundles.step_of(root.name) if files else int(match["step"]) if match else None
    if step is None or files:
        checkpoint = read_checkpoint(root, files)
        said = {claim.step for claim in checkpoint.claims}
        step = max(said) if said else None if bundles.counts_saves(root.name) else checkpoint.step
    facts = [fact_of(root.parent / name, name) for name in files] if files else [fact_of(root, root.name)]
    modified_ns = max((fact.modified_ns for fact in facts if fact is not None), default=0)
    named = Saved(root.name, None, modified_ns)
    return Candidate(root, files, step, named.number, modified_ns, named if step is None else None)
