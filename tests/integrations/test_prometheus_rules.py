"""Names, rules and alerts for Prometheus: names are those of the catalog, and promtool agrees with the cases."""

from __future__ import annotations

import importlib
import re
from pathlib import Path
from typing import Any

import prometheus_alerts
import prometheus_rules
import pytest
import spec_text
import yaml
from promql import Alert, Names

from tests.every import every
from tests.integrations.promql_words import FOLDER, promtool, words
from trainspec_validate.model.metrics import metrics
from trainspec_validate.model.metrics.prometheus import prometheus_name, prometheus_names

ROOT = Path(__file__).resolve().parents[2]
SPECIFICATION = ROOT / "spec" / "v1"
NAMES = Names.of(SPECIFICATION)
REQUIREMENTS = spec_text.requirements(SPECIFICATION)
RULES = {path.name: yaml.safe_load(path.read_text(encoding="utf-8")) for path in sorted(FOLDER.glob("*-rules.yaml"))}
CASES = {path.name: yaml.safe_load(path.read_text(encoding="utf-8")) for path in sorted((FOLDER / "tests").iterdir())}
GROUPS = [
    group for content in (RULES["recording-rules.yaml"], RULES["alert-rules.yaml"]) for group in content["groups"]
]
EVERY: list[dict[str, Any]] = [rule for group in GROUPS for rule in group["rules"]]
ALERTS = [rule for rule in EVERY if "alert" in rule]
RECORDS = [rule["record"] for rule in EVERY if "record" in rule]


def rule_id(rule: dict[str, Any]) -> str:
    return str(rule.get("alert") or rule.get("record"))


# --- limits -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("module", "constant", "alerts"),
    [
        ("clocks", "LARGEST_OFFSET_SECONDS", ["TrainClockOff"]),
        ("pace", "DRIFT", ["TrainSlowedDown"]),
        ("pace", "SLOW_FACTOR", ["TrainStraggler"]),
        ("transport", "LONGEST_LAG_SECONDS", ["TrainTelemetryLate"]),
        ("work", "BUSY_SHARE", ["TrainBusyWithoutWork", "TrainNoProgress"]),
        ("work", "WORK_SHARE", ["TrainBusyWithoutWork"]),
    ],
)
def test_limits_of_alerts_are_those_of_the_checks(
    module: str, constant: str, alerts: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    before = expressions()
    monkeypatch.setattr(f"trainspec_validate.telemetry.checks.{module}.{constant}", 7.25)
    try:
        importlib.reload(prometheus_alerts)
        after = expressions()
    finally:
        monkeypatch.undo()
        importlib.reload(prometheus_alerts)
    assert sorted(name for name, expression in after.items() if expression != before[name]) == alerts
    assert all("7.25" in after[name] or "8.25" in after[name] for name in alerts)


def expressions() -> dict[str, str]:
    rules = (rule for group in prometheus_alerts.GROUPS for rule in group.rules)
    return {rule.name: rule.template for rule in rules if isinstance(rule, Alert)}


# --- names --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "unit", "instrument", "expected"),
    [
        ("system.memory.usage", "By", "updowncounter", "system_memory_usage_bytes"),
        ("system.cpu.utilization", "1", "gauge", "system_cpu_utilization_ratio"),
        ("http.server.request.duration", "s", "histogram", "http_server_request_duration_seconds"),
        ("http.server.active_requests", "{request}", "updowncounter", "http_server_active_requests"),
        ("hw.network.io", "By", "counter", "hw_network_io_bytes_total"),
        ("hw.energy", "J", "counter", "hw_energy_joules_total"),
        ("hw.temperature", "Cel", "gauge", "hw_temperature_celsius"),
        ("train.step.count", "{step}", "counter", "train_step_count_total"),
        ("train.token.rate", "{token}/s", "gauge", "train_token_rate_per_second"),
        ("train.collective.bandwidth", "By/s", "gauge", "train_collective_bandwidth_bytes_per_second"),
    ],
)
def test_names_are_those_of_opentelemetry_in_prometheus(name: str, unit: str, instrument: str, expected: str) -> None:
    assert prometheus_name(name, unit, instrument) == expected


def test_a_unit_without_a_word_is_refused() -> None:
    with pytest.raises(KeyError):
        prometheus_name("train.step.duration", "ms", "gauge")


def test_every_metric_has_names_of_its_own() -> None:
    every = [name for metric in metrics().values() for name in prometheus_names(metric)]
    assert len(every) == len(set(every))
    assert all(re.fullmatch(r"[a-z][a-z0-9_]*", name) for name in every)
    assert set(prometheus_names(metrics()["train.step.duration"])) == {
        "train_step_duration_seconds",
        "train_step_duration_seconds_bucket",
        "train_step_duration_seconds_sum",
        "train_step_duration_seconds_count",
    }
    assert prometheus_names(metrics()["hw.gpu.utilization"])[1] == "train_accelerator_busy_ratio"


@pytest.mark.parametrize(
    "template",
    ["<train.step.counts>", "<@train.ranks>", "<train.loss.mean/sum>", "<train.network.latency>", "<run/sum>"],
)
def test_a_template_that_names_nothing_is_refused(template: str) -> None:
    with pytest.raises(ValueError, match=re.escape(template)):
        NAMES.render(f"max({template})")


# --- rules --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", RULES)
def test_files_are_as_generated(name: str) -> None:
    wanted = prometheus_rules.rules(SPECIFICATION, REQUIREMENTS)
    assert (FOLDER / name).read_text(encoding="utf-8") == wanted[name], "run: make generate"


def test_names_of_rules_are_unique() -> None:
    assert len(RECORDS) == len(set(RECORDS)) > 30
    assert frozenset(RECORDS) == prometheus_rules.records()
    names = [rule["alert"] for rule in ALERTS]
    assert len(names) == len(set(names)) > 20
    assert all(re.fullmatch(r"train_(run|rank|host|group|device|pair):[a-z0-9_]+:[a-z0-9_]+", name) for name in RECORDS)


@every("rule", EVERY, ids=rule_id)
def test_a_rule_names_what_there_is(rule: dict[str, Any]) -> None:
    found = words(rule["expr"])
    assert found.series
    assert found.series - NAMES.series() - set(RECORDS) == set()
    assert found.labels - NAMES.labels() == set()
    assert "train_run_id" in found.labels or found.series <= set(RECORDS)


def test_every_record_is_used() -> None:
    dashboard = (ROOT / "integrations" / "grafana" / "trainspec-run.json").read_text(encoding="utf-8")
    used = {name for rule in EVERY for name in words(rule["expr"]).series}
    assert [name for name in RECORDS if name not in used and f"{name}{{" not in dashboard] == []


@every("rule", ALERTS, ids=rule_id)
def test_an_alert_says_what_where_and_why(rule: dict[str, Any]) -> None:
    labels, annotations = rule["labels"], rule["annotations"]
    assert labels["severity"] in {"critical", "warning"}
    assert len(annotations["description"]) > 60
    assert annotations["description"].endswith(".")
    assert "{{ $labels." in annotations["summary"]
    assert set(re.findall(r"\$labels\.(\w+)", annotations["summary"])) <= NAMES.labels()
    pages = {each["id"]: f"https://trainspec.org/v1/{each['chapter']}/#{each['id']}" for each in REQUIREMENTS}
    assert annotations["runbook_url"] == pages.get(labels["requirement"], prometheus_rules.CATALOG_PAGE)


@every("rule", ALERTS, ids=rule_id)
def test_an_alert_belongs_to_a_requirement(rule: dict[str, Any]) -> None:
    assert rule["labels"]["requirement"] in {each["id"] for each in REQUIREMENTS}


# --- cases --------------------------------------------------------------------------------------------------


def cases(name: str) -> list[dict[str, Any]]:
    """Checks of the tests that are about an alert."""
    tests = [test for content in CASES.values() for test in content["tests"] if name in test["name"]]
    return [check for test in tests for check in test["promql_expr_test"]]


@every("rule", ALERTS, ids=rule_id)
def test_an_alert_has_a_case_of_both_signs(rule: dict[str, Any]) -> None:
    name = rule["alert"]
    firing = [check for check in cases(name) if any(f'"{name}"' in each["labels"] for each in check["exp_samples"])]
    firing += [check for check in cases(name) if f'"{name}", alertstate="firing"' in check["expr"]]
    silent = [check for check in cases(name) if "ALERTS" in check["expr"] and not check["exp_samples"]]
    assert [check for check in firing if check["exp_samples"]]
    assert silent


@every("name", CASES)
def test_cases_name_what_there_is(name: str) -> None:
    content = CASES[name]
    assert content["group_eval_order"] == [group["name"] for group in GROUPS]
    given = [series["series"] for test in content["tests"] for series in test["input_series"]]
    for found in map(words, given):
        assert found.series <= NAMES.series()
        assert found.labels <= NAMES.labels()


def test_promtool_reads_the_rules() -> None:
    output = promtool("check", "rules", *RULES)
    assert output.count("SUCCESS") == len(RULES)
    assert f"{len(ALERTS)} rules found" in output


@pytest.mark.slow
def test_promtool_agrees_with_the_cases() -> None:
    output = promtool("test", "rules", *(f"tests/{name}" for name in CASES))
    assert output.count("SUCCESS") == len(CASES)
