"""Changed files of other programs that no reader takes are named as not judged, without exit code 2."""

from __future__ import annotations

import io
import shutil
import zipfile
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from trainspec_validate.cli.validate import PROGRAM, command

BASE = Path(__file__).resolve().parents[1] / "spec" / "v1" / "base"
POINTER = b"version https://git-lfs.github.com/spec/v1\noid sha256:aa\nsize 1\n"


def _empty_zip() -> bytes:
    buffer = io.BytesIO()
    zipfile.ZipFile(buffer, "w").close()
    return buffer.getvalue()


FILES = {
    "build.log": b"compiled 3 files\n",
    "empty.log": b"",
    "data.jsonl": b'{"question": "a", "answer": "b"}\n',
    "empty.jsonl": b"",
    "damaged.jsonl.gz": b"\x1f\x8b\x08\x00damaged",
    "release.zip": _empty_zip(),
    "weights.bin": POINTER,
    "data.ndjson": POINTER,
}
UNJUDGED = ("--fail-on", "error,unjudged")


@pytest.fixture(autouse=True)
def _tree(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    shutil.copy(BASE / "cluster.yaml", tmp_path / "cluster.yaml")
    monkeypatch.chdir(tmp_path)
    for name, content in FILES.items():
        Path(name).write_bytes(content)
    Path(".git").mkdir()
    Path(".git", "HEAD").write_text("ref: refs/heads/main\n", encoding="utf-8")
    Path(".gitmodules").write_text('[submodule "module"]\n\tpath = module\n\turl = gone\n', encoding="utf-8")
    Path("module").mkdir()


def invoke(*arguments: str) -> Result:
    return CliRunner().invoke(command, ["--dependents", *arguments], prog_name=PROGRAM)


def test_a_log_without_a_word_of_a_run_is_passed_over() -> None:
    for arguments in (("build.log",), ("build.log", "cluster.yaml"), ("build.log", *UNJUDGED)):
        result = invoke(*arguments)
        assert (result.exit_code, result.output.count("passed over: build.log: no TrainSpec document")) == (0, 1)


@pytest.mark.parametrize("name", [*sorted(FILES.keys() - {"build.log"}), "module"])
def test_it_is_named_and_no_wrong_use(name: str) -> None:
    result = invoke(name, "cluster.yaml")
    assert (result.exit_code, f"{name}: not judged: " in result.output) == (0, True), result.output
    assert result.output.count(f"{name}: not judged: ") == 1
    assert invoke(name).exit_code == 0
    assert invoke(name, *UNJUDGED).exit_code == 1
    listed = invoke(name, "cluster.yaml", "--list-files")
    assert (listed.exit_code, f"left out: {name}: it " in listed.output) == (0, True), listed.output


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("plan.txt", (BASE / "plan.yaml").read_bytes()),
        ("run.0.jsonl", b"\xff destroyed\n"),
        ("run.prom", b"\xff destroyed\n"),
    ],
)
def test_what_is_ours_is_judged_as_before(name: str, content: bytes) -> None:
    Path(name).write_bytes(content)
    assert f"{name}: not judged: is no stream" not in invoke(name, "cluster.yaml").output
    assert f"left out: {name}" not in invoke(name, "cluster.yaml", "--list-files").output


@pytest.mark.parametrize("name", ["gone.log", "empty"])
def test_what_is_absent_or_empty_is_wrong_use(name: str) -> None:
    Path("empty").mkdir()
    assert invoke(name, "cluster.yaml").exit_code == 2
