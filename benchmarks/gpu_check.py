"""Checks within a minute that the reference trainers can use the accelerators of this machine.

Run with `python benchmarks/gpu_check.py`, or `make gpu-check`. It prints one line for each check: the devices that each
framework sees, a sum over NCCL of all devices of the host, and with each framework a step of training, a save, and a
restore that gives the same state. Each check runs in a process of its own. The status is 1 where a check fails.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import tempfile
from collections.abc import Callable
from functools import partial
from pathlib import Path

from trainspec_conformance.testbed.rehearsal import NoPorts, StepMemory, built, free_address, only_rank, trainer_of

PLAN = Path(__file__).resolve().parents[1] / "reference" / "plans" / "transformer.yaml"
TIMEOUT_SECONDS = 120.0


def torch_devices() -> str:
    """Devices that PyTorch sees."""
    import torch  # noqa: PLC0415

    if not torch.cuda.is_available():
        raise RuntimeError(f"PyTorch {torch.__version__} sees no device")
    names = [torch.cuda.get_device_name(index) for index in range(torch.cuda.device_count())]
    return f"PyTorch {torch.__version__}, CUDA {torch.version.cuda}: {len(names)} x {names[0]}"


def jax_devices() -> str:
    """Devices that JAX sees."""
    import jax  # noqa: PLC0415

    devices = jax.devices("cuda")
    return f"JAX {jax.__version__}: {len(devices)} x {devices[0].device_kind}"


def nccl() -> str:
    """A sum over NCCL, one rank for each device of this host."""
    import torch  # noqa: PLC0415

    address, num_ranks = free_address(), torch.cuda.device_count()
    torch.multiprocessing.spawn(_sum, args=(num_ranks, address), nprocs=num_ranks)  # type: ignore[attr-defined]
    version = ".".join(map(str, torch.cuda.nccl.version()))  # type: ignore[no-untyped-call]
    return f"NCCL {version}: the sum over {num_ranks} rank{'s' if num_ranks > 1 else ''} is right"


def _sum(rank: int, num_ranks: int, address: str) -> None:
    import torch  # noqa: PLC0415
    import torch.distributed as dist  # noqa: PLC0415

    torch.cuda.set_device(rank)
    dist.init_process_group("nccl", init_method=f"tcp://{address}", rank=rank, world_size=num_ranks)
    values = torch.full((1 << 20,), float(rank + 1), device="cuda")
    dist.all_reduce(values)
    if not bool((values == num_ranks * (num_ranks + 1) / 2).all()):
        raise RuntimeError(f"rank {rank} has the sum {values[0].item()}")
    dist.destroy_process_group()


def trained(backend_name: str, device: str) -> str:
    """One step, one save, and one restore into a model that was built anew."""
    from trainspec_reference.common.reading import Changes, read_job  # noqa: PLC0415
    from trainspec_reference.common.weights import initial_weights  # noqa: PLC0415

    job, formation, memory = read_job(PLAN, None, Changes(1, 1, device=device)), only_rank(), StepMemory()
    with built(backend_name, job, formation) as backend, tempfile.TemporaryDirectory() as folder:
        trainer_of(job, backend, formation, NoPorts(), memory).run()
        before, directory = backend.digest(), Path(folder)
        backend.write(backend.snapshot(), directory)
        num_bytes = sum(path.stat().st_size for path in directory.rglob("*") if path.is_file())
        backend.build(initial_weights(job.model, job.seed))
        if backend.digest() == before:
            raise RuntimeError("a step of training changed nothing")
        backend.restore(directory)
        if backend.digest() != before:
            raise RuntimeError("the restored state is another one")
    return f"step with loss {memory.steps[0].loss:.4f}, saved {num_bytes} bytes, restored the same state"


CHECKS: dict[str, Callable[[str], str]] = {
    "devices-torch": lambda device: torch_devices(),  # noqa: ARG005
    "devices-jax": lambda device: jax_devices(),  # noqa: ARG005
    "nccl": lambda device: nccl(),  # noqa: ARG005
    "torch": partial(trained, "torch"),
    "jax": partial(trained, "jax"),
}


def checked(name: str, device: str) -> tuple[bool, str]:
    """Whether a check passes, and what it says."""
    command = [sys.executable, str(Path(__file__).resolve()), "--check", name, "--device", device]
    try:
        ended = subprocess.run(command, capture_output=True, text=True, timeout=TIMEOUT_SECONDS, check=False)
    except subprocess.TimeoutExpired:
        return False, f"no answer within {TIMEOUT_SECONDS:g} s"
    words = (ended.stdout.strip() if ended.returncode == 0 else ended.stderr.strip()) or "it printed nothing"
    return ended.returncode == 0, words.splitlines()[-1]


def main() -> int:
    """Print all checks; 1 where one fails."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--device", default="cuda", choices=("cpu", "cuda"))
    parser.add_argument("--only", nargs="+", choices=sorted(CHECKS), help="these checks alone")
    parser.add_argument("--check", choices=sorted(CHECKS), help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.check:
        os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "1")
        print(CHECKS[options.check](options.device))
        return 0
    passes = True
    for name in options.only or CHECKS:
        is_right, words = checked(name, options.device)
        passes &= is_right
        print(f"{name:14} {'pass' if is_right else 'FAIL'}: {words}", flush=True)
    return int(not passes)


if __name__ == "__main__":
    sys.exit(main())
