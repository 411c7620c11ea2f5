"""What tests read of recorded files, and scripts that they run in processes of their own."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import textwrap
import time
from functools import cache
from pathlib import Path
from typing import Any

import msgspec

import trainspec_record
from trainspec_validate.documents.schema import load_schema
from trainspec_validate.documents.types.stream import StreamRecord
from trainspec_validate.model.finding import Severity
from trainspec_validate.pipeline.validation import validate

SOURCE = str(Path(__file__).resolve().parents[2] / "record")
"""Where programs find the recorder, and nothing else of the project."""


@cache
def _schema() -> Any:
    import jsonschema_rs

    return jsonschema_rs.Draft202012Validator(load_schema("MetricStream"))


def records(path: Path) -> list[dict[str, Any]]:
    """All records of a file, each held against the schema, the types and the order of its numbers."""
    content = path.read_bytes()
    assert content.endswith(b"\n"), f"{path.name} ends with half a line"
    found = []
    for line in content.splitlines():
        record = json.loads(line)
        problems = [str(error) for error in _schema().iter_errors(record)]
        assert not problems, f"{line!r}: {problems[0]}"
        msgspec.json.decode(line, type=StreamRecord)
        found.append(record)
    assert found[0]["k"] == "head"
    assert [record["seq"] for record in found[1:]] == list(range(len(found) - 1))
    return found


def events(path: Path, name: str) -> list[dict[str, Any]]:
    """Events of one name."""
    return [record for record in records(path) if record.get("name") == name]


def values(path: Path, key: str) -> list[Any]:
    """Values of one series, in order."""
    return [record["m"][key] for record in records(path) if record["k"] == "m" and key in record["m"]]


def train(first: int, last: int, *, error: type[BaseException] | None = None) -> None:
    """Record these optimizer steps, with what a restart begins with, a save every five, and at last an error."""
    with trainspec_record.run(flops_per_token=1.0, peak_flops=1e9) as run:
        if first:
            with run.restore(f"step-{first}", first):
                pass
        for number in range(first, last):
            with run.step(number):
                time.sleep(0.002)
                run.log(samples=4, loss=2.0 + 1 / (number + 1), learning_rate=1e-3, gradient_norm=1.0)
            if number % 5 == 4:
                with run.checkpoint():
                    pass
        if error:
            raise error


def errors(folder: Path) -> list[str]:
    """What the validator finds wrong in a folder."""
    report = validate([folder])
    return [
        f"{finding.requirement}: {finding.message}" for finding in report.findings if finding.severity is Severity.ERROR
    ]


def start(script: str, folder: Path, **environment: str) -> subprocess.Popen[str]:
    """A script in a process of its own, recording into a folder."""
    known = {"PATH": os.environ["PATH"], "PYTHONPATH": SOURCE, "TRAINSPEC_NODE_SAMPLER": "none"}
    return subprocess.Popen(
        [sys.executable, "-c", textwrap.dedent(script)],
        env={**known, "TRAINSPEC_RUN": str(folder), "TRAINSPEC_HOST": "node-1", **environment},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def finish(script: str, folder: Path, code: int = 0, **environment: str) -> str:
    """Run a script to its end, which is to have this exit code; what it wrote on standard error."""
    process = start(script, folder, **environment)
    _, told = process.communicate(timeout=600)
    assert process.returncode == code, told
    return told
