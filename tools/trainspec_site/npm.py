"""Fetches packages of npm, each once, and holds them to the digest that is locked."""

from __future__ import annotations

import base64
import hashlib
import subprocess
import tarfile
from dataclasses import dataclass
from pathlib import Path

SECONDS = 600


class AssetError(Exception):
    """Something that the site needs cannot be had, or is not what was locked."""


@dataclass(frozen=True, slots=True)
class Package:
    """One version of a package, with its digest as npm publishes it."""

    name: str
    version: str
    sha512: str

    def archive(self, cache: Path) -> Path:
        """The path of the package in the cache.

        Raises:
            AssetError: npm cannot fetch it, or the digest differs.
        """
        path = cache / f"{self.name.removeprefix('@').replace('/', '-')}-{self.version}.tgz"
        if not path.exists():
            cache.mkdir(parents=True, exist_ok=True)
            run(["npm", "pack", "--silent", f"{self.name}@{self.version}", "--pack-destination", str(cache)])
        digest = base64.b64encode(hashlib.sha512(path.read_bytes()).digest()).decode()
        if digest != self.sha512:
            raise AssetError(f"{path.name} has another digest than the one that is locked: {digest}")
        return path

    def files(self, cache: Path, *names: str) -> dict[str, bytes]:
        """Content of files of the package, by name."""
        with tarfile.open(self.archive(cache)) as archive:
            found = {name: archive.extractfile(f"package/{name}") for name in names}
            return {name: file.read() for name, file in found.items() if file is not None}


PYODIDE = Package(
    "pyodide", "314.0.7", "0YvXxEhfEdpLfb/XkM2BFAeMROq0iMUX2bzzH9pOttyMcWkwq+HbE5uyuGD82LN7y2q+SNvi/6V5JEsOlD2R1A=="
)
"""Python for browsers."""
IFRAME_WORKER = Package(
    "iframe-worker", "1.0.4", "roeaaI+Lg1LJNfgpCjoRe/+WzEjy9+Z08LoEvu85MCPbBjwm+qXz8Ag5U05lHa6V1CysZyGzE0SOkAtSUA5q7Q=="
)
"""Substitute for workers on pages that are opened as files; the search of the theme is made for it."""
AXE = Package(
    "axe-core", "4.14.1", "FHfa+lmNjQZfJz1q8wKqIDwC6DExcHt/pkjNQb09a3NPjCKg2rhu5qb2S4r76ASyFNNtuFooJpZe37OgudVGtQ=="
)
"""Finds what shuts people out of a page; only the tests use it."""


def run(command: list[str]) -> None:
    """Run a program that fetches; raise AssetError with its last words when it fails."""
    try:
        done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=SECONDS)
    except FileNotFoundError as error:
        raise AssetError(f"{command[0]} is not installed") from error
    except subprocess.TimeoutExpired as error:
        raise AssetError(f"{command[0]} took more than {SECONDS} s") from error
    if done.returncode:
        raise AssetError(f"{' '.join(command[:2])}: {done.stderr.strip()[-500:]}")
