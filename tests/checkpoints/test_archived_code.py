"""Checkpoints with programs in their containers, which loaders run, are passed over."""

from __future__ import annotations

import io
import zipfile
from pathlib import Path

import pytest

from tests.checkpoints.test_functions import EVIL, newest, of_torch

torch = pytest.importorskip("torch")


class Scaled(torch.nn.Module):  # type: ignore[misc]
    def __init__(self) -> None:
        super().__init__()
        self.w = torch.nn.Parameter(torch.zeros(2))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x * self.w


def script() -> bytes:
    file = io.BytesIO()
    torch.jit.save(torch.jit.script(Scaled()), file)
    return file.getvalue()


def package() -> bytes:
    file = io.BytesIO()
    with torch.package.PackageExporter(file) as exporter:
        exporter.save_source_string("tools", "x = 1\n")
    return file.getvalue()


def container(*entries: tuple[str, bytes]) -> bytes:
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w") as held:
        for name, content in entries:
            held.writestr(name, content)
    return file.getvalue()


PROGRAMS = {
    "TorchScript": script,
    "torch.package": package,
    "library": lambda: container(("a/data/aotinductor/model/x.so", b"\x7fELF"), ("a/version", b"3")),
    "torch.export": lambda: container(("e/archive_format", b"pt2"), ("e/models/model.json", b"{}")),
    "container in one": lambda: container(("e/sample_inputs/model.pt", container(("a/data.pkl", EVIL)))),
}


@pytest.mark.parametrize("kind", PROGRAMS)
@pytest.mark.parametrize("name", ["program.pt", "program.bin", "program.pt2", "program"])
def test_a_container_with_a_program_is_passed_over(kind: str, name: str, tmp_path: Path) -> None:
    for step in (10, 20):
        (tmp_path / f"step_{step}").mkdir()
        (tmp_path / f"step_{step}" / "model.pt").write_bytes(of_torch({"w": torch.rand(4)}))
    (tmp_path / "step_20" / name).write_bytes(PROGRAMS[kind]())
    result = newest(tmp_path)
    assert (result.exit_code, result.stdout) == (0, f"{tmp_path / 'step_10'}\n"), result.stderr
    assert f"{name}: loading it would run" in result.stderr


@pytest.mark.parametrize("kind", ["TorchScript", "torch.package"])
def test_a_program_in_place_of_a_state_is_passed_over(kind: str, tmp_path: Path) -> None:
    (tmp_path / "step_10").mkdir()
    (tmp_path / "step_10" / "model.pt").write_bytes(PROGRAMS[kind]())
    assert newest(tmp_path).exit_code == 1
    assert newest(tmp_path, "--code", "listed").exit_code == 1


def test_a_program_is_taken_where_that_is_asked(tmp_path: Path) -> None:
    (tmp_path / "step_10").mkdir()
    (tmp_path / "step_10" / "model.pt").write_bytes(script())
    result = newest(tmp_path, "--code", "any")
    assert (result.exit_code, result.stdout) == (0, f"{tmp_path / 'step_10'}\n"), result.stderr
