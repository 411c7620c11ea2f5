"""Answers a probe: numbers that training computes, for inputs that a conformance test chose.

`python -m trainspec_conformance.testbed.probe BACKEND in.json out.json` reads `{"operation": ..., ...}` and writes the
same operation with its result, or with `unsupported` and the reason. An array is nested lists of numbers, or an object
with `dtype`, `shape` and `base64`; the key `arrays` (`lists` or `base64`) says which form the answer has. Formats are
fp64, fp32, bf16 and fp16.

noise: `gradients` [steps, groups, entries] are mean gradients of groups, `group_sizes`, `half_life_steps`; optional
    `loss_scale`, `clip_norm`, `gradient_format`. Gives `signal_sq` and `noise_trace` of each step, `averages`, `norms`.
accumulate: `sample_ids`, `variable_length`, `layouts` [{`data`, `micro_sequences`}]; optional `precision`, `seed`.
    Gives `results` [{`loss`, `gradient`, `num_targets`}], and the `samples` alone [{`loss`, `num_targets`}].
compress: `compression` as in a plan, `shape`, `gradients` [steps, entries]; optional `independent`. Gives `sent`,
    `residual`, `wire_bytes`, `dense_bytes`.
quantise: `values`, `format`, `rounding`; optional `num_draws`, `seed`; of a recipe also `scaling`, `block_size`. Gives
    `dequantised` [draws, values], `scales`.
loss-scale: `loss_scaling` as in a plan, `overflows` of each step. Gives `scales`, `next_scale`, `skipped`, `unchanged`,
    `updates`, `learning_rates`.
reduce: `gradients` [ranks, micro-batches, entries]; optional `gradient_format`, `accumulation_format`,
    `reduction_format`. Gives `sum`.
stochastic-rounding: `start`, `increment`, `num_steps`, `num_copies`; optional `format`, `rounding`, `seed`. Gives
    `values` of the copies.
elastic: `global_sequences`, `micro_sequences`, `min_accelerators`, `max_accelerators`; optional `model_parallel`,
    `ranks_per_node`. Gives `world_sizes` and `scales`; with `speeds` of workers, `shares`.
flops: `model` as in a plan, `convention`; optional `sequence_length`. Gives `flops_per_token` and parameters.
update: `factors` of the loss; optional `clip_norm`, `seed`. Gives `updates` [factors, parameters]: the change in the
    first step by gradient descent alone, over its rate.
converge: `compression` as in a plan, `seeds`, `num_steps`. Gives losses `dense` and `compressed` [seeds, steps].
memory: `num_layers`, `hidden_size`, `sequence_length`, `global_sequences`. Gives `predicted_bytes`, and `memory`:
    `host`, or `device` with its `peak_bytes`.
peaks: the same, and `num_steps`. Gives `peak_bytes` of each step.
shards: `sharding` as in a plan, `num_ranks`, `num_parameters` at least, `num_steps`; optional `seed`. Trains on so many
    ranks, and gives `losses` of each step, the `num_parameters`, and `memory` as above.
kernels: nothing. Gives `kernels` and `rooflines`, each with `operation`, `dimensions`, `median_seconds`, and
    `num_warmup_runs`, `num_timed_runs`, `format`, `device`.
energy: `seconds` of load; optional `interval_seconds`. Gives `seconds`, `joules` and `watts` of each reading.
"""

from __future__ import annotations

import importlib
import json
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from trainspec_conformance.testbed import probe_arithmetic, probe_machine, probe_planning, probe_runs, probe_training
from trainspec_conformance.testbed.probe_arrays import ProbeInputError, Request
from trainspec_conformance.testbed.probe_parts import Probes, UnsupportedError
from trainspec_validate.system.atomic import write_atomically

_ARITHMETIC: Mapping[str, Callable[[Request, Probes], dict[str, Any]]] = {
    "noise": probe_arithmetic.noise,
    "compress": probe_arithmetic.compress,
    "quantise": probe_arithmetic.quantise,
    "reduce": probe_arithmetic.reduce,
    "stochastic-rounding": probe_arithmetic.stochastic_rounding,
    "kernels": probe_machine.kernels,
    "energy": probe_machine.energy,
}
_TRAINING: Mapping[str, Callable[[Request, str], dict[str, Any]]] = {
    "accumulate": probe_training.accumulate,
    "loss-scale": probe_training.loss_scale,
    "update": probe_runs.update,
    "converge": probe_runs.converge,
    "shards": probe_runs.shards,
}
_MEMORY: Mapping[str, Callable[[Request, str, Probes], dict[str, Any]]] = {
    "memory": probe_runs.memory,
    "peaks": probe_runs.peaks,
}
_PLANNING: Mapping[str, Callable[[Request], dict[str, Any]]] = {
    "elastic": probe_planning.elastic,
    "flops": probe_planning.flops,
}
USAGE, WRONG_USE = "usage: python -m trainspec_conformance.testbed.probe BACKEND in.json out.json", 2
OPERATIONS = (*_ARITHMETIC, *_TRAINING, *_MEMORY, *_PLANNING)


def answer(backend: str, source: Path, target: Path) -> None:
    """Read a request, compute what it asks for with the code of a backend, and write the answer.

    Raises:
        ProbeInputError: the request is wrong; the message names the key.
    """
    request = Request.read(source)
    try:
        found = _computed(request, backend)
    except UnsupportedError as error:
        found = {"unsupported": str(error)}
    write_atomically(target, json.dumps({"operation": request.operation, **found}) + "\n")


def _computed(request: Request, backend: str) -> dict[str, Any]:
    name = request.operation
    if name in _PLANNING:
        return _PLANNING[name](request)
    if name in _TRAINING:
        return _TRAINING[name](request, backend)
    if name in _MEMORY:
        return _MEMORY[name](request, backend, _probes(backend))
    if name in _ARITHMETIC:
        return _ARITHMETIC[name](request, _probes(backend))
    raise ProbeInputError(f"operation {name!r} is none of {', '.join(OPERATIONS)}")


def _probes(backend: str) -> Probes:
    try:
        module = importlib.import_module(f"trainspec_conformance.testbed.{backend}.probes")
    except ModuleNotFoundError as error:
        raise UnsupportedError(f"the {backend} backend shows none of its arithmetic: {error}") from error
    found: Probes = module.BackendProbes()
    return found


def main(arguments: list[str]) -> int:
    """Answer a probe; gives the exit status: 0 answered, 2 wrong use."""
    if len(arguments) != 3:
        print(USAGE, file=sys.stderr)  # noqa: T201 - the answer to wrong use
        return WRONG_USE
    backend, source, target = arguments
    try:
        answer(backend, Path(source), Path(target))
    except (ProbeInputError, OSError) as error:
        print(f"probe: {error}", file=sys.stderr)  # noqa: T201 - the answer to wrong use
        return WRONG_USE
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
