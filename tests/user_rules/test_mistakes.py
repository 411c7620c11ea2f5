"""A rule that cannot be used is told with its file, its line, its id, and what would be right."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from rule_makers import write_rules, yaml_rule

from trainspec_validate.telemetry.user_rules import RuleError, read_rules

GROUPED: dict[str, Any] = {"group_by": ["run"], "aggregate": {"n": {"count": True}}, "message": "{n}"}
DEEP: Any = "warmup"
for _ in range(40):
    DEEP = {"not": DEEP}

WRONG: list[tuple[dict[str, Any], str]] = [
    ({"report": "valeu"}, "unknown column 'valeu'; did you mean 'value'?"),
    ({"report": {"equal": ["metric", "hw.power"]}}, "unknown column 'hw.power'; a text is written {text: hw.power}"),
    ({"report": "value"}, "this is a number, and a condition, true or false is wanted here"),
    ({"select": {"less": ["metric", 3]}}, "this is a text, and a number is wanted here"),
    ({"report": {"equal": ["metric", 3]}}, "this is a number, and a text is wanted here"),
    ({"report": {"lss": ["value", 3]}}, "unknown operator 'lss'; did you mean 'less'?"),
    ({"report": {"less": ["value"]}}, "the operator takes a list of 2 expressions"),
    ({"report": {"all": ["warmup"]}}, "the operator takes a list of 2 or more expressions"),
    ({"report": {"less": ["value", 3], "not": True}}, "an expression is a column, a number, or one operator"),
    ({"report": {"text": 3}}, "text holds a text"),
    ({"report": {"one_of": ["step", ["a"]]}}, "one_of takes an expression and a list of numbers"),
    ({"report": {"contains": ["metric", 1]}}, "the second argument is the text to look for"),
    ({"report": {"greater": [{"lag": "value"}, 1]}}, "lag looks at other rows: give it a name in `columns`"),
    ({"columns": {"a": {"mean": {"lag": "value"}}}}, "lag looks at other rows"),
    ({"columns": {"a": {"mean": "metric"}}}, "mean takes a number, and this is a text"),
    ({"columns": {"a": {"rolling_mean": "value"}}}, "window of rolling_mean is a whole number from 2 to 100000"),
    ({"columns": {"a": {"lag": {"of": "value", "by": True}}}}, "by of lag is a whole number from 1"),
    ({"columns": {"a": {"lag": {"of": "value", "at": 1}}}}, "lag has no option 'at'; it has by, of, over"),
    ({"columns": {"a": {"mean": {"of": "value", "over": ["hots"]}}}}, "over names 'hots', which is no column here"),
    ({"columns": {"a": {"quantile": {"of": "value", "at": 2}}}}, "at of quantile is a number from 0 to 1"),
    ({"columns": {"value": 1}}, "there is a column value already"),
    ({"columns": {"a": 1e400}}, "a number is finite"),
    ({"group_by": ["run"]}, "group_by and aggregate go together"),
    ({**GROUPED, "group_by": ["rnu"]}, "group_by names 'rnu', which is no column here"),
    ({**GROUPED, "aggregate": {"n": {"lag": "value"}}}, "lag looks at other rows"),
    ({**GROUPED, "aggregate": {"n": "value"}}, "a group has many values of value; take one, such as {maximum: value}"),
    ({**GROUPED, "report": {"less": ["value", 1]}}, "unknown column 'value'"),
    ({"message": "{setp}"}, "the message shows {setp}, which is no column here"),
    ({"message": "{value.real}"}, "a brace in the message is no field"),
    ({"report": DEEP}, "nested more than 30 deep"),
    ({"limit": 0}, "limit: 0 is too small; the least is 1"),
    ({"id": "TS-PAR-001"}, "TS-PAR-001"),
    ({"table": "spans"}, "table"),
    ({"colour": "red"}, "colour"),
]


@pytest.mark.parametrize(("keys", "words"), WRONG, ids=[words[:40] for _, words in WRONG])
def test_a_wrong_rule_in_yaml_is_told(keys: dict[str, Any], words: str, tmp_path: Path) -> None:
    path = write_rules(tmp_path / "rules.yaml", yaml_rule(**keys))
    if "a number is finite" in words:
        path.write_text(path.read_text().replace("Infinity", "9" * 30))
    with pytest.raises(RuleError) as told:
        read_rules([str(path)])
    assert str(told.value).startswith(f"{path}:1: ")
    assert words in str(told.value)


def test_the_line_is_that_of_the_mistake(tmp_path: Path) -> None:
    path = tmp_path / "rules.yaml"
    keys = (
        "apiVersion: trainspec/v1\nkind: UserRules\nrules:\n- id: ACME-001\n  title: t\n  level: MUST\n  message: m\n"
    )
    path.write_text(keys + "  table: samples\n  select: true\n  report:\n    less:\n    - value\n    - stpe\n")
    with pytest.raises(RuleError, match=r"rules\.yaml:13: ACME-001: unknown column 'stpe'"):
        read_rules([str(path)])


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("kind: UserRules\nkind: UserRules\n", r":2: .*kind"),
        ("apiVersion: trainspec/v1\nkind: Waivers\nwaivers: []\n", ":1: this is a Waivers; a file of rules is of kind"),
        ("apiVersion: trainspec/v1\nkind: UserRule\n", ":2: kind is 'UserRule'.*write kind: UserRules"),
        ("apiVersion: trainspec/v1\nkind: UserRules\nrules: []\n", ":3: "),
        ("rules: !!python/object/apply:os.system [true]\n", ":1: "),
    ],
)
def test_a_file_that_holds_no_rules_is_told(text: str, words: str, tmp_path: Path) -> None:
    path = tmp_path / "rules.yaml"
    path.write_text(text)
    with pytest.raises(RuleError, match=words):
        read_rules([str(path)])


RULE = """\
from trainspec_validate.telemetry.user_rules import rule

@rule(id="ACME-101", level="MUST", title="t", message="m", events=["train.run.end"])
def never(tables): ...
"""


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("", r"rules\.py:1: the file makes no rule"),
        ("x = 1\ny = 1 / 0\n", r"rules\.py:2: ZeroDivisionError"),
        ("def f(:\n", r"rules\.py:1: SyntaxError"),
        ("import no_such_library\n", r"rules\.py:1: ModuleNotFoundError"),
        (RULE.replace("ACME-101", "TS-PAR-001"), r"rules\.py:3: ValidationError.*id"),
        (RULE.replace('["train.run.end"]', "[]"), r"rules\.py:3: ValueError: ACME-101: name the metrics or the events"),
        (RULE.replace('"m"', '"m", limit=0'), r"rules\.py:3: ValidationError.*limit"),
        (RULE.replace('"m"', '"{x.y}"'), r"rules\.py:3: ValueError: ACME-101: a brace in the message"),
    ],
)
def test_a_wrong_file_in_python_is_told(text: str, words: str, tmp_path: Path) -> None:
    path = tmp_path / "rules.py"
    path.write_text(text)
    with pytest.raises(RuleError, match=words):
        read_rules([str(path)])


def test_files_that_are_not_there_are_told(tmp_path: Path) -> None:
    for name in ("none.py", "none.yaml"):
        with pytest.raises(RuleError, match="cannot be read"):
            read_rules([str(tmp_path / name)])
