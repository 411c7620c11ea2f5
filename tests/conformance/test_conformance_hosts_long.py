"""The reference trainer on hosts that are cut off, offset, failing or short of memory, and what lies about it there."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
from conformance_stacks import HERE, failed
from trainspec_conformance.reading import all_scenarios, read
from trainspec_conformance.suite import Order, ScenarioResult, run_suite

from trainspec_validate.documents.types.conformance import StackDescriptor

CONFORMANCE = HERE.parents[1] / "conformance"
STACK = CONFORMANCE / "stacks" / "reference-plain.yaml"
NAMES = ("blackhole", "partition", "late-packets", "clock-jump", "device-error", "killed-for-memory")
MUTANTS = (
    "returns-to-silent-host",
    "trusts-its-own-reach",
    "minority-goes-on",
    "hasty",
    "trusts-the-clock",
    "newest-by-date",
    "swallows-device-error",
    "calls-it-a-crash",
)


def of_reference(name: str, out: Path) -> ScenarioResult:
    order = Order(read(STACK, StackDescriptor), STACK.parent, out, [all_scenarios()[name]], num_trials=1)
    (result,) = run_suite(order)
    if result.state == "unsupported":
        pytest.skip(result.reason)
    return result


@pytest.mark.long
@pytest.mark.parametrize("name", NAMES)
def test_the_reference_trainer_passes(name: str, tmp_path: Path) -> None:
    result = of_reference(name, tmp_path)
    assert result.state == "pass", failed(result)


@pytest.mark.long
@pytest.mark.parametrize("name", MUTANTS)
def test_a_lie_about_hosts_fails_its_requirement_and_no_other(name: str) -> None:
    command = [sys.executable, CONFORMANCE / "mutants" / "score.py", "--jobs", "1", name]
    done = subprocess.run(command, check=False, capture_output=True, text=True, timeout=600)
    if done.stdout.startswith("not run"):
        pytest.skip(done.stdout)
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stdout.startswith("caught")
