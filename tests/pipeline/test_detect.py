"""Directories, patterns, named files, standard input and `--list-files` agree on what a file is, by its content."""

from __future__ import annotations

import gzip
import json
import os
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from trainspec_validate.cli import toolbox
from trainspec_validate.cli import validate as cli
from trainspec_validate.pipeline.detect import detect, search
from trainspec_validate.pipeline.files import File

NATIVE = (
    '{"k":"head","apiVersion":"trainspec/v1","kind":"MetricStream","run":"r-1","att":0,"emitter":"a","time_us":1,'
    '"scopes":["job"]}\n{"k":"m","time_us":2,"seq":0,"m":{"train.loss.mean":2.5}}\n'
)
TORCHTITAN = '{"rank": 0, "log_type_name": "step_start", "time_us": 1, "seq_id": 0}\n'
OTLP = '{"resourceMetrics": []}\n'
MLLOG = ':::MLLOG {"key": "init_start", "value": null, "time_ms": 1000}\n'
MEGATRON = " iteration       10/     100 | consumed samples:          640 | lm loss: 1.0E+00 |\n"
PROMETHEUS = "# TYPE up gauge\nup 1\n"
PLAN = "apiVersion: trainspec/v1\nkind: TrainingPlan\n"
OTHERS = '{"text": "a line of a data set"}\n'
STREAMS = {
    "native.jsonl": NATIVE,
    "titan.jsonl": TORCHTITAN,
    "otlp.jsonl": OTLP,
    "otlp.json": OTLP,
    "native.json": NATIVE,
    "log.mllog": MLLOG,
    "result.txt": MLLOG,
    "train.log": MEGATRON,
    "node.prom": PROMETHEUS,
}
NO_STREAMS = {
    "plan.yaml": PLAN,
    "deep.yml": f"# TYPE of a document\n# TYPE up gauge\n{PLAN}",
    "settings.yaml": "a: 1\n",
    "quoting.json": json.dumps({"log": MLLOG}),
    "data.jsonl": OTHERS,
    "requirements.txt": "# TYPE checking\nmypy\n",
    "rows.csv": "a,b\n1,2\n",
}
DOCUMENTS = ["deep.yml", "plan.yaml"]


@pytest.fixture(autouse=True)
def _own_directory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / ".git").mkdir()
    monkeypatch.chdir(tmp_path)
    Path("run").mkdir()
    for name, text in (STREAMS | NO_STREAMS).items():
        Path("run", name).write_text(text)


def invoke(*arguments: str, stdin: str | bytes | None = None) -> Result:
    return CliRunner().invoke(cli.command, list(arguments), input=stdin)


def judged(*arguments: str, stdin: str | bytes | None = None) -> dict[str, str]:
    """Kind by path of what was judged."""
    result = invoke(*arguments, "--format", "json", stdin=stdin)
    assert result.exit_code in {0, 1}, result.stderr
    return {entry["path"]: entry["kind"] for entry in json.loads(result.stdout)["documents"]}


def test_a_directory_is_judged_as_its_files_by_name_are() -> None:
    found = judged("run")
    assert sorted(path for path, kind in found.items() if kind == "MetricStream") == sorted(f"run/{n}" for n in STREAMS)
    assert sorted(found.keys() - {f"run/{name}" for name in STREAMS}) == [f"run/{name}" for name in DOCUMENTS]
    named = judged(*(f"run/{name}" for name in (*STREAMS, *DOCUMENTS)))
    assert named == found


@pytest.mark.parametrize("pattern", ["run/*", "run/**/*", "r*/*.*"])
def test_a_pattern_finds_what_a_directory_holds(pattern: str) -> None:
    assert judged(pattern) == judged("run")


def test_patterns_take_any_name() -> None:
    Path("run/rank.0").write_text(NATIVE)
    assert judged("run/rank.*") == {"run/rank.0": "MetricStream"}


def test_listing_names_what_is_judged() -> None:
    result = invoke("run", "--list-files")
    assert sorted(result.stdout.split()) == sorted(judged("run"))
    assert result.stderr == "left out: run/data.jsonl: it is a data set in JSON Lines\n"


def test_what_is_of_no_known_format_is_named() -> None:
    result = invoke("run", "--format", "json")
    report = json.loads(result.stdout)
    assert "run/data.jsonl" not in {entry["path"] for entry in report["unjudged"]}
    assert {entry["reason"]: entry["paths"] for entry in report["passed_over"]} == {
        "is a data set in JSON Lines": ["run/data.jsonl"]
    }
    assert "run/data.jsonl" in invoke("run", "--format", "concise").stdout
    alone = invoke("run/data*")
    assert alone.exit_code == 2
    assert "of no known format: run/data.jsonl" in alone.stderr


def test_a_large_stream_is_listed() -> None:
    with Path("run/large.jsonl").open("w") as file:
        file.write(NATIVE)
        file.truncate(36_000_000)
    result = invoke("run/large.jsonl", "--list-files")
    assert (result.exit_code, result.stdout) == (0, "run/large.jsonl\n")


@pytest.mark.parametrize("name", STREAMS)
def test_importing_sees_the_same(name: str) -> None:
    """A file that validates as a stream imports as one, and a file that is none does not."""
    result = CliRunner().invoke(toolbox.command, ["import", f"run/{name}"])
    if name.startswith("native"):
        assert "this already is a metric stream" in result.stderr
    else:
        assert detect(File(Path("run", name), name)).format in result.stderr


@pytest.mark.parametrize("packed", [False, True])
@pytest.mark.parametrize("name", ["native.jsonl", "log.mllog", "node.prom", "otlp.jsonl"])
def test_standard_input_is_judged_as_a_file_is(name: str, packed: bool) -> None:
    content = STREAMS[name].encode()
    content = gzip.compress(content) if packed else content
    assert judged("-", stdin=content) == {"<stdin>": "MetricStream"}
    result = invoke("-", "--stdin-filename", f"run/{name}", "--format", "json", stdin=content)
    named = invoke(f"run/{name}", "--format", "json")
    texts = [
        [(entry["requirement"], entry["message"], entry["span"]) for entry in json.loads(each.stdout)["findings"]]
        for each in (result, named)
    ]
    assert texts[0] == texts[1]
    assert result.exit_code == named.exit_code


def test_an_empty_stream_is_no_pass() -> None:
    Path("run/empty.jsonl").touch()
    result = invoke("run")
    assert result.exit_code == 2
    assert "run/empty.jsonl: the file is empty" in result.stderr


@pytest.mark.parametrize("content", [bytes(500), b"<html>error 503</html>", "{}".encode("utf-16"), b"-----BEGIN PGP"])
def test_a_destroyed_stream_of_a_recorder_is_no_pass(content: bytes) -> None:
    Path("run/job.0.jsonl").write_bytes(content)
    result = invoke("run")
    assert result.exit_code == 2
    assert "run/job.0.jsonl" in result.stderr
    Path("run/job.0.jsonl").write_text('{"prompt": "a dataset of another program"}\n')
    assert invoke("run").exit_code != 2


def test_damaged_compressed_streams_are_named() -> None:
    Path("run/cut.jsonl.gz").write_bytes(gzip.compress(NATIVE.encode())[:12])
    result = invoke("run")
    assert result.exit_code == 2
    assert "run/cut.jsonl.gz: the compressed data end early" in result.stderr


def test_each_file_is_found_once() -> None:
    Path("run/again.yaml").symlink_to("plan.yaml")
    for arguments in (["run", "run/*"], ["run/*", "run"], ["run/again.yaml", "run", "run/plan.yaml"]):
        found = [file for file in search(arguments).files if file.path.resolve() == Path("run/plan.yaml").resolve()]
        assert len(found) == 1


def test_lines_of_json_with_the_name_of_a_document_are_no_document() -> None:
    Path("metrics.json").write_text('{"label": 19, "score": 2.5}\n{"label": 39, "score": 2.4}\n')
    result = invoke("metrics.json")
    assert (result.exit_code, "metrics.json: this is no stream of a known format" in result.stderr) == (2, True)
    Path("plan.json").write_text('{"apiVersion": "trainspec/v1"}\n{"kind": "TrainingPlan"}\n')
    assert "TS-DOC-001" in invoke("plan.json").stdout


# --- following


def test_following_an_empty_or_absent_directory_waits(monkeypatch: pytest.MonkeyPatch) -> None:
    from trainspec_validate.cli import following

    class EnoughError(Exception):
        pass

    def enough(_: float) -> None:
        raise EnoughError

    monkeypatch.setattr(following, "sleep", enough)
    Path("empty").mkdir()
    for place in ("empty", "absent"):
        result = invoke(place, "--follow")
        assert isinstance(result.exception, EnoughError)
        absent = "; absent does not exist yet" * (place == "absent")
        assert result.stdout == f"now: no stream to follow yet, looked for in {place}{absent}\n"


def test_following_a_log_that_is_there_looks_for_no_stream() -> None:
    result = invoke("run/train.log", "--follow")
    assert (result.exit_code, result.stdout) == (2, "")
    assert "run/train.log: its format is megatron-log" in result.stderr


def test_following_names_what_it_leaves_out(monkeypatch: pytest.MonkeyPatch) -> None:
    end = '{"k":"e","time_us":3,"seq":1,"name":"train.run.end"}\n'
    Path("run/native.jsonl").write_text(NATIVE + end)
    Path("run/native.json").unlink()
    result = invoke("run", "--follow")
    assert "run/data.jsonl: it is a data set in JSON Lines" in result.stderr
    assert "run/titan.jsonl: its format is torchtitan" in result.stderr
    assert "run/train.log: its format is megatron-log" in result.stderr
    assert result.stdout.splitlines()[-1] == invoke("run/native.jsonl").stdout.splitlines()[-1]


def test_following_beside_an_unreadable_document_is_wrong_use() -> None:
    os.mkfifo("run/unreadable.yaml")
    result = invoke("run", "run/unreadable.yaml", "--follow")
    assert result.exit_code == 2
    assert "not a regular file" in result.stderr


@pytest.mark.parametrize(
    "text",
    ["\ufeff" + OTLP, OTLP.replace("r", "\\u0072", 1), "[" + OTLP.strip() + "]", "// exported\n" + OTLP],
    ids=["order-mark", "escaped", "list", "comment"],
)
def test_otlp_is_recognised_however_its_json_begins(text: str) -> None:
    Path("run", "odd.json").write_text(text)
    assert detect(File(Path("run/odd.json"), "run/odd.json", "run")).format == "otlp"


def test_a_tree_that_is_too_deep_is_named_and_the_rest_is_searched() -> None:
    deep = Path("run", *(["d"] * 40))
    deep.mkdir(parents=True)
    (Path("run") / "z" / "step-1").mkdir(parents=True)
    (Path("run") / "z" / "step-1" / ".metadata").write_bytes(b"")
    found = search(["run"])
    assert [group.members for group in found.checkpoints] == [[Path("run/z/step-1")]]
    assert found.failures == ()
    ((path, reason, _),) = found.unsearched
    assert path == "/".join(["run", *(["d"] * 33)])
    assert reason == "is below more than 32 levels of directories, and was not searched for checkpoints"


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("a,b\n1,2\n", "rows.csv: is a table, and is no stream of a known format"),
        ('"Name","State","Notes","Created","Runtime"\n"a","finished","-","2026","3"\n', "table of runs of Weights"),
    ],
)
def test_a_table_that_no_reader_takes_is_named_as_one(text: str, words: str) -> None:
    Path("rows.csv").write_text(text)
    result = invoke("rows.csv")
    assert result.exit_code == 2
    assert words in result.stderr
