"""Gradient noise in PyTorch: on one device, and on two ranks with DDP, compression, shards and a loss scale."""

from __future__ import annotations

import json
import math
import os
import signal
import subprocess
import sys
from contextlib import suppress
from pathlib import Path

import pytest

from trainspec_record.noise import Norms

from .recorded import SOURCE

torch = pytest.importorskip("torch")
HERE = Path(__file__).resolve().parent
KINDS = ("plain", "fp16", "scaled", "fsdp", "parameters", "every")


def expected(num_steps: int, sizes: tuple[int, ...], every: int = 1) -> list[list[float]]:
    """Norms of steps, from the samples themselves: their means by groups."""
    from .noise_ranks import samples

    found = []
    for step in range(0, num_steps, every):
        x = samples(step, sum(sizes)).double()
        squares = [float(each.mean(dim=0).square().sum()) for each in x.split(list(sizes))]
        found.append(list(Norms.of_groups(sizes, squares, float(x.mean(dim=0).square().sum()))))
    return found


def close(found: list[list[float]], wanted: list[list[float]], rel: float = 1e-6) -> bool:
    assert len(found) == len(wanted)
    return all(one == pytest.approx(other, rel=rel) for one, other in zip(found, wanted, strict=True))


@pytest.mark.slow
def test_two_ranks_agree_with_the_samples(tmp_path: Path) -> None:
    from .noise_ranks import NUM_STEPS

    words = ["torchrun", "--standalone", "--nproc-per-node=2", str(HERE / "noise_ranks.py"), str(tmp_path), *KINDS]
    environment = {"PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}", "PYTHONPATH": SOURCE}
    process = subprocess.Popen(
        words,
        env={**environment, "OMP_NUM_THREADS": "1"},
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )
    try:
        _, told = process.communicate(timeout=600)
    finally:
        with suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
    assert process.returncode == 0, told
    found = [json.loads((tmp_path / f"{rank}.json").read_text()) for rank in (0, 1)]
    for kind in KINDS:
        assert found[0][kind] == found[1][kind], kind
        wanted = expected(NUM_STEPS, (3, 5), 2 if kind == "every" else 1)
        assert close(found[0][kind], wanted[: len(wanted) // 4 * 4]), kind


# --- one device ---------------------------------------------------------------------------------------------


def accumulated(
    sizes: tuple[int, ...], num_steps: int, *, loss_scale: float = 1.0, clip: bool = False
) -> list[list[float]]:
    """Norms of steps whose micro-batches are groups of one device."""
    from trainspec_record.noise.pytorch import TorchNoise, tap_parameters

    from .noise_ranks import Kept, Model, samples

    model, kept = Model(), Kept()
    noise = TorchNoise(kept, model.parameters(), loss_scale=lambda: torch.tensor(loss_scale), sync_every=1)
    handles = tap_parameters(noise)
    for step in range(num_steps):
        for micro in samples(step, sum(sizes)).split(list(sizes)):
            (model(micro).sum() / sum(sizes) * loss_scale).backward()
            noise.close_group(len(micro))
        noise.finish()
        if clip:
            torch.nn.utils.clip_grad_norm_(model.parameters(), 1e-3)
        model.zero_grad()
    for handle in handles:
        handle.remove()
    return kept.norms


@pytest.mark.parametrize("sizes", [(2, 2, 2, 2), (1, 2, 4, 9)])
def test_micro_batches_of_one_device_are_groups(sizes: tuple[int, ...]) -> None:
    assert close(accumulated(sizes, 8), expected(8, sizes))


def test_a_loss_scale_and_clipping_change_nothing() -> None:
    plain = accumulated((2, 2, 2, 2), 8)
    assert close(accumulated((2, 2, 2, 2), 8, loss_scale=2.0**16, clip=True), plain, rel=1e-6)


def test_ranks_and_micro_batches_are_the_same_groups(tmp_path: Path) -> None:
    assert close(accumulated((3, 5), 12), expected(12, (3, 5)))


def test_an_overflow_is_not_a_number() -> None:
    (found,) = accumulated((2, 2), 1, loss_scale=math.inf)
    assert Norms(*found).problem == "a squared norm is not finite"


def test_a_tap_that_fails_gives_no_reading() -> None:
    from trainspec_record.noise.pytorch import TorchNoise

    from .noise_ranks import Kept, Model

    model, kept = Model(), Kept()
    noise = TorchNoise(kept, model.parameters(), sync_every=1)
    noise.tap("no tensor")
    noise.finish(4)
    assert all(math.isnan(each) for each in kept.norms[0])


def test_nothing_is_squared_where_nothing_is_recorded() -> None:
    from trainspec_record.noise.pytorch import TorchNoise, tap_parameters

    from .noise_ranks import Kept, Model

    model, kept = Model(), Kept()
    kept.is_on = False
    noise = TorchNoise(kept, model.parameters(), sync_every=1)
    tap_parameters(noise)
    model(torch.ones((2, 24))).sum().backward()
    noise.finish(2)
    assert (kept.norms, noise._open, noise._rows) == ([], [], [])
