"""What holds for all tests: none fails because a machine is slow, and a property fails in each run or in none.

`make test-long` searches at random, and prints the seed.
"""

from __future__ import annotations

import gc
import os
from collections import defaultdict
from collections.abc import Iterator

import pytest
from hypothesis import settings

from tests.examples import LONG, SHORT

settings.register_profile("house", deadline=None, max_examples=SHORT, derandomize=True)
settings.register_profile("long", deadline=None, max_examples=LONG)
settings.load_profile("house")


FEW = 2
"""Cases of a test that `--few` keeps whole; of more it keeps every third one."""


def pytest_addoption(parser: pytest.Parser) -> None:
    """`--few`: the short form of a long run."""
    parser.addoption("--few", action="store_true", help=f"of a test with more than {FEW} cases, every third one alone")


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """With `--few`, keep every test and a third of the cases of one that has many."""
    if not config.getoption("few"):
        return
    cases: defaultdict[str, list[pytest.Item]] = defaultdict(list)
    for item in items:
        cases[item.nodeid.partition("[")[0]].append(item)
    kept = {id(item) for found in cases.values() for item in (found[::3] if len(found) > FEW else found)}
    config.hook.pytest_deselected(items=[item for item in items if id(item) not in kept])
    items[:] = [item for item in items if id(item) in kept]


def pytest_collection_finish() -> None:
    """What is loaded by now stays: looking through it again and again takes a fifth of the time of all tests."""
    gc.collect()
    gc.freeze()
    gc.set_threshold(50_000, 10, 10)


@pytest.fixture(autouse=True)
def environment() -> Iterator[None]:
    """A program that runs in the process of a test leaves no variable to the processes of others."""
    before = os.environ.get("PYTHONSAFEPATH")
    yield
    if before is None:
        os.environ.pop("PYTHONSAFEPATH", None)


def pytest_make_parametrize_id(val: object, argname: str) -> str | None:
    """Bytes are named by their length: compressed ones hold the time, and all workers need the same names."""
    return f"{argname}-{len(val)}-bytes" if isinstance(val, bytes) else None
