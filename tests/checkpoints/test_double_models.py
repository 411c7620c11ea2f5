"""A model that is there twice, in one file and in shards, is whole where both are the same."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.trees import build
from trainspec_validate.checkpoints.newest import judged_newest_first

torch = pytest.importorskip("torch")
NAMES = {
    "model.safetensors": ("model.safetensors.index.json", "model"),
    "text_encoder/model.fp16.safetensors": (
        "text_encoder/model.safetensors.index.fp16.json",
        "text_encoder/model.fp16",
    ),
    "model.fp16.safetensors": ("model.fp16.safetensors.index.json", "model.fp16"),
    "pytorch_model.bin": ("pytorch_model.bin.index.json", "pytorch_model"),
}


def write(path: Path, tensors: dict[str, float]) -> None:
    """A file with a tensor of 2,000 equal values for each name, none of which another name has."""
    tensors = {name: value + 100 * ord(name[0]) for name, value in tensors.items()}
    path.parent.mkdir(parents=True, exist_ok=True)
    if path.suffix == ".bin":
        torch.save({name: torch.full((2_000,), value) for name, value in tensors.items()}, path)
        return
    entries = {name: {"dtype": "F32", "shape": [2_000]} for name in tensors}
    for place, entry in enumerate(entries.values()):
        entry["data_offsets"] = [8_000 * place, 8_000 * (place + 1)]
    header = json.dumps(entries).encode()
    values = b"".join(torch.full((2_000,), value).numpy().tobytes() for value in tensors.values())
    path.write_bytes(len(header).to_bytes(8, "little") + header + values)


def checkpoint(root: Path, step: int, whole: str, values: dict[str, float] | None) -> None:
    """Shards of a step, and one file with other values next to them where they are given."""
    index, stem = NAMES[whole]
    shards = {name: f"{stem}-{place:05}-of-00002{Path(whole).suffix}" for place, name in ((1, "a"), (2, "b"))}
    for name, path in shards.items():
        write(root / path, {name: float(step)})
    weights = {name: Path(path).name for name, path in shards.items()}
    (root / index).write_text(json.dumps({"metadata": {}, "weight_map": weights}))
    if values is not None:
        write(root / whole, values)
    if "/" not in whole:
        files = "rng_state.pth  torch r=F32[4]\nscheduler.pt  torch s=F32[1]\noptimizer.pt  torch m=F32[8]\n"
        build(root, f'{files}trainer_state.json  json {{"global_step": {step}}}\n')


@pytest.mark.parametrize("whole", NAMES)
@pytest.mark.parametrize(
    ("values", "newest"),
    [
        (None, "20"),
        ({"a": 20.0, "b": 20.0}, "20"),
        ({"a": 10.0, "b": 10.0}, "10"),
        ({"a": 20.0, "b": 10.0}, "10"),
        ({"adapter": 3.0}, "20"),  # of other names
    ],
)
def test_values_that_differ_are_refused(
    values: dict[str, float] | None, newest: str, whole: str, tmp_path: Path
) -> None:
    checkpoint(tmp_path / "checkpoint-10", 10, whole, None)
    checkpoint(tmp_path / "checkpoint-20", 20, whole, values)
    found = list(judged_newest_first(tmp_path))
    assert next(Path(one.path).name for one in found if not one.faults) == f"checkpoint-{newest}", found
    assert newest == "20" or f"checkpoint-20/{whole}: " in found[0].faults[0]
