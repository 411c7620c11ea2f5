"""Files of safetensors that end in zeros from a page on are refused, and those of training are not."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from click.testing import CliRunner

from trainspec_record.checkpoints import seal_in_background
from trainspec_validate.cli.toolbox import command as toolbox

PAGE_BYTES = 4096


def write(path: Path, tensors: dict[str, tuple[str, list[int], bytes]], *, data_begin: int = 1000) -> None:
    """A file whose values begin at a byte, for tensors with type, shape and values."""
    place, entries = 0, {}
    for name, (dtype, shape, values) in tensors.items():
        entries[name] = {"dtype": dtype, "shape": shape, "data_offsets": [place, place + len(values)]}
        place += len(values)
    header = json.dumps(entries).encode().ljust(data_begin - 8)
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(len(header).to_bytes(8, "little") + header + b"".join(values for _, _, values in tensors.values()))


def zero_from(path: Path, place: int) -> None:
    content = path.read_bytes()
    path.write_bytes(content[:place] + bytes(len(content) - place))


def newest(root: Path) -> tuple[str, str]:
    found = CliRunner().invoke(toolbox, ["checkpoint", "newest-good", str(root)])
    return found.stdout.strip().rpartition("/")[2], found.stderr


def series(root: Path) -> Path:
    """Two saves of a matrix and a bias, and the file of the newer one."""
    for step in (10, 20):
        values = bytes(range(1, 251)) * 160  # 10,000 values in 100 rows
        write(root / f"step-{step}/model.safetensors", {"w": ("F32", [100, 100], values), "b": ("F32", [4], bytes(16))})
    return root / "step-20/model.safetensors"


@pytest.mark.parametrize("place", [1 * PAGE_BYTES, 5 * PAGE_BYTES, 9 * PAGE_BYTES])
def test_an_end_that_was_not_written_is_refused(place: int, tmp_path: Path) -> None:
    zero_from(series(tmp_path), place)
    name, told = newest(tmp_path)
    assert name == "step-10"
    assert "bytes are zero, from within a row of tensor 'w' and a page on: the end was not written" in told


def test_a_digest_takes_the_place_of_a_guess(tmp_path: Path) -> None:
    path = series(tmp_path)
    zero_from(path, 5 * PAGE_BYTES)
    assert seal_in_background(path.parent).wait(600)
    assert newest(tmp_path)[0] == "step-20"


@pytest.mark.parametrize(
    ("place", "why"),
    [
        (41_000, "a bias"),
        (1000 + 90 * 400, "rows of tokens that do not occur"),
        (5 * PAGE_BYTES + 100, "no page begins there"),
        (5 * PAGE_BYTES - 8, "the last values before the page are zero too"),
    ],
)
def test_zeros_of_training_are_taken(place: int, why: str, tmp_path: Path) -> None:
    zero_from(series(tmp_path), place)
    assert newest(tmp_path)[0] == "step-20", why


@pytest.mark.parametrize(
    ("dtype", "shape", "num_zeros"),
    [
        ("F32", [10, 1024], 5),  # rows as long as a page
        ("U8", [40_960], 3),  # quantised
        ("BOOL", [10, 4096], 3),  # a mask
    ],
)
def test_zeros_from_a_page_on_may_be_of_training(dtype: str, shape: list[int], num_zeros: int, tmp_path: Path) -> None:
    for step in (10, 20):
        values = b"\1" * (PAGE_BYTES * (10 - num_zeros)) + bytes(PAGE_BYTES * num_zeros)
        write(tmp_path / f"step-{step}/model.safetensors", {"w": (dtype, shape, values)}, data_begin=PAGE_BYTES)
    assert newest(tmp_path)[0] == "step-20"


def test_a_file_of_zeros_alone_is_a_state_before_training(tmp_path: Path) -> None:
    path = tmp_path / "step-20/model.safetensors"
    write(path, {"w": ("F32", [100, 100], bytes(40_000))})
    assert newest(tmp_path)[0] == "step-20"
