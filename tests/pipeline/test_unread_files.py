"""A file whose name is one of a document and that is no text, or too long for one, is named as not judged."""

from __future__ import annotations

import json
import random
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from trainspec_validate import validate
from trainspec_validate.cli import validate as cli
from trainspec_validate.documents.load import MAX_BYTES
from trainspec_validate.report import FORMATS, render

BASE = Path(__file__).resolve().parents[2] / "spec" / "v1" / "base"
CLUSTER, PLAN = ((BASE / name).read_bytes() for name in ("cluster.yaml", "plan.yaml"))
NOT_UTF_8, EMPTY, ZEROS = "is no text in UTF-8", "is empty", "holds zero bytes, which no text does"
UNREAD = {
    "random bytes": (random.Random(0).randbytes(5_000), NOT_UTF_8),
    "empty": (b"", EMPTY),
    "blank": (b" \n\n", "is blank"),
    "UTF-16": ("name: job\n".encode("utf-16"), NOT_UTF_8),
    "UTF-16 without a mark of order": ("name: job\n".encode("utf-16-le"), ZEROS),
    "zero bytes": (bytes(300), ZEROS),
    "Latin-1": ("name: Zürich\n".encode("latin-1"), NOT_UTF_8),
    "cut inside of a character": ("name: Zürich".encode()[:8], NOT_UTF_8),
    "no text behind the start": (b"a: 1\n" * 20_000 + b"\xff", NOT_UTF_8),
    "a plan in a long comment": (
        b"#" * MAX_BYTES + b"\n" + PLAN + b"#" * 2_000_000,
        f"has more than {MAX_BYTES:,} bytes",
    ),
}


@pytest.fixture(autouse=True)
def _tree(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "tree").mkdir()
    (tmp_path / "tree" / "cluster.yaml").write_bytes(CLUSTER)
    monkeypatch.chdir(tmp_path)


def invoke(*arguments: str) -> Result:
    return CliRunner().invoke(cli.command, list(arguments))


@pytest.mark.parametrize("case", UNREAD)
@pytest.mark.parametrize("name", ["job.yaml", "job.yml", "job.json", "job.YAML"])
def test_what_is_no_text_is_named_as_not_judged(name: str, case: str) -> None:
    content, reason = UNREAD[case]
    Path("tree", name).write_bytes(content)
    (entry,) = validate(["tree"]).unjudged
    assert entry.path == f"tree/{name}"
    assert entry.reason.startswith(reason)


@pytest.mark.parametrize("name", ["stderr.txt", "train.log", "loss.csv", "run.jsonl"])
def test_text_in_utf_16_is_named_with_its_encoding(name: str) -> None:
    text = "iter 1: loss 10.5, time 9.5ms\niter 2: loss 10.25, time 9.5ms\n"
    Path("tree", name).write_bytes(text.encode("utf-16"))
    (entry,) = validate(["tree"]).unjudged
    assert (entry.path, entry.reason[:22]) == (f"tree/{name}", "is text in UTF-16, as ")
    told = invoke(f"tree/{name}")
    assert (told.exit_code, "is text in UTF-16" in told.output) == (2, True)
    Path("tree", name).write_bytes("Bring milk.\n".encode("utf-16"))
    assert all("UTF-16" not in entry.reason for entry in validate(["tree"]).unjudged)


@pytest.mark.parametrize("encoding", ["utf-16", "utf-16-le"])
def test_a_document_in_utf_16_is_a_finding(encoding: str) -> None:
    Path("tree/job.yaml").write_bytes(PLAN.decode().encode(encoding))
    assert "TS-DOC-001" in {finding.requirement for finding in validate(["tree"]).findings}


@pytest.mark.parametrize("argument", ["tree", "tree/*"])
def test_it_counts_as_not_judged(argument: str) -> None:
    Path("tree/job.yaml").write_bytes(b"")
    assert invoke(argument).exit_code == 0
    assert "tree/job.yaml" in invoke(argument).stdout
    assert invoke(argument, "--fail-on", "error,unjudged").exit_code == 1
    assert invoke(argument, "--list-files").stderr == "left out: tree/job.yaml: it is empty\n"


@pytest.mark.parametrize("name", [name for name in FORMATS if name != "statistics"])
def test_every_format_names_it(name: str) -> None:
    Path("tree/job.yaml").write_bytes(b"\xff\xfe")
    text = render(validate(["tree"]), name)
    assert "tree/job.yaml" in text
    assert NOT_UTF_8 in text


def test_a_directory_of_nothing_else_is_no_pass() -> None:
    Path("tree/cluster.yaml").unlink()
    Path("tree/job.json").write_bytes(bytes(10))
    found = invoke("tree")
    assert found.exit_code == 2
    assert "tree/job.json" in found.stderr


@pytest.mark.parametrize("text", ["a: 1\n", "# nothing yet\n", "name: Zürich\n", "\ufeffa: 1\n", "a: " + "ü" * 70_000])
def test_texts_of_other_programs_are_not_named(text: str) -> None:
    Path("tree/job.yaml").write_bytes(text.encode())
    assert validate(["tree"]).unjudged == ()
    assert invoke("tree", "--list-files").stderr == ""


@pytest.mark.parametrize("slash", ["\\/", "\\u002f", "\\u002F"])
def test_a_document_whose_version_is_written_with_escapes_is_judged(slash: str) -> None:
    text = json.dumps({"apiVersion": "trainspec/v1", "kind": "TrainingPlan"}).replace("/", slash)
    Path("tree/job.json").write_text(text)
    assert {finding.path for finding in validate(["tree"]).findings} >= {"tree/job.json"}


@pytest.mark.parametrize("text", ["", "\n \n", "# only\n# comments\n", "---\n# nothing\n...\n"])
@pytest.mark.parametrize("name", ["policy.yaml", "checkpoint-policy.yml", "training-plan.yaml"])
def test_an_emptied_document_is_an_error(name: str, text: str) -> None:
    Path("tree", name).write_text(text)
    found = invoke("tree", "--format", "concise")
    assert found.exit_code == 1
    assert found.stdout.startswith(f"tree/{name}:")
    assert "error[TS-DOC-001] the file holds no document" in found.stdout
    assert invoke(f"tree/{name}").exit_code == 1


def test_an_empty_file_of_another_program_is_no_error() -> None:
    Path("tree/other").mkdir()
    for name in ("tree/other/policy.yaml", "tree/values.yaml", "tree/network-policy.yaml"):
        Path(name).write_text("# nothing\n")
    Path("tree/policy.yaml").write_text("# of Open Policy Agent\nallow: true\n")
    assert invoke("tree").exit_code == 0
    assert validate(["tree"]).unjudged == ()
