"""What is published: two builds are compared, the bill of materials is of the lock, the container takes what exists."""

from __future__ import annotations

import hashlib
import json
import re
import sys
import tomllib
from pathlib import Path
from typing import Any

import distribution
import own_distributions
import pytest
import sbom

from trainspec_validate._version import __version__

ROOT = Path(__file__).resolve().parent.parent
LOCK = """#
click==8.5.1 \\
    --hash=sha256:{} \\
    --hash=sha256:{}
    # via trainspec-validate (pyproject.toml)
PyYAML==6.0.3 --hash=sha256:{}
""".format(*(digit * 64 for digit in "abc"))


# --- two builds ---------------------------------------------------------------------------------------------


def built(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, *digests: str) -> int:
    answers = iter(digests)
    monkeypatch.setattr(distribution, "build", lambda _directory, _moment: {"a.whl": next(answers)})
    monkeypatch.setattr(sys, "argv", ["distribution.py", str(tmp_path)])
    return distribution.main()


def test_equal_builds_are_told_with_their_digest(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert built(monkeypatch, tmp_path, "12ab", "12ab") == 0
    assert capsys.readouterr().out == "12ab  a.whl\n"


def test_builds_that_differ_are_refused(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert built(monkeypatch, tmp_path, "12ab", "34cd") == 1
    assert "two builds differ" in capsys.readouterr().err


def test_the_moment_is_the_one_that_is_set(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SOURCE_DATE_EPOCH", "1700000000")
    assert distribution.epoch() == "1700000000"


def test_a_build_gets_the_moment(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    def run(command: list[str], *, env: dict[str, str], **_: Any) -> None:
        (Path(command[command.index("--outdir") + 1]) / "a.whl").write_text(env["SOURCE_DATE_EPOCH"], encoding="utf-8")

    monkeypatch.setattr(distribution.subprocess, "run", run)
    assert distribution.build(tmp_path, "17") == {"a.whl": hashlib.sha256(b"17").hexdigest()}


# --- bill of materials --------------------------------------------------------------------------------------


def test_pins_are_read_with_their_digests() -> None:
    assert list(sbom.pins(LOCK)) == [
        sbom.Pin("click", "8.5.1", ("a" * 64, "b" * 64)),
        sbom.Pin("pyyaml", "6.0.3", ("c" * 64,)),
    ]


@pytest.mark.parametrize("path", sbom.BILLS)
def test_the_bill_lists_the_lock_and_nothing_else(path: str) -> None:
    bill = json.loads(sbom.documents(ROOT)[path])
    _, lock, own = sbom.BILLS[path]
    locked = {pin.name: pin for pin in sbom.pins((ROOT / "requirements" / lock).read_text(encoding="utf-8"))}
    assert len(locked) > 5
    assert {part["name"]: part["version"] for part in bill["components"]} == {
        **{name: pin.version for name, pin in locked.items()},
        **dict.fromkeys(own, __version__),
    }
    assert all(part["licenses"] for part in bill["components"])
    third = [part for part in bill["components"] if part["name"] not in own]
    assert all(len(part["externalReferences"][0]["hashes"]) == len(locked[part["name"]].digests) for part in third)


@pytest.mark.parametrize("path", sbom.BILLS)
def test_the_bill_knows_what_the_project_needs(path: str) -> None:
    bill = json.loads(sbom.documents(ROOT)[path])
    needs = {entry["ref"]: entry["dependsOn"] for entry in bill["dependencies"]}
    name = sbom.BILLS[path][0]
    direct = {re.split(r"[<>=]", text)[0].lower() for text in own_distributions.project(name)["dependencies"]}
    own = needs[f"pkg:pypi/{name}@{__version__}"]
    assert {reference.partition("/")[2].partition("@")[0] for reference in own} == direct
    references = {part["bom-ref"] for part in bill["components"]}
    assert set().union(*needs.values()) == references, "each component is needed by something"


def test_the_bill_says_the_same_twice() -> None:
    assert sbom.documents(ROOT) == sbom.documents(ROOT)


# --- container ----------------------------------------------------------------------------------------------


def instructions() -> list[tuple[str, str]]:
    text = (ROOT / "Containerfile").read_text(encoding="utf-8").replace("\\\n", " ")
    lines = [line for line in text.splitlines() if line and not line.startswith("#")]
    return [(word, rest) for word, _, rest in (line.partition(" ") for line in lines)]


def test_the_container_copies_what_exists_and_is_not_ignored() -> None:
    kept = {
        line[1:] for line in (ROOT / ".containerignore").read_text(encoding="utf-8").splitlines() if line[:1] == "!"
    }
    copied = [rest.split()[:-1] for word, rest in instructions() if word == "COPY" and "--from" not in rest]
    names = [name for names in copied for name in names]
    assert names
    assert [name for name in names if not (ROOT / name).exists()] == []
    assert {Path(name).parts[0] for name in names} == kept


def test_the_container_holds_all_that_a_wheel_is_built_from() -> None:
    wheel = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["tool"]["hatch"]["build"]["targets"]
    needed = [*wheel["wheel"]["packages"], *wheel["wheel"]["sbom-files"], "README.md", "LICENSE", "pyproject.toml"]
    needed.append(own_distributions.FOLDERS["trainspec-record"])
    copied = " ".join(rest for word, rest in instructions() if word == "COPY").split()
    assert [name for name in needed if Path(name).parts[0] not in copied] == []


def test_the_container_installs_by_hash_and_runs_as_nobody() -> None:
    found = instructions()
    installs = [part for word, rest in found if word == "RUN" for part in rest.split("&&") if "pip install" in part]
    assert installs
    assert all("--require-hashes" in part or "--no-index" in part for part in installs)
    words = [word for word, _ in found]
    assert words.index("ENTRYPOINT") > words.index("USER")
    assert dict(found)["USER"] == "65534:65534"
    scripts = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]["scripts"]
    assert json.loads(dict(found)["ENTRYPOINT"])[0] in scripts
