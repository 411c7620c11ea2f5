"""Builds what is published, wheels and source archives, twice, and compares the two byte by byte."""

from __future__ import annotations

import argparse
import hashlib
import os
import subprocess
import sys
import tempfile
from pathlib import Path

from own_distributions import FOLDERS

ROOT = Path(__file__).resolve().parent.parent


def epoch() -> str:
    """The moment that archives carry: as set, else that of the newest commit."""
    found = os.environ.get("SOURCE_DATE_EPOCH")
    if found:
        return found
    done = subprocess.run(["git", "log", "-1", "--format=%ct"], cwd=ROOT, capture_output=True, text=True, check=True)
    return done.stdout.strip()


def build(directory: Path, moment: str) -> dict[str, str]:
    """SHA-256 of each built file by its name. Each wheel is built from its source archive."""
    for folder in FOLDERS.values():
        command = [sys.executable, "-m", "build", "--no-isolation", "--outdir", str(directory), str(ROOT / folder)]
        subprocess.run(command, env={**os.environ, "SOURCE_DATE_EPOCH": moment}, check=True, stdout=subprocess.DEVNULL)
    return {path.name: hashlib.sha256(path.read_bytes()).hexdigest() for path in sorted(directory.iterdir())}


def main() -> int:
    """Build into a directory, build again, and print the digests; exit 1 when the two differ."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("directory", type=Path, help="empty or not there yet")
    directory = parser.parse_args().directory
    moment = epoch()
    with tempfile.TemporaryDirectory() as second:
        first, again = build(directory, moment), build(Path(second), moment)
    if first != again:
        print(f"two builds differ: {first} and {again}", file=sys.stderr)
        return 1
    for name, digest in first.items():
        print(f"{digest}  {name}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
