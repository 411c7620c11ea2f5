"""Makes streams and rules for the tests of rules of users, and runs them on an engine."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from trainspec_validate.telemetry.decode.run_file import RunFile
from trainspec_validate.telemetry.fold.engine import run_file
from trainspec_validate.telemetry.user_rules import RuleSet, Tables, read_rules
from trainspec_validate.telemetry.user_rules.engines import opened
from trainspec_validate.telemetry.user_rules.judge import rows_of
from trainspec_validate.telemetry.user_rules.model import Engine
from trainspec_validate.telemetry.user_rules.tables import write_tables

GUIDE = Path(__file__).resolve().parents[2] / "spec" / "guide" / "own-rules.md"
START_US = 1_772_000_000_000_000
HEAD = {"k": "head", "apiVersion": "trainspec/v1", "kind": "MetricStream", "run": "r-1", "att": 0, "emitter": "job"}


def shown_in_guide(title: str) -> str:
    """The file of that title in the guide."""
    found = re.search(
        rf'^```\w+ title="{re.escape(title)}"\n(.*?)^```$', GUIDE.read_text("utf-8"), re.MULTILINE | re.DOTALL
    )
    assert found, title
    return found[1]


def write_stream(path: Path, records: Sequence[dict[str, Any]], **head: Any) -> Path:
    """A stream of one emitter; records without time and number get their own, a second apart."""
    lines: list[dict[str, Any]] = [{**HEAD, "time_us": START_US, "scopes": ["job"], **head}]
    for number, record in enumerate(records):
        lines.append({"k": "m", "time_us": START_US + (number + 1) * 1_000_000, "seq": number, **record})
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("".join(json.dumps(line) + "\n" for line in lines), encoding="utf-8")
    return path


def values(numbers: Sequence[Any], metric: str = "train.step.duration") -> list[dict[str, Any]]:
    """One record for each value."""
    return [{"step": step, "m": {metric: number}} for step, number in enumerate(numbers, 1)]


def yaml_rule(**keys: Any) -> dict[str, Any]:
    """A rule on the durations of steps."""
    base = {"id": "ACME-001", "title": "a test", "level": "SHOULD", "message": "step {step}", "table": "samples"}
    selected = {"equal": ["metric", {"text": "train.step.duration"}]}
    return {**base, "select": selected, "report": True, **keys}


def write_rules(path: Path, *rules: dict[str, Any]) -> Path:
    """A file of rules."""
    path.write_text(json.dumps({"apiVersion": "trainspec/v1", "kind": "UserRules", "rules": rules}), "utf-8")
    return path


def files_in(directory: Path) -> list[RunFile]:
    """The streams of a directory."""
    return [run_file(number, path, path.name) for number, path in enumerate(sorted(directory.glob("*.jsonl")))]


@contextmanager
def tables_of(files: Sequence[RunFile], directory: Path, engine: Engine = "duckdb") -> Iterator[Tables]:
    """The tables of streams on an engine."""
    directory.mkdir(exist_ok=True)
    with opened(write_tables(files, directory), engine) as tables:
        yield tables


def all_rows(rules: RuleSet, tables: Tables) -> dict[str, list[dict[str, Any]]]:
    """The rows of every rule."""
    return {rule.id: [dict(row) for row in rows_of(rule, tables).rows] for rule in rules.rules}


def rows(tmp_path: Path, numbers: Sequence[Any], engine: Engine = "duckdb", **keys: Any) -> list[dict[str, Any]]:
    """The rows that a rule on durations of steps reports."""
    write_stream(tmp_path / "run" / "job.0.jsonl", values(numbers))
    rules = read_rules([str(write_rules(tmp_path / "rules.yaml", yaml_rule(**keys)))], engine)
    with tables_of(files_in(tmp_path / "run"), tmp_path / "tables", engine) as tables:
        return all_rows(rules, tables)["ACME-001"]
