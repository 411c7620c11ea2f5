"""Measures the loss of a small job whose gradients are compressed, with error feedback and without it.

Run with `python benchmarks/measured/compressed_training.py`. The loop of the reference trainer runs, three seeds of
200 steps each: dense, and with the largest twentieth of each gradient. Losses are means of the last ten steps.
"""

from __future__ import annotations

import json
import tempfile
from pathlib import Path
from typing import Any

import numpy as np
from trainspec_conformance.testbed.probe import answer

NUM_STEPS, SEEDS, NUM_LAST = 200, (0, 1, 2), 10
DENSITY = 0.05


def asked(directory: Path, *, error_feedback: bool) -> dict[str, Any]:
    """Losses of dense and of compressed training, by seed and step."""
    source, target = directory / "in.json", directory / "out.json"
    compression = {"method": "top-k", "density": DENSITY, "error_feedback": error_feedback}
    question = {"operation": "converge", "compression": compression, "seeds": SEEDS, "num_steps": NUM_STEPS}
    source.write_text(json.dumps(question), encoding="utf-8")
    answer("plain", source, target)
    found: dict[str, Any] = json.loads(target.read_text(encoding="utf-8"))
    return found


def main() -> None:
    """Print the mean losses at the end."""
    with tempfile.TemporaryDirectory() as directory:
        found = {name: asked(Path(directory), error_feedback=name == "with") for name in ("with", "without")}
    of_dense = float(np.mean(np.array(found["with"]["dense"])[:, -NUM_LAST:]))
    off = {name: float(np.mean(np.array(each["compressed"])[:, -NUM_LAST:])) - of_dense for name, each in found.items()}
    print(
        f"a twentieth of each gradient: {off['with']:.2f} above a loss of {of_dense:.2f} with error feedback, "
        f"{off['without']:.2f} above it without"
    )


if __name__ == "__main__":
    main()
