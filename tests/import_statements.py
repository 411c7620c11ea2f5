"""Finds the imports of a module, for tests of who may import what."""

from __future__ import annotations

import ast
from collections.abc import Iterator

Found = ast.Import | ast.ImportFrom
_BLOCKS = (ast.stmt, ast.excepthandler, ast.match_case)
"""Nodes that hold statements. Expressions, most of a tree, hold none."""


def import_statements(node: ast.AST, *, eager: bool = True) -> Iterator[tuple[Found, bool]]:
    """Every import below a node, and whether importing the module runs it."""
    for child in ast.iter_child_nodes(node):
        if isinstance(child, ast.Import | ast.ImportFrom):
            yield child, eager
        elif isinstance(child, _BLOCKS):
            lazy = isinstance(child, ast.FunctionDef | ast.AsyncFunctionDef) or is_type_checking(child)
            yield from import_statements(child, eager=eager and not lazy)


def is_type_checking(node: ast.AST) -> bool:
    """Whether a block is for type checkers alone."""
    return isinstance(node, ast.If) and ast.unparse(node.test).endswith("TYPE_CHECKING")
