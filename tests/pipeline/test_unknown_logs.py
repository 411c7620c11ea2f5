"""Logs that no reader takes, and pointers in place of files, are named for what they are."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from trainspec_validate.cli.validate import command
from trainspec_validate.pipeline.validation import validate
from trainspec_validate.system.boundary import InputError

ROOT = Path(__file__).parents[2]
POINTER = "version https://git-lfs.github.com/spec/v1\noid sha256:" + "0" * 64 + "\nsize 123456\n"


def told(path: Path, text: str) -> str:
    path.write_text(text, encoding="utf-8")
    with pytest.raises(InputError) as error:
        validate([path])
    return str(error.value)


@pytest.mark.parametrize("name", ["train.log", "slurm-7.out", "job.err", "running_log.txt", "notes.md"])
def test_a_log_of_no_known_format_is_no_document(tmp_path: Path, name: str) -> None:
    words = told(tmp_path / name, "epoch 1 loss 2.5\nepoch 2 loss 2.4\n")
    assert "is no log of a known format" in words
    assert "torchtitan" in words
    assert "YAML" not in words


@pytest.mark.parametrize("text", ["# Run 7\n\n- lr: 'a' b\n", "s:1/2 trn:3.0\n", "a: 'b' c\n"])
def test_a_note_has_no_advice_on_yaml(tmp_path: Path, text: str) -> None:
    assert "is no log of a known format" in told(tmp_path / "notes.md", text)


@pytest.mark.parametrize("key", ["apiVersion: trainspec/v1", "kind: TrainingPlan", '"kind": "TrainingPlan"'])
def test_a_broken_document_keeps_its_error_under_any_name(tmp_path: Path, key: str) -> None:
    path = tmp_path / "plan.txt"
    path.write_text(f"{key}\nname: 'a' b\n", encoding="utf-8")
    assert [one.requirement for one in validate([path]).findings] == ["TS-DOC-001"]


@pytest.mark.parametrize("name", ["train.log", "run.jsonl", "run.parquet", "metrics.csv", "trace"])
def test_a_pointer_is_named(tmp_path: Path, name: str) -> None:
    assert "is a Git LFS pointer, not the file; run `git lfs pull`" in told(tmp_path / name, POINTER)


LINES = "iteration 10 loss 2.5\niteration 20 loss 2.4\n"


@pytest.mark.parametrize(
    "name", ["run.iterations", "nohup.out", "train", "log.rank0", "train_log.7", "run.txt", "run.log", "x.stderr"]
)
def test_a_training_log_in_a_directory_is_named(tmp_path: Path, name: str) -> None:
    (tmp_path / name).write_text(LINES, encoding="utf-8")
    with pytest.raises(InputError) as error:
        validate([tmp_path])
    assert f"{name}: not judged: looks like a training log, and is of no known format" in str(error.value)


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("notes.txt", "the loss of step 5 fell\n" * 9),
        ("README.md", LINES),
        ("plot.py", LINES),
        ("run.iterations", "1 2\n"),
    ],
)
def test_other_texts_are_no_logs(tmp_path: Path, name: str, text: str) -> None:
    (tmp_path / name).write_text(text, encoding="utf-8")
    with pytest.raises(InputError) as error:
        validate([tmp_path])
    assert "training log" not in str(error.value)


def test_a_log_that_is_read_under_the_name_of_none(tmp_path: Path) -> None:
    line = "INFO - step: {n}  loss: 2.5  memory: 12.34GiB(15.60%)  tps: 1,234  mfu: 12.34%\n"
    text = "".join(f"[rank0]:2025-01-01 10:00:{n:02},000 - root - " + line.format(n=n) for n in range(1, 5))
    (tmp_path / "run.iterations").write_text(text, encoding="utf-8")
    with pytest.raises(InputError) as error:
        validate([tmp_path])
    assert "run.iterations: not judged: holds a stream (" in str(error.value)


SACCT = """JobID           JobName  Partition    Account  AllocCPUS      State ExitCode
------------ ---------- ---------- ---------- ---------- ---------- --------
7                 train        gpu        lab         64  COMPLETED      0:0
"""


@pytest.mark.parametrize("name", ["jobs.txt", "jobs.out", "sacct.log", "sacct"])
def test_columns_of_sacct_for_a_person(tmp_path: Path, name: str) -> None:
    words = "is a table of sacct in columns, which cut values; export it with `sacct --parsable2"
    assert words in told(tmp_path / name, SACCT)
    if name != "sacct":
        with pytest.raises(InputError) as error:
            validate([tmp_path])
        assert words in str(error.value)


def test_a_log_without_times_is_judged_by_no_clock(tmp_path: Path) -> None:
    steps = (1, 2, 10, 20, 40, 60, 80, 100)
    line = " iteration {:8}/ 1000 | elapsed time per iteration (ms): 60000.0 | learning rate: 1.0E-05 | "
    line += "lm loss: 7.9E+00 |\n"
    (tmp_path / "train.log").write_text("".join(line.format(step) for step in steps))
    result = CliRunner().invoke(command, [str(tmp_path / "train.log")], prog_name="trainspec-validate")
    assert "TS-TEL-013" not in result.output
    assert "no times" in result.output, "it is read, and its times are known to stand for none"


@pytest.mark.parametrize(
    ("columns", "outcome"),
    [
        ({"text": ["a"]}, "left out"),
        ({"step": [1], "train/loss": [2.5]}, "named"),
        ({"time_us": [1], "seq": [1], "train.loss.mean": [2.5]}, "refused"),
    ],
)
def test_a_parquet_file_of_another_program_ends_no_judgement(
    tmp_path: Path, columns: dict[str, Any], outcome: str
) -> None:
    pa, pq = pytest.importorskip("pyarrow"), pytest.importorskip("pyarrow.parquet")
    pq.write_table(pa.table(columns), tmp_path / "data.parquet")
    (tmp_path / "cluster.yaml").write_bytes((ROOT / "examples/clusters/meta-llama3-24k.yaml").read_bytes())
    if outcome == "refused":
        with pytest.raises(InputError, match="is no metric stream"):
            validate([tmp_path])
        return
    result = validate([tmp_path])
    assert len(result.documents) == 1
    named = [one.reason for one in result.unjudged if one.path.endswith("data.parquet")]
    assert named == (["is a Parquet file, and is no stream of a known format"] if outcome == "named" else [])
    with pytest.raises(InputError):
        validate([tmp_path / "data.parquet"])


def test_a_damaged_parquet_file_is_refused(tmp_path: Path) -> None:
    (tmp_path / "data.parquet").write_bytes(b"PAR1" + bytes(40))
    with pytest.raises(InputError, match="no sound Parquet"):
        validate([tmp_path])
