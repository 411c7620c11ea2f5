"""A baseline entry on a file of which nothing was judged holds for the content that was recorded."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

from trainspec_validate.checking.suppress.baseline import digest_of
from trainspec_validate.cli.validate import PROGRAM, command

CLUSTER = Path(__file__).resolve().parents[1] / "spec" / "v1" / "base" / "cluster.yaml"
GATE = (".", "--baseline", "known.json", "--fail-on", "error,unjudged")


@pytest.fixture(autouse=True)
def _recorded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    shutil.copy(CLUSTER, tmp_path / "cluster.yaml")
    monkeypatch.chdir(tmp_path)
    Path("bundle.tar").write_bytes(b"one")
    assert invoke(*GATE, "--write-baseline").exit_code == 0
    assert invoke(*GATE).exit_code == 0


def invoke(*arguments: str) -> Result:
    return CliRunner().invoke(command, list(arguments), prog_name=PROGRAM)


def entries() -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = json.loads(Path("known.json").read_text(encoding="utf-8"))["unjudged"]
    return found


def test_a_changed_content_is_new() -> None:
    Path("bundle.tar").write_bytes(b"two")
    result = invoke(*GATE)
    assert result.exit_code == 1
    assert "bundle.tar has changed since it was recorded" in result.output


CHANGES: dict[str, Callable[[], object]] = {
    "another program's": lambda: Path("bundle.tar").rename("bundle.txt") and Path("bundle.tar").mkdir(),
    "a link": lambda: Path("bundle.tar").unlink() or Path("bundle.tar").symlink_to("cluster.yaml"),
    "gone": lambda: Path("bundle.tar").unlink(),
}


@pytest.mark.parametrize("change", CHANGES.values(), ids=CHANGES)
def test_an_entry_that_applies_no_more_is_unused(change: Callable[[], object]) -> None:
    change()
    result = invoke(".", "--baseline", "known.json", "--fail-on", "warning")
    assert "TS-DOC-016" in result.output
    invoke(*GATE, "--prune-baseline")
    assert "unjudged" not in Path("known.json").read_text(encoding="utf-8")


def test_an_entry_out_of_sight_stays() -> None:
    assert "TS-DOC-016" not in invoke("cluster.yaml", *GATE[1:]).output
    invoke("cluster.yaml", *GATE[1:], "--prune-baseline")
    assert [entry["file"] for entry in entries()] == ["bundle.tar"]


def test_an_entry_without_a_digest_holds_as_before_and_gets_one() -> None:
    data = json.loads(Path("known.json").read_text(encoding="utf-8"))
    (entry,) = data["unjudged"]
    assert entry.pop("digest").startswith("sha256:")
    Path("known.json").write_text(json.dumps(data), encoding="utf-8")
    Path("bundle.tar").write_bytes(b"two")
    assert invoke(*GATE).exit_code == 0
    invoke(*GATE, "--write-baseline")
    assert entries()[0]["digest"] == digest_of("bundle.tar")


def test_large_files_count_by_size_start_and_end(tmp_path: Path) -> None:
    digests = set()
    for place, size in ((0, 40 << 20), (16 << 20, 17 << 20), ((40 << 20) - 1, 40 << 20), (0, 41 << 20)):
        with (tmp_path / "large").open("wb") as file:
            file.seek(place)
            file.write(b"x")
            file.truncate(size)
        digests.add(digest_of(tmp_path / "large"))
    assert len(digests) == 4


def test_an_empty_directory_is_told_from_a_full_one(tmp_path: Path) -> None:
    (tmp_path / "module").mkdir()
    assert digest_of(tmp_path / "module")
    (tmp_path / "module" / "a.yaml").touch()
    assert not digest_of(tmp_path / "module")
