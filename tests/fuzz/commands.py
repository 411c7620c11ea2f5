"""The commands that are given damaged input, what they are given, and how often each comes up."""

from __future__ import annotations

import random
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from typing import Final

import click
from trainspec_conformance.cli import command as conformance

from tests.fuzz import agents, parquet_footers, recorders, seeds
from tests.fuzz.mutate import ODD, damaged_tree
from tests.fuzz.recorded import discovered, machines
from tests.fuzz.seeds import Files
from tests.fuzz.spark_parts import without_cluster
from trainspec_validate.cli.toolbox import command as toolbox
from trainspec_validate.cli.validate import command as gate

FORMATS: Final = ("concise", "full", "json", "sarif", "github", "gitlab", "junit", "statistics")
TARGET: Final = "main"
_PREDICTED: Final = ("--predict", "tree/plan.yaml")
OUT: Final = "out"
"""Beside the tree: where a command is told to write."""


@dataclass(frozen=True)
class Command:
    """A command line, and the sound input that is damaged for it."""

    name: str
    program: click.Command
    seeds: Callable[[], tuple[Files, ...]]
    arguments: Callable[[Files, random.Random], list[str]]
    weight: int
    """How often it comes up, next to the others: slow commands have less."""
    around: Callable[[], AbstractContextManager[None]] = nullcontext
    """Replacements of processes and clusters while it runs."""


@dataclass(frozen=True)
class Case:
    """One damaged input and the command line that it meets; paths are relative to a directory that holds the tree."""

    command: Command
    files: Files
    actions: list[tuple[str, str]]
    arguments: list[str]
    standard_input: bytes = b""
    target: Files | None = None
    """The files of the target branch, in a directory beside the tree; the command then runs within the tree."""


def _judge(*more: str) -> Callable[[Files, random.Random], list[str]]:
    return lambda _files, dice: ["tree", "--no-progress", "--format", dice.choice(FORMATS), *more]


def _with(option: str, name: str) -> Callable[[Files, random.Random], list[str]]:
    return lambda _files, dice: ["tree", option, f"tree/{name}", "--format", dice.choice(FORMATS)]


def _each(*words: str, options: tuple[str, ...] = ()) -> Callable[[Files, random.Random], list[str]]:
    """The words, and one file of the tree."""
    return lambda files, dice: [*words, f"tree/{dice.choice(sorted(files))}", *options]


def _export(files: Files, dice: random.Random) -> list[str]:
    plan = "tree/plan.yaml" if "plan.yaml" in files else f"tree/{min(files)}"
    options = ["--cluster", "tree/cluster.yaml", "--policy", "tree/checkpoint.yaml"] if "cluster.yaml" in files else []
    to = dice.choice(("slurm", "kubernetes", "deepspeed", "torchtitan", "torchrun", "nccl-env", "xla-flags"))
    return ["export", plan, *options, "--to", to, "--force", "--output", f"{OUT}/job"]


def _export_stream(files: Files, dice: random.Random) -> list[str]:
    to = dice.choice(("parquet", "otlp", "prometheus"))
    return ["export", f"tree/{dice.choice(sorted(files))}", "--to", to, "--force", "--output", f"{OUT}/stream"]


def _plan(files: Files, dice: random.Random) -> list[str]:
    cluster = f"tree/{'cluster.yaml' if 'cluster.yaml' in files else min(files)}"
    return ["plan", cluster, "--model", "llama3-8b", "--num-ranks", dice.choice(("8", "16")), "--top", "1"]


def _topology(_files: Files, dice: random.Random) -> list[str]:
    plan = ["--plan", "tree/plan.yaml", "--rank", "3"] if dice.random() < 0.5 else []
    return ["topology", "tree/cluster.yaml", *plan, "--format", dice.choice(("text", "json"))]


def _verify(files: Files, dice: random.Random) -> list[str]:
    place = dice.choice(sorted({name.rpartition("/")[0] for name in files if "manifest" in name} or {""}))
    keys = ["--public-key", f"tree/{dice.choice(sorted(files))}"] if dice.random() < 0.3 else []
    return ["checkpoint", "verify", f"tree/{place}", "--no-progress", *keys]


def _seal(files: Files, dice: random.Random) -> list[str]:
    place = dice.choice(sorted({name.rpartition("/")[0] for name in files}))
    return ["checkpoint", "seal", f"tree/{place}", "--no-progress", "--force"]


def _newest(_files: Files, dice: random.Random) -> list[str]:
    words = ["--structure-only"] if dice.random() < 0.3 else []
    return ["checkpoint", "newest-good", "tree", "--code", dice.choice(("listed", "classes", "any")), *words]


def _words(_files: Files, dice: random.Random) -> list[str]:
    """Odd words on a command line of the toolbox."""
    odd = dice.choice(ODD).replace(b"\0", b"")[:300].decode("utf-8", "surrogateescape")
    if dice.random() < 0.5:
        return _right_word(odd, dice)
    return dice.choice(
        (
            *(["explain", odd], ["rules", "--area", odd], ["schema", odd], ["metrics", odd], ["catalog", odd]),
            *(["init", "--accelerator", odd, "--directory", OUT], ["plan", odd, "--model", odd], ["import", odd]),
            *([odd], ["export", odd, "--to", odd], ["topology", odd, "--rank", odd], ["report", odd]),
        )
    )


def _right_word(odd: str, dice: random.Random) -> list[str]:
    """Right words for commands that read no file, one with an odd one behind it."""
    sound = dice.choice(
        (
            *(
                ["explain", "TS-PAR-001"],
                ["explain", "world-size"],
                ["rules", "--area", "PAR"],
                ["schema", "TrainingPlan"],
            ),
            *(["metrics", "train.loss.mean"], ["metrics", "--events"], ["metrics", "--ecosystem", "megatron"]),
            *(["catalog"], ["completion", "bash"], ["import", "--list"], ["schema", "TrainingPlan"]),
        )
    )
    return [*sound, odd] if dice.random() < 0.3 else [*sound, "--format", "json"] if dice.random() < 0.5 else sound


def _accept(_files: Files, dice: random.Random) -> list[str]:
    wanted = dice.choice(("--output", "--statement"))
    return ["accept", "tree/cluster.yaml", "--from", "tree/nodes", wanted, f"{OUT}/accepted", "--force"]


def _thresholds(files: Files, dice: random.Random) -> list[str]:
    cluster = f"tree/{'cluster.yaml' if 'cluster.yaml' in files else min(files)}"
    return ["thresholds", cluster, "--to", dice.choice(("aicr", "cvs", "nvcre")), "--num-nodes", "2"]


def _gated(files: Files, dice: random.Random) -> list[str]:
    names = [f"./{dice.choice(sorted(files))}", "--dependents"] if dice.random() < 0.3 else ["."]
    return [*names, "--settings-from", f"../{TARGET}", "--no-progress", "--format", dice.choice(FORMATS)]


def _changed(files: Files, dice: random.Random) -> list[str]:
    return ["--dependents", f"tree/{dice.choice(sorted(files))}", "--format", dice.choice(FORMATS)]


def _ruled_by_polars(_files: Files, _dice: random.Random) -> list[str]:
    return ["tree", "--rules", "tree/rules.yaml", "--rules-engine", "polars"]


def _pruned(_files: Files, _dice: random.Random) -> list[str]:
    return ["tree", "--prune-baseline", "--baseline", "tree/baseline.json"]


def _new_baseline(_files: Files, dice: random.Random) -> list[str]:
    least = dice.choice(("error", "unjudged"))
    return ["tree", "--baseline", f"{OUT}/baseline.json", "--write-baseline", "--fail-on", least]


def _documents_alone() -> tuple[Files, ...]:
    return seeds.documents()[:1]


def _of_agents() -> tuple[Files, ...]:
    return (*seeds.documents(), *seeds.streams(), *seeds.resumable())


def _footers() -> tuple[Files, ...]:
    return tuple(files for files in seeds.streams() if "run.parquet" in files)


COMMANDS: Final = (
    Command("validate documents", gate, seeds.documents, _judge(), 16),
    Command("validate, settings", gate, seeds.settings, _judge("--config", "tree/trainspec.toml"), 3),
    Command("validate in a tree with settings", gate, seeds.settings, _judge(), 3),
    Command("validate --waivers", gate, seeds.silenced, _with("--waivers", "waivers.yaml"), 3),
    Command("validate --baseline", gate, seeds.silenced, _with("--baseline", "baseline.json"), 3),
    Command("validate --rules", gate, seeds.ruled, _with("--rules", "rules.yaml"), 2),
    Command("validate --rules with Polars", gate, seeds.ruled, _ruled_by_polars, 1),
    Command("validate --dependents", gate, seeds.documents, _changed, 4),
    Command("validate --dependents of others", gate, seeds.foreign, _changed, 2),
    Command("validate --settings-from", gate, seeds.gated, _gated, 6),
    Command("validate --write-baseline", gate, seeds.streams, _new_baseline, 2),
    Command("prune a baseline", gate, seeds.silenced, _pruned, 2),
    Command("validate --list-files", gate, seeds.streams, _judge("--list-files"), 4),
    Command("validate standard input", gate, seeds.documents, lambda _files, _dice: ["-"], 6),
    Command("validate streams", gate, seeds.streams, _judge(), 12),
    Command("validate Parquet, footers by hand", gate, _footers, _judge(), 6),
    Command("validate files of others", gate, seeds.foreign, _each(), 10),
    Command("validate checkpoints", gate, seeds.checkpoints, _judge(), 14),
    Command("validate --values", gate, seeds.checkpoints, _judge("--values"), 6),
    Command("import", toolbox, seeds.foreign, _each("import", options=("--output", f"{OUT}/x", "--force")), 16),
    Command(
        *("import --check", toolbox, seeds.foreign),
        _each("import", options=("--output", f"{OUT}/x", "--force", "--check")),
        4,
    ),
    Command("export a plan", toolbox, _documents_alone, _export, 4),
    Command("export a stream", toolbox, seeds.streams, _export_stream, 4),
    Command("accept", toolbox, seeds.nodes, _accept, 4),
    Command("thresholds", toolbox, _documents_alone, _thresholds, 1),
    Command("topology", toolbox, _documents_alone, _topology, 3),
    Command("plan", toolbox, _documents_alone, _plan, 1),
    Command("plan --predict", toolbox, _documents_alone, lambda _f, _d: ["plan", "tree/cluster.yaml", *_PREDICTED], 2),
    Command("discover", discovered, machines, lambda _files, _dice: [], 4),
    Command("report", toolbox, seeds.streams, lambda _f, _d: ["report", "tree", "-o", f"{OUT}/p.html", "--force"], 3),
    Command("checkpoint verify", toolbox, seeds.sealed, _verify, 10),
    Command("checkpoint seal", toolbox, seeds.checkpoints, _seal, 4),
    Command("odd words", toolbox, _documents_alone, _words, 3),
    Command("conformance verify", conformance, seeds.reports, lambda _f, _d: ["verify", "tree"], 2),
    Command("conformance verify, histories", conformance, seeds.evidence, lambda _f, _d: ["verify", "tree"], 4),
    Command("checkpoint newest-good", toolbox, seeds.resumable, _newest, 8),
    Command("mcp", agents.asked, _of_agents, agents.calls, 4, agents.without_children),
    Command("record launch", recorders.launched, recorders.plans, recorders.launches, 4),
    Command("record, a run that continues", recorders.continued, recorders.attempts, recorders.environments, 4),
    Command("record, files of the kernel", recorders.sampled, recorders.hosts, recorders.environments, 2),
    Command("record, probes of other nodes", recorders.probed, recorders.messages, lambda _files, _dice: [], 2),
    Command("validate, parts of Spark", gate, seeds.streams, _judge("--engine", "spark"), 4, without_cluster),
    Command("conformance diff", conformance, seeds.reports, lambda _f, _d: ["diff", "tree", "tree"], 2),
)
FOLLOWED: Final = Command("validate --follow", gate, seeds.streams, lambda _files, _dice: [], 0)
SPARK: Final = Command("validate --engine spark", gate, seeds.streams, _judge("--engine", "spark"), 0)
_WEIGHTS: Final = [command.weight for command in COMMANDS]


def case(seed: int, number: int, command: Command | None = None) -> Case:
    """The case of a number, of any command or of one: the same for the same seed."""
    dice = random.Random(f"{seed}/{number}")
    command = command or dice.choices(COMMANDS, _WEIGHTS)[0]
    sound = dice.choice(command.seeds())
    files, actions = damaged_tree(sound, dice)
    if command.seeds is recorders.hosts:
        actions = [(action, name) for action, name in actions if action != "fifo"]  # no kernel has one there
    if command.seeds is _footers:
        whole = dice.random() < 0.3
        files = {
            "run.parquet": parquet_footers.made(dice)
            if whole
            else parquet_footers.rewritten(sound["run.parquet"], dice)
        }
    arguments = command.arguments(sound, dice)
    standard_input = files[dice.choice(sorted(files))] if arguments == ["-"] else b""
    target = sound if command.seeds is seeds.gated else None
    if target is not None and dice.random() < 0.4:
        target, files = files, sound
    return Case(command, files, actions, arguments, standard_input, target)
