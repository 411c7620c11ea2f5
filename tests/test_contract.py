"""The training-stack contract: its links lead to requirements and scenarios, and no core scenario is left out."""

from __future__ import annotations

import json
import re
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
PAGE = ROOT / "spec" / "v1" / "00-contract.md"
PHASES = ("Describe", "Start", "Place", "Synchronise", "Schedule", "Report")
PHASES += ("Save", "Detect", "Decide", "Restore", "Resume", "End")
DUTY = re.compile(
    r"^\| (?P<number>\d+) \| (?P<text>[^|]+) \| (?P<requirements>[^|]+) \| (?P<scenarios>[^|]+) \| (?P<code>[^|]+) \|$",
    re.MULTILINE,
)
REQUIREMENT = re.compile(
    r"\[(?P<id>TS-[A-Z]{3}-\d{3})\]\((?P<chapter>[\w-]+)\.md#(?P<anchor>[\w-]+)\)(?: \((?P<level>[A-Z ]+)\))?"
)
CODE = re.compile(r"\[`(?P<name>[\w/.]+)`\]\(\.\./\.\./(?P<path>reference/[\w/.-]+)\)(?P<reference> \*reference\*)?")
SCENARIO = re.compile(r"\[`(?P<name>[\w-]+)`\]\((?P<chapter>[\w-]+)\.md#(?P<anchor>[\w-]+)\)(?P<full> \*full\*)?")


def page() -> str:
    return PAGE.read_text(encoding="utf-8")


def requirements() -> list[dict[str, str]]:
    index = json.loads((ROOT / "spec" / "v1" / "requirements.json").read_text(encoding="utf-8"))
    found: list[dict[str, str]] = index["requirements"]
    return found


def chapters() -> dict[str, str]:
    return {entry["id"]: entry["chapter"] for entry in requirements()}


def scenarios() -> dict[str, dict[str, str]]:
    path = ROOT / "src" / "trainspec_validate" / "data" / "scenarios.json"
    return {one["name"]: one for one in json.loads(path.read_text(encoding="utf-8"))["scenarios"]}


def test_duties_are_numbered_in_the_order_of_the_life_of_a_job() -> None:
    duties = [int(match["number"]) for match in DUTY.finditer(page())]
    assert duties == list(range(1, len(duties) + 1))
    assert 25 <= len(duties) <= 35
    assert tuple(re.findall(r"^## (.+)$", page(), re.MULTILINE)) == PHASES


def test_a_duty_is_one_sentence_with_a_requirement() -> None:
    for duty in DUTY.finditer(page()):
        text = re.sub(r"`[^`]*`", "x", duty["text"])
        assert text.endswith("."), duty["number"]
        assert len(re.findall(r"\.(?:\s|$)", text)) == 1, duty["number"]
        assert REQUIREMENT.search(duty["requirements"]), duty["number"]


def test_every_requirement_of_a_duty_exists_where_the_link_leads() -> None:
    known = chapters()
    found = list(REQUIREMENT.finditer(page()))
    assert found
    wrong = [link["id"] for link in found if (known.get(link["id"]), link["id"]) != (link["chapter"], link["anchor"])]
    assert wrong == []


def test_every_requirement_of_a_duty_that_is_no_must_says_so() -> None:
    levels = {entry["id"]: entry["level"] for entry in requirements()}
    shown = {link["id"]: link["level"] for duty in DUTY.finditer(page()) for link in REQUIREMENT.finditer(duty[0])}
    assert {"SHOULD", "SHOULD NOT"} <= set(shown.values())
    expected = {name: None if levels[name].startswith("MUST") else levels[name] for name in shown}
    assert shown == expected


def test_every_scenario_of_a_duty_exists_with_its_tier() -> None:
    known, places = scenarios(), chapters()
    found = list(SCENARIO.finditer(page()))
    assert found
    for link in found:
        scenario = known[link["name"]]
        assert link["anchor"] == scenario["requirement"], link["name"]
        assert link["chapter"] == places[scenario["requirement"]], link["name"]
        assert bool(link["full"]) is (scenario["tier"] != "core"), link["name"]


def test_every_core_scenario_tests_some_duty() -> None:
    linked = {match["name"] for duty in DUTY.finditer(page()) for match in SCENARIO.finditer(duty["scenarios"])}
    core = {name for name, scenario in scenarios().items() if scenario["tier"] == "core"}
    assert core
    assert core - linked == set()


def test_every_duty_names_code_that_does_it() -> None:
    for duty in DUTY.finditer(page()):
        found = list(CODE.finditer(duty["code"]))
        assert found, duty["number"]
        for link in found:
            text = (ROOT / link["path"]).read_text(encoding="utf-8")
            assert bool(link["reference"]) is not link["path"].startswith("reference/minimal/"), duty["number"]
            named = rf"^ *(?:(?:def|class) )?{re.escape(link['name'])}(?:\(|:)"
            assert link["reference"] or re.search(named, text, re.MULTILINE), (duty["number"], link["name"])
            assert not link["reference"] or link["path"].endswith(link["name"]), duty["number"]
