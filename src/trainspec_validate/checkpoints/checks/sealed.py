"""Compares a checkpoint with its manifest, and payloads with the checksums of their format."""

from __future__ import annotations

from collections.abc import Iterator
from shlex import quote

from trainspec_validate.checkpoints import signature
from trainspec_validate.checkpoints.checks import Checkpoint, CheckpointPolicy, NotApplicable, Series, Violation, check
from trainspec_validate.checkpoints.compare import absent_files, changed_files, unlisted_files
from trainspec_validate.checkpoints.envelope import SignatureError
from trainspec_validate.checkpoints.payload import compared
from trainspec_validate.checkpoints.view import MANIFEST_NAME, SIGNATURE_NAME

_REMEDY = "restore the file from another copy"
_NO_MANIFEST = f"no {MANIFEST_NAME} that can be read"


def _with_manifest(series: Series) -> list[Checkpoint]:
    found = [one for one in series.checkpoints if one.manifest]
    if not found:
        raise NotApplicable(_NO_MANIFEST)
    return found


@check("TS-CKP-070")
def manifest_present(series: Series) -> Iterator[Violation]:
    """Every checkpoint carries a manifest."""
    for one in series.checkpoints:
        if one.manifest is None and not one.manifest_problem and not one.is_covered:
            what = "only the checksums of tensors" if any(piece.crc32c for piece in one.pieces) else "nothing"
            words = f"there is no {MANIFEST_NAME}: {what} would notice a changed byte"
            remedy = f"write one when the save ends, or now: trainspec checkpoint seal {quote(one.name)}"
            if one.is_bundle:
                remedy = "save each into a directory of its own, and write one there: trainspec checkpoint seal"
            yield Violation(one.name, words, remedy)


@check("TS-CKP-071")
def manifest_files(series: Series) -> Iterator[Violation]:
    """Every listed file is there, with its size."""
    for one in _with_manifest(series):
        for path, words in absent_files(one):
            yield Violation(one.place(path), words, _REMEDY)


@check("TS-CKP-072")
def manifest_digests(series: Series) -> Iterator[Violation]:
    """Every listed file has its digest."""
    for one in _with_manifest(series):
        for path, words in changed_files(one):
            yield Violation(one.place(path), words, _REMEDY)


@check("TS-CKP-073")
def manifest_lists_all(series: Series) -> Iterator[Violation]:
    """No file exists next to those that are listed."""
    for one in _with_manifest(series):
        for path, words in unlisted_files(one):
            yield Violation(
                one.place(path), words, "remove it, or seal the checkpoint again with it, or under unsealed"
            )


@check("TS-CKP-074")
def save_id_unique(series: Series) -> Iterator[Violation]:
    """No two checkpoints have one save id."""
    first: dict[str, str] = {}
    if not any(one.manifest or one.save_ids for one in series.checkpoints):
        raise NotApplicable(_NO_MANIFEST)
    for one in series.checkpoints:
        place = one.manifest_name if one.manifest else ""
        for save_id in filter(None, [one.manifest.save_id if one.manifest else "", *sorted(one.save_ids)]):
            other = first.setdefault(save_id, one.name)
            if other != one.name:
                words = f"the save id {save_id!r} is also that of {other}"
                yield Violation(one.place(place), words, "give every save an id of its own")


@check("TS-CKP-075")
def manifest_state(series: Series, policy: CheckpointPolicy) -> Iterator[Violation]:
    """The manifest names every item of state that the policy saves."""
    named = [one for one in _with_manifest(series) if one.manifest and one.manifest.state]
    if not named:
        raise NotApplicable("no manifest that names items of state")
    for one in named:
        held = one.manifest.state if one.manifest else ()
        absent = [item for item in policy.state.items if item not in held]
        if absent:
            words = f"the policy saves {', '.join(absent)}, which the manifest does not name"
            yield Violation(one.place(one.manifest_name), words, "save it, or put it under state.omitted of the policy")


@check("TS-CKP-076")
def signature_covers_manifest(series: Series) -> Iterator[Violation]:
    """A signature covers the manifest and all that it lists."""
    signed = [one for one in _with_manifest(series) if SIGNATURE_NAME in one.files]
    if not signed:
        raise NotApplicable(f"no {SIGNATURE_NAME} next to a manifest")
    for one in signed:
        try:
            wrong = list(signature.differences(one, signature.read(one)))
        except SignatureError as error:
            wrong = [str(error)]
        for words in wrong:
            remedy = "find out which of the two is older; whoever vouches for the files signs them again"
            yield Violation(one.place(SIGNATURE_NAME), words, remedy)


@check("TS-CKP-084")
def payload_checksum(series: Series) -> Iterator[Violation]:
    """Content agrees with the checksums of its format, where no manifest vouches for it."""
    num_compared = 0
    for one in series.checkpoints:
        for path, words in compared(one, one.sealed):
            num_compared += 1
            if words:
                yield Violation(one.place(path), words, _REMEDY)
    if not num_compared:
        raise NotApplicable("no recorded checksum of a file that no manifest vouches for")
