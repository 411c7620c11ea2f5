"""The files for people around the code: citation, templates of issues and changes, checklist of a release."""

from __future__ import annotations

import re
import subprocess
import sys
import tomllib
from pathlib import Path
from typing import Any

import pytest
import yaml

from trainspec_validate._version import __version__

ROOT = Path(__file__).resolve().parent.parent
GITHUB = ROOT / ".github"
TEMPLATES = sorted(path for path in (GITHUB / "ISSUE_TEMPLATE").glob("*.yml") if path.name != "config.yml")


def load(path: Path) -> Any:
    return yaml.safe_load(path.read_text(encoding="utf-8"))


@pytest.mark.parametrize(
    ("schema", "path"),
    [
        ("citation-file-format", ROOT / "CITATION.cff"),
        ("github-issue-config", GITHUB / "ISSUE_TEMPLATE" / "config.yml"),
        *(("github-issue-forms", path) for path in TEMPLATES),
    ],
    ids=lambda value: value if isinstance(value, str) else value.stem,
)
def test_a_file_is_what_its_host_reads(schema: str, path: Path) -> None:
    command = [sys.executable, "-m", "check_jsonschema", "--builtin-schema", f"vendor.{schema}", str(path)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout


def test_the_citation_is_of_this_version() -> None:
    citation = load(ROOT / "CITATION.cff")
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    assert citation["cff-version"] == "1.2.0"
    assert citation["version"] == __version__
    assert citation["license"] == project["license"]
    assert [author["name"] for author in citation["authors"]] == [author["name"] for author in project["authors"]]
    assert {"message", "title", "type", "abstract", "url"} <= set(citation)


@pytest.mark.parametrize("path", TEMPLATES, ids=lambda path: path.stem)
def test_a_template_is_a_form(path: Path) -> None:
    form = load(path)
    assert set(form) == {"name", "description", "title", "labels", "body"}
    fields = [field for field in form["body"] if field["type"] != "markdown"]
    assert fields
    assert len({field["id"] for field in fields}) == len(fields)
    assert all(field["attributes"]["label"] for field in fields)
    assert all(field["attributes"]["options"] for field in fields if field["type"] == "dropdown")


def test_a_proposal_asks_for_all_that_governance_needs() -> None:
    text = (ROOT / "GOVERNANCE.md").read_text(encoding="utf-8")
    section = text.partition("## 3.")[2].partition("## 4.")[0]
    parts = [row.split("|")[1].strip() for row in section.splitlines() if row.startswith("| ")][1:]
    form = load(GITHUB / "ISSUE_TEMPLATE" / "proposal.yml")
    fields = [field for field in form["body"] if field["type"] != "markdown"]
    assert [field["attributes"]["label"] for field in fields] == parts
    assert all(field["validations"]["required"] for field in fields)


def test_a_proposal_can_choose_every_way_of_checking() -> None:
    from spec_lint import CHECKS

    form = load(GITHUB / "ISSUE_TEMPLATE" / "proposal.yml")
    (choice,) = [field for field in form["body"] if field.get("id") == "check"]
    assert set(choice["attributes"]["options"]) == CHECKS - {"load"}


@pytest.mark.parametrize("name", ["RELEASING.md", "changes/README.md"])
def test_links_lead_to_files(name: str) -> None:
    page = (ROOT / name).read_text(encoding="utf-8")
    links = re.findall(r"\]\(([^)#:]+)\)", page)
    assert links
    assert [link for link in links if not ((ROOT / name).parent / link).exists()] == []


@pytest.mark.parametrize("name", ["RELEASING.md", ".github/PULL_REQUEST_TEMPLATE.md"])
def test_named_files_and_targets_exist(name: str) -> None:
    page = (ROOT / name).read_text(encoding="utf-8")
    commands = re.findall(r"`([^`\n]+)`", page)
    targets = re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(encoding="utf-8"), re.MULTILINE)
    made = [command.split()[1] for command in commands if command.startswith("make ")]
    assert made
    assert set(made) <= set(targets)
    files = [
        word
        for command in commands
        for word in command.split()
        if re.fullmatch(r"[\w./-]+\.(py|yaml|cff|md|json)", word)
    ]
    places = [ROOT, ROOT / "spec" / "v1"]
    assert [file for file in files if not any((place / file).exists() for place in places)] == []
