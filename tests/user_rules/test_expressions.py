"""What each operator of a rule in YAML gives, on DuckDB and on Polars."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import pytest
from rule_makers import all_rows, files_in, rows, tables_of, values, write_rules, write_stream, yaml_rule

from trainspec_validate.telemetry.user_rules import NotApplicable, read_rules
from trainspec_validate.telemetry.user_rules.model import Engine

NUMBERS = [4.0, 1.0, 3.0, 3.0, 8.0, "NaN"]
BOTH = pytest.mark.parametrize("engine", ["duckdb", "polars"])
ABSENT = None

COMPUTED: list[tuple[Any, list[float | None]]] = [
    ({"add": ["value", 1, "step"]}, [6, 4, 7, 8, 14, ABSENT]),
    ({"subtract": ["value", 1]}, [3, 0, 2, 2, 7, ABSENT]),
    ({"multiply": ["value", 2, 0.5]}, [4, 1, 3, 3, 8, ABSENT]),
    ({"divide": [6, {"subtract": ["value", 3]}]}, [6, -3, ABSENT, ABSENT, 1.2, ABSENT]),
    ({"absolute": {"subtract": ["value", 4]}}, [0, 3, 1, 1, 4, ABSENT]),
    ({"lag": "value"}, [ABSENT, 4, 1, 3, 3, 8]),
    ({"lag": {"of": "value", "by": 3}}, [ABSENT, ABSENT, ABSENT, 4, 1, 3]),
    ({"difference": "value"}, [ABSENT, -3, 2, 0, 5, ABSENT]),
    ({"running_maximum": "step"}, [1, 2, 3, 4, 5, 6]),
    ({"running_minimum": {"of": "step"}}, [1, 1, 1, 1, 1, 1]),
    ({"running_sum": "step"}, [1, 3, 6, 10, 15, 21]),
    ({"rolling_mean": {"of": "value", "window": 2}}, [4, 2.5, 2, 3, 5.5, 8]),
    ({"rolling_sum": {"of": "value", "window": 3}}, [4, 5, 8, 7, 14, 11]),
    ({"rolling_std": {"of": "step", "window": 2}}, [ABSENT, *[math.sqrt(0.5)] * 5]),
    ({"maximum": "value"}, [8] * 6),
    ({"minimum": {"of": "value", "over": ["run"]}}, [1] * 6),
    ({"mean": "value"}, [3.8] * 6),
    ({"sum": "value"}, [19] * 6),
    ({"std": "step"}, [math.sqrt(3.5)] * 6),
    ({"median": "value"}, [3] * 6),
    ({"count": "value"}, [5] * 6),
    ({"count": True}, [6] * 6),
    ({"count": {"of": True, "over": ["run", "rank"]}}, [6] * 6),
]
CONDITIONS: list[tuple[Any, list[int]]] = [
    ({"less": ["value", 3]}, [2]),
    ({"at_most": ["value", 3]}, [2, 3, 4]),
    ({"greater": ["value", "step"]}, [1, 5]),
    ({"at_least": ["value", 4]}, [1, 5]),
    ({"equal": ["value", 3]}, [3, 4]),
    ({"not_equal": ["value", 3]}, [1, 2, 5]),
    ({"not": {"less": ["value", 4]}}, [1, 5]),
    ({"all": [{"less": ["step", 4]}, {"greater": ["value", 2]}, True]}, [1, 3]),
    ({"any": [{"equal": ["step", 6]}, {"greater": ["value", 7]}]}, [5, 6]),
    ({"is_absent": "value"}, [6]),
    ({"equal": ["not_finite", {"text": "NaN"}]}, [6]),
    ({"one_of": ["step", [2, 5, 9]]}, [2, 5]),
    ({"one_of": ["emitter", ["job", "other"]]}, [1, 2, 3, 4, 5, 6]),
    ({"starts_with": ["metric", "train.step"]}, [1, 2, 3, 4, 5, 6]),
    ({"contains": ["metric", "step.*dur"]}, []),
    ("warmup", []),
]


@BOTH
def test_operators_compute(engine: Engine, tmp_path: Path) -> None:
    columns = {f"c{number}": expression for number, (expression, _) in enumerate(COMPUTED)}
    found = rows(tmp_path, NUMBERS, engine, columns=columns)
    assert len(found) == len(NUMBERS)
    for number, (expression, wanted) in enumerate(COMPUTED):
        seen = [row[f"c{number}"] for row in found]
        assert seen == [pytest.approx(value) for value in wanted], expression


@BOTH
@pytest.mark.parametrize(("condition", "steps"), CONDITIONS, ids=lambda value: str(value)[:40])
def test_conditions_choose(condition: Any, steps: list[int], engine: Engine, tmp_path: Path) -> None:
    assert [row["step"] for row in rows(tmp_path, NUMBERS, engine, report=condition)] == steps


@BOTH
def test_groups_have_their_columns(engine: Engine, tmp_path: Path) -> None:
    keys = {
        "message": "{tail}",
        "group_by": ["run", "metric"],
        "aggregate": {
            "low": {"minimum": "value"},
            "high": {"maximum": "value"},
            "last_emitter": {"maximum": "emitter"},
            "tail": {"quantile": {"of": "value", "at": 0.75}},
            "middle": {"median": {"add": ["value", 1]}},
            "kinds": {"distinct": "step"},
            "known": {"count": "value"},
            "spread": {"std": "step"},
        },
        "derive": {"range": {"subtract": ["high", "low"]}, "double": {"multiply": ["range", 2]}},
    }
    (found,) = rows(tmp_path, NUMBERS, engine, **keys)
    wanted = {"low": 1, "high": 8, "tail": 4, "middle": 4, "kinds": 6, "known": 5, "spread": math.sqrt(3.5)}
    assert {name: found[name] for name in wanted} == {name: pytest.approx(value) for name, value in wanted.items()}
    assert (found["range"], found["double"], found["num_rows"], found["last_emitter"]) == (7, 14, 6, "job")
    assert found["last_time_us"] - found["first_time_us"] == 5_000_000


@BOTH
def test_a_series_ends_where_its_attempt_ends(engine: Engine, tmp_path: Path) -> None:
    write_stream(tmp_path / "run" / "a.jsonl", values([1.0, 2.0]))
    write_stream(tmp_path / "run" / "b.jsonl", values([7.0, 9.0]), att=1)
    rule = yaml_rule(columns={"change": {"difference": "value"}})
    rules = read_rules([str(write_rules(tmp_path / "rules.yaml", rule))])
    with tables_of(files_in(tmp_path / "run"), tmp_path / "tables", engine) as tables:
        found = all_rows(rules, tables)["ACME-001"]
    assert sorted((row["attempt"], row["step"], row["change"]) for row in found if row["change"] is not None) == [
        *((0, 2, 1.0), (1, 2, 2.0)),
    ]


@BOTH
def test_nothing_selected_is_not_applicable(engine: Engine, tmp_path: Path) -> None:
    with pytest.raises(NotApplicable, match="samples has no row that the rule selects"):
        rows(tmp_path, NUMBERS, engine, select={"equal": ["metric", {"text": "hw.power"}]})
