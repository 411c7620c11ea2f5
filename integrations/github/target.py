"""The target branch of a change request: which one it is, and copies of the files in it that decide about the request.

They are fetched from the server into a repository of their own. The checkout in the workspace is not asked: it is
often shallow, and its configuration and hooks are not those of the target branch.
"""

from __future__ import annotations

import base64
import json
import os
import posixpath
import re
import shutil
import subprocess
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from job import ActionError, Job
from log import say

OWN_FILE = "trainspec.toml"
PROJECT_FILE = "pyproject.toml"
_REF = "refs/heads/target"
_ON_DEFAULT_BRANCH = ("issue_comment", "workflow_run")
"""Events about a change request whose workflow is that of the default branch."""
_SECONDS = 600
_IGNORES = re.compile(rb"trainspec:\s*ignore")
_MOST_DOCUMENTS = 1_000
_MOST_BYTES = 1 << 25


def target_of(job: Job) -> str | None:
    """Name of the branch whose settings count; None where they are those of the checkout.

    Raises:
        ActionError: the event cannot be read, or it is a change request without a target.
    """
    if asked := job.input("SETTINGS_BRANCH"):
        return asked
    name = job.environment.get("GITHUB_EVENT_NAME", "")
    try:
        event = json.loads(Path(job.environment["GITHUB_EVENT_PATH"]).read_bytes())
        if "pull_request" in event:
            return str(event["pull_request"]["base"]["ref"])
        if "merge_group" in event:
            return str(event["merge_group"]["base_ref"]).removeprefix("refs/heads/")
        if name in _ON_DEFAULT_BRANCH:
            return str(event["repository"]["default_branch"])
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise ActionError(f"the event {name} cannot be read ({error!r}); set the input settings-branch") from error
    if name.startswith("pull_request") or name == "merge_group":
        raise ActionError(f"the event {name} names no target branch; set the input settings-branch")
    return None


class TargetBranch:
    """A branch on the server, and copies of some of its files in `directory`."""

    def __init__(self, job: Job, name: str) -> None:
        """Fetch the newest commit of the branch, without the content of its files.

        Raises:
            ActionError: git is missing, or the branch cannot be fetched.
        """
        self.name, self.directory = name, job.state / "target"
        self._workspace = job.workspace
        self._environment = _environment(job)
        git = shutil.which("git", path=self._environment.get("PATH", os.defpath))
        if git is None:
            raise ActionError("git, which fetches the settings of the target branch, is not installed on this runner")
        self._git = git
        repository = job.state / "target.git"
        for directory in (self.directory, repository):
            shutil.rmtree(directory, ignore_errors=True)
        self.directory.mkdir(parents=True)
        url = "{GITHUB_SERVER_URL}/{GITHUB_REPOSITORY}".format_map(job.environment)
        self._run("init", "--quiet", "--bare", "--template=", os.fspath(repository))
        self._environment["GIT_DIR"] = os.fspath(repository)
        self._run("remote", "add", "origin", url)
        kind = ("--quiet", "--depth=1", "--no-tags", "--filter=blob:none")
        self._run("fetch", *kind, "origin", f"+refs/heads/{name}:{_REF}")
        self.commit = self._run("rev-parse", _REF).decode().strip()

    def copy(self, name: str) -> Path | None:
        """Copy a file, by its path from the top of the repository; None where the branch has no such file."""
        name = posixpath.normpath(name)
        if posixpath.isabs(name) or name.split("/")[0] == ".." or "\n" in name:
            return None
        answer = self._run("cat-file", "--batch", "--follow-symlinks", given=f"{_REF}:{name}\n".encode())
        first, _, rest = answer.partition(b"\n")
        words = first.split()
        if len(words) != 3 or words[1] != b"blob" or not words[2].isdigit():
            return None
        path = self.directory / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(rest[: int(words[2])])
        return path

    def copy_settings(self, name: str | None = None) -> list[str]:
        """Copy a file of settings, by default that of the top directory, with the files that it names."""
        for file in (OWN_FILE, PROJECT_FILE) if name is None else (name,):
            path = self.copy(file)
            table = {} if path is None else _table(path)
            if path is not None and (table or path.name == OWN_FILE):
                named = [posixpath.join(posixpath.dirname(file), text) for text in _texts(table)]
                return [file, *(text for text in named if self.copy(text))]
        return []

    def copy_documents(self) -> None:
        """Copy the documents that have comments which silence findings in the workspace.

        Only comments that the branch has too count. Comments that are not copied here silence nothing.
        """
        for number, name in enumerate(_with_ignores(self._workspace)):
            if number == _MOST_DOCUMENTS:
                say(f"comments that silence findings count in {_MOST_DOCUMENTS:,} files; the others silence nothing")
                return
            self.copy(name)

    def instead_of(self, value: str) -> Path | None:
        """The copy of a file that the workflow names; files outside the workspace are taken as they are."""
        top = self._workspace
        place = Path(os.path.normpath(top / value))
        for path, start in ((place, top), (place.resolve(), top.resolve())):
            if path.is_relative_to(start):
                return self.copy(path.relative_to(start).as_posix())
        return Path(value)

    def _run(self, *arguments: str, given: bytes = b"") -> bytes:
        try:
            done = subprocess.run(
                [self._git, *arguments],
                cwd=self.directory,
                env=self._environment,
                input=given,
                capture_output=True,
                timeout=_SECONDS,
                check=False,
            )
        except (OSError, subprocess.TimeoutExpired) as error:
            raise ActionError(f"git {arguments[0]} of branch {self.name}: {error}") from error
        if done.returncode:
            reason = done.stderr.decode("utf-8", "replace").strip()
            raise ActionError(f"git {arguments[0]} of branch {self.name} failed: {reason}")
        return done.stdout


def _environment(job: Job) -> dict[str, str]:
    """The variables of git; the token is in none of its arguments, which other users of the machine can read."""
    settings = {"credential.helper": ""}
    server = job.environment.get("GITHUB_SERVER_URL", "")
    if (token := job.input("TOKEN")) and server.startswith(("https://", "http://")):
        basic = base64.b64encode(f"x-access-token:{token}".encode()).decode()
        settings[f"http.{server}/.extraheader"] = f"AUTHORIZATION: basic {basic}"
    made = {"GIT_TERMINAL_PROMPT": "0", "GIT_CONFIG_COUNT": str(len(settings)), "LC_ALL": "C.UTF-8"}
    for number, (key, value) in enumerate(settings.items()):
        made |= {f"GIT_CONFIG_KEY_{number}": key, f"GIT_CONFIG_VALUE_{number}": value}
    return {**job.trusted, **made}


def _with_ignores(workspace: Path) -> Iterator[str]:
    """The YAML files of a directory with a comment of the validator, by their path from its top."""
    for directory, folders, files in os.walk(workspace):
        folders[:] = sorted(set(folders) - {".git"})
        for file in sorted(files):
            path = Path(directory, file)
            name = path.relative_to(workspace).as_posix()
            if file.lower().endswith((".yaml", ".yml")) and name.isprintable() and _has_ignores(path):
                yield name


def _has_ignores(path: Path) -> bool:
    try:
        with open(path, "rb", opener=lambda name, flags: os.open(name, flags | os.O_NOFOLLOW | os.O_NONBLOCK)) as file:
            return _IGNORES.search(file.read(_MOST_BYTES)) is not None
    except OSError:
        return False


def _table(path: Path) -> dict[str, Any]:
    """The settings in a file; nothing where it is no TOML, which the program that reads it next says better."""
    try:
        table: Any = tomllib.loads(path.read_text(encoding="utf-8"))
    except ValueError:
        return {}
    if path.name == PROJECT_FILE:
        table = table.get("tool", {}).get("trainspec", {}) if isinstance(table.get("tool"), dict) else {}
    return table if isinstance(table, dict) else {}


def _texts(table: dict[str, Any]) -> Iterator[str]:
    """Every text among settings: those that are names of files are copied."""
    for value in table.values():
        yield from (text for text in (value if isinstance(value, list) else [value]) if isinstance(text, str))
