"""The wheel: what is in it, that two builds are one, and that it works alone, without source tree and network."""

from __future__ import annotations

import json
import os
import shutil
import socket
import subprocess
import sys
import tarfile
import tomllib
import zipfile
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from importlib.metadata import PackagePath, distribution
from pathlib import Path

import pytest
from packaging.metadata import Metadata
from packaging.requirements import Requirement

ROOT = Path(__file__).resolve().parents[1]
PACKAGE = "trainspec_validate"
RECORDER = "trainspec_record"
PACKAGES = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["tool"]["hatch"]["build"]["targets"]["wheel"][
    "packages"
]
NAMES = ["cluster-profile", "training-plan", "checkpoint-policy", "waivers"]
NOT_COPIED = shutil.ignore_patterns(
    ".*_cache", ".venv*", ".git", ".hypothesis", "build", ".benchmarks", "__pycache__", "dist", "site", ".cache"
)
NO_NETWORK = """
import socket
def refuse(*_, **__):
    raise OSError("this test allows no network")
socket.socket = socket.create_connection = socket.getaddrinfo = refuse
"""
pytestmark = pytest.mark.slow


def environment(**more: str) -> dict[str, str]:
    """Nothing of ours: no PYTHONPATH, no settings, no CI."""
    return {"PATH": os.environ["PATH"], "LANG": "C.UTF-8", "HOME": os.environ.get("HOME", "/")} | more


@cache
def alone() -> list[str]:
    """What to put before a command so that it has no network; empty where that is not permitted."""
    prefix = ["unshare", "--map-root-user", "--net"]
    if not shutil.which(prefix[0]):
        return []
    return prefix if subprocess.run([*prefix, "true"], capture_output=True, check=False).returncode == 0 else []


@pytest.fixture(scope="module")
def tree(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """One state of the repository, whoever works on it meanwhile."""
    copied = tmp_path_factory.mktemp("tree") / "tree"
    shutil.copytree(ROOT, copied, ignore=NOT_COPIED)
    return copied


def build(tree: Path, tmp: Path, kind: str) -> Path:
    source = tmp / "source"
    shutil.copytree(tree, source)
    command = [
        *alone(),
        sys.executable,
        "-m",
        "build",
        f"--{kind}",
        "--no-isolation",
        "--outdir",
        str(tmp),
        str(source),
    ]
    done = subprocess.run(command, env=environment(SOURCE_DATE_EPOCH="1700000000"), capture_output=True, check=False)
    assert done.returncode == 0, done.stdout.decode() + done.stderr.decode()
    [built] = [path for path in tmp.iterdir() if path.is_file()]
    return built


@pytest.fixture(scope="module")
def wheel(tree: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return build(tree, tmp_path_factory.mktemp("wheel"), "wheel")


def test_contents(tree: Path, wheel: Path) -> None:
    with zipfile.ZipFile(wheel) as archive:
        names = archive.namelist()
        entry_points = next(name for name in names if name.endswith("entry_points.txt"))
        scripts = archive.read(entry_points).decode()
    data = [f"schemas/{draft}{name}.schema.json" for draft in ("", "draft-07/") for name in NAMES]
    wanted = [*(f"data/{name}" for name in [*data, "requirements.json", "accelerators.json", "links.json"]), "py.typed"]
    assert not ({f"{PACKAGE}/{name}" for name in wanted} | {f"{RECORDER}/py.typed"}) - set(names)
    folders = [tree / folder for folder in PACKAGES]
    modules = {p.relative_to(folder.parent).as_posix() for folder in folders for p in folder.rglob("*.py")}
    assert {name for name in names if name.endswith(".py")} == modules
    assert any(name.endswith(".dist-info/licenses/LICENSE") for name in names)
    assert {name.split("/")[0].rsplit(".", 1)[-1] for name in names} == {
        *(folder.name for folder in folders),
        "dist-info",
    }
    assert not [name for name in names if "__pycache__" in name or "test" in name]
    assert {line.split(" = ")[0] for line in scripts.splitlines() if " = " in line} == {
        "trainspec",
        "trainspec-conformance",
        "trainspec-record",
        "trainspec-validate",
    }


def test_the_bill_of_materials_is_inside(tree: Path, wheel: Path) -> None:
    with zipfile.ZipFile(wheel) as archive:
        [name] = [name for name in archive.namelist() if ".dist-info/sboms/" in name]
        assert archive.read(name) == (tree / "sbom.cdx.json").read_bytes()


@pytest.fixture(scope="module")
def archive(tree: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return build(tree, tmp_path_factory.mktemp("archive"), "sdist")


@pytest.mark.parametrize("kind", ["wheel", "sdist"])
def test_two_builds_are_one(tree: Path, wheel: Path, archive: Path, tmp_path: Path, kind: str) -> None:
    first, again = wheel if kind == "wheel" else archive, build(tree, tmp_path, kind)
    assert again.name == first.name
    assert again.read_bytes() == first.read_bytes()


def metadata(wheel: Path, archive: Path) -> Iterator[tuple[str, bytes]]:
    """What an index reads of each file."""
    with zipfile.ZipFile(wheel) as opened:
        yield "wheel", opened.read(next(name for name in opened.namelist() if name.endswith(".dist-info/METADATA")))
    with tarfile.open(archive) as opened_archive:
        member = opened_archive.extractfile(archive.name.removesuffix(".tar.gz") + "/PKG-INFO")
        assert member is not None
        yield "sdist", member.read()


def test_the_metadata_is_what_an_index_takes(tree: Path, wheel: Path, archive: Path) -> None:
    for kind, raw in metadata(wheel, archive):
        found = Metadata.from_email(raw, validate=True)
        assert found.license_expression == "Apache-2.0", kind
        assert found.license_files == ["LICENSE"]
        assert found.description_content_type == "text/markdown"
        assert found.description == (tree / "README.md").read_text(encoding="utf-8")


def test_the_source_archive_is_the_whole_tree(tree: Path, archive: Path) -> None:
    with tarfile.open(archive) as opened:
        names = {name.split("/", 1)[1] for name in opened.getnames() if "/" in name}
    files = {path.relative_to(tree).as_posix() for path in tree.rglob("*") if path.is_file()}
    assert files - names == set()
    assert names - files == {"PKG-INFO"}


# --- the wheel alone ----------------------------------------------------------------------------------------


def closure(name: str) -> Iterator[str]:
    """Distributions that a distribution needs at run time, whatever the extras."""
    for text in distribution(name).requires or ():
        requirement = Requirement(text)
        if requirement.marker is None or requirement.marker.evaluate({"extra": ""}):
            yield requirement.name
            yield from closure(requirement.name)


@dataclass
class Place:
    """An environment that holds the wheel and what it needs, and a working directory far from the source."""

    bin: Path
    work: Path

    def run(self, *command: str, code: int = 0) -> str:
        name, *arguments = command
        full = [*alone(), str(self.bin / name), *arguments]
        done = subprocess.run(full, cwd=self.work, env=environment(), capture_output=True, text=True, check=False)
        assert done.returncode == code, done.stdout + done.stderr
        return done.stdout


@pytest.fixture(scope="module")
def place(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Place:
    base = tmp_path_factory.mktemp("place")
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", str(base / "venv")], check=True)
    [site] = (base / "venv").glob("lib/python*/site-packages")
    for name in dict.fromkeys(closure(PACKAGE)):
        copy(distribution(name).files or [], site)
    python = base / "venv" / "bin" / "python"
    pip = [sys.executable, "-m", "pip", "--quiet", "--python", str(python), "install", "--no-index", str(wheel)]
    subprocess.run([*alone(), *pip], env=environment(), check=True)
    if not alone():
        (site / "sitecustomize.py").write_text(NO_NETWORK, encoding="utf-8")
    work = base / "work"
    shutil.copytree(ROOT / "examples", work / "examples")
    return Place(python.parent, work)


def copy(files: list[PackagePath], site: Path) -> None:
    for file in files:
        if ".." in file.parts or file.suffix == ".pyc":
            continue  # scripts and caches
        target = site / file
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(str(file.locate()), target)


def test_there_is_no_network(place: Place) -> None:
    """A listener that the test itself reaches is out of reach for what runs in the place."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        address = listener.getsockname()
        socket.create_connection(address, 5).close()
        program = f"import socket\ntry: socket.create_connection({address!r}, 5)\nexcept OSError: print('out of reach')"
        assert place.run("python", "-c", program) == "out of reach\n"


def test_nothing_else_is_needed(place: Place) -> None:
    program = "import importlib.util as u, sys; print([n for n in sys.argv[1:] if u.find_spec(n)])"
    assert place.run("python", "-c", program, "torch", "jax", "pyarrow", "pydantic", "pytest") == "[]\n"
    where = place.run("python", "-c", f"import {PACKAGE} as p; print(p.__file__)").strip()
    assert not Path(where).is_relative_to(ROOT)
    assert Path(where).is_relative_to(place.bin.parent)


def test_the_recorder_is_there_without_the_validator(place: Place) -> None:
    program = f"import sys, {RECORDER}.catalog as c; print(c.METRICS['hw.energy'].unit, '{PACKAGE}' in sys.modules)"
    assert place.run("python", "-c", program) == "J False\n"


def test_it_validates(place: Place) -> None:
    good = [f"examples/{name}" for name in ("clusters", "plans", "policies")]
    last = place.run("trainspec-validate", *good).splitlines()[-1]
    assert last.startswith("no findings: ")
    assert "TS-CLU-010" in place.run("trainspec-validate", "examples/broken/duplex.yaml", code=1)
    report = json.loads(place.run("python", "-m", PACKAGE, "--format", "json", "examples/broken", code=1))
    assert len(report["documents"]) == len(list((ROOT / "examples" / "broken").iterdir()))


def test_the_toolbox_works(place: Place) -> None:
    assert "Why: " in place.run("trainspec", "explain", "TS-PAR-001")
    assert len(json.loads(place.run("trainspec", "rules", "--format", "json"))) > 200
    place.run("trainspec", "rules", "--coverage")
    for kind in place.run("trainspec", "schema").split():
        for draft in ("2020-12", "07"):
            assert json.loads(place.run("trainspec", "schema", kind, "--draft", draft))["properties"]
    assert "nvidia-h100" in place.run("trainspec", "catalog")
    place.run("trainspec", "init", "--directory", "mine")
    place.run("trainspec-validate", "mine")
