"""Holds what a lint can hold of the project's language: docstrings of modules, and words that mean something else."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml

from tests.every import every
from trainspec_validate.model.requirements import load_index

ROOT = Path(__file__).resolve().parents[1]
FOLDERS = ("benchmarks", "conformance", "integrations", "record", "reference", "src", "tests", "tools")
HELD = ("benchmarks", "conformance", "integrations", "record", "reference", "src", "tools")
"""Folders whose public docstrings and messages use the terms of the field."""
FIGURATIVE = re.compile(
    r"\b(stands?|standing|stood|owe[sd]?|owing|tells?|telling|told|mend(s|ed|ing)?|beside|want of|lies?|lying"
    r"|com(e|es|ing) back|came back|go(es)? on|going on|went on|honest(ly)?|hopes?|nobody|talk(s|ed|ing)?"
    r"|is no pass)\b(?!-)",
    re.IGNORECASE,
)
"""Words for which the field has its own terms: appear, require, report, fix, next to, be, recover, continue."""
CLAUSE = re.compile(r"(?:^|[.!?;:]\s+)(?:What|Who|Whoever|Whatever|Whichever)\b(?![^.!?]*\?)")
"""A sentence that begins with a relative clause where the noun is needed; questions are left."""
HEADING = re.compile(r"#+ (?:\d+\. )?(?P<words>(?:What|Who|Whoever|Whatever|Whichever)\b[^?]*)$")
PAGES = [
    *(ROOT / name for name in ("README.md", "SECURITY.md")),
    *(ROOT / "conformance" / name for name in ("README.md", "mutants/deceptions.md", "results/README.md")),
    *(page for folder in ("changes", "integrations", "reference", "spec") for page in (ROOT / folder).rglob("*.md")),
]


def prose(page: Path) -> Iterator[str]:
    """Lines of a page without code, targets of links and facts of headings; each starts with its number."""
    for number, line in enumerate(page.read_text(encoding="utf-8").splitlines(), start=1):
        yield f"{number}: " + re.sub(r"`[^`]*`|\]\([^)]*\)|\{#TS-[^}]*\}", " ", line)


def messages(tree: ast.Module) -> Iterator[tuple[int, str]]:
    """Texts of a module with their lines; of docstrings only those of commands, which are their help."""
    docstrings = {
        id(statement.value)
        for node in ast.walk(tree)
        if not any("command" in ast.unparse(decorator) for decorator in getattr(node, "decorator_list", ()))
        for statement in (getattr(node, "body", None) if isinstance(getattr(node, "body", None), list) else ())
        if isinstance(statement, ast.Expr)
    }
    for node in ast.walk(tree):
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and id(node) not in docstrings:
            yield node.lineno, node.value


def public_docstrings(tree: ast.AST, is_public: bool = True) -> Iterator[ast.Constant]:
    """Docstrings of public modules, classes, functions and attributes; a private name hides those inside it."""
    before: ast.stmt | None = None
    for statement in getattr(tree, "body", ()):
        if isinstance(statement, ast.Expr) and isinstance(statement.value, ast.Constant):
            target = before.target if isinstance(before, ast.AnnAssign) else getattr(before, "targets", [None])[0]
            if is_public and not (isinstance(target, ast.Name) and target.id.startswith("_")):
                yield statement.value
        elif isinstance(statement, ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
            yield from public_docstrings(statement, is_public and not statement.name.startswith("_"))
        before = statement


def docstring_faults(text: str) -> list[str]:
    """Lines of public docstrings with words that mean something else; code in them is left out."""
    return [
        f"{node.lineno + number}: {line.strip()}"
        for node in public_docstrings(ast.parse(text))
        for number, line in enumerate(str(node.value).splitlines())
        if not line.strip().startswith((">>>", "...")) and FIGURATIVE.search(re.sub(r"`[^`]*`", " ", line))
    ]


@pytest.mark.parametrize("folder", HELD)
def test_public_docstrings_name_their_subjects(folder: str) -> None:
    found = [
        f"{path.relative_to(ROOT)}:{node.lineno}: {node.value}"
        for path in sorted((ROOT / folder).rglob("*.py"))
        for node in public_docstrings(ast.parse(path.read_text(encoding="utf-8")))
        if CLAUSE.search(" ".join(str(node.value).split()))
    ]
    assert found == []


@pytest.mark.parametrize("folder", HELD)
def test_public_docstrings_use_the_terms_of_the_field(folder: str) -> None:
    found = {str(path): docstring_faults(path.read_text(encoding="utf-8")) for path in (ROOT / folder).rglob("*.py")}
    assert found
    assert {path: faults for path, faults in found.items() if faults} == {}


def test_words_are_found_in_docstrings_of_public_names_alone() -> None:
    source = (
        'class Run:\n    """Where it stands."""\n    rate: int\n    """As `told` by a launcher."""\n    _last: int\n'
        '    """What is told."""\n    def end(self):\n        """Ends.\n\n        >>> told = 1\n        It is told.\n'
        '        """\ndef _help():\n    """Tells nothing."""\n'
    )
    assert docstring_faults(source) == ["2: Where it stands.", "11: It is told."]


ONLY_PLACE = re.compile(r'(?:\s|#[^\n]*\n)*r?"{3}\s*the only place', re.IGNORECASE)
"""The docstring of a module, where it begins with these words."""


@pytest.mark.parametrize("folder", FOLDERS)
def test_module_docstrings_say_what_the_module_does(folder: str) -> None:
    modules = sorted((ROOT / folder).rglob("*.py"))
    assert modules
    assert [str(path) for path in modules if ONLY_PLACE.match(path.read_text(encoding="utf-8"))] == []


@pytest.mark.parametrize(
    "source", ['"""The only place that\n"""', 'r"""\nThe only place"""', '# a\n\n"""the only place."""']
)
def test_a_docstring_that_says_where_it_is_is_found(source: str) -> None:
    assert ONLY_PLACE.match(source)
    assert not ONLY_PLACE.match(source.replace("only", "best"))


@every("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_pages_use_the_terms_of_the_field(page: Path) -> None:
    assert [line for line in prose(page) if FIGURATIVE.search(line)] == []


@every("page", [*PAGES, ROOT / "CONTRIBUTING.md", ROOT / "GOVERNANCE.md"], ids=lambda page: str(page.relative_to(ROOT)))
def test_headings_name_their_topic(page: Path) -> None:
    assert [line for line in page.read_text(encoding="utf-8").splitlines() if HEADING.match(line)] == []


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("Read a file. What it lacks does not count.", True),
        ("Whoever reads it pays", True),
        ("Say what it lacks.", False),
        ("What went wrong? Look here.", False),
    ],
)
def test_clauses_in_place_of_a_subject_are_found(text: str, found: bool) -> None:
    assert bool(CLAUSE.search(text)) is found
    assert bool(HEADING.match(f"## {text.rsplit('. ', maxsplit=1)[-1]}")) is found


def test_requirements_name_their_subjects() -> None:
    entries = load_index().by_id.values()
    assert entries
    assert [i.id for i in entries for text in (i.title, i.statement, i.details) if CLAUSE.search(text)] == []


@pytest.mark.slow
def test_messages_name_their_subjects() -> None:
    found = [
        f"{path.relative_to(ROOT)}:{line}: {text}"
        for folder in HELD
        for path in sorted((ROOT / folder).rglob("*.py"))
        for line, text in messages(ast.parse(path.read_text(encoding="utf-8")))
        if " " in text and CLAUSE.search(" ".join(text.split()))
    ]
    assert found == []


@pytest.mark.slow
def test_messages_use_the_terms_of_the_field() -> None:
    found = [
        f"{path.relative_to(ROOT)}:{line}: {text}"
        for folder in HELD
        for path in sorted((ROOT / folder).rglob("*.py"))
        for line, text in messages(ast.parse(path.read_text(encoding="utf-8")))
        if " " in text and FIGURATIVE.search(text)
    ]
    assert found == []


@every(
    "scenario", sorted((ROOT / "conformance" / "scenarios").glob("*/scenario.yaml")), ids=lambda path: path.parent.name
)
def test_scenarios_use_the_terms_of_the_field(scenario: Path) -> None:
    document = yaml.safe_load(scenario.read_text(encoding="utf-8"))
    texts = [document["metadata"]["description"], document.get("notes", "")]
    assert [text for text in texts if FIGURATIVE.search(text) or CLAUSE.search(text)] == []


@pytest.mark.parametrize("text", ["two tiers lie apart", "a name stands twice", "it is told once", "the job goes on"])
def test_figurative_words_are_found(text: str) -> None:
    assert FIGURATIVE.search(text)


@pytest.mark.parametrize("text", ["a stand-in for the driver", "client", "the standard output", "an intolerable delay"])
def test_similar_words_are_left(text: str) -> None:
    assert not FIGURATIVE.search(text)
