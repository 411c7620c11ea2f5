"""What a search does for each of many files is little: their directory is looked up once, and each is opened once."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest

from trainspec_validate import InputError, validate
from trainspec_validate.pipeline import claims, detect
from trainspec_validate.pipeline.files import RealPaths

NUM_FILES = 40


def counting(monkeypatch: pytest.MonkeyPatch, owner: Any, name: str) -> list[Path]:
    """Paths that a function is called with from now on."""
    called: list[Path] = []
    original = getattr(owner, name)

    def counted(path: Any, *arguments: Any, **named: Any) -> Any:
        called.append(Path(path))
        return original(path, *arguments, **named)

    monkeypatch.setattr(owner, name, counted)
    return called


def test_many_files_of_no_document_cost_one_look_each(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for number in range(NUM_FILES):
        (tmp_path / f"{number}.yaml").write_text("a: 1\n" * (number % 2), encoding="utf-8")
    found = counting(monkeypatch, os.path, "realpath")
    opened = [counting(monkeypatch, module, "open_regular") for module in (claims, detect)]
    with pytest.raises(InputError, match="nothing to judge"):
        validate([tmp_path])
    assert sum(path.suffix == ".yaml" for path in found) == 0
    assert sum(map(len, opened)) == NUM_FILES


def test_real_paths_follow_links(tmp_path: Path) -> None:
    (tmp_path / "real").mkdir()
    (tmp_path / "real" / "a.yaml").touch()
    (tmp_path / "folder").symlink_to("real")
    (tmp_path / "b.yaml").symlink_to("folder/a.yaml")
    places = RealPaths()
    for path in (
        "folder/a.yaml",
        "b.yaml",
        "real/a.yaml",
        "real/none.yaml",
        "folder",
        "real/..",
        "folder/../b.yaml",
        ".",
    ):
        assert places.of(tmp_path / path) == os.path.realpath(tmp_path / path), path
        assert places.of(f"{tmp_path}/{path}") == os.path.realpath(f"{tmp_path}/{path}"), path
