"""Rules are run where the command line names them, and nowhere else; rules in YAML are never run as code."""

from __future__ import annotations

from pathlib import Path

import pytest
from click.testing import CliRunner, Result
from rule_makers import shown_in_guide, values, write_rules, write_stream, yaml_rule

from trainspec_validate.cli.validate import PROGRAM, command
from trainspec_validate.telemetry.user_rules.messages import filled

CODE = """\
from pathlib import Path

from trainspec_validate.telemetry.user_rules import rule

Path("was-run").touch()


@rule(id="ACME-900", level="MUST", title="never", message="never", metrics=["train.step.duration"])
def never(tables):
    return tables.samples
"""


@pytest.fixture(autouse=True)
def _own_directory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / ".git").mkdir()
    monkeypatch.chdir(tmp_path)
    write_stream(Path("run/job.0.jsonl"), values([5.0, 5.0]))
    for name in ("run/rules.py", "run/acme_rules.py", "run/conftest.py", "run/sitecustomize.py", "rules.py"):
        Path(name).write_text(CODE)


def invoke(*arguments: str) -> Result:
    return CliRunner().invoke(command, [*arguments, "--format", "json"], prog_name=PROGRAM)


def test_a_directory_with_rules_runs_none_of_them() -> None:
    write_rules(Path("run/rules.yaml"), yaml_rule())
    for arguments in (["run"], ["."], ["run/*"], ["run/job.0.jsonl", "run/rules.yaml"]):
        found = invoke(*arguments)
        assert found.exit_code == 0
        assert "ACME" not in found.stdout
    assert not Path("was-run").exists()


def test_the_rules_of_a_directory_are_run_where_they_are_named() -> None:
    assert "ACME-900" in invoke("run/job.0.jsonl", "--rules", "rules.py").stdout
    assert Path("was-run").exists()
    assert not Path("__pycache__").exists()


def test_naming_a_python_file_as_input_does_not_run_it() -> None:
    invoke("run/rules.py")
    invoke("run/job.0.jsonl", "rules.py")
    assert not Path("was-run").exists()


@pytest.mark.parametrize("name", ["rules.py", "rules.PY", "rules", "run/rules.py"])
def test_settings_cannot_name_code(name: str) -> None:
    Path("trainspec.toml").write_text(f'rules = ["{name}"]\n')
    found = invoke("run/job.0.jsonl")
    assert found.exit_code == 2
    assert "code is named on the command line only" in found.stderr
    assert not Path("was-run").exists()


def test_settings_may_name_data_below_them() -> None:
    write_rules(Path("rules.yaml"), yaml_rule())
    Path("trainspec.toml").write_text('rules = "rules.yaml"\nrules-engine = "polars"\n')
    assert "ACME-001" in invoke("run/job.0.jsonl").stdout
    Path("trainspec.toml").write_text('rules = ["../rules.yaml"]\n')
    found = invoke("run/job.0.jsonl")
    assert found.exit_code == 2
    assert "leads out of the directory" in found.stderr


@pytest.mark.parametrize(
    "text",
    [
        "rules: !!python/object/apply:pathlib.Path.touch [was-run]\n",
        "apiVersion: trainspec/v1\nkind: UserRules\nrules: !!python/name:os.system\n",
    ],
)
def test_tags_in_rules_construct_nothing(text: str) -> None:
    Path("rules.yaml").write_text(text)
    assert invoke("run/job.0.jsonl", "--rules", "rules.yaml").exit_code == 2
    assert not Path("was-run").exists()


@pytest.mark.parametrize("text", ["__import__('os')", "value) OR 1=1 --", "x\"; COPY samples TO 'was-run'; --", "*"])
def test_texts_in_rules_are_never_taken_for_code(text: str) -> None:
    for engine in ("duckdb", "polars"):
        rule = yaml_rule(message="m " + text, report={"equal": ["metric", {"text": text}]})
        found = invoke("run/job.0.jsonl", "--rules", str(write_rules(Path("r.yaml"), rule)), "--rules-engine", engine)
        assert '"ACME-001"' in found.stdout
        named = yaml_rule(report={"equal": [text, {"text": "a"}]})
        found = invoke("run/job.0.jsonl", "--rules", str(write_rules(Path("r.yaml"), named)), "--rules-engine", engine)
        assert found.exit_code == 2
        assert "unknown column" in found.stderr
    assert not Path("was-run").exists()


def test_a_message_reaches_nothing_but_values() -> None:
    assert filled("{value.__class__} {value!r} {0} {value:>9999999}", {"value": 1.0}).startswith("{value.__class__}")


def test_a_document_of_rules_among_the_input_is_judged_by_its_form() -> None:
    Path("run/acme.yaml").write_text(shown_in_guide("acme.yaml").replace("level: SHOULD", "level: OUGHT"))
    found = invoke("run/acme.yaml")
    assert found.exit_code == 1
    assert "TS-DOC-008" in found.stdout
