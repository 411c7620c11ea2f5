"""A line is a record exactly when the published schema says so, and what is wrong with any other one is said."""

from __future__ import annotations

import json

import pytest
from hypothesis import event, given
from hypothesis import strategies as st
from line_texts import EVENT, HEAD, MORE, MOST_BYTES, MOST_DEPTH, SAMPLE, VALUES, by_schema, lines

from tests.examples import examples
from trainspec_validate.documents.types.stream import Head, Sample
from trainspec_validate.telemetry.formats import FORMATS, read
from trainspec_validate.telemetry.formats.items import Refusal
from trainspec_validate.telemetry.formats.native import MAX_DEPTH, MAX_LINE_BYTES, read_line


def text(fields: dict[str, str], **more: str) -> bytes:
    return ("{" + ",".join(f'"{name}":{value}' for name, value in {**fields, **more}.items()) + "}").encode()


def assert_as_the_schema_says(line: bytes) -> None:
    found, wanted = read_line(line), by_schema(line)
    if wanted is None:
        assert isinstance(found, Refusal), f"the schema refuses {line!r}"
        assert f"{found.message} {found.help}".encode()
        return
    assert not isinstance(found, Refusal), f"the schema takes {line!r}: {found}"
    assert (found.time_us, found.run, found.emitter) == tuple(map(wanted.get, ("time_us", "run", "emitter")))
    if isinstance(found, Sample):
        plain = {name: value for name, value in wanted["m"].items() if not isinstance(value, dict)}
        assert plain == {name: found.m[name] for name in plain}
        assert (found.seq, found.step, found.a, len(found.m)) == (
            wanted["seq"],
            wanted.get("step"),
            wanted.get("a", {}),
            len(wanted["m"]),
        )


def test_the_limits_that_the_schema_cannot_say() -> None:
    assert (MAX_LINE_BYTES, MAX_DEPTH) == (MOST_BYTES, MOST_DEPTH)


@pytest.mark.slow
@examples(1_500)
@given(line=lines())
def test_a_line_is_a_record_exactly_when_the_schema_says_so(line: bytes) -> None:
    event("record" if by_schema(line) else "none")
    assert_as_the_schema_says(line)


@pytest.mark.parametrize("fields", [HEAD, SAMPLE, EVENT], ids=["head", "sample", "event"])
@pytest.mark.parametrize("value", VALUES, ids=[value[:24] for value in VALUES])
def test_every_odd_value_in_every_field(fields: dict[str, str], value: str) -> None:
    for name in {**fields, **MORE}:
        assert_as_the_schema_says(text(fields, **{name: value}))


@examples(200)
@given(line=st.binary(max_size=60))
def test_any_bytes(line: bytes) -> None:
    assert_as_the_schema_says(line)


@given(step=st.integers(1, 999_999_999_999), form=st.sampled_from(["{}.0", "{}e0", "{}.000", "{}0e-1"]))
def test_a_whole_number_may_be_written_as_a_float(step: int, form: str) -> None:
    found = read_line(text(SAMPLE, step=form.format(step)))
    assert isinstance(found, Sample)
    assert found.step == step


@pytest.mark.parametrize("blanks", [MOST_BYTES - len(text(SAMPLE)) + extra for extra in (0, 1)])
def test_bytes_of_a_line(blanks: int) -> None:
    line = text(SAMPLE) + b" " * blanks
    assert isinstance(read_line(line), Sample) == (len(line) <= MOST_BYTES)


@pytest.mark.parametrize("levels", [MOST_DEPTH - 3, MOST_DEPTH - 2, MOST_DEPTH + 5, 100_000])
def test_nesting(levels: int) -> None:
    line = text(HEAD, extensions='{"com.x":' + "[" * levels + "]" * levels + "}")
    assert isinstance(read_line(line), Head) == (levels + 2 <= MOST_DEPTH)


FAULTS = {
    text(SAMPLE, m='{"hw.power":NaN}'): ("TS-TEL-015", "NaN is no JSON number", '"NaN", "+Inf"'),
    text(SAMPLE, time_us="1.5"): ("TS-TEL-016", "time_us is 1.5", "whole microseconds"),
    text(SAMPLE, observed_us='"x"'): ("TS-TEL-016", 'observed_us is "x"', "whole microseconds"),
    text(SAMPLE, stpe="1"): ("TS-TEL-001", "unknown key 'stpe'", "step"),
    text(SAMPLE, step="null"): ("TS-TEL-001", "step is null", "schema"),
    text(SAMPLE, host='"\\ud800"'): ("TS-TEL-001", "half of a surrogate pair", "pairs"),
    text(SAMPLE, m='{"hw.power":true}'): ("TS-TEL-001", "m.hw.power is true", "write a number"),
    text(SAMPLE, m='{"hw.power\\n":1}'): ("TS-TEL-001", "m has a name that is none", "lower-case letters"),
    text(SAMPLE, m='{"hw.power":1,"hw.power":2}'): ("TS-TEL-001", "the key 'hw.power' appears twice", "keep one"),
    text(SAMPLE, m='{"hw.power":1e400}'): ("TS-TEL-001", "beyond all limits", "plain"),
    text(SAMPLE, k='"x"'): ("TS-TEL-001", "\"k\" is 'x'", '"head", "m" or "e"'),
    text(SAMPLE)[:-9]: ("TS-TEL-001", "the line is no JSON", "cut off"),
    text(SAMPLE) + text(SAMPLE): ("TS-TEL-001", "a second record", "line by line"),
    text({name: value for name, value in SAMPLE.items() if name != "k"}): ("TS-TEL-001", '"k" is absent', '"head"'),
    text({name: value for name, value in EVENT.items() if name != "name"}): ("TS-TEL-001", "lacks the key 'name'", ""),
    text(HEAD, apiVersion='"trainspec/v9"'): ("TS-TEL-002", "this version does not know", "trainspec/v1"),
    b"\xff" + text(SAMPLE): ("TS-TEL-001", "byte 1 is not UTF-8", "UTF-8"),
    b"\xef\xbb\xbf" + text(SAMPLE): ("TS-TEL-001", "no JSON", ""),
    b" \t": ("TS-TEL-001", "the line is empty", "remove it"),
    b"[1]": ("TS-TEL-001", "no JSON object", '"k"'),
    b" " * (MOST_BYTES + 1): ("TS-TEL-001", "the line has 1,000,001 bytes", "1,000,000"),
}


@pytest.mark.parametrize(("line", "said"), FAULTS.items(), ids=[said[1] for said in FAULTS.values()])
def test_what_is_said_of_a_line_that_is_no_record(line: bytes, said: tuple[str, str, str]) -> None:
    found = read_line(line)
    assert isinstance(found, Refusal)
    requirement, message, remedy = said
    assert found.requirement == requirement
    assert message in found.message
    assert remedy in found.help


def test_a_record_with_escapes_is_one() -> None:
    found = read_line(text(SAMPLE, host=json.dumps("a\\b \u00e9")))
    assert isinstance(found, Sample)
    assert found.host == "a\\b \u00e9"


@pytest.mark.parametrize(
    ("line", "is_record"),
    [
        (b'{"k":"m","time_us":1,"seq":0,"m":{"train.loss.mean":2.5},"step":null}', False),
        (b'{"k":"m","time_us":1,"seq":0,"m":{"train.loss.mean":2.5},"host":"a\\n"}', False),
        (b'{"k":"m","time_us":1.0,"seq":0,"m":{"train.loss.mean":2.5}}', True),
        (b'{"k":"m","time_us":1,"seq":0,"seq":0,"m":{}}', False),
        (b"", False),
        (b'\xef\xbb\xbf{"k":"m","time_us":1,"seq":0,"m":{}}', False),
    ],
)
def test_a_conversion_takes_the_records_that_validating_takes(line: bytes, is_record: bool) -> None:
    found = next(item for _, item in read([(0, line)], "a.jsonl", FORMATS["metric-stream"]))
    assert found == read_line(line)
    assert isinstance(found, Refusal) != is_record


def test_the_names_of_fields_are_not_looked_up_for_each_line(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("msgspec.structs.fields", None)  # it reads all annotations anew
    for number in range(3):
        found = read_line(text(SAMPLE, **{f"key{number}": "1"}))
        assert isinstance(found, Refusal)
        assert found.message == f"the record has the unknown key 'key{number}'"
