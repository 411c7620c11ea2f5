"""Documents that files of other programs hold in base64 or in cells of notebooks are named as not judged."""

from __future__ import annotations

import base64
import json
from pathlib import Path

import pytest

from trainspec_validate.pipeline.validation import validate

BASE = Path(__file__).parents[2] / "spec" / "v1" / "base"
PLAN = (BASE / "plan.yaml").read_text(encoding="utf-8")
HELD = "holds a document in a text of another program"


def reasons(folder: Path) -> dict[str, str]:
    (folder / "cluster.yaml").write_bytes((BASE / "cluster.yaml").read_bytes())
    return {Path(entry.path).name: entry.reason for entry in validate([folder]).unjudged}


@pytest.mark.parametrize("shift", range(3))
@pytest.mark.parametrize(("kind", "key"), [("Secret", "data"), ("ConfigMap", "binaryData")])
def test_a_document_in_base64(tmp_path: Path, kind: str, key: str, shift: int) -> None:
    value = base64.b64encode(("#" * shift + "\n" + PLAN).encode()).decode()
    text = f"apiVersion: v1\nkind: {kind}\nmetadata: {{name: a}}\n{key}:\n  file: {value}\n"
    (tmp_path / "held.yaml").write_text(text, encoding="utf-8")
    assert reasons(tmp_path)["held.yaml"] == HELD


@pytest.mark.parametrize(("name", "width"), [("x.txt", 0), ("x.txt", 76), ("plan", 0), ("x.yaml", 40)])
def test_a_document_in_base64_alone(tmp_path: Path, name: str, width: int) -> None:
    value = base64.b64encode(PLAN.encode()).decode()
    lines = [value[at : at + width] for at in range(0, len(value), width)] if width else [value]
    text = "".join(f"{line}\n" for line in lines)
    (tmp_path / name).write_text(f"a: |\n  {text}" if name == "x.yaml" else text, encoding="utf-8")
    assert reasons(tmp_path)[name] == HELD


def test_another_text_in_base64_is_passed_over(tmp_path: Path) -> None:
    (tmp_path / "x.txt").write_bytes(base64.b64encode(b"apiVersion: v1\nkind: ConfigMap\n" * 9))
    assert not reasons(tmp_path)


@pytest.mark.parametrize(
    ("lines", "is_named"),
    [(PLAN.splitlines(keepends=True), True), (["plan = 'trainspec/v1'\n", "print(plan)\n"], False)],
)
def test_a_document_in_a_cell_of_a_notebook(tmp_path: Path, lines: list[str], is_named: bool) -> None:
    cell = {"cell_type": "code", "metadata": {}, "source": ["%%writefile plan.yaml\n", *lines], "outputs": []}
    notebook = {"cells": [cell], "metadata": {}, "nbformat": 4, "nbformat_minor": 5}
    (tmp_path / "run.ipynb").write_text(json.dumps(notebook), encoding="utf-8")
    assert reasons(tmp_path).get("run.ipynb") == (HELD if is_named else None)
