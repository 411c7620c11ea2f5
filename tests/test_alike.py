"""The same of many items of a list is one finding, in every format, and each place is silenced by itself."""

from __future__ import annotations

import copy
import json
from pathlib import Path
from typing import Any

import pytest

from trainspec_validate.checking.selection import Selection
from trainspec_validate.checking.suppress.baseline import Baseline
from trainspec_validate.documents.load import load_file
from trainspec_validate.model.finding import Report
from trainspec_validate.pipeline.alike import MAX_ALIKE
from trainspec_validate.pipeline.validation import validate
from trainspec_validate.report import FORMATS, render

BASE = Path(__file__).resolve().parents[1] / "spec" / "v1" / "base" / "cluster.yaml"
NUM = 200
EVIDENCE = "TS-TOP-007"
LACK = "TS-DOC-006"


def cluster(num_items: int, key: str, value: Any = None, *, of: str = "fabrics") -> dict[str, Any]:
    """A cluster with many items in a list, each without one key or with the same value of it."""
    data: dict[str, Any] = copy.deepcopy(load_file(BASE).data)
    holder = data if of == "fabrics" else data["node_groups"][0]
    first = {each: one for each, one in holder[of][0].items() if each not in {key, "devices"}}
    first |= {} if value is None else {key: value}
    holder[of] = [{**first, "name": f"item-{number}"} for number in range(num_items)]
    if of == "fabrics":
        data["node_groups"][0]["nics"][0]["fabric"] = "item-0"
    return data


def judge(data: Any, requirement: str, **options: Any) -> Report:
    text = data if isinstance(data, str) else json.dumps(data, indent=1)
    Path("cluster.yaml").write_text(text, encoding="utf-8")
    return validate(["cluster.yaml"], Selection(select=(requirement, "TS-DOC-016")), **options)


@pytest.fixture(autouse=True)
def _own_directory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


@pytest.mark.parametrize(
    ("requirement", "data"),
    [
        (EVIDENCE, cluster(NUM, "failover_evidence")),
        ("TS-CLU-021", cluster(NUM, "fabric", of="nics")),
        ("TS-CLU-021", cluster(NUM, "fabric", "other", of="nics")),
        (LACK, cluster(NUM, "topology")),
        (LACK, cluster(NUM, "technology", of="nics")),
        ("TS-DOC-008", cluster(NUM, "topology", "ring-of-rings")),
        ("TS-DOC-005", cluster(NUM, "colour", "red")),
    ],
)
def test_the_same_of_many_items_is_one_finding(requirement: str, data: dict[str, Any]) -> None:
    report = judge(data, requirement)
    [found] = report.findings
    place = "fabrics[{}]" if found.pointer[0] == "fabrics" else "node_groups[0].nics[{}]"
    assert "the same in 199 more places: " in found.message
    assert all(place.format(number) in found.message for number in (1, 2, 3))
    assert found.message.endswith(" and 196 more")
    assert [other.span is not None for other in found.related] == [True] * 3
    assert found.span is not None
    assert all(other.span and other.span > found.span for other in found.related)
    for name in FORMATS:
        text = render(report, name)
        assert 1 <= text.count("199 more places") <= 2 or name == "statistics", name


def test_few_are_listed_one_by_one() -> None:
    for number, expected in ((MAX_ALIKE, MAX_ALIKE), (MAX_ALIKE + 1, 1)):
        assert len(judge(cluster(number, "failover_evidence"), EVIDENCE).findings) == expected


def test_other_values_are_other_findings() -> None:
    data = cluster(10, "topology")
    for number, fabric in enumerate(data["fabrics"]):
        fabric["topology"] = f"ring-{number}"
    assert len(judge(data, "TS-DOC-008").findings) == 10


def test_a_comment_silences_one_place() -> None:
    lines = json.dumps(cluster(10, "failover_evidence"), indent=1).splitlines()
    first = judge("\n".join(lines), EVIDENCE).findings[0]
    assert first.span is not None
    lines[first.span.line - 1] += f"  # trainspec: ignore[{EVIDENCE}] measured later"
    report = judge("\n".join(lines), EVIDENCE)
    assert [entry.finding.pointer for entry in report.suppressed] == [first.pointer]
    [found] = report.findings
    assert found.span is not None
    assert found.span > first.span
    assert "the same in 8 more places: " in found.message


def test_a_baseline_holds_every_place() -> None:
    for requirement, key in ((EVIDENCE, "failover_evidence"), (LACK, "topology")):
        baseline = Baseline("baseline.json", "write")
        assert judge(cluster(NUM, key), requirement, baseline=baseline).findings == ()
        assert baseline.write() == NUM
        report = judge(cluster(NUM + 1, key), requirement, baseline="baseline.json")
        assert [found.pointer[:2] for found in report.findings] == [("fabrics", NUM)]
        fewer = judge(cluster(NUM - 1, key), requirement, baseline="baseline.json").findings
        assert [(found.requirement, found.path) for found in fewer] == [("TS-DOC-016", "baseline.json")]
        Path("baseline.json").unlink()
