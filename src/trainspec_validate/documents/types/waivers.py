"""Declares the waiver file: accepted findings, each with its approver and an expiry date."""

from __future__ import annotations

from typing import Annotated, Literal

from msgspec import Meta

from trainspec_validate.documents.types.base import Record

_OWED = {"x-requirement": "TS-DOC-017"}


class Waiver(Record, frozen=True, kw_only=True):
    """One agreement to live with the findings of one requirement at one place."""

    requirement: Annotated[str, Meta(min_length=1, max_length=128)]
    """Id or name of the requirement."""
    file: Annotated[str, Meta(min_length=1, max_length=1024)]
    """File or pattern, relative to the waiver file: `**` crosses directories, `*` does not."""
    pointer: Annotated[str, Meta(min_length=1, max_length=1024)] | None = None
    """Place and everything below it, as `/batch/ramp` or `batch.ramp`; absent means the whole file."""
    reason: Annotated[str, Meta(min_length=1, max_length=4000, extra_json_schema=_OWED)]
    """Why the finding is acceptable."""
    owner: Annotated[str, Meta(min_length=1, max_length=256, extra_json_schema=_OWED)]
    """Person or team that answers for it."""
    expires: Annotated[str, Meta(pattern=r"^[0-9]{4}-[0-9]{2}-[0-9]{2}$", extra_json_schema=_OWED)]
    """Last day on which the waiver holds, as YYYY-MM-DD."""
    link: Annotated[str, Meta(min_length=1, max_length=2048)] | None = None
    """Ticket or discussion."""


class Waivers(Record, frozen=True, kw_only=True, tag_field="kind", tag="Waivers"):
    """Findings that are silenced with an owner, a reason and an end; for files that cannot carry comments."""

    apiVersion: Literal["trainspec/v1"]  # noqa: N815 - the key that selects the schema, spelled as other ecosystems do
    """Version of the document format."""
    waivers: tuple[Waiver, ...]
    """Every waiver."""
