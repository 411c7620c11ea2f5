"""Figures of node reports that cannot be: each is named as not read, and never dropped."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.node_reports import benchmark, links, profile, smi
from tests.test_accept_formats import CASES
from trainspec_validate.pipeline.acceptance import Gathered, gather

IMPOSSIBLE = ("NaN", "-5", "1e400", "[Unknown Error]")
HPL = """
T/V                N    NB     P     Q               Time                 Gflops
WR03R2R4      100000   576     4     2              30.00              3.1e+05
||Ax-b||_oo/(eps*(||A||_oo*||x||_oo+||b||_oo)*N)=        0.0030 ...... PASSED
WR03R2R4      100000   576     4     2              30.00              3.2e+05
||Ax-b||_oo/(eps*(||A||_oo*||x||_oo+||b||_oo)*N)=        0.0030 ...... PASSED
"""
BENCHMARKS = benchmark(100.0, 1048576) + benchmark(365.0).splitlines()[-1] + "\n"
FIGURES: dict[str, tuple[str, str]] = {
    "memory": (smi(2), r"Total +: (81559) MiB"),
    "power limit": (smi(2), r"Current Power Limit +: (700.00) W"),
    "clock": (smi(2), r"SM +: (1980) MHz"),
    "application clock": (smi(2), r"Graphics +: (1980) MHz"),
    "link generation": (smi(2), r"PCIe Generation\s+Max +: (5)"),
    "link width": (smi(2), r"Link Width\s+Max +: (16)x"),
    "link width in use": (smi(2), r"Current +: (16)x"),
    "uncorrected errors": (smi(2), r"DRAM Uncorrectable +: (0)"),
    "rate of an NVLink": (links(2), r"Link 3: (26.562) GB/s"),
    "bandwidth": (BENCHMARKS, r" (365.00) "),
    "time": (BENCHMARKS, r" (41184.6) "),
    "wrong values": (BENCHMARKS, r" (0)\n$"),
    "flops": (HPL, r"(3.2e\+05)"),
    "ranks": (HPL, r"(4)     2              30.00              3.2"),
    "memory of amd-smi": (CASES["amd-smi"][0], r"SIZE: (262128) MB"),
    "link speed of amd-smi": (CASES["amd-smi"][0], r"MAX_PCIE_SPEED: (32) GT/s"),
    "memory of rocm-smi": (CASES["rocm-smi-list"][0], r"VRAM Total Memory \(B\): (\d+)"),
    "memory of a query": (CASES["nvidia-smi-query-csv"][0], r"(81559) MiB"),
    "power of a query": (CASES["nvidia-smi-query-csv"][0], r"(700.00) W"),
    "link width of a query": (CASES["nvidia-smi-query-csv"][0], r", (16), "),
    "link width of a topology": (CASES["nccl-topology-xml"][0], r'class="0x030200"[^>]* link_width="(16)"'),
    "number of links of a topology": (CASES["nccl-topology-xml"][0], r'<nvlink [^>]*count="(\d+)"'),
    "memory in XML": (CASES["nvidia-smi-log-xml"][0], r"<total>(183359) MiB"),
}


def gathered(root: Path, text: str) -> Gathered:
    (root / "nodes" / "node-0").mkdir(parents=True, exist_ok=True)
    (root / "cluster.yaml").write_text(profile(1), encoding="utf-8")
    (root / "nodes" / "node-0" / "tool.txt").write_text(text, encoding="utf-8")
    return gather(root / "cluster.yaml", root / "nodes")


def told(found: Gathered) -> list[str]:
    """What is said of a file that is not read, or not wholly."""
    return [*found.failures, *(fact for facts in found.open.values() for fact in facts if "tool.txt" in fact)]


def changed(text: str, pattern: str, value: str) -> str:
    match = re.search(pattern, text)
    assert match is not None
    return text[: match.start(1)] + value + text[match.end(1) :]


@pytest.mark.parametrize("figure", FIGURES)
def test_a_figure_that_cannot_be_is_named(tmp_path: Path, figure: str) -> None:
    text, pattern = FIGURES[figure]
    assert not told(gathered(tmp_path, text)), "whole as it is"
    for value in IMPOSSIBLE:
        found = told(gathered(tmp_path, changed(text, pattern, value)))
        assert found, value


@pytest.mark.parametrize("figure", ["memory", "clock", "power limit", "link width", "rate of an NVLink", "bandwidth"])
def test_a_figure_of_zero_is_named(tmp_path: Path, figure: str) -> None:
    text, pattern = FIGURES[figure]
    assert told(gathered(tmp_path, changed(text, pattern, "0")))


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ("HW Thermal Slowdown           : ", "ACTIVE"),
        ("Pending                           : No", "Pending                           : Maybe"),
        ("Reset Required                    : ", "yes!"),
        ("ECC Mode\n        Current                           : ", "Perhaps"),
        ("MIG Mode\n        Current                           : ", "on"),
        ("State                             : ", "Done"),
        ("Summary                       : ", "Sick"),
    ],
)
def test_a_state_in_other_words_is_named(before: str, after: str, tmp_path: Path) -> None:
    assert not told(gathered(tmp_path, smi(2)))
    text = smi(2)
    odd = text.replace(before, after, 1) if ": No" in before else re.sub(re.escape(before) + ".*", before + after, text)
    assert odd != text
    (fact, *_) = told(gathered(tmp_path, odd))
    assert after.rpartition(" ")[2] in fact


def test_a_value_is_named_with_its_device(tmp_path: Path) -> None:
    (found,) = told(gathered(tmp_path, changed(*FIGURES["memory"], "NaN")))
    assert found == "what node-0/tool.txt (memory NaN MiB of 00000000:10:00.0) says"


@pytest.mark.parametrize("word", ["N/A", "[N/A]", "Not Supported", "[Not Supported]", "[Insufficient Permissions]"])
def test_a_figure_that_the_device_does_not_have_is_not_named(tmp_path: Path, word: str) -> None:
    text, pattern = FIGURES["power limit"]
    assert not told(gathered(tmp_path, changed(text, pattern.replace("(700.00) W", "(700.00 W)"), word)))


def test_how_many_links_are_active_stays_open(tmp_path: Path) -> None:
    text = changed(*FIGURES["rate of an NVLink"], "NaN")
    (node,) = _observed(gathered(tmp_path, text))
    assert ["num_active_links" in device for device in node["devices"]] == [False, True]


def test_counts_of_errors_have_no_bound_of_their_own(tmp_path: Path) -> None:
    (node,) = _observed(gathered(tmp_path, changed(*FIGURES["uncorrected errors"], "4294967296")))
    assert node["devices"][0]["num_uncorrected_errors"] == 2**32


def _observed(found: Gathered) -> list[dict[str, Any]]:
    observed = yaml.safe_load(found.text)["observed_nodes"]
    assert isinstance(observed, list)
    return observed
