"""The recorder's catalog says what the table of the specification says."""

from __future__ import annotations

from pathlib import Path

import pytest
import recorder_catalog

from tests.every import every
from trainspec_record import catalog as recorder
from trainspec_record.catalog import attributes as attribute_names
from trainspec_record.catalog import events as event_names
from trainspec_record.catalog import metrics as metric_names
from trainspec_validate.model.metrics import catalog, events, metrics

ROOT = Path(__file__).resolve().parents[2]
MODULES = recorder_catalog.modules(ROOT / "spec" / "v1")


@pytest.mark.parametrize("name", MODULES)
def test_modules_are_as_generated(name: str) -> None:
    path = ROOT / "record" / "trainspec_record" / "catalog" / name
    assert path.read_text(encoding="utf-8") == MODULES[name], "run: make generate"


def test_everything_is_there_once() -> None:
    assert list(recorder.METRICS) == list(metrics())
    assert list(recorder.EVENTS) == list(events())
    assert list(recorder.ATTRIBUTES) == list(catalog().attributes)


@every("name", metrics())
def test_a_metric_is_that_of_the_table(name: str) -> None:
    mine, table = recorder.METRICS[name], metrics()[name]
    assert (mine.name, mine.unit, mine.instrument, mine.also) == (name, table.unit, table.instrument, table.also)
    assert (mine.scopes, mine.cadences, mine.level) == (table.scopes, table.cadences, table.level)
    assert (mine.profile, mine.synonym, mine.nonfinite) == (table.profile, table.synonym, table.nonfinite)
    listed = {*mine.series, *mine.optional_series, *mine.declared, *mine.readings}
    assert listed == {*table.attributes, *table.optional_attributes} - {"hw.id", "host.id"}
    roles = catalog().attributes
    assert {roles[each].role for each in (*mine.series, *mine.optional_series)} <= {"series"}
    assert {roles[each].role for each in mine.declared} <= {"declared"}
    assert {roles[each].role for each in mine.readings} <= {"reading"}


@every("name", events())
def test_an_event_is_that_of_the_table(name: str) -> None:
    mine, table = recorder.EVENTS[name], events()[name]
    assert (mine.name, mine.scope, mine.attributes) == (name, table.scope, table.attributes)
    assert (mine.optional_attributes, mine.values) == (table.optional_attributes, table.values)
    assert mine.closed_by == table.closed_by
    assert mine.severity == {"info": 9, "warn": 13, "error": 17, "fatal": 21}[table.severity]


def test_attributes_are_those_of_the_table() -> None:
    for name, mine in recorder.ATTRIBUTES.items():
        table = catalog().attributes[name]
        assert mine == (name, table.role, table.type, table.values, table.open)


def test_constants() -> None:
    assert metric_names.STEP_COUNT is recorder.METRICS["train.step.count"]
    assert metric_names.HW_ERRORS.series == ("hw.type", "error.type")
    assert event_names.CHECKPOINT_COMMIT.severity == 9
    assert attribute_names.CHECKPOINT_PHASE.values == ("blocking", "persist", "total")
    assert recorder.CADENCE_SECONDS == {"C1": 1, "C10": 10, "C30": 30, "C60": 60, "C300": 300}


def test_two_names_with_one_constant_are_refused(tmp_path: Path) -> None:
    table = (ROOT / "spec" / "v1" / "metrics.yaml").read_text(encoding="utf-8")
    clash = table.replace("  - name: train.step.skipped\n", "  - name: train.step_count\n", 1)
    (tmp_path / "metrics.yaml").write_text(clash, encoding="utf-8")
    with pytest.raises(ValueError, match=r"train\.step_count and train\.step\.count would both be STEP_COUNT"):
        recorder_catalog.modules(tmp_path)
