"""The benchmark of recoveries keeps its trials, and makes those alone that are missing."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "benchmarks"))

import recovery

MARKS = dict.fromkeys(recovery.MARKS, 0.5)


def test_a_series_of_trials_goes_on_after_an_interruption(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    made: list[str] = []

    def trial(stack: recovery.Stack, case: recovery.Case) -> dict[str, float]:
        if len(made) == 3:
            raise KeyboardInterrupt
        made.append(f"{stack.backend} {case.key}")
        return MARKS

    monkeypatch.setattr(recovery, "trial", trial)
    stack, case = recovery.Stack("plain", "state-space", 4), recovery.KEYS["shrink"]
    with pytest.raises(KeyboardInterrupt):
        recovery.measure(stack, case, recovery.Kept(tmp_path / "trials.json", stack, "here"), 5)
    assert len(json.loads((tmp_path / "trials.json").read_text())) == 3
    made.clear()
    recovery.measure(stack, case, recovery.Kept(tmp_path / "trials.json", stack, "here"), 5)
    assert made == ["plain shrink"] * 2
    assert "killed, shrinks in place: 5 trials, the largest bounds the 50 % quantile" in capsys.readouterr().out


def test_trials_of_other_stacks_cases_and_machines_do_not_count(tmp_path: Path) -> None:
    path, stack = tmp_path / "trials.json", recovery.Stack("plain", "state-space", 4)
    recovery.Kept(path, stack, "here").add(recovery.KEYS["shrink"], MARKS, 1.0)
    assert len(recovery.Kept(path, stack, "here").of(recovery.KEYS["shrink"])) == 1
    assert recovery.Kept(path, stack, "here").of(recovery.KEYS["stopped"]) == []
    assert recovery.Kept(path, stack, "there").of(recovery.KEYS["shrink"]) == []
    assert recovery.Kept(path, recovery.Stack("torch", "state-space", 4), "here").of(recovery.KEYS["shrink"]) == []
