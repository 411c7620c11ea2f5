"""The evidence of a device says of each part what was measured, or why it was not."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]


def evidence(out: Path, *arguments: str) -> tuple[int, dict[str, dict[str, object]]]:
    """The exit status, and the parts of the file."""
    command = [sys.executable, str(ROOT / "benchmarks" / "evidence.py"), "--short", "--out", str(out), *arguments]
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    ended = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=600, check=False)
    parts: dict[str, dict[str, object]] = json.loads(out.read_text())["parts"]
    return ended.returncode, parts


@pytest.mark.slow
def test_losses_of_a_device_stand_beside_the_golden_traces(tmp_path: Path) -> None:
    status, parts = evidence(tmp_path / "cpu.json", "--only", "golden-torch")
    assert status == 0
    assert list(parts) == ["golden-torch"]
    assert parts["golden-torch"]["holds"] is True


@pytest.mark.slow
def test_what_cannot_be_measured_says_why(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The part asks for an accelerator that this interpreter is kept from seeing."""
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "")
    status, parts = evidence(tmp_path / "none.json", "--device", "cuda", "--only", "kernels")
    assert status == 1
    assert str(parts["kernels"]["not_measured"]).startswith("status 1: ")


def test_the_readme_repeats_the_evidence() -> None:
    """Each figure of the table, as it follows from the file."""
    document = json.loads((ROOT / "benchmarks" / "evidence" / "cuda.json").read_text(encoding="utf-8"))
    parts, text = document["parts"], (ROOT / "reference" / "README.md").read_text(encoding="utf-8")
    setups, memory = parts["steps"]["setups"], parts["steps"]["memory"]
    naive, together = setups["naive"], setups["all together"]
    narrow = [row["times_bf16"] for row in parts["fp8"]["products"]]
    starts = {name: [trial["first step"] for trial in parts[f"recovery-{name}"]["trials"]] for name in ("torch", "jax")}
    wanted = [
        document["accelerators"][0].replace(", ", " (driver "),
        f"{min(narrow):.2f} to {max(narrow):.2f} times the rate over {len(narrow)} products",
        f"{naive['computing_seconds'] * 1000:.0f} ms; with TF32",
        f"{naive['computing_seconds'] / together['computing_seconds']:.1f} times as fast",
        f"{together['share_of_roofline']:.2f} of the roofline",
        f"synchronous {naive['save_stall_seconds']:.1f} s, asynchronous {together['save_stall_seconds']:.2f} s",
        f"{memory['peak_bytes'] / 1e9:.2f} GB, predicted {memory['predicted_bytes'] / 1e9:.2f} GB",
        f"ratio {memory['ratio']:.2f}",
        *(f"{min(trials):.1f} to {max(trials):.1f} s" for trials in starts.values()),
        f"| {parts['energy']['ratio']:.3f} |",
        f"({sum(part['part_seconds'] for part in parts.values()):.0f} s in all)",
    ]
    assert [figure for figure in wanted if figure not in text] == []
    assert parts["scenarios-torch"]["holds"] is True
