"""Loops are compiled where that pays: for much, and for less where they were compiled before."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from trainspec_validate.telemetry.kernels import jit


@pytest.fixture
def asked(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> list[bool]:
    found: list[bool] = []
    monkeypatch.setenv("NUMBA_CACHE_DIR", str(tmp_path / "loops"))
    monkeypatch.setattr(jit, "compile_loops", lambda: found.append(True))
    return found


@pytest.mark.parametrize(("num_bytes", "wanted"), [(1_000, 0), (30_000_000, 0), (100_000_000, 1)])
def test_without_compiled_loops_only_much_is_worth_it(num_bytes: int, wanted: int, asked: list[bool]) -> None:
    jit.compile_for(num_bytes)
    assert len(asked) == wanted


@pytest.mark.parametrize(("num_bytes", "wanted"), [(1_000, 0), (30_000_000, 1)])
def test_compiled_loops_are_loaded_for_less(num_bytes: int, wanted: int, asked: list[bool], tmp_path: Path) -> None:
    kept = tmp_path / "loops" / "one" / "parse.parse-1.py311.nbi"
    kept.parent.mkdir(parents=True)
    kept.touch()
    jit.compile_for(num_bytes)
    assert len(asked) == wanted


def test_little_is_read_without_looking_for_them(asked: list[bool], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(jit, "_cache_directory", lambda: pytest.fail("it looked for compiled loops"))
    jit.compile_for(1_000)
    assert not asked


def test_compiled_loops_are_kept_by_their_text(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("NUMBA_CACHE_DIR", raising=False)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    directory = jit._cache_directory()
    assert directory.parent == tmp_path / "trainspec"
    assert not directory.exists()
    assert directory == jit._cache_directory()


def doubled(value: int) -> int:
    return 2 * value


def test_only_the_loops_are_kept_there(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Environment and settings of numba stay those of the caller, also when the code is made afterwards."""
    numba = pytest.importorskip("numba")
    monkeypatch.setattr("numba.core.config.CACHE_DIR", "")
    before = dict(os.environ)
    with jit._cache_in(str(tmp_path)):
        compiled = numba.njit(cache=True)(doubled)
    assert (numba.core.config.CACHE_DIR, dict(os.environ)) == ("", before)
    assert compiled(2) == 4
    assert list(tmp_path.rglob("*doubled*.nbi"))
