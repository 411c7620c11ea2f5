from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from trainspec_validate.interop.fragment import ForeignFormatError
from trainspec_validate.system import xml


def refusal(text: str) -> ForeignFormatError:
    with pytest.raises(ForeignFormatError) as caught:
        xml.parse(text)
    return caught.value


def test_a_tree_keeps_order_lines_and_values() -> None:
    root = xml.parse('<a>\n<b c=" 1 " d=""/>text<e>\n  <b/></e></a>')
    assert [item.tag for item in root.walk()] == ["a", "b", "e", "b"]
    assert [item.line for item in root.all("b")] == [2, 3]
    first = root.children[0]
    assert (first.get("c"), first.get("d"), first.get("z"), first.attributes["c"]) == ("1", None, None, " 1 ")
    assert root.text == "\ntext"


def test_a_document_type_without_declarations_is_tolerated_and_not_loaded() -> None:
    assert xml.parse('<!DOCTYPE topology SYSTEM "file:///etc/passwd"><topology/>').tag == "topology"
    assert xml.parse('<!DOCTYPE a PUBLIC "x" "http://localhost:1/none"><a/>').children == ()


@pytest.mark.parametrize(
    ("text", "line", "words"),
    [
        ('<!DOCTYPE a [\n<!ENTITY b "x">\n]><a>&b;</a>', 1, "document type of its own"),
        ('<!DOCTYPE a [<!ENTITY % p SYSTEM "http://localhost:1/p">%p;]><a/>', 1, "document type of its own"),
        ('<!DOCTYPE a SYSTEM "a.dtd">\n<a>&b;</a>', 2, "entity"),
        ("<a>\n&b;</a>", 2, "entity"),
        ("<a>\n<b></a>", 2, "not XML"),
        ("", 1, "not XML"),
        ("plain text", 1, "not XML"),
        ('<a b="1" b="2"/>', 1, "not XML"),
        ("<a/>\n<b/>", 2, "not XML"),
        ("<a>\x00</a>", 1, "not XML"),
    ],
)
def test_what_is_not_plain_xml_is_refused_with_its_line(text: str, line: int, words: str) -> None:
    error = refusal(text)
    assert words in str(error)
    assert error.line == line


def test_lone_surrogates_are_refused() -> None:
    assert "characters" in str(refusal("<a>\ud800</a>"))


def test_a_billion_laughs_never_expands() -> None:
    lines = [f'<!ENTITY l{k} "{f"&l{k - 1};" * 10}">' for k in range(1, 10)]
    bomb = '<!DOCTYPE a [<!ENTITY l0 "lol">' + "\n".join(lines) + "]><a>&l9;</a>"
    assert "document type" in str(refusal(bomb))


@pytest.mark.slow
@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("<a>" * 100_000, "nest deeper"),
        ("<a " + " ".join(f'x{k}="1"' for k in range(100_000)) + "/>", "100,000 attributes"),
        ("<a>" + "<b/>" * (xml.MAX_ELEMENTS + 1) + "</a>", "elements"),
        ('<a b="' + "x" * (xml.MAX_VALUE_CHARACTERS + 1) + '"/>', "longer than"),
        ("<a>" + "x" * (xml.MAX_TEXT_CHARACTERS + 1) + "</a>", "characters of text"),
        ("x" * (xml.MAX_CHARACTERS + 1), "longer than"),
    ],
    ids=["depth", "attributes", "elements", "value", "text", "file"],
)
def test_bounds_hold(text: str, words: str) -> None:
    assert words in str(refusal(text))


@pytest.mark.parametrize(
    ("text", "tag"),
    [
        ("<system/>", "system"),
        (
            '\ufeff<?xml version="1.0"?>\n<!-- <graphs> -->\n<!DOCTYPE topology SYSTEM "x">\n<topology version="3.0">',
            "topology",
        ),
        ("<!-- never closed <system>", None),
        ("GPU0 GPU1", None),
        ("", None),
        (" " * 100_000 + "<system>", None),
    ],
)
def test_the_first_tag_is_found_without_parsing(text: str, tag: str | None) -> None:
    assert xml.root_tag(text) == tag


@given(st.text(alphabet=st.sampled_from("<>/!?-[]&;=\"' abcDOCTYPE\n"), max_size=200) | st.text(max_size=200))
def test_any_text_is_a_tree_or_refused(text: str) -> None:
    xml.root_tag(text)
    try:
        root = xml.parse(text)
    except ForeignFormatError:
        return
    assert root.line >= 1
    assert xml.root_tag(text) in {root.tag, None}
