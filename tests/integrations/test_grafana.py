"""The dashboard of a run: its form, its grid, and that every panel shows something of a run that writes everything."""

from __future__ import annotations

import json
from itertools import combinations
from pathlib import Path
from typing import Any

import grafana_dashboard
import prometheus_rules
import pytest
import yaml
from promql import Names

from tests.every import every
from tests.integrations.made_run import input_series
from tests.integrations.promql_words import FOLDER, promtool, words

ROOT = Path(__file__).resolve().parents[2]
SPECIFICATION = ROOT / "spec" / "v1"
NAMES = Names.of(SPECIFICATION)
FILE = ROOT / "integrations" / "grafana" / "trainspec-run.json"
DASHBOARD: dict[str, Any] = json.loads(FILE.read_text(encoding="utf-8"))
PANELS: list[dict[str, Any]] = DASHBOARD["panels"]
PICTURES = [panel for panel in PANELS if panel["type"] != "row"]
EXPRESSIONS = [target["expr"] for panel in PICTURES for target in panel["targets"]]
KINDS = {"row", "stat", "timeseries", "status-history"}
UNITS = {"none", "s", "percentunit", "watt", "celsius", "bytes", "Bps"}
ANYTHING = "ALERTS"
RUN = '"$run"'


def panel_id(panel: dict[str, Any]) -> str:
    return f"{panel['id']}-{panel['title'].replace(' ', '-')}"


def test_it_is_as_generated() -> None:
    (text,) = grafana_dashboard.dashboard(SPECIFICATION).values()
    assert FILE.read_text(encoding="utf-8") == text, "run: make generate"


def test_the_ten_groups() -> None:
    rows = [panel["title"] for panel in PANELS if panel["type"] == "row"]
    assert rows == [
        *("Run", "Time of a step", "Throughput", "Learning", "Completeness"),
        *("Devices", "Network", "Checkpoints", "Faults and recoveries", "Telemetry"),
    ]


def test_ids_and_kinds() -> None:
    ids = [panel["id"] for panel in PANELS]
    assert len(ids) == len(set(ids))
    assert {panel["type"] for panel in PANELS} == KINDS
    for panel in PICTURES:
        references = [target["refId"] for target in panel["targets"]]
        assert references
        assert len(references) == len(set(references))
        assert panel["description"].endswith(".")
        assert panel["fieldConfig"]["defaults"]["unit"] in UNITS


def test_panels_do_not_overlap() -> None:
    places = [(panel["title"], *(panel["gridPos"][key] for key in "xywh")) for panel in PANELS]
    for title, left, top, width, height in places:
        assert left >= 0, title
        assert top >= 0, title
        assert width > 0, title
        assert height > 0, title
        assert left + width <= 24, title
    for (one, x, y, w, h), (other, x2, y2, w2, h2) in combinations(places, 2):
        assert x + w <= x2 or x2 + w2 <= x or y + h <= y2 or y2 + h2 <= y, (one, other)


def test_panels_stand_below_their_row() -> None:
    tops = [panel["gridPos"]["y"] for panel in PANELS]
    assert tops == sorted(tops)


def test_it_belongs_to_no_place() -> None:
    """The data source and the run are variables, so the file is loaded as it is."""
    variables = {each["name"]: each for each in DASHBOARD["templating"]["list"]}
    assert set(variables) == {"datasource", "run"}
    sources = {json.dumps(target["datasource"]) for panel in PICTURES for target in (panel, *panel["targets"])}
    assert sources == {json.dumps({"type": "prometheus", "uid": "${datasource}"})}
    assert words(variables["run"]["query"]["query"].removeprefix("label_values")).series == {
        "train_run:step_count:max",
        "train_run_id",
    }


@every("panel", PICTURES, ids=panel_id)
def test_a_panel_names_what_there_is(panel: dict[str, Any]) -> None:
    for target in panel["targets"]:
        found = words(target["expr"])
        assert found.series - NAMES.series() - prometheus_rules.records() - {ANYTHING} == set()
        assert found.labels - NAMES.labels() - {"alertstate"} == set()
        for selector in target["expr"].split("{")[1:]:
            assert selector.startswith(f"train_run_id={RUN}"), "each selector is of the run"
        assert target["expr"].count("{") >= len(found.series)


def test_the_questions_that_every_job_owes_are_answered() -> None:
    """A metric that answers a question of the catalog is shown, or an alert stands on it."""
    rules = [rule for text in prometheus_rules.rules(SPECIFICATION, []).values() for rule in _rules(text)]
    shown = {name for expression in EXPRESSIONS for name in words(expression).series}
    for _ in range(3):  # records stand on records
        shown |= {name for rule in rules if rule.get("record") in shown for name in words(rule["expr"]).series}
    alerted = {name for rule in rules if "alert" in rule for name in words(rule["expr"]).series}
    owed = [metric for each in NAMES.catalog.owed for metric in each.metrics]
    missing = [name for name in owed if not any(name.replace(".", "_") in series for series in shown | alerted)]
    assert missing == ["train.memory.allocator.reserved"]  # a level without a limit says nothing at a glance


def _rules(text: str) -> list[dict[str, Any]]:
    return [rule for group in yaml.safe_load(text)["groups"] for rule in group["rules"]]


def test_promtool_reads_every_expression(tmp_path: Path) -> None:
    rules = [{"record": f"x{number}", "expr": expression} for number, expression in enumerate(EXPRESSIONS)]
    path = tmp_path / "expressions.yaml"
    path.write_text(yaml.safe_dump({"groups": [{"name": "dashboard", "rules": rules}]}), encoding="utf-8")
    assert f"{len(EXPRESSIONS)} rules found" in promtool("check", "rules", str(path))


@pytest.mark.slow
def test_every_panel_and_record_shows_a_run_that_writes_everything(tmp_path: Path) -> None:
    asked = [expression.replace("$run", "r") for expression in EXPRESSIONS]
    asked += [f'{record}{{train_run_id="r"}}' for record in sorted(prometheus_rules.records())]
    checks = [
        {"expr": f"count({each}) > bool 0", "eval_time": "35m", "exp_samples": [{"labels": "{}", "value": 1}]}
        for each in asked
    ]
    test = {"interval": "30s", "input_series": input_series(), "promql_expr_test": checks}
    groups = [group["name"] for group in yaml.safe_load((FOLDER / "recording-rules.yaml").read_text("utf-8"))["groups"]]
    case = {
        "rule_files": [str(FOLDER / "recording-rules.yaml")],
        "evaluation_interval": "30s",
        "group_eval_order": groups,
        "tests": [test],
    }
    path = tmp_path / "run.yaml"
    path.write_text(yaml.safe_dump(case, sort_keys=False), encoding="utf-8")
    assert "SUCCESS" in promtool("test", "rules", str(path))
