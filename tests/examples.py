"""`examples`: how many examples a property is tried with, a quarter of them in `make test` and all in `make test-long`.

The profiles are in `conftest.py`; the profile `long` is that of `pytest --hypothesis-profile=long`.
"""

from __future__ import annotations

from typing import Any

from hypothesis import settings

LONG, SHORT = 100, 25
"""Examples of a property that asks for no number, by profile."""


def examples(number: int, **more: Any) -> settings:
    """Settings of a property that is tried with so many examples in the long form."""
    return settings(max_examples=max(number * settings.default.max_examples // LONG, min(number, 10)), **more)
