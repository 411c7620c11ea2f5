"""Patterns of names: what they mean, and that hostile ones end soon."""

from __future__ import annotations

import time
from pathlib import Path

import pytest

from trainspec_validate.system.patterns import Pattern, find


@pytest.mark.parametrize(
    ("pattern", "fits", "fails"),
    [
        ("a/*.yaml", ["a/b.yaml", "a/.yaml"], ["a/b/c.yaml", "b.yaml", "a/b.yml"]),
        ("**/a.yaml", ["a.yaml", "b/a.yaml", "b/c/a.yaml"], ["ba.yaml", "a.yaml/b"]),
        ("a/**", ["a/b", "a/b/c"], ["b/a"]),
        ("**.yaml", ["a.yaml", "b/a.yaml"], ["a.yml"]),
        ("a/**/**/b", ["a/b", "a/c/d/b"], ["ab", "a/cb"]),
        ("?.yaml", ["a.yaml", "\n.yaml"], [".yaml", "/.yaml", "ab.yaml"]),
        ("[a-c]", ["a", "c"], ["d", "-", ""]),
        ("[!a-c]", ["d"], ["a", "/"]),
        ("[z-a].yaml", [], ["z.yaml", "a.yaml", "-.yaml"]),
        ("[!].yaml", ["[!].yaml"], ["a.yaml"]),
        ("[a--b]", ["b"], ["a", "-"]),
        ("[c^]*", ["c", "^x"], ["d"]),
        ("[^c]", ["^", "c"], ["d"]),
        ("a.(b)+", ["a.(b)+"], ["axb"]),
        ("[", ["["], ["a"]),
    ],
)
def test_what_a_pattern_means(pattern: str, fits: list[str], fails: list[str]) -> None:
    compiled = Pattern(pattern)
    assert [name for name in (*fits, *fails) if compiled.fits(name)] == fits


@pytest.mark.parametrize(
    ("pattern", "name"),
    [
        ("*-*-*-*-*-x.yaml", "-" * 239 + ".yaml"),
        ("**/a/" * 6 + "b", "a/" * 500 + "c"),
        ("**a" * 200 + "b", "a" * 1000),
        ("*" * 1000 + "b", "a" * 4000),
    ],
)
def test_a_hostile_pattern_ends_soon(pattern: str, name: str) -> None:
    start = time.process_time()
    assert not Pattern(pattern).fits(name)
    assert time.process_time() - start < 2


def test_files_are_found_as_pathlib_finds_them(tmp_path: Path) -> None:
    for name in ("a/b/c.yaml", "a/c.yaml", "c.yaml", ".h/c.yaml", "a/b/a/b/d.json"):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text("")
    (tmp_path / "l").symlink_to("a")
    for pattern in ("**/c.yaml", "*/c.yaml", "a/*/*.yaml", "a/../c.yaml", "**/b/**/*.json", "l/*.yaml", "[a]/c.y?ml"):
        found = sorted(find(tmp_path, Path(pattern).parts))
        assert found == sorted(set(tmp_path.glob(pattern))), pattern
        assert found


def test_a_hostile_search_ends_soon(tmp_path: Path) -> None:
    (tmp_path / "/".join("a" * 60)).mkdir(parents=True)
    for number in range(8):
        (tmp_path / f"l{number}").symlink_to(".")
    start = time.process_time()
    assert list(find(tmp_path, ["**", "a"] * 12 + ["b"])) == []
    assert list(find(tmp_path, ["*"] * 12 + ["b"])) == []
    assert time.process_time() - start < 10
