"""CONTRIBUTING.md names what exists, and its table of rooms is that of the import contracts."""

from __future__ import annotations

import ast
import importlib
import re
import tomllib
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
PACKAGE = "trainspec_validate"
TEXT = (ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8")
FENCES = re.findall(r"^ *```(\w+)\n(.*?)^ *```$", TEXT, re.MULTILINE | re.DOTALL)
PROSE = re.sub(r"^ *`{3,}[^`\n]*\n.*?^ *`{3,}$", "", TEXT, flags=re.MULTILINE | re.DOTALL)
SPANS = sorted(set(re.findall(r"(?<!`)`([^`\n]+)`(?!`)", PROSE)))
RECIPES = {
    *("Requirement", "Document rule", "Stream check", "Importer", "Stream format", "Checkpoint format", "Metric"),
    *("Scenario", "Adapter", "Accelerator"),
}
MADE = {"site/", ".venv", "dist/"}
"""Directories that make writes."""


def fences(language: str) -> list[str]:
    return [body for found, body in FENCES if found == language]


def contracts() -> list[dict[str, object]]:
    settings = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    return list(settings["tool"]["importlinter"]["contracts"])


def permitted() -> dict[str, set[str]]:
    """Each room with the rooms that the contracts let it import."""
    layers = next(one["layers"] for one in contracts() if one["type"] == "layers")
    assert isinstance(layers, list)
    levels = [[room.strip() for room in level.split("|")] for level in layers]
    found: dict[str, set[str]] = {}
    for position, level in enumerate(levels):
        below = {room for other in levels[position + 1 :] for room in other}
        found |= {room: {name for name in below if not name.startswith("_")} for room in level}
    for one in contracts():
        if one["type"] == "forbidden":
            sources, targets = one["source_modules"], one["forbidden_modules"]
            assert isinstance(sources, list)
            assert isinstance(targets, list)
            for source in [source for source in sources if source.startswith(f"{PACKAGE}.")]:
                found[source.split(".")[1]] -= {target.split(".")[1] for target in targets}
    return {room: names for room, names in found.items() if not room.startswith("_")}


def exists(path: str) -> bool:
    return any((base / path).exists() for base in (ROOT, ROOT / "src" / PACKAGE))


def resolves(name: str) -> bool:
    """Whether a dotted name is a module of the package, or an attribute of one."""
    parts = name.split(".")
    for cut in range(len(parts), 0, -1):
        try:
            found: object = importlib.import_module(".".join([PACKAGE, *parts[:cut]]))
        except ModuleNotFoundError:
            continue
        for part in parts[cut:]:
            if not hasattr(found, part):
                return False
            found = getattr(found, part)
        return True
    return False


def test_the_table_of_rooms_is_that_of_the_contracts() -> None:
    rows = re.findall(r"^\| `(\w+)/` \| [^|]+ \|([^|]*)\|$", TEXT, re.MULTILINE)
    listed = {room: {name.strip() for name in names.split(",") if name.strip()} for room, names in rows}
    del listed["src"], listed["record"], listed["reference"], listed["conformance"]
    assert listed == permitted()


def test_every_distribution_is_listed() -> None:
    rows = dict(re.findall(r"^\| `(\w+)/` \| (trainspec-\w+)", TEXT, re.MULTILINE))
    projects = [ROOT / "pyproject.toml", *sorted(ROOT.glob("*/pyproject.toml"))]
    names = {tomllib.loads(path.read_text(encoding="utf-8"))["project"]["name"] for path in projects}
    assert set(rows.values()) == names
    assert all((ROOT / folder).is_dir() for folder in rows)


def test_every_recipe_is_there_with_its_files_and_its_command() -> None:
    chapter = TEXT.split("\n## Recipes\n")[1].split("\n## ")[0]
    recipes = dict(re.findall(r"^### ([A-Z][a-z ]+)\n(.*?)(?=^### |\Z)", chapter, re.MULTILINE | re.DOTALL))
    assert set(recipes) == RECIPES
    whole = {name: text for name, text in recipes.items() if name != "Requirement"}
    assert not [name for name, text in whole.items() if "\n1. " not in text or "```sh" not in text]


def test_every_path_exists() -> None:
    paths = [span for span in SPANS if "/" in span and " " not in span and "NAME" not in span and span not in MADE]
    paths += [word for body in fences("mermaid") for word in re.findall(r"\w+/[\w/.]*", body)]
    assert len(paths) > 50
    assert not [path for path in paths if not exists(path.replace("NN-name", "01-documents"))]


def test_labels_of_the_picture_are_quoted() -> None:
    """A slash before a bracket is a shape of its own in Mermaid, and ends the picture on GitHub."""
    [picture] = fences("mermaid")
    assert picture.count("[") == len(re.findall(r'\w\["[^"\]]+"\]', picture)) > 8


def test_every_template_has_neighbours() -> None:
    """A path with NAME is one of a folder in which other files of that kind are."""
    patterns = [span.replace("NAME", "*") for span in SPANS if "/" in span and "NAME" in span]
    assert patterns
    assert not [one for one in patterns if not any(any(base.glob(one)) for base in (ROOT, ROOT / "src" / PACKAGE))]


def test_every_dotted_name_can_be_imported() -> None:
    names = [span for span in SPANS if re.fullmatch(r"[a-z_]+(\.\w+)+", span) and not exists(span)]
    names = [name for name in names if name != "tool.importlinter" and not name.endswith((".yaml", ".jsonl"))]
    assert len(names) > 5
    assert not [name for name in names if not resolves(name)]


@pytest.mark.parametrize("code", fences("python"))
def test_every_example_runs_up_to_its_registration(code: str) -> None:
    """Its imports are those of the package, and its decorator is one that registers."""
    tree = ast.parse("\n".join(line.removeprefix("   ") for line in code.splitlines()))
    for statement in tree.body:
        if isinstance(statement, ast.ImportFrom) and statement.module:
            module = importlib.import_module(statement.module)
            assert not [alias.name for alias in statement.names if not hasattr(module, alias.name)]
    [function] = [node for node in tree.body if isinstance(node, ast.FunctionDef)]
    assert function.decorator_list


def test_every_command_names_what_is_there() -> None:
    targets = set(re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(encoding="utf-8"), re.MULTILINE))
    text = "\n".join([*fences("sh"), *SPANS])
    assert set(re.findall(r"\bmake ([a-z-]+)", text)) <= targets
    paths = re.findall(r"\b((?:tests|conformance|tools)/[\w/.-]+)", "\n".join(fences("sh")))
    assert len(paths) > 15
    assert not [path for path in paths if "NAME" not in path and not exists(path)]


def test_each_reader_of_checkpoints_is_in_the_table() -> None:
    from trainspec_validate.checkpoints.format_table import FORMATS

    folder = ROOT / "src" / PACKAGE / "checkpoints" / "formats"
    modules = {path.stem for path in folder.glob("*.py") if not path.stem.startswith("_")}
    assert {entry.module for entry in FORMATS} == modules
