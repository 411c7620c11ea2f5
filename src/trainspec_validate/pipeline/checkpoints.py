"""Has each series of checkpoints judged."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace
from itertools import count
from typing import TYPE_CHECKING

from trainspec_validate.checking.answers import without_documents
from trainspec_validate.checking.selection import NOT_READ, Selection
from trainspec_validate.checkpoints.view import Checkpoint, SavedStep
from trainspec_validate.model.finding import CheckResult, DocumentSummary, Unjudged
from trainspec_validate.model.requirements import Index
from trainspec_validate.pipeline.engine import Binding
from trainspec_validate.pipeline.streams import belonging, num_given
from trainspec_validate.system.boundary import UnreadableError, unreadable, untrusted
from trainspec_validate.system.process import memory_of_the_machine

if TYPE_CHECKING:
    from trainspec_validate.checkpoints.inventory import Group

_UNSEALED = "is under unsealed of the manifest, and no digest protects it"
_SEALED_INSIDE = "is sealed by itself inside of a checkpoint, and was not compared with its manifest"
_SEAL = "seal the checkpoint again without --unsealed for it"


def judge_stored(  # noqa: PLR0913
    groups: Sequence[Group],
    selection: Selection,
    index: Index,
    bound: Iterable[Binding],
    saved: tuple[SavedStep, ...] | None,
    *,
    reads_values: bool = False,
    progress: Callable[[int, int], None] | None = None,
) -> CheckResult:
    """Judge every series of checkpoints.

    A kind of document counts where there is one of it, or where the only plan or policy refers to one of several.

    `saved` are the saves that the only run reports, None where there is no run, or several; `progress` is called with
    what was done so far and all there is to do.
    """
    from trainspec_validate.checkpoints.judge import judge_series  # noqa: PLC0415
    from trainspec_validate.checkpoints.read import read_group  # noqa: PLC0415

    wanted = [r for r in index.by_id.values() if r.check == "artifact" and _is_judged(selection, index, r.id)]
    documents = [{kind: member.document for kind, member in binding.items()} for binding in bound]
    beside, given = belonging(documents), num_given(documents)
    total = sum(len(group.members) + len(wanted) for group in groups)
    done = count(1)
    seen = (lambda: progress(next(done), total)) if progress else None
    result = CheckResult()
    for group in groups:
        try:
            with untrusted(unreadable(group.root.as_posix())), memory_of_the_machine():
                series = read_group(group, saved, seen, reads_values=reads_values)
        except UnreadableError as error:
            result += CheckResult(failures=(str(error),))
            continue
        found = _selected(judge_series(series, wanted, index, beside, seen), selection, index)
        judged = tuple(_summary(one, reads_values=reads_values) for one in series.checkpoints)
        path = judged[0].path if judged else group.root.as_posix()
        without = tuple(without_documents(path, "checkpoints", found.outcomes, given))
        result += found + CheckResult(documents=judged, unjudged=without + _unread(series.checkpoints))
    return result


def _is_judged(selection: Selection, index: Index, identifier: str) -> bool:
    """Whether a requirement is judged; a file that cannot be read is reported whatever was selected."""
    return selection.takes(index, identifier) or identifier in NOT_READ


def _selected(found: CheckResult, selection: Selection, index: Index) -> CheckResult:
    """The result with the outcomes that were selected, and those of files that cannot be read."""
    told = (one for one in found.outcomes if one.num_findings or selection.takes(index, one.requirement))
    return replace(found, outcomes=tuple(told))


def _unread(checkpoints: Iterable[Checkpoint]) -> tuple[Unjudged, ...]:
    """The files that no reader judges and that may hold code, and those that a manifest leaves without a digest."""
    remedy = "save plain state in a format that is judged, such as safetensors"
    found = []
    for one in checkpoints:
        found += [Unjudged(one.place(path), words, remedy, ()) for path, words in one.unread.items()]
        found += [Unjudged(one.place(path), words, help_, ()) for path, (words, help_) in one.doubts.items()]
        unsealed = one.manifest.unsealed if one.manifest else ()
        found += [Unjudged(one.place(path), _UNSEALED, _SEAL, ()) for path in unsealed if path not in one.unread]
        found += _sealed_inside(one)
    return tuple(found)


def _sealed_inside(checkpoint: Checkpoint) -> Iterator[Unjudged]:
    """Directories with a manifest of their own, of which the manifest of the checkpoint, if any, does not know."""
    from trainspec_validate.checkpoints.view import MANIFEST_NAME  # noqa: PLC0415

    known = {file.path for file in checkpoint.manifest.files} if checkpoint.manifest else set()
    for path in checkpoint.tree:
        folder, _, name = path.rpartition("/")
        if folder and name == MANIFEST_NAME and path not in known and path in checkpoint.files:
            place = checkpoint.place(folder)
            yield Unjudged(place, _SEALED_INSIDE, f"name {place} to have it compared with its manifest", ())


def _summary(checkpoint: Checkpoint, *, reads_values: bool) -> DocumentSummary:
    from trainspec_validate.checkpoints.values import share_read  # noqa: PLC0415

    formats = ", ".join(dict.fromkeys(checkpoint.formats)) or "of no known format"
    if reads_values:
        formats += f"; {share_read(checkpoint)}"
    return DocumentSummary(checkpoint.name, "Checkpoint", formats)
