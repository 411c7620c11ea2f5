"""Measures what a resumed training run lacks where its checkpoint leaves out one part of the state.

Run with `python benchmarks/measured/resumed_training.py`. A transformer of two layers is trained for 40 steps and
saved; each line resumes it without one part and compares the next 50 losses with those of the run that was not
stopped. Seeds are fixed and one thread computes, so that a machine repeats itself; the last digits differ between
processors.
"""

from __future__ import annotations

import copy
import sys
from collections.abc import Callable
from dataclasses import dataclass
from importlib.util import find_spec
from typing import Any

NUM_STEPS_BEFORE, NUM_STEPS_AFTER = 40, 50
NUM_WORDS, WIDTH, NUM_POSITIONS, NUM_SEQUENCES = 64, 32, 16, 8
WARMUP_STEPS, PEAK_RATE = 30, 3e-3


@dataclass(slots=True)
class Run:
    """A job in progress: model, optimizer, schedule, and the position in its data."""

    model: Any
    optimizer: Any
    schedule: Any
    position: int = 0


def started() -> Run:
    """A run before its first step."""
    import torch  # noqa: PLC0415
    from torch import nn  # noqa: PLC0415

    torch.manual_seed(1)
    layer = nn.TransformerEncoderLayer(WIDTH, 4, 4 * WIDTH, dropout=0.1, batch_first=True)
    encoder = nn.TransformerEncoder(layer, 2, enable_nested_tensor=False)
    model = nn.Sequential(nn.Embedding(NUM_WORDS, WIDTH), encoder, nn.Linear(WIDTH, NUM_WORDS))
    optimizer = torch.optim.AdamW(model.parameters(), lr=PEAK_RATE)

    def rate(step: int) -> float:
        total = NUM_STEPS_BEFORE + NUM_STEPS_AFTER
        return min((step + 1) / WARMUP_STEPS, (total - step) / (total - WARMUP_STEPS))

    return Run(model, optimizer, torch.optim.lr_scheduler.LambdaLR(optimizer, rate))


def batch(position: int) -> Any:
    """Sequences of one step: each word follows from the one before, with one in eight drawn at random."""
    import torch  # noqa: PLC0415

    random = torch.Generator().manual_seed(10_000 + position)
    words = [torch.randint(NUM_WORDS, (NUM_SEQUENCES,), generator=random)]
    for _ in range(NUM_POSITIONS):
        drawn = torch.randint(NUM_WORDS, (NUM_SEQUENCES,), generator=random)
        is_random = torch.rand(NUM_SEQUENCES, generator=random) < 1 / 8
        words.append(torch.where(is_random, drawn, (5 * words[-1] + 7) % NUM_WORDS))
    return torch.stack(words, 1)


def trained(run: Run, num_steps: int) -> list[float]:
    """Losses of the next steps."""
    from torch import nn  # noqa: PLC0415

    losses = []
    for _ in range(num_steps):
        words = batch(run.position)
        loss = nn.functional.cross_entropy(run.model(words[:, :-1]).flatten(0, 1), words[:, 1:].flatten())
        run.optimizer.zero_grad()
        loss.backward()  # type: ignore[no-untyped-call]
        run.optimizer.step()
        run.schedule.step()
        run.position += 1
        losses.append(float(loss.detach()))
    return losses


def saved(run: Run) -> dict[str, Any]:
    """Everything that a resume needs."""
    import torch  # noqa: PLC0415

    parts = {"model": run.model, "optimizer": run.optimizer, "schedule": run.schedule}
    state = {name: copy.deepcopy(part.state_dict()) for name, part in parts.items()}
    return {**state, "random state": torch.get_rng_state(), "data position": run.position}


def resumed(state: dict[str, Any], without: set[str]) -> Run:
    """A run that was started anew and given its state, apart from some parts."""
    import torch  # noqa: PLC0415

    run = started()
    run.model.load_state_dict(state["model"])
    if "optimizer" not in without:
        run.optimizer.load_state_dict(copy.deepcopy(state["optimizer"]))
    if "schedule" not in without:
        run.schedule.load_state_dict(state["schedule"])
    if "data position" not in without:
        run.position = state["data position"]
    if "random state" not in without:
        torch.set_rng_state(state["random state"])
    return run


def without_second_moment(state: dict[str, Any]) -> Run:
    """A resume whose second moments are zero, as after a conversion that drops them."""
    state = copy.deepcopy(state)
    for moments in state["optimizer"]["state"].values():
        moments["exp_avg_sq"].zero_()
    return resumed(state, set())


def main() -> int:
    """Print one line for each omission; 0 also where torch is not installed."""
    if find_spec("torch") is None:
        print("not measured: torch is not installed")
        return 0
    import torch  # noqa: PLC0415

    torch.set_num_threads(1)
    run = started()
    trained(run, NUM_STEPS_BEFORE)
    state = saved(run)
    expected = trained(run, NUM_STEPS_AFTER)
    resumes: dict[str, Callable[[], Run]] = {
        "nothing": lambda: resumed(state, set()),
        "optimizer": lambda: resumed(state, {"optimizer"}),
        "schedule": lambda: resumed(state, {"schedule"}),
        "optimizer and schedule": lambda: resumed(state, {"optimizer", "schedule"}),
        "random state": lambda: resumed(state, {"random state"}),
        "data position": lambda: resumed(state, {"data position"}),
        "second moments": lambda: without_second_moment(state),
    }
    for name, resume in resumes.items():
        losses = trained(resume(), NUM_STEPS_AFTER)
        off = [abs(one - other) / other for one, other in zip(losses, expected, strict=True)]
        print(f"without {name}: first step off by {off[0]:.1%}, largest of {len(off)} steps off by {max(off):.1%}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
