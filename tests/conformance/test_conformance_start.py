"""What `init` writes runs as it stands, documents of a stack are judged, and start-up stays light."""

from __future__ import annotations

import errno
import hashlib
import json
import shutil
import subprocess
import sys
from pathlib import Path

import msgspec
import pytest
from conformance_reports import report
from conformance_stacks import HERE
from trainspec_conformance import commands
from trainspec_conformance.described import errors, gather
from trainspec_conformance.reading import DocumentError, all_scenarios, read
from trainspec_conformance.starting import DEMO_SCENARIOS, DEMO_STACK
from trainspec_conformance.suite import lacking
from trainspec_conformance.verifying import differences

from trainspec_validate.documents.types import changed
from trainspec_validate.documents.types.conformance import StackDescriptor
from trainspec_validate.documents.types.conformance_report import Evidence

ROOT = HERE.parents[1]
PLANS = ROOT / "reference" / "plans"


def command(*arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "trainspec_conformance", *arguments],
        check=False,
        capture_output=True,
        text=True,
        timeout=600,
    )


@pytest.mark.slow
def test_what_init_writes_passes_without_a_change(tmp_path: Path) -> None:
    assert commands.init(tmp_path / "mine") == 0
    request = commands.RunRequest(
        tmp_path / "mine" / "stack.yaml", tmp_path / "out", ("null-run", "kill-rank"), trials=1
    )
    assert commands.run(request) == 0
    assert not list(differences(tmp_path / "out"))
    page = (tmp_path / "out" / "report.html").read_text()
    assert "This is a modified stack" in page


def test_no_rank_of_what_init_writes_runs_ahead_of_a_save(tmp_path: Path) -> None:
    """Where one did, a busy machine could lose two intervals to one fault."""
    commands.init(tmp_path)
    shim, told = tmp_path / "shim.py", tmp_path / "trace"
    begin = 'write(half / "state.json", body)'
    assert shim.read_text().count(begin) == 1
    shim.write_text(shim.read_text().replace(begin, f"time.sleep(0.2); {begin}"))
    told.mkdir()
    counts = {"num_steps": 8, "num_ranks": 3, "num_kept": 3, "checkpoint_interval_steps": 3}
    job = {**counts, "global_sequences": 6, "samples_per_epoch": 60, "seed": 1, "step_seconds": 0.001}
    task = {
        "attempt": 0,
        "resume": False,
        "trace_directory": str(told),
        "checkpoint_directory": str(tmp_path),
        "job": job,
    }
    (tmp_path / "task.json").write_text(json.dumps(task))
    subprocess.run([sys.executable, str(shim), str(tmp_path / "task.json")], check=True, timeout=600)
    records = [json.loads(line) for path in told.iterdir() for line in path.read_text().splitlines()]
    saved = {one["step"]: one["time_us"] for one in records if one.get("stage") == "committed"}
    assert saved.keys() == {3, 6}
    steps = [one for one in records if one["k"] == "step"]
    assert len(steps) == 8 * 3
    for step, time_us in saved.items():
        assert max(one["step"] for one in steps if one["time_us"] <= time_us) == step


def test_init_overwrites_nothing(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "shim.py").write_text("mine")
    assert commands.init(tmp_path) == 2
    assert "exists already" in capsys.readouterr().err
    assert [path.name for path in tmp_path.iterdir()] == ["shim.py"]


def test_init_makes_nothing_behind_a_link(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / "here").mkdir()
    monkeypatch.chdir(tmp_path / "here")
    Path("link").symlink_to("../elsewhere")
    assert commands.init(Path("link/new")) == 2
    assert list((tmp_path / "elsewhere").iterdir()) == []


def test_the_demonstration_is_there() -> None:
    stack = read(DEMO_STACK, StackDescriptor)
    assert not [name for name in DEMO_SCENARIOS if lacking(stack, all_scenarios()[name])]


@pytest.mark.parametrize(("action", "names"), [("stop", {"nan-gradient", "reported-steps"}), ("rollback", set())])
def test_a_stack_that_stops_cannot_show_what_comes_after(action: str, names: set[str]) -> None:
    stack = read(DEMO_STACK, StackDescriptor)
    stack = changed(stack, claims=changed(stack.claims, nonfinite_action=action))
    found = {name for name, one in all_scenarios().items() if "it stops at a gradient" in lacking(stack, one)}
    assert found == names


@pytest.mark.slow
def test_a_stack_or_the_demonstration_is_named() -> None:
    for arguments in ((), ("--demo", str(HERE / "fake.yaml"))):
        done = command("run", "--report", "never", *arguments)
        assert done.returncode == 2
        assert "--demo" in done.stderr


def described(folder: Path, *documents: str) -> tuple[Path, StackDescriptor]:
    stack = changed(read(HERE / "fake.yaml", StackDescriptor), documents=documents)
    return folder / "stack.yaml", stack


def test_documents_are_copied_as_they_lie_to_each_other(tmp_path: Path) -> None:
    shutil.copytree(PLANS, tmp_path / "plans")
    (tmp_path / "job").mkdir()
    shutil.copy(PLANS / "policy.yaml", tmp_path / "job" / "policy.yaml")
    policy = tmp_path / "job" / "policy.yaml"
    policy.write_text(policy.read_text().replace("file: cluster.yaml", "file: ../plans/cluster.yaml"))
    out = tmp_path / "out"
    out.mkdir()
    found = gather(*described(tmp_path, "plans/cluster.yaml", "job/policy.yaml"), out)
    assert found == ("documents/plans/cluster.yaml", "documents/job/policy.yaml")
    assert errors(out, found) == ()


def test_a_document_that_refers_to_none_of_the_others_is_an_error(tmp_path: Path) -> None:
    shutil.copy(PLANS / "policy.yaml", tmp_path)
    out = tmp_path / "out"
    out.mkdir()
    (error,) = errors(out, gather(*described(tmp_path, "policy.yaml"), out))
    assert error.startswith("documents/policy.yaml: TS-DOC-")
    assert str(tmp_path) not in error, "it says the same wherever the report lies"


def test_a_comment_does_not_take_an_error_from_the_level(tmp_path: Path) -> None:
    text = (PLANS.parents[1] / "examples" / "broken" / "duplex.yaml").read_text()
    rate = "bandwidth_bytes_per_second: 900e9"
    assert rate in text
    (tmp_path / "cluster.yaml").write_text(text.replace(rate, f"{rate}  # trainspec: ignore[TS-CLU-010] as printed"))
    out = tmp_path / "out"
    out.mkdir()
    (error,) = errors(out, gather(*described(tmp_path, "cluster.yaml"), out))
    assert error.startswith("documents/cluster.yaml: TS-CLU-010: ")


def test_a_document_that_is_not_there_is_wrong_use(tmp_path: Path) -> None:
    with pytest.raises(DocumentError, match="is no file"):
        gather(*described(tmp_path, "nothing.yaml"), tmp_path)


def test_a_report_of_a_described_stack_reaches_that_level_and_holds_it(tmp_path: Path) -> None:
    stack = json.loads(subprocess.check_output([sys.executable, "-c", LOAD, str(HERE / "fake.yaml")]))
    stack["documents"] = ["cluster.yaml"]
    stack["launch"]["train"][1] = str(HERE / "fake_stack.py")
    (tmp_path / "stack.json").write_text(json.dumps(stack))
    shutil.copy(PLANS / "cluster.yaml", tmp_path)
    out = tmp_path / "out"
    assert commands.run(commands.RunRequest(tmp_path / "stack.json", out, ("grace-signal",), trials=1)) == 1
    assert json.loads((out / "report.json").read_text())["level"] == "described"
    assert not list(differences(out))
    copy = out / "documents" / "cluster.yaml"
    copy.write_text(copy.read_text().replace("kind: ClusterProfile", "kind: TrainingPlan"))
    assert {line.partition(":")[0] for line in differences(out)} >= {"documents/cluster.yaml"}
    assert "judged again, the documents have other errors" in differences(out)


LOAD = "import json, sys, yaml; print(json.dumps(yaml.safe_load(open(sys.argv[1]))))"


def test_start_up_imports_nothing_heavy() -> None:
    script = "import sys, trainspec_conformance.cli; print(*sys.modules)"
    loaded = set(subprocess.check_output([sys.executable, "-c", script], text=True).split())
    assert not loaded & {
        "numpy",
        "rich",
        "torch",
        "jax",
        "trainspec_validate.pipeline.validation",
        "xml.etree.ElementTree",
    }


@pytest.mark.parametrize("path", ["a\0b", "a" * 300, "/etc/passwd", "../x", "a\nb"])
def test_evidence_under_a_name_that_no_file_has_is_not_there(path: str, tmp_path: Path) -> None:
    made = report(evidence=(Evidence(path="x", size_bytes=1, sha256="0" * 64),), documents=("y",))
    text = msgspec.json.encode(made).decode()
    for name in ("x", "y"):
        text = text.replace(f'"{name}"', json.dumps(path))
    (tmp_path / "report.json").write_text(text)
    found = list(differences(tmp_path))
    assert f"{path}: the file is missing" in found
    assert f"documents that are not among the evidence: {path}" in found


def test_evidence_that_the_storage_does_not_give_is_wrong_use(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    made = report(evidence=(Evidence(path="x", size_bytes=1, sha256="0" * 64),))
    (tmp_path / "report.json").write_bytes(msgspec.json.encode(made))
    (tmp_path / "x").write_text("x")

    def broken(*_: object) -> None:
        raise OSError(errno.EIO, "Input/output error", "x")

    monkeypatch.setattr(hashlib, "file_digest", broken)
    assert commands.verify(tmp_path) == 2
