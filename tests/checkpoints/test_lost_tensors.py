"""A checkpoint that lost tensors of those before it is passed over; one that replaces or drops a part is not."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.trees import build
from trainspec_validate.checkpoints.newest import Judgement, judged_newest_first

torch = pytest.importorskip("torch")
LAYERS = [f"layers.{layer}.{part}.weight" for layer in range(4) for part in ("q", "k")]
ADAPTED = [*LAYERS, *(name.replace(".weight", ".lora_A.weight") for name in LAYERS)]


def judged(root: Path, *names: list[str]) -> Judgement:
    """The judgement of the newest of checkpoints with tensors of these names."""
    for step, held in enumerate(names, start=1):
        build(root, f"step-{step}/model.safetensors  safetensors {' '.join(f'{name}=F32[1]' for name in held)}\n")
    return next(judged_newest_first(root))


@pytest.mark.parametrize("new", [LAYERS[:4], LAYERS[1:], LAYERS[::2]], ids=["half", "first", "one part of each"])
def test_lost_tensors_refuse(tmp_path: Path, new: list[str]) -> None:
    found = judged(tmp_path, LAYERS, LAYERS, new)
    if new == LAYERS[::2]:  # as a part that was dropped for good
        assert found.faults == ()
        assert any("tensors of step-2 are not in it" in note for note in found.notes)
    else:
        assert any(f"it has {len(new)} of the 8 tensors of step-2, and no others" in words for words in found.faults)


@pytest.mark.parametrize(
    "names",
    [
        (ADAPTED, ADAPTED, LAYERS),
        ([*LAYERS, "ema.a", "ema.b"], [*LAYERS, "ema.a", "ema.b"], LAYERS),
        (LAYERS, LAYERS, [*LAYERS, "ema.a"]),
        (LAYERS, LAYERS, [f"_orig_mod.{name}" for name in LAYERS]),
        ([*LAYERS, "lm_head.weight"], [*LAYERS, "lm_head.weight"], LAYERS),
        (LAYERS, LAYERS[:4], LAYERS[:4]),
        (LAYERS, LAYERS[:4]),
    ],
    ids=["merged", "average ends", "average begins", "compiled", "tied", "again", "one before"],
)
def test_a_run_may_change_its_tensors(tmp_path: Path, names: tuple[list[str], ...]) -> None:
    assert judged(tmp_path, *names).faults == ()


def test_files_of_torch_are_compared(tmp_path: Path) -> None:
    for step in (1, 2, 3):
        (tmp_path / f"step-{step}").mkdir()
        held = LAYERS[:4] if step == 3 else LAYERS
        torch.save({"model": {name: torch.full((2,), step) for name in held}}, tmp_path / f"step-{step}/model.pt")
    assert any("it has 4 of the 8 tensors" in words for words in next(judged_newest_first(tmp_path)).faults)


def test_other_sizes_are_noted(tmp_path: Path) -> None:
    for step in (1, 2, 3):
        build(tmp_path, f"step-{step}/model.safetensors  safetensors a=F32[{2 if step == 3 else 1}]\n")
    found = next(judged_newest_first(tmp_path))
    assert found.faults == ()
    assert any("tensor 'a' has 8 bytes of F32, and in step-2 4 bytes of F32" in note for note in found.notes)


@pytest.mark.parametrize(("ranks", "is_whole"), [((0, 3), False), ((0, 1), True), ((0, 1, 2, 3), True)])
def test_random_states_of_ranks_before_the_last_are_expected(
    tmp_path: Path, ranks: tuple[int, ...], *, is_whole: bool
) -> None:
    names = ("rng_state_0.pth", "rng_state_1.pth", "rng_state_2.pth", "rng_state_3.pth")
    for step, held in ((10, (0, 1, 2, 3)), (20, ranks)):
        directory = tmp_path / f"checkpoint-{step}"
        build(tmp_path, f"checkpoint-{step}/model.safetensors  safetensors a=F32[{step}]\n")
        for name in ("optimizer.pt", "scheduler.pt", *(names[rank] for rank in held)):
            torch.save({"name": name, "value": torch.full((3,), step)}, directory / name)
        (directory / "trainer_state.json").write_text(f'{{"global_step": {step}}}')
    found = next(judged_newest_first(tmp_path))
    assert (found.faults == ()) == is_whole, found
    assert is_whole or "rng_state_1.pth is missing, which checkpoint-10 has" in found.faults[0]
