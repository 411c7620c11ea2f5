"""Reads the sizes that the lines of a batch script ask Slurm for."""

from __future__ import annotations

import re
from collections.abc import Iterator

_DIRECTIVE = re.compile(r"#SBATCH[ \t]+(?P<words>\S.*)")
_HETEROGENEOUS = frozenset({"hetjob", "packjob"})
"""Words of a line that begins the next component of a heterogeneous job."""
_STARTS_SCRIPT = re.compile(r"#![ \t]*/|<<-?[ \t]*[\"']?\w")
"""A first line, and a document, which may be a batch script of its own."""
_SHORT = {"N": "nodes", "n": "ntasks", "G": "gpus"}
_LONG = re.compile(r"--(?P<name>[a-z-]+)(?:=(?P<value>.*))?")
_BRIEF = re.compile(r"-(?P<name>[NnG])=?(?P<value>.*)")
_SIZES = frozenset({"nodes", "ntasks", "ntasks-per-node", "gpus", "gpus-per-node"})
_NUMBER = re.compile(r"[\"']?(?P<least>[0-9]{1,9})(?P<unit>[kKmM]?)(?:-(?P<most>[0-9]{1,9})(?P<of>[kKmM]?))?[\"']?")
_UNITS = {"": 1, "k": 1024, "m": 1024**2}
_NODES = re.compile(r"(?m)^#SBATCH[ \t]+(?:[^#\n]{0,200}[ \t])?(?:--nodes\b|-N)")
_DEVICES = re.compile(
    r"(?m)^#SBATCH[ \t]+(?:[^#\n]{0,200}[ \t])?--(?:gpus-per-node|gres)[= \t]"
    r"(?:gpu:)?(?:[A-Za-z][\w.-]{0,40}:)?([0-9]{1,4})(?![\w:])"
)
OPEN = 0
"""A size that the lines ask for and do not settle."""


def slurm_sizes(text: str) -> dict[str, int]:
    r"""Sizes by option; `OPEN` for a range, and where several jobs of the text differ.

    Lines below the first command of a script are comments to sbatch, and srun starts programs in the first component
    of a heterogeneous job. Source: `man sbatch`, `man srun` of Slurm.

    >>> slurm_sizes("#!/bin/bash\n#SBATCH -N 2 --ntasks-per-node=8 # all\nset -e\n#SBATCH --nodes=4\n")
    {'nodes': 2, 'ntasks-per-node': 8}
    >>> slurm_sizes("#SBATCH --nodes=2-4\n#SBATCH --ntasks=1k\n#SBATCH hetjob\n#SBATCH --nodes=8\n")
    {'nodes': 0, 'ntasks': 1024}
    """
    jobs = [{name: _size(value) for name, value in job.items()} for job in _jobs(text)]
    names = dict.fromkeys(name for job in jobs for name in job)
    every = {name: {job[name] for job in jobs if name in job} for name in names}
    return {name: sizes.pop() if len(sizes) == 1 else OPEN for name, sizes in every.items()}


def devices_per_node(text: str) -> int | None:
    """Accelerators of a node that the lines ask for, be it with a type; None where they name none, or several numbers.

    >>> devices_per_node("#SBATCH --gpus-per-node=mi250:8"), devices_per_node("#SBATCH -N 2 --gres=gpu:a100:4")
    (8, 4)
    """
    found = {int(number) for number in _DEVICES.findall(text)}
    return found.pop() if len(found) == 1 else None


def nodes_told(text: str) -> str:
    """Description of the nodes that the lines ask for where they do not settle the number; else nothing.

    >>> nodes_told("#SBATCH --nodes=2-4"), nodes_told("#SBATCH --nodes=4")
    ('the lines for Slurm ask for 2 to 4 nodes', '')
    """
    nodes = slurm_sizes(text).get("nodes")
    if nodes is None and _NODES.search(text):
        return "sbatch reads no line for Slurm below the first command"
    if nodes != OPEN:
        return ""
    values = list(dict.fromkeys(job["nodes"] for job in _jobs(text) if "nodes" in job))
    found = _NUMBER.fullmatch(values[0]) if len(values) == 1 else None
    if found and found["most"]:
        return f"the lines for Slurm ask for {_number(found, 'least', 'unit')} to {_number(found, 'most', 'of')} nodes"
    return f"the lines for Slurm ask for {' or '.join(value[:40] for value in values[:4])} nodes"


def _jobs(text: str) -> Iterator[dict[str, str]]:
    """The options of each script of a text, as they are written; of a heterogeneous job those of its first part."""
    job, is_read = dict[str, str](), True
    for line in text.split("\n"):
        found = _DIRECTIVE.fullmatch(line.rstrip("\r"))
        if _STARTS_SCRIPT.search(line) and not found:
            yield from [job] if job else []
            job, is_read = {}, True
        elif found and is_read:
            words = _words(found["words"])
            is_read = not _HETEROGENEOUS.intersection(words)
            job.update(_options(words) if is_read else {})
        elif not line.lstrip().startswith("#") and line.strip():
            is_read = False
    yield from [job] if job else []


def _words(text: str) -> list[str]:
    """Words of a line up to its comment."""
    words = text.split()
    return words[: next((k for k, word in enumerate(words) if word.startswith("#")), len(words))]


def _options(words: list[str]) -> dict[str, str]:
    found: dict[str, str] = {}
    for word, following in zip(words, [*words[1:], ""], strict=True):
        option = _LONG.fullmatch(word) or _BRIEF.fullmatch(word)
        name = option and _SHORT.get(option["name"], option["name"])
        if option and name in _SIZES:
            found[name] = option["value"] or following
    return found


def _size(value: str) -> int:
    """A number of a line, with k for 1024; `OPEN` for a range or anything else."""
    found = _NUMBER.fullmatch(value)
    if not found:
        return OPEN
    least = _number(found, "least", "unit")
    return least if not found["most"] or least == _number(found, "most", "of") else OPEN


def _number(found: re.Match[str], digits: str, unit: str) -> int:
    return int(found[digits]) * _UNITS[found[unit].lower()]
