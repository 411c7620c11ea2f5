"""Reads from what starts a program how many ranks there are: torchrun, the command of Slurm, and its lines."""

from __future__ import annotations

import re

from trainspec_validate.interop.readers._plan_parts import Default, Draft, is_count

_SLURM = re.compile(r"(?m)^#SBATCH[ \t]+(?:--([a-z-]+)[= ][ \t]*|-([NnG])[ \t]*)([0-9]+)")
_SHORT = {"N": "nodes", "n": "ntasks", "G": "gpus"}
_TASKS = re.compile(r"--(nodes|ntasks|ntasks-per-node|gpus-per-node)(?:=(.*))?|-([NnG])(.*)", re.DOTALL)
_STARTS_RANKS = re.compile(
    r"torchrun|torch[._]distributed|torch\.distributed|\bdeepspeed\b|accelerate launch|ft_launcher|mpirun"
)
"""Launchers that start the ranks of a node themselves: tasks of Slurm are no ranks then."""
_TORCHRUN = re.compile(r"torchrun|torch\.distributed\.(?:run|launch)")
_COMMENT = re.compile(r"(?m)^[ \t]*#.*$")
LAUNCHER = "$launcher"
"""Under which what starts the program stands among its options, with the sizes that Slurm is asked for there."""


def launcher_of(text: str) -> str:
    """What starts a program, with the nodes and tasks that `srun` is asked for, of the words before the program.

    >>> launcher_of("srun -l -N 16 --ntasks-per-node=4 -n $TASKS python"), launcher_of("srun torchrun")
    ('srun nodes=16 ntasks-per-node=4 ntasks=open', 'torchrun')
    """
    started, words = _STARTS_RANKS.search(text), text.split()
    if started or "srun" not in words:
        return started[0] if started else words[0].rpartition("/")[2][:60] if words else "none"
    asked = ["srun"]
    for word, following in zip(words, [*words[1:], ""], strict=True):
        found = _TASKS.fullmatch(word)
        if found:
            size = (found[2] or found[4] or following).lstrip("=")
            key = found[1] or _SHORT[found[3]]
            asked.append(f"{key}={size if size.isdecimal() and len(size) < 10 else 'open'}")
    return " ".join(asked)


def slurm_sizes(text: str) -> dict[str, int]:
    """What the lines for Slurm ask for, by option."""
    return {found[1] or _SHORT[found[2]]: int(found[3][:9]) for found in _SLURM.finditer(text)}


def _asked(launcher: str) -> dict[str, int]:
    """What a command asks Slurm for, by option."""
    pairs = [word.partition("=") for word in launcher.split()[1:]]
    return {key: int(value) if value.isdecimal() else 0 for key, _, value in pairs}


def started_ranks(draft: Draft, text: str) -> tuple[int | None, str]:
    """Ranks by what starts the processes: torchrun, the logged arguments, or the lines for Slurm."""
    stated = draft.count("world_size")
    if stated:
        return stated, "world_size of the logged arguments"
    per_node = draft.count("nproc_per_node", "num_gpus")
    nodes = draft.count("nnodes", "num_nodes")
    launcher = draft.word(LAUNCHER) or ""
    said = launcher if launcher.startswith("srun ") else _COMMENT.sub("", text)
    slurm = {} if _STARTS_RANKS.search(said) else {**slurm_sizes(text), **_asked(launcher)}
    if per_node is None:
        per_node = next(
            (slurm[key] for key in ("ntasks-per-node", "gpus-per-node") if key in slurm and is_count(slurm[key])), None
        )
    if nodes is None:
        nodes = {**slurm_sizes(text), **_asked(launcher)}.get("nodes")
    open_nodes = draft.reasons("nnodes") or draft.reasons("num_nodes")
    several = bool(open_nodes) or draft.look("nnodes", "num_nodes") is not None
    if per_node and nodes is None and not several and _TORCHRUN.search(said):
        return per_node, Default(f"{per_node} processes of a node, and one node, the default of torchrun")
    if per_node and nodes is None and not several and "deepspeed" in said and draft.look("num_gpus") is not None:
        why = f"{per_node} accelerators of each node that the hostfile of deepspeed lists, or of this one without it"
        draft.lacks(("parallelism", "num_accelerators"), why)
        return None, ""
    if per_node and is_count(nodes) and nodes is not None:
        return per_node * nodes, f"{nodes} nodes x {per_node} processes of a node, from what starts the processes"
    processes = draft.count("num_processes")
    if processes and nodes and nodes > 1:
        told = f"num_processes is {processes}, with {nodes} nodes: nothing shows whether each node starts as many"
        draft.lacks(("parallelism", "num_accelerators"), f"{processes} or {processes * nodes}: {told}")
    elif processes:
        return processes, "num_processes of the command"
    if is_count(slurm.get("ntasks")):
        return slurm["ntasks"], "tasks that Slurm is asked for"
    return None, ""
