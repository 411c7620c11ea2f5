"""Reads from what starts a program how many ranks there are: torchrun, deepspeed, Ray, MPI, Slurm and its lines."""

from __future__ import annotations

import re

from trainspec_validate.interop.readers._plan_parts import Default, Draft, is_count
from trainspec_validate.interop.readers._shell_words import cut_words
from trainspec_validate.interop.readers._slurm_sizes import devices_per_node, nodes_told, slurm_sizes
from trainspec_validate.model.finding import Pointer
from trainspec_validate.model.values import bare, cut_to
from trainspec_validate.system.digits import is_digits

_SHORT = {"N": "nodes", "n": "ntasks", "G": "gpus"}
_TASKS = re.compile(r"--(nodes|ntasks|ntasks-per-node|gpus-per-node)(?:=(.*))?|-([NnG])(.*)", re.DOTALL)
_COMPONENT = re.compile(r"--(?:het|pack)-group(?:=(.*))?", re.DOTALL)
"""The parts of a heterogeneous job in which srun starts a program; the first one otherwise."""
_STARTS_RANKS = re.compile(
    r"torchrun|torch[._]distributed|torch\.distributed|(?<!-)\bdeepspeed\b|accelerate launch|ft_launcher|mpirun|mpiexec"
)
"""Launchers that start the ranks of a node themselves: tasks of Slurm are no ranks then."""
_TORCHRUN = re.compile(r"torchrun|torch\.distributed\.(?:run|launch)")
_MPI = re.compile(r"(?:^|\s)(?:mpirun|mpiexec)(?:\s[^\n]{0,400}?)??\s--?(?:np|n)[= ]{1,4}(\S{1,40})")
_PYTHON = re.compile(r"python[0-9.]{0,6}")
_INTERPRETER = re.compile(r"(?:\S{0,400}/)?(?:python|pypy)[0-9.]{0,6}|\S{0,400}\$\S{0,400}", re.IGNORECASE)
"""Python among the words before a program, or a variable that may hold it."""
_PROGRAM = re.compile(r"(?!-)[\w.+/-]{0,400}/[\w.+-]{1,100}")
_SCRIPT = re.compile(r"(?!-)[^\s=]{1,400}\.(?:sh|bash)")
_SRUN = re.compile(r"\bsrun\s")
_COMMENT = re.compile(r"(?m)^[ \t]*#.*$")
_SLOTS = re.compile(r"[0-9]{1,4}(?:,[0-9]{1,4}){0,1023}")
_MANIFEST = re.compile(r"(?m)^kind:[ \t]*[\"']?(\w{1,60})")
_NO_PODS = frozenset({"Pod", "Service", "ConfigMap", "Secret", "Namespace", "PersistentVolumeClaim", "ServiceAccount"})
"""Kinds of manifests that start no pod, or a single one."""
_COPIES = re.compile(r"(?m)^[ \t]*(?:parallelism|completions|replicas|numNodes):")
"""Keys of a manifest that start several copies of a pod."""
_RAY = ("actor_num_nodes", "actor_num_gpus_per_node")
"""Arguments of programs that Ray runs: where the actors that train are placed."""
_VALUED = re.compile(r"--[A-Za-z][\w-]*$|-[A-Za-z]$")
ONE_NODE = "the default of torchrun"
LAUNCHER = "$launcher"
"""Under which the starter of the program appears among its options, with the sizes that Slurm is asked for there."""
LAUNCHER_SIZE = frozenset({"nproc_per_node", "nnodes", "num_gpus", "num_nodes"})
"""Options of launchers that set how many processes they start."""
LAUNCHER_OPTIONS = LAUNCHER_SIZE | {
    *("num_processes", "num_machines", "config_file", "node_rank", "master_addr", "master_port", "rdzv_id"),
    *("rdzv_backend", "rdzv_endpoint", "standalone"),
    *("log_dir", "redirects", "tee", "max_restarts", "hostfile", "machine_rank", "role", "local_addr"),
    *("multi_gpu", "use_fsdp", "use_deepspeed"),
}
"""Options of launchers, which a training program does not take."""


def launcher_of(text: str) -> str:
    """Launcher in the words before a program, with the nodes and tasks that `srun` is asked for.

    >>> launcher_of("srun -l -N 16 --ntasks-per-node=4 -n $TASKS python"), launcher_of("srun torchrun")
    ('srun nodes=16 ntasks-per-node=4 ntasks=open', 'torchrun')
    """
    started, words = _STARTS_RANKS.search(text), cut_words(text)
    if started and started[0].startswith("mpi"):
        ranks = _MPI.search(text)
        return f"{started[0]} ranks={_size(ranks[1])}" if ranks else started[0]
    elsewhere = "srun" in words and _is_elsewhere(words)
    if started and _further(words):
        return f"{started[0]} {_further(words)}"
    if started and elsewhere:
        return f"{started[0]} nodes=open"
    if started or "srun" not in words:
        return started[0] if started else words[0].rpartition("/")[2][:60] if words else "none"
    asked = ["srun", *(f"script={name}" for name in _scripts(words)[:1])]
    for word, following in zip(words, [*words[1:], ""], strict=True):
        found = _TASKS.fullmatch(word)
        if found:
            size = (found[2] or found[4] or following).lstrip("=")
            key = found[1] or _SHORT[found[3]]
            asked.append(f"{key}={_size(size)}")
    return " ".join([*asked, "nodes=open", "ntasks=open"] if elsewhere else asked)


def _scripts(words: list[str]) -> list[str]:
    """The scripts among the words after srun, which may start any number of processes.

    So may a program in place of Python right before the one that trains.
    """
    following = words[words.index("srun") + 1 :]
    named = [word.rpartition("/")[2][:40] for word in following if _SCRIPT.fullmatch(word)]
    if named or any(_INTERPRETER.fullmatch(word) for word in following):
        return named
    before, last = ["", "", *following][-2:]
    is_program = _PROGRAM.fullmatch(last) and not _VALUED.match(before)
    return [last.rpartition("/")[2][:40]] if is_program else []


def _starter(launcher: str, text: str) -> str:
    """The launcher; where none is before the program, that of the first line in which srun starts a script."""
    if launcher not in {"", "none"}:
        return launcher
    lines = (line for line in _COMMENT.sub("", text).replace("\\\n", " ").split("\n") if _SRUN.search(line))
    return next((found for line in lines if " script=" in (found := launcher_of(line))), launcher)


def _is_elsewhere(words: list[str]) -> bool:
    """Whether srun starts a program in other parts of a heterogeneous job than the first."""
    pairs = zip(words, [*words[1:], ""], strict=True)
    asked = [found[1] or following for word, following in pairs if (found := _COMPONENT.fullmatch(word))]
    return any(value != "0" for value in asked)


def _further(words: list[str]) -> str:
    """A word that may hold further options of the launcher; empty where each is an option or the value of one."""
    pairs = zip(["", *words], words, strict=False)
    found = (word for before, word in pairs if word.startswith("$") and not _VALUED.match(before))
    return next((word[:60] for word in found if not word.startswith(("$(", "${")) or word.endswith("}")), "")


def _size(text: str) -> str:
    return text if is_digits(text) and len(text) < 10 else "open"


def _asked(launcher: str) -> dict[str, int]:
    """What a command asks Slurm or MPI for, by option."""
    pairs = [word.partition("=") for word in launcher.split()[1:]]
    return {key: int(value) if is_digits(value) else 0 for key, _, value in pairs}


def included_slots(text: str) -> int | None:
    """The accelerators that `--include` of deepspeed names; None where a host has no list of them.

    >>> included_slots("localhost:0,1,2,3"), included_slots("worker-0@worker-1:0,2"), included_slots("a:0@b:0,2")
    (4, None, 3)
    """
    hosts = [host.partition(":")[2] for host in text.split("@")]
    if not all(_SLOTS.fullmatch(slots) for slots in hosts):
        return None
    return sum(len(set(slots.split(","))) for slots in hosts)


def started_ranks(draft: Draft, text: str) -> tuple[int | None, str]:
    """Ranks by what starts the processes; where they are not known, the draft has the reason."""
    stated = draft.count("world_size")
    if stated:
        return stated, "world_size of the logged arguments"
    launcher = draft.word(LAUNCHER) or ""
    if any(name in draft.values for name in _RAY):
        return _of_ray(draft)
    if "deepspeed" in launcher and draft.values.get("include") is not None:
        return _of_included(draft)
    several = "" if LAUNCHER_SIZE & draft.values.keys() else _why_several(_starter(launcher, text), text)
    _leave_open(draft, several)
    found = (None, "") if several else _of_sizes(draft, text, launcher)
    if found[0] is None:
        _leave_open(draft, _why_open(draft, launcher, text))
    return found


def launched(draft: Draft) -> frozenset[Pointer]:
    """Facts that rest on a default of the launcher, which no default of the program changes."""
    how = draft.derived.get(("parallelism", "num_accelerators"), "")
    return frozenset({("parallelism", "num_accelerators")} if ONE_NODE in how else ())


def _leave_open(draft: Draft, why: str) -> None:
    if why:
        draft.lacks(("parallelism", "num_accelerators"), why)


def _of_ray(draft: Draft) -> tuple[int | None, str]:
    """Ranks of the actors that train, of which slime (THUDM/slime:slime/utils/arguments.py) takes nodes and sizes."""
    counts = [draft.count(name) for name in _RAY]
    if counts[0] and counts[1]:
        return counts[0] * counts[1], f"{counts[0]} nodes x {counts[1]} accelerators of each, on which actors train"
    given = ", ".join(f"{name} {count}" for name, count in zip(_RAY, counts, strict=True) if count)
    reason = next(iter(draft.reasons(*_RAY)), "the other one of the two has a default of the program")
    _leave_open(draft, f"{given}; {reason}" if given else reason)
    return None, ""


def _of_included(draft: Draft) -> tuple[int | None, str]:
    """Ranks by the accelerators that a command of deepspeed names."""
    named = draft.look("include")
    slots = included_slots(named) if isinstance(named, str) else None
    if slots is not None:
        return slots, "accelerators that include of deepspeed names"
    reason = next(iter(draft.reasons("include")), "")
    if not reason and "$" in str(named):
        reason = f"include of deepspeed is {cut_to(bare(named), 60)}, which is not resolved"
    _leave_open(
        draft,
        reason or f"include of deepspeed is {cut_to(bare(named), 60)}, which lists no accelerators of each host",
    )
    return None, ""


def _of_sizes(draft: Draft, text: str, launcher: str) -> tuple[int | None, str]:
    """Ranks by nodes and processes of a node, or by tasks."""
    per_node = draft.count("nproc_per_node", "num_gpus")
    nodes = draft.count("nnodes", "num_nodes")
    said = launcher if launcher == "srun" or launcher.startswith(("srun ", "mpi")) else _COMMENT.sub("", text)
    if is_count(asked := _asked(launcher).get("ranks")) and per_node is None:
        return asked, f"ranks that {launcher.split(maxsplit=1)[0]} is asked for"
    slurm = {} if _STARTS_RANKS.search(said) else {**slurm_sizes(text), **_asked(launcher)}
    if per_node is None and not draft.reasons("nproc_per_node", "num_gpus"):
        per_node = next(
            (slurm[key] for key in ("ntasks-per-node", "gpus-per-node") if key in slurm and is_count(slurm[key])), None
        )
    if nodes is None:
        nodes = {**slurm_sizes(text), **_asked(launcher)}.get("nodes")
    open_nodes = draft.reasons("nnodes") or draft.reasons("num_nodes")
    several = bool(open_nodes) or draft.look("nnodes", "num_nodes") is not None
    if per_node and nodes is None and not several and _TORCHRUN.search(said):
        further = launcher.partition(" ")[2]
        if why := _more_nodes(text) or (f"{further} may say how many nodes" if further else ""):
            _leave_open(draft, f"{per_node} processes of each node: {why}")
            return None, ""
        return per_node, Default(f"{per_node} processes of a node, and one node, {ONE_NODE}")
    if per_node and nodes is None and not several and "deepspeed" in said and draft.look("num_gpus") is not None:
        _leave_open(draft, f"{per_node} accelerators of {_hosts(draft)}")
        return None, ""
    if per_node and is_count(nodes) and nodes is not None:
        return per_node * nodes, f"{nodes} nodes x {per_node} processes of a node, from what starts the processes"
    processes = draft.count("num_processes")
    machines = draft.count("num_machines") if "accelerate" in launcher else None
    if processes and machines and machines == nodes:
        return processes, f"num_processes of the command, for all of its {machines} machines"
    if processes and nodes and nodes > 1:
        told = f"num_processes is {processes}, with {nodes} nodes: nothing shows whether each node starts as many"
        draft.lacks(("parallelism", "num_accelerators"), f"{processes} or {processes * nodes}: {told}")
    elif processes:
        return processes, "num_processes of the command"
    if is_count(slurm.get("ntasks")):
        return slurm["ntasks"], "tasks that Slurm is asked for"
    return None, ""


def _why_several(launcher: str, text: str) -> str:
    """Why a task of Slurm may start several ranks; empty where it starts one for each accelerator of a node.

    A script that srun starts may call a launcher, which starts the ranks of a node itself. Where nothing asks for
    tasks, a node has one (`man sbatch` of Slurm).
    """
    script = next((word.partition("=")[2] for word in launcher.split() if word.startswith("script=")), "")
    slurm = {**slurm_sizes(text), **_asked(launcher)}
    nodes, whole = slurm.get("nodes"), slurm.get("ntasks", 0)
    tasks = slurm.get("ntasks-per-node", 0 if "ntasks" in slurm else 1)
    if not tasks and nodes and whole % nodes == 0:
        tasks = whole // nodes
    devices = devices_per_node(text) or slurm.get("gpus-per-node")
    if not script or not (tasks or whole) or tasks == devices:
        return ""
    ranks = whole or tasks * (nodes or 0)
    most = f"{devices * nodes:,}" if devices and nodes else "more"
    return (
        (f"{ranks:,} or {most}: " if ranks else "")
        + (f"srun starts {script} as {tasks or whole} {'task' if (tasks or whole) == 1 else 'tasks'}")
        + (" of each node, which has " if tasks else ", with ")
        + (f"{devices} accelerators" if devices else "an unknown number of accelerators")
        + "; the script, which is not read, may start several processes"
    )


def _more_nodes(text: str) -> str:
    """What may give torchrun more nodes than its own default; empty where nothing does."""
    single = _NO_PODS | ({"Job"} if not _COPIES.search(text) else set())
    if kind := next((kind for kind in _MANIFEST.findall(text) if kind not in single), ""):
        return f"the command leaves the number of nodes to the {kind} of the manifest"
    return "PET_NNODES of the environment may say how many nodes" if "PET_NNODES" in text else ""


def _hosts(draft: Draft) -> str:
    """The hosts on which deepspeed starts processes."""
    file = draft.word("hostfile")
    if draft.reasons("hostfile"):
        return "each host in the hostfile, whose name is not resolved"
    return (
        f"each host in {cut_to(file, 80)}, which is not read"
        if file
        else "each host in /job/hostfile, or of this one alone"
    )


def _why_open(draft: Draft, launcher: str, text: str) -> str:
    """Why the number of ranks is not known; empty where nothing in the source bears on it."""
    told = f"; {asked}" if (asked := nodes_told(text)) else ""
    per_node = draft.count("nproc_per_node", "num_gpus")
    open_size = draft.reasons("nproc_per_node", "num_gpus")
    open_nodes = draft.reasons("nnodes", "num_nodes")
    if open_size:
        return f"{'nproc_per_node' if draft.reasons('nproc_per_node') else 'num_gpus'}: {open_size[0]}"
    if per_node and open_nodes:
        return f"{per_node} processes of each node; nnodes: {open_nodes[0]}{told}"
    if per_node:
        return f"{per_node} processes of each node{told or '; the number of nodes is not given'}"
    if reasons := draft.reasons("num_processes"):
        return f"num_processes: {reasons[0]}"
    if _TORCHRUN.search(launcher):
        return "torchrun is given no nproc_per_node: 1 process of each node by default, or what PET_NPROC_PER_NODE says"
    if "deepspeed" in launcher:
        but = "" if draft.look("exclude") is None else " but those that exclude names"
        return f"deepspeed is given no num_gpus: it takes every accelerator of {_hosts(draft)}{but}"
    if "accelerate" in launcher:
        return "accelerate is given no num_processes: its configuration says it, or the accelerators that it finds"
    if _PYTHON.fullmatch(launcher):
        return f"{launcher} starts one process, which decides on how many of the accelerators that it finds it runs"
    if "=open" in launcher:
        return f"{launcher.split(maxsplit=1)[0]} is given a number of tasks that is not resolved"
    return asked
