"""Judges what the readers of the formats found, one matter for each requirement."""

from __future__ import annotations

from collections.abc import Iterator

from trainspec_validate.checkpoints.checks import NotApplicable, Series, Violation, check
from trainspec_validate.checkpoints.large_files import WORDS, in_words
from trainspec_validate.checkpoints.view import Aspect


def _of(series: Series, aspect: Aspect, absent: str) -> Iterator[Violation]:
    if not any(aspect in one.examined for one in series.checkpoints):
        raise NotApplicable(absent)
    for one in series.checkpoints:
        are_several = len(one.pointers) > 1
        if are_several and aspect == "container":
            yield Violation(one.place(""), in_words(one))
        for trouble in one.troubles:
            if trouble.aspect == aspect and not (are_several and trouble.message == WORDS):
                yield Violation(one.place(trouble.path), trouble.message, trouble.help)


@check("TS-CKP-080")
def commit_mark(series: Series) -> Iterator[Violation]:
    """The file that the format writes last is there."""
    yield from _of(series, "mark", "no format with a completion mark")


@check("TS-CKP-081")
def no_residue(series: Series) -> Iterator[Violation]:
    """No staging is left in a committed checkpoint."""
    yield from _of(series, "residue", "no checkpoint")


@check("TS-CKP-082")
def indexed_files(series: Series) -> Iterator[Violation]:
    """Files have the bytes that headers and indexes ask for."""
    yield from _of(series, "files", "no header and no index that names files or bytes")


@check("TS-CKP-083")
def container_valid(series: Series) -> Iterator[Violation]:
    """Containers and metadata are whole."""
    yield from _of(series, "container", "no container and no metadata")


@check("TS-CKP-085")
def tensor_tiling(series: Series) -> Iterator[Violation]:
    """The pieces of every tensor cover it once."""
    yield from _of(series, "tiling", "no format that says where the pieces of tensors are")


@check("TS-CKP-086")
def shards_complete(series: Series) -> Iterator[Violation]:
    """There are as many shards as their names or the layout say."""
    yield from _of(series, "shards", "no files that are counted")


@check("TS-CKP-087")
def resume_state(series: Series) -> Iterator[Violation]:
    """A checkpoint of a trainer holds what a resumed run needs."""
    joined = []
    for one in series.checkpoints:
        troubles = [trouble for trouble in one.troubles if trouble.aspect == "resume-state"]
        places = {trouble.path for trouble in troubles}
        words = "; ".join(dict.fromkeys(trouble.message for trouble in troubles))
        place = places.pop() if len(places) == 1 else ""
        joined += [Violation(one.place(place), words, troubles[0].help)] if troubles else []
    if not any("resume-state" in one.examined for one in series.checkpoints):
        raise NotApplicable("no format with files for each item of state")
    yield from joined


@check("TS-CKP-089")
def rng_of_ranks(series: Series) -> Iterator[Violation]:
    """Every rank has its random state, and not the same."""
    yield from _of(series, "rng", "no files of random state by rank")


@check("TS-SEC-001")
def no_code(series: Series) -> Iterator[Violation]:
    """Pickles name plain data only."""
    yield from _of(series, "code", "no pickle")


@check("TS-SEC-002")
def safe_paths(series: Series) -> Iterator[Violation]:
    """Paths and links stay inside."""
    yield from _of(series, "paths", "no checkpoint")


@check("TS-SEC-003")
def bounded_metadata(series: Series) -> Iterator[Violation]:
    """Metadata stays within the limits of readers."""
    yield from _of(series, "limits", "no metadata")
