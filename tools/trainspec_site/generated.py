"""Lists the generated pages of the site that are committed; the pages of requirements are built with the site."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from trainspec_site import changes, downloads, figures, metric_table
from trainspec_site.rule_pages import Entry


def pages(root: Path, entries: Sequence[Entry], version: str) -> dict[str, str]:
    """Text of every such page, by its path below `spec/`."""
    drawn = figures.figures(root)
    return {
        "downloads.md": downloads.page(root / "schemas" / "v1", version),
        "figures.md": figures.page(drawn),
        "catalog.md": metric_table.page(root / "spec" / "v1"),
        **{f"figures/{name}": text for name, text in drawn.items()},
        "changes.md": changes.page(root / "spec" / "history", version, entries),
    }
