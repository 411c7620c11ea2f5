"""The memory of a process tree is that of its processes, and a fork takes what it has written itself."""

from __future__ import annotations

import subprocess
import sys
import time

import pytest
from trainspec_conformance.peaks import PeakMemory

MEGABYTE = 1 << 20
UNTIL_SEEN = "print('ready', flush=True); sys.stdin.read()"
"""Ends what a process does before it is looked at; it ends when its input does."""
FORKING = f"""
import os, sys
held = b"1" * (200 << 20)
if os.fork() == 0:
    {{child}}
    {UNTIL_SEEN}
    os._exit(0)
os.wait()
"""
SECONDS_OF_A_COPY = 0.6
"""A fork that lives longer is more than the moment before another program starts."""


def peak_megabytes(code: str) -> float:
    """The peak of a process that says when it holds all of its memory, and holds it until it has been looked at."""
    command = [sys.executable, "-c", code]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        peak = PeakMemory(process.pid)
        assert process.stdin is not None
        assert process.stdout is not None
        assert process.stdout.readline() == "ready\n"
        peak.look()
        time.sleep(SECONDS_OF_A_COPY)
        peak.look()
        process.stdin.close()
    assert process.returncode == 0
    return peak.num_bytes / MEGABYTE


@pytest.fixture(scope="module")
def of_one() -> float:
    """What a process with 200 MB takes."""
    return peak_megabytes(f"import sys; held = b'1' * (200 << 20); {UNTIL_SEEN}")


@pytest.mark.slow
def test_the_peak_is_kept(of_one: float) -> None:
    freed = peak_megabytes(f"import sys; held = b'1' * (200 << 20); del held; {UNTIL_SEEN}")
    assert 200 < of_one < 260
    assert freed == pytest.approx(of_one, rel=0.05)


def test_what_a_fork_shares_counts_once(of_one: float) -> None:
    assert peak_megabytes(FORKING.format(child="pass")) == pytest.approx(of_one, rel=0.1)


def test_what_a_fork_takes_itself_counts(of_one: float) -> None:
    found = peak_megabytes(FORKING.format(child="own = b'2' * (100 << 20)"))
    assert found == pytest.approx(of_one + 100, rel=0.1)


def test_processes_beside_each_other_add_up(of_one: float) -> None:
    held = f"import sys; held = b'1' * (200 << 20); {UNTIL_SEEN}"
    start = f"subprocess.Popen([sys.executable, '-c', {held!r}], stdout=subprocess.PIPE)"
    both = f"both = [{start}, {start}]; [one.stdout.readline() for one in both]"
    code = f"import subprocess, sys; {both}; {UNTIL_SEEN}; [one.wait() for one in both]"
    assert peak_megabytes(code) == pytest.approx(2 * of_one, rel=0.15)
