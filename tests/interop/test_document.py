"""Documents of imported facts: comments tell where values come from, and the strict loader reads the same facts."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from network_files import fixture

from tests.examples import examples
from trainspec_validate.documents.load import load_text
from trainspec_validate.interop.document import document, facts_of, scalar, unknowns
from trainspec_validate.interop.fragment import ForeignFormatError, Fragment, Unknown
from trainspec_validate.interop.merge import merge
from trainspec_validate.interop.open import decoded
from trainspec_validate.interop.readers import infiniband, mlperf_system
from trainspec_validate.interop.shape import fitting, missing, ordered


def part(facts: dict[str, Any], **keys: Any) -> Fragment:
    return Fragment("ClusterProfile", "test", "a.txt", facts, **keys)


def written(facts: dict[str, Any], **keys: Any) -> str:
    return document(merge([part(facts, **keys)]))


def test_the_head_names_every_file_and_its_format() -> None:
    merged = merge([mlperf_system.read(fixture("mlperf-system.json")), infiniband.read(fixture("ibnetdiscover.out"))])
    lines = document(merged).splitlines()
    assert lines[0] == "# yaml-language-server: $schema=https://trainspec.org/schemas/v1/cluster-profile.schema.json"
    assert "#   mlperf-system.json (mlperf-system)" in lines
    assert "#   ibnetdiscover.out (ibnetdiscover)" in lines
    assert "software:  # from mlperf-system.json" in lines
    assert "    tiers:  # from ibnetdiscover.out" in lines


def test_a_derived_value_says_how() -> None:
    text = written({"num_nodes": 3}, derived={("num_nodes",): "counted"})
    assert "num_nodes: 3  # derived: counted\n" in text


def test_a_long_derivation_stands_above() -> None:
    text = written({"num_nodes": 3}, derived={("num_nodes",): "word " * 60})
    above = text[: text.index("num_nodes: 3\n")].splitlines()[-2:]
    assert all(line.startswith("#") and len(line) <= 118 for line in above)


def test_an_unknown_key_stands_where_it_belongs() -> None:
    unknown = (Unknown(("fabrics", 0, "transport"), "not said"), Unknown(("clock",), "neither"))
    text = written({"fabrics": [{"name": "f"}], "num_nodes": 1}, unknown=unknown)
    assert "  - name: f\n    # unknown: transport: not said\n" in text
    assert "\n# unknown: clock: neither\n" in text


def test_keys_that_a_document_needs_are_told() -> None:
    merged = merge([part({"fabrics": [{"name": "f"}]})])
    pointers = [".".join(map(str, entry.pointer)) for entry in unknowns(merged)]
    wanted = ["fabrics.0.topology", "fabrics.0.transport", "metadata", "node_groups", "num_accelerators", "num_nodes"]
    assert sorted(pointers) == wanted
    assert "    # unknown: transport, topology: a document needs it, and no file states it\n" in document(merged)


def test_a_key_that_many_entries_lack_is_told_once() -> None:
    text = written({"layout": {"nodes": [{"name": f"n{i}"} for i in range(2000)]}})
    assert text.count("unknown: group") == 1
    assert "unknown: group: a document needs it, and no file states it; 1,999 more entries lack it too" in text


def test_a_comment_never_silences_a_finding() -> None:
    text = written(
        {"num_nodes": 3}, derived={("num_nodes",): "# trainspec: ignore[TS-CLU-001] # trainspec: ignore-file"}
    )
    assert "trainspec:" not in text.partition("num_nodes")[2]


def test_a_comment_stays_on_its_line() -> None:
    text = written({"num_nodes": 3}, derived={("num_nodes",): "a\nkind: TrainingPlan\u2028b\x1b[31m"})
    assert load_text(text, "a.yaml").data["kind"] == "ClusterProfile"
    assert "\x1b" not in text


def test_long_lists_of_numbers_are_folded() -> None:
    facts = {"fabrics": [{"tiers": [{"uplinks_found": list(range(100, 200))}]}]}
    text = written(facts)
    assert max(map(len, text.splitlines())) <= 118
    assert load_text(text, "a.yaml").data["fabrics"] == facts["fabrics"]


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (50e9, "50e9"),
        (0.1 + 0.2, "0.30000000000000004"),
        (1e-06, "1e-06"),
        (8, "8"),
        (False, "false"),
        ("yes", '"yes"'),
        ("2.27.3", '"2.27.3"'),
        ("a: b", '"a: b"'),
        ("mlx5_0", "mlx5_0"),
        ("\x7f\U0001f600\u2028", '"\\u007f\U0001f600\\u2028"'),
    ],
)
def test_scalars(value: Any, text: str) -> None:
    assert scalar(value) == text


TEXT = st.text(max_size=20) | st.sampled_from(
    ["null", "NO", "0x1f", "1e3", ".inf", "- a", "#", "'", "~", "1_000", "=", "<<"]
)
VALUES = st.recursive(
    st.booleans() | st.integers(-(10**15), 10**15) | st.floats(allow_nan=False, allow_infinity=False) | TEXT,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=6), inner, max_size=4),
    max_leaves=15,
)


@examples(300)
@given(st.dictionaries(st.sampled_from(["notes", "clock", "power", "extensions"]), VALUES))
def test_any_value_reads_back(facts: dict[str, Any]) -> None:
    merged = merge([part(facts)])
    assert load_text(document(merged), "a.yaml").data == facts_of(merged)


def test_keys_stand_in_the_order_of_the_schema() -> None:
    facts = {"fabrics": [{"topology": "torus", "name": "f"}], "num_nodes": 2}
    assert list(facts_of(merge([part(facts)]))) == ["apiVersion", "kind", "num_nodes", "fabrics"]
    assert list(ordered("ClusterProfile", facts)["fabrics"][0]) == ["name", "topology"]


def test_facts_that_no_key_takes() -> None:
    facts = {"num_nodes": True, "fabrics": [{"name": "a b", "tiers": [{"num_ports": 1, "x": 1}]}, 3], "clock": 4}
    kept, refused = fitting("ClusterProfile", facts)
    assert kept == {"fabrics": [{"tiers": [{}]}]}
    assert [".".join(map(str, pointer)) for pointer, _ in refused] == [
        *("num_nodes", "fabrics.0.name", "fabrics.0.tiers.0.num_ports", "fabrics.0.tiers.0.x", "fabrics.1", "clock"),
    ]


def test_a_name_with_a_line_feed_is_no_name() -> None:
    assert fitting("ClusterProfile", {"metadata": {"name": "a\n"}})[0] == {"metadata": {}}


def test_missing_keys_of_nothing() -> None:
    needed = ["apiVersion", "kind", "metadata", "num_nodes", "num_accelerators", "node_groups"]
    assert [pointer[0] for pointer in missing("ClusterProfile", {})] == needed


@pytest.mark.parametrize(
    ("content", "line", "words"),
    [
        (b"one\ntwo \xff three", 2, "byte 0xff is not UTF-8"),
        (b"\xff\xfea\0", None, "UTF-16"),
        (b"\x7fELF\0\0", None, "a binary file"),
        (b"x" * (32 * 2**20 + 1), None, "larger than 32 MiB"),
    ],
    ids=["not-utf8", "utf16", "binary", "large"],
)
def test_what_is_no_text(content: bytes, line: int | None, words: str) -> None:
    with pytest.raises(ForeignFormatError, match=words) as caught:
        decoded(content, "a.txt")
    assert caught.value.line == line


def test_line_ends_and_byte_order_mark() -> None:
    assert decoded(b"\xef\xbb\xbfa\r\nb\rc\n", "a.txt").text == "a\nb\nc\n"
