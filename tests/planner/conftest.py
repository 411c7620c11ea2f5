"""The fixture that the tests of the planner share."""

from __future__ import annotations

import pytest

from tests.planner_makers import Make, make


@pytest.fixture
def asked() -> Make:
    """Make a request from names and wishes."""
    return make
