"""Turns the formats of a plan into what PyTorch computes in, and holds the random state of a rank."""

from __future__ import annotations

import hashlib
from contextlib import AbstractContextManager, nullcontext

import torch

from trainspec_validate.documents.types.precision import Precision

DTYPES = {"fp64": torch.float64, "fp32": torch.float32, "bf16": torch.bfloat16, "fp16": torch.float16}


def parameter_dtype(precision: Precision) -> torch.dtype:
    """Format of the parameters that the optimizer updates: the master copy where there is one.

    Raises:
        ValueError: the plan wants them in 16 bits or fewer, or products in fewer than 16.
    """
    if precision.recipe is not None:
        raise ValueError(f"products in {precision.recipe.format} are not offered")
    wanted = precision.master_parameters or precision.parameters
    if wanted not in ("fp32", "fp64"):
        raise ValueError(f"parameters are updated in fp32 or fp64 here, not in {wanted}: state master_parameters")
    return DTYPES[wanted]


def prepare(precision: Precision) -> None:
    """Set what PyTorch keeps for the whole process: tf32 products and convolutions, and repeatable kernels."""
    torch.set_float32_matmul_precision("high" if precision.compute == "tf32" else "highest")
    torch.backends.cudnn.allow_tf32 = precision.compute == "tf32"  # else convolutions in FP32 round to ten bits
    if precision.deterministic:
        torch.use_deterministic_algorithms(mode=True)


def computing(precision: Precision, device: torch.device) -> AbstractContextManager[object]:
    """Matrix products in the compute format; softmax, norms and the loss stay in fp32."""
    if precision.compute in ("bf16", "fp16"):
        return torch.autocast(device.type, DTYPES[precision.compute])
    return nullcontext()


def seed_generators(*words: int) -> None:
    """Start the generators of this process anew, from numbers that differ between ranks."""
    digest = hashlib.sha256("/".join(map(str, words)).encode()).digest()
    torch.manual_seed(int.from_bytes(digest[:8], "little", signed=True))


def generator_states(device: torch.device) -> dict[str, torch.Tensor]:
    """State of each generator, as bytes."""
    found = {"host": torch.get_rng_state()}
    if device.type == "cuda":
        found["device"] = torch.cuda.get_rng_state(device)
    return found


def restore_generators(found: dict[str, torch.Tensor], device: torch.device) -> None:
    """Restore these states."""
    torch.set_rng_state(found["host"])
    if device.type == "cuda":
        torch.cuda.set_rng_state(found["device"], device)
