"""A module of a library also has what it imports; a pickle names a class only where it is defined."""

from __future__ import annotations

import sys
import types
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.checkpoints.test_functions import held, newest
from tests.checkpoints.test_named_functions import name, text
from trainspec_validate.checkpoints.allowed import is_allowed
from trainspec_validate.checkpoints.functions import is_class, runs_by_name, runs_when_called
from trainspec_validate.checkpoints.libraries import CLASSES

torch = pytest.importorskip("torch")
LOADED = """torch.distributed._shard.checkpoint torch.distributed.checkpoint torch.distributed.fsdp
torch.distributed.tensor torch.distributed.optim torch.distributed.algorithms.join torch.ao.quantization.fx._equalize
torch.ao.ns._numeric_suite
torch.optim.swa_utils torch.nn.modules.linear torch.utils.data.dataloader torch.distributions torch.quantization
torch.cuda._memory_viz torch.jit numpy.random numpy.ma numpy.polynomial numpy.matrixlib numpy.dtypes"""
"""Modules in which classes that open, start and run things could be found under another name."""
FOUND_ELSEWHERE = [
    ("torch.utils.data.dataloader", "_IterDataPipeSerializationWrapper"),
    ("torch.ao.quantization.fx._equalize", "GraphModule"),
    ("torch.optim.swa_utils", "torch._C.PyTorchFileWriter"),
    ("torch.optim.optimizer", "torch._logging._internal.logging.FileHandler"),
    ("torch.distributed._shard.checkpoint._async_process_executor", "TCPStore"),
    ("torch.nn.modules.linear", "torch.cuda._memory_viz.subprocess.Popen"),
    ("torch.optim.optimizer", "torch.nn.modules.linear.Linear"),
    ("torch._tensor", "_C"),
    ("torch.nn", "modules.linear.Linear"),
    ("torch", "nn.functional.relu"),
    ("torch", "jit._pickle.build_intlist"),
]


def entries() -> Iterator[tuple[str, str, Any]]:
    """Everything under its name in each loaded module of PyTorch and NumPy."""
    for path in LOADED.split():
        __import__(path)
    for path, module in sorted(sys.modules.items()):
        if path.partition(".")[0] in {"torch", "numpy"} and isinstance(module, types.ModuleType):
            yield from ((path, own, value) for own, value in list(vars(module).items()))


def is_own(value: Any) -> bool:
    """Whether a class is listed under the name that it gives itself."""
    own = value.__module__, value.__qualname__
    return ":".join(own) in CLASSES or is_allowed(*own)


@pytest.mark.parametrize("judged", [runs_by_name, runs_when_called])
def test_no_class_is_taken_under_another_name(judged: Any) -> None:
    passed = {f"{path}:{own}": value for path, own, value in entries() if not judged(path, own)}
    assert len(passed) > 400
    assert [named for named, value in passed.items() if isinstance(value, types.ModuleType)] == []
    kinds = {named: value for named, value in passed.items() if is_class(named) and isinstance(value, type)}
    assert {named: value for named, value in kinds.items() if not is_own(value)} == {}
    assert [
        named for named, value in passed.items() if is_class(named) and callable(value) and named not in kinds
    ] == []


@pytest.mark.parametrize(("module", "own"), FOUND_ELSEWHERE)
def test_what_a_module_imports_is_none_of_its_classes(module: str, own: str, tmp_path: Path) -> None:
    assert runs_by_name(module, own)
    assert runs_when_called(module, own)
    held(tmp_path / "step-1", b"\x80\x04](" + text(module) + text(own) + b"\x93e.")
    result = newest(tmp_path)
    assert (result.exit_code, "loading it would run" in result.stderr) == (1, True), result.output


def test_a_class_that_is_not_listed_is_refused(tmp_path: Path) -> None:
    held(tmp_path / "step-1", b"\x80\x04](" + name("torch.nn.modules.linear.Later") + b"e.")
    assert newest(tmp_path).exit_code == 1
