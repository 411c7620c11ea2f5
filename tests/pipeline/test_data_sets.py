"""Data sets are named and fail no gate; records of runs are never taken for them."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from tests.pipeline.test_detect import STREAMS
from trainspec_validate.cli.toolbox import command as toolbox
from trainspec_validate.cli.validate import PROGRAM, command
from trainspec_validate.pipeline.data_sets import holds_tokens, is_data_set

BASE = Path(__file__).resolve().parents[2] / "spec" / "v1" / "base"
DATA_SETS = [
    {"text": "a line of a data set"},
    {"instruction": "Say hello.", "input": "", "output": "Hello!"},
    {"messages": [{"role": "user", "content": "Hi"}, {"role": "assistant", "content": "Yes", "loss_weight": 0.0}]},
    {
        "id": 7,
        "messages": [{"role": "user", "content": [{"type": "video", "timestamps": [0.5, 1.5], "video": "a.mp4"}]}],
    },
    {"question_id": 81, "category": "writing", "turns": ["Compose a blog.", "Shorten it."]},
    {"query": "The man turned on the faucet, therefore", "gold": 1, "choices": ["it filled.", "it flowed."]},
    {"context": "25-759=", "continuation": "-734"},
    {"problem": "Step 1: add. Step 2: halve the result.", "level": "Level 5", "solution": "It is 7 in all."},
    {"text": "北京是中国的首都", "label": 1},
    {"prompt": "Why?", "chosen": "Because.", "rejected": "No."},
    {"url": "https://example.org", "text": "The loss of the ship was felt."},
    [{"role": "user", "content": "Give three tips."}, {"role": "assistant", "content": "1. Eat."}],
    {"text": "A long page of words. " * 60, "meta": {"timestamp": "2022-08-31T02:05:17", "arxiv_id": "2208.14407"}},
]
RECORDS = [
    {"step": 1, "loss": 2.5, "note": "a line of a log"},
    {"message": "step 10 loss 2.5 and more words"},
    {"level": "INFO", "message": "the run began in good order"},
    {"levelname": "INFO", "name": "trainer", "message": "the run began"},
    {"timestamp": "2026-01-01T00:00:00", "message": "the run began"},
    {"prompt": "Why?", "response": "Because.", "epoch": 3},
    {"trainLoss": 2.5, "text": "a sample of the run"},
    {"gloss": 2.5, "text": "a sample of the run"},
    {"timestamp": 1661911517.5, "text": "A long page of words. " * 60},
    {"timestamp": "2022-08-31T02:05:17", "traceback": "in a long text of words " * 60},
    {"description": "a run of the night", "a": 0.5, "b": 0.25},
    {"data": {"metrics": {"x": 1}}, "text": "of a run in the night"},
    {"损失": 2.5, "text": "a sample of the run"},
    {"input_ids": [1, 2, 3]},
    {"a": 1},
    {},
    [],
    [1, 2],
    "a text of several words",
]


@pytest.mark.parametrize("record", DATA_SETS, ids=lambda record: next(iter(record)) if isinstance(record, dict) else "")
def test_a_data_set_is_known_by_its_keys_and_texts(record: object) -> None:
    line = json.dumps(record, ensure_ascii=False).encode()
    assert is_data_set(line)
    assert is_data_set(b"\xef\xbb\xbf" + line + b"\n" + line + b"\n" + line[:20])


@pytest.mark.parametrize("record", RECORDS, ids=str)
def test_a_record_of_a_run_is_none(record: object) -> None:
    line = json.dumps(record).encode()
    assert not is_data_set(line)


def test_one_record_of_a_run_among_others_is_enough() -> None:
    text = json.dumps(DATA_SETS[0]).encode() + b"\n"
    assert is_data_set(text * 3)
    assert not is_data_set(text * 3 + json.dumps(RECORDS[0]).encode() + b"\n")


@pytest.mark.parametrize("name", STREAMS)
def test_a_stream_is_none(name: str) -> None:
    assert not is_data_set(STREAMS[name].encode())


@pytest.mark.parametrize(
    "text", [b"", b"\n", b"{", b'{"text": "a line of a', b"[" * 100_000, b'{"text": ' * 50_000, b"\0"]
)
def test_what_is_cut_or_damaged_is_none(text: bytes) -> None:
    assert not is_data_set(text)


@pytest.fixture
def gate(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    (tmp_path / ".git").mkdir()
    monkeypatch.chdir(tmp_path)
    for name in ("cluster.yaml", "plan.yaml"):
        shutil.copy(BASE / name, tmp_path)
    return tmp_path


def invoke(*arguments: str) -> Result:
    return CliRunner().invoke(command, [*arguments, "--fail-on", "error,unjudged"], prog_name=PROGRAM)


def test_a_data_set_is_named_and_fails_no_gate(gate: Path) -> None:
    (gate / "data.jsonl").write_text(json.dumps(DATA_SETS[0]) + "\n", encoding="utf-8")
    result = invoke(".", "--format", "json")
    report = json.loads(result.stdout)
    assert (result.exit_code, report["unjudged"]) == (0, [])
    (found,) = report["passed_over"]
    assert (found["reason"], found["paths"]) == ("is a data set in JSON Lines", ["data.jsonl"])
    assert "1 file passed over: data.jsonl is a data set in JSON Lines" in invoke(".", "--format", "concise").stdout
    changed = invoke("data.jsonl", "plan.yaml", "--dependents")
    assert (changed.exit_code, changed.stderr) == (0, "passed over: data.jsonl: no TrainSpec document\n")


def test_a_log_of_no_known_format_fails_it(gate: Path) -> None:
    (gate / "log.jsonl").write_text(json.dumps(RECORDS[0]) + "\n", encoding="utf-8")
    assert invoke(".").exit_code == 1
    assert invoke("log.jsonl", "plan.yaml", "--dependents").exit_code == 1


@pytest.mark.parametrize("magic", [b"MMIDIDX\0\0", b"TNTIDX\0\0"])
def test_tokens_with_their_index_are_no_state(gate: Path, magic: bytes) -> None:
    (gate / "a_document.bin").write_bytes(b"\1\0\2\0")
    assert invoke(".").exit_code == 1, "a file of state in no checkpoint"
    (gate / "a_document.idx").write_bytes(magic + b"\1\0")
    assert invoke(".").exit_code == 0
    assert holds_tokens(gate / "a_document.bin")


def test_tokens_are_known_by_their_own_start(gate: Path) -> None:
    (gate / "train.bin").write_bytes((20240520).to_bytes(4, "little") + bytes(1020))
    assert invoke(".").exit_code == 0


def test_an_index_hides_no_pickle(gate: Path) -> None:
    (gate / "model.bin").write_bytes(b"\x80\x02}q\x00.")
    (gate / "model.idx").write_bytes(b"MMIDIDX\0\0")
    assert invoke(".").exit_code == 1


def test_a_run_that_finds_nothing_names_what_is_imported(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "ds.json").write_text('{"zero_optimization": {"stage": 2}, "train_batch_size": 8}', encoding="utf-8")
    result = invoke(".")
    assert result.exit_code == 2
    assert result.stderr.splitlines()[-1] == "Error: 1 file is of formats that are imported: trainspec import ds.json"
    (tmp_path / "ds.json").write_text("{}", encoding="utf-8")
    assert "import" not in invoke(".").stderr


REFUSED = """\
#!/bin/bash
# bash serve.sh maxtext/configs/base.yml per_device_batch_size=4 ici_tensor_parallelism=4
python -u -m benchmarks.api_server.maxtext_server "$@"
"""


def test_the_example_of_an_import_is_a_file_that_an_import_takes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "a.sh").write_text(REFUSED, encoding="utf-8")
    (tmp_path / "other.yaml").write_text("a: 1\n", encoding="utf-8")
    assert CliRunner().invoke(toolbox, ["import", "a.sh"]).exit_code != 0
    line = invoke(".").stderr.splitlines()[-1]
    assert line.startswith("Error: 1 file is of formats that are imported: ")
    assert "a.sh" not in line
    (tmp_path / "ds.json").write_text('{"zero_optimization": {"stage": 2}, "train_batch_size": 8}', encoding="utf-8")
    line = invoke(".").stderr.splitlines()[-1]
    assert line == "Error: 2 files are of formats that are imported: trainspec import ds.json"


def test_fractions_are_counted_over_all_lines() -> None:
    rows = [{"text": "An image of a mill.", "likes": 3}] * 3 + [{"text": "mill", "score": 0.25, "nsfw": 0.5}]
    assert is_data_set("".join(json.dumps(row) + "\n" for row in rows).encode())
    assert not is_data_set("".join(json.dumps(row) + "\n" for row in [*rows[2:], rows[3]]).encode())


STATISTICS = "Analyzing the mixture in: /data/16384\n" + "  books/00000_tokens.bin: 1,708,002,573 tokens\n" * 5


@pytest.mark.parametrize(
    ("name", "text", "is_left_out"),
    [
        ("mixture.log", f"{STATISTICS}Tokens: 55,801,155,457 (71.0%)\n", False),
        ("mixture.log", f"{STATISTICS}RuntimeError: no such file\n", True),
        ("mixture.log", f"{STATISTICS}epoch 1\n", True),
        ("run.log", "100 2.51\n200 2.43\n", True),
        ("run.log", "", True),
    ],
)
def test_statistics_are_no_log_of_a_run(tmp_path: Path, name: str, text: str, is_left_out: bool) -> None:
    shutil.copy(BASE / "cluster.yaml", tmp_path)
    (tmp_path / name).write_text(text, encoding="utf-8")
    done = CliRunner().invoke(command, [str(tmp_path), "--fail-on", "unjudged"], prog_name=PROGRAM)
    assert (done.exit_code == 1, name in done.output) == (is_left_out, is_left_out)


@pytest.mark.parametrize(
    ("name", "array", "is_left_out"),
    [
        ("clip_scores_10000.npy", "'<f8'", False),
        ("labels.npy", "'|u1'", False),
        ("weights.npy", "'<f4'", True),
        ("exp_avg_sq.npy", "'<f4'", True),
        ("0.npy", "'<f4'", True),
        ("b.npy", "'<f4'", True),
        ("scores.npy", "'|O'", True),
        ("scores.npy", "[('a', '|O')]", True),
        ("step_100/scores.npy", "'<f4'", True),
    ],
)
def test_an_array_of_numbers_is_no_state(tmp_path: Path, name: str, array: str, is_left_out: bool) -> None:
    shutil.copy(BASE / "cluster.yaml", tmp_path)
    path = tmp_path / name
    path.parent.mkdir(exist_ok=True)
    head = f"{{'descr': {array}, 'fortran_order': False, 'shape': (4,), }}".ljust(117) + "\n"
    path.write_bytes(b"\x93NUMPY\x01\x00v\x00" + head.encode() + bytes(32))
    done = CliRunner().invoke(command, [str(tmp_path), "--fail-on", "unjudged"], prog_name=PROGRAM)
    assert (done.exit_code == 1) == is_left_out
