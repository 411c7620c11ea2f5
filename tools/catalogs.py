"""Turns the tables of the specification into packaged data."""

from __future__ import annotations

import json
from pathlib import Path

from trainspec_validate.documents.load import load_file

TABLES = ("accelerators", "links", "metrics", "models", "xids")


def catalogs(directory: Path) -> dict[str, str]:
    """Text of each packaged table by file name."""
    return {
        f"{table}.json": json.dumps(load_file(directory / f"{table}.yaml").data, indent=1) + "\n" for table in TABLES
    }
