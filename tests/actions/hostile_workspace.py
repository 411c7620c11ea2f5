"""A workspace that tries to run: whatever a program could import, read or start from it leaves a mark."""

from __future__ import annotations

import os
import shutil
import stat
import subprocess
import sys
from collections.abc import Collection
from pathlib import Path

MODULES = (
    *("venv", "pip", "ensurepip", "sitecustomize", "usercustomize", "site", "runpy", "json", "tempfile"),
    *("job", "steps", "target", "trainspec_validate", "trainspec_conformance", "click", "msgspec", "yaml", "numpy"),
    *("rich", "psutil", "jsonschema_rs", "hatchling", "setuptools", "setup", "conftest", "tomllib", "base64"),
    *("encodings", "codecs", "os"),
)
PROGRAMS = (
    "bash",
    "sh",
    "env",
    "git",
    "python",
    "python3",
    "pip",
    "rm",
    "mkdir",
    "cat",
    "cc",
    "uv",
    "trainspec-validate",
)
BY_GIT = ("post-checkout", "reference-transaction", "post-index-change", "fsmonitor-watchman")

SETTINGS = """[core]
\thooksPath = {folder}/.git/hooks
\tfsmonitor = {folder}/.git/hooks/fsmonitor-watchman
\tsshCommand = {folder}/bin/env
[credential]
\thelper = {folder}/bin/env
[init]
\ttemplateDir = {folder}/template
"""


LIBRARY = """#include <fcntl.h>
__attribute__((constructor)) static void leave_a_mark(void) { open(MARK, O_CREAT | O_WRONLY, 0600); }
"""


def fill(folder: Path, marks: Path) -> None:
    """Make the files; each leaves a mark of its name in `marks` when it runs."""
    marks.mkdir()
    python = "import posix\nposix.open({!r}, posix.O_CREAT)\n"  # what runs before there is open()
    for name in MODULES:
        text = python.format(str(marks / f"{name}.py"))
        (folder / f"{name}.py").write_text(text, encoding="utf-8")
        for file in ("__init__.py", "__main__.py", "cli.py"):
            package = folder / "packages" / name
            package.mkdir(parents=True, exist_ok=True)
            (package / file).write_text(text, encoding="utf-8")
    (folder / "trainspec_validate").mkdir()
    for file in ("__init__.py", "__main__.py"):
        (folder / "trainspec_validate" / file).write_text(python.format(str(marks / file)), encoding="utf-8")
    (folder / "rules.py").write_text(python.format(str(marks / "rules.py")), encoding="utf-8")
    for name in PROGRAMS:
        program(folder / "bin" / name, marks / f"bin-{name}")
    for name in BY_GIT:
        program(folder / ".git" / "hooks" / name, marks / f"hook-{name}")
        program(folder / "template" / "hooks" / name, marks / f"template-{name}")
    for file in (".git/config", ".gitconfig", ".config/git/config"):
        write(folder / file, SETTINGS.format(folder=folder))
    # of PYTHONUSERBASE or HOME
    version = f"python{sys.version_info.major}.{sys.version_info.minor}"
    packages = folder / ".local" / "lib" / version / "site-packages"
    write(packages / "usercustomize.py", python.format(str(marks / "user-site")))
    write(packages / "evil.pth", f"import os; open({str(marks / 'pth')!r}, 'w')\n")
    write(folder / "evil.pth", f"import os; open({str(marks / 'pth')!r}, 'w')\n")
    # of pip
    index = f"[global]\nno-index = true\nfind-links = {folder}/wheels\npython = {folder}/bin/python\n"
    for file in ("pip.conf", ".pip/pip.conf", ".config/pip/pip.conf"):
        write(folder / file, index)
    write(folder / "setup.cfg", "[metadata]\nname = evil\n")
    write(folder / "requirements.txt", "--find-links wheels\nevil\n")
    write(folder / "pyproject.toml", '[build-system]\nrequires = []\nbuild-backend = "setup"\nbackend-path = ["."]\n')
    # of uv
    write(
        folder / "uv.toml",
        f'no-index = true\nfind-links = ["{folder}/wheels"]\n[pip]\npython = "{folder}/bin/python"\n',
    )
    write(folder / ".python-version", f"{folder}/bin/python\n")
    # of Python where a variable names its executable
    write(folder / "python._pth", ".\nimport site\n")
    program(folder / "python", marks / "python")
    # of Python where it is interactive
    write(folder / "startup.py", python.format(str(marks / "startup.py")))
    # of the shell
    write(folder / "startup.sh", f": > {marks}/startup.sh\n")
    write(folder / "trainspec.toml", 'fail-on = "never"\n')
    if compiler := shutil.which("cc"):
        mark = f'-DMARK="{marks / "library"}"'
        command = [compiler, "-shared", "-fPIC", mark, "-x", "c", "-", "-o", str(folder / "preload.so")]
        subprocess.run(command, input=LIBRARY, text=True, check=True)


def write(path: Path, text: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text, encoding="utf-8")


def program(path: Path, mark: Path) -> None:
    """A program that leaves a mark."""
    write(path, f"#!/bin/sh\n: > {mark}\n")
    path.chmod(path.stat().st_mode | stat.S_IXUSR)


def variables(folder: Path) -> dict[str, dict[str, str]]:
    """What a workflow may set without a thought of this action, by name."""
    path = os.environ["PATH"]
    return {
        "nothing": {},
        "module-path": {"PYTHONPATH": "."},
        "module-path-of-workspace": {"PYTHONPATH": f"{folder}{os.pathsep}{folder / 'packages'}"},
        "user-base": {"PYTHONUSERBASE": str(folder / ".local")},
        "home": {"HOME": str(folder), "XDG_CONFIG_HOME": str(folder / ".config")},
        "relative-path": {"PATH": f".{os.pathsep}bin{os.pathsep}{path}"},
        "path-of-workspace": {"PATH": f"{folder / 'bin'}{os.pathsep}{path}"},
        "shell-startup": {"BASH_ENV": f"{folder}/startup.sh", "ENV": f"{folder}/startup.sh"},
        "library": {"LD_PRELOAD": "./preload.so", "LD_LIBRARY_PATH": "."},
        "pip-configuration": {"PIP_CONFIG_FILE": str(folder / "pip.conf"), "PIP_REQUIREMENT": "requirements.txt"},
        "python-executable": dict.fromkeys(("PYTHONEXECUTABLE", "__PYVENV_LAUNCHER__"), f"{folder}/python"),
        "python-startup": {"PYTHONSTARTUP": str(folder / "startup.py"), "PYTHONINSPECT": "1"},
        "uv": {"UV_CONFIG_FILE": str(folder / "uv.toml"), "UV_PYTHON": str(folder / "bin" / "python")},
        "git": {"GIT_DIR": str(folder / ".git"), "GIT_CONFIG_GLOBAL": str(folder / ".gitconfig")},
    }


def set_by(name: str, folder: Path, but: Collection[str] = ()) -> dict[str, str]:
    """The variables of one name; or `everything` that a workflow may set, at once, but for some.

    Each trap leaves a mark of its own, so that one run meets them all.
    """
    every = variables(folder)
    if name != "everything":
        return every[name]
    found = {}
    for each, value in every.items():
        found |= {} if each in {"relative-path", *but} else value
    return found | {"PATH": f".:bin:{found['PATH']}"}


def marks_in(marks: Path) -> list[str]:
    """What has run."""
    return sorted(path.name for path in marks.iterdir())
