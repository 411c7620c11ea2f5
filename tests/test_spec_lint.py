"""The language of the specification is clean, and each check of it finds the fault that it is there for."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import spec_lint

ENTRY: dict[str, Any] = {
    "id": "TS-PAR-001",
    "title": "World size",
    "chapter": "04-parallelism",
    "level": "MUST",
    "ground": "arithmetic",
    "statement": "The degrees MUST multiply.",
    "why": "Ranks without a group wait for ever. Source: arithmetic.",
    "profile": "core",
    "check": "rule",
    "since": "1.0",
    "bad": [{"file": "plan.yaml"}],
    "good": [{"file": "plan.yaml"}],
}


@pytest.fixture
def root(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(spec_lint, "ROOT", tmp_path)
    return tmp_path


def page(root: Path, text: str, name: str = "page.md") -> Path:
    path = root / name
    path.write_text(text, encoding="utf-8")
    return path


def told(found: Any) -> list[tuple[int, str]]:
    return [(fault.line, fault.words) for fault in found]


def test_the_specification_has_no_fault() -> None:
    assert [str(fault) for fault in spec_lint.faults()] == []


def test_a_complete_requirement_has_no_fault() -> None:
    assert list(spec_lint.requirement_faults([ENTRY], {"1.0"})) == []


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"statement": "The degrees MUST multiply. They are whole."}, "more than one sentence"),
        ({"why": "Ranks without a group wait for ever."}, "names no source"),
        ({"profile": "half"}, "the profile is 'half'"),
        ({"check": "guess"}, "the check is 'guess'"),
        ({"ground": ""}, "a MUST on the ground ''"),
        ({"ground": "habit"}, "a MUST on the ground 'habit'"),
        ({"level": "SHOULD"}, "a SHOULD and has the ground 'arithmetic'"),
        ({"ground": "practice"}, "less than 2 implementations"),
        ({"ground": "practice", "why": "Seen. Source: a/b@1, c; a/d@2."}, "less than 2 implementations"),
        ({"since": "3.0"}, "no version '3.0'"),
        ({"good": []}, "no example of both signs"),
    ],
)
def test_what_a_requirement_lacks_is_told(change: dict[str, Any], words: str) -> None:
    (fault,) = spec_lint.requirement_faults([ENTRY | change], {"1.0"})
    assert words in fault.words
    assert fault.place == "spec/v1/04-parallelism.md"


def test_practice_names_two_implementations() -> None:
    seen = ENTRY | {"ground": "practice", "why": "Seen. Source: a/b@1; c/d@2."}
    assert list(spec_lint.requirement_faults([seen], {"1.0"})) == []


@pytest.mark.parametrize(
    ("stacks", "words"),
    [
        ([], "is passed by no stack"),
        (["deepspeed"], "is passed by deepspeed"),
        (["reference-jax", "reference-torch"], "is passed by reference-jax, reference-torch"),
        (["deepspeed", "reference-torch"], None),
    ],
)
def test_a_scenario_on_the_ground_of_practice_is_passed_by_two_stacks(stacks: list[str], words: str | None) -> None:
    scenario = ENTRY | {"ground": "practice", "check": "runtime"}
    found = [fault.words for fault in spec_lint.practice_faults([scenario], {"TS-PAR-001": stacks})]
    assert len(found) == (words is not None)
    assert all(words in each for each in found if words)


def test_stacks_that_pass_are_those_of_the_newest_report() -> None:
    passed = spec_lint.stacks_that_pass(spec_lint.ROOT / "conformance" / "results")
    assert "torchtitan" in passed["TS-CNF-130"]
    assert "lightning" not in passed["TS-CNF-101"]


@pytest.mark.parametrize("title", ["Little is lost", "Nothing seen", "Topics " * 11, "A job goes on with what it has"])
def test_a_heading_names_a_topic(title: str) -> None:
    (fault,) = spec_lint.heading_faults([ENTRY | {"title": title}])
    assert "is not the name of a topic" in fault.words


def test_the_name_of_a_topic_is_a_heading() -> None:
    assert list(spec_lint.heading_faults([ENTRY | {"title": "Record loss bound"}])) == []


@pytest.mark.parametrize(
    ("clause", "words"),
    [
        ("a talk on clocks", "the source 'a talk on clocks.' has no address"),
        ("measured for this specification", "has no address"),
        ("a choice", "has no address"),
        ("benchmarks/nothing.py, 3 %", "the source 'benchmarks/nothing.py' is no file of this repository"),
        ("benchmarks/measured.py, 3 %", None),
        ("arXiv:2407.21783", None),
        ("NVIDIA/nccl@1a2b3c4:src/init.cc", None),
        ("NVIDIA/nccl:src/init.cc", "the source 'NVIDIA/nccl:src/init.cc' has no commit"),
        ("NVIDIA/nccl src/init.cc", "the source 'NVIDIA/nccl src/init.cc' has no commit"),
        ("mlcommons/training_results_v4.0:NVIDIA/systems/a.json", "has no commit"),
        ("mlcommons/logging, compliance_checker", "the source 'mlcommons/logging' has no commit"),
        ("mlcommons/logging@1a2b3c4, compliance checker", None),
        ("NVIDIA/nccl@1a2b3c4, src/init.cc, and more", "its path, 'src/init.cc', after a comma"),
        ("NVIDIA/nccl@1a2b3c4, NVIDIA/nccl-tests@1a2b3c4", None),
        ("NVIDIA/nccl@1a2b3c4, NVIDIA/nccl issue 302", None),
        ("mlcommons/training_results_v4.0@1a2b3c4, mlcommons/training_results_v4.1@1a2b3c4", None),
        ("[links](links.yaml)", None),
        ("arithmetic", None),
        ("the meaning of the keys: a count is a number", None),
        ("the 10 % are a choice of this specification", None),
    ],
)
def test_each_clause_of_a_source_has_an_address(root: Path, clause: str, words: str | None) -> None:
    (root / "benchmarks").mkdir()
    page(root, "", "benchmarks/measured.py")
    text = f"# A\n\n```text\nSource: code\n```\n\n*Why:* Seen. Source:\nRFC 5905; {clause}.\n\nMore.\n"
    found = told(spec_lint.source_faults([page(root, text)]))
    assert [number for number, _ in found] == ([7] if words else [])
    assert all(words in fault for _, fault in found if words)


def test_a_statement_is_short() -> None:
    long = "The degrees MUST multiply to the ranks of the job" + " and" * 21 + "."
    (fault,) = spec_lint.requirement_faults([ENTRY | {"statement": long}], {"1.0"})
    assert "has 31 words, more than 30" in fault.words
    linked = f"The [degrees](../somewhere/else.md) MUST multiply{' and' * 26}."
    assert list(spec_lint.requirement_faults([ENTRY | {"statement": linked}], {"1.0"})) == []


def test_a_page_opens_with_what_it_is_about(root: Path) -> None:
    heading = "# A\n\nTerms: [b](c).\n\n"
    requirement = "### World size {#TS-PAR-001 level=MUST}\n\nText.\n"
    figure = '<figure markdown="span">\n<img src="a.svg" alt="A figure">\n</figure>\n\n'
    brief = page(root, f"{heading}Few words.\n\n| a | table |\n\n{figure}{requirement}", "01-brief.md")
    full = page(root, f"{heading}{'word ' * 150}\n\n{requirement}", "01-full.md")
    bare = page(root, f"{heading}{'word ' * 150}\n\n{requirement}{figure}", "02-bare.md")
    long = page(root, f"{heading}{'word ' * 301}\n\n{figure}{requirement}", "03-long.md")
    late = page(root, f"{heading}{figure}## Section\n\n{'word ' * 150}\n\n{requirement}", "03-late.md")
    none = page(root, "# A\n\nNo requirement.\n", "none.md")
    assert told(spec_lint.opening_faults([brief, full, none])) == [(1, "the opening has 2 words, not 150 to 300")]
    assert told(spec_lint.opening_faults([long, late])) == [
        (1, "the opening has 301 words, not 150 to 300"),
        (1, "the opening has 0 words, not 150 to 300"),
    ]
    assert told(spec_lint.opening_faults([full, bare])) == [
        (1, "no page of chapter 01 opens with a figure"),
        (1, "no page of chapter 02 opens with a figure"),
    ]


def test_an_area_stands_in_one_chapter() -> None:
    (fault,) = spec_lint.requirement_faults([ENTRY, ENTRY | {"chapter": "05-communication"}], {"1.0"})
    assert fault.words == "TS-PAR occurs in several chapters: 04, 05"
    assert not [*spec_lint.requirement_faults([ENTRY, ENTRY | {"chapter": "15-plausible-plans"}], {"1.0"})]


def test_words_that_say_nothing_are_told_outside_of_code(root: Path) -> None:
    path = page(root, '# A\n\nThis is very good, e.g. here — `very`.\n\n```text\nvery\n```\n"very" is a quotation.\n')
    assert told(spec_lint.voice_faults([path])) == [
        (3, "'very' says nothing here"),
        (3, "'e.g.' says nothing here"),
        (3, "'—' says nothing here"),
    ]


def test_an_introduced_term_is_used(root: Path) -> None:
    text = """# A

Text.

Terms: [rank](00-terms.md#rank), [checkpoint tier](00-terms.md#checkpoint-tier),
[agree](00-terms.md#agree), [recovery path](00-terms.md#recovery-path), [stride](00-terms.md#stride).

## B

Tiers hold what both agreed on.

```yaml
stride: 3
```
"""
    found = told(spec_lint.term_faults([page(root, text)]))
    assert found == [(5, "'rank' is introduced and not used"), (6, "'recovery path' is introduced and not used")]


def test_named_requirements_exist(root: Path) -> None:
    text = "TS-PAR-001, TS-PAR-009, TS-XXX-001.\nyaml: 1  # trainspec: ignore[TS-PAR-999] an example of a slip\n"
    found = told(spec_lint.identifier_faults([page(root, text)], {"TS-PAR-001"}))
    assert found == [(1, "TS-PAR-009 does not exist")]


def test_a_page_that_nothing_leads_to_is_told(root: Path) -> None:
    index = page(root, "# A\n\n[b](b.md#part), [out](https://example.org/c.md)\n", "index.md")
    pages = [index, page(root, "[d](sub/../d.md)\n", "b.md"), page(root, "# C\n", "c.md"), page(root, "# D\n", "d.md")]
    assert [fault.place for fault in spec_lint.orphans(index, pages)] == ["c.md"]


@pytest.mark.parametrize(
    ("key", "value", "words"),
    [
        ("memory_bytes", {"x-unit": "By"}, None),
        ("bytes_per_step", {"anyOf": [{"type": "null"}, {"x-unit": "By"}]}, None),
        ("oversubscription", {"x-unit": "1"}, None),
        ("memory", {"x-unit": "By"}, "does not say 'bytes'"),
        ("rate_bytes", {"anyOf": [{"type": "null"}, {"x-unit": "By/s"}]}, "does not say 'bytes_per_second'"),
        ("size_gib", {"type": "number"}, "abbreviates its unit"),
        ("timeout_ms", {"type": "number"}, "abbreviates its unit"),
        ("pressure", {"x-unit": "Pa"}, "has no word"),
    ],
)
def test_a_key_says_its_unit(key: str, value: dict[str, Any], words: str | None) -> None:
    found = list(spec_lint.unit_faults({"$defs": {"One": {"properties": {key: value}}}}, "a.schema.json"))
    assert len(found) == (words is not None)
    assert all(words in fault.words for fault in found if words)


def test_the_exit_status_tells(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    assert spec_lint.main() == 0
    monkeypatch.setattr(spec_lint, "faults", lambda: [spec_lint.Fault("spec/a.md", 3, "a fault")])
    assert spec_lint.main() == 1
    assert "spec/a.md:3: a fault" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("key", "text", "is_fault"),
    [
        ("name", "Name of the node.", True),
        ("size_bytes", "Its size.", True),
        ("num_nodes", "", True),
        ("name", "Host name of the observed node.", False),
    ],
)
def test_a_description_says_more_than_its_key(key: str, text: str, is_fault: bool) -> None:
    schema = {"properties": {key: {"type": "string", "description": text}}}
    assert bool([*spec_lint.description_faults(schema, "x")]) is is_fault
    constant = {"properties": {key: {"const": "x"}}}
    assert [*spec_lint.description_faults(constant, "x")] == []


@pytest.mark.parametrize(
    ("statement", "is_compound"),
    [
        ("Names MUST be unique, and every reference exist.", True),
        ("Weights MUST add up to 1; each is above 0.", True),
        ("Names MUST be unique, and the spares exist where they are used.", True),
        ("Weights MUST be above 0 and add up to 1.", False),
        ("A plan MUST have a path from loss, hang and failure, with a layer for each.", False),
    ],
)
def test_a_second_duty_is_found(statement: str, is_compound: bool) -> None:
    found = [fault.words for fault in spec_lint.requirement_faults([ENTRY | {"statement": statement}], {"1.0"})]
    assert any("second duty" in words for words in found) is is_compound


@pytest.mark.parametrize(
    ("statement", "is_bare"),
    [
        ("The power MUST be at least that of the accelerators.", True),
        ("The nodes MUST be those that the ranks take.", True),
        ("What is compressed MUST be counted.", True),
        ("The power MUST be at least the power of the accelerators that are used.", False),
    ],
)
def test_a_statement_repeats_its_nouns(statement: str, is_bare: bool) -> None:
    found = [fault.words for fault in spec_lint.requirement_faults([ENTRY | {"statement": statement}], {"1.0"})]
    assert any("noun" in words for words in found) is is_bare


@pytest.mark.parametrize(
    ("change", "term"),
    [
        ({"statement": "The data degree MUST divide the batch."}, "DP"),
        ({"title": "Order of axes"}, "parallelism dimension"),
        ({"statement": "An emitter MUST number its records."}, "writer"),
        ({"statement": "The DP degree MUST divide `data degree` and [ranks](a.md#emitter)."}, None),
    ],
)
def test_statements_and_titles_have_the_terms_of_the_field(change: dict[str, Any], term: str | None) -> None:
    found = [fault.words for fault in spec_lint.requirement_faults([ENTRY | change], {"1.0"})]
    assert len(found) == (term is not None)
    assert all("the term of the field" in words and str(term) in words for words in found)
