"""Makes the golden traces of the reference trainers, and compares a backend with them.

`golden_traces.py` writes them all; `golden_traces.py --check BACKEND PLAN [--format bf16]` trains, and prints the
largest relative difference of a loss. The trace of a plan is that of one worker in fp32 with the backend that `MAKERS`
names; others have to follow it within `trainspec_conformance.testbed.precision.loss_tolerance`.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import math
import sys
from pathlib import Path
from typing import Any

from trainspec_conformance.testbed.precision import UNIT_ROUNDOFF, Format, in_format, loss_tolerance
from trainspec_conformance.testbed.rehearsal import rehearse
from trainspec_reference.common.reading import Changes, read_job

from trainspec_validate.documents.types.trace import StepDone

HOME = Path(__file__).parents[1] / "reference"
MAKERS = {"state-space": "plain", "transformer": "jax", "convolution": "jax", "experts": "torch"}
NUM_STEPS = 100


def traced(backend: str, plan: str, number_format: Format = "fp32", device: str | None = None) -> dict[str, Any]:
    """The trace of a plan as a backend gives it; on the device of the plan unless another one is named."""
    changes = Changes(NUM_STEPS, 1, device=device)
    job = in_format(read_job(HOME / f"plans/{plan}.yaml", None, changes), number_format)
    return {"plan": f"{plan}.yaml", "backend": backend, **numbers(rehearse(backend, job))}


def numbers(steps: list[StepDone]) -> dict[str, Any]:
    """Fields by which a trace is compared."""
    ids = hashlib.sha256()
    for step in steps:
        ids.update(",".join(map(str, step.sample_ids)).encode() + b"\n")
    return {
        "sample_ids_sha256": ids.hexdigest(),
        "learning_rates": [step.learning_rate for step in steps],
        "losses": [step.loss for step in steps],
    }


def golden(plan: str) -> dict[str, Any]:
    """The trace that is kept."""
    found: dict[str, Any] = json.loads((HOME / f"golden/{plan}.json").read_text())
    return found


def worst_difference(found: dict[str, Any], kept: dict[str, Any]) -> float:
    """Largest relative difference of a loss.

    Raises:
        ValueError: samples or rates differ, which have to be the same.
    """
    if found["sample_ids_sha256"] != kept["sample_ids_sha256"]:
        raise ValueError("samples differ from those of the golden trace")
    if not all(map(math.isclose, found["learning_rates"], kept["learning_rates"])):
        raise ValueError("learning rates differ from those of the golden trace")
    return max(math.fabs(a - b) / b for a, b in zip(found["losses"], kept["losses"], strict=True))


def main() -> int:
    """Write, or compare."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--check", nargs=2, metavar=("BACKEND", "PLAN"))
    parser.add_argument("--format", choices=UNIT_ROUNDOFF, default="fp32")
    options = parser.parse_args()
    if options.check:
        backend, plan = options.check
        worst = worst_difference(traced(backend, plan, options.format), golden(plan))
        print(f"{backend} {plan} {options.format}: {worst:.3g} of {loss_tolerance(options.format):.3g}")
        return int(not worst <= loss_tolerance(options.format))
    for plan, backend in MAKERS.items():
        (HOME / f"golden/{plan}.json").write_text(json.dumps(traced(backend, plan), indent=1) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
