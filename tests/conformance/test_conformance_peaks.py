"""The memory of a process tree is that of its processes, and a fork takes what it has written itself."""

from __future__ import annotations

import subprocess
import sys
import time

import pytest
from trainspec_conformance.peaks import PeakMemory

MEGABYTE = 1 << 20
FORKING = """
import os, sys, time
held = b"1" * (200 << 20)
if os.fork() == 0:
    {child}
    time.sleep(1.5)
    os._exit(0)
os.wait()
"""


def peak_megabytes(code: str) -> float:
    process = subprocess.Popen([sys.executable, "-c", code])
    peak = PeakMemory(process.pid)
    while process.poll() is None:
        peak.look()
        time.sleep(0.01)
    assert process.returncode == 0
    return peak.num_bytes / MEGABYTE


@pytest.fixture(scope="module")
def of_one() -> float:
    """What a process with 200 MB takes."""
    return peak_megabytes("held = b'1' * (200 << 20); import time; time.sleep(0.2)")


def test_the_peak_is_kept(of_one: float) -> None:
    freed = peak_megabytes("held = b'1' * (200 << 20); del held; import time; time.sleep(0.3)")
    assert 200 < of_one < 260
    assert freed == pytest.approx(of_one, rel=0.05)


def test_what_a_fork_shares_counts_once(of_one: float) -> None:
    assert peak_megabytes(FORKING.format(child="pass")) == pytest.approx(of_one, rel=0.1)


def test_what_a_fork_takes_itself_counts(of_one: float) -> None:
    found = peak_megabytes(FORKING.format(child="own = b'2' * (100 << 20)"))
    assert found == pytest.approx(of_one + 100, rel=0.1)


def test_processes_beside_each_other_add_up(of_one: float) -> None:
    held = "held = b'1' * (200 << 20); import time; time.sleep(1)"
    start = f"subprocess.Popen([sys.executable, '-c', {held!r}])"
    code = f"import subprocess, sys; both = [{start}, {start}]; [one.wait() for one in both]"
    assert peak_megabytes(code) == pytest.approx(2 * of_one, rel=0.15)
