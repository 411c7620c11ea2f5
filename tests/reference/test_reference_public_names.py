"""Trainers and testbed use of PyTorch, JAX and their companions what these publish, and no private name."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

LIBRARIES = {"torch", "jax", "jaxlib", "optax", "orbax"}
DOCUMENTED = {"torch.utils._python_dispatch.TorchDispatchMode", "torch.utils._pytree.tree_leaves"}
"""Names of the testbed that PyTorch documents, or that have no public counterpart in each release that is supported."""
ROOT = Path(__file__).resolve().parents[2]
TRAINERS = sorted((ROOT / "reference").rglob("*.py"))
TESTBED = sorted((ROOT / "conformance" / "trainspec_conformance" / "testbed").rglob("*.py"))


def private_names(source: str) -> Iterator[str]:
    """Dotted names of these libraries with a part that is private, imported, loaded by name or used."""
    tree = ast.parse(source)
    known = {library: library for library in LIBRARIES}
    found = []
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            found += [alias.name for alias in node.names]
            known |= {alias.asname: alias.name for alias in node.names if alias.asname}
        elif isinstance(node, ast.ImportFrom) and node.module:
            found += [f"{node.module}.{alias.name}" for alias in node.names]
            known |= {alias.asname or alias.name: f"{node.module}.{alias.name}" for alias in node.names}
        elif isinstance(node, ast.Call) and ast.unparse(node.func).endswith("import_module"):
            found += [word.value for word in node.args if isinstance(word, ast.Constant)]
    for node in ast.walk(tree):
        if isinstance(node, ast.Attribute) and re.fullmatch(r"[\w.]+", ast.unparse(node)):
            first, _, rest = ast.unparse(node).partition(".")
            found.append(f"{known.get(first, '')}.{rest}")
    for name in found:
        first, *parts = name.split(".")
        if first in LIBRARIES and any(part.startswith("_") and not part.startswith("__") for part in parts):
            yield name


@pytest.mark.parametrize("path", [*TRAINERS, *TESTBED], ids=lambda path: path.relative_to(ROOT).as_posix())
def test_no_private_name_of_a_library_is_used(path: Path) -> None:
    found = set(private_names(path.read_text(encoding="utf-8")))
    assert found - (DOCUMENTED if path in TESTBED else set()) == set()


@pytest.mark.parametrize(
    "source",
    [
        "import torch\ntorch._foreach_div_([], 2.0)",
        "import torch.distributed as dist\ndist._reduce()",
        "from jax._src.distributed import global_state",
        "from torch.distributed import _functional_collectives",
        "from importlib import import_module\nimport_module('jaxlib._jax')",
    ],
)
def test_a_private_name_is_found(source: str) -> None:
    assert len(list(private_names(source))) == 1
