"""Shows the metrics and events of a training run, and finds them by the names of other programs."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict
from textwrap import TextWrapper
from typing import Any

import click
from click.shell_completion import CompletionItem

from trainspec_validate.cli import terminal
from trainspec_validate.cli.commands import tables
from trainspec_validate.cli.commands.lookup import pick
from trainspec_validate.model.metrics import Alias, Attribute, Event, Metric, by_alias, by_name, catalog

_WRAPPER = TextWrapper(100, break_on_hyphens=False, break_long_words=False)
_METRIC_HEADER = ("name", "unit", "kind", "scope", "level", "cadence", "title")
_EVENT_HEADER = ("name", "severity", "scope", "closed by", "title")
_ALIAS_HEADER = ("name there", "metric", "conversion", "program", "note")
_OTHER_HEADER = ("name there", "program", "conversion", "note")
_FALLS = {
    "any": "at any time",
    "attempt": "only where an attempt begins",
    "restart": "only with a newer start time",
    "never": "never",
}


def _complete(_context: click.Context, _parameter: click.Parameter, start: str) -> list[CompletionItem]:
    return [CompletionItem(name) for name in _choices() if name.casefold().startswith(start.casefold())]


@click.command(
    epilog="""\b
Examples:
  trainspec metrics --level required
  trainspec metrics train.gradient.variance
  trainspec metrics DCGM_FI_DEV_GPU_UTIL
  trainspec metrics --ecosystem megatron
"""
)
@click.argument("name", required=False, shell_complete=_complete)
@click.option(
    "--ecosystem", metavar="NAME", help="Names of this program only, such as dcgm, amd, torchtitan or mlperf."
)
@click.option("listing", "--events", is_flag=True, help="List events instead of metrics.")
@click.option("--level", metavar="LEVEL", help="List metrics of this level only, such as required.")
@click.option(
    "style", "--format", type=click.Choice(["text", "json"]), default="text", show_default=True, help="Output format."
)
def command(name: str | None, ecosystem: str | None, listing: bool, level: str | None, style: str) -> None:
    """List the metrics or events of a training run, or show what one of them means.

    A metric is named as in the specification, or as another program names it: the conversion is shown with it.
    """
    known = catalog()
    if ecosystem is not None:
        ecosystem = pick(ecosystem, known.ecosystems, "ecosystem").name
    if level is not None:
        level = pick(level, known.levels, "level").name
    _refuse(name, ecosystem, listing, level)
    if name is not None:
        _show(*_found(name, ecosystem), style)
    elif listing:
        _list(_EVENT_HEADER, [(_event_row(event), event) for event in known.events.values()], style)
    elif ecosystem is not None:
        chosen = [alias for metric in known.metrics.values() for alias in metric.aliases]
        _list_aliases([alias for alias in chosen if alias.ecosystem == ecosystem], style)
    else:
        rows = [(_metric_row(each), each) for each in known.metrics.values() if level in {None, each.level}]
        _list(_METRIC_HEADER, rows, style)


def _refuse(name: str | None, ecosystem: str | None, listing: bool, level: str | None) -> None:
    if listing and (name or ecosystem or level):
        raise click.UsageError("--events lists all events; an event is shown by its name alone")
    if level and (name or ecosystem):
        raise click.UsageError("--level is for the list of metrics; leave it out with a name or --ecosystem")


# --- finding ------------------------------------------------------------------------------------------------


def _choices(ecosystem: str | None = None) -> dict[str, Metric | Event]:
    """Everything that a name can lead to, by name; with an ecosystem only its names."""
    known = catalog()
    found: dict[str, Metric | Event] = {}
    if ecosystem is None:
        found |= known.events
        for metric in known.metrics.values():
            found |= {name: metric for name in (metric.name, metric.synonym) if name}
    for metric in known.metrics.values():
        for alias in metric.aliases:
            if ecosystem in {None, alias.ecosystem}:
                found.setdefault(alias.name, metric)
    return found


def _found(name: str, ecosystem: str | None) -> tuple[Metric | Event, tuple[Alias, ...]]:
    """The entry that a name leads to, and the aliases that are written so, whose first it is.

    Raises:
        click.UsageError: there is none; the text says which one is near.
    """
    if ecosystem is None:
        entry = by_name(name) or catalog().events.get(name)
        if entry is not None:
            return entry, ()
    aliases = by_alias(ecosystem, name)
    if aliases:
        return catalog().metrics[aliases[0].metric], aliases
    where = "`trainspec metrics`" if ecosystem is None else f"`trainspec metrics --ecosystem {ecosystem}`"
    return pick(name, _choices(ecosystem), "metric", where), ()


# --- showing ------------------------------------------------------------------------------------------------


def _show(entry: Metric | Event, aliases: Sequence[Alias], style: str) -> None:
    if aliases and (style == "json" or len({alias.metric for alias in aliases}) > 1):
        _list_aliases(aliases, style)
        return
    if style == "json":
        _emit_json([asdict(entry)])
        return
    lines = _event_page(entry) if isinstance(entry, Event) else _metric_page(entry)
    heads = [line for alias in aliases for line in _alias_lines(alias)]
    terminal.emit("".join(f"{line}\n" for line in (*heads, *([""] if heads else []), *lines)))


def _list(header: Sequence[str], rows: Sequence[tuple[tuple[str, ...], Any]], style: str) -> None:
    if style == "json":
        _emit_json([asdict(entry) for _, entry in rows])
    else:
        tables.show(header, [row for row, _ in rows])


def _list_aliases(aliases: Sequence[Alias], style: str) -> None:
    _list(_ALIAS_HEADER, [(_alias_row(alias), alias) for alias in aliases], style)


def _emit_json(entries: Sequence[Mapping[str, Any]]) -> None:
    terminal.emit(json.dumps(entries, indent=2, ensure_ascii=False) + "\n", "json")


def _metric_row(metric: Metric) -> tuple[str, ...]:
    scopes, cadences = " ".join(metric.scopes), " ".join(metric.cadences)
    return (metric.name, metric.unit, metric.instrument, scopes, metric.level, cadences, metric.title)


def _event_row(event: Event) -> tuple[str, ...]:
    return (event.name, event.severity, event.scope, " ".join(event.closed_by), event.title)


def _alias_row(alias: Alias) -> tuple[str, ...]:
    return (alias.name, alias.metric, alias.conversion(), alias.ecosystem, alias.note)


def _alias_lines(alias: Alias) -> Iterator[str]:
    program = catalog().ecosystems[alias.ecosystem].title
    implied = "".join(f", {name} {value}" for name, value in alias.implies.items())
    unit = "in a unit that is not settled" if alias.unit is None else f"in {alias.unit}"
    yield f"{alias.name} of {program}, {unit}: {alias.metric}{implied} = {alias.conversion()}"
    if alias.note:
        yield from (f"  {line}" for line in _WRAPPER.wrap(f"Note: {alias.note}"))


def _fact(name: str, text: str) -> str:
    return f"  {name:<12}{text}"


def _metric_page(metric: Metric) -> Iterator[str]:
    known = catalog()
    yield f"{metric.name}: {metric.title}"
    if metric.synonym:
        yield _fact("also", metric.synonym)
    yield _fact("kind", " or ".join((metric.instrument, *metric.also)))
    yield _fact("unit", f"{metric.unit} ({known.units[metric.unit].words})")
    yield _fact("scope", "; ".join(f"{scope}: {known.scopes[scope].words}" for scope in metric.scopes))
    condition = f", when {metric.capability}" if metric.capability else ""
    yield _fact("level", f"{metric.level}, profile {metric.profile}{condition}")
    for cadence in metric.cadences:
        yield _fact("cadence", f"{cadence}: {known.cadences[cadence].words}")
    if metric.minimum is not None or metric.maximum is not None:
        bounds = (("from", metric.minimum), ("to", metric.maximum))
        yield _fact("range", " ".join(f"{word} {value:g}" for word, value in bounds if value is not None))
    yield _fact("falls", _FALLS[metric.falls])
    yield _fact("not finite", "allowed" if metric.nonfinite else "not allowed")
    yield ""
    yield from _WRAPPER.wrap(metric.definition)
    for text in (metric.note, f"Why: {metric.why}", f"Source: {metric.source}"):
        yield from ["", *_WRAPPER.wrap(text)] if text else []
    yield from _attribute_lines("Attributes", metric.attributes)
    yield from _attribute_lines("Where it helps", metric.optional_attributes)
    if metric.aliases:
        yield from ("", "In other programs:")
        rows = [(alias.name, alias.ecosystem, alias.conversion(), alias.note) for alias in metric.aliases]
        yield from tables.plain(_OTHER_HEADER, rows).splitlines()


def _attribute_lines(title: str, names: Sequence[str]) -> Iterator[str]:
    if names:
        yield from ("", f"{title}:")
        yield from (f"  {_attribute(catalog().attributes[name])}" for name in names)


def _attribute(attribute: Attribute) -> str:
    values = f" ({', '.join(attribute.values)}{', ...' if attribute.open else ''})" if attribute.values else ""
    return f"{attribute.name}: {attribute.words}{values}"


def _event_page(event: Event) -> Iterator[str]:
    yield f"{event.name}: {event.title}"
    yield _fact("severity", event.severity)
    yield _fact("scope", f"{event.scope}: {catalog().scopes[event.scope].words}")
    if event.closed_by:
        yield _fact("closed by", " or ".join(event.closed_by) + (", or open at the end" if event.can_stay_open else ""))
    opened = [other.name for other in catalog().events.values() if event.name in other.closed_by]
    if opened:
        yield _fact("closes", " ".join(opened))
    yield ""
    yield from _WRAPPER.wrap(event.emitted)
    yield from _attribute_lines("Attributes", event.attributes)
    yield from _attribute_lines("Where it is known", event.optional_attributes)
    if event.values:
        yield from ("", "Values of metrics that it carries:")
        yield from (f"  {name}: {catalog().metrics[name].title}" for name in event.values)
