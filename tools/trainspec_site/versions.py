"""Keeps the versions of the site next to each other: released versions are unchanged."""

from __future__ import annotations

import contextlib
import shutil
import subprocess
import tarfile
from dataclasses import dataclass
from io import BytesIO
from pathlib import Path

from mike import commands

BRANCH = "gh-pages"
DRAFT = "Draft"


class FrozenVersionError(Exception):
    """A version that is no draft was to be built again."""


@dataclass(frozen=True, slots=True)
class Version:
    """A version of the specification, with the state of its requirements."""

    name: str
    status: str

    @property
    def title(self) -> str:
        """Label in the selector."""
        return f"{self.name.removesuffix(f'-{self.status.lower()}')} ({self.status})"


def publish(site: Path, version: Version, store: Path, published: Path | None = None) -> None:
    """Add a built version to the branch of the store, which begins as that of the published repository.

    Raises:
        FrozenVersionError: the branch has this version, and it was no draft.
    """
    _open(store, published)
    with contextlib.chdir(store):
        known = {str(info.version): info.get_property("status") for info in commands.list_versions(BRANCH)}
        if known.get(version.name, DRAFT) != DRAFT:
            raise FrozenVersionError(f"version {version.name} is {known[version.name]} and stays as it was published")
        aliases = ["draft"] if version.status == DRAFT else []
        if version.status != DRAFT or all(status == DRAFT for status in known.values()):
            aliases.append("latest")
        settings = {"site_dir": str(site.resolve()), "use_directory_urls": True}
        properties = [("status", version.status)]
        with commands.deploy(
            settings, version.name, version.title, aliases, True,
            branch=BRANCH, message=f"Version {version.title}", set_props=properties,
        ):  # fmt: skip
            pass
        commands.set_default("latest", branch=BRANCH, message="Lead to the latest version", allow_empty=True)


def export(store: Path, target: Path) -> None:
    """Write the files of the branch into an empty folder."""
    shutil.rmtree(target, ignore_errors=True)
    packed = subprocess.run(["git", "archive", BRANCH], cwd=store, capture_output=True, check=True).stdout
    with tarfile.open(fileobj=BytesIO(packed)) as archive:
        archive.extractall(target, filter="data")


def _open(store: Path, published: Path | None) -> None:
    shutil.rmtree(store, ignore_errors=True)
    store.mkdir(parents=True)
    for words in (["init"], ["config", "user.name", "TrainSpec"], ["config", "user.email", "site@trainspec.org"]):
        subprocess.run(["git", *words], cwd=store, capture_output=True, check=True)
    if published is not None:
        fetch = ["git", "fetch", "--quiet", str(published.resolve()), f"{BRANCH}:{BRANCH}"]
        subprocess.run(fetch, cwd=store, capture_output=True, check=False)  # the first version finds no branch
