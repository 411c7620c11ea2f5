"""Each distribution imports what it declares, and declares what it imports; all have one version, licence and lock."""

from __future__ import annotations

import ast
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from functools import cache
from importlib.metadata import packages_distributions
from pathlib import Path
from typing import Any

import own_distributions
import pytest
from hatchling.metadata.core import ProjectMetadata
from hatchling.plugin.manager import PluginManager
from own_distributions import FOLDERS, ROOT
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from tests.import_statements import import_statements
from trainspec_validate._version import SPECIFICATION_VERSION, __version__

VALIDATOR, RECORDER, REFERENCE, SUITE = FOLDERS
PACKAGES = {name: name.replace("-", "_") for name in FOLDERS}
STARTED: dict[str, set[str]] = {SUITE: set(), REFERENCE: set(), VALIDATOR: set(), RECORDER: set()}
"""Own distributions that one starts as a program and does not import."""
LOADED = {VALIDATOR: {"numba"}}
"""Libraries that are imported by a name in a text."""
INSTALLED = set(packages_distributions()) | set(PACKAGES.values())
FRAMEWORKS = {
    *("accelerate", "deepspeed", "flax", "jax", "keras", "lightning", "numpy", "orbax", "pytorch_lightning"),
    *("torch", "torchtitan", "transformers"),
}
"""What the adapters of the recorder run in; a training environment has it, and it is never asked for."""


@cache
def configuration(name: str) -> dict[str, Any]:
    return tomllib.loads((ROOT / FOLDERS[name] / "pyproject.toml").read_text(encoding="utf-8"))


def modules(name: str) -> list[Path]:
    places = (ROOT / "src" / PACKAGES[name], ROOT / FOLDERS[name] / PACKAGES[name])
    [folder] = [place for place in places if place.is_dir()]
    return sorted(folder.rglob("*.py"))


def imported(path: Path) -> Iterator[str]:
    """Top-level packages that a module imports, in functions too."""
    for node, _ in import_statements(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            yield from (alias.name.partition(".")[0] for alias in node.names)
        elif not node.level:
            yield str(node.module).partition(".")[0]


@cache
def foreign(name: str) -> set[str]:
    """Packages that a distribution imports and that are neither its own nor of the standard library."""
    found = {one for path in modules(name) for one in imported(path)} | LOADED.get(name, set())
    return found - {PACKAGES[name], *sys.stdlib_module_names}


def declared(name: str, *, extras: bool) -> set[str]:
    project = configuration(name)["project"]
    lists = [project["dependencies"], *(project.get("optional-dependencies", {}).values() if extras else ())]
    return {canonicalize_name(Requirement(text).name) for texts in lists for text in texts}


def providers(packages: set[str]) -> set[str]:
    """Distributions that hold packages."""
    own = {package: name for name, package in PACKAGES.items()}
    installed = packages_distributions()
    return {canonicalize_name(own.get(one) or installed.get(one, [one])[0]) for one in packages}


@pytest.mark.slow
@pytest.mark.parametrize("name", [VALIDATOR, REFERENCE, SUITE])
def test_what_is_imported_is_declared(name: str) -> None:
    assert providers(foreign(name)) - declared(name, extras=True) == set()


@pytest.mark.slow
@pytest.mark.parametrize("name", FOLDERS)
def test_what_is_declared_is_used(name: str) -> None:
    used = providers(foreign(name) & INSTALLED)
    assert declared(name, extras=False) - used - STARTED[name] == set()


def test_the_recorder_loads_nothing_of_a_training_environment() -> None:
    """Frameworks are installed here, and importing the recorder leaves them alone."""
    program = "import sys; before = {*sys.modules}; import trainspec_record; print(*{*sys.modules} - before)"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    loaded = {name.partition(".")[0] for name in done.stdout.split()}
    assert "trainspec_record" in loaded
    assert loaded - {"trainspec_record", *sys.stdlib_module_names} == set()


@pytest.mark.parametrize("name", FOLDERS)
def test_own_distributions_are_imported_as_declared(name: str) -> None:
    own = {one for one, package in PACKAGES.items() if package in foreign(name)}
    assert own == declared(name, extras=False) & set(FOLDERS) - STARTED[name]


def test_the_validator_and_the_recorder_know_no_other() -> None:
    """Neither by an import nor by a name in a text."""
    for name in (VALIDATOR, RECORDER):
        others = {package for one, package in PACKAGES.items() if one != name}
        texts = {path: path.read_text(encoding="utf-8") for path in modules(name)}
        assert [path for path, text in texts.items() if any(f'"{other}' in text for other in others)] == []


@pytest.mark.parametrize("name", FOLDERS)
def test_the_version_is_one(name: str) -> None:
    assert ProjectMetadata(str(ROOT / FOLDERS[name]), PluginManager()).version == __version__
    own = [Requirement(text) for text in configuration(name)["project"]["dependencies"]]
    assert all(str(one.specifier) == f"=={__version__}" for one in own if one.name in FOLDERS)


def test_the_recorder_carries_both_versions() -> None:
    from trainspec_record import _version

    assert (_version.__version__, _version.SPECIFICATION_VERSION) == (__version__, SPECIFICATION_VERSION)


def test_a_new_version_reaches_every_file(tmp_path: Path) -> None:
    projects = [f"{folder}/pyproject.toml" for folder in FOLDERS.values()]
    for path in (own_distributions.VERSION, "CITATION.cff", *projects):
        (tmp_path / path).parent.mkdir(parents=True, exist_ok=True)
        text = (ROOT / path).read_text(encoding="utf-8")
        (tmp_path / path).write_text(text.replace(f'__version__ = "{__version__}"', '__version__ = "7.8.9"'))
    found = own_distributions.versioned_files(tmp_path)
    assert '__version__ = "7.8.9"' in found[own_distributions.RECORDER_VERSION]
    assert "\nversion: 7.8.9\n" in found["CITATION.cff"]
    for name in (REFERENCE, SUITE):
        texts = tomllib.loads(found[f"{FOLDERS[name]}/pyproject.toml"])["project"]["dependencies"]
        pins = [str(one.specifier) for one in map(Requirement, texts) if one.name in FOLDERS]
        assert pins
        assert set(pins) == {"==7.8.9"}


@pytest.mark.parametrize("name", FOLDERS)
def test_the_projects_agree(name: str) -> None:
    first, other = configuration(VALIDATOR)["project"], configuration(name)["project"]
    for key in ("requires-python", "license", "license-files", "authors"):
        assert other[key] == first[key]
    assert configuration(name)["build-system"] == configuration(VALIDATOR)["build-system"]
    pythons = [[line for line in one["classifiers"] if ":: Python ::" in line] for one in (first, other)]
    assert pythons[0] == pythons[1]
    assert (ROOT / FOLDERS[name] / "LICENSE").read_bytes() == (ROOT / "LICENSE").read_bytes()


@pytest.mark.parametrize("name", FOLDERS)
def test_the_lock_of_development_holds_what_each_needs(name: str) -> None:
    lock = (ROOT / "requirements" / "dev.txt").read_text(encoding="utf-8")
    pins = dict(line.split()[0].split("==") for line in lock.splitlines() if "==" in line and line[0].isalnum())
    project = configuration(name)["project"]
    extras = project.get("optional-dependencies", {})
    own = [text for key in extras.keys() - {"dev", "dist", "docs", "mcp", "stacks"} for text in extras[key]]
    for one in map(Requirement, [*project["dependencies"], *own]):
        if one.name not in {*FOLDERS, "torch"}:
            assert one.specifier.contains(pins[canonicalize_name(one.name)]), one
