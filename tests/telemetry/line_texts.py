"""Makes lines of streams, right and wrong in every way, for tests of what reads them."""

from __future__ import annotations

import json
from functools import cache
from typing import Any

import jsonschema_rs
from hypothesis import strategies as st

from trainspec_validate.documents.schema import load_schema

MOST_BYTES, MOST_DEPTH, MOST_DIGITS = 1_000_000, 16, 300
"""What the schema cannot say: bytes of a line, nesting, and digits of a number."""

HEAD = {
    "k": '"head"',
    "apiVersion": '"trainspec/v1"',
    "kind": '"MetricStream"',
    "run": '"r"',
    "att": "0",
    "emitter": '"job"',
    "time_us": "1767225600000000",
    "scopes": '["job","rank"]',
}
SAMPLE = {
    "k": '"m"',
    "time_us": "1767225600000001",
    "seq": "0",
    "m": '{"train.loss.mean":2.5,"train.step.count":7}',
}
EVENT = {"k": '"e"', "time_us": "1767225600000002", "seq": "1", "name": '"train.run.end"'}
MORE = {
    "step": "8",
    "rank": "3",
    "host": '"h-1"',
    "device": '"GPU-1"',
    "att": "1",
    "emitter": '"agent"',
    "run": '"r"',
    "start_us": "1",
    "observed_us": "2",
    "a": '{"train.step.warmup":true}',
    "nr": '["hw.power"]',
    "severity": "9",
    "id": '"x"',
    "world_size": "8",
    "report_interval_steps": "2",
    "counters_start_us": "5",
    "extensions": "{}",
    "cadence_seconds": '{"C10":5}',
    "declared": '{"a":[1,"b",2.5]}',
    "unsupported": '{"hw.power":"no meter"}',
    "producer": '{"name":"p"}',
    "redaction": '"keyed-hash"',
    "m": '{"hw.power":1}',
    "name": '"train.run.start"',
    "extension_metrics": '{"com.x.y":{"unit":"1","instrument":"gauge"}}',
}
VALUES = (
    *("0", "8.0", "8e0", "-0", "-0.0", "-1", "0.5", "01", "1.", ".5", "+1", "1e400", "-1e999", "1e-999", "1" * 305),
    *("99999999999999999999", "1E5", "NaN", "-Infinity", "Infinity", "null", "true", '""', '"a"', '"NaN"', '"+Inf"'),
    *('"a\\n"', '"a\\u000a"', '"\\ud800"', '"\\ud83d\\ude00"', '"\\u0061"', '"\u00e9"', '"a\x7f"', '"a\\\\"', '"\\x"'),
    *('"' + "a" * 257 + '"', "[]", "[1]", '["job"]', "[true]", '["job","job"]', "{}", '{"a":1}', '{"a":{}}'),
    *('{"a":[[1]]}', '{"hw.power":null}', '{"hw.power":{"count":8.0,"sum":1,"counts":[8.0]}}', '{"hw.power\\n":1}'),
    *('{"hw.power":{"count":-1,"sum":1}}', '{"hw.power":1,"hw.power":1}', '{"hw.power" :1,"hw.power":1}', '{"A":1}'),
    *('{"hw.power{a=b}":"-Inf"}', '{"hw.power":{"count":1,"sum":1,"min":null}}', '{"hw.power":true}', '{"a.b":1.0}'),
    *('{"com.x":' + "[" * 14 + "]" * 14 + "}", '{"com.x":' + "[" * 40 + "]" * 40 + "}", '{"a":"\\ud800"}'),
)
_BLANKS = st.sampled_from(("", "", "", " ", "\t", "  "))
_ENDS = st.sampled_from((b"", b"", b"", b"", b" ", b"\r", b"\xef\xbb\xbf", b"\x00", b"\xff", b"{}", b","))


@st.composite
def pairs(draw: st.DrawFn) -> list[tuple[str, str]]:
    """Names and values of a record, with some of them changed, added, doubled or left out."""
    found = list(draw(st.sampled_from((HEAD, SAMPLE, EVENT))).items())
    found += draw(st.lists(st.sampled_from(sorted(MORE.items())), max_size=3, unique=True))
    found = list(dict(found[::-1]).items())[::-1]
    for change in draw(st.lists(st.sampled_from(("value", "value", "drop", "double", "add", "move")), max_size=2)):
        place = draw(st.integers(0, len(found) - 1))
        if change == "value":
            found[place] = (found[place][0], draw(st.sampled_from(VALUES)))
        elif change == "drop" and len(found) > 1:
            found.pop(place)
        elif change == "double":
            found.append(found[place])
        elif change == "move":
            found.append(found.pop(place))
        else:
            found.append((draw(st.sampled_from(("x", "Step", "", "\\u0073tep", "k "))), draw(st.sampled_from(VALUES))))
    return found


@st.composite
def lines(draw: st.DrawFn) -> bytes:
    """A line without its end: a record, or something near one."""
    blank = draw(_BLANKS)
    inner = f"{blank},".join(f'"{name}"{blank}:{draw(_BLANKS)}{value}' for name, value in draw(pairs()))
    line = draw(_ENDS) + f"{{{inner}{blank}}}".encode() + draw(_ENDS)
    if draw(st.integers(0, 9)) == 0:
        place = draw(st.integers(0, len(line) - 1))
        line = line[:place] + bytes([draw(st.integers(0, 255))]) + line[place + draw(st.integers(0, 1)) :]
    return line.replace(b"\n", b" ")


# --- what the schema says of a line


@cache
def _schema() -> Any:
    return jsonschema_rs.Draft202012Validator(load_schema("MetricStream"))


class RefusedError(ValueError):
    """JSON that two readers may understand in two ways."""


def _object(found: list[tuple[str, Any]]) -> dict[str, Any]:
    if len(dict(found)) < len(found):
        raise RefusedError("a key appears twice")
    return dict(found)


def _number(text: str) -> int | float:
    whole = text.lstrip("-").isdigit()
    if (whole and len(text) > MOST_DIGITS) or abs(float(text)) == float("inf"):
        raise RefusedError("a number is beyond the range of floats")
    return int(text) if whole else float(text)


def _refuse(text: str) -> Any:
    raise RefusedError(text)


def depth(value: Any) -> int:
    """Levels of nesting, a plain value being one."""
    inner = value.values() if isinstance(value, dict) else value if isinstance(value, list) else ()
    return 1 + max(map(depth, inner), default=0)


def by_schema(line: bytes) -> Any:
    """The content of a line that is a record by the schema; None for every other line."""
    if len(line) > MOST_BYTES:
        return None
    try:
        hooks: dict[str, Any] = {"parse_float": _number, "parse_int": _number, "parse_constant": _refuse}
        data = json.loads(line.decode(), object_pairs_hook=_object, **hooks)
        return data if depth(data) <= MOST_DEPTH and _schema().is_valid(data) else None
    except (ValueError, RecursionError):
        return None
