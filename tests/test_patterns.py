"""Patterns of names: what they mean, and that hostile ones end soon."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.step_counts import num_steps, quadratic_share
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


HOSTILE: list[Callable[[int], tuple[str, str]]] = [
    lambda num: ("*-*-*-*-*-x.yaml", "-" * num + ".yaml"),
    lambda num: ("**/a/" * 6 + "b", "a/" * num + "c"),
    lambda num: ("**a" * 200 + "b", "a" * (num + 400)),
    lambda num: ("*" * 1000 + "b", "a" * num),
    lambda num: ("*-" * num + "x.yaml", "-" * 5_000 + ".yaml"),
]


@pytest.mark.parametrize("hostile", HOSTILE)
def test_steps_grow_with_the_length_of_a_hostile_pattern_and_name(hostile: Callable[[int], tuple[str, str]]) -> None:
    def num_of(num: int) -> int:
        pattern, name = hostile(num)
        return num_steps(lambda: Pattern(pattern).fits(name))

    assert num_of(20) - num_of(10) >= 10, "each character is a step, and not many of them are one step of a library"
    assert quadratic_share(num_of, 100, 100) == 0
    pattern, name = hostile(4_000)
    assert not Pattern(pattern).fits(name)


def test_files_are_found_as_pathlib_finds_them(tmp_path: Path) -> None:
    for name in ("a/b/c.yaml", "a/c.yaml", "c.yaml", ".h/c.yaml", "a/b/a/b/d.json"):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text("")
    (tmp_path / "l").symlink_to("a")
    for pattern in ("**/c.yaml", "*/c.yaml", "a/*/*.yaml", "a/../c.yaml", "**/b/**/*.json", "l/*.yaml", "[a]/c.y?ml"):
        found = sorted(find(tmp_path, Path(pattern).parts))
        assert found == sorted(set(tmp_path.glob(pattern))), pattern
        assert found


def test_a_hostile_search_looks_at_each_directory_a_few_times(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    scandir, num = os.scandir, 0

    def counted(path: Any) -> Any:
        nonlocal num
        num += 1
        assert num <= 300
        return scandir(path)

    (tmp_path / "/".join("a" * 60)).mkdir(parents=True)
    for number in range(8):
        (tmp_path / f"l{number}").symlink_to(".")
    monkeypatch.setattr(os, "scandir", counted)
    assert list(find(tmp_path, ["**", "a"] * 12 + ["b"])) == []
    assert list(find(tmp_path, ["*"] * 12 + ["b"])) == []
    assert num > 60


def test_stars_for_directories_in_a_row_cost_what_one_costs(tmp_path: Path) -> None:
    (tmp_path / "a").mkdir()
    (tmp_path / "a" / "b.yaml").touch()

    def steps(number: int) -> int:
        return num_steps(lambda: list(find(tmp_path, ["**", "*"] * number + ["b.yaml"])))

    assert [found.name for found in find(tmp_path, ["**"] * 9 + ["b.yaml"])] == ["b.yaml"]
    assert steps(400) < 12 * steps(50)


@pytest.mark.parametrize("part", ["*a", "?", "[a-z]", "**/a/"])
def test_a_name_that_is_too_short_costs_few_steps(part: str) -> None:
    """As where each of many long patterns is held against each file."""
    assert num_steps(lambda: Pattern(part * 800).fits("runs/plan.yaml")) < 200
