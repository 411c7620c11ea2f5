"""The index of a released version is kept as it was, and a draft is not kept."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import spec_history


def index(folder: Path, version: str, *identifiers: str) -> Path:
    path = folder / "requirements.json"
    requirements = [{"id": identifier} for identifier in identifiers]
    path.write_text(json.dumps({"specification_version": version, "requirements": requirements}), encoding="utf-8")
    return path


def test_a_release_is_kept_under_its_number(tmp_path: Path) -> None:
    source = index(tmp_path, "1.1", "TS-PAR-001")
    target = spec_history.keep(source, tmp_path / "history")
    assert target == tmp_path / "history" / "1.1.json"
    assert target.read_bytes() == source.read_bytes()
    assert spec_history.keep(source, tmp_path / "history") == target


def test_a_draft_is_not_kept(tmp_path: Path) -> None:
    with pytest.raises(spec_history.HistoryError, match=r"1\.0-draft is no released version"):
        spec_history.keep(index(tmp_path, "1.0-draft"), tmp_path / "history")
    assert not (tmp_path / "history").exists()


def test_what_is_released_stays_as_it_was(tmp_path: Path) -> None:
    kept = spec_history.keep(index(tmp_path, "1.0", "TS-PAR-001"), tmp_path / "history").read_text(encoding="utf-8")
    with pytest.raises(spec_history.HistoryError, match=r"1\.0 was released with another index"):
        spec_history.keep(index(tmp_path, "1.0", "TS-PAR-002"), tmp_path / "history")
    assert (tmp_path / "history" / "1.0.json").read_text(encoding="utf-8") == kept


@pytest.mark.parametrize(("version", "code"), [("1.0-draft", 1), ("1.0", 0)])
def test_the_program_says_what_it_did(
    version: str, code: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(spec_history, "ROOT", tmp_path)
    (tmp_path / "spec" / "v1").mkdir(parents=True)
    index(tmp_path / "spec" / "v1", version)
    assert spec_history.main([]) == code
    told = capsys.readouterr()
    assert ("kept: spec/history/1.0.json" in told.out) is (code == 0)
    assert ("no released version" in told.err) is (code == 1)
    assert (tmp_path / "spec" / "history" / "1.0.json").exists() is (code == 0)
