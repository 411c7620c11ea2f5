"""Measures kernels of a training step against what the same device reaches in the same run."""

from __future__ import annotations

import argparse
import json
import math
import platform
import statistics
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import torch
import torch.nn.functional as F  # noqa: N812
from trainspec_reference.torch.models.transformer import causal_attention

from trainspec_conformance.testbed.torch.links import device_facts, link_bytes_per_second
from trainspec_validate.system.atomic import write_atomically

FLOORS = {"matmul": 0.70, "attention": 0.25, "normalization": 0.45, "activation": 0.45, "host-to-device-copy": 0.70}
"""Least share of the roofline that the specification asks for."""
BACKWARD_PER_FORWARD = 2.5
"""Products of a backward pass over those of the forward pass, of attention: Dao-AILab/flash-attention counts so."""


@dataclass(frozen=True, slots=True)
class Sizes:
    """Kernels that are measured on a kind of device."""

    dtype: torch.dtype
    squares: tuple[int, ...]
    """Sides of the square products that the roofline is the best of."""
    products: tuple[tuple[int, int, int], ...]
    """Rows, inner and columns of the products of a training step."""
    attention: tuple[int, int, int, int]
    """Batch, heads, sequence and head size."""
    rows: tuple[int, int]
    """Rows and width of a norm."""
    num_copied_bytes: int
    num_warmup_runs: int
    num_timed_runs: int


SIZES = {
    "cuda": Sizes(
        torch.bfloat16,
        (4096, 6144, 8192, 10240),
        ((8192, 4096, 12288), (8192, 4096, 4096), (8192, 4096, 16384), (8192, 16384, 4096)),
        (2, 32, 4096, 128),
        (16384, 8192),
        256 * 2**20,
        50,
        100,
    ),
    "cpu": Sizes(
        torch.float32,
        (512, 768, 1024),
        ((1024, 256, 768), (1024, 256, 256), (1024, 256, 1024), (1024, 1024, 256)),
        (1, 4, 512, 64),
        (8192, 1024),
        64 * 2**20,
        3,
        15,
    ),
}


@dataclass(frozen=True, slots=True)
class Rate:
    """How fast something ran, by the median of its runs."""

    operation: str
    dimensions: tuple[int, ...]
    median_seconds: float
    p20_seconds: float
    p80_seconds: float
    per_second: float
    """Operations, or bytes read and written, by the median."""
    roofline_per_second: float | None = None
    share: float | None = None
    floor: float | None = None


class Timer:
    """Times runs on a device, each with a cache that holds nothing of the run before."""

    def __init__(self, device: torch.device, sizes: Sizes) -> None:
        self._device, self._sizes = device, sizes
        num_cache_bytes = 64 * 2**20
        if device.type == "cuda":
            num_cache_bytes = 2 * int(torch.cuda.get_device_properties(device).L2_cache_size)
        self._cache = torch.empty(num_cache_bytes, dtype=torch.int8, device=device)

    def rate(self, operation: str, dimensions: tuple[int, ...], amount: float, run: Callable[[], object]) -> Rate:
        """Rate of a run that does `amount` of operations, or moves so many bytes."""
        for _ in range(self._sizes.num_warmup_runs):
            run()
        seconds = sorted(self._once(run) for _ in range(self._sizes.num_timed_runs))
        low, *_, high = statistics.quantiles(seconds, n=5)
        median = statistics.median(seconds)
        return Rate(operation, dimensions, median, low, high, amount / median)

    def _once(self, run: Callable[[], object]) -> float:
        self._cache.zero_()
        if self._device.type != "cuda":
            start = time.perf_counter()
            run()
            return time.perf_counter() - start
        begin = torch.cuda.Event(enable_timing=True)  # type: ignore[no-untyped-call]
        end = torch.cuda.Event(enable_timing=True)  # type: ignore[no-untyped-call]
        begin.record()
        run()
        end.record()
        end.synchronize()
        return float(begin.elapsed_time(end)) / 1000


def measure(device: torch.device) -> dict[str, Any]:
    """All kernels and their rooflines, with what they were measured on."""
    sizes = SIZES[device.type]
    timer = Timer(device, sizes)
    products = [_product(timer, sizes, device, (side, side, side), "roofline-matmul") for side in sizes.squares]
    copies = [_device_copy(timer, sizes, device)]
    best_product, best_copy = (max(rate.per_second for rate in rates) for rates in (products, copies))
    kernels = [_product(timer, sizes, device, shape, "matmul") for shape in sizes.products]
    judged = [_judged(rate, best_product) for rate in (*kernels, _attention(timer, sizes, device))]
    judged += [_judged(rate, best_copy) for rate in _elementwise(timer, sizes, device)]
    if device.type == "cuda":
        judged.append(_judged(_host_copy(timer, sizes, device), link_bytes_per_second(device)))
    return {
        "measured_at": datetime.now(UTC).isoformat(timespec="seconds"),
        "device": device_facts(device),
        "versions": {"python": platform.python_version(), "torch": torch.__version__, "cuda": torch.version.cuda},
        "format": str(sizes.dtype).removeprefix("torch."),
        "num_threads": torch.get_num_threads(),
        "num_warmup_runs": sizes.num_warmup_runs,
        "num_timed_runs": sizes.num_timed_runs,
        "rooflines": [asdict(rate) for rate in (*products, *copies)],
        "kernels": [asdict(rate) for rate in judged],
    }


def narrow_products(device: torch.device, num_timed_runs: int | None = None) -> dict[str, Any]:
    """Rates of the products of a training step in FP8 and in BF16, operands narrowed before the clock starts.

    Raises:
        RuntimeError: this PyTorch, or this device, has no products in FP8.
    """
    if not hasattr(F, "scaled_mm"):
        raise RuntimeError(f"PyTorch {torch.__version__} has no torch.nn.functional.scaled_mm; 2.10 and later have it")
    sizes = SIZES[device.type]
    if num_timed_runs is not None:
        sizes = replace(sizes, num_timed_runs=num_timed_runs)
    timer, rows = Timer(device, sizes), []
    for shape in sizes.products:
        wide = _product(timer, sizes, device, shape, "bf16")
        rows.append(asdict(wide) | {"times_bf16": 1.0})
        for scaling in ("TensorWise", "RowWise"):
            narrow = _narrow_product(timer, device, shape, scaling)
            rows.append(asdict(narrow) | {"times_bf16": narrow.per_second / wide.per_second})
    products = [row for row in rows if row["operation"] != "bf16"]
    return {"device": device_facts(device), "format": "float8_e4m3fn", "bf16": rows[::3], "products": products}


def _narrow_product(timer: Timer, device: torch.device, shape: tuple[int, int, int], scaling: str) -> Rate:
    rows, inner, columns = shape
    kind = getattr(F.ScalingType, scaling)
    left, left_scale = _narrowed(torch.randn(rows, inner, device=device), scaling)
    right, right_scale = _narrowed(torch.randn(columns, inner, device=device), scaling)
    if scaling == "RowWise":
        right_scale = right_scale.t()

    def run() -> object:
        return F.scaled_mm(left, right.t(), left_scale, kind, right_scale, kind, output_dtype=torch.bfloat16)

    return timer.rate(f"fp8-{scaling.lower()}", shape, 2.0 * rows * inner * columns, run)


def _narrowed(values: torch.Tensor, scaling: str) -> tuple[torch.Tensor, torch.Tensor]:
    """Values in FP8, and the FP32 scales that undo what they were divided by: one, or one for each row."""
    largest = values.abs().amax(1, keepdim=True) if scaling == "RowWise" else values.abs().amax()
    scale = largest / torch.finfo(torch.float8_e4m3fn).max
    return (values / scale).to(torch.float8_e4m3fn), scale.float()


def _judged(rate: Rate, roofline: float | None) -> Rate:
    facts = (rate.operation, rate.dimensions, rate.median_seconds, rate.p20_seconds, rate.p80_seconds, rate.per_second)
    share = None if roofline is None else rate.per_second / roofline
    return Rate(*facts, roofline, share, FLOORS[rate.operation])


def _product(timer: Timer, sizes: Sizes, device: torch.device, shape: tuple[int, int, int], name: str) -> Rate:
    rows, inner, columns = shape
    left = torch.randn(rows, inner, dtype=sizes.dtype, device=device)
    right = torch.randn(inner, columns, dtype=sizes.dtype, device=device)
    return timer.rate(name, shape, 2.0 * rows * inner * columns, lambda: left @ right)


def _attention(timer: Timer, sizes: Sizes, device: torch.device) -> Rate:
    """Forward and backward pass, causal: the masked half counts for nothing."""
    batch, heads, length, width = sizes.attention
    tensors = [torch.randn(sizes.attention, dtype=sizes.dtype, device=device, requires_grad=True) for _ in range(3)]
    gradient = torch.randn(sizes.attention, dtype=sizes.dtype, device=device)
    forward = 4.0 * batch * heads * length * length * width / 2

    def run() -> None:
        torch.autograd.grad(causal_attention(*tensors), tensors, gradient)

    return timer.rate("attention", sizes.attention, forward * (1 + BACKWARD_PER_FORWARD), run)


def _elementwise(timer: Timer, sizes: Sizes, device: torch.device) -> list[Rate]:
    values = torch.randn(sizes.rows, dtype=sizes.dtype, device=device)
    scale = torch.ones(sizes.rows[1], dtype=sizes.dtype, device=device)
    moved = 2.0 * values.nbytes
    return [
        timer.rate("normalization", sizes.rows, moved, lambda: F.layer_norm(values, scale.shape, scale, scale)),
        timer.rate("activation", sizes.rows, moved, lambda: F.gelu(values, approximate="tanh")),
    ]


def _device_copy(timer: Timer, sizes: Sizes, device: torch.device) -> Rate:
    source = torch.randn(sizes.rows, dtype=sizes.dtype, device=device)
    return timer.rate("device-copy", sizes.rows, 2.0 * source.nbytes, source.clone)


def _host_copy(timer: Timer, sizes: Sizes, device: torch.device) -> Rate:
    source = torch.empty(sizes.num_copied_bytes, dtype=torch.int8, pin_memory=True)
    target = torch.empty_like(source, device=device, pin_memory=False)
    number = (sizes.num_copied_bytes,)
    return timer.rate("host-to-device-copy", number, source.nbytes, lambda: target.copy_(source, non_blocking=True))


def main(arguments: Sequence[str] | None = None) -> int:
    """Measure, print, and write the evidence; 1 where a kernel stays below its floor."""
    parser = argparse.ArgumentParser(prog="python -m trainspec_conformance.testbed.torch.floors", description=__doc__)
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu", choices=sorted(SIZES))
    parser.add_argument("--out", type=Path, help="file for the evidence, in JSON")
    options = parser.parse_args(arguments)
    evidence = measure(torch.device(options.device))
    for kernel in evidence["kernels"]:
        share = math.nan if kernel["share"] is None else kernel["share"]
        dimensions = "x".join(map(str, kernel["dimensions"]))
        print(f"{kernel['operation']:20} {dimensions:20} {share:6.2f} of the roofline, floor {kernel['floor']:.2f}")  # noqa: T201
    if options.out:
        write_atomically(options.out, json.dumps(evidence, indent=1) + "\n")
    return int(any(kernel["share"] is not None and kernel["share"] < kernel["floor"] for kernel in evidence["kernels"]))


if __name__ == "__main__":
    raise SystemExit(main())
