"""`trainspec accept` against a profile that contradicts itself: refused, or accepted with the contradiction named."""

from __future__ import annotations

import json
from pathlib import Path

from click.testing import CliRunner, Result

from tests.node_reports import profile, smi
from trainspec_validate.cli.toolbox import command

WRONG = "the groups have 8 accelerators together, but num_accelerators is 16"


def accept(root: Path, text: str, *more: str) -> Result:
    (root / "cluster.yaml").write_text(text, encoding="utf-8")
    (root / "nodes" / "node-0").mkdir(parents=True, exist_ok=True)
    (root / "nodes" / "node-0" / "smi.txt").write_text(smi(), encoding="utf-8")
    arguments = ["accept", f"{root}/cluster.yaml", "--from", f"{root}/nodes", *more]
    return CliRunner().invoke(command, arguments, prog_name="trainspec")


def test_a_profile_that_contradicts_itself_is_refused(tmp_path: Path) -> None:
    wrong = profile(1).replace("num_accelerators: 8\n", "num_accelerators: 16\n")
    found = accept(tmp_path, wrong)
    assert (found.exit_code, f"TS-CLU-002: {WRONG}" in found.stderr) == (2, True), found.output
    assert not found.stdout
    assert accept(tmp_path, profile(1)).exit_code == 0


def test_nothing_is_gathered_for_it(tmp_path: Path) -> None:
    wrong = profile(1).replace("num_accelerators: 8\n", "num_accelerators: 16\n")
    (tmp_path / "cluster.yaml").write_text(wrong, encoding="utf-8")
    arguments = ["accept", f"{tmp_path}/cluster.yaml", "--over", "local", "--into", f"{tmp_path}/new"]
    assert CliRunner().invoke(command, arguments).exit_code == 2
    assert not (tmp_path / "new").exists()


def test_with_force_the_contradiction_is_named_first(tmp_path: Path) -> None:
    wrong = profile(1).replace("num_accelerators: 8\n", "num_accelerators: 16\n")
    statement = tmp_path / "statement.json"
    found = accept(tmp_path, wrong, "--force", "--statement", f"{statement}")
    assert found.exit_code == 0, found.output
    assert WRONG in found.stdout.splitlines()[0]
    predicate = json.loads(statement.read_text(encoding="utf-8"))["predicate"]
    assert predicate["result"] == "WARNED"
    assert any(WRONG in fact for one in predicate["unjudged"] for fact in one["facts"])
    assert f"{tmp_path}" not in statement.read_text(encoding="utf-8")


def test_earlier_observations_are_replaced_and_not_judged(tmp_path: Path) -> None:
    seen = "observed_nodes:\n  - {name: node-0, num_accelerators: 7}\n"
    assert accept(tmp_path, profile(1) + seen).exit_code == 0
