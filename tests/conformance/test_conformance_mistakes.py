"""A mistake in one check or run is reported as ours, and others keep their results; missing programs come first."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from trainspec_conformance import commands, suite
from trainspec_conformance.criteria import all_checks
from trainspec_conformance.history import read_history
from trainspec_conformance.verifying import differences

CODE = """
import json, sys
import numpy as np, base64
array = json.load(open(sys.argv[1]))["gradients"]
terms = np.frombuffer(base64.b64decode(array["base64"]), "<f4").reshape(array["shape"]).astype(np.float64)
json.dump({"sum": terms.sum((0, 1)).tolist()}, open(sys.argv[2], "w"))
"""
HEAD = b'{"seconds":1,"record":{"k":"streamed","kind":"head","attempt":0,"time_us":0,"attributes":{"x":'
NAMES = ("reduction-precision", "operations-of-a-token")


def stack(directory: Path, **launch: Any) -> Path:
    """A stack that adds up, and answers nothing else."""
    (directory / "probe.py").write_text(CODE)
    told = {"train": ["{python}", "-V"], "probe": ["{python}", "probe.py", "{input}", "{output}"], **launch}
    document = {
        "apiVersion": "trainspec/v1",
        "kind": "StackDescriptor",
        "metadata": {"name": "sums"},
        "components": [{"name": "sums", "version": "1"}],
        "launch": told,
        "capabilities": ["probe-reduce", "probe-flops"],
    }
    path = directory / "stack.yaml"
    path.write_text(json.dumps(document, indent=1))
    return path


EMPTY_RECORD = """
import json, sys
print("{}", file=open(json.load(open(sys.argv[1]))["trace_directory"] + "/rank.jsonl", "w"))
"""
BROKEN = [
    ("import nowhere", ["status 1; no line of a trace was written", "log-0.txt ends with: ModuleNotFoundError: No "]),
    ("print('no such GPU'); raise SystemExit(3)", ["status 3", "log-0.txt ends with: no such GPU"]),
    (EMPTY_RECORD, ["out/trace/rank.jsonl:1 is no trace record: Object missing required field"]),
]


@pytest.mark.parametrize(("code", "words"), BROKEN)
def test_an_adapter_that_fails_is_shown_with_its_last_words(
    code: str, words: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = stack(tmp_path, train=["{python}", "-c", code, "{task}"])
    told = json.loads(path.read_text())
    path.write_text(json.dumps({**told, "capabilities": ["trace", "checkpoints", "resume", "fault-reports"]}))
    out = tmp_path / "out"
    assert commands.run(commands.RunRequest(path, out, ("kill-rank",), trials=1)) == 1
    said = capsys.readouterr().out
    assert not [one for one in words if one not in said], said
    assert "cannot be judged: " not in said
    assert "trial 1: 10 further checks cannot be judged" in said
    assert not list(differences(out))


def verdicts(out: Path) -> dict[str, dict[str, Any]]:
    return {one["scenario"]: one for one in json.loads((out / "report.json").read_text())["scenarios"]}


@pytest.mark.slow
def test_a_check_that_fails_itself_is_an_error_of_ours(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(*_: object) -> Iterator[object]:
        yield 1 // 0

    monkeypatch.setitem(all_checks(), "sum-as-declared", broken)
    out = tmp_path / "out"
    assert commands.run(commands.RunRequest(stack(tmp_path), out, NAMES)) == 3
    found = verdicts(out)
    assert found["reduction-precision"]["verdict"] == "error"
    assert "ZeroDivisionError" in found["reduction-precision"]["reason"]
    assert "test_conformance_mistakes.py" in found["reduction-precision"]["reason"]
    assert found["operations-of-a-token"]["verdict"] == "fail"
    assert not list(differences(out))


def test_a_run_that_fails_itself_keeps_what_others_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    run_trial = suite.run_trial

    def full(setting: Any) -> Any:
        if setting.scenario.metadata.name == "operations-of-a-token":
            raise OSError(28, "No space left on device")
        return run_trial(setting)

    monkeypatch.setattr(suite, "run_trial", full)
    assert commands.run(commands.RunRequest(stack(tmp_path), tmp_path / "out", NAMES)) == 3
    found = verdicts(tmp_path / "out")
    assert found["operations-of-a-token"]["verdict"] == "error"
    assert "No space left on device" in found["operations-of-a-token"]["reason"]
    assert found["reduction-precision"]["verdict"] == "pass"


@pytest.mark.parametrize(
    ("launch", "words"),
    [
        ({"train": ["no-such-program-here", "{task}"]}, "train: there is no program 'no-such-program-here'"),
        ({"train": ["./shim.sh", "{task}"]}, "train: there is no program './shim.sh'"),
        ({"probe": ["no-such-program-here"]}, "probe: there is no program"),
        ({"train": [Path(sys.executable).name], "environment": {"PATH": "/nowhere"}}, "train: there is no program"),
    ],
)
def test_a_program_that_is_not_there_is_wrong_use(
    launch: dict[str, Any], words: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = stack(tmp_path, **launch)
    assert commands.run(commands.RunRequest(path, tmp_path / "out", NAMES)) == 2
    told = capsys.readouterr().err
    key = words.partition(":")[0]
    line = next(number for number, text in enumerate(path.read_text().splitlines(), 1) if f'"{key}"' in text)
    assert words in told
    assert f"stack.yaml:{line}" in told
    assert not (tmp_path / "out").exists()


def test_a_program_beside_the_descriptor_is_found(tmp_path: Path) -> None:
    (tmp_path / "shim.sh").write_text("#!/bin/sh\nexit 1\n")
    (tmp_path / "shim.sh").chmod(0o755)
    path = stack(tmp_path, train=["./shim.sh"])
    assert commands.run(commands.RunRequest(path, tmp_path / "out", NAMES[:1])) in {0, 1}


@pytest.mark.parametrize(
    "text",
    [
        HEAD + b"[" * 99_999,
        b'{"seconds":1,"record":{"k":"malformed","reason":"\xff"}}',
        b"{",
        b'{"seconds":2,"record":{"k":"ended","reason":"done"}}',
        b'{"seconds":2.0,"seconds":1.0,"record":{"k":"ended","reason":"done"}}\n',
        b'{"seconds": 2.0,"record":{"k":"ended","reason":"done"}}\n',
    ],
    ids=["deep", "no-text", "cut", "no-end-of-line", "key-twice", "space"],
)
def test_evidence_of_any_form_is_told_by_its_line(text: bytes, tmp_path: Path) -> None:
    path = tmp_path / "history.jsonl"
    path.write_bytes(b'{"seconds":0.0,"record":{"k":"ended","reason":"done"}}\n' + text)
    with pytest.raises(ValueError, match=r"history\.jsonl:2: "):
        read_history(path)
