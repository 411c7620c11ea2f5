"""Kernels against the roofline of the same run: what is written, and how fast a link was negotiated to be."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import torch
from trainspec_conformance.testbed.torch import floors
from trainspec_conformance.testbed.torch.links import negotiated

from trainspec_validate.rules import prc_kernels

SMALL = floors.Sizes(torch.float32, (32, 48), ((16, 32, 24),), (1, 2, 32, 16), (64, 128), 4096, 1, 5)


def test_evidence_holds_every_kernel_with_its_roofline(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(floors.SIZES, "cpu", SMALL)
    floors.main(["--device", "cpu", "--out", str(tmp_path / "evidence.json")])
    evidence = json.loads((tmp_path / "evidence.json").read_text())
    assert evidence["versions"]["torch"] == torch.__version__
    assert evidence["device"]["name"]
    best = {
        name: max(rate["per_second"] for rate in evidence["rooflines"] if name in rate["operation"])
        for name in ("matmul", "copy")
    }
    assert [kernel["operation"] for kernel in evidence["kernels"]] == [
        "matmul",
        "attention",
        "normalization",
        "activation",
    ]
    for kernel in evidence["kernels"]:
        roofline = best["matmul" if kernel["operation"] in ("matmul", "attention") else "copy"]
        assert kernel["share"] == pytest.approx(kernel["per_second"] / roofline)
        assert kernel["p20_seconds"] <= kernel["median_seconds"] <= kernel["p80_seconds"]
    product = evidence["kernels"][0]
    assert product["per_second"] * product["median_seconds"] == pytest.approx(2 * 16 * 32 * 24)
    attention = evidence["kernels"][1]
    assert attention["per_second"] * attention["median_seconds"] == pytest.approx(3.5 * 2 * 2 * 32 * 32 * 16)


def test_floors_are_those_of_the_specification() -> None:
    assert {name: prc_kernels.FLOORS[name][0] for name in floors.FLOORS} == floors.FLOORS


@pytest.mark.parametrize(
    ("speed", "width", "expected"),
    [
        ("16.0 GT/s PCIe", "16", 31.5e9),
        ("32.0 GT/s PCIe", "16", 63e9),
        ("Unknown", "16", None),
        ("16.0 GT/s PCIe", "0", None),
    ],
)
def test_the_link_is_read_as_it_was_negotiated(tmp_path: Path, speed: str, width: str, expected: float | None) -> None:
    assert negotiated(tmp_path) is None
    (tmp_path / "current_link_speed").write_text(speed + "\n")
    (tmp_path / "current_link_width").write_text(width + "\n")
    found = negotiated(tmp_path)
    assert found == (None if expected is None else pytest.approx(expected, rel=1e-3))
