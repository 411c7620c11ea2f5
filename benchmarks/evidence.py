"""Measures the reference trainers on a device, and writes one file of evidence.

Run with `python benchmarks/evidence.py --device cuda --out FILE.json`. Each part runs in a process of its own, so that
one that fails takes no other with it, and is written as soon as it is measured: kernels against the roofline of the
same run, products in FP8 against BF16, steps of naive and conformant setups with the share of that roofline, memory
with its prediction, the counter of energy with the integral of power, losses of both frameworks with the golden traces,
recovery, and the scenarios of the conformance suite that need a device. A part that could not be measured says why in
the file, and the status is 1 then, as it is where a loss leaves its golden trace or a scenario fails. A second run with
the same file keeps the parts that the same machine and the same software have measured; `--again` measures them once
more. `--short` keeps each part to seconds.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve().parent
sys.path[:0] = [str(HERE), str(HERE.parent / "tools")]

import evidence_parts  # noqa: E402
import machine  # noqa: E402

from trainspec_validate.system.atomic import write_atomically  # noqa: E402

PARTS: dict[str, Callable[[str, bool], dict[str, Any]]] = {
    "kernels": evidence_parts.kernels,
    "fp8": evidence_parts.narrow_products,
    "steps": evidence_parts.steps,
    "energy": evidence_parts.energy,
    "golden-torch": partial(evidence_parts.golden, "torch"),
    "golden-jax": partial(evidence_parts.golden, "jax"),
    "recovery-torch": partial(evidence_parts.recovered, "torch"),
    "recovery-jax": partial(evidence_parts.recovered, "jax"),
    "scenarios-torch": partial(evidence_parts.scenarios, "torch"),
}
TIMEOUT_SECONDS = 400.0
NOT_MEASURED = "not_measured"


def measured(name: str, device: str, *, short: bool, timeout_seconds: float = TIMEOUT_SECONDS) -> dict[str, Any]:
    """Result of a part, or the reason for its absence; all processes that the part started have ended."""
    command = [sys.executable, str(Path(__file__).resolve()), "--part", name, "--device", device]
    command += ["--short"] if short else []
    start = time.monotonic()
    with subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, start_new_session=True
    ) as process:
        try:
            output, errors = process.communicate(timeout=timeout_seconds)
        except subprocess.TimeoutExpired:
            return {NOT_MEASURED: f"it took longer than {timeout_seconds:g} s"}
        finally:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
    lines = output.strip().splitlines()
    if process.returncode != 0 or not lines:
        words = (errors.strip() or "it printed nothing").splitlines()[-1]
        return {NOT_MEASURED: f"status {process.returncode}: {words}"}
    found: dict[str, Any] = json.loads(lines[-1])
    return {**found, "part_seconds": round(time.monotonic() - start, 1)}


def is_good(found: dict[str, Any]) -> bool:
    """Whether a part was measured, and holds what it compares."""
    return NOT_MEASURED not in found and found.get("holds") is not False


def shown(name: str, found: dict[str, Any]) -> str:
    """A part in one line."""
    if NOT_MEASURED in found:
        return f"{name:16} not measured: {found[NOT_MEASURED]}"
    return f"{name:16} {found.get('summary', 'measured')}"


def kept(path: Path | None, head: dict[str, Any]) -> dict[str, dict[str, Any]]:
    """Parts that a file has of this machine, software and length."""
    if path is None or not path.exists():
        return {}
    document = json.loads(path.read_text(encoding="utf-8"))
    if any(document.get(key) != value for key, value in head.items()):
        return {}
    return {name: found for name, found in document["parts"].items() if name in PARTS and is_good(found)}


def main() -> int:
    """Measure, print and write; 1 where a part could not be measured or does not hold."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--device", default="cpu", choices=("cpu", "cuda"))
    parser.add_argument("--out", type=Path, help="file for the evidence, in JSON")
    parser.add_argument("--short", action="store_true", help="seconds for each part")
    parser.add_argument("--again", action="store_true", help="measure parts that the file has, too")
    parser.add_argument("--only", nargs="+", choices=sorted(PARTS), help="these parts alone")
    parser.add_argument("--part", choices=sorted(PARTS), help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.part:
        print(json.dumps(PARTS[options.part](options.device, options.short)))
        return 0
    software = machine.describe("torch", "jax", "numpy")
    print(software)
    head = {
        "device": options.device,
        "is_short": options.short,
        "machine": software.splitlines(),
        "accelerators": machine.accelerators() if options.device == "cuda" else [],
    }
    parts = {} if options.again else kept(options.out, head)
    wanted = options.only or list(PARTS)
    for name in wanted:
        if name not in parts:
            parts[name] = measured(name, options.device, short=options.short)
        print(shown(name, parts[name]), flush=True)
        if options.out:
            write(options.out, head, parts)
    return int(not all(is_good(parts[name]) for name in wanted))


def write(path: Path, head: dict[str, Any], parts: dict[str, dict[str, Any]]) -> None:
    """Write what is measured until now."""
    ordered = {name: parts[name] for name in PARTS if name in parts}
    document = {"measured_at": datetime.now(UTC).isoformat(timespec="seconds"), **head, "parts": ordered}
    path.parent.mkdir(parents=True, exist_ok=True)
    write_atomically(path, json.dumps(document, indent=1) + "\n")


if __name__ == "__main__":
    sys.exit(main())
