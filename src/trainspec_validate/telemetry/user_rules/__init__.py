"""Runs rules which users write, in YAML or Python, on the records of runs."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

from trainspec_validate.checking.registry import NotApplicable
from trainspec_validate.telemetry.user_rules.model import Engine, Rule, RuleError, RuleSet, Tables
from trainspec_validate.telemetry.user_rules.python_rules import read_python, rule

CODE_SUFFIX = ".py"
"""A file of this name is run; every other is read as YAML or JSON."""

__all__ = ["CODE_SUFFIX", "Engine", "NotApplicable", "Rule", "RuleError", "RuleSet", "Tables", "read_rules", "rule"]


def read_rules(paths: Iterable[str], engine: Engine = "duckdb") -> RuleSet:
    """The rules of the files that the command line names; a Python file among them is run.

    Raises:
        RuleError: a file cannot be read, or a rule is wrong.
    """
    found: list[Rule] = []
    for path in paths:
        if path.endswith(CODE_SUFFIX):
            found += read_python(Path(path))
        else:
            from trainspec_validate.telemetry.user_rules.yaml_rules import read_yaml  # noqa: PLC0415 - brings the schemas

            found += read_yaml(Path(path))
    return RuleSet(tuple(found), engine)
