"""A file for each change: its form, and its way into the changelog at a release."""

from __future__ import annotations

import datetime as dt
import re
from pathlib import Path

import change_files
import pytest

ROOT = Path(__file__).resolve().parent.parent
DAY = dt.date(2027, 1, 31)
LOG = """# Changelog

Words.

## [Unreleased]

### Added

- A first line
  that goes on.

## [0.1.0] - 2026-12-01

### Added

- All.
"""


def test_the_files_of_the_repository_have_their_form() -> None:
    assert set(change_files.read(ROOT / "changes")) <= set(change_files.KINDS)


def write(directory: Path, **files: str) -> Path:
    for name, text in files.items():
        (directory / name.replace("__", ".").replace("_", "-")).write_text(text, encoding="utf-8")
    return directory


def test_entries_are_read_by_kind(tmp_path: Path) -> None:
    write(
        tmp_path, b__added__md="Second\nthing.\n", a__added__md="First thing.", c__fixed__md="Mended.", README__md="#"
    )
    assert change_files.read(tmp_path) == {"added": ["First thing.", "Second thing."], "fixed": ["Mended."]}


@pytest.mark.parametrize(
    ("name", "text"),
    [("a__new__md", "A."), ("a__md", "A."), ("a__added__txt", "A."), ("a__added__md", "- A."), ("a__added__md", "A")],
)
def test_a_file_without_its_form_is_refused(tmp_path: Path, name: str, text: str) -> None:
    with pytest.raises(change_files.ChangeError, match=r"^changes/a\."):
        change_files.read(write(tmp_path, **{name: text}))


def test_a_release_takes_what_was_unreleased_and_the_files() -> None:
    text = change_files.released(LOG, {"fixed": ["Mended. " + "word " * 30 + "end."], "added": ["New."]}, "0.2.0", DAY)
    sections = re.split(r"^## ", text, flags=re.MULTILINE)
    assert [section.splitlines()[0] for section in sections[1:]] == [
        "[Unreleased]",
        "[0.2.0] - 2027-01-31",
        "[0.1.0] - 2026-12-01",
    ]
    assert sections[1] == "[Unreleased]\n\n"
    assert "### Added\n\n- A first line\n  that goes on.\n- New.\n\n### Fixed\n\n- Mended. word" in sections[2]
    assert max(map(len, text.splitlines())) <= change_files.WIDTH
    assert sections[3] == LOG.partition("## [0.1.0]")[1].removeprefix("## ") + LOG.partition("## [0.1.0]")[2]


@pytest.mark.parametrize("version", ["0.1.0", "1.2", "v1.2.3"])
def test_a_version_that_cannot_be_is_refused(version: str) -> None:
    with pytest.raises(change_files.ChangeError, match=re.escape(version)):
        change_files.released(LOG, {}, version, DAY)


def test_a_release_without_changes_is_refused() -> None:
    empty = LOG.replace("### Added\n\n- A first line\n  that goes on.\n\n## [0.1.0]", "## [0.1.0]")
    with pytest.raises(change_files.ChangeError, match="nothing changed"):
        change_files.released(empty, {}, "0.2.0", DAY)


def test_a_release_writes_and_deletes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "changes").mkdir()
    (tmp_path / "CHANGELOG.md").write_text(LOG, encoding="utf-8")
    write(tmp_path / "changes", a__removed__md="Gone.", README__md="# Changes\n")
    monkeypatch.setattr(change_files, "ROOT", tmp_path)
    assert change_files.main([]) == 0
    assert (tmp_path / "CHANGELOG.md").read_text(encoding="utf-8") == LOG
    assert change_files.main(["0.2.0"]) == 0
    assert "### Removed\n\n- Gone." in (tmp_path / "CHANGELOG.md").read_text(encoding="utf-8")
    assert [path.name for path in (tmp_path / "changes").iterdir()] == ["README.md"]
    assert change_files.main(["0.2.0"]) == 1
