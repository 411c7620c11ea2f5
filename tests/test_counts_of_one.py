"""Messages about logs of collectives, of the recorder and of the suite count one thing as one: `1 rank`."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from trainspec_validate.model.units import counted

ROOT = Path(__file__).resolve().parents[1]
PLACES = (
    *sorted((ROOT / "src/trainspec_validate/interop/readers").glob("*collective*.py")),
    *sorted((ROOT / "record/trainspec_record").rglob("*.py")),
    *(
        path
        for path in sorted((ROOT / "conformance/trainspec_conformance").rglob("*.py"))
        if not {"testbed", "templates"}.intersection(path.parts)
    ),
)
NOUN = re.compile(
    r" (?:attempt|device|directorie|fault|file|host|losse|node|pair|processe|processor|rank|recoverie|row|sample|step"
    r"|trial|worker)s\b"
)
"""What a whole number counts; numbers with a format of their own and constants are more than one, or no counts."""


def bare_counts(tree: ast.AST) -> Iterator[tuple[int, str]]:
    """Line and text of formats in which a count is followed by a noun in the plural, whatever the count is."""
    for node in ast.walk(tree):
        if isinstance(node, ast.JoinedStr):
            for number, following in zip(node.values, node.values[1:], strict=False):
                text = following.value if isinstance(following, ast.Constant) else ""
                if isinstance(number, ast.FormattedValue) and NOUN.match(str(text)) and is_count(number):
                    yield node.lineno, ast.unparse(node)


def is_count(found: ast.FormattedValue) -> bool:
    spec = "" if found.format_spec is None else ast.unparse(found.format_spec)
    name = ast.unparse(found.value)
    return spec.strip("f'\"") in {"", ","} and name.lstrip("_") != name.upper().lstrip("_") and name[-1] != "]"


@pytest.mark.parametrize("path", PLACES, ids=lambda path: path.relative_to(ROOT).as_posix())
def test_a_count_and_its_noun_agree(path: Path) -> None:
    assert list(bare_counts(ast.parse(path.read_text(encoding="utf-8")))) == []


def test_a_bare_count_is_found() -> None:
    assert len(list(bare_counts(ast.parse('f"only {len(ranks)} ranks wrote"\nf"{n:,} steps"\nf"{MOST} nodes"')))) == 2


@pytest.mark.parametrize("amount", [0, 1, 2, 8192])
def test_a_verb_agrees_too(amount: int) -> None:
    wanted = "1 loss is" if amount == 1 else f"{amount:,} losses are"
    assert counted(amount, "loss", "are") == wanted
