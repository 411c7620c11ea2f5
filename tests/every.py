"""`every`: one test that judges all items of a collection and lists each that fails.

For checks of form over files, requirements or catalog entries. Cases of behaviour keep `pytest.mark.parametrize`.
"""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Iterable
from typing import Any

import pytest

Test = Callable[..., None]


def every(argument: str, items: Iterable[Any], ids: Callable[[Any], str] = str) -> Callable[[Test], Test]:
    """Give a test each of the items as this argument; the other arguments stay fixtures."""
    collected = list(items)

    def decorate(test: Test) -> Test:
        signature = inspect.signature(test)
        others = [parameter for name, parameter in signature.parameters.items() if name != argument]
        assert len(others) < len(signature.parameters), f"{test.__name__} takes no argument {argument}"

        @functools.wraps(test)
        def of_all(**fixtures: Any) -> None:
            assert collected, f"there is no {argument} to judge"
            failures = []
            for item in collected:
                try:
                    test(**{argument: item}, **fixtures)
                except (Exception, pytest.fail.Exception) as error:
                    failures.append(f"{ids(item)}: {type(error).__name__}: {error}")
            assert not failures, f"{len(failures)} of {len(collected)} fail:\n" + "\n".join(failures)

        of_all.__signature__ = signature.replace(parameters=others)  # type: ignore[attr-defined]
        return of_all

    return decorate
