"""Logs that no reader takes, and pointers in place of files, are named for what they are."""

from __future__ import annotations

from pathlib import Path

import pytest

from trainspec_validate.pipeline.validation import validate
from trainspec_validate.system.boundary import InputError

POINTER = "version https://git-lfs.github.com/spec/v1\noid sha256:" + "0" * 64 + "\nsize 123456\n"


def told(path: Path, text: str) -> str:
    path.write_text(text, encoding="utf-8")
    with pytest.raises(InputError) as error:
        validate([path])
    return str(error.value)


@pytest.mark.parametrize("name", ["train.log", "slurm-7.out", "job.err"])
def test_a_log_of_no_known_format_is_no_document(tmp_path: Path, name: str) -> None:
    words = told(tmp_path / name, "epoch 1 loss 2.5\nepoch 2 loss 2.4\n")
    assert "is no log of a known format" in words
    assert "torchtitan" in words
    assert "YAML" not in words


@pytest.mark.parametrize("name", ["train.log", "run.jsonl", "run.parquet", "metrics.csv", "trace"])
def test_a_pointer_is_named(tmp_path: Path, name: str) -> None:
    assert "is a Git LFS pointer, not the file; run `git lfs pull`" in told(tmp_path / name, POINTER)
