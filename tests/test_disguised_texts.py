"""Documents in EBCDIC and behind long padding are named, and blank files are said to be blank."""

from __future__ import annotations

import base64
import json
from pathlib import Path

import pytest

from trainspec_validate import validate
from trainspec_validate.documents.load import MAX_BYTES, LoadError, load_text
from trainspec_validate.pipeline.foreign import HELD
from trainspec_validate.telemetry.fold.engine import run_file
from trainspec_validate.telemetry.formats.source import SourceError

BASE = Path(__file__).resolve().parents[1] / "spec" / "v1" / "base"
CLUSTER, PLAN = ((BASE / name).read_bytes() for name in ("cluster.yaml", "plan.yaml"))
_PAD_BYTES = 2 * MAX_BYTES
_PAD = b"\n" * _PAD_BYTES


@pytest.fixture(autouse=True)
def _tree(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "tree").mkdir()
    (tmp_path / "tree" / "cluster.yaml").write_bytes(CLUSTER)
    monkeypatch.chdir(tmp_path)


def left_out(name: str, content: bytes) -> list[str]:
    (Path("tree") / name).write_bytes(content)
    return [entry.reason for entry in validate(["tree"]).unjudged if entry.path == f"tree/{name}"]


@pytest.mark.parametrize("name", ["plan", "plan.txt", "plan.yaml.bak", "plan.dat"])
@pytest.mark.parametrize("page", ["cp037", "cp273", "cp500", "cp1140"])
def test_a_document_in_ebcdic_is_named(name: str, page: str) -> None:
    content = PLAN.decode().encode(page)
    assert left_out(name, content) == ["claims to be ours under a name that is not searched"]


@pytest.mark.parametrize("name", ["train.yaml", "plan.yaml", "x.json"])
def test_a_document_in_ebcdic_by_the_name_of_one_is_no_text(name: str) -> None:
    (Path("tree") / name).write_bytes(PLAN.decode().encode("cp500"))
    assert [f.path for f in validate(["tree"]).findings if f.requirement == "TS-DOC-001"] == [f"tree/{name}"]


@pytest.mark.parametrize("padding", [_PAD, b"# x\n" * (_PAD_BYTES // 4)], ids=["blank", "comments"])
def test_a_document_that_is_too_long_is_the_same_finding_in_a_directory(padding: bytes) -> None:
    path = Path("tree") / "train.yaml"
    path.write_bytes(padding + PLAN)
    for argument in ("tree", path.as_posix()):
        found = [(f.path, f.requirement) for f in validate([argument]).findings if f.path == path.as_posix()]
        assert found == [(path.as_posix(), "TS-DOC-003")]


def test_a_file_whose_end_was_not_looked_at_is_not_said_to_be_blank() -> None:
    [reason] = left_out("train.yaml", _PAD + b"replicas: 3\n")
    assert reason.startswith("has more than 33,554,432 bytes")


SCRIPTS = {
    "to a file": "cat <<E > cluster.yaml\n{}E\n",
    "quoted": "cat > cluster.yaml <<'EOF'\n{}EOF\n",
    "two": "cat <<A <<\\B\nx\nA\n{}B\n",
    "with blanks in the end": 'cat > cluster.yaml <<"E O F"\n{}E O F\n',
    "quoted in part": 'cat <<E"O"F > cluster.yaml\n{}EOF\n',
    "with a backslash in the end": "cat <<E\\OF > cluster.yaml\n{}EOF\n",
    "up to an empty line": "cat <<'' > cluster.yaml\n{}\n",
    "in another": "ssh host <<A\ncat > cluster.yaml <<B\n{}B\nA\n",
    "up to the end of the script": "cat <<E > cluster.yaml\n{}",
    "without an end before": "echo <<NEVER\ncat <<E\n{}E\n",
}


@pytest.mark.parametrize("script", SCRIPTS.values(), ids=SCRIPTS)
@pytest.mark.parametrize(
    ("name", "first"), [("launch.sh", ""), ("job.sbatch", ""), ("run.me", "#!/usr/bin/env bash\n")]
)
def test_a_document_that_a_script_writes_is_named(script: str, name: str, first: str) -> None:
    content = first + "set -e\n" + script.format(PLAN.decode())
    assert left_out(name, content.encode()) == ["holds a document in a here-document of a shell script"]


def test_a_document_that_a_script_indents_is_named() -> None:
    body = "".join(f"\t{line}\n" for line in PLAN.decode().splitlines())
    assert left_out("launch.sh", f"if x; then\n\tcat <<-E\n{body}\tE\nfi\n".encode()) != []


@pytest.mark.parametrize("code", ["utf-8", "utf-16-le", "utf-16-be", "utf-16", "utf-32"])
@pytest.mark.parametrize("before", ["", "\n", "\n\n"])
@pytest.mark.parametrize("name", ["a.txt", "a.csv", "run.sh", "launch"])
def test_a_document_in_base64_is_named(code: str, before: str, name: str) -> None:
    packed = base64.b64encode((before + PLAN.decode()).encode(code)).decode()
    text = {
        "a.csv": f"name,plan\na,{packed}\n",
        "run.sh": f"set -e\necho {packed} | base64 -d > plan.yaml\n",
        "launch": f"#!/bin/sh\necho {packed} | base64 -d > plan.yaml\n",
    }.get(name, packed)
    [reason] = left_out(name, text.encode())
    assert reason.startswith("holds a document in ")


def test_a_document_in_a_key_is_named() -> None:
    start = "".join(PLAN.decode().splitlines(keepends=True)[:8])
    assert left_out("a.json", json.dumps({start: 1}).encode()) == [HELD]


QUOTES = {
    "values.sh": "cat <<E > values.yaml\nreplicas: 3\nimage: trainspec/v1\nE\n",
    "token.sh": f"echo {base64.b64encode(b'image: trainspec' * 9).decode()} | base64 -d > values.yaml\n",
    "test_data.py": f"DATA = '{base64.b64encode(PLAN).decode()}'\n",
    "check.sh": "grep 'apiVersion: trainspec/v1' *.yaml\n",
    "guide.md": "```sh\ncat <<E > plan.yaml\n{}E\n```\n",
    "test_plans.py": 'PLAN = """\n{}"""\n',
}


@pytest.mark.parametrize("name", QUOTES)
def test_what_mentions_or_shows_a_document_is_no_word_worth(name: str) -> None:
    assert left_out(name, QUOTES[name].format(PLAN.decode()).encode()) == []


@pytest.mark.parametrize("content", [PLAN + _PAD, _PAD + PLAN, b"#" + _PAD.replace(b"\n", b"x") + b"\n" + PLAN])
def test_a_document_next_to_long_padding_is_named(content: bytes) -> None:
    assert left_out("plan.txt", content) == ["claims to be ours under a name that is not searched"]


BLANK = {"blanks": b"  \n\t\n", "mark": b"\xef\xbb\xbf", "no-break": "\u00a0\u2003\n".encode()}


@pytest.mark.parametrize("content", BLANK.values(), ids=BLANK)
def test_a_blank_file_is_said_to_be_blank(content: bytes) -> None:
    assert left_out("train.yaml", content) == ["is blank"]
    with pytest.raises(LoadError, match="holds no document"):
        load_text(content, "plan.yaml")
    Path("stream.jsonl").write_bytes(content)
    with pytest.raises(SourceError, match="is blank"):
        run_file(0, Path("stream.jsonl"), "stream.jsonl")


def test_an_empty_file_is_said_to_be_empty() -> None:
    assert left_out("train.yaml", b"") == ["is empty"]
    Path("stream.jsonl").write_bytes(b"")
    with pytest.raises(SourceError, match="is empty"):
        run_file(0, Path("stream.jsonl"), "stream.jsonl")
