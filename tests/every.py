"""`every`: one test that judges all items of a collection and lists each that fails.

For checks of form over files, requirements or catalog entries, and for examples that they hold. Other cases of
behaviour keep `pytest.mark.parametrize`.
"""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import pytest

Test = Callable[..., None]


def every(
    argument: str, items: Iterable[Any] | Callable[[], Iterable[Any]], ids: Callable[[Any], str] = str
) -> Callable[[Test], Test]:
    """Give a test each of the items as this argument; the other arguments stay fixtures.

    Items that take time to make are given as a function, which is called when the test runs. Each item has a `tmp_path`
    of its own.
    """
    given = items if callable(items) else list(items)

    def decorate(test: Test) -> Test:
        signature = inspect.signature(test)
        others = [parameter for name, parameter in signature.parameters.items() if name != argument]
        assert len(others) < len(signature.parameters), f"{test.__name__} takes no argument {argument}"

        @functools.wraps(test)
        def of_all(**fixtures: Any) -> None:
            collected = list(given() if callable(given) else given)
            assert collected, f"there is no {argument} to judge"
            failures = []
            for number, item in enumerate(collected):
                try:
                    test(**{argument: item}, **_own(fixtures, number))
                except (Exception, pytest.fail.Exception) as error:
                    failures.append(f"{ids(item)}: {type(error).__name__}: {error}")
            assert not failures, f"{len(failures)} of {len(collected)} fail:\n" + "\n".join(failures)

        of_all.__signature__ = signature.replace(parameters=others)  # type: ignore[attr-defined]
        return of_all

    return decorate


def _own(fixtures: dict[str, Any], number: int) -> dict[str, Any]:
    directory: Path | None = fixtures.get("tmp_path")
    if directory is None:
        return fixtures
    own = directory / str(number)
    own.mkdir()
    return {**fixtures, "tmp_path": own}
