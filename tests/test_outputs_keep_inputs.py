"""No command writes its output over a file of its input, by whatever name the output is given."""

from __future__ import annotations

import json
import os
import shutil
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from trainspec_validate.cli.toolbox import command as toolbox
from trainspec_validate.cli.validate import command

BASE = Path(__file__).resolve().parents[1] / "spec" / "v1" / "base"


@pytest.fixture(autouse=True)
def _tree(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "tree").mkdir()
    shutil.copy(BASE / "cluster.yaml", tmp_path / "tree")
    os.link(tmp_path / "tree" / "cluster.yaml", tmp_path / "hard.yaml")
    (tmp_path / "same").symlink_to("tree")
    monkeypatch.chdir(tmp_path)


def invoke(*arguments: str) -> Result:
    return CliRunner().invoke(command, list(arguments))


@pytest.mark.parametrize("argument", ["tree", "tree/cluster.yaml", "tree/*.yaml", "same/cluster.yaml"])
@pytest.mark.parametrize("output", ["tree/cluster.yaml", "tree/../tree/cluster.yaml", "hard.yaml", "same/cluster.yaml"])
def test_a_report_replaces_no_input(argument: str, output: str) -> None:
    before = Path("tree/cluster.yaml").read_bytes()
    found = invoke(argument, "--format", f"json={output}")
    assert (found.exit_code, Path("tree/cluster.yaml").read_bytes()) == (2, before)
    assert f"{output}: this is a file of the input" in found.stderr


def test_a_baseline_replaces_no_input() -> None:
    before = Path("tree/cluster.yaml").read_bytes()
    assert invoke("tree", "--write-baseline", "--baseline", "hard.yaml").exit_code == 2
    assert Path("tree/cluster.yaml").read_bytes() == before


def test_an_earlier_report_in_the_tree_is_replaced() -> None:
    for _ in range(2):
        assert invoke("tree", "--format", "json=tree/report.json").exit_code == 0
    assert Path("tree/report.json").read_text(encoding="utf-8").startswith("{")


def test_other_commands_replace_no_input() -> None:
    text = Path("tree/cluster.yaml").read_bytes()
    for output in ("tree/cluster.yaml", "hard.yaml"):
        found = CliRunner().invoke(toolbox, ["report", "tree/cluster.yaml", "-o", output, "--force"])
        assert found.exit_code == 2
        assert "this is a file of the input" in found.stderr
    assert Path("tree/cluster.yaml").read_bytes() == text


@pytest.mark.parametrize("output", ["tree/cluster.yaml", "same/cluster.yaml", "hard.yaml"])
def test_a_page_replaces_no_file_of_a_directory(output: str) -> None:
    before = Path("tree/cluster.yaml").read_bytes()
    found = CliRunner().invoke(toolbox, ["report", "tree", "-o", output, "--force"])
    assert (found.exit_code, Path("tree/cluster.yaml").read_bytes()) == (2, before)
    assert "this is a file of the input" in found.stderr


def test_an_earlier_page_in_the_tree_is_replaced() -> None:
    shutil.copy(BASE.parents[2] / "examples" / "broken" / "job.jsonl", "tree")
    for _ in range(2):
        found = CliRunner().invoke(toolbox, ["report", "tree", "-o", "tree/page.html", "--force"])
        assert found.exit_code == 0, found.stderr


def test_an_import_replaces_no_file_of_a_directory() -> None:
    Path("tree/config.json").write_text(json.dumps({"model_type": "llama"}), encoding="utf-8")
    before = Path("tree/config.json").read_bytes()
    found = CliRunner().invoke(toolbox, ["import", "tree", "-o", "tree/config.json", "--force"])
    assert (found.exit_code, Path("tree/config.json").read_bytes()) == (2, before)


@pytest.mark.parametrize("place", ["tree/step-1", "same/step-1/.."])
def test_no_new_file_is_written_into_a_checkpoint(place: str) -> None:
    checkpoint = Path("tree/step-1")
    checkpoint.mkdir()
    header = json.dumps({"a": {"dtype": "F32", "shape": [1], "data_offsets": [0, 4]}}).encode()
    (checkpoint / "model.safetensors").write_bytes(len(header).to_bytes(8, "little") + header + bytes(4))
    output = f"{place}/report.json" if place.endswith("1") else f"{place}/step-1/report.json"
    assert invoke("tree", "--format", f"json={output}").exit_code == 2
    assert CliRunner().invoke(toolbox, ["report", "tree", "-o", output]).exit_code == 2
    assert [path.name for path in checkpoint.iterdir()] == ["model.safetensors"]
