"""Definitions of custom resources that projects of Kubernetes publish, for tests of what is written for them.

They are large and not in this repository: a variable names the file of each.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest
import yaml
from jsonschema import Draft202012Validator


def strict(schema: Any) -> Any:
    """The schema of a definition, where a key that it does not list is an error as for an API server."""
    if isinstance(schema, list):
        return [strict(entry) for entry in schema]
    if not isinstance(schema, dict):
        return schema
    found = {key: strict(value) for key, value in schema.items()}
    if schema.get("type") == "object" and "properties" in schema:
        found.setdefault("additionalProperties", False)
    if schema.get("x-kubernetes-int-or-string"):
        found["type"] = ["integer", "string"]
    return found


def published(variable: str, version: str) -> Draft202012Validator:
    """The only version of the definition in the file that a variable names; the test is skipped without it."""
    path = Path(os.environ.get(variable, ""))
    if not path.is_file():
        pytest.skip(f"no published definition; {variable} names its file")
    (found,) = yaml.safe_load(path.read_text(encoding="utf-8"))["spec"]["versions"]
    assert found["name"] == version
    schema = strict(found["schema"]["openAPIV3Schema"])
    schema["properties"]["metadata"] = {"type": "object"}  # the API server judges it, not the definition
    return Draft202012Validator(schema)
