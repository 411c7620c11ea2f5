"""Lists the pages of the site that are written by programs and committed."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

from trainspec_site import changes, downloads, figures, metric_table, rule_pages
from trainspec_site.rule_pages import Entry
from trainspec_validate.load import load_file


def scenarios(root: Path) -> dict[str, str]:
    """The file of the scenario that checks a requirement, by its id."""
    files = sorted((root / "conformance" / "scenarios").glob("*/scenario.yaml"))
    return {str(load_file(path).data["requirement"]): path.relative_to(root).as_posix() for path in files}


def pages(root: Path, entries: Sequence[Entry], sources: Mapping[str, str], version: str) -> dict[str, str]:
    """Text of every such page, by its path below `spec/`."""
    rules = rule_pages.pages(entries, root / "schemas" / "v1", {**sources, **scenarios(root)})
    drawn = figures.figures(root)
    return {f"rules/{name}": text for name, text in rules.items()} | {
        "downloads.md": downloads.page(root / "schemas" / "v1", version),
        "figures.md": figures.page(drawn),
        "catalog.md": metric_table.page(root / "spec" / "v1"),
        **{f"figures/{name}": text for name, text in drawn.items()},
        "changes.md": changes.page(root / "spec" / "history", version, entries),
    }
