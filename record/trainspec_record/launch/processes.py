"""Reads from a command line which launcher it starts, and how many processes."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import PurePath
from typing import NamedTuple


class Kind(NamedTuple):
    """A launcher, by its words and the options that give numbers of processes."""

    name: str
    words: tuple[str, ...]
    total: tuple[str, ...] = ()
    nodes: tuple[str, ...] = ()
    per_node: tuple[str, ...] = ()


TORCHRUN = Kind(
    "torchrun",
    ("torchrun", "torch.distributed.run"),
    nodes=("--nnodes",),
    per_node=("--nproc-per-node", "--nproc_per_node"),
)
KINDS = (
    TORCHRUN,
    Kind("accelerate", ("accelerate",), ("--num_processes", "--num-processes"), ("--num_machines", "--num-machines")),
    Kind("deepspeed", ("deepspeed",), nodes=("--num_nodes",), per_node=("--num_gpus", "--num_accelerators")),
    Kind("srun", ("srun",), ("-n", "--ntasks"), ("-N", "--nodes"), ("--ntasks-per-node",)),
    Kind(
        "mpirun",
        ("mpirun", "mpiexec", "mpiexec.hydra", "orterun", "prterun"),
        ("-n", "-np", "--np"),
        per_node=("-ppn", "-npernode", "--npernode"),
    ),
)
FOR_ALL_HOSTS = frozenset({"deepspeed", "srun", "mpirun"})
"""Kinds that start processes on all hosts from one; the others are started on each."""
PYTHON_ENDS, TORCHRUN_ENDS = ("-c", "-m"), ("-m", "--module")
"""Options of Python and of torchrun after which comes the training program."""


class Processes(NamedTuple):
    """Number on a command line; None where it says nothing, or no plain number."""

    kind: Kind
    place: int
    """Index of the word after which options of the launcher can appear."""
    options: dict[str, str]
    """Options of the launcher with their values, all with dashes; the empty text for one without."""

    def number(self, options: tuple[str, ...]) -> tuple[int, int] | None:
        """Least and most that some options say."""
        for option in options:
            least, _, most = self.options.get(_dashed(option), "").partition(":")
            if least.isdecimal() and (not most or most.isdecimal()):
                return int(least), int(most or least)
        return None

    @property
    def total(self) -> int | None:
        """Processes of the whole job."""
        told = self.number(self.kind.total)
        if told is not None:
            return told[0]
        nodes, each = self.number(self.kind.nodes), self.number(self.kind.per_node)
        return nodes[0] * each[0] if nodes is not None and each is not None else None


def processes(words: Sequence[str]) -> Processes | None:
    """The last launcher before the training program; None where none is known."""
    found: Processes | None = None
    for place, word in enumerate(words):
        kind = next((each for each in KINDS if PurePath(word).name in each.words), None)
        if kind is not None:
            found = Processes(kind, place, {})
        elif _ends(words, place, found):
            break
        elif found is not None and word.startswith("-"):
            _note(found, words, place)
    return found


def starts_on_all_hosts(words: Sequence[str]) -> bool:
    """Whether one launcher before the training program starts the ranks of all hosts, so that it runs once.

    >>> starts_on_all_hosts(["srun", "torchrun", "train.py"]), starts_on_all_hosts(["torchrun", "train.py"])
    (True, False)
    """
    last = processes(words)
    names = {PurePath(word).name for word in words[: last.place + 1]} if last is not None else set()
    return any(names & set(kind.words) for kind in KINDS if kind.name in FOR_ALL_HOSTS)


def _ends(words: Sequence[str], place: int, found: Processes | None) -> bool:
    """Whether the training program begins here."""
    word, before = words[place], PurePath(words[place - 1]).name if place else ""
    if before.startswith("python") and word in PYTHON_ENDS:
        return (
            not any(words[place + 1] in kind.words for kind in KINDS) if word == "-m" and words[place + 1 :] else True
        )
    return word.endswith(".py") or (found is not None and found.kind is TORCHRUN and word in TORCHRUN_ENDS)


def _note(found: Processes, words: Sequence[str], place: int) -> None:
    word = words[place]
    option, equals, value = word.partition("=")
    if not equals:
        short = next((each for each in (*found.kind.total, *found.kind.nodes) if _is_glued(word, each)), None)
        if short is not None:
            option, value = short, word[len(short) :]
        else:
            value = next(iter(words[place + 1 : place + 2]), "")
            value = "" if value.startswith("-") else value
    found.options.setdefault(_dashed(option), value)


def _is_glued(word: str, option: str) -> bool:
    return len(option) == 2 and word.startswith(option) and word[2:].isdecimal()


def _dashed(option: str) -> str:
    return option[:2] + option[2:].replace("_", "-")
