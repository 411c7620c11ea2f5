"""How a value breaks its schema, in words, and what would be right."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final

from trainspec_validate.documents.types.base import DAY, TIME
from trainspec_validate.model.aliases import REMEDIES, VALUES, fold
from trainspec_validate.model.finding import Pointer
from trainspec_validate.model.quantities import UNIT_WORDS, in_words, read_quantity, written
from trainspec_validate.model.suggest import did_you_mean, look_alike, meant

Schema = Mapping[str, Any]
_TYPE_WORDS: Final = {
    "object": "a mapping",
    "array": "a list",
    "string": "text",
    "integer": "a whole number",
    "number": "a number",
    "boolean": "true or false",
    "null": "nothing",
}
FORMS: Final = {
    "^[A-Za-z0-9][A-Za-z0-9._+-]*$": "use letters, digits and . _ + - only, and start with a letter or a digit",
    r"^[0-9]{4}-[0-9]{2}-[0-9]{2}$": "write a date as year-month-day, such as 2026-01-31",
    DAY: "write a day of the calendar in this century as year-month-day, such as 2026-01-31",
    r"^[a-z0-9]+(\.[a-z0-9-]+)+$": "use a domain name of yours from right to left, such as org.example",
    "^[a-z][A-Za-z0-9_]*([.][A-Za-z0-9_-]+)*$": "write the keys from the top, joined by dots: parallelism.context",
    "^[0-9a-f]{16}$": "write 16 hexadecimal digits in lower case",
    "^sha256:[0-9a-f]{64}$": "write sha256: and 64 hexadecimal digits in lower case",
}
"""Every pattern of the schemas of documents, in words."""
_OTHER_FORMS: Final = {
    TIME: "write a time of the calendar in UTC, such as 2026-01-31T13:45:00Z",
    "^[0-9a-f]{64}$": "write 64 hexadecimal digits in lower case",
    "^[A-Za-z0-9._:+-]+$": "use letters, digits and . _ : + - only",
}
"""Patterns of manifests and reports."""
_NAME: Final = "^[A-Za-z0-9][A-Za-z0-9._+-]*$"
_YES: Final = {**dict.fromkeys(("true", "yes", "on", "y", "1"), "true")}
_NO: Final = {**dict.fromkeys(("false", "no", "off", "n", "0"), "false")}
_TIGHT_COMMENT = re.compile(r"([^\s#]+)#").match
_PLACEHOLDER = re.compile(r"\$\{|\{\{|<[^<>]+>|\$[A-Z]")
_LIKELY_FACTORS: Final = {"By": ("GB", 10**9), "{flop}/s": ("TFLOP/s", 10**12), "By/s": ("GB/s", 10**9)}
_MAX_SHOWN: Final = 60
_LEAST_WHOLE_COUNT: Final = 1000
"""Least parameters of a model; smaller numbers are counted in millions or billions."""
_TINY: Final = 1e-6
_MAX_KEYS_LISTED: Final = 8


def place_name(pointer: Pointer) -> str:
    """A place as people write it: `node_groups[0].nics[1]`."""
    text = "".join(f"[{step}]" if isinstance(step, int) else f".{step}" for step in pointer)
    return text.removeprefix(".") or "the document"


def shown(value: Any) -> str:
    """A value as it is in the document, shortened."""
    if isinstance(value, (dict, list)):
        return "a mapping" if isinstance(value, dict) else "a list"
    if value is None:
        return "null"
    if isinstance(value, str):
        text = repr(value)
    elif isinstance(value, bool) or (isinstance(value, float) and abs(value) < 1000):
        text = str(value).lower()
    else:
        text = written(value)
    return text if len(text) <= _MAX_SHOWN else f"{text[: _MAX_SHOWN - 3]}..."


def missing_keys(pointer: Pointer, wanted: Mapping[str, Schema], target: Mapping[str, Schema]) -> tuple[str, str]:
    """Message and help for keys that a mapping lacks; `target` holds their schemas with references followed."""
    names = [f"'{key}'" for key in wanted]
    listed = names[0] if len(names) == 1 else f"{', '.join(names[:-1])} and {names[-1]}"
    message = f"{place_name(pointer)} lacks the key{'s' if len(names) > 1 else ''} {listed}"
    if len(names) > 1:
        return message, "add them, or correct a key that should be one of them"
    key, subschema = next(iter(wanted.items()))
    return message, f"add it: {described(subschema, target[key])}"


def described(subschema: Schema, target: Schema) -> str:
    """Content of a key, in the schema's own words, as the end of a sentence."""
    text = str(subschema.get("description") or target.get("description") or "").split("\n")[0].rstrip(".")
    if text[1:2].islower() or text[1:2] == " ":
        text = text[0].lower() + text[1:]
    options = f"one of {', '.join(str(option) for option in target['enum'])}" if "enum" in target else ""
    return "; ".join(part for part in (text, options) if part) or _words_of(target)


def value_message(keyword: str, value: Any, subschema: Schema, *, place: Pointer, required: bool) -> tuple[str, str]:
    """Message and help for a value that breaks one keyword of its schema."""
    key = next((step for step in reversed(place) if isinstance(step, str)), "")
    match keyword:
        case "type":
            if value is None and place and isinstance(place[-1], int):
                return f"the item has no value; {_words_of(subschema)} is needed", "give the value, or remove the item"
            return _type_message(value, subschema, place, required)
        case "enum" | "const":
            options = [str(option) for option in subschema.get("enum", [subschema.get("const")])]
            remedy = REMEDIES.get((key, fold(str(value)))) or _choice(value, options)
            return f"{shown(value)} is not a value of {key!r}", remedy
        case "minimum" | "exclusiveMinimum" | "maximum" | "exclusiveMaximum":
            return _range_message(keyword, value, subschema)
        case "pattern":
            return f"{shown(value)} is not of the form that {key!r} has", _form(str(value), subschema)
        case "minLength" | "maxLength":
            low, high = subschema.get("minLength", 0), subschema.get("maxLength")
            return f"the text has {_count(len(value), 'character')}", f"write {low} to {high} characters"
        case "minItems" | "maxItems":
            bounds = [f"at least {subschema['minItems']}"] if "minItems" in subschema else []
            bounds += [f"at most {subschema['maxItems']}"] if "maxItems" in subschema else []
            return f"the list has {_count(len(value), 'item')}", f"list {' and '.join(bounds)}"
        case _:
            return f"{shown(value)} breaks the schema's rule {keyword!r}", ""


def bad_keys(names: Iterator[str], form: Schema) -> Iterator[tuple[str, str, str]]:
    """Key, message and help for each key whose own form is wrong."""
    pattern = str(form.get("pattern", ""))
    for name in names:
        if not re.search(pattern, name):
            yield name, f"the key {shown(name)} is not of the required form", _form(name, form)
        elif not form.get("minLength", 0) <= len(name) <= form.get("maxLength", len(name)):
            yield name, f"a key has {_count(len(name), 'character')}", f"write at most {form.get('maxLength')}"


_LISTED_FIGURES = frozenset(("accelerator", key) for key in ("memory_bytes", "memory_bandwidth_bytes_per_second"))
"""Keys that may be absent where the catalog has their values, and only there."""


def _tight_comment(value: str) -> str:
    """What to say of a comment that YAML reads as part of a value, since no blank is before its sign."""
    match = _TIGHT_COMMENT(value)
    return f"a comment starts after a blank: write {match[1]} #{value[match.end() : match.end() + 20]}" if match else ""


def _choice(value: Any, options: Sequence[str]) -> str:
    word = str(value)
    strange = look_alike(word) if isinstance(value, str) and all(map(str.isascii, options)) else ""
    listed = f"one of: {', '.join(options)}{f'; {strange}' if strange else ''}"
    if tight := _tight_comment(word):
        return tight
    alias = next((ours for ours in VALUES.get(fold(word), ()) if ours in options), None)
    if isinstance(value, (bool, int, float)):
        alias = "none" if value is False and "none" in options else None
        stage = {1: "optimizer", 2: "gradients", 3: "parameters"}.get(value) if type(value) is int else None
        alias = stage if stage in options and "none" in options else alias
    same = next((option for option in options if fold(option) == fold(word)), None)
    nearest = same or alias or did_you_mean(word, options)
    if nearest is None:
        return listed
    return f"write {nearest}" if alias and not same else meant(word, nearest)


def _type_message(value: Any, subschema: Schema, place: Pointer, required: bool) -> tuple[str, str]:
    words = _words_of(subschema)
    wanted = subschema.get("type", "object")
    kinds = [wanted] if isinstance(wanted, str) else list(wanted)
    if value is None:
        remedy = "indent its keys below it" if "object" in kinds else "give the value"
        of_catalog = " for an accelerator of the catalog" if place[-2:] in _LISTED_FIGURES else ""
        leave = "" if required else f", or leave the key out{of_catalog}"
        return f"the key has no value; {words} is needed", f"{remedy}{leave}"
    if isinstance(value, (dict, list)):
        return f"{shown(value)} appears where {words} is needed", _container_help(value, subschema, kinds)
    said = f"the text {shown(value)}" if isinstance(value, str) else shown(value)
    return f"{said} is not {words}", _scalar_help(value, subschema, kinds)


def _words_of(subschema: Schema) -> str:
    wanted = subschema.get("type", "object")
    return " or ".join(_TYPE_WORDS[name] for name in ([wanted] if isinstance(wanted, str) else wanted))


def _container_help(value: Any, subschema: Schema, kinds: Sequence[str]) -> str:
    if isinstance(value, dict) and "array" in kinds:
        return "start each item with '- ', also when there is only one"
    if isinstance(value, list) and "object" in kinds:
        return "remove the '- '" if len(value) == 1 and isinstance(value[0], dict) else _keys_help(subschema)
    if isinstance(value, list) and len(value) == 1 and not isinstance(value[0], (dict, list)):
        return "write the item alone, without '- ' or brackets"
    return ""


def _keys_help(subschema: Schema) -> str:
    keys = sorted(subschema.get("properties", {}), key=lambda key: key not in subschema.get("required", []))
    more = ", …" if len(keys) > _MAX_KEYS_LISTED else ""
    return f"write a mapping with keys such as {', '.join(keys[:_MAX_KEYS_LISTED])}{more}" if keys else ""


def _scalar_help(value: Any, subschema: Schema, kinds: Sequence[str]) -> str:
    if isinstance(value, str) and _PLACEHOLDER.search(value):
        return "this looks like a placeholder; put the value in before validating"
    if isinstance(value, str) and "string" not in kinds and (tight := _tight_comment(value)):
        return tight
    if "boolean" in kinds:
        meant = {**_YES, **_NO}.get(str(value).strip().lower())
        return f"write {meant}{', without quotes' if value == meant else ''}" if meant else "write true or false"
    if "string" in kinds:
        return f'put it into quotes: "{value}"' if type(value) is int else "put it into quotes"
    if "array" in kinds:
        return f"write a list: [{value}]" if len(str(value)) < _MAX_SHOWN else "write a list"
    if "object" in kinds:
        by_name = isinstance(value, str) and "name" in subschema.get("properties", {})
        if by_name and len(str(value)) < _MAX_SHOWN:
            return f"write {{name: {value}}}"
        what = str(subschema.get("description", "")).split("\n")[0].rstrip(".")
        return "; ".join(
            filter(None, (f"the key says {what[:1].lower()}{what[1:]}" if what else "", _keys_help(subschema)))
        )
    if type(value) is float:
        return f"write {int(value)} or {int(value) + 1}" if 0 < value < 1e15 else ""
    return _number_help(value, subschema, kinds)


def _number_help(value: Any, subschema: Schema, kinds: Sequence[str]) -> str:
    unit = _unit(subschema)
    in_unit = f" in {UNIT_WORDS[unit]}" if unit in UNIT_WORDS else ""
    number = read_quantity(value.rstrip(",; \n"), unit) if isinstance(value, str) else None
    if number is None or ("number" not in kinds and not isinstance(number, int)):
        return f"write a plain number{in_unit}, without unit, quotes or separators"
    text = written(number) if "number" in kinds else str(number)
    return f"write {text}, without quotes" if value.strip() == text else f"write {text}{in_unit and f', {in_unit[1:]}'}"


def _range_message(keyword: str, value: Any, subschema: Schema) -> tuple[str, str]:
    unit = _unit(subschema)
    bound = subschema[keyword]
    small, exclusive = keyword.endswith("inimum"), keyword.startswith("exclusive")
    side = ("it must be above" if exclusive else "the least is") if small else "the most is"
    side = "it must be below" if exclusive and not small else side
    if small and 0 < bound <= _TINY and value <= 0:
        side, bound = "it must be above", 0
    message = f"{shown(value)} is too {'small' if small else 'large'}; {side} {_said(bound, unit)}"
    parts = [f"the value is in {UNIT_WORDS[unit]}"] if unit in UNIT_WORDS else []
    if small and unit in _LIKELY_FACTORS:
        name, factor = _LIKELY_FACTORS[unit]
        high = subschema.get("maximum", subschema.get("exclusiveMaximum", 0))
        if bound <= value * factor <= high:
            parts.append(f"{written(value)} {name} is {written(value * factor)}")
    if unit in {"", "1"} and not small and bound == 1 and 1 < value <= 100:
        parts.append(f"a share, not per cent: {written(value)} % is {written(value / 100)}")
    if unit == "1" and small and bound == _LEAST_WHOLE_COUNT and value > 0:
        parts.append(f"write the whole count: {written(value * 1e6)} for millions, {written(value * 1e9)} for billions")
    return message, ": ".join(parts or [_range_help(subschema)])


def _range_help(subschema: Schema) -> str:
    """What a value may be, by both of its bounds."""
    words = {"minimum": "no less than", "exclusiveMinimum": "above", "maximum": "no more than"}
    words["exclusiveMaximum"] = "below"
    sides = [f"{text} {written(subschema[key])}" for key, text in words.items() if key in subschema]
    if "minimum" in subschema and "maximum" in subschema:
        sides = [f"from {written(subschema['minimum'])} to {written(subschema['maximum'])}"]
    return f"write a value {' and '.join(sides)}"


def _said(bound: float, unit: str) -> str:
    words = in_words(bound, unit)
    return f"{written(bound)} ({words})" if words else written(bound)


def _form(value: str, subschema: Schema) -> str:
    pattern = str(subschema.get("pattern", ""))
    remedy = FORMS.get(pattern) or _OTHER_FORMS.get(pattern) or f"the form is {pattern}"
    strange = look_alike(value)
    remedy = f"{remedy}; {strange}" if strange else remedy
    tidy = re.sub(r"[^A-Za-z0-9._+-]+", "-", value).lstrip("._+-").rstrip("-") if pattern == _NAME else ""
    return f"{remedy}, such as {tidy}" if tidy and len(tidy) <= _MAX_SHOWN else remedy


def _unit(subschema: Schema) -> str:
    return str(subschema.get("x-unit", ""))


def _count(number: int, noun: str) -> str:
    return f"{number:,} {noun}{'' if number == 1 else 's'}"
