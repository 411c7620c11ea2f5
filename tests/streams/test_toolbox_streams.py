"""trainspec import and export of streams: files in, one stream or file out, and a word on what was lost."""

from __future__ import annotations

import gzip
import json
from pathlib import Path

import pytest
import zstandard
from click.testing import CliRunner, Result
from test_formats import STARTS

from trainspec_validate.cli.toolbox import PROGRAM, command
from trainspec_validate.documents.types.stream import Head, Sample
from trainspec_validate.telemetry.formats import records
from trainspec_validate.telemetry.formats.native import read_line

MLLOG = """:::MLLOG {"key": "global_batch_size", "value": 32, "time_ms": 1000}
:::MLLOG {"key": "tracked_stats", "value": {"train_step_time": 2, "loss": 3}, "metadata": {"step": 32}, "time_ms": 2000}
"""
MEGATRON = " iteration 10/ 100 | consumed samples: 640 | lm loss: 1.0E+00 |\n"
BAD = MLLOG + ':::MLLOG {"key": "block_stop", "time_ms": 3000}\n:::MLLOG {"\n'
TREE = "SwitchName=spine Switches=leaf1\nSwitchName=leaf1 Nodes=node[001-016]\n"


@pytest.fixture(autouse=True)
def _own_directory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    for name, text in {"mlperf.log": MLLOG, "train.log": MEGATRON, "bad.log": BAD, "tree.conf": TREE}.items():
        (tmp_path / name).write_text(text, encoding="utf-8")


def invoke(*arguments: str, stdin: bytes | None = None) -> Result:
    return CliRunner().invoke(command, [*arguments], prog_name=PROGRAM, input=stdin)


def stream(text: str | bytes) -> list[object]:
    text = text.decode() if isinstance(text, bytes) else text
    return [read_line(line.encode()) for line in text.splitlines()]


def test_a_log_becomes_a_stream() -> None:
    result = invoke("import", "mlperf.log", "-o", "stream.jsonl", "--known", "run=r-7", "--known", "attempt=2")
    assert (result.exit_code, result.stdout) == (0, "")
    head, _, step = stream(Path("stream.jsonl").read_bytes())
    assert isinstance(head, Head)
    assert (head.run, head.att, head.emitter) == ("r-7", 2, "mlperf.log")
    assert isinstance(step, Sample)
    assert step.step == 1
    lines = result.stderr.splitlines()
    assert lines[0].split() == ["source", "format", "records", "refused"]
    assert lines[1].split() == ["mlperf.log", "mllog", "3", "0"]
    assert "lost: mlperf.log: step counts samples; it is divided by the batch" in lines
    assert lines[-1] == "next: trainspec-validate stream.jsonl"
    assert not list(Path().glob("*.part"))


def test_to_standard_output() -> None:
    result = invoke("import", "mlperf.log")
    assert result.exit_code == 0
    assert len(stream(result.stdout)) == 3
    assert "next: trainspec-validate FILE" in result.stderr


@pytest.mark.parametrize("pack", [gzip.compress, zstandard.compress, bytes])
@pytest.mark.parametrize("standard_input", [False, True])
def test_compressed_input(pack: object, standard_input: bool) -> None:
    content = pack(MLLOG.encode())  # type: ignore[operator]
    Path("packed").write_bytes(content)
    result = invoke("import", "-", stdin=content) if standard_input else invoke("import", "packed")
    assert result.exit_code == 0, result.stderr
    assert len(stream(result.stdout)) == 3


def test_several_files_are_one_stream() -> None:
    result = invoke("import", "mlperf.log", "train.log", "-o", "stream.jsonl")
    assert result.exit_code == 0
    found = stream(Path("stream.jsonl").read_bytes())
    assert [type(record).__name__ for record in found] == ["Head", "Sample", "Sample", "Head", "Sample"]
    placed = [(r.emitter, r.att) for r in found if isinstance(r, Sample)]
    assert placed == [("mlperf.log", 0), ("mlperf.log", 0), ("train.log", 0)]


def test_what_is_refused_has_its_line_and_fails() -> None:
    result = invoke("import", "bad.log", "-o", "stream.jsonl")
    assert result.exit_code == 1
    assert (
        "refused: bad.log:3: block_stop closes nothing: no block is open (write block_start; the rules" in result.stderr
    )
    assert "refused: bad.log:4: the line ends before its JSON does" in result.stderr
    assert Path("stream.jsonl").exists()


def test_more_refusals_than_a_person_reads() -> None:
    Path("worse.log").write_text(MLLOG + ":::MLLOG x\n" * 500, encoding="utf-8")
    result = invoke("import", "worse.log")
    assert result.stderr.count("refused: ") == 20
    assert "480 more of worse.log are refused" in result.stderr


def test_a_stream_without_a_known_value_is_a_failure() -> None:
    Path("other.json").write_text('{"resourceMetrics": []}', encoding="utf-8")
    result = invoke("import", "other.json", "-o", "stream.jsonl")
    assert result.exit_code == 2
    assert "nothing was converted" in result.stderr
    assert not list(Path().glob("stream*"))


def test_nothing_is_overwritten() -> None:
    Path("stream.jsonl").write_text("mine", encoding="utf-8")
    result = invoke("import", "mlperf.log", "-o", "stream.jsonl")
    assert result.exit_code == 2
    assert "stream.jsonl: already there; --force overwrites" in result.stderr
    assert Path("stream.jsonl").read_text(encoding="utf-8") == "mine"
    assert invoke("import", "mlperf.log", "-o", "stream.jsonl", "--force").exit_code == 0
    assert len(stream(Path("stream.jsonl").read_bytes())) == 3


def test_a_stream_is_no_input_of_import() -> None:
    Path("stream.jsonl").write_bytes(STARTS["metric-stream"])
    result = invoke("import", "stream.jsonl")
    assert result.exit_code == 2
    assert "this already is a metric stream" in result.stderr


def test_streams_and_documents_are_two_commands() -> None:
    result = invoke("import", "mlperf.log", "tree.conf")
    assert result.exit_code == 2
    assert "streams and documents are two commands: mlperf.log is a stream, tree.conf is none" in result.stderr
    Path("logs").mkdir()
    Path("logs/a.log").write_text(MLLOG, encoding="utf-8")
    Path("logs/notes.txt").write_text("nothing known\n", encoding="utf-8")
    assert invoke("import", "logs").exit_code == 0
    Path("logs/tree.conf").write_text(TREE, encoding="utf-8")
    result = invoke("import", "logs")
    assert result.exit_code == 0
    assert "left out: logs/a.log" in result.stderr


def test_a_log_of_two_programs_needs_its_format() -> None:
    both = MLLOG + "node-1:101:140 [0] NCCL INFO NET/IB : No device found.\n" * 5
    Path("both.log").write_text(both, encoding="utf-8")
    result = invoke("import", "both.log")
    assert result.exit_code == 2
    assert "both.log fits several formats: collective-library-log, mllog; name one with --format" in result.stderr
    assert len(stream(invoke("import", "both.log", "--format", "mllog").stdout)) == 3
    assert "observations" in invoke("import", "both.log", "--format", "collective-library-log").stdout


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["mlperf.log", "--num-nodes", "3"], "streams take --known"),
        (["mlperf.log", "--name", "x"], "streams take --known"),
        (["tree.conf", "--known", "run=r"], "none of the files is one"),
        (["mlperf.log", "--known", "run"], "write KEY=VALUE"),
        (["mlperf.log", "--known", "hots=1"], "did you mean 'host'?"),
        (["mlperf.log", "--known", "run="], "1 to 256 characters"),
        (["mlperf.log", "--known", "attempt=-1"], "a whole number from 0"),
        (["mlperf.log", "--known", "attempt=9999999"], "a whole number from 0"),
        (["mlperf.log", "--known", "num_accelerators=0"], "a number above 0"),
        (["mlperf.log", "--known", "start=yesterday"], "a moment with its zone"),
        (["mlperf.log", "--known", "start=2026-01-01T00:00:00"], "a moment with its zone"),
        (["mlperf.log", "--known", "utc_offset=+25:00"], "such as +08:00"),
        (["absent.log"], "absent.log: the file cannot be read: no such file"),
    ],
)
def test_wrong_use(arguments: list[str], words: str) -> None:
    result = invoke("import", *arguments)
    assert result.exit_code == 2
    assert words in result.stderr


def test_what_is_known_is_used() -> None:
    known = ["run=r", "host=h", "rank=3", "start=2026-01-01T00:00:00+00:00", "utc_offset=-01:30", "tokens_per_sample=8"]
    options = [word for pair in known for word in ("--known", pair)]
    head, _ = stream(invoke("import", "train.log", *options).stdout)
    assert isinstance(head, Head)
    assert (head.run, head.host, head.rank, head.time_us) == ("r", "h", 3, 1767225601_000000)


# --- export -------------------------------------------------------------------------------------------------


@pytest.fixture
def written() -> str:
    assert invoke("import", "mlperf.log", "-o", "stream.jsonl").exit_code == 0
    return Path("stream.jsonl").read_text(encoding="utf-8")


@pytest.mark.parametrize("target", ["otlp", "parquet"])
def test_there_and_back(written: str, target: str) -> None:
    result = invoke("export", "stream.jsonl", "--to", target, "--output", "out")
    assert result.exit_code == 0, result.stderr
    assert result.stderr.splitlines()[1].split() == ["stream.jsonl", "metric-stream", "3", "0"]
    assert invoke("import", "out").stdout == written


def test_one_signal_in_each_file(written: str) -> None:
    lines = written.splitlines()
    event = {"k": "e", "time_us": 5, "seq": 2, "name": "train.run.end"}
    Path("stream.jsonl").write_text("\n".join([*lines, json.dumps(event)]), encoding="utf-8")
    both = invoke("export", "stream.jsonl", "--to", "otlp")
    assert "note: a file of two signals" in both.stderr
    metrics = invoke("export", "stream.jsonl", "--to", "otlp-metrics")
    logs = invoke("export", "stream.jsonl", "--to", "otlp-logs")
    assert "note: " not in metrics.stderr + logs.stderr
    assert [next(iter(json.loads(line))) for line in metrics.stdout.splitlines()] == ["resourceMetrics"]
    assert [next(iter(json.loads(line))) for line in logs.stdout.splitlines()] == ["resourceLogs"]
    assert sorted(both.stdout.splitlines()) == sorted([*metrics.stdout.splitlines(), *logs.stdout.splitlines()])


def test_a_snapshot(written: str) -> None:
    result = invoke("export", "stream.jsonl", "--to", "prometheus")
    assert result.exit_code == 0
    labels = '{train_run_attempt="0",train_run_id="unknown"}'
    assert f"train_step_count_total{labels} 1.0 2000\n" in result.stdout
    assert "# TYPE train_step_count_total counter\n" in result.stdout


def test_a_foreign_log_is_exported_at_once() -> None:
    result = invoke("export", "train.log", "--to", "parquet", "--output", "out.parquet")
    assert result.exit_code == 0
    from trainspec_validate.telemetry.formats import parquet

    assert len(list(records(parquet.read(Path("out.parquet"))))) == 2
    assert invoke("export", "bad.log", "--to", "otlp", "--output", "out.otlp").exit_code == 1


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["stream.jsonl", "--to", "parquet"], "name its file with --output"),
        (["stream.jsonl", "--to", "oltp"], "did you mean 'otlp'?"),
        (["stream.jsonl", "--to", "slurm"], "no format of streams is called 'slurm'"),
        (["stream.jsonl", "--to", "otlp", "--cluster", "tree.conf"], "--cluster and --policy are about plans"),
        (["stream.jsonl", "--to", "otlp", "--output", "tree.conf"], "tree.conf: already there"),
        (["stream.jsonl", "--to", "otlp", "--output", "no/where"], "no/where: cannot be written"),
        (["headless.jsonl", "--to", "otlp"], "a record precedes any head"),
        (["PAR", "--to", "otlp"], "PAR: the file is no sound Parquet"),
    ],
)
def test_wrong_exports(written: str, arguments: list[str], words: str) -> None:
    Path("headless.jsonl").write_text(written.split("\n", 1)[1], encoding="utf-8")
    Path("PAR").write_bytes(b"PAR1 and more")
    result = invoke("export", *arguments)
    assert result.exit_code == 2
    assert words in result.stderr
    assert not list(Path().glob("*.part"))
