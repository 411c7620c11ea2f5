"""Pages and programs that hold lines of a log are no logs where a directory or a pattern finds them, and are named."""

from __future__ import annotations

from pathlib import Path

import pytest

from trainspec_validate import validate
from trainspec_validate.pipeline.run_texts import QUOTES_LOG

MEGATRON = "".join(
    f" iteration {n:8}/     100 | consumed samples: {n * 32} | lm loss: {3 - n / 50:.3f} | loss scale: 1.0 |\n"
    for n in range(1, 4)
)
PAGES = {
    "train.md": f"# Training\n\nYou see:\n\n```\n{MEGATRON}```\n",
    "train.mdx": f"---\ntitle: Train\n---\n\n<Note>Run it</Note>\n\n```text\n{MEGATRON}```\n",
    "train.rst": f"Training\n========\n\nOutput::\n\n{MEGATRON}",
    "launch.sh": f"#!/bin/bash\n# prints:\n{MEGATRON}python train.py\n",
}


@pytest.fixture
def tree(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    for name, text in {**PAGES, "run.log": MEGATRON}.items():
        (tmp_path / name).write_text(text)
    monkeypatch.chdir(tmp_path)
    return tmp_path


def test_a_pattern_takes_no_page_for_a_log(tree: Path) -> None:
    report = validate(["*"])
    assert [document.path for document in report.documents] == ["run.log"]
    assert {entry.path: entry.reason for entry in report.unjudged if entry.reason == QUOTES_LOG} == dict.fromkeys(
        PAGES, QUOTES_LOG
    )


def test_a_directory_takes_no_page_for_a_log(tree: Path) -> None:
    assert [Path(document.path).name for document in validate([tree]).documents] == ["run.log"]


@pytest.mark.parametrize("name", PAGES)
def test_a_page_that_is_named_is_judged_as_the_log_that_it_holds(tree: Path, name: str) -> None:
    assert [Path(document.path).name for document in validate([tree / name]).documents] == [name]
