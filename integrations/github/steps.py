"""The steps of the two actions: install the program, take the settings of the target branch, run the program."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path

from job import ActionError, Job, call
from log import say
from target import TargetBranch, target_of

ROOT = Path(__file__).resolve().parents[2]
"""The checkout of the action."""
_RELEASE = re.compile(r"[0-9]+(\.[0-9]+)*((a|b|rc)[0-9]+)?", re.ASCII)
_STACK_VARIABLES = ("PATH", "HOME", "LANG", "LC_ALL", "TMPDIR", "LD_LIBRARY_PATH", "VIRTUAL_ENV", "TZ", "USER")


@dataclass(frozen=True)
class Program:
    """Packages and commands of an action."""

    module: str
    distribution: str
    folders: tuple[str, ...]
    """Directories of this checkout that hold it, and what it needs of the project."""
    lock: str
    directory: str
    """Name of the directory of this action below RUNNER_TEMP."""
    files: frozenset[str]
    """Options whose file decides about a change request, and so is that of its target branch."""


VALIDATOR = Program(
    module="trainspec_validate",
    distribution="trainspec-validate",
    folders=(".",),
    lock="run.txt",
    directory="trainspec",
    files=frozenset({"--waivers", "--baseline", "--rules", "--config"}),
)
SUITE = Program(
    module="trainspec_conformance",
    distribution="trainspec-conformance",
    folders=(".", "record", "reference", "conformance"),
    lock="conformance.txt",
    directory="trainspec-conformance",
    files=frozenset({"--gaps"}),
)


def install(job: Job, program: Program) -> None:
    """Install the program into an environment of its own, from the lock of this checkout.

    Raises:
        ActionError: the input is no version, or the installation fails.
    """
    version = job.input("VERSION")
    if version and not _RELEASE.fullmatch(version):
        raise ActionError("the input version is not a version number")
    shutil.rmtree(job.state, ignore_errors=True)
    job.state.mkdir(parents=True, mode=0o700)
    call([sys.executable, "-I", "-m", "venv", os.fspath(job.state / "environment")], job)
    # no --isolated: it would drop the index that the job names, and what names the workspace is dropped before
    pip = [*_python(job), "-m", "pip", "--quiet", "--disable-pip-version-check", "--no-input", "install"]
    locks = [ROOT / "requirements" / name for name in (program.lock, *(() if version else ("build.txt",)))]
    call([*pip, "--require-hashes", *(f"--requirement={lock}" for lock in locks)], job)
    if version:
        call([*pip, f"{program.distribution}=={version}"], job)
    else:
        folders = [os.fspath(ROOT / folder) for folder in program.folders]
        call([*pip, "--no-deps", "--no-build-isolation", *folders], job)


def settings(job: Job, program: Program) -> None:
    """Copy what decides about a change request from its target branch, and note what the program is to use.

    Raises:
        ActionError: the target branch is unknown or cannot be fetched.
    """
    arguments = [f"--gaps={job.input('GAPS')}"] if job.input("GAPS") else []
    arguments += job.lines("ARGS")
    name = target_of(job)
    if name is None:
        say("settings: those of the checkout")
    else:
        branch = TargetBranch(job, name)
        found = branch.copy_settings() if program is VALIDATOR else []
        if program is VALIDATOR:
            branch.copy_documents()
        say(f"settings: those of branch {name} at {branch.commit}: {', '.join(map(ascii, found)) or 'none'}")
        arguments = [*_of_target(arguments, program, branch), f"--settings-from={branch.directory}"]
    (job.state / "arguments.json").write_text(json.dumps(arguments), encoding="utf-8")


def _of_target(arguments: Iterable[str], program: Program, branch: TargetBranch) -> Iterable[str]:
    """The arguments with files of the target branch in place of those of the change request."""
    waiting = iter(arguments)
    for argument in waiting:
        option, equals, value = argument.partition("=")
        if option not in program.files:
            yield argument
            continue
        value = value if equals else next(waiting, "")
        copy = branch.instead_of(value)
        if copy is None:
            say(f"{option} {value!a} is not used: branch {branch.name} has no such file")
            continue
        if option == "--config" and copy.is_relative_to(branch.directory):
            branch.copy_settings(copy.relative_to(branch.directory).as_posix())
        yield f"{option}={copy}"


def validate(job: Job, program: Program) -> None:
    """Run the validator, and set the outputs of the step."""
    sarif = job.state / "trainspec.sarif"
    sarif.unlink(missing_ok=True)
    # Standard output gets annotations and a log by itself. A changed cluster breaks plans outside of the named paths.
    arguments = [f"--format=sarif={sarif}", "--dependents"]
    if job.input("FAIL_ON"):
        arguments.append(f"--fail-on={job.input('FAIL_ON')}")
    code = _run(job, program, [*arguments, *_noted(job), "--", *job.lines("PATHS")], job.trusted)
    job.report(exit_code=str(code), sarif=os.fspath(sarif) if sarif.is_file() else "")


def conform(job: Job, program: Program) -> None:
    """Run the suite, and set the outputs of the step. The stack gets PATH and a few others as the job has them."""
    report = job.input("REPORT")
    arguments = ["run", f"--report={report}", *([f"--profile={job.input('PROFILE')}"] if job.input("PROFILE") else [])]
    arguments += [f"--scenario={name}" for name in job.lines("SCENARIOS")]
    given = {f"TRAINSPEC_STACK_{name}": job.environment.get(name) for name in _STACK_VARIABLES}
    environment = job.trusted | {name: value for name, value in given.items() if value is not None}
    code = _run(job, program, [*arguments, *_noted(job), "--", job.input("STACK")], environment)
    sarif = job.workspace / report / "report.sarif"
    job.report(exit_code=str(code), sarif=os.fspath(sarif) if code != 2 and sarif.is_file() else "")


def _run(job: Job, program: Program, arguments: list[str], environment: dict[str, str]) -> int:
    """Run the program on the workspace; gives its exit code."""
    command = [*_python(job), "-m", program.module, *arguments]
    try:
        done = subprocess.run(command, cwd=job.workspace, env=environment, stdin=subprocess.DEVNULL, check=False)
    except (OSError, ValueError) as error:
        raise ActionError(f"{program.module} cannot be run: {error}") from error
    return done.returncode if done.returncode >= 0 else 128 - done.returncode


def _python(job: Job) -> list[str]:
    """The interpreter of the environment, which takes no module from where it runs and no variable of Python's."""
    return [os.fspath(job.state / "environment" / "bin" / "python"), "-I"]


def _noted(job: Job) -> list[str]:
    """The arguments that the step before has noted."""
    return [str(one) for one in json.loads((job.state / "arguments.json").read_text(encoding="utf-8"))]


STEPS: dict[str, tuple[Program, Callable[[Job, Program], None]]] = {
    "install-validator": (VALIDATOR, install),
    "install-suite": (SUITE, install),
    "settings-of-validator": (VALIDATOR, settings),
    "settings-of-suite": (SUITE, settings),
    "validate": (VALIDATOR, validate),
    "conform": (SUITE, conform),
}
