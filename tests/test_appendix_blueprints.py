"""The page of blueprints: its rows are rows of a plan, cover every size once, and suit their machine."""

from __future__ import annotations

import re
from itertools import pairwise
from pathlib import Path

import appendix_blueprints
import pytest
import yaml
from appendix_machines import MACHINES, Machine

from trainspec_validate.documents.types import part
from trainspec_validate.documents.types.communication import CollectiveChoice

ROOT = Path(__file__).resolve().parents[1]
TEXT = (ROOT / "spec" / "reference" / "blueprints.md").read_text(encoding="utf-8")


@pytest.mark.parametrize("machine", MACHINES, ids=lambda machine: machine.title)
@pytest.mark.parametrize("ranks", appendix_blueprints.RANKS)
def test_rows_cover_every_size_once(machine: Machine, ranks: int) -> None:
    for operation in appendix_blueprints.OPERATIONS:
        choices = [part(CollectiveChoice, row) for row in appendix_blueprints.rows(machine, operation, ranks)]
        assert [choice.min_bytes for choice in choices] == [0, *(choice.max_bytes for choice in choices[:-1])]
        assert choices[-1].max_bytes is None
        assert {(choice.operation, choice.axis) for choice in choices} == {(operation, "data")}
        neighbours = [(choice.algorithm, choice.protocol) for choice in choices]
        assert all(one != other for one, other in pairwise(neighbours))


def test_blocks_of_the_page_can_be_copied() -> None:
    blocks = re.findall(r"^### [^\n]*\n\n```yaml\n(.*?)```", TEXT, re.DOTALL | re.MULTILINE)
    assert len(blocks) == len(MACHINES) * len(appendix_blueprints.RANKS)
    for block in blocks:
        rows = yaml.safe_load(block)["communication"]["collectives"]
        assert [part(CollectiveChoice, row) for row in rows]


def test_only_machines_with_reducing_switches_reduce_in_the_network() -> None:
    for machine in MACHINES:
        for ranks in appendix_blueprints.RANKS:
            found = {row["algorithm"] for row in appendix_blueprints.rows(machine, "all-reduce", ranks)}
            assert machine.network(ranks).domain_reduces or not any(name.startswith("in-network") for name in found)


def test_every_published_plan_is_listed() -> None:
    plans = {path.stem for path in (ROOT / "examples" / "plans").glob("*.yaml")}
    assert {match[1] for match in re.finditer(r"^\| `([\w.-]+)` \|", TEXT, re.MULTILINE)} == plans
