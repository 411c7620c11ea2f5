"""Loading: the values that the standards say, positions that point at the text, and clear refusals."""

from __future__ import annotations

import gc
import json
import os
import pickle
import re
import subprocess
import sys
import textwrap
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml
from hypothesis import assume, example, given, reject
from hypothesis import strategies as st

from tests.examples import examples
from trainspec_validate.documents.load import MAX_BYTES, LoadError, Source, comments, load_file, load_text
from trainspec_validate.model.finding import Pointer, Span

# --- values --------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("scalar", "value"),
    [
        ("null", None),
        ("~", None),
        ("NULL", None),
        ("nULL", "nULL"),
        ("true", True),
        ("FALSE", False),
        ("NO", "NO"),
        ("yes", "yes"),
        ("on", "on"),
        ("1:30", "1:30"),
        ("2026-01-02", "2026-01-02"),
        ("010", 10),
        ("+12", 12),
        ("-0", 0),
        ("0x1F", 31),
        ("0o17", 15),
        ("0b1", "0b1"),
        ("1_000", "1_000"),
        ("3e-4", 0.0003),
        ("1e9", 1e9),
        ("1.", 1.0),
        (".5", 0.5),
        ("-1.5E+3", -1500.0),
        ("1e", "1e"),
        (".", "."),
        ("-", "-"),
        ("NaN", "NaN"),
        ("٣", "٣"),
        ("'12'", "12"),
        ("!!str 12", "12"),
        ("! 12", "12"),
        ("!!int '12'", 12),
        ("!!float 12", 12.0),
        ("!!bool 'true'", True),
        ("!!null ''", None),
        ("!!seq [1]", [1]),
        ("!!map {a: 1}", {"a": 1}),
        ("'<<'", "<<"),
        ("=", "="),
    ],
)
def test_core_schema(scalar: str, value: Any) -> None:
    if scalar == "-":
        scalar = "'-'"
    loaded = load_text(f"a: {scalar}\n", "f.yaml").data["a"]
    assert loaded == value
    assert type(loaded) is type(value)


def test_aliases_share_one_value() -> None:
    data = load_text("a: &x {k: [1]}\nb: *x\nc: &x 2\nd: *x\n", "f.yaml").data
    assert data == {"a": {"k": [1]}, "b": {"k": [1]}, "c": 2, "d": 2}
    assert data["a"] is data["b"]


@pytest.mark.parametrize(
    ("text", "merged"),
    [
        ("a: &x {k: 1, l: 2}\nb: {<<: *x, l: 3}\n", {"k": 1, "l": 3}),
        ("a: &x {k: 1}\nc: &y {k: 2, m: 4}\nb: {<<: [*x, *y]}\n", {"k": 1, "m": 4}),
        ("a: &x {k: &z {n: 1}}\nb: {m: 2, <<: *x}\n", {"m": 2, "k": {"n": 1}}),
    ],
)
def test_merge_keys_of_older_yaml(text: str, merged: dict[str, Any]) -> None:
    assert load_text(text, "f.yaml", older=True).data["b"] == merged
    with pytest.raises(LoadError, match="merge key"):
        load_text(text, "f.yaml")


def test_merge_keys_are_counted() -> None:
    with pytest.raises(LoadError, match="merges no mapping"):
        load_text("a: &x 1\nb: {<<: *x}\n", "f.yaml", older=True)
    wide = "a: &x {" + ", ".join(f"k{number}: 1" for number in range(1000)) + "}\n"
    many = "".join(f"m{number}: {{<<: [" + ", ".join(["*x"] * 100) + "]}\n" for number in range(100))
    with pytest.raises(LoadError) as caught:
        load_text(wide + many, "f.yaml", older=True)
    assert caught.value.code in {"alias-budget", "too-many-values"}


@pytest.mark.parametrize(
    ("text", "path", "format_"),
    [
        ('{"a": 1}', "f.json", "json"),
        ('{"a": 1}', "F.JSON", "json"),
        ('{"a": 1}', "<stdin>", "json"),
        ('\n [{"a": 1}]', "f.yaml", "json"),
        ("{a: 1}", "f.yaml", "yaml"),
        ('{"a": 1,}', "<stdin>", "yaml"),
        ('{"a": NaN}', "<stdin>", "yaml"),
        ("a: 1", "f.txt", "yaml"),
    ],
)
def test_format(text: str, path: str, format_: str) -> None:
    assert load_text(text, path).format == format_


def test_text_is_the_same_however_lines_end() -> None:
    unix = load_text("a: 1\nb: [2,\n 3]\nc: |\n  x\n", "f.yaml")
    for line_end in ("\r\n", "\r"):
        other = load_text(b"\xef\xbb\xbf" + unix.text.replace("\n", line_end).encode(), "f.yaml")
        assert other == unix


def attempt(text: str | bytes, path: str, format_: Any = None) -> Source | LoadError:
    try:
        return load_text(text, path, format_)
    except LoadError as error:
        return error


json_scalars = (
    st.none()
    | st.booleans()
    | st.integers(-(10**30), 10**30)
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(st.characters(exclude_categories=["Cs"]), max_size=20)
)
keys = st.text(st.characters(exclude_categories=["Cs"]), max_size=12)
json_values = st.recursive(
    json_scalars,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(keys, inner, max_size=4),
    max_leaves=20,
)


def same(one: Any, other: Any) -> bool:
    """Equal in value and type, unlike `==`, for which True is 1."""
    if type(one) is not type(other):
        return False
    if isinstance(one, dict):
        return list(one) == list(other) and all(same(one[k], other[k]) for k in one)
    if isinstance(one, list):
        return len(one) == len(other) and all(map(same, one, other))
    return bool(one == other)


@given(json_values, st.sampled_from([None, 0, 1, 4]), st.booleans())
def test_json_loads_as_the_standard_library_does(value: Any, indent: int | None, ascii_only: bool) -> None:
    text = json.dumps(value, indent=indent, ensure_ascii=ascii_only)
    assert same(load_text(text, "f.json").data, json.loads(text))


@given(json_values, st.sampled_from([None, 0, 1, 4]))
def test_json_is_yaml_wherever_the_parser_takes_it(value: Any, indent: int | None) -> None:
    text = json.dumps(value, indent=indent, ensure_ascii=False)
    outcome = attempt(text, "f.yaml", "yaml")
    if isinstance(outcome, LoadError):
        assert outcome.code == "syntax"
        assert not text.isascii() or "\\u" in text or "\x7f" in text
    else:
        assert same(outcome.data, value)


@pytest.mark.parametrize("text", ["a: [1, {b: x}]\n# c\nd: |\n  e\n", "a: &x 1\nb: *x\n"])
def test_without_the_compiled_parser(text: str, monkeypatch: pytest.MonkeyPatch) -> None:
    compiled = load_text(text, "f.yaml")
    spans = compiled.locate([(("a", 1, "b"), False), (("d",), False)])
    monkeypatch.delattr(yaml, "CSafeLoader")
    slow = load_text(text, "f.yaml")
    assert slow == compiled
    assert slow.locate([(("a", 1, "b"), False), (("d",), False)]) == spans
    with pytest.raises(LoadError) as caught:
        load_text("a: [1", "f.yaml")
    assert caught.value.code == "syntax"


# --- refusals --------------------------------------------------------------------------------

REFUSALS = [
    ("", "empty", None),
    ("# only a comment\n", "empty", None),
    ("---\n", "empty", (2, 1)),
    ("a: 1\na: 2\n", "duplicate-key", (2, 1)),
    ("x:\n- b: {c: 1}\n  d: {c: 1, 'c': 2}\n", "duplicate-key", (3, 13)),
    ('{"a": 1, "b": [{"c": 1, "\\u0063": 2}]}', "duplicate-key", (1, 25)),
    ("a: b: c", "syntax", (1, 5)),
    ("a: 1\n b: 2", "syntax", (2, 3)),
    ("key:value\nother: 1", "syntax", (2, 6)),
    ("a:\n\t- b", "syntax", (2, 1)),
    ("a: [1, 2\n", "syntax", (1, 4)),
    ("a: {b: 1\nc: 2\n", "syntax", (1, 4)),
    ('a: "x\n', "syntax", (1, 4)),
    ("a: 'it's'", "syntax", (1, 8)),
    ("a: @x", "syntax", (1, 4)),
    ("a: %x", "syntax", (1, 4)),
    ("a: * b", "syntax", None),
    ('a: "\\q"', "syntax", (1, 5)),
    ("a:\n  - b\n c: 1", "syntax", (3, 2)),
    ("a\x00b: 1", "syntax", (1, 2)),
    ("a: x\u2028b: 1", "syntax", (1, 5)),
    ("\ufeff\ufeffa: 1", "syntax", (1, 1)),
    ("a: 1\n---\nb: 2\n", "multiple-documents", (2, 1)),
    ("a: .inf", "non-finite-number", (1, 4)),
    ("a: -.INF", "non-finite-number", (1, 4)),
    ("a: .nan", "non-finite-number", (1, 4)),
    ("a: 1e999", "non-finite-number", (1, 4)),
    ("a: " + "9" * 401, "number-too-large", (1, 4)),
    ("a: 0x" + "f" * 400, "number-too-large", (1, 4)),
    ("a: 0." + "9" * 400, "number-too-large", (1, 4)),
    ("1: a", "non-string-key", (1, 1)),
    ("true: a", "non-string-key", (1, 1)),
    ("? [a]\n: b", "non-string-key", (1, 3)),
    ("a: &x b\n*x : c", "non-string-key", (2, 1)),
    ("a: *x", "alias-unknown", (1, 4)),
    ("a: &x [*x]", "alias-unknown", (1, 8)),
    ("a: &x 1\nb: &x [*x]", "alias-unknown", (2, 8)),
    ("a: !foo b", "unsupported-tag", (1, 4)),
    ("a: !!python/object:os.system {}", "unsupported-tag", (1, 4)),
    ("a: !!int b", "unsupported-tag", (1, 4)),
    ("a: !!set {b}", "unsupported-tag", (1, 4)),
    ("a: !!map b", "unsupported-tag", (1, 4)),
    ("a: {b: 1}\nc:\n  <<: {}\n", "unsupported-tag", (3, 3)),
    ("".join(f"%TAG !a{i}! b\n" for i in range(9)) + "---\na: 1\n", "unsupported-tag", (1, 1)),
    ("[" * 65 + "]" * 65, "too-deep", (1, 65)),
    ("- " * 65 + "a", "too-deep", (1, 129)),
    ("a0: &a0 [x]\n" + "".join(f"a{i}: &a{i} [*a{i - 1}]\n" for i in range(1, 100)), "too-deep", (64, 12)),
    (b"a: \xff", "not-utf8", (1, 4)),
    ("a: \ud800", "not-utf8", (1, 4)),
    ("a: 1".encode("utf-16"), "not-utf8", None),
    (b" " * (MAX_BYTES + 1), "too-large", None),
]


@pytest.mark.parametrize(("text", "code", "place"), REFUSALS)
def test_refusals_say_where(text: str | bytes, code: str, place: tuple[int, int] | None) -> None:
    with pytest.raises(LoadError) as caught:
        load_text(text, "f.yaml")
    error = caught.value
    assert error.code == code
    assert error.help
    if place:
        assert error.span is not None
        assert (error.span.line, error.span.column) == place
    if error.span:
        assert f"line {error.span.line}, column {error.span.column}" in str(error)
    again = pickle.loads(pickle.dumps(error))
    assert (again.code, again.message, again.help) == (error.code, error.message, error.help)


@pytest.mark.parametrize(
    ("text", "code", "place"),
    [
        ("", "empty", None),
        ("[NaN]", "non-finite-number", (1, 2)),
        ('["Infinity",\n -Infinity]', "non-finite-number", (2, 2)),
        ("[1e999]", "non-finite-number", (1, 2)),
        ('["9", ' + "9" * 401 + "]", "number-too-large", (1, 7)),
        ('{"a": 1,}', "syntax", None),
        ("{a: 1}", "syntax", (1, 2)),
        ("[1 2]", "syntax", (1, 4)),
        ('{"a" 1}', "syntax", (1, 6)),
        ('["a', "syntax", (1, 2)),
        ("[1] 2", "syntax", (1, 5)),
        ('["\\q"]', "syntax", (1, 3)),
        ('["a\nb"]', "syntax", None),
        ('["\\ud83d\\ude00", "\\ud800"]', "syntax", (1, 18)),
        ("[" * 65 + "]" * 65, "too-deep", (1, 65)),
        ("[" * 100_000, "too-deep", (1, 65)),
        ('{"\\\\": 1, "\\\\": 2}', "duplicate-key", (1, 11)),
    ],
)
def test_json_refusals_say_where(text: str, code: str, place: tuple[int, int] | None) -> None:
    with pytest.raises(LoadError) as caught:
        load_text(text, "f.json")
    assert caught.value.code == code
    assert caught.value.help
    if place:
        assert caught.value.span is not None
        assert (caught.value.span.line, caught.value.span.column) == place


def test_deepest_and_longest_that_load() -> None:
    for path in ("f.json", "f.yaml"):
        assert load_text("[" * 64 + "]" * 64, path)
        assert load_text("[" + "9" * 400 + "]", path).data == [int("9" * 400)]


def test_duplicate_names_the_first_place() -> None:
    with pytest.raises(LoadError) as caught:
        load_text("a:\n- x: 1\n- nodes: 1\n  b: {}\n  nodes: 2\n", "f.yaml")
    assert caught.value.message == "key 'nodes' appears twice; the first is at line 3, column 3"
    assert caught.value.span == Span(5, 3, 5, 8)


@given(st.text(st.sampled_from("ab:-[]{},?&*!|>'\"%@`#~<\\ \t\n\r\x00\x85\u2028é😀01.e+x"), max_size=60))
@example("a: 'b'\n\n'c': \"d")
@example("*a")
@example("? ? a")
@example("|\n  %TAG")
@examples(1000)
def test_any_text_loads_or_is_refused(text: str) -> None:
    for path in ("f.yaml", "f.json", "<stdin>"):
        check_total(text, path)


@given(st.binary(max_size=40) | st.text().map(lambda text: text.encode("utf-8", "surrogatepass")))
def test_any_bytes_load_or_are_refused(content: bytes) -> None:
    check_total(content, "f")


def check_total(text: str | bytes, path: str) -> None:
    outcome = attempt(text, path)
    if isinstance(outcome, LoadError):
        assert outcome.message
        assert "<file>" not in str(outcome)
        assert outcome.span is None or outcome.span.line >= 1
        return
    pointers: list[tuple[Pointer, bool]] = [((), True), (("a", 0), False), ((0, "a", 1), True)]
    assert set(outcome.locate(pointers)) == set(pointers)
    for line, column, comment in comments(outcome):
        assert outcome.text.split("\n")[line - 1][column - 1 :].startswith(comment)


def test_collector_is_restored() -> None:
    for text in ("a: 1", "a: 1\na: 1", '{"a": 1}'):
        attempt(text, "f")
        assert gc.isenabled()


# --- files --------------------------------------------------------------------------------


def test_file(tmp_path: Path) -> None:
    path = tmp_path / "plan.yaml"
    path.write_bytes(b"a: 1\r\n")
    assert load_file(path) == Source(path.as_posix(), "a: 1\n", {"a": 1}, "yaml")
    assert load_file(path, "plan.yaml").path == "plan.yaml"


def test_unreadable_files(tmp_path: Path) -> None:
    paths = [tmp_path, tmp_path / "missing", Path("a\0b"), tmp_path / "f" / "g"]
    if hasattr(os, "mkfifo"):
        os.mkfifo(tmp_path / "fifo")
        paths += [tmp_path / "fifo", Path(os.devnull)]
    for path in paths:
        with pytest.raises(LoadError) as caught:
            load_file(path)
        assert caught.value.code == "unreadable"


def test_large_file_is_not_read(tmp_path: Path) -> None:
    path = tmp_path / "f.yaml"
    with path.open("wb") as file:
        file.truncate(1 << 40)
    with pytest.raises(LoadError) as caught:
        load_file(path)
    assert caught.value.code == "too-large"


# --- positions --------------------------------------------------------------------------------


BLOCK_HEADER = re.compile(r"(!!\w+ )?[|>]").match


def pointers_of(value: Any, pointer: Pointer = ()) -> Iterator[tuple[Pointer, Any]]:
    yield pointer, value
    if isinstance(value, dict):
        for key, inner in value.items():
            yield from pointers_of(inner, (*pointer, key))
    elif isinstance(value, list):
        for index, inner in enumerate(value):
            yield from pointers_of(inner, (*pointer, index))


def shown(source: Source, span: Span) -> str:
    lines = source.text.split("\n")[span.line - 1 : span.end_line]
    lines[-1] = lines[-1][: span.end_column - 1]
    lines[0] = lines[0][span.column - 1 :]
    return "\n".join(lines)


def check_positions(source: Source) -> None:
    found = list(pointers_of(source.data))
    requests = [(pointer, want_key) for pointer, _ in found for want_key in (False, True)]
    spans = source.locate(requests)
    assert set(spans) == set(requests)
    for pointer, value in found:
        if pointer and isinstance(pointer[-1], str):
            written = shown(source, spans[pointer, True])
            assert BLOCK_HEADER(written) or yaml_or_json(written, source) == pointer[-1]
        value_span = spans[pointer, False]
        if isinstance(value, dict | list):
            # Only a key of several lines, in quotes, has a span of several lines.
            assert value_span.line == value_span.end_line or not pointer or isinstance(pointer[-1], str)
        elif pointer:
            written = shown(source, value_span)
            if value is not None and not BLOCK_HEADER(written):
                assert same(yaml_or_json(written, source), value)


def yaml_or_json(written: str, source: Source) -> Any:
    if source.format == "json":
        return json.loads(written)
    folded = written.replace("\n", "\n  ")
    return load_text(f"a: {folded}\n", "f.yaml").data["a"]


documents = st.dictionaries(keys, json_values, min_size=1, max_size=5) | st.lists(json_values, min_size=1, max_size=4)


@given(documents, st.sampled_from([None, 0, 1, 4]), st.booleans(), st.sampled_from(["\n", "\r\n"]))
@example({"a": [[], [1, [2, {}]], {"": [None]}], "é😀": {"x": "😀", "y": "b"}}, 1, False, "\n")
def test_positions_in_json(value: Any, indent: int | None, ascii_only: bool, line_end: str) -> None:
    text = json.dumps(value, indent=indent, ensure_ascii=ascii_only).replace("\n", line_end)
    check_positions(load_text("\ufeff" + text, "f.json"))


class Dumper(yaml.SafeDumper):
    def ignore_aliases(self, data: Any) -> bool:
        return True


@given(
    documents,
    st.fixed_dictionaries(
        {
            "default_style": st.sampled_from([None, "'", '"', "|", ">"]),
            "default_flow_style": st.sampled_from([None, True, False]),
            "indent": st.integers(2, 6),
            "width": st.sampled_from([8, 80, 1000]),
            "allow_unicode": st.booleans(),
            "line_break": st.sampled_from(["\n", "\r\n"]),
            "explicit_start": st.booleans(),
        }
    ),
)
@examples(400)
def test_positions_in_yaml(value: Any, style: dict[str, Any]) -> None:
    try:
        text = yaml.dump(value, Dumper=Dumper, sort_keys=False, **style)
    except IndexError:
        # https://github.com/yaml/pyyaml/blob/6.0.3/lib/yaml/emitter.py#L984 reads beyond folded text.
        reject()
    try:
        source = load_text(text, "f.yaml", "yaml")
    except LoadError as error:
        # What YAML 1.1 dumps as text, YAML 1.2 may read as a number.
        assume(error.code not in ("non-string-key", "non-finite-number", "unsupported-tag", "syntax"))
        raise
    check_positions(source)


YAML = """\
# about this cluster
kind: "Clu#ster" # trainspec: one
nodes:
  - name: 'é😀'  # c
    size: 3e-4
  - {a: [1, 2], "b": x y}
  -
  - - z
    # trainspec: two
text: |  # trainspec: three
  # trainspec: text
  http://x/#trainspec: text

folded: a
  b
again: &x
  url: http://x#trainspec
none:
other: *x
"""


@pytest.mark.parametrize(
    ("pointer", "want_key", "span", "text"),
    [
        ((), False, (2, 1, 2, 5), "kind"),
        (("kind",), True, (2, 1, 2, 5), "kind"),
        (("kind",), False, (2, 7, 2, 17), '"Clu#ster"'),
        (("nodes",), False, (3, 1, 3, 6), "nodes"),
        (("nodes", 0), False, (4, 5, 4, 15), "name: 'é😀'"),
        (("nodes", 0, "name"), False, (4, 11, 4, 15), "'é😀'"),
        (("nodes", 0, "size"), False, (5, 11, 5, 15), "3e-4"),
        (("nodes", 0, "missing"), True, (4, 5, 4, 15), "name: 'é😀'"),
        (("nodes", 1), False, (6, 5, 6, 26), '{a: [1, 2], "b": x y}'),
        (("nodes", 1, "a", 1), False, (6, 13, 6, 14), "2"),
        (("nodes", 1, "b"), True, (6, 17, 6, 20), '"b"'),
        (("nodes", 2), False, (7, 3, 7, 4), "-"),
        (("nodes", 3), False, (8, 5, 8, 8), "- z"),
        (("nodes", 9, "deep", 1), False, (3, 1, 3, 6), "nodes"),
        (("nodes", "0"), False, (3, 1, 3, 6), "nodes"),
        (("text",), False, (10, 7, 10, 8), "|"),
        (("folded",), False, (14, 9, 15, 4), "a\n  b"),
        (("again",), False, (16, 1, 16, 6), "again"),
        (("none",), False, (18, 1, 18, 5), "none"),
        (("other", "url"), False, (19, 1, 19, 6), "other"),
        (("missing",), True, (2, 1, 2, 5), "kind"),
    ],
)
def test_place_in_yaml(pointer: Pointer, want_key: bool, span: tuple[int, ...], text: str) -> None:
    source = load_text(YAML, "f.yaml")
    found = source.locate([(pointer, want_key)])[pointer, want_key]
    assert shown(source, found) == text
    assert found == Span(*span)


def test_places_of_json() -> None:
    source = load_text('{"é😀": [1, {"b": "\\n"},\n [\n2]], "d": {}}', "f.json")
    expected = {
        (): '"é😀"',
        ("é😀",): '"é😀"',
        ("é😀", 0): "1",
        ("é😀", 1): '{"b": "\\n"}',
        ("é😀", 1, "b"): '"\\n"',
        ("é😀", 1, "c", 4): '{"b": "\\n"}',
        ("é😀", 2): "[",
        ("é😀", 2, 0): "2",
        ("d",): '"d"',
        ("d", "e"): '"d"',
        ("e",): '"é😀"',
    }
    spans = source.locate((pointer, False) for pointer in expected)
    assert {pointer: shown(source, spans[pointer, False]) for pointer in expected} == expected


@pytest.mark.parametrize("text", ["[]", "{}", "a", "[a]", "[[a]]", '"a"'])
@pytest.mark.parametrize("path", ["f.yaml", "f.json"])
def test_small_documents_have_places(text: str, path: str) -> None:
    text = text.replace("a", "1")
    source = load_text(text, path)
    spans = source.locate([((), False), (("x",), True), ((0, 0, 0), False)])
    assert {span.line for span in spans.values()} == {1}
    assert len(spans) == 3


# --- comments --------------------------------------------------------------------------------


def test_comments() -> None:
    source = load_text(YAML, "f.yaml")
    assert list(comments(source, containing="trainspec:")) == [
        (2, 18, "# trainspec: one"),
        (9, 5, "# trainspec: two"),
        (10, 10, "# trainspec: three"),
    ]
    assert [line for line, _, _ in comments(source)] == [1, 2, 4, 9, 10]
    assert not list(comments(source, containing="nowhere"))
    assert not list(comments(load_text('{"a": "# trainspec: x"}', "f.json")))


tricky = st.text(st.sampled_from("ab#'\":|>-é😀 ,[]{}&*!%"), max_size=12)


@given(
    st.dictionaries(tricky, tricky | st.lists(tricky, max_size=3), min_size=1),
    st.sampled_from([None, "'", '"']),
)
def test_every_comment_and_nothing_else_is_found(value: Any, style: str | None) -> None:
    text = yaml.dump(value, Dumper=Dumper, width=10**9, default_style=style, default_flow_style=False)
    lines = text.splitlines()
    annotated = "\n".join(f"{line} # trainspec: {number}" for number, line in enumerate(lines, 1))
    source = load_text(annotated, "f.yaml", "yaml")
    assert source.data == load_text(text, "f.yaml", "yaml").data
    expected = [(n, len(line) + 2, f"# trainspec: {n}") for n, line in enumerate(lines, 1)]
    assert list(comments(source)) == expected
    assert list(comments(source, "trainspec:")) == expected


# --- cost --------------------------------------------------------------------------------


def run_python(program: str, *arguments: str) -> str:
    completed = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(program), *arguments],
        capture_output=True,
        text=True,
        timeout=600,
        check=False,
    )
    assert completed.returncode == 0, completed.stderr
    return completed.stdout


def test_importing_costs_no_parser() -> None:
    output = run_python(
        """
        import sys
        from trainspec_validate.documents.load import load_text
        print([name for name in ("yaml", "json", "difflib") if name in sys.modules])
        load_text('{"a": 1}', "f.json")
        print("yaml" in sys.modules)
        """
    )
    assert output == "[]\nFalse\n"


def numbered(form: str, prefix: str, suffix: str, separator: str, count: int) -> str:
    return prefix + separator.join(form % number for number in range(count)) + suffix


MANY = 1_490_000
HOSTILE = {
    "json-empty-lists": lambda: ("[" + "[]," * (MAX_BYTES // 3 - 1) + "[]]", "f.json"),
    "json-lists": lambda: ("[" + "[]," * MANY + "[]]", "f.json"),
    "json-unique-keys": lambda: (numbered('"%x":0', "{", "}", ",", MANY), "f.json"),
    "json-late-duplicate": lambda: (numbered('"%x":0', "{", ',"0":1}', ",", MANY), "f.json"),
    "json-wide-strings": lambda: (
        numbered('"\U0001f600%x"', "[", "]", ",", 2 * MANY)[: MAX_BYTES // 2],
        "f.json",
    ),
    "json-wide-text": lambda: ('["\U0001f600' + "a" * (MAX_BYTES - 8) + '"]', "f.json"),
    "json-deep": lambda: ("[" * MAX_BYTES, "f.json"),
    "yaml-lists": lambda: ("- []\n" * (2 * MANY), "f.yaml"),
    "yaml-unique-keys": lambda: (numbered("k%x:", "", "", "\n", MANY), "f.yaml"),
    "yaml-wide-strings": lambda: (numbered("\U0001f600%x", "[", "]", ",", 2 * MANY), "f.yaml"),
    "yaml-wide-text": lambda: ("\U0001f600" + "a" * (MAX_BYTES - 8), "f.yaml"),
    "yaml-anchors": lambda: (numbered("- &a%x x", "", "", "\n", MANY), "f.yaml"),
    "yaml-aliases": lambda: ("- &a x\n" + "- *a\n" * (MAX_BYTES // 5 - 2), "f.yaml"),
    "yaml-repeated-text": lambda: ("- &a " + "x" * 10**6 + "\n" + "- *a\n" * 10**6, "f.yaml"),
    "yaml-laughs": lambda: (
        "a0: &a0 x\n" + "".join(f"a{i}: &a{i} [{','.join([f'*a{i - 1}'] * 9)}]\n" for i in range(1, 20)),
        "f.yaml",
    ),
    "yaml-deep-flow": lambda: ("[" * MAX_BYTES, "f.yaml"),
    "yaml-deep-block": lambda: ("- " * (MAX_BYTES // 2), "f.yaml"),
    "yaml-tag-directives": lambda: (numbered("%%TAG !a%x! b", "", "\n--- a\n", "\n", MANY), "f.yaml"),
}


def refusal(text: str, name: str) -> LoadError:
    with pytest.raises(LoadError) as caught:
        load_text(text, name)
    return caught.value


@pytest.mark.parametrize(("text", "name"), [('? "{}"\n: 1\n', "f.yaml"), ('{{"{}": 1}}', "f.json")])
def test_a_key_has_a_limit(text: str, name: str) -> None:
    assert load_text(text.format("k" * 1_000), name).data == {"k" * 1_000: 1}
    error = refusal(text.format("k" * 1_025), name)
    assert error.code == "too-large"
    assert "1,025 characters long; the limit is 1,024" in str(error)


def test_a_long_text_with_a_wide_character_is_refused_at_the_character() -> None:
    text = "a: " + "x" * (16 * 1024**2) + "\n"
    assert load_text(text + "b: 1\n", "f.yaml").data["b"] == 1
    error = refusal(text + "b: \N{GRINNING FACE}" + "y" * 1024**2 + "\n", "f.yaml")
    assert (error.code, error.span and (error.span.line, error.span.column)) == ("too-large", (2, 4))
    assert "one such as U+1F600" in str(error)


@pytest.mark.slow
@pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")
@pytest.mark.parametrize("key", ["x", "metadata: {name", "extensions: {org.example: {text", "batch: {unit"])
def test_a_long_text_where_none_belongs_is_judged_in_bounded_memory(key: str, tmp_path: Path) -> None:
    path = tmp_path / "plan.yaml"
    text = f'"{"a" * (16 * 1024**2)}\N{GRINNING FACE}"' + "}" * key.count("{")
    path.write_text(f"apiVersion: trainspec/v1\nkind: TrainingPlan\n{key}: {text}\n", encoding="utf-8")
    assert int(run_python(JUDGED, str(path))) < 512 * 1024


SLOWEST = ("yaml-lists", "yaml-unique-keys", "yaml-aliases")
SHORT_SHARE = 8


@pytest.mark.slow
@pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")
@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=pytest.mark.long) if name in SLOWEST else name for name in HOSTILE]
)
def test_hostile_files_cost_bounded_memory_and_end(name: str, tmp_path: Path) -> None:
    text, file_name = HOSTILE[name]()
    path = tmp_path / file_name
    path.write_text(text, encoding="utf-8", newline="")
    assert peak_kib(path) < 512 * 1024


@pytest.mark.slow
@pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")
@pytest.mark.parametrize("name", SLOWEST)
def test_the_first_part_of_a_hostile_file_costs_its_share_of_memory(name: str, tmp_path: Path) -> None:
    """The slowest of these files are read whole by the long tests; here a part of each, with its share of the limit."""
    text, file_name = HOSTILE[name]()
    (tmp_path / file_name).write_text(
        text[: len(text) // SHORT_SHARE].rpartition("\n")[0], encoding="utf-8", newline=""
    )
    (tmp_path / "empty.yaml").write_text("a: 1\n", encoding="utf-8")
    most = 512 * 1024 // SHORT_SHARE
    assert peak_kib(tmp_path / file_name) - peak_kib(tmp_path / "empty.yaml") < most


JUDGED = """
    import re, sys
    from pathlib import Path
    from trainspec_validate import validate
    assert validate([sys.argv[1]]).findings
    print(re.search("VmHWM:[^0-9]*([0-9]+)", Path("/proc/self/status").read_text())[1])
"""


def peak_kib(path: Path) -> int:
    """The most memory of a process that loads a file, or refuses it, within one GiB of addresses."""
    output = run_python(
        """
        import re, resource, sys
        from pathlib import Path
        from trainspec_validate.documents.load import LoadError, load_file
        resource.setrlimit(resource.RLIMIT_AS, (1 << 30, 1 << 30))
        try:
            load_file(Path(sys.argv[1])).locate([(("missing",), True), ((2**40,), False)])
        except LoadError as error:
            print(error.code, file=sys.stderr)
        # Not ru_maxrss: it starts from the size of the parent.
        print(re.search("VmHWM:[^0-9]*([0-9]+)", Path("/proc/self/status").read_text())[1])
        """,
        str(path),
    )
    return int(output)


@pytest.mark.parametrize(
    ("scalar", "older"),
    [
        *(("no", "false"), ("Off", "false"), ("YES", "true"), ("on", "true")),
        *(("010", "8"), ("-017", "-15"), ("0_1_0", "8"), ("1:30", "90"), ("-1:00:00", "-3600"), ("09", "text")),
    ],
)
def test_scalars_that_older_readers_take_for_another_value(scalar: str, older: str) -> None:
    assert yaml.safe_load(f"a: {scalar}")["a"] == (scalar if older == "text" else yaml.safe_load(older))
    found = load_text(f"a: 1\nb: [x, {scalar}, {scalar}]\n", "a.yaml").ambiguous
    assert [(one.text, one.older, one.span.line, one.span.column) for one in found] == [(scalar, older, 2, 8)]
    assert load_text(f'a: "{scalar}"\n', "a.yaml").ambiguous == ()


@examples(500)
@given(st.from_regex(r"[-+]?(?:[0-9](?:[0-9_:]{0,8}[0-9_])?|0b[01][01_]{0,3})|[a-zA-Z]{1,5}", fullmatch=True))
@example("On")
def test_no_other_scalar_is_another_value_to_older_readers(scalar: str) -> None:
    text = f"a: {scalar}\n"
    older, source = yaml.safe_load(text)["a"], load_text(text, "a.yaml")
    ours = source.data["a"]
    same = type(older) is type(ours) and older == ours
    assert bool(source.ambiguous) == (not same), (older, ours)
