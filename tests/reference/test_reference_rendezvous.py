"""The process that serves formations: asked, answering, and gone."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator

import pytest
from trainspec_reference.common.regroup import Rendezvous

ANSWERS = (sys.executable, "-c", "import sys\nfor line in sys.stdin: print('served', flush=True)")
ENDS = (sys.executable, "-c", "pass")


@pytest.fixture
def rendezvous(request: pytest.FixtureRequest) -> Iterator[Rendezvous]:
    made = Rendezvous(request.param, os.environ)
    yield made
    made.close()


@pytest.mark.parametrize("rendezvous", [ANSWERS], indirect=True)
def test_each_formation_is_served(rendezvous: Rendezvous) -> None:
    assert [rendezvous.serve("127.0.0.1:1", 2, 1.0) for _ in range(2)] == [True, True]


@pytest.mark.parametrize("rendezvous", [(), ENDS], indirect=True)
def test_without_it_rank_0_serves(rendezvous: Rendezvous) -> None:
    assert [rendezvous.serve("127.0.0.1:1", 2, 1.0) for _ in range(2)] == [False, False]
