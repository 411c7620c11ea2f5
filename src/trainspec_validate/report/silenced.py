"""Says in words which findings were silenced, by what, and how often."""

from __future__ import annotations

from collections.abc import Sequence

from trainspec_validate.model.finding import Report, SuppressionKind
from trainspec_validate.system.neutral import printable

_MAX_LINES = 20
_BY = {
    SuppressionKind.INLINE: "by a comment",
    SuppressionKind.WAIVER: "by a waiver",
    SuppressionKind.BASELINE: "by the baseline",
}


def sentences(report: Report) -> Sequence[str]:
    """One sentence for each requirement, way of silencing and reason, with the first file; the rest as a number."""
    groups: dict[tuple[str, SuppressionKind, str], list[str]] = {}
    for entry in report.suppressed:
        groups.setdefault((entry.finding.requirement, entry.kind, entry.reason), []).append(entry.finding.path)
    found = []
    for (requirement, kind, reason), paths in sorted(groups.items()):
        files = sorted(set(paths))
        more = f" and {len(files) - 1} more" if len(files) > 1 else ""
        often = "once" if len(paths) == 1 else f"{len(paths):,} times"
        found.append(
            printable(f"silenced: {requirement} {often} in {files[0]}{more}, {_BY[kind]}{reason and ': '}{reason}")
        )
    rest = len(found) - _MAX_LINES
    return [*found[:_MAX_LINES], *([f"silenced: {rest:,} more; --format json has all"] if rest > 0 else [])]
