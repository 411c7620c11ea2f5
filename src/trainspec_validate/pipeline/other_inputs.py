"""Collects the inputs that a search finds besides documents, and those that it leaves out."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from trainspec_validate.documents.types import API_VERSION
from trainspec_validate.model.finding import PassedOver, Unjudged
from trainspec_validate.pipeline import excluded
from trainspec_validate.pipeline.claims import NO_VERSION
from trainspec_validate.pipeline.data_sets import DATA_SET
from trainspec_validate.pipeline.detect import NO_JOB, NO_STREAM, POINTER, SACCT
from trainspec_validate.pipeline.detect import Search as Found
from trainspec_validate.pipeline.detect import Source as FoundSource
from trainspec_validate.pipeline.files import File, RealPaths
from trainspec_validate.pipeline.foreign import REMEDIES
from trainspec_validate.pipeline.overlooked import overlooked
from trainspec_validate.pipeline.reading import DocumentSet
from trainspec_validate.pipeline.run_texts import LOOKS_LIKE_LOG
from trainspec_validate.pipeline.run_texts import REMEDIES as REMEDIES_OF_TEXTS
from trainspec_validate.pipeline.unpacked import NOT_LOOKED_INTO
from trainspec_validate.system.boundary import InputError

if TYPE_CHECKING:
    from trainspec_validate.checkpoints.inventory import Group

NOTHING = "nothing to judge: no TrainSpec document, no stream and no checkpoint in "
_MOST_NAMED = 5
_MOST_LINES = 20


@dataclass(frozen=True, slots=True)
class Inputs:
    """Inputs that were found besides documents."""

    streams: tuple[File, ...] = ()
    checkpoints: tuple[Group, ...] = ()
    left_out: tuple[Unjudged, ...] = ()
    """Files whose names are those of documents or streams and whose content is neither."""
    failures: tuple[str, ...] = ()
    """Inputs that could not be read."""
    data_sets: tuple[str, ...] = ()
    """Files whose names are those of streams and whose content is a data set, which leaves nothing unjudged."""
    looked_at: tuple[File, ...] = ()
    """Files that are judged, or reported as failures or as left out."""


def inputs_of(
    found: Found, sources: Sequence[FoundSource], streams: Sequence[File], failures: Sequence[InputError]
) -> Inputs:
    """Inputs that the search found besides documents; `streams` are those that have no file of their own."""
    taken = {*found.with_checkpoints, *(source.file.argument for source in sources if source.kind != "other")}
    left_out = [source for source in sources if source.unread]
    told = [str(failure) for failure in failures]
    told += _nothing_in(found, taken, left_out, told)
    unjudged = [_unread(source) for source in left_out if source.unread != DATA_SET]
    return Inputs(
        (*streams, *(source.file for source in sources if source.kind == "stream")),
        found.checkpoints,
        (*unjudged, *(Unjudged(*entry, ()) for entry in found.unsearched)),
        tuple(told),
        tuple(source.file.name for source in left_out if source.unread == DATA_SET),
        tuple(source.file for source in sources if source.kind != "other" or source.unread),
    )


def _nothing_in(
    found: Found, taken: set[str], left_out: Sequence[FoundSource], failures: Sequence[str]
) -> Iterator[str]:
    """The directories and patterns by which nothing was found to judge, and nothing that is reported already."""
    refused = {failure.partition(":")[0] for failure in failures}
    for argument in dict.fromkeys(file.argument for file in found.files if file.found):
        if argument not in taken and not any(path.startswith(argument) for path in refused):
            names = [source.file.name for source in left_out if source.file.argument == argument]
            more = f" and {len(names) - _MOST_NAMED:,} more" if len(names) > _MOST_NAMED else ""
            told = f"; of no known format: {', '.join(names[:_MOST_NAMED])}{more}" if names else ""
            yield f"{NOTHING}{argument}{told}"


def left_out_of(arguments: Sequence[str], documents: DocumentSet, inputs: Inputs) -> Iterator[Unjudged]:
    """Files that were found and are of no known format, and what searches pass by."""
    yield from inputs.left_out
    places = RealPaths()
    members = {places.of(member) for group in inputs.checkpoints for member in group.members}
    judged = {places.of(path) for path in documents.files}
    judged |= {places.of(file.path) for file in inputs.looked_at}
    for path, reason, remedy in overlooked(arguments, judged | members):
        yield Unjudged(path, reason, remedy, ())


def passed_over_of(inputs: Inputs) -> tuple[PassedOver, ...]:
    """Files that were excluded, and data sets."""
    data_sets = (PassedOver(DATA_SET, tuple(sorted(inputs.data_sets))),) if inputs.data_sets else ()
    return (*excluded.passed_over(), *data_sets)


def lines_on(left_out: Sequence[Unjudged]) -> Iterator[str]:
    """Inputs that were left out, where there is no report to say so."""
    for entry in left_out[:_MOST_LINES]:
        yield "; ".join(filter(None, (f"{entry.path}: not judged: {entry.reason}", entry.help)))
    if len(left_out) > _MOST_LINES:
        yield f"and {len(left_out) - _MOST_LINES:,} more were not judged"


def _unread(source: FoundSource) -> Unjudged:
    remedies = {
        **REMEDIES,
        POINTER: "",
        SACCT: "",
        NO_JOB: "",
        **REMEDIES_OF_TEXTS,
        LOOKS_LIKE_LOG: "write a metric stream, or a log that is read: trainspec import --list",
        NO_STREAM: "see: trainspec import --list",
        NOT_LOOKED_INTO: "name it to have it judged",
        NO_VERSION: f"write apiVersion: {API_VERSION}",
    }
    remedy = remedies.get(source.unread, "write the file anew, or remove it")
    return Unjudged(source.file.name, source.unread, remedy, ())


def first_of_each_path(entries: list[Unjudged], more: Iterable[Unjudged]) -> list[Unjudged]:
    """The entries, and more on paths that none of them is on."""
    known = {entry.path for entry in entries}
    return [*entries, *(entry for entry in more if entry.path not in known)]
