"""Lists the requirements, and shows that each has its check and each MUST its ground."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from itertools import groupby

import click

from trainspec_validate.cli import terminal
from trainspec_validate.cli.commands import tables
from trainspec_validate.cli.commands.explain import GROUNDS, as_plain
from trainspec_validate.cli.commands.lookup import pick
from trainspec_validate.model.requirements import Requirement, load_index

_HEADER = ("id", "name", "level", "check", "profile", "title")


@click.command(epilog="Example: trainspec rules --area PAR --level MUST --check rule")
@click.option("--area", metavar="AREA", help="Only this chapter: PAR or TS-PAR.")
@click.option("--level", metavar="LEVEL", help="Only this level: MUST or SHOULD, for example.")
@click.option("--check", metavar="CHECK", help="Only what is checked this way: load, schema, rule or manual.")
@click.option(
    "style", "--format", type=click.Choice(["text", "json"]), default="text", show_default=True, help="Output format."
)
@click.option(
    "--coverage",
    is_flag=True,
    help="Show the ground of each MUST, and count requirements by chapter and way of checking; exit code 1 when one "
    "has no check, or a MUST has no ground.",
)
@click.pass_context
def command(  # noqa: PLR0913, PLR0917 - one parameter per option
    context: click.Context,
    /,
    area: str | None,
    level: str | None,
    check: str | None,
    style: str,
    coverage: bool,
) -> None:
    """List the requirements, or show with --coverage that each has its check and each MUST its ground."""
    if coverage:
        context.exit(_coverage(style))
    index = load_index()
    chosen = list(index.by_id.values())
    if area:
        areas = {entry.area: entry.area for entry in chosen} | {entry.area[3:]: entry.area for entry in chosen}
        wanted = pick(area, areas, "chapter", "`trainspec rules`")
        chosen = [entry for entry in chosen if entry.area == wanted]
    for given, attribute in ((level, "level"), (check, "check")):
        if given:
            values = {str(getattr(entry, attribute)): str(getattr(entry, attribute)) for entry in index.by_id.values()}
            wanted = pick(given.replace("_", " "), values, attribute, "`trainspec rules`")
            chosen = [entry for entry in chosen if getattr(entry, attribute) == wanted]
    if style == "json":
        data = [as_plain(entry, index) for entry in chosen]
        terminal.emit(json.dumps(data, indent=2, ensure_ascii=False) + "\n", "json")
        return
    tables.show(_HEADER, [_row(entry) for entry in chosen])


def _row(entry: Requirement) -> tuple[str, ...]:
    return (entry.id, entry.name, entry.level, entry.check, entry.profile, entry.title)


def _coverage(style: str) -> int:
    from trainspec_validate.pipeline.coverage import by_ground, holes, table  # noqa: PLC0415 - imports every rule

    counts, grounds = table(), by_ground()
    checks = list(dict.fromkeys(check for _, counter in counts for check in counter))
    missing = holes()
    if style == "json":
        data = {
            "areas": {area: {check: counter[check] for check in checks} for area, counter in counts},
            "grounds": {ground: [entry.id for entry in entries] for ground, entries in grounds.items()},
            "holes": [{"requirement": hole.requirement, "message": hole.message} for hole in missing],
        }
        terminal.emit(json.dumps(data, indent=2) + "\n", "json")
        return terminal.FINDINGS if missing else terminal.OK
    tables.show(("ground of a MUST", "area", "count", "requirements"), list(_grounds(grounds)), frozenset({2}))
    terminal.emit("\n")
    rows = [(area, *(str(counter[check] or "") for check in checks), str(counter.total())) for area, counter in counts]
    totals = [sum(counter[check] for _, counter in counts) for check in checks]
    rows.append(("all", *(str(total) for total in totals), str(sum(totals))))
    tables.show(("area", *checks, "all"), rows, frozenset(range(1, len(checks) + 2)))
    for hole in missing:
        terminal.emit(f"{hole.requirement} {hole.message}\n")
    if not missing:
        terminal.emit("every requirement has its check, every check its requirement, and every MUST its ground\n")
    return terminal.FINDINGS if missing else terminal.OK


def _grounds(by_ground: Mapping[str, Sequence[Requirement]]) -> Iterator[tuple[str, str, str, str]]:
    """One row for each ground and chapter, with the numbers of the requirements."""
    for ground, entries in by_ground.items():
        for area, some in groupby(entries, key=lambda entry: entry.area):
            numbers = [entry.id.rsplit("-", 1)[1] for entry in some]
            yield GROUNDS[ground], area, str(len(numbers)), " ".join(numbers)
