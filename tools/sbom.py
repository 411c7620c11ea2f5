"""Writes the bills of materials: what a locked installation of the validator, or of the suite, consists of."""

from __future__ import annotations

import json
import re
import uuid
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from importlib.metadata import distribution
from pathlib import Path
from typing import Any

from own_distributions import FOLDERS, project
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from trainspec_validate._version import __version__

BILLS = {
    "sbom.cdx.json": ("trainspec-validate", "run.txt", ()),
    "conformance/sbom.cdx.json": (
        *("trainspec-conformance", "conformance.txt"),
        ("trainspec-record", "trainspec-reference", "trainspec-validate"),
    ),
}
"""Distribution, lock and further own distributions of each bill, by its path in the repository."""
PIN = re.compile(r"^(?P<name>[A-Za-z0-9][\w.-]*)==(?P<version>\S+)")
HASH = re.compile(r"--hash=sha256:(?P<digest>[0-9a-f]{64})")


@dataclass(frozen=True, slots=True)
class Pin:
    """One locked distribution: its name, version, and the digests of its files."""

    name: str
    version: str
    digests: tuple[str, ...]

    @property
    def reference(self) -> str:
        """Its package URL, https://github.com/package-url/purl-spec."""
        return f"pkg:pypi/{self.name}@{self.version}"


def pins(lock: str) -> Iterator[Pin]:
    """Packages that a lock file with hashes pins."""
    for line in lock.replace("\\\n", " ").splitlines():
        match = PIN.match(line)
        if match:
            digests = tuple(found["digest"] for found in HASH.finditer(line))
            yield Pin(canonicalize_name(match["name"]), match["version"], digests)


def documents(directory: Path) -> dict[str, str]:
    """Text of each bill of materials by its path in the repository."""
    return {path: document(directory, *bill) for path, bill in BILLS.items()}


def document(directory: Path, name: str, lock: str, own: Sequence[str]) -> str:
    """Text of the bill of materials in CycloneDX 1.6, https://cyclonedx.org/docs/1.6/json/.

    It has no time and a serial number that follows from its content, so that two builds are one.
    """
    locked = {pin.name: pin for pin in pins((directory / "requirements" / lock).read_text(encoding="utf-8"))}
    locked |= {one: Pin(one, __version__, ()) for one in own}
    root = Pin(name, __version__, ())
    content = {
        "metadata": {"component": {**_component(root), "type": "application"}},
        "components": [_component(pin) for pin in locked.values()],
        "dependencies": [_needs(pin, locked) for pin in (root, *locked.values())],
    }
    serial = uuid.uuid5(uuid.NAMESPACE_URL, json.dumps(content, sort_keys=True))
    head = {
        "$schema": "http://cyclonedx.org/schema/bom-1.6.schema.json",
        "bomFormat": "CycloneDX",
        "specVersion": "1.6",
        "serialNumber": f"urn:uuid:{serial}",
        "version": 1,
    }
    return json.dumps({**head, **content}, indent=1) + "\n"


def _component(pin: Pin) -> dict[str, Any]:
    hashes = [{"alg": "SHA-256", "content": digest} for digest in pin.digests]
    address = f"https://pypi.org/project/{pin.name}/{pin.version}/"
    files = [{"type": "distribution", "url": address, "hashes": hashes}] if hashes else []
    found: dict[str, Any] = {
        "type": "library",
        "bom-ref": pin.reference,
        "name": pin.name,
        "version": pin.version,
        "purl": pin.reference,
        "licenses": _licences(pin.name),
        "externalReferences": files,
    }
    return {key: value for key, value in found.items() if value}


def _licences(name: str) -> list[dict[str, Any]]:
    """The licence as the distribution states it: an SPDX expression, else the classifiers, else the older field."""
    metadata = distribution(name).metadata
    expression = metadata.get("License-Expression")
    if expression:
        return [{"expression": expression}]
    classifiers = metadata.get_all("Classifier") or []
    names = [line.rsplit(" :: ", 1)[-1] for line in classifiers if line.startswith("License :: ")]
    return [{"license": {"name": name}} for name in names or metadata.get_all("License") or []]


def _needs(pin: Pin, locked: dict[str, Pin]) -> dict[str, Any]:
    """What a distribution needs at run time, as far as the lock has it; an own one as its sources say."""
    stated = project(pin.name)["dependencies"] if pin.name in FOLDERS else distribution(pin.name).requires or ()
    wanted = (Requirement(text) for text in stated)
    names = {canonicalize_name(one.name) for one in wanted if one.marker is None or one.marker.evaluate({"extra": ""})}
    return {"ref": pin.reference, "dependsOn": [locked[name].reference for name in sorted(names) if name in locked]}
