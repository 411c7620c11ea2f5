"""A sound input of each format that the fixtures do not hold: texts of the tests, and checkpoints made by hand."""

from __future__ import annotations

import ast
import json
import tempfile
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Final

from tests.bundles_made import bundle, pointer, training
from tests.stores_made import store
from tests.trees import build

Files = dict[str, bytes]
_INTEROP: Final = Path(__file__).resolve().parents[1] / "interop"
_FEWEST_LETTERS: Final = 200
_ADAPTER: Final = {
    "peft_type": "LORA",
    "task_type": "CAUSAL_LM",
    "r": 8,
    "lora_alpha": 16,
    "target_modules": ["q_proj"],
}
_STATE: Final = "mp_rank_00_model_states.pt  torch module=F32[4] global_steps:60 dp_world_size:2 mp_world_size:1\n"
_OPTIMIZER: Final = "bf16_zero_pp_rank_{}_mp_rank_00_optim_states.pt  torch fp32=F32[4]\n"
_SAVED: Final = {"item_handlers": {"default": "x"}, "init_timestamp_nsecs": 5, "commit_timestamp_nsecs": 9}
_KEYS: Final = [{"key": "b", "key_type": 2}, {"key": "c", "key_type": 2}]
_ENTRY: Final = {"key_metadata": _KEYS, "value_metadata": {"value_type": "jax.Array", "write_shape": [4, 3]}}
_ARRAY: Final = {
    "zarr_format": 2,
    "dtype": "<i4",
    "compressor": None,
    "fill_value": None,
    "order": "C",
    "filters": None,
}


@cache
def texts() -> tuple[Files, ...]:
    """Configurations that the tests of readers hold as a text of their own."""
    found = [{"adapter_config.json": json.dumps(_ADAPTER).encode()}]
    for path in sorted(_INTEROP.glob("test_*.py")):
        for node in ast.parse(path.read_bytes()).body:
            value = node.value if isinstance(node, ast.Assign) else None
            if isinstance(value, ast.Constant) and isinstance(value.value, str) and len(value.value) > _FEWEST_LETTERS:
                found.append({f"{path.stem}.yaml": value.value.encode()})
    return tuple(found)


@cache
def checkpoints() -> tuple[Files, ...]:
    """Checkpoints whose formats the examples of the specification do not show."""
    made = (
        _bundles,
        _series,
        _deepspeed,
        lambda place: _orbax(place, new=True),
        lambda place: _orbax(place, new=False),
    )
    return tuple(_made(each) for each in made)


def _made(make: Callable[[Path], None]) -> Files:
    with tempfile.TemporaryDirectory() as directory:
        place = Path(directory)
        make(place)
        return {
            path.relative_to(place).as_posix(): path.read_bytes() for path in sorted(place.rglob("*")) if path.is_file()
        }


def _bundles(place: Path) -> None:
    for step in (10, 20):
        bundle(place, f"ckpt-{step}", training(step))
    pointer(place, "ckpt-10", "ckpt-20")


def _series(place: Path) -> None:
    build(place, "".join(f"step-{step}  dcp 2 weight=F32[4,3] bias=F32[4]\n" for step in (60, 120)))


def _deepspeed(place: Path) -> None:
    for step in (60, 120):
        for line in (_STATE, *(_OPTIMIZER.format(rank) for rank in (0, 1))):
            build(place, f"global_step{step}/{line.replace('60', str(step))}")
    build(place, "latest  text global_step120\n")


def _orbax(place: Path, *, new: bool) -> None:
    for step in (10, 20):
        tree = {"tree_metadata": {"('b', 'c')": _ENTRY}, "use_ocdbt": new, "use_zarr3": False}
        save = {"_CHECKPOINT_METADATA": _SAVED, "default/_METADATA": tree}
        array = {"default/b.c/.zarray": {**_ARRAY, "shape": [4, 3], "chunks": [2, 3]}}
        lines = [f"{step}/{name}  json {json.dumps(told)}" for name, told in {**save, **({} if new else array)}.items()]
        names = ["default/d/0a1b"] if new else ["default/b.c/0.0", "default/b.c/1.0"]
        build(place, "\n".join([*lines, *(f"{step}/{name}  text values" for name in names)]))
        if new:
            store(place / str(step) / "default")
