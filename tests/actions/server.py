"""A git repository with several branches, where the actions look for that of the job."""

from __future__ import annotations

import subprocess
from collections.abc import Mapping
from pathlib import Path

from tests.actions.job_run import REPOSITORY, environment


def git(folder: Path, *arguments: str) -> str:
    who = ["-c", "user.name=test", "-c", "user.email=test@example.org", "-c", "commit.gpgsign=false"]
    command = ["git", *who, *arguments]
    done = subprocess.run(command, cwd=folder, env=environment(), capture_output=True, text=True, check=True)
    return done.stdout.strip()


def serve(server: Path, **branches: Mapping[str, str | None]) -> Path:
    """Make the repository: each branch adds files to the one before it, or removes those that are None."""
    folder = server / REPOSITORY
    folder.mkdir(parents=True)
    git(folder, "init", "--quiet")
    for branch, files in branches.items():
        git(folder, "checkout", "--quiet", "-b", branch)
        change(folder, files)
        git(folder, "add", "--all")
        git(folder, "commit", "--quiet", "--allow-empty", "--message", branch)
    return folder


def change(folder: Path, files: Mapping[str, str | None]) -> None:
    """Write files, and remove those that are None."""
    for name, text in files.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        if text is None:
            path.unlink()
        else:
            path.write_text(text, encoding="utf-8")
