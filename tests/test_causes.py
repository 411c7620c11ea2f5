"""What the input lacks, and what this tool has no formula for, are two causes of a requirement that is not judged."""

from __future__ import annotations

import ast
import json
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

import trainspec_validate
from trainspec_validate.cli.validate import PROGRAM, command
from trainspec_validate.report import FORMATS

BASE = Path(__file__).resolve().parents[1] / "spec" / "v1" / "base"
SOURCES = Path(trainspec_validate.__file__).parent
UNCOVERED = {
    "bat_elastic": 1,
    "clu": 1,
    "clu_nodes": 1,
    "clu_measurements": 1,
    "mem": 1,
    "mem_forecast": 1,
    "mem_optimizer": 1,
    "mem_peak": 1,
    "nrg": 1,
    "par_families": 1,
    "par_figures": 2,
    "par_shape": 1,
    "par_speed": 1,
    "_forecast": 7,
    "_node_rates": 1,
    "_uncounted": 2,
}
"""Places of each module that say that no formula or figure covers an input; a new one is decided here."""


def _calls(name: str) -> Iterator[tuple[Path, ast.Call]]:
    for path in sorted(SOURCES.rglob("*.py")):
        text = path.read_text(encoding="utf-8")
        for node in ast.walk(ast.parse(text)) if f"{name}(" in text else ():
            if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == name:
                yield path, node


def test_each_place_without_a_formula_is_listed() -> None:
    assert Counter(path.stem for path, _ in _calls("Uncovered")) == UNCOVERED


def test_each_lack_of_an_input_says_what_to_give() -> None:
    found = list(_calls("Unresolved"))
    assert len(found) > 30
    for path, call in found:
        remedy = call.args[2]
        assert not isinstance(remedy, ast.Constant) or remedy.value, f"{path}:{call.lineno}"


def test_only_rules_lack_a_formula() -> None:
    """All other entries on what is not judged are about input that is absent, or that cannot be read."""
    found = {path.stem for path, call in _calls("Unjudged") if any(word.arg == "cause" for word in call.keywords)}
    assert found == {"unjudged"}


@pytest.fixture(autouse=True)
def _documents(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A plan whose shape no prediction covers, with its cluster."""
    monkeypatch.chdir(tmp_path)
    Path("cluster.yaml").write_text((BASE / "cluster.yaml").read_text(encoding="utf-8"), encoding="utf-8")
    plan = (BASE / "plan.yaml").read_text(encoding="utf-8")
    Path("plan.yaml").write_text(plan + "num_parameters_trained: 1000000\n", encoding="utf-8")


def invoke(*arguments: str) -> Result:
    return CliRunner().invoke(command, ["--select", "TS-COM-026", *arguments, "."], prog_name=PROGRAM)


@pytest.mark.parametrize(
    ("words", "code"), [("error", 0), ("error,unjudged", 1), ("never,uncovered", 1), ("uncovered,unjudged", 1)]
)
def test_what_no_formula_covers_has_a_word_of_its_own(words: str, code: int) -> None:
    """A run that judges nothing at all fails on `unjudged` whatever the cause."""
    assert invoke("--fail-on", words).exit_code == code
    more = 0 if words == "error,unjudged" else code
    assert invoke("--select", "TS-PAR-001", "--fail-on", words).exit_code == more


def test_a_document_that_lacks_a_figure_fails_on_unjudged_alone() -> None:
    Path("cluster.yaml").unlink()
    assert invoke("--select", "TS-PAR-001", "--fail-on", "never,uncovered").exit_code == 0
    assert invoke("--select", "TS-PAR-001", "--fail-on", "never,unjudged").exit_code == 1


def test_each_format_has_the_cause() -> None:
    said = {name: invoke("--format", name).stdout for name in FORMATS}
    reason = "plan.yaml is not predicted: no key says which layers are frozen"
    assert f"; 1 requirement not covered: {reason}" in said["concise"]
    for name in ("full", "concise", "statistics", "github", "junit"):
        assert "not covered" in said[name], name
    assert "not-covered" in said["gitlab"]
    report = json.loads(said["json"])
    assert [entry["cause"] for entry in report["unjudged"]] == ["uncovered"]
    assert (report["summary"]["unjudged"], report["summary"]["uncovered"]) == (1, 1)
    notes = json.loads(said["sarif"])["runs"][0]["invocations"][0]["toolExecutionNotifications"]
    assert [(note["level"], note["properties"]["cause"]) for note in notes if "properties" in note] == [
        ("note", "uncovered")
    ]
    assert said["github"].startswith("::notice ")
