"""Makes the inputs of numeric cases; the checks of answers are in `criteria`."""

from __future__ import annotations

import importlib
import pkgutil
from collections.abc import Callable
from functools import cache
from typing import Any

Maker = Callable[[int], dict[str, Any]]
_CASES: dict[str, Maker] = {}


def case(name: str) -> Callable[[Maker], Maker]:
    """Makes a function, of a seed, the maker of the input of that numeric case."""

    def register(maker: Maker) -> Maker:
        if name in _CASES:
            raise ValueError(f"two numeric cases are called {name}")
        _CASES[name] = maker
        return maker

    return register


@cache
def all_cases() -> dict[str, Maker]:
    """Every maker by the name of its case."""
    for module in pkgutil.iter_modules(__path__):
        importlib.import_module(f"{__name__}.{module.name}")
    return dict(_CASES)


def case_input(name: str, seed: int) -> dict[str, Any]:
    """The input of a case, as the stack gets it.

    Raises:
        KeyError: there is no such case.
    """
    return all_cases()[name](seed)
