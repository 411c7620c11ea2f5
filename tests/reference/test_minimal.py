"""The minimal stacks are short, validate, refuse what they do not implement, and recover from a killed rank."""

from __future__ import annotations

import ast
import importlib
import io
import json
import os
import re
import runpy
import subprocess
import sys
import tokenize
from pathlib import Path

import msgspec
import pytest
from trainspec_conformance.launching import whole
from trainspec_conformance.reading import read

from trainspec_validate.documents.types.conformance import Fault, StackDescriptor, Task, TestJob

ROOT = Path(__file__).resolve().parents[2]
MINIMAL = ROOT / "reference" / "minimal"
FRAMEWORKS = ("torch", "jax")
NOT_CODE = {tokenize.COMMENT, tokenize.NL, tokenize.NEWLINE, tokenize.INDENT, tokenize.DEDENT, tokenize.ENCODING}
NOT_CODE |= {tokenize.ENDMARKER}
MAX_LINES = 250
SHARED = MINIMAL / "task.py"
GUIDE = ROOT / "spec" / "guide" / "conformant.md"


def lines_of_code(text: str) -> int:
    """Lines that hold more than a comment or a docstring."""
    nodes = (
        node for node in ast.walk(ast.parse(text)) if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef)
    )
    documented = [node.body[0] for node in nodes if ast.get_docstring(node)]
    docstrings = {line for node in documented for line in range(node.lineno, (node.end_lineno or node.lineno) + 1)}
    tokens = tokenize.generate_tokens(io.StringIO(text).readline)
    held = {line for one in tokens if one.type not in NOT_CODE for line in range(one.start[0], one.end[0] + 1)}
    return len(held - docstrings)


def test_lines_of_code_are_counted() -> None:
    assert lines_of_code('"""A\nB"""\n\n# c\nx = [\n    1,  # d\n]\n\n\ndef f():\n    """E"""\n    return x\n') == 5


@pytest.mark.parametrize("framework", FRAMEWORKS)
def test_a_minimal_stack_is_short(framework: str) -> None:
    texts = [path.read_text(encoding="utf-8") for path in (MINIMAL / f"minimal_{framework}.py", SHARED)]
    assert len(texts[0].splitlines()) <= MAX_LINES
    assert sum(map(lines_of_code, texts)) <= MAX_LINES


@pytest.mark.parametrize("framework", FRAMEWORKS)
def test_a_minimal_stack_names_itself_and_its_documents(framework: str) -> None:
    stack = read(MINIMAL / f"minimal-{framework}.yaml", StackDescriptor)
    assert stack.metadata.name == f"minimal-{framework}"
    assert stack.claims.level == "recoverable"
    assert stack.launch.train[1] == f"minimal_{framework}.py"
    assert len(stack.documents) == 3
    assert all((MINIMAL / document).is_file() for document in stack.documents)
    module = importlib.import_module(f"minimal_{framework}")
    assert stack.launch.crash_loop_statuses == (module.CRASH_LOOP_STATUS,)
    assert stack.claims.max_restarts_without_progress == module.MAX_RESTARTS_WITHOUT_PROGRESS


def test_the_documents_have_no_finding() -> None:
    documents = sorted(MINIMAL.glob("*.yaml"))
    command = [sys.executable, "-m", "trainspec_validate", *map(str, documents)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    last = done.stdout.splitlines()[-1]
    assert (done.returncode, last[:12]) == (0, "no findings:"), done.stdout


@pytest.mark.parametrize("framework", FRAMEWORKS)
@pytest.mark.parametrize(
    "other", [{"precision": "bf16"}, {"compression": "top-k"}, {"evaluation_interval_steps": 5}], ids=str
)
def test_what_is_not_implemented_is_refused_by_key_before_anything_is_written(
    framework: str,
    other: dict[str, object],
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    only, (key,) = importlib.import_module("task").ONLY, other
    task = {"job": {**only, **other}, "attempt": 0, "trace_directory": str(tmp_path)}
    (tmp_path / "task.json").write_text(json.dumps(task))
    monkeypatch.setattr(sys, "argv", ["minimal", str(tmp_path / "task.json")])
    with pytest.raises(SystemExit) as end:
        runpy.run_path(str(MINIMAL / f"minimal_{framework}.py"), run_name="__main__")
    assert end.value.code == 2
    assert f"task.json: job.{key}: this trainer implements {only[key]!r} alone" in capsys.readouterr().err
    assert [path.name for path in tmp_path.iterdir()] == ["task.json"]


@pytest.mark.parametrize("framework", FRAMEWORKS)
def test_each_sample_is_consumed_once_in_an_epoch(framework: str) -> None:
    module = importlib.import_module(f"minimal_{framework}")
    ramp = [{"from_step": 3, "global_sequences": 7}]
    job = {"seed": 3, "samples_per_epoch": 31, "global_sequences": 5, "sample_order": "any", "batch_ramp": ramp}
    consumed: list[int] = []
    for step in range(12):
        batch = module.global_batch(job, step, len(consumed))
        assert len(batch) == (5 if step < 3 else 7)
        consumed += batch
    assert sorted(consumed[:31]) == sorted(consumed[31:62]) == list(range(31))
    assert consumed[:31] != consumed[31:62]
    assert module.global_batch({**job, "sample_order": "sequential"}, 0, 29) == [29, 30, 0, 1, 2]


def test_the_guide_names_duties_of_the_contract() -> None:
    contract = (ROOT / "spec" / "v1" / "00-contract.md").read_text(encoding="utf-8")
    known = {int(number) for number in re.findall(r"^\| (\d+) \|", contract, re.MULTILINE)}
    named = re.findall(
        r"\(duty (\d+)\)|\(duties (\d+)(?:, \d+)*(?: and| to) (\d+)\)", GUIDE.read_text(encoding="utf-8")
    )
    numbers = {int(number) for groups in named for number in groups if number}
    assert len(numbers) > 15
    assert numbers <= known
    assert "(../guide/conformant.md)" in contract


@pytest.mark.slow
@pytest.mark.parametrize("framework", FRAMEWORKS)
def test_a_rank_goes_on_after_a_fault_from_what_it_saved(framework: str, tmp_path: Path) -> None:
    """On one rank, in one process; the next test kills one of two, and `make conformance-short` does."""
    fault = Fault(kind="exception", step=5)
    job = TestJob(
        num_ranks=1, num_steps=8, checkpoint_interval_steps=3, step_seconds=0, dropout=0.1, faults=(fault,), seed=5
    )
    places = {name: str(tmp_path / name.partition("_")[0]) for name in ("trace_directory", "stream_directory")}
    places["checkpoint_directory"] = str(tmp_path / "checkpoints")
    task = Task(apiVersion="trainspec/v1", run="alone", attempt=0, resume=False, job=job, **places)
    (tmp_path / "trace").mkdir()
    (tmp_path / "task.json").write_bytes(msgspec.json.encode(whole(task)))
    command = [
        sys.executable,
        str(Path(__file__).with_name("minimal_alone.py")),
        framework,
        str(tmp_path / "task.json"),
    ]
    environment = {**os.environ, "TRAINSPEC_RUN": places["stream_directory"], "JAX_PLATFORMS": "cpu"}
    done = subprocess.run(command, capture_output=True, text=True, check=False, env=environment)
    assert done.returncode == 0, done.stderr
    lines = [line for path in (tmp_path / "trace").iterdir() for line in path.read_text(encoding="utf-8").splitlines()]
    trace = sorted(map(json.loads, lines), key=lambda record: record["time_us"])
    of_kind = {kind: [record for record in trace if record["k"] == kind] for kind in sorted({r["k"] for r in trace})}
    assert [(record["kind"], record["rank"]) for record in of_kind["fault"]] == [("process", 0)]
    assert [record["action"] for record in of_kind["decision"]] == ["restart"]
    first, second = of_kind["restore"]
    assert (first["source"], first["step"]) == ("initial", 0)
    assert (second["source"], second["checkpoint"], second["step"]) == ("checkpoint", "step-3", 3)
    committed = [(r["checkpoint"], r["digest"]) for r in of_kind["save"] if r["stage"] == "committed"]
    assert [name for name, _ in committed] == ["step-3", "step-6"]
    assert second["digest"] == committed[0][1]
    before, after = ([r for r in of_kind["step"] if r["attempt"] == attempt] for attempt in (0, 1))
    assert [r["step"] for r in before] == [1, 2, 3, 4, 5]
    assert [r["step"] for r in after] == [4, 5, 6, 7, 8]
    for one, again in zip(before[3:], after, strict=False):
        assert again["sample_ids"] == one["sample_ids"]
        assert again["loss"] == pytest.approx(one["loss"], rel=1e-6)
    assert [(record["reason"], record["step"]) for record in of_kind["end"]] == [("completed", 8)]


@pytest.mark.long
@pytest.mark.parametrize("framework", FRAMEWORKS)
def test_a_minimal_stack_recovers_from_a_killed_rank(framework: str, tmp_path: Path) -> None:
    stack = MINIMAL / f"minimal-{framework}.yaml"
    command = [sys.executable, "-m", "trainspec_conformance", "run", str(stack), "--trials", "1"]
    command += ["--scenario", "kill-rank", "--report", str(tmp_path / "report")]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    report = json.loads((tmp_path / "report" / "report.json").read_bytes())
    assert done.returncode == 0, done.stdout
    verdicts = {one["scenario"]: one["verdict"] for one in report["scenarios"]}
    assert {name: verdict for name, verdict in verdicts.items() if verdict != "not-run"} == {"kill-rank": "pass"}
