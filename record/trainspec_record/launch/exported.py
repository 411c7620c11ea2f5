"""Reads the processes of a plan and their environment from `trainspec export`."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import NamedTuple

from trainspec_record.launch.shell import Assignment, assignments, read_small, torchrun_words

TIMEOUT_SECONDS = 120.0
TORCHRUN, ENVIRONMENTS = "torchrun.sh", ("nccl-env.sh", "xla-flags.sh")
_NAME = re.compile(r"TrainingPlan (?P<name>[^\s,]+?)[.,]?(\s|$)")
_REFUSED = re.compile(r"^Error: (?P<format>[a-z-]+): (?P<why>.*)$", re.MULTILINE)


class Exported(NamedTuple):
    """Content of a plan, as far as launchers can carry it out."""

    plan: str | None = None
    """Name of the plan."""
    num_nodes: int | None = None
    ranks_per_node: int | None = None
    torchrun: tuple[str, ...] = ()
    """Options of torchrun, with variables that are not filled in."""
    environment: tuple[Assignment, ...] = ()
    notes: tuple[str, ...] = ()
    """Settings of the plan that no environment can express."""

    @property
    def num_ranks(self) -> int | None:
        """Processes of the job; None where no launcher can be given them."""
        return self.num_nodes * self.ranks_per_node if self.num_nodes and self.ranks_per_node else None


def export(plan: Path, cluster: Path | None, policy: Path | None) -> Exported:
    """Ask `trainspec export` about a plan.

    Raises:
        ValueError: the program is not there, or refuses the documents.
    """
    program = _program()
    named = {"--cluster": cluster, "--policy": policy}
    options = [word for option, path in named.items() if path is not None for word in (option, str(path))]
    with tempfile.TemporaryDirectory(prefix="trainspec-") as place:
        command = [program, "export", str(plan), *options, "--to", "all", "--output", place]
        try:
            done = subprocess.run(  # noqa: S603, RUF100 - the arguments are paths
                command, capture_output=True, text=True, timeout=TIMEOUT_SECONDS, check=False
            )
        except (OSError, subprocess.SubprocessError) as error:
            raise ValueError(f"{program} export: {error}") from error
        told = _REFUSED.findall(done.stderr)
        if done.returncode and "torchrun" not in dict(told):
            raise ValueError(f"`trainspec export` refuses the plan:\n{done.stderr.strip()}")
        found = read_exported(Path(place))
    notes = [line for line in done.stderr.splitlines() if line.startswith(("note: nccl-env:", "note: xla-flags:"))]
    refused = [f"note: {name}: {why}" for name, why in told if name == "torchrun"]
    return found._replace(notes=(*notes, *refused))


def _program() -> str:
    beside = Path(sys.executable).parent
    found = shutil.which("trainspec", path=str(beside)) or shutil.which("trainspec")
    if found is None:
        raise ValueError("there is no program `trainspec` to ask about the plan; pass what it exported with --exported")
    return found


def read_exported(folder: Path) -> Exported:
    """Content of a directory of exported files.

    Raises:
        ValueError: a file is not as `trainspec export` writes it, or there is none.
    """
    try:
        variables = [each for name in ENVIRONMENTS if (folder / name).exists() for each in assignments(folder / name)]
        script = folder / TORCHRUN
        words = tuple(torchrun_words(script)) if script.exists() else ()
        header = next((path for name in (TORCHRUN, *ENVIRONMENTS) if (path := folder / name).exists()), None)
        match = _NAME.search(read_small(header)) if header else None
    except OSError as error:
        raise ValueError(f"{error.filename}: {error.strerror}") from error
    return Exported(
        plan=match["name"] if match else None,
        num_nodes=_number(words, "--nnodes"),
        ranks_per_node=_number(words, "--nproc-per-node"),
        torchrun=words,
        environment=tuple(variables),
    )


def _number(words: tuple[str, ...], option: str) -> int | None:
    values = [word.partition("=")[2] for word in words if word.startswith(f"{option}=")]
    return int(values[0]) if values and values[0].isdecimal() else None
