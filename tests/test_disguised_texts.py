"""Documents in EBCDIC and behind long padding are named, and blank files are said to be blank."""

from __future__ import annotations

from pathlib import Path

import pytest

from trainspec_validate import validate
from trainspec_validate.documents.load import MAX_BYTES, LoadError, load_text
from trainspec_validate.telemetry.fold.engine import run_file
from trainspec_validate.telemetry.formats.source import SourceError

BASE = Path(__file__).resolve().parents[1] / "spec" / "v1" / "base"
CLUSTER, PLAN = ((BASE / name).read_bytes() for name in ("cluster.yaml", "plan.yaml"))
_PAD = b"\n" * (2 * MAX_BYTES)


@pytest.fixture(autouse=True)
def _tree(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "tree").mkdir()
    (tmp_path / "tree" / "cluster.yaml").write_bytes(CLUSTER)
    monkeypatch.chdir(tmp_path)


def left_out(name: str, content: bytes) -> list[str]:
    (Path("tree") / name).write_bytes(content)
    return [entry.reason for entry in validate(["tree"]).unjudged if entry.path == f"tree/{name}"]


@pytest.mark.parametrize("name", ["plan", "plan.txt", "plan.yaml.bak"])
@pytest.mark.parametrize("page", ["cp037", "cp273", "cp500", "cp1140"])
def test_a_document_in_ebcdic_is_named(name: str, page: str) -> None:
    content = PLAN.decode().encode(page)
    assert left_out(name, content) == ["claims to be ours under a name that is not searched"]


def test_a_document_in_ebcdic_by_the_name_of_one_is_no_text() -> None:
    assert left_out("train.yaml", PLAN.decode().encode("cp037")) == ["is no text in UTF-8"]


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
