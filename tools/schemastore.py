"""Writes what SchemaStore needs: a schema for all kinds of document, and its entry."""

from __future__ import annotations

import json
from typing import Any

from schemas import DRAFT_07, OF_TAGS, SITE
from trainspec_validate.documents.schema import schema_file
from trainspec_validate.documents.types import KINDS, SIDE_KINDS

ADDRESS = f"{SITE}/schemas/schemastore/trainspec.schema.json"
FILES = ["*.trainspec.yaml", "*.trainspec.yml", "*.trainspec.json"]
"""Names without other users: SchemaStore takes no pattern such as `cluster.yaml`."""


def files() -> dict[str, str]:
    """Text of each file by its name under `schemas/schemastore/`."""
    found = {"trainspec.schema.json": by_kind(), "catalog-entry.json": entry()}
    return {name: json.dumps(value, indent=2) + "\n" for name, value in found.items()}


def by_kind() -> dict[str, Any]:
    """The schema that judges a document by the schema of the kind that it names, in the draft that editors know."""
    kinds = [*KINDS, *SIDE_KINDS]
    return {
        "$schema": DRAFT_07,
        "$id": ADDRESS,
        "title": "TrainSpec document",
        "description": "A document of any kind; the key `kind` selects its schema.",
        "type": "object",
        "required": ["apiVersion", "kind"],
        "properties": {"kind": {"description": OF_TAGS["kind"], "enum": kinds}},
        "allOf": [
            {
                "if": {"properties": {"kind": {"const": kind}}, "required": ["kind"]},
                "then": {"$ref": f"{SITE}/schemas/v1/draft-07/{schema_file(kind)}"},
            }
            for kind in kinds
        ],
    }


def entry() -> dict[str, Any]:
    """The entry for `src/api/json/catalog.json` of SchemaStore."""
    return {
        "name": "TrainSpec",
        "description": "Cluster profiles, training plans, checkpoint policies and other documents of large AI training",
        "fileMatch": FILES,
        "url": ADDRESS,
        "versions": {"1": ADDRESS},
    }
