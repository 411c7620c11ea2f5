"""Combines a plan, a command line and an environment, and refuses contradictions."""

from __future__ import annotations

import os
import shlex
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from trainspec_record import printing
from trainspec_record.begin import DOCUMENTS, SAMPLER
from trainspec_record.identity import DEFAULT_DIRECTORY, VARIABLE, identity
from trainspec_record.launch.child import NOT_EXECUTABLE, NOT_FOUND, end_as, run_child
from trainspec_record.launch.exported import Exported, export, read_exported
from trainspec_record.launch.processes import TORCHRUN, Processes, processes, starts_on_all_hosts
from trainspec_record.launch.shell import filled
from trainspec_record.redaction import REDACT, read_key
from trainspec_record.values import name as plain_name

if TYPE_CHECKING:
    from trainspec_record.endpoint.serve import Address

MEETING = ("--standalone", "--master-", "--node-rank", "--rdzv-")
"""Options that say how the nodes of torchrun find each other."""
OWN_STORE = "TORCH_DISABLE_SHARE_RDZV_TCP_STORE"
"""Workers that torchrun starts again read addresses of dead ones without it: pytorch/pytorch issue 135712."""
AGENT_SECONDS = 10.0


class Wishes(NamedTuple):
    """Settings on the command line of the launcher."""

    words: tuple[str, ...]
    plan: Path | None = None
    exported: Path | None = None
    cluster: Path | None = None
    policy: Path | None = None
    run: str | None = None
    redact: Path | None = None
    wants_agent: bool = False
    is_dry: bool = False
    metrics_address: Address | None = None


class Start(NamedTuple):
    """Processes that will be started."""

    words: tuple[str, ...]
    changes: dict[str, str]
    """Variables that are set on top of the environment."""
    notes: tuple[str, ...] = ()


def launch(wishes: Wishes, environment: Mapping[str, str]) -> int:
    """Start the command of a wish, and end as it ends; the exit code.

    Raises:
        ValueError: the plan, the command line and the environment do not go together.
    """
    if not wishes.words:
        raise ValueError("name the command to start: trainspec-record launch -- torchrun train.py")
    start = prepare(wishes, environment)
    for note in start.notes:
        printing.tell(note)
    if wishes.is_dry:
        lines = [f"export {name}={shlex.quote(value)}" for name, value in sorted(start.changes.items())]
        printing.emit("\n".join([*lines, shlex.join(start.words)]) + "\n")
        return 0
    whole = {**environment, **start.changes}
    with _endpoint(wishes.metrics_address, start.words, whole):
        return _run(start, whole, wants_agent=wishes.wants_agent)


def prepare(wishes: Wishes, environment: Mapping[str, str]) -> Start:
    """Processes to be started for a wish.

    Raises:
        ValueError: the plan, the command line and the environment do not go together.
    """
    exported = Exported()
    if wishes.plan is not None:
        exported = export(wishes.plan, wishes.cluster, wishes.policy)
    elif wishes.exported is not None:
        exported = read_exported(wishes.exported)
    told = processes(wishes.words)
    _check(exported, told, environment)
    words = _completed(wishes.words, exported, told, environment)
    changes, notes = _variables(exported, environment)
    if told is not None and told.kind is TORCHRUN:
        changes.setdefault(OWN_STORE, environment.get(OWN_STORE, "1"))
    changes[VARIABLE] = str(_folder(wishes, exported, processes(words), environment))
    documents = [str(path.resolve()) for path in (wishes.plan, wishes.cluster, wishes.policy) if path is not None]
    if documents:
        changes[DOCUMENTS] = os.pathsep.join(documents)
    if wishes.wants_agent:
        changes[SAMPLER] = "none"
    if wishes.redact is not None:
        read_key(wishes.redact)
        changes[REDACT] = str(wishes.redact.resolve())
    return Start(words, changes, (*exported.notes, *notes))


# --- numbers of processes -----------------------------------------------------------------------------------


def _counted(amount: int, noun: str) -> str:
    return f"1 {noun}" if amount == 1 else f"{amount} {noun}{'es' if noun.endswith('s') else 's'}"


def _check(exported: Exported, told: Processes | None, environment: Mapping[str, str]) -> None:
    """Refuse a command that starts another number of processes than the plan has ranks.

    Raises:
        ValueError: it does.
    """
    nodes, each, ranks = exported.num_nodes, exported.ranks_per_node, exported.num_ranks
    if nodes is None or each is None or ranks is None:
        return
    plan = " ".join(("the plan", *filter(None, [exported.plan])))
    plan += f" has {_counted(nodes, 'node')} of {_counted(each, 'rank')}"
    if told is None:
        who = identity({VARIABLE: "runs/any", **environment})
        size = who.world_size if who is not None and who.launcher is not None else None
        if size is not None and size not in {ranks, nodes}:
            started = f"{who.launcher if who else ''} started {_counted(size, 'process')}"
            raise ValueError(f"{plan}, and {started}; change one of them")
        return
    for what, where, options, wanted in (
        ("node", "", told.kind.nodes, nodes),
        ("process", " on a node", told.kind.per_node, each),
    ):
        found = told.number(options)
        if found is not None and told.kind is TORCHRUN and not found[0] <= wanted <= found[1]:
            raise ValueError(
                f"{plan}, and the command starts {_counted(found[0], what)}{where}; leave {options[0]} out, "
                "or change the plan"
            )
    if told.total is not None and told.kind is not TORCHRUN and told.total not in {ranks, nodes}:
        raise ValueError(f"{plan}, and {told.kind.name} starts {_counted(told.total, 'process')}; change one of them")


def _completed(
    words: tuple[str, ...], exported: Exported, told: Processes | None, environment: Mapping[str, str]
) -> tuple[str, ...]:
    """The command with what torchrun was not told, from the plan.

    Raises:
        ValueError: the plan needs a variable that is not set.
    """
    if told is None or told.kind is not TORCHRUN:
        return words
    is_met = any(option.startswith(MEETING) for option in told.options)
    missing = [
        word
        for word in exported.torchrun
        if word.partition("=")[0] not in told.options and not (is_met and word.startswith(MEETING))
    ]
    place = told.place + 1
    return (*words[:place], *filled(missing, environment), *words[place:])


# --- environment --------------------------------------------------------------------------------------------


def _variables(exported: Exported, environment: Mapping[str, str]) -> tuple[dict[str, str], list[str]]:
    """What the plan sets; what somebody has set already stays."""
    changes: dict[str, str] = {}
    notes = []
    for name, value, is_appended in exported.environment:
        before = changes.get(name, environment.get(name))
        if is_appended:
            known = (before or "").split()
            changes[name] = " ".join([*known, *(word for word in value.split() if word not in known)])
        elif before is None:
            changes[name] = value
        elif before != value:
            notes.append(f"{name} stays {before!r}, as it is set; the plan asks for {value!r}")
    return changes, notes


def _folder(wishes: Wishes, exported: Exported, told: Processes | None, environment: Mapping[str, str]) -> Path:
    """Directory of the run, the same on all nodes.

    Raises:
        ValueError: nothing gives the nodes a common name.
    """
    where = wishes.run or environment.get(VARIABLE, "").strip() or DEFAULT_DIRECTORY
    if not where.endswith("/"):
        return Path(where).absolute()
    who = identity({**environment, VARIABLE: where})
    told_name = told.options.get("--rdzv-id", "") if told is not None else ""
    if told_name:
        return Path(where).absolute() / plain_name(told_name).replace("/", "-")
    if who is not None and who.folder.name != "run":
        return who.folder.absolute()
    if (exported.num_nodes or 1) > 1:
        raise ValueError("the nodes need one name for the run: name its directory with --run")
    what = plain_name(exported.plan or _program(wishes.words)).replace("/", "-")
    return Path(where).absolute() / f"{what}-{time.strftime('%Y%m%d-%H%M%S', time.gmtime())}"


def _program(words: Sequence[str]) -> str:
    scripts = [Path(word).stem for word in words if word.endswith(".py")]
    return scripts[0] if scripts else Path(words[0]).name


# --- processes ----------------------------------------------------------------------------------------------


def _run(start: Start, environment: Mapping[str, str], *, wants_agent: bool) -> int:
    folder = Path(environment[VARIABLE])
    why = _why_not_writable(folder)
    if why:
        printing.tell(f"nothing is recorded: {folder} cannot be written: {why}; the command runs without")
    agent = _start_agent(environment) if wants_agent else None
    try:
        status = run_child(start.words, environment)
    except FileNotFoundError:
        printing.tell(f"there is no command {start.words[0]!r}")
        return NOT_FOUND
    except OSError as error:
        printing.tell(f"{start.words[0]}: {error.strerror}")
        return NOT_EXECUTABLE
    finally:
        if agent is not None:
            _stop(agent)
    return end_as(status)


def _endpoint(
    address: Address | None, words: Sequence[str], environment: Mapping[str, str]
) -> AbstractContextManager[None]:
    """Serves the run while a block lasts, where an address is given."""
    if address is None:
        return nullcontext()
    from trainspec_record.endpoint.serve import endpoint  # noqa: PLC0415 - nothing is loaded where nothing is served

    return endpoint(address, environment, all_hosts=starts_on_all_hosts(words))


def _why_not_writable(folder: Path) -> str:
    """Why no file can be made in the directory of a run, or where it will be made; empty where one can."""
    try:
        nearest = next(one for one in (folder, *folder.parents) if os.path.lexists(one))
        with tempfile.TemporaryFile(dir=nearest) as file:
            file.write(b"x")
    except (OSError, ValueError) as error:
        return (error.strerror or str(error)).lower() if isinstance(error, OSError) else str(error)
    return ""


def _start_agent(environment: Mapping[str, str]) -> subprocess.Popen[bytes] | None:
    """An agent beside the command, where the launcher is the first of its node."""
    who = identity(environment)
    if who is None or who.local_rank:
        return None
    words = [sys.executable, "-m", "trainspec_record", "agent"]
    return subprocess.Popen(words, env=dict(environment), stdin=subprocess.DEVNULL)  # noqa: S603, RUF100


def _stop(agent: subprocess.Popen[bytes]) -> None:
    agent.terminate()
    try:
        agent.wait(AGENT_SECONDS)
    except subprocess.TimeoutExpired:
        agent.kill()
        agent.wait()
