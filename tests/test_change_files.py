"""A file for each change: its form, and its way into the changelog at a release."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
FILES = [path for path in sorted((ROOT / "changes").iterdir()) if path.name not in {"README.md", ".template.md.jinja"}]
SETTINGS = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["tool"]["towncrier"]
KINDS = {kind["directory"] for kind in SETTINGS["type"]}
LOG = """# Changelog

## [Unreleased]

Words.

<!-- towncrier release notes start -->

## [0.1.0] - 2026-12-01

### Added

- All.
"""


def faults_of(name: str, text: str) -> list[str]:
    """What is wrong in the name or the text of a change."""
    match = re.fullmatch(r"[a-z0-9][a-z0-9-]*\.(?P<kind>[a-z]+)\.md", name)
    faults = [] if match and match["kind"] in KINDS else ["a name is <what>.<kind>.md, with a kind of pyproject.toml"]
    faults += [] if text.strip().endswith(".") else ["it does not end with a full stop"]
    return faults + (["it begins with a bullet or a heading"] if text.strip().startswith(("-", "#")) else [])


def test_changes_have_their_form() -> None:
    """None is there right after a release."""
    wrong = {path.name: faults_of(path.name, path.read_text(encoding="utf-8")) for path in FILES}
    assert {name: faults for name, faults in wrong.items() if faults} == {}


@pytest.mark.parametrize(
    ("name", "text", "num_faults"),
    [
        ("tiers.added.md", "A requirement.\n", 0),
        ("tiers.new.md", "A requirement.", 1),
        ("Tiers.added.md", "A requirement", 2),
        ("tiers.added.md", "- A requirement.", 1),
        ("tiers.added.txt", "# A requirement", 3),
    ],
)
def test_a_change_without_its_form_is_noticed(name: str, text: str, num_faults: int) -> None:
    assert len(faults_of(name, text)) == num_faults


@pytest.fixture
def release(tmp_path: Path) -> Path:
    """A folder with the settings of this repository, a changelog and two changes."""
    pytest.importorskip("towncrier")
    (tmp_path / "changes").mkdir()
    for name in ("pyproject.toml", "changes/.template.md.jinja", "changes/README.md"):
        shutil.copy(ROOT / name, tmp_path / name)
    (tmp_path / "CHANGELOG.md").write_text(LOG, encoding="utf-8")
    (tmp_path / "changes" / "a.fixed.md").write_text("Mended.\n" + "word " * 30 + "end.\n", encoding="utf-8")
    (tmp_path / "changes" / "b.added.md").write_text("New.\n", encoding="utf-8")
    return tmp_path


def build(folder: Path, version: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "towncrier", "build", "--yes", "--version", version, "--date", "2027-01-31"]
    return subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)


def test_a_release_moves_the_files_into_the_changelog(release: Path) -> None:
    done = build(release, "0.2.0")
    assert done.returncode == 0, done.stdout + done.stderr
    text = (release / "CHANGELOG.md").read_text(encoding="utf-8")
    sections = re.split(r"^## ", text, flags=re.MULTILINE)
    assert [section.splitlines()[0] for section in sections[1:]] == [
        "[Unreleased]",
        "[0.2.0] - 2027-01-31",
        "[0.1.0] - 2026-12-01",
    ]
    assert sections[2].partition("\n")[2].startswith("\n### Added\n\n- New.\n\n### Fixed\n\n- Mended. word")
    assert max(map(len, text.splitlines())) <= 120
    assert sections[3] == LOG.partition("## [0.1.0]")[1].removeprefix("## ") + LOG.partition("## [0.1.0]")[2]
    assert sorted(path.name for path in (release / "changes").iterdir()) == [".template.md.jinja", "README.md"]
    assert build(release, "0.2.0").returncode != 0, "a version is released once"


def test_a_kind_that_does_not_exist_is_refused(release: Path) -> None:
    (release / "changes" / "c.new.md").write_text("A.\n", encoding="utf-8")
    done = build(release, "0.2.0")
    assert done.returncode != 0
    assert "c.new.md" in done.stdout + done.stderr
    assert (release / "CHANGELOG.md").read_text(encoding="utf-8") == LOG
