"""Reads the literal assignments of a Python file as settings; nothing of it is ever run."""

from __future__ import annotations

import ast
import re
from typing import Any

from trainspec_validate.interop.fragment import ForeignFormatError
from trainspec_validate.interop.readers._plan_parts import LARGEST

MAX_CHARACTERS = 256 * 1024
_MAX_NODES = 50_000
_MAX_DEPTH = 32
_MAX_PARTS = 8
_DEEP = re.compile(r"(?:(?:[-+~(\[{]|\b(?:not|lambda|await)\b:?)\s*+){40}")
"""Nested signs of which a parser would need a deep stack."""
_CHANGES_ALL = frozenset({"exec", "eval", "globals", "locals", "vars", "setattr"})
"""Functions with which code may set any name."""


class Reference(str):
    """The dotted name of what the file imports, such as `torch.float16`."""

    __slots__ = ()


def assignments(text: str) -> tuple[dict[str, Any], dict[str, int], bool]:
    r"""Names at the top with their literal values, their lines, and whether other files or code may change them.

    A mapping is a dict display or a call of `dict` with keywords. A name that code assigns otherwise, in a branch or
    several times, gets the text `${name}`, which is no value.

    >>> assignments("a = 2\nb = dict(c=a, d=torch.float16, e=f())\nif a:\n    g = 1\n")[0]
    {'a': 2, 'b': {'c': 2, 'd': 'torch.float16', 'e': '${code}'}, 'g': '${g}'}

    Raises:
        ForeignFormatError: it is no Python file, or grows beyond bounds.
    """
    if len(text) > MAX_CHARACTERS or _DEEP.search(text):
        raise ForeignFormatError(
            "the Python file is too large or nests too deeply", help="give the configuration alone"
        )
    try:
        tree = ast.parse(text)
    except (SyntaxError, ValueError, RecursionError, MemoryError) as error:
        line = getattr(error, "lineno", None)
        raise ForeignFormatError("the file is no Python that can be parsed", line) from None
    if sum(1 for _ in ast.walk(tree)) > _MAX_NODES:
        raise ForeignFormatError("the Python file holds too much", help="give the configuration alone")
    reader = _Reader()
    for node in tree.body:
        reader.step(node)
    return reader.values, reader.lines, reader.composed or "_base_" in reader.values


class _Reader:
    def __init__(self) -> None:
        self.values: dict[str, Any] = {}
        self.lines: dict[str, int] = {}
        self.composed = False

    def step(self, node: ast.stmt) -> None:
        """One statement at the top; everything but a plain assignment opens the names that it assigns."""
        match node:
            case ast.Assign(targets=[ast.Name(id=name)], value=value):
                self.values[name], self.lines[name] = self.value(value, 0), node.lineno
            case ast.AnnAssign(target=ast.Name(id=name), value=ast.expr() as value):
                self.values[name], self.lines[name] = self.value(value, 0), node.lineno
            case ast.AugAssign(target=ast.Name(id=name), op=ast.Mult(), value=value):
                self.values[name] = self.product(self.values.get(name), self.value(value, 0))
            case ast.With():
                self.composed = True
            case ast.ImportFrom(names=[ast.alias(name="*")]):
                self.composed = True
            case ast.Import() | ast.ImportFrom() | ast.Expr(value=ast.Constant()):
                pass
            case _:
                self.open(node)

    def open(self, node: ast.stmt) -> None:
        """Open every name that is assigned, changed or deleted somewhere below a statement."""
        for inner in ast.walk(node):
            if isinstance(inner, ast.Name) and inner.id in _CHANGES_ALL:
                self.composed = True
            names = [inner] if isinstance(inner, ast.Name) and not isinstance(inner.ctx, ast.Load) else []
            if isinstance(inner, ast.Attribute | ast.Subscript) and not isinstance(inner.ctx, ast.Load):
                names += [each for each in ast.walk(inner) if isinstance(each, ast.Name)]
            if isinstance(inner, ast.Call) and isinstance(inner.func, ast.Attribute):  # a method may change its object
                names += [each for each in ast.walk(inner.func) if isinstance(each, ast.Name)]
            for found in names:
                self.values[found.id] = f"${{{found.id}}}"

    def value(self, node: ast.expr, depth: int) -> Any:
        """The value of an expression, where it is a literal; a text that no reader takes for one otherwise."""
        if depth > _MAX_DEPTH:
            return "${code}"
        match node:
            case ast.Constant(value=bool() | int() | float() | str() | None as plain):
                return plain
            case ast.Name(id=name):
                return self.values.get(name, Reference(name))
            case ast.Attribute():
                return self.dotted(node)
            case ast.UnaryOp(op=ast.USub(), operand=operand):
                return self.product(-1, self.value(operand, depth + 1))
            case ast.BinOp(left=left, op=ast.Mult(), right=right):
                return self.product(self.value(left, depth + 1), self.value(right, depth + 1))
            case ast.List(elts=elements) | ast.Tuple(elts=elements):
                return [self.value(each, depth + 1) for each in elements]
            case ast.Call(func=ast.Name(id="dict"), args=[], keywords=keywords):
                return self.mapping([(word.arg, word.value) for word in keywords], depth)
            case ast.Dict(keys=keys, values=values):
                named = [key.value if isinstance(key, ast.Constant) else None for key in keys]
                return self.mapping(list(zip(named, values, strict=True)), depth)
        return "${code}"

    def mapping(self, pairs: list[tuple[Any, ast.expr]], depth: int) -> Any:
        """A mapping of names to values; code that unpacks another one or computes a key leaves it open."""
        if not all(isinstance(key, str) for key, _ in pairs):
            return "${code}"
        return {key: self.value(value, depth + 1) for key, value in pairs}

    @staticmethod
    def dotted(node: ast.expr) -> str:
        """The dotted name that attributes spell; code where they are those of a value, or more than a few."""
        parts: list[str] = []
        while isinstance(node, ast.Attribute) and len(parts) < _MAX_PARTS:
            parts.append(node.attr)
            node = node.value
        return Reference(".".join([node.id, *reversed(parts)])) if isinstance(node, ast.Name) else "${code}"

    @staticmethod
    def product(one: Any, other: Any) -> Any:
        plain = all(isinstance(part, int | float) and not isinstance(part, bool) for part in (one, other))
        if plain and abs(one) <= LARGEST and abs(other) <= LARGEST:
            return one * other
        return "${code}"
