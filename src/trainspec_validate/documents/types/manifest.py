"""Declares the CheckpointManifest: which files make a checkpoint, and what they hold."""

from __future__ import annotations

from typing import Annotated, Literal

import msgspec
from msgspec import Meta

from trainspec_validate.documents.types.base import (
    TIME,
    Count,
    Degree,
    Extensions,
    Record,
    SoftwareComponent,
    Text,
    Tokens,
)
from trainspec_validate.documents.types.checkpoint import StateItem

FilePath = Annotated[str, Meta(min_length=1, max_length=4096)]
# Larger than any file system stores in one file (2^63 bytes), so that only a slipped unit is refused.
FileBytes = Annotated[int, Meta(ge=0, le=9_223_372_036_854_775_807, extra_json_schema={"x-unit": "By"})]
Sha256 = Annotated[str, Meta(pattern=r"^[0-9a-f]{64}$")]
Step = Annotated[int, Meta(ge=0, le=1_000_000_000_000)]


class SealedFile(Record, frozen=True, kw_only=True):
    """One file of a checkpoint as it was when the manifest was written."""

    path: FilePath
    """Path relative to the directory of the manifest, with forward slashes."""
    size_bytes: FileBytes
    """Bytes of the file when the manifest was written."""
    sha256: Sha256
    """SHA-256 of its content, in lower-case hexadecimal digits."""


class SavedLayout(Record, frozen=True, kw_only=True):
    """How the state was distributed when it was saved."""

    num_ranks: Count | None = None
    """Ranks that took part in the save."""
    data: Degree | None = None
    """Data-parallel degree."""
    tensor: Degree | None = None
    """Tensor-parallel degree."""
    pipeline: Degree | None = None
    """Pipeline-parallel degree."""
    context: Degree | None = None
    """Context-parallel degree."""
    expert: Degree | None = None
    """Expert-parallel degree."""


class CheckpointManifest(Record, frozen=True, kw_only=True, tag_field="kind", tag="CheckpointManifest"):
    """The files of one checkpoint with their digests; is in the checkpoint as `trainspec-manifest.json`."""

    apiVersion: Literal["trainspec/v1"]  # noqa: N815 - the key that selects the schema, spelled as other ecosystems do
    """Version of the document format."""
    save_id: Annotated[str, Meta(min_length=8, max_length=128, pattern=r"^[A-Za-z0-9._:+-]+$")]
    """Identity of the save, the same for no two saves."""
    step: Step | None = None
    """Optimizer steps that are in the state."""
    num_tokens: Tokens | None = None
    """Tokens that were consumed up to that step."""
    created: Annotated[str, Meta(pattern=TIME)] | None = None
    """Time at which the manifest was written, in UTC, as YYYY-MM-DDThh:mm:ssZ."""
    run: Text | None = None
    """Run that the checkpoint belongs to, as its streams call it."""
    tool: SoftwareComponent | None = None
    """Program that wrote the manifest."""
    layout: SavedLayout | None = None
    """How the state was distributed."""
    state: tuple[StateItem, ...] = ()
    """Items of state that the files hold."""
    files: Annotated[tuple[SealedFile, ...], Meta(min_length=1)]
    """Every file at any depth below the directory, except the manifest, its signature and those under `unsealed`."""
    unsealed: tuple[FilePath, ...] = ()
    """Files that may be in the directory without a digest, such as logs that are still written."""
    empty_folders: tuple[FilePath, ...] = ()
    """Directories below it that hold nothing; every other directory is in a path of `files` or `unsealed`."""
    extensions: Extensions = msgspec.field(default_factory=dict)
    """Data of others, under reverse domain names."""
