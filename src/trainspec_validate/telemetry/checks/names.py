"""Checks the names of metrics and events, and the unit, instrument and scope behind a name."""

from __future__ import annotations

from collections.abc import Iterator

from trainspec_validate.model.metrics import by_alias, by_name, catalog, events, metrics
from trainspec_validate.model.suggest import hint
from trainspec_validate.telemetry.checks import Evidence, NotApplicable, RunView, Violation, check, require
from trainspec_validate.telemetry.checks._seen import is_own, own_heads
from trainspec_validate.telemetry.checks._words import counted, damaged, few, of_records, series_in_words
from trainspec_validate.telemetry.view.run_view import KeyInfo, Location, Occurrence, PlacedHead, Trouble

RESERVED = "train."
"""Start of names that only the catalog gives."""
TOO_MANY = "train.telemetry.too_many_keys"
"""Name under which keys beyond the first thousands are counted."""
UNIT_WORDS = frozenset(
    {
        *("second", "seconds", "sec", "secs", "ms", "us", "ns", "milliseconds", "microseconds", "minutes", "hours"),
        *("byte", "bytes", "kb", "mb", "gb", "tb", "kib", "mib", "gib", "percent", "pct", "ratio", "watt", "watts"),
        *(
            "joule",
            "joules",
            "celsius",
            "hz",
            "mhz",
            "ghz",
            "hertz",
            "mw",
            "kw",
            "mj",
            "gbps",
            "tps",
            "tflops",
            "total",
        ),
    }
)
_MOVES_BOTH_WAYS = frozenset({"gauge", "updowncounter"})
INSTRUMENTS = frozenset({"counter", "updowncounter", "gauge", "histogram"})
"""Instruments that other formats state; streams of this format distinguish numbers from histograms."""
_NEEDS = {"rank": "rank", "group": "rank", "device": "device", "link": "device", "nic": "device", "node": "host"}


@check("TS-TEL-005")
def metric_known(run: RunView) -> Iterator[Violation]:
    """Names are those of the catalog, or declared in a head."""
    own = _own(run)
    if not own and not own_heads(run):
        yield from damaged(run, "TS-TEL-005")
        raise NotApplicable("no name that a stream gives itself; those of other formats are translated")
    extensions = {name for head in run.heads for name in head.record.extension_metrics}
    unknown = (key for key in own if key.metric is None and key.key.metric not in {*extensions, TOO_MANY})
    yield from few(_unknown_metric(key) for key in unknown)
    for head in own_heads(run):
        yield from _unknown_in_head(head)
    yield from _unknown_events(run)


@check("TS-TEL-006")
def one_name_each(run: RunView) -> Iterator[Violation]:
    """A metric with two names is written under one of them."""
    own = require([key for key in _own(run) if key.metric], "no metric of the catalog")
    spelled: dict[str, dict[str, Location]] = {}
    for key in own:
        names = spelled.setdefault(key.key.metric, {})
        for text, place in key.spellings:
            names[_name(text)] = min(names.get(_name(text), place), place)
    for names in spelled.values():
        if len(names) > 1:
            (_, before), (place, name) = sorted((place, name) for name, place in names.items())[:2]
            message = f"{name} and {before} are one metric, and the run has both"
            related = ((names[before], f"first written as {before}"),)
            yield Violation(place, message, "use one name; readers take them for two metrics", related=related)


@check("TS-TEL-007")
def unit_match(run: RunView) -> Iterator[Violation]:
    """Stated units are those of the catalog, without prefix, and names hold no unit."""
    yield from damaged(run, "TS-TEL-007")
    stated = [key for key in run.keys if key.unit is not None and key.metric]
    declared = [(head, name) for head in own_heads(run) for name in head.record.extension_metrics]
    if not stated and not declared:
        raise NotApplicable("no unit is stated; values are in those of the catalog")
    for key in stated:
        assert key.metric  # noqa: S101 - chosen above
        known = catalog().units.get(key.unit or "")
        if key.unit != key.metric.unit and (known is None or known.base != key.metric.unit):
            message = f"{_name(key.text)} has the unit {key.unit!r}, and {key.metric.name} is in {key.metric.unit}"
            yield Violation(key.location, message, f"convert it to {key.metric.unit}", Evidence(str(key.key)))
    yield from few(found for head, name in declared for found in _wrong_unit(head, name))


@check("TS-TEL-008")
def instrument_match(run: RunView) -> Iterator[Violation]:
    """A metric is written as what it is: a counter that counts, a value, or a histogram."""
    yield from damaged(run, "TS-TEL-008")
    own = {key.text for key in _own(run)}
    stated = [key for key in run.keys if key.metric and (key.instrument in INSTRUMENTS or key.text in own)]
    if not stated:
        raise NotApplicable("no input states whether its metrics are counters, values or histograms")
    for key in stated:
        assert key.metric  # noqa: S101 - chosen above
        allowed = {key.metric.instrument, *key.metric.also}
        allowed |= _MOVES_BOTH_WAYS if allowed & _MOVES_BOTH_WAYS else set()
        written = str(key.instrument)
        forms = {"histogram" if name == "histogram" else "number" for name in allowed}
        wanted = "an object with count and sum" if forms == {"histogram"} else "a number"
        if written == "mixed":
            is_right, said = len(forms) == 2, "as numbers and as histograms"
        else:
            is_right, said = written in (forms | allowed), f"as a {written}"
        if not is_right:
            message = f"{key.key} is a {key.metric.instrument}, and is written {said}"
            yield Violation(key.location, message, f"write {wanted}", Evidence(str(key.key), count=key.num))


@check("TS-TEL-009")
def scope_match(run: RunView) -> Iterator[Violation]:
    """Records name what the scope of their metrics needs, and emitters write what their heads say."""
    if not any(key.metric for key in run.keys):
        raise NotApplicable("no metric of the catalog")
    help_text = "put metrics of different scopes into different records, each with the subject of its values"
    yield from of_records(run.trails_of(Trouble.WRONG_SCOPE), lambda found: _scope_message(run, found), help_text)


# --- names --------------------------------------------------------------------------------------------------


def _own(run: RunView) -> list[KeyInfo]:
    """The names in files that follow this specification; those of other formats have been translated."""
    return [key for key in run.keys if key.num and is_own(run, key.location)]


def _name(text: str) -> str:
    return text.partition("{")[0]


def _unknown_metric(key: KeyInfo) -> Violation:
    name = _name(key.text)
    message = f"{name} is no metric of the catalog, and no head declares it"
    evidence = Evidence(str(key.key), count=key.num)
    return Violation(key.location, message, _help_for(name), evidence)


def _help_for(name: str) -> str:
    alias = next(iter(by_alias(None, name)), None)
    if alias:
        return f"write {alias.metric}: {alias.conversion()}"
    synonyms = (metric.synonym for metric in metrics().values() if metric.synonym)
    remedy = f"names that start with {RESERVED!r} are kept for the catalog"
    return hint(name, [*metrics(), *synonyms]) or (
        remedy if name.startswith(RESERVED) else "declare it in extension_metrics of the head, with unit and instrument"
    )


def _unknown_in_head(head: PlacedHead) -> Iterator[Violation]:
    record = head.record
    for text in record.unsupported:
        name = _name(text)
        if by_name(name) is None and name not in record.extension_metrics:
            message = f"the head declares {name} unsupported, which is no metric of the catalog"
            yield Violation(head.location, message, hint(name, list(metrics())))
    for name in record.extension_metrics:
        if by_name(name) is not None:
            message = f"the head declares {name} as a metric of its own, which the catalog has"
            yield Violation(head.location, message, "leave it out, and write it as the catalog defines it")
        elif name.startswith(RESERVED):
            message = f"the head declares {name}, and names that start with {RESERVED!r} are kept for the catalog"
            yield Violation(head.location, message, "begin its name with a domain of yours, such as org.example.")
    for name in record.declared:
        if name.startswith(RESERVED) and name not in catalog().attributes:
            message = f"the head declares the attribute {name}, which the catalog does not have"
            yield Violation(head.location, message, hint(name, list(catalog().attributes)))


def _unknown_events(run: RunView) -> Iterator[Violation]:
    counts: dict[str, int] = {}
    for name, by_file in run.event_facts.num_by_file.items():
        if name.startswith(RESERVED) and name not in events():
            counts[name] = sum(num for file, num in by_file.items() if is_own(run, Location(file, 0)))
    for name, count in counts.items():
        if not count:
            continue
        first = run.events_named(name)[0]
        message = f"{name} is no event of the catalog ({counted(count, 'record')})"
        evidence = Evidence(first_time_us=first.time_us, last_time_us=run.events_named(name)[-1].time_us, count=count)
        yield Violation(first.location, message, hint(name, list(events())), evidence)


# --- units and scopes ---------------------------------------------------------------------------------------


def _wrong_unit(head: PlacedHead, name: str) -> Iterator[Violation]:
    unit = head.record.extension_metrics[name].unit
    word = name.replace(".", "_").rsplit("_", 1)[-1]
    known = catalog().units.get(unit)
    if known is not None and known.factor != 1:
        message = f"{name} is declared in {unit}, which is {known.factor:g} {known.base}"
        yield Violation(head.location, message, f"write it in {known.base}, and declare that unit")
    elif unit.casefold() in UNIT_WORDS:
        help_text = "write UCUM codes without prefix: s, By, W, J, Cel, Hz, 1 for fractions, {thing} for counts"
        yield Violation(head.location, f"{name} is declared in {unit!r}, which is no unit code", help_text)
    elif word in UNIT_WORDS:
        message = f"the name {name} ends in {word!r}, which repeats or contradicts its unit {unit}"
        yield Violation(head.location, message, "leave the unit out of the name; exporters add it")


def _scope_message(run: RunView, found: Occurrence) -> str:
    metric = by_name(found.key.metric)
    scopes = metric.scopes if metric else ()
    head = run.head_of(found.emitter, found.attempt)
    named = head.record.scopes if head else scopes
    whose = series_in_words(found.key, found.subject)
    if not set(scopes) & set(named):
        scope = " or ".join(scopes)
        return f"{whose} is of scope {scope}, and the head of emitter {found.emitter!r} names {', '.join(named)}"
    if scopes == ("job",):
        return f"{whose} is of the job, and its record names a rank or device"
    needed = dict.fromkeys(_NEEDS[scope] for scope in scopes if scope in _NEEDS)
    return f"{whose} is of scope {' or '.join(scopes)}, and its record names no {' or '.join(needed)}"
