"""The questions of each role are answered on the site: the places exist, and have what the answers state."""

from __future__ import annotations

import re
from dataclasses import dataclass

import yaml
from site_visit import ROOT

from tests.every import every

PAGE = ROOT / "spec" / "questions.md"
ROW = re.compile(
    r"^\| (?P<question>[^|]+\?) \| (?P<answer>[^|]+) \[[^\]]+\]\((?P<target>[^)#]+)(?P<anchor>#[^)]+)?\) \|$"
)
HEADING = re.compile(r"^#{1,3} (?P<title>.+?)(?: \{#(?P<id>TS-[A-Z]{3}-\d{3})[^}]*\})?$")


@dataclass(frozen=True)
class Row:
    """A question with the place that answers it."""

    role: str
    question: str
    answer: str
    target: str
    anchor: str


def rows() -> list[Row]:
    found, role = [], ""
    for line in PAGE.read_text(encoding="utf-8").splitlines():
        role = line.removeprefix("## ") if line.startswith("## ") else role
        match = ROW.match(line)
        if match:
            found.append(Row(role, match["question"], match["answer"], match["target"], match["anchor"] or ""))
    return found


def part(row: Row) -> str:
    """The text of the place that a row names: from its heading on, or the whole page."""
    lines = (ROOT / "spec" / row.target).read_text(encoding="utf-8").splitlines()
    if not row.anchor:
        return "\n".join(lines)
    for number, line in enumerate(lines):
        heading = HEADING.match(line)
        if heading and row.anchor[1:] in {heading["id"], re.sub(r"[^\w]+", "-", heading["title"].lower()).strip("-")}:
            end = next((n for n in range(number + 1, len(lines)) if lines[n].startswith(("## ", "### "))), len(lines))
            return "\n".join(lines[number:end])
    raise AssertionError(f"{row.target} has no place {row.anchor}")


def test_the_page_of_alerts_lists_the_critical_ones() -> None:
    rules = yaml.safe_load((ROOT / "integrations" / "prometheus" / "alert-rules.yaml").read_text(encoding="utf-8"))
    critical = [
        (rule["alert"], rule["labels"]["requirement"])
        for group in rules["groups"]
        for rule in group["rules"]
        if rule["labels"]["severity"] == "critical"
    ]
    text = (ROOT / "spec" / "guide" / "dashboards.md").read_text(encoding="utf-8")
    assert re.findall(r"^\| `(\w+)` \| [^|]+ \| \[(TS-[A-Z]+-\d+)\]", text, re.MULTILINE) == critical


def test_each_role_has_ten_questions_or_more() -> None:
    roles = [row.role for row in rows()]
    assert {role: roles.count(role) for role in roles} == {
        "Framework author": 12,
        "Job operator": 10,
        "Job operator and cluster owner of thousands of accelerators": 15,
        "Tester at a vendor": 18,
    }
    assert len({row.question for row in rows()}) == 55


@every("row", rows(), ids=lambda row: row.question)
def test_the_place_has_the_numbers_and_names_of_the_answer(row: Row) -> None:
    text = part(row)
    figures = re.findall(r"(?<![\w.])\d[\d,.]*(?![\w])", row.answer)
    names = re.findall(r"`([^`]+)`", row.answer)
    assert [word for word in [*(figure.rstrip(".,") for figure in figures), *names] if word not in text] == []
    words = set(re.findall(r"[a-z]{5,}", row.answer.lower()))
    assert not words or len([word for word in words if word[:5] in text.lower()]) >= len(words) / 2, words
