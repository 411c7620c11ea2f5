"""Rules of users that raise what ends a process, or are too large, are errors of their file."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result
from rule_makers import values, write_rules, write_stream, yaml_rule

from trainspec_validate.cli.validate import command

RAISED = [
    "SystemExit(0)",
    "SystemExit",
    "KeyboardInterrupt",
    "GeneratorExit",
    "MemoryError",
    "BaseException('own')",
    "type('Own', (KeyboardInterrupt,), {})",
    "type('Own', (BaseException,), {'__str__': lambda self: exit(0)})",
]
RULE = """\
from trainspec_validate.telemetry.user_rules import rule


@rule(id="ACME-900", level="MUST", title="never", message="never", metrics=["train.step.duration"])
def never(tables):
    raise {raised}
"""


@pytest.fixture(autouse=True)
def _here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    write_stream(Path("job.jsonl"), values([5.0, 5.0]))


def invoke(rules: str) -> Result:
    return CliRunner().invoke(command, ["job.jsonl", "--rules", rules, "--fail-on", "never"])


@pytest.mark.parametrize("raised", RAISED)
def test_a_file_that_ends_the_process_is_an_error_of_the_file(raised: str) -> None:
    Path("own.py").write_text(f"\nraise {raised}\n", encoding="utf-8")
    found = invoke("own.py")
    assert found.exit_code == 2
    assert "own.py:2: " in found.stderr


@pytest.mark.parametrize("raised", RAISED)
def test_a_rule_that_ends_the_process_is_an_error_of_the_rule(raised: str) -> None:
    Path("own.py").write_text(RULE.format(raised=raised), encoding="utf-8")
    found = invoke("own.py")
    assert found.exit_code == 2
    assert "own.py:6: ACME-900: " in found.stderr


@pytest.mark.parametrize(
    "report",
    [
        {"any": [{"less": ["value", number]} for number in range(20_000)]},
        {"one_of": ["value", list(range(100_000))]},
        {"add": [1.5] * 3_000},
    ],
    ids=["any", "one_of", "add"],
)
def test_a_rule_that_is_too_large_is_refused_with_the_limit(report: Any) -> None:
    write_rules(Path("own.yaml"), yaml_rule(report=report))
    found = invoke("own.yaml")
    assert found.exit_code == 2
    assert "ACME-001: a rule of a user may have at most 2,000 values in its expressions" in found.stderr


def test_the_largest_rule_is_judged() -> None:
    parts = [{"less": ["value", number]} for number in range(480)]
    write_rules(Path("own.yaml"), yaml_rule(report={"any": parts}))
    assert "ACME-001" in invoke("own.yaml").stdout
