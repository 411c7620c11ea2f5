"""Power caps of accelerators and power swings of a job: boundaries, and what counts with a cap."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from trainspec_validate.model.finding import Verdict

Findings = Callable[..., set[tuple[str, str]]]
Verdicts = Callable[..., Verdict]
CAP = "node_groups.0.accelerator.power_cap_watts"


def capped(cap: float | None, **keys: Any) -> dict[str, Any]:
    return {"node_groups": [{"name": "compute", "accelerator": {"power_cap_watts": cap, **keys}}]}


@pytest.mark.parametrize(("cap", "limit", "bad"), [(550, 700, False), (700, 700, False), (701, 700, True)])
def test_cap(findings: Findings, cap: float, limit: float, bad: bool) -> None:
    found = findings(cluster=capped(cap, power_watts=limit), select=("TS-CLU-078",))
    assert found == ({("TS-CLU-078", CAP)} if bad else set())


def test_cap_against_the_catalog(findings: Findings, verdict: Verdicts) -> None:
    assert findings(cluster=capped(800, power_watts=None), select=("TS-CLU-078",)) == {("TS-CLU-078", CAP)}
    assert verdict("TS-CLU-078", cluster=capped(None)) is Verdict.NOT_APPLICABLE


def test_energy_counts_with_the_cap(findings: Findings) -> None:
    # 128 accelerators at 700 W for 600,000 s and a tenth are 59 GJ, at 350 W half of it.
    energy = {"energy": {"boundary": "device", "expected_energy_joules": 40e9, "expected_joules_per_token": None}}
    wanted = {("TS-NRG-013", "energy.expected_energy_joules")}
    assert findings(plan=energy, select=("TS-NRG-013",)) == set()
    assert findings(cluster=capped(350), plan=energy, select=("TS-NRG-013",)) == wanted


def supply(swing: float | None, *smoothing: str) -> dict[str, Any]:
    return {"power": {"max_swing_watts": swing, "smoothing": list(smoothing)}}


@pytest.mark.parametrize(("swing", "bad"), [(37.5e3, True), (37.6e3, False), (1e6, False)])
def test_swing(findings: Findings, swing: float, bad: bool) -> None:
    # 16 nodes of 10.2 kW change their power by 0.23 of it.
    found = findings(cluster=supply(swing), select=("TS-NRG-016",))
    assert found == ({("TS-NRG-016", "power.max_swing_watts")} if bad else set())
    assert findings(cluster=supply(swing, "accelerator"), select=("TS-NRG-016",)) == set()


def test_no_swing_is_stated(verdict: Verdicts) -> None:
    assert verdict("TS-NRG-016") is Verdict.NOT_APPLICABLE
