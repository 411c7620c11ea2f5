"""Objects with named arguments of `__new__` are objects of their classes, and no calls of what a call returns."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.checkpoints.test_functions import newest, placed

torch = pytest.importorskip("torch")


class Named:
    """Has named arguments of `__new__`, which protocols before 4 write as a partial function."""

    def __getnewargs_ex__(self) -> tuple[tuple[()], dict[str, int]]:
        return (), {"size": 3}


NEW = b"cfunctools\npartial\n(cbuiltins\ngetattr\n(cbuiltins\nobject\nX\x07\x00\x00\x00__new__tRtR"


@pytest.mark.parametrize(
    ("state", "code"),
    [
        (b"(cbuiltins\ngetattr\n(cbuiltins\nobject\nX\x07\x00\x00\x00__new__tR(cmy.program\nSettings\ntNNtb", 0),
        (b"(cos\nsystem\n(X\x01\x00\x00\x00xtNNtb", 1),
        (b"(cmy.program\nstart\n(cmy.program\nSettings\ntNNtb", 1),
        (b"(cbuiltins\ngetattr\n(cos\n_wrap_close\nX\x07\x00\x00\x00__new__tR(cmy.program\nSettings\ntNNtb", 1),
        (b"(cbuiltins\ngetattr\n(cbuiltins\nobject\nX\x08\x00\x00\x00__init__tR(cmy.program\nSettings\ntNNtb", 1),
        (b"", 1),
    ],
)
def test_objects_with_named_arguments_of_new(state: bytes, code: int, tmp_path: Path) -> None:
    """GluonTS has such objects in checkpoints of Lightning."""
    content = b"\x80\x02}(X\x01\x00\x00\x00a" + NEW + state + b")Ru."
    (tmp_path / "step-1").mkdir()
    torch.save({"w": torch.zeros(2)}, tmp_path / "step-1" / "model.pt")
    (tmp_path / "step-1" / "extra.pkl").write_bytes(content)
    result = newest(tmp_path)
    assert result.exit_code == code, result.stderr


def test_what_python_writes_is_whole(tmp_path: Path) -> None:
    placed("my.named", Named)
    (tmp_path / "step-1").mkdir()
    torch.save({"w": torch.zeros(2), "a": Named()}, tmp_path / "step-1" / "model.pt")
    assert b"__new__" in (tmp_path / "step-1" / "model.pt").read_bytes()
    result = newest(tmp_path)
    assert result.exit_code == 0, result.stderr
