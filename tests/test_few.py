"""`--few` runs each test, and a third of the cases of one that has many."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from tests import conftest

TESTS = """
import pytest

@pytest.mark.parametrize("number", range(9))
def test_many(number): ...

@pytest.mark.parametrize("number", range(2))
def test_two(number): ...

def test_one(): ...
"""


def selected(directory: Path, *options: str) -> list[str]:
    """Names of the tests that a run would take."""
    words = ["-m", "pytest", "--collect-only", "-q", "-p", "no:cacheprovider", *options, "test_made.py"]
    done = subprocess.run([sys.executable, *words], cwd=directory, capture_output=True, text=True, check=True)
    return [line.partition("::")[2] for line in done.stdout.splitlines() if "::" in line]


@pytest.mark.slow
def test_every_third_case_is_kept(tmp_path: Path) -> None:
    (tmp_path / "test_made.py").write_text(TESTS)
    (tmp_path / "tests").symlink_to(Path(conftest.__file__).parent)
    (tmp_path / "conftest.py").write_text(
        "from tests.conftest import pytest_addoption, pytest_collection_modifyitems\n"
    )
    two_and_one = ["test_two[0]", "test_two[1]", "test_one"]
    assert selected(tmp_path) == [f"test_many[{number}]" for number in range(9)] + two_and_one
    assert selected(tmp_path, "--few") == [f"test_many[{number}]" for number in (0, 3, 6)] + two_and_one
