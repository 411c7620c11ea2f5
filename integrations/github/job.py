"""The job that an action is a part of: its places, and what of its environment reaches the programs that run.

The workspace holds what is judged, so nothing in it may be run or configure what runs. A job can name it all the same:
`PYTHONPATH=.`, a relative entry in PATH, a `pip.conf`. So each variable that is passed on is listed here.
"""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

from log import say

_LISTS = ("PATH", "LD_LIBRARY_PATH")
"""Lists of directories: a relative entry, or an empty one, is the directory that a program runs in."""
_PLACES = frozenset(
    {
        *("HOME", "TMPDIR", "XDG_CACHE_HOME", "XDG_CONFIG_HOME", "SSL_CERT_DIR", "SSL_CERT_FILE"),
        *("REQUESTS_CA_BUNDLE", "CURL_CA_BUNDLE", "GIT_SSL_CAINFO"),
        *("PIP_CACHE_DIR", "PIP_CERT", "PIP_CLIENT_CERT", "PIP_CONFIG_FILE"),
    }
)
"""Files and directories."""
_WORDS = frozenset(
    {
        *("USER", "LOGNAME", "LANG", "LC_ALL", "LC_CTYPE", "TZ", "TERM", "NO_COLOR", "FORCE_COLOR"),
        *("http_proxy", "https_proxy", "no_proxy", "all_proxy", "HTTP_PROXY", "HTTPS_PROXY", "NO_PROXY", "ALL_PROXY"),
        *("PIP_INDEX_URL", "PIP_EXTRA_INDEX_URL", "PIP_FIND_LINKS", "PIP_NO_INDEX", "PIP_TRUSTED_HOST", "PIP_PROXY"),
        *("PIP_DEFAULT_TIMEOUT", "PIP_TIMEOUT", "PIP_RETRIES", "PIP_NO_CACHE_DIR"),
        *("GITHUB_ACTIONS", "TRAINSPEC_DEBUG", "TRAINSPEC_TODAY"),
    }
)


class ActionError(Exception):
    """The action cannot continue; the text names the remedy."""


@dataclass(frozen=True)
class Job:
    """A job of GitHub Actions, as its variables describe it."""

    environment: Mapping[str, str]
    state: Path
    """Directory of this action below RUNNER_TEMP."""

    @classmethod
    def of(cls, environment: Mapping[str, str], name: str) -> Job:
        """The present job; `name` is that of the action's directory.

        Raises:
            ActionError: a variable of the runner is missing, or its temporary directory is inside the workspace.
        """
        for variable in ("GITHUB_WORKSPACE", "RUNNER_TEMP"):
            if not Path(environment.get(variable, "")).is_absolute():
                raise ActionError(f"{variable} is not set to an absolute path; this program runs in GitHub Actions")
        job = cls(environment, Path(environment["RUNNER_TEMP"], name))
        if job.names_workspace(environment["RUNNER_TEMP"]):
            raise ActionError("RUNNER_TEMP is inside the workspace, which holds the judged files; set another one")
        return job

    @property
    def workspace(self) -> Path:
        """Directory of what is judged."""
        return Path(self.environment["GITHUB_WORKSPACE"])

    def input(self, name: str) -> str:
        """An input of the action, by its variable."""
        return self.environment.get(name, "")

    def lines(self, name: str) -> list[str]:
        """The lines of an input that are not empty."""
        return [line for line in self.input(name).split("\n") if line]

    def names_workspace(self, value: str) -> bool:
        """Whether a value names a place in the workspace, also through links or as a URL."""
        workspace = os.path.realpath(self.workspace)
        places = (word.removeprefix("file://") for word in (value, *value.split()))
        inside = (Path(os.path.realpath(one)).is_relative_to(workspace) for one in places if Path(one).is_absolute())
        return any(inside) or f"{self.workspace}{os.sep}" in f"{value}{os.sep}"

    @cached_property
    def trusted(self) -> dict[str, str]:
        """The variables that programs get: those listed above, without what names the workspace."""
        return dict(self._trusted())

    def _trusted(self) -> Iterator[tuple[str, str]]:
        for name, value in self.environment.items():
            if name in _LISTS:
                entries = [one for one in value.split(os.pathsep) if Path(one).is_absolute()]
                yield name, os.pathsep.join(one for one in entries if not self.names_workspace(one))
            elif name in _PLACES | _WORDS and value:
                if self.names_workspace(value) or (name in _PLACES and not Path(value).is_absolute()):
                    say(f"{name} is not used: it is relative or names the workspace")
                else:
                    yield name, value

    def report(self, **outputs: str) -> None:
        """Set outputs of the step.

        Raises:
            ActionError: a value has more than one line, and could set another output.
        """
        if any("\n" in value or "\r" in value for value in outputs.values()):
            raise ActionError(f"an output of more than one line: {outputs!a}; give every input one line")
        with Path(self.environment["GITHUB_OUTPUT"]).open("a", encoding="utf-8") as file:
            file.writelines(f"{name.replace('_', '-')}={value}\n" for name, value in outputs.items())


def call(command: Sequence[str], job: Job) -> None:
    """Run a program in the directory of the action.

    Raises:
        ActionError: it fails.
    """
    done = subprocess.run(command, cwd=job.state, env=job.trusted, stdin=subprocess.DEVNULL, check=False)
    if done.returncode:
        raise ActionError(f"{' '.join(command[:5])} ... failed with exit code {done.returncode}; its output says why")
