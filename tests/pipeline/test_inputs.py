"""What a program hands to `validate`: texts, mappings, typed documents and models, next to paths."""

from __future__ import annotations

import pickle
from collections import ChainMap
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.examples import examples
from trainspec_validate import (
    Finding,
    InputError,
    InvalidDocumentError,
    NamedText,
    PartialInputError,
    TrainingPlan,
    validate,
)
from trainspec_validate.documents.load import load_file, load_text
from trainspec_validate.documents.types import read
from trainspec_validate.pipeline.inputs import text_of

BASE = Path(__file__).resolve().parents[2] / "spec" / "v1" / "base"
FILES = [BASE / name for name in ("cluster.yaml", "plan.yaml", "checkpoint.yaml")]
PLAN = load_file(BASE / "plan.yaml").data
WORDS = st.text(max_size=8) | st.sampled_from(
    [
        "on",
        "1e3",
        "0o17",
        "1:30",
        "a: b",
        "#x",
        "- a",
        "null",
        "~",
        "a\nb\n",
        " lead",
        "trail ",
        "<<",
        ".5",
        "\x85",
        "'",
    ]
)
JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | WORDS,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(WORDS, inner, max_size=3),
    max_leaves=8,
)


@pytest.fixture(autouse=True)
def elsewhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Documents that are named are looked for below the working directory."""
    monkeypatch.chdir(tmp_path)


def told(findings: tuple[Finding, ...]) -> set[tuple[Any, ...]]:
    return {(each.requirement, each.pointer, each.message, each.help) for each in findings}


def wrong() -> dict[str, Any]:
    return {**PLAN, "parallelism": {**PLAN["parallelism"], "data": 7}, "batchh": {}}


@given(st.dictionaries(WORDS, JSON, max_size=4))
@examples(300)
def test_a_mapping_is_judged_as_what_it_holds(data: dict[str, Any]) -> None:
    assert load_text(text_of(data), "a.yaml").data == data


def test_every_form_has_the_findings_of_the_file(tmp_path: Path) -> None:
    file = tmp_path / "plan.yaml"
    file.write_text(text_of(wrong()), encoding="utf-8")
    expected = told(validate([*FILES[::2], file]).findings)
    assert {"TS-PAR-001", "TS-DOC-005"} <= {requirement for requirement, *_ in expected}
    for form in (wrong(), NamedText("p.yaml", file.read_text()), NamedText("p.yaml", file.read_bytes())):
        assert told(validate([*FILES[::2], form]).findings) == expected


def test_findings_on_a_mapping_name_its_kind_and_its_lines() -> None:
    [finding] = [each for each in validate(wrong()).findings if each.requirement == "TS-DOC-005"]
    assert finding.path == "<TrainingPlan>"
    assert finding.span is not None
    [summary] = validate(wrong()).documents
    assert summary.text.splitlines()[finding.span.line - 1].startswith("batchh:")


def test_two_mappings_of_a_kind_have_two_names() -> None:
    other = {**PLAN, "metadata": {"name": "other"}}
    assert {each.path for each in validate([PLAN, other]).documents} == {"<TrainingPlan>", "<TrainingPlan 2>"}


def test_one_input_needs_no_list() -> None:
    for one in (FILES[0], str(FILES[0]), NamedText("c.yaml", FILES[0].read_text()), load_file(FILES[0]).data):
        assert [each.kind for each in validate(one).documents] == ["ClusterProfile"]


def test_typed_documents_and_other_mappings() -> None:
    typed = read("TrainingPlan", PLAN)
    assert isinstance(typed, TrainingPlan)
    assert validate(ChainMap(PLAN)).documents[0].text == text_of(PLAN)
    assert validate(typed).documents[0].text.startswith("apiVersion: trainspec/v1\nkind: TrainingPlan\nmetadata:\n")
    assert validate((typed,)).findings == validate([PLAN]).findings


def test_a_text_may_be_a_stream() -> None:
    head = (
        '{"k":"head","apiVersion":"trainspec/v1","kind":"MetricStream","run":"r","att":0,"emitter":"e","time_us":1,'
        '"scopes":["job"]}\n'
    )
    report = validate(NamedText("stream.jsonl", head))
    assert [coverage.run for coverage in report.coverage] == ["r"]
    assert {each.path for each in report.findings} == {"stream.jsonl"}


def test_references_of_a_text_start_at_its_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "conf").mkdir()
    (tmp_path / "conf" / "cluster.yaml").write_bytes(FILES[0].read_bytes())
    plan = text_of({**PLAN, "cluster": {"file": "cluster.yaml"}})
    assert {each.path for each in validate(NamedText("conf/plan.yaml", plan)).documents} == {
        "conf/plan.yaml",
        "conf/cluster.yaml",
    }
    assert {each.requirement for each in validate(NamedText("plan.yaml", plan)).findings} >= {"TS-DOC-011"}


@pytest.mark.parametrize(
    ("value", "words"),
    [(object(), "cannot hold a object"), ({1}, "cannot hold a set"), (b"a", "cannot hold a bytes")],
)
def test_what_no_document_holds(value: Any, words: str) -> None:
    with pytest.raises(InputError, match=rf"^TrainingPlan\.extensions\.org\.a\.0: .*{words}"):
        validate({**PLAN, "extensions": {"org.a": [value]}})


def test_endless_values_are_refused() -> None:
    endless: dict[str, Any] = {}
    endless["a"] = endless
    with pytest.raises(InputError, match="nests deeper than can be read"):
        validate(endless)


@pytest.mark.parametrize(
    ("data", "requirement"),
    [({"a": float("nan")}, "TS-DOC-001"), ({1: 2}, "TS-DOC-001"), ({}, "TS-DOC-004"), ({"a": "\ud800"}, "TS-DOC-001")],
)
def test_values_that_documents_refuse_are_findings(data: dict[Any, Any], requirement: str) -> None:
    assert {each.requirement for each in validate(data).findings} == {requirement}


def test_numbers_of_arrays_are_numbers() -> None:
    numpy = pytest.importorskip("numpy")
    data = {**PLAN, "job": {"num_steps": numpy.int64(5), "planned_seconds": numpy.float32(2.0)}}
    assert "num_steps: 5\n" in validate(data).documents[0].text


@pytest.mark.parametrize("one", [3, None, [None], [TrainingPlan]])
def test_what_is_no_input(one: Any) -> None:
    with pytest.raises(TypeError):
        validate(one)


def test_texts_of_one_name_are_refused() -> None:
    with pytest.raises(InputError, match="two texts have this name"):
        validate([NamedText("a.yaml", "a"), NamedText("a.yaml", "b")])


def test_a_text_is_judged_next_to_an_absent_file() -> None:
    with pytest.raises(PartialInputError) as caught:
        validate([PLAN, "absent.yaml"])
    assert [each.path for each in caught.value.report.documents] == ["<TrainingPlan>"]


def test_an_error_travels_between_processes() -> None:
    error = InvalidDocumentError("a.yaml: wrong", validate(wrong()).findings)
    again = pickle.loads(pickle.dumps(error))
    assert (str(again), again.findings) == (str(error), error.findings)
    assert "<TrainingPlan>:" in str(error)
