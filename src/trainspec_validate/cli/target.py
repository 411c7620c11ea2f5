"""Takes files that decide about a change request from a copy of its target branch, and not from the change request."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from trainspec_validate.cli import terminal
from trainspec_validate.cli.terminal import Failure
from trainspec_validate.model.finding import Report, SuppressionKind
from trainspec_validate.pipeline.excluded import passed_over
from trainspec_validate.pipeline.references import repository_of
from trainspec_validate.system.repository import UnclearCopyError, original_of

_MOST_NEW: Final = 1_000


def of_target(option: str, file: str | None, tree: str | None) -> str | None:
    """The file of the target branch in place of one of the working directory; None where the branch has none.

    Files of neither are those of the pipeline, and count as they are.

    Raises:
        Failure: the file is of the repository that is judged and outside of the working directory, so that the copy
            cannot have it, or it is a link out of the copy.
    """
    if not file or tree is None:
        return file
    top, here = os.path.realpath(tree), os.path.realpath(original(tree))
    places = dict.fromkeys((os.path.abspath(file), os.path.realpath(file)))  # noqa: PTH100 - Path.resolve follows links
    if all(_below(place, top) for place in places) or _below(here, top):
        return file  # a copy that is the working directory itself is refused later
    inside = next((place for place in places if _below(place, here)), None)
    if inside is not None:
        copy = os.path.join(tree, os.path.relpath(inside, here))  # noqa: PTH118
        if not os.path.lexists(copy):
            terminal.tell(f"Note: {option} {file} is not used: {tree} has no such file")
            return None
        if not _below(os.path.realpath(copy), top):
            raise Failure(f"{copy}: this is a link out of {tree}; put the file itself there")
        return copy
    repository = os.path.realpath(repository_of("."))
    if any(_below(place, repository) for place in places):
        message = f"{option} {file} is a file of the repository that is judged, and {tree} is a copy of this directory"
        raise Failure(f"{message}; run from the top of the repository, with a copy of all of it")
    return file


def original(tree: str) -> Path:
    """The directory that a copy of the target branch is of: the working directory, or the top of its repository.

    Raises:
        Failure: it may be either.
    """
    try:
        return original_of(tree)
    except UnclearCopyError as error:
        raise Failure(
            f"--settings-from: {error}; run from the top of the repository, with a copy of all of it"
        ) from error


def silently_new(report: Report, tree: str) -> Iterator[str]:
    """A line on each file that the target branch does not have, and that its patterns exclude or waive findings of."""
    silenced: dict[str, dict[str, None]] = {}
    for entry in report.suppressed:
        if entry.kind is SuppressionKind.WAIVER:
            silenced.setdefault(entry.finding.path, {})[entry.finding.requirement] = None
    why = dict.fromkeys((path for entry in passed_over() for path in entry.paths), "is excluded")
    why |= {path: f"a waiver silences {', '.join(found)} in it" for path, found in silenced.items()}
    home = original(tree)
    new = [path for path in sorted(why) if not os.path.lexists(os.path.join(tree, os.path.relpath(path, home)))]  # noqa: PTH118
    yield from (f"{path} is new against {tree}, and {why[path]}" for path in new[:_MOST_NEW])
    if len(new) > _MOST_NEW:
        yield f"{len(new) - _MOST_NEW:,} more files are new against {tree}, and excluded or waived"


def _below(path: str, directory: str) -> bool:
    return Path(path).is_relative_to(directory)
