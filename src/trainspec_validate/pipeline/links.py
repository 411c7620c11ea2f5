"""Says of a link whether a search that does not follow it leaves out what may be ours."""

from __future__ import annotations

import os
from pathlib import Path

from trainspec_validate.pipeline.claims import hidden_claims
from trainspec_validate.pipeline.detect import detect
from trainspec_validate.pipeline.files import File, is_document_name, is_stream_name
from trainspec_validate.system.boundary import InputError


def link_reason(link: Path) -> str:
    """Why a link is left out."""
    return "is a link, which is not followed" if link.exists() else "is a link that leads nowhere"


def is_ours_by_name(name: str) -> bool:
    """Whether a name is one of documents or of streams."""
    return is_document_name(name) or is_stream_name(name)


def leads_to_ours(link: Path) -> bool:
    """Whether a link in a checkpoint leads to a document or a stream, which no reader of checkpoints takes.

    A link of a cache is the file of the checkpoint itself.
    """
    from trainspec_validate.checkpoints.hub_cache import blob_of  # noqa: PLC0415 - start-up

    if not is_ours_by_name(link.name) or not link.is_file() or blob_of(link):
        return False
    target = Path(os.path.realpath(link))
    if hidden_claims(target):
        return True
    try:
        return is_stream_name(link.name) and detect(File(target, link.name)).kind == "stream"
    except InputError:
        return True  # nobody can say what it holds
