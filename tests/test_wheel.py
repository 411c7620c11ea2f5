"""The four wheels: what is in them, that two builds are equal, and that each works alone without tree and network.

An empty environment gets the wheel of one distribution, those of the own distributions that it needs, and copies of the
third-party ones that its metadata names. pip checks that nothing is missing. The long form takes them from an index.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import socket
import subprocess
import sys
import tarfile
import zipfile
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from importlib.metadata import PackagePath, distribution
from pathlib import Path

import pytest
from own_distributions import FOLDERS
from packaging.metadata import Metadata
from packaging.requirements import Requirement
from trainspec_conformance.testbed import PLAIN

from trainspec_validate._version import __version__

ROOT = Path(__file__).resolve().parents[1]
VALIDATOR, RECORDER, REFERENCE, SUITE = FOLDERS
SCHEMAS = ["cluster-profile", "training-plan", "checkpoint-policy", "waivers"]
DATA = {
    VALIDATOR: [
        *(f"data/schemas/{draft}{name}.schema.json" for draft in ("", "draft-07/") for name in SCHEMAS),
        *(f"data/{name}.json" for name in ("requirements", "accelerators", "links")),
    ],
    RECORDER: [],
    REFERENCE: [],
    SUITE: ["scenarios/null-run/scenario.yaml", "templates/stack.yaml", "templates/demo.yaml"],
}
SCRIPTS = {
    VALIDATOR: {"trainspec", "trainspec-validate"},
    RECORDER: {"trainspec-record"},
    REFERENCE: set(),
    SUITE: {"trainspec-conformance"},
}
NEEDS = {
    VALIDATOR: {VALIDATOR},
    RECORDER: {RECORDER},
    REFERENCE: {REFERENCE, RECORDER, VALIDATOR},
    SUITE: {SUITE, REFERENCE, RECORDER, VALIDATOR},
}
"""Own distributions that an installation of each one holds."""
NOT_COPIED = shutil.ignore_patterns(
    ".*_cache", ".venv*", ".git", ".hypothesis", "build", ".benchmarks", "__pycache__", "dist", "site", ".cache"
)
NO_NETWORK = """
import socket
def refuse(*_, **__):
    raise OSError("this test allows no network")
socket.socket = socket.create_connection = socket.getaddrinfo = refuse
"""
IMPORT_ALL = """
import importlib, json, pkgutil, sys
missing = {}
for found in pkgutil.walk_packages(importlib.import_module(sys.argv[1]).__path__, sys.argv[1] + "."):
    if found.name.endswith("__main__") or "templates" in found.name:
        continue
    try:
        importlib.import_module(found.name)
    except ModuleNotFoundError as error:
        missing[found.name] = error.name.partition(".")[0]
print(json.dumps(missing))
"""
TESTBED = "trainspec_conformance.testbed"
pytestmark = pytest.mark.slow


def package(name: str) -> str:
    """The package of a distribution."""
    return name.replace("-", "_")


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


# --- what is built ------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Built:
    """The two files of a distribution."""

    wheel: Path
    archive: Path

    @property
    def metadata(self) -> Metadata:
        """The metadata of the wheel, which an index reads."""
        with zipfile.ZipFile(self.wheel) as opened:
            [name] = [name for name in opened.namelist() if name.endswith(".dist-info/METADATA")]
            return Metadata.from_email(opened.read(name), validate=True)


@pytest.fixture(scope="module")
def tree(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """One state of the repository, whoever works on it meanwhile."""
    copied = tmp_path_factory.mktemp("tree") / "tree"
    shutil.copytree(ROOT, copied, ignore=NOT_COPIED)
    return copied


def build(source: Path, directory: Path, *kinds: str) -> None:
    targets = [word for kind in kinds for word in ("--target", kind)]
    command = [*alone(), sys.executable, "-m", "hatchling", "build", *targets, "--directory", str(directory)]
    moment = environment(SOURCE_DATE_EPOCH="1700000000")
    done = subprocess.run(command, cwd=source, env=moment, capture_output=True, check=False)
    assert done.returncode == 0, done.stdout.decode() + done.stderr.decode()


def files_of(directory: Path, name: str) -> Built:
    [wheel] = directory.glob(f"{package(name)}-*.whl")
    [archive] = directory.glob(f"{package(name)}-*.tar.gz")
    return Built(wheel, archive)


@pytest.fixture(scope="module")
def built(tree: Path, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Built]:
    """All distributions, built from the tree."""
    directory = tmp_path_factory.mktemp("built")
    for folder in FOLDERS.values():
        build(tree / folder, directory, "sdist", "wheel")
    return {name: files_of(directory, name) for name in FOLDERS}


@pytest.mark.parametrize("name", FOLDERS)
def test_contents(tree: Path, built: dict[str, Built], name: str) -> None:
    with zipfile.ZipFile(built[name].wheel) as archive:
        names = archive.namelist()
        scripts = next((archive.read(one).decode() for one in names if one.endswith("entry_points.txt")), "")
    own = package(name)
    assert {f"{own}/{file}" for file in [*DATA[name], "py.typed"]} - set(names) == set()
    [folder] = [path for path in (tree / "src" / own, tree / FOLDERS[name] / own) if path.exists()]
    modules = {path.relative_to(folder.parent).as_posix() for path in folder.rglob("*.py")}
    assert {name for name in names if name.endswith(".py")} == modules
    assert any(name.endswith(".dist-info/licenses/LICENSE") for name in names)
    assert {name.split("/")[0].rsplit(".", 1)[-1] for name in names} == {own, "dist-info"}
    assert not [
        name
        for name in names
        if re.search(r"(^|/)(__pycache__|tests?|conftest|test_[^/]*|[^/]*_test)(\.py)?(/|$)", name)
    ]
    section = scripts.partition("[console_scripts]")[2].partition("\n[")[0]
    assert set(re.findall(r"^(\S+) = ", section, re.MULTILINE)) == SCRIPTS[name]


@pytest.mark.parametrize(("name", "path"), [(VALIDATOR, "sbom.cdx.json"), (SUITE, "conformance/sbom.cdx.json")])
def test_the_bill_of_materials_is_inside(tree: Path, built: dict[str, Built], name: str, path: str) -> None:
    with zipfile.ZipFile(built[name].wheel) as archive:
        [inside] = [name for name in archive.namelist() if ".dist-info/sboms/" in name]
        assert archive.read(inside) == (tree / path).read_bytes()


@pytest.fixture(scope="module")
def elsewhere(tree: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The same state in another directory."""
    return Path(shutil.copytree(tree, tmp_path_factory.mktemp("elsewhere") / "source"))


@pytest.mark.parametrize("name", FOLDERS)
def test_two_builds_are_equal(elsewhere: Path, built: dict[str, Built], tmp_path: Path, name: str) -> None:
    """The second wheel is built from the source archive alone."""
    again, unpacked = tmp_path / "again", tmp_path / "unpacked"
    build(elsewhere / FOLDERS[name], again, "sdist")
    with tarfile.open(next(again.iterdir())) as archive:
        archive.extractall(unpacked, filter="data")
    build(next(unpacked.iterdir()), again, "wheel")
    second = files_of(again, name)
    assert second.archive.read_bytes() == built[name].archive.read_bytes()
    assert second.wheel.name == built[name].wheel.name
    assert second.wheel.read_bytes() == built[name].wheel.read_bytes()


@pytest.mark.parametrize("name", FOLDERS)
def test_the_metadata_is_what_an_index_takes(tree: Path, built: dict[str, Built], name: str) -> None:
    with tarfile.open(built[name].archive) as opened:
        member = opened.extractfile(f"{package(name)}-{__version__}/PKG-INFO")
        assert member is not None
        of_archive = Metadata.from_email(member.read(), validate=True)
    for found in (built[name].metadata, of_archive):
        assert (found.name, str(found.version)) == (name, __version__)
        assert found.license_expression == "Apache-2.0"
        assert found.license_files == ["LICENSE"]
        assert found.description_content_type == "text/markdown"
        assert found.description == (tree / FOLDERS[name] / "README.md").read_text(encoding="utf-8")
        own = [one for one in found.requires_dist or [] if one.name in FOLDERS]
        assert {one.name for one in own} | {name} <= NEEDS[name]
        assert all(str(one.specifier) == f"=={__version__}" for one in own)


@pytest.mark.parametrize("name", FOLDERS)
def test_the_source_archive_is_the_whole_folder(tree: Path, built: dict[str, Built], name: str) -> None:
    """That of the validator is the whole tree, so that its tests run in it."""
    with tarfile.open(built[name].archive) as opened:
        names = {name.split("/", 1)[1] for name in opened.getnames() if "/" in name}
    folder = tree / FOLDERS[name]
    files = {path.relative_to(folder).as_posix() for path in folder.rglob("*") if path.is_file()}
    assert files - names == set()
    assert names - files <= {"PKG-INFO", ".gitignore"}


# --- each distribution alone --------------------------------------------------------------------------------


def closure(required: list[Requirement]) -> Iterator[str]:
    """Third-party distributions that requirements lead to, without extras."""
    for one in required:
        if one.name not in FOLDERS and (one.marker is None or one.marker.evaluate({"extra": ""})):
            yield one.name
            yield from closure([Requirement(text) for text in distribution(one.name).requires or ()])


@dataclass
class Place:
    """An environment that holds one distribution and what it needs, and a working directory far from the source."""

    bin: Path
    work: Path

    def run(self, *command: str, code: int = 0, loopback: bool = False, **variables: str) -> str:
        """Output of a program that has no network, but on demand the addresses of its own machine."""
        name, *arguments = command
        full = [*([] if loopback else alone()), str(self.bin / name), *arguments]
        known = environment(**variables)
        done = subprocess.run(full, cwd=self.work, env=known, capture_output=True, text=True, check=False)
        assert done.returncode == code, done.stdout + done.stderr
        return done.stdout

    @property
    def site(self) -> Path:
        [found] = self.bin.parent.glob("lib/python*/site-packages")
        return found


def install(built: dict[str, Built], name: str, base: Path) -> Place:
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", str(base / "venv")], check=True)
    place = Place(base / "venv" / "bin", base / "work")
    required = [one for own in NEEDS[name] for one in built[own].metadata.requires_dist or []]
    for needed in dict.fromkeys(closure(required)):
        copy(distribution(needed).files or [], place.site)
    pip = [sys.executable, "-m", "pip", "--quiet", "--python", str(place.bin / "python"), "install", "--no-index"]
    found = ["--find-links", str(built[name].wheel.parent), "--only-binary=:all:", f"{name}=={__version__}"]
    done = subprocess.run([*alone(), *pip, *found], env=environment(), capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    place.work.mkdir()
    return place


def copy(files: list[PackagePath], site: Path) -> None:
    """Link what is installed here, or copy it to another file system."""
    for file in files:
        if ".." in file.parts or file.suffix == ".pyc":
            continue  # scripts and caches
        target = site / file
        target.parent.mkdir(parents=True, exist_ok=True)
        try:
            os.link(str(file.locate()), target)
        except OSError:
            shutil.copyfile(str(file.locate()), target)


@pytest.fixture(scope="module")
def places(built: dict[str, Built], tmp_path_factory: pytest.TempPathFactory) -> dict[str, Place]:
    return {name: install(built, name, tmp_path_factory.mktemp(package(name))) for name in FOLDERS}


@pytest.fixture(scope="module")
def place(places: dict[str, Place]) -> Place:
    """The validator alone."""
    found = places[VALIDATOR]
    if not alone():
        (found.site / "sitecustomize.py").write_text(NO_NETWORK, encoding="utf-8")
    shutil.copytree(ROOT / "examples", found.work / "examples")
    return found


@pytest.mark.parametrize("name", FOLDERS)
def test_an_installation_holds_what_is_declared(built: dict[str, Built], places: dict[str, Place], name: str) -> None:
    found = {path.name.split("-")[0] for path in places[name].site.glob("*.dist-info")}
    own = {package(one) for one in NEEDS[name]}
    third = closure([one for needed in NEEDS[name] for one in built[needed].metadata.requires_dist or []])
    assert own <= found
    assert {re.sub(r"[-_.]+", "_", one).lower() for one in found} - own == {
        re.sub(r"[-_.]+", "_", one).lower() for one in third
    }
    where = places[name].run("python", "-c", f"import {package(name)} as p; print(p.__file__)").strip()
    assert Path(where).is_relative_to(places[name].site)


def missing(places: dict[str, Place], name: str) -> dict[str, str]:
    """Modules of a distribution that cannot be imported where it is alone, and what each lacks."""
    return dict(json.loads(places[name].run("python", "-c", IMPORT_ALL, package(name))))


def test_the_validator_lacks_only_the_library_of_its_models(places: dict[str, Place]) -> None:
    """They are an extra; all other modules are imported."""
    assert missing(places, VALIDATOR) == {"trainspec_validate.models": "pydantic"}
    program = "try: import trainspec_validate.models\nexcept ImportError as error: print(error)"
    told = places[VALIDATOR].run("python", "-c", program)
    assert told == "the models need pydantic: pip install 'trainspec-validate[models]'\n"


def test_a_trainer_lacks_only_its_framework(places: dict[str, Place]) -> None:
    found = missing(places, REFERENCE)
    assert {module.split(".")[1] for module in found} == {"jax", "torch"}
    assert set(found.values()) <= {"jax", "optax", "orbax", "torch"}


def test_the_suite_lacks_only_the_frameworks_of_its_testbed(places: dict[str, Place]) -> None:
    """Those are extras; all other modules are imported."""
    found = missing(places, SUITE)
    assert {module.rpartition(".")[0] for module in found} == {f"{TESTBED}.jax", f"{TESTBED}.torch"}
    assert set(found.values()) <= {"jax", "optax", "orbax", "torch"}


@pytest.mark.parametrize("framework", ["jax", "torch"])
def test_the_testbed_is_imported_where_its_framework_is(framework: str) -> None:
    pytest.importorskip(framework)
    done = subprocess.run(
        [sys.executable, "-c", IMPORT_ALL, f"{TESTBED}.{framework}"], capture_output=True, text=True, check=True
    )
    assert json.loads(done.stdout) == {}


def test_an_adapter_lacks_only_its_framework(places: dict[str, Place]) -> None:
    assert missing(places, RECORDER) == {
        f"trainspec_record.{module}": framework
        for module, framework in [
            ("adapters.accelerate", "accelerate"),
            ("adapters.jax", "jax"),
            ("adapters.keras", "keras"),
            ("adapters.lightning", "pytorch_lightning"),
            ("adapters.lightning_listeners", "pytorch_lightning"),
            ("adapters.torchtitan", "torchtitan"),
            ("adapters.transformers", "transformers"),
            ("noise.jax", "jax"),
            ("noise.pytorch", "torch"),
        ]
    }


# --- the validator alone


def test_there_is_no_network(place: Place) -> None:
    """A listener that the test itself reaches is out of reach for what runs in the place."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        address = listener.getsockname()
        socket.create_connection(address, 5).close()
        program = f"import socket\ntry: socket.create_connection({address!r}, 5)\nexcept OSError: print('out of reach')"
        assert place.run("python", "-c", program) == "out of reach\n"


def test_it_validates(place: Place) -> None:
    good = [f"examples/{name}" for name in ("clusters", "plans", "policies")]
    last = place.run("trainspec-validate", *good).splitlines()[-1]
    assert last.startswith("no findings: ")
    assert "TS-CLU-010" in place.run("trainspec-validate", "examples/broken/duplex.yaml", code=1)
    report = json.loads(place.run("python", "-m", "trainspec_validate", "--format", "json", "examples/broken", code=1))
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


def test_completion_covers_the_programs_that_are_installed(places: dict[str, Place], place: Place) -> None:
    assert set(re.findall(r"^#compdef (\S+)", place.run("trainspec", "completion", "zsh"), re.MULTILINE)) == {
        "trainspec",
        "trainspec-validate",
    }
    whole = places[SUITE].run("trainspec", "completion", "zsh")
    assert all(program in whole for programs in SCRIPTS.values() for program in programs)


# --- the recorder alone


def test_the_recorder_writes_a_stream_that_the_validator_accepts(places: dict[str, Place], place: Place) -> None:
    """The example of its page, in an environment that holds nothing else."""
    recorder = places[RECORDER]
    assert {path.name.split("-")[0] for path in recorder.site.iterdir()} == {"trainspec_record"}
    page = (ROOT / "record" / "README.md").read_text(encoding="utf-8")
    [example] = re.findall(r"^```python\n(.*?)^```", page, re.MULTILINE | re.DOTALL)
    (recorder.work / "train.py").write_text(example, encoding="utf-8")
    recorder.run("python", "train.py", TRAINSPEC_RUN="run", TRAINSPEC_HOST="node-1")
    shutil.copytree(recorder.work / "run", place.work / "run")
    report = json.loads(place.run("trainspec-validate", "--format", "json", "run"))
    assert {Path(one["path"]).name for one in report["documents"]} == {
        path.name for path in (place.work / "run").iterdir()
    }
    assert report["summary"]["findings"]["error"] == 0
    assert report["summary"]["requirements"]["pass"] > 30
    assert report["findings"] == [], "the head of the node declares the metrics of devices unsupported"


def test_the_recorder_has_its_program(places: dict[str, Place]) -> None:
    assert places[RECORDER].run("trainspec-record", "--version").startswith(f"trainspec-record {__version__} ")
    planned = places[RECORDER].run("trainspec-record", "launch", "--dry-run", "--run", "dry", "--", "true")
    assert "TRAINSPEC_RUN" in planned


# --- the reference trainer and the suite alone


def test_the_reference_trainer_has_its_program(places: dict[str, Place]) -> None:
    assert "torch, jax" in places[REFERENCE].run("python", "-m", "trainspec_reference", "--help")


def test_the_reference_trainer_trains(places: dict[str, Place]) -> None:
    """With the backend of the suite's testbed: no framework is installed here."""
    found = places[SUITE]
    shutil.copytree(ROOT / "reference" / "plans", found.work / "plans")
    documents = ["--plan", "plans/state-space.yaml", "--cluster", "plans/cluster.yaml"]
    asked = [*documents, "--out", "run", "--steps", "3", "--ranks", "1"]
    found.run(
        "python", "-m", "trainspec_reference", PLAIN, *asked, loopback=True
    )  # worker and controller are processes
    assert (found.work / "run").is_dir()
    found.run("trainspec-validate", "--select", "PAR", "run")


def test_the_suite_judges_a_stack(places: dict[str, Place]) -> None:
    found = places[SUITE]
    found.run("trainspec-conformance", "init", "mine")
    asked = ["--scenario", "null-run", "--trials", "1", "--report", "report"]
    found.run("trainspec-conformance", "run", "mine/stack.yaml", *asked, loopback=True)
    found.run("trainspec-conformance", "verify", "report")
    found.run("trainspec-conformance", "run", "--demo", "--report", "demo", "--dry-run")


# --- from an index


@pytest.mark.long
@pytest.mark.parametrize("name", FOLDERS)
def test_it_is_installed_from_an_index(built: dict[str, Built], tmp_path: Path, name: str) -> None:
    """As a user does it: pip finds the third-party requirements."""
    pip = [sys.executable, "-m", "pip", "--quiet", "--disable-pip-version-check"]
    probe = [*pip, "download", "--no-deps", "--dest", str(tmp_path), f"click=={distribution('click').version}"]
    if subprocess.run(probe, capture_output=True, check=False).returncode:
        pytest.skip("no package index is reachable")
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", str(tmp_path / "venv")], check=True)
    python = str(tmp_path / "venv" / "bin" / "python")
    found = ["--find-links", str(built[name].wheel.parent), f"{name}=={__version__}"]
    subprocess.run([*pip, "--python", python, "install", *found], check=True)
    subprocess.run([*pip, "--python", python, "check"], check=True)
    loaded = json.loads(
        subprocess.run([python, "-c", IMPORT_ALL, package(name)], capture_output=True, check=True).stdout
    )
    assert loaded.pop("trainspec_validate.models", "pydantic") == "pydantic"  # an extra
    assert all(set(module.split(".")) & {"adapters", "noise", "jax", "torch"} for module in loaded)
