"""Waivers with many patterns look up few of them on the disk."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from click.testing import CliRunner

from trainspec_validate.checking.suppress import waivers
from trainspec_validate.cli.validate import command

BASE = Path(__file__).resolve().parents[1] / "spec" / "v1" / "base"
_ROW = "  - {{requirement: TS-CLU-001, file: 'd{0}/**/x.yaml', reason: a slip, owner: a team, expires: 2099-01-01}}\n"


def test_patterns_without_a_file_are_looked_up_a_bounded_number_of_times(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("cluster.yaml").write_text((BASE / "cluster.yaml").read_text(encoding="utf-8"), encoding="utf-8")
    rows = "".join(_ROW.format(number) for number in range(500))
    Path("waivers.yaml").write_text(f"apiVersion: trainspec/v1\nkind: Waivers\nwaivers:\n{rows}", encoding="utf-8")
    looked = list[tuple[str, ...]]()
    find = waivers.find
    monkeypatch.setattr(waivers, "find", lambda root, parts: looked.append(parts) or find(root, parts))
    result = CliRunner().invoke(command, ["cluster.yaml", "--waivers", "waivers.yaml"])
    assert "no file is called 'd0/**/x.yaml'" in result.output
    assert len(looked) == waivers._MOST_SEARCHED


def _waivers(patterns: list[str]) -> str:
    row = "  - {{requirement: TS-CLU-001, file: '{}', reason: a slip, owner: a team, expires: 2099-01-01}}\n"
    return "apiVersion: trainspec/v1\nkind: Waivers\nwaivers:\n" + "".join(map(row.format, patterns))


def test_more_wildcards_than_the_limit_are_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    Path("cluster.yaml").write_text((BASE / "cluster.yaml").read_text(encoding="utf-8"), encoding="utf-8")
    monkeypatch.setattr(waivers, "_MOST_WILDCARDS", replace(waivers._MOST_WILDCARDS, most=6))
    results = []
    for number in (3, 4):
        Path("waivers.yaml").write_text(_waivers(["a?[b]*x.yaml", "*" * number + ".yaml"]), encoding="utf-8")
        results.append(CliRunner().invoke(command, ["cluster.yaml", "--waivers", "waivers.yaml"]))
    assert "wildcards" not in results[0].output
    assert results[1].exit_code == 2
    assert "waivers.yaml: a waiver file may have at most 6 wildcards in its patterns" in results[1].output
