"""The only place that turns words of a command into options, and reads from them how many ranks are started."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass

from trainspec_validate.interop.readers._plan_parts import MAX_LISTED, Draft, is_count, shown, word_value
from trainspec_validate.interop.readers._shell_commands import Script, Word, read_script

_SEVERAL = frozenset(
    {"rampup_batch_size", "data_path", "split", "recompute_modules", "train_data_path", "cp_comm_type"}
)
"""Options that take several words."""
_SLURM = re.compile(r"(?m)^#SBATCH[ \t]+(?:--([a-z-]+)[= ][ \t]*|-([NnG])[ \t]*)([0-9]+)")
_SHORT = {"N": "nodes", "n": "ntasks", "G": "gpus"}
_LAUNCHER_SIZE = frozenset({"nproc_per_node", "nnodes", "num_gpus", "num_nodes"})
_LAUNCHER = _LAUNCHER_SIZE | {
    *(
        "num_processes",
        "num_machines",
        "config_file",
        "node_rank",
        "master_addr",
        "master_port",
        "rdzv_id",
        "rdzv_backend",
        "rdzv_endpoint",
        "standalone",
    ),
    *("log_dir", "redirects", "tee", "max_restarts", "hostfile", "machine_rank", "role", "local_addr"),
}


@dataclass(frozen=True, slots=True)
class Option:
    """The value of an option and where it stands."""

    value: object
    line: int


Options = Mapping[str, Option]


def draft_of(found: Options) -> Draft:
    """A draft of options, by name with underscores."""
    values = {name: option.value for name, option in found.items()}
    return Draft(values, lambda names: {name: found[name].line for name in names if name in found})


def draft_of_script(text: str, pattern: re.Pattern[str], fewest: int) -> tuple[Draft, Script] | None:
    """A draft of the options of a script's main command, with remarks on what is not certain in it.

    Raises:
        ForeignFormatError: the script is cut off in a quote, or grows beyond bounds.
    """
    script = read_script(text)
    words = _best_command(script, pattern, fewest)
    if words is None:
        return None
    found, doubled = _options(words)
    draft = draft_of(found)
    for name, line in doubled:
        draft.remark(f"--{name} is given several times with different values; the last one counts", line)
    if script.conditions:
        draft.remark("branches and loops are read as if each ran once, in order", script.conditions[0])
    if script.defaults:
        taken = ", ".join(f"{name}={shown(value)}" for name, value in sorted(script.defaults.items())[:MAX_LISTED])
        draft.remark(f"the script's own defaults were taken for what may come from outside: {taken}")
    settings = script.variables.get("PYTORCH_CUDA_ALLOC_CONF", "") + script.variables.get("PYTORCH_ALLOC_CONF", "")
    if "expandable_segments:true" in settings.lower():
        draft.put(("memory", "allocator"), "expandable-segments", "PYTORCH_CUDA_ALLOC_CONF of the script")
    return draft, script


def _best_command(script: Script, pattern: re.Pattern[str], fewest: int) -> list[Word] | None:
    """The command with the most different options that match; all words where no command has enough of them."""

    def score(command: list[Word]) -> int:
        return len({word.text.partition("=")[0] for word in command if pattern.match(word.text.rstrip(":") + " ")})

    assigned = [
        [Word(text, script.places[name]) for text in value.split()]
        for name, value in script.variables.items()
        if "--" in value
    ]
    best = max(script.commands, key=score, default=[])
    if score(best) == 0:
        # A file of arguments that another script reads in.
        best = [word for words in assigned for word in words]
    elif best[0].text.startswith("--"):
        best = [word for command in script.commands if command[0].text.startswith("--") for word in command]
    elif score(best) < fewest:
        best = [word for command in script.commands for word in command]
    return best if score(best) else None


def _options(words: Iterable[Word]) -> tuple[dict[str, Option], list[tuple[str, int]]]:
    """Arguments by name with underscores; and those that stand there twice with different values."""
    options: dict[str, Option] = {}
    doubled: list[tuple[str, int]] = []
    for name, line, values in _grouped(words):
        several = name in _SEVERAL and len(values) > 1
        value: object = [word_value(item) for item in values] if several else True
        if values and not several:
            value = word_value(values[0])
        if name in options and options[name].value != value:
            doubled.append((name.replace("_", "-"), line))
        options[name] = Option(value, line)
    return options, doubled


def _grouped(words: Iterable[Word]) -> Iterator[tuple[str, int, list[str]]]:
    """Every `--name` with the words up to the next one."""
    name, line = "", 0
    values: list[str] = []
    for word in words:
        if word.text.startswith("--") and len(word.text) > 2:
            if name:
                yield name, line, values
            stem, _, value = word.text[2:].rstrip(":").partition("=")
            name, line, values = stem.replace("-", "_"), word.line, [value] if value else []
        elif name and not (word.text.endswith(".py") and name in _LAUNCHER):
            values.append(word.text)
    if name:
        yield name, line, values


def started_ranks(draft: Draft, text: str) -> tuple[int | None, str]:
    """Ranks by what starts the processes: torchrun, the logged arguments, or the lines for Slurm."""
    draft.used.update(_LAUNCHER)
    stated = draft.count("world_size")
    if stated:
        return stated, "world_size of the logged arguments"
    per_node = draft.count("nproc_per_node", "num_gpus")
    nodes = draft.count("nnodes", "num_nodes")
    slurm = {found[1] or _SHORT[found[2]]: int(found[3][:9]) for found in _SLURM.finditer(text)}
    if per_node is None:
        per_node = next(
            (slurm[key] for key in ("ntasks-per-node", "gpus-per-node") if key in slurm and is_count(slurm[key])), None
        )
    if nodes is None:
        nodes = slurm.get("nodes")
    if per_node and is_count(nodes) and nodes is not None:
        return per_node * nodes, f"{nodes} nodes x {per_node} processes of a node, from what starts the processes"
    processes = draft.count("num_processes")
    if processes:
        return processes, "num_processes of the command"
    if is_count(slurm.get("ntasks")):
        return slurm["ntasks"], "tasks that Slurm is asked for"
    return None, ""
