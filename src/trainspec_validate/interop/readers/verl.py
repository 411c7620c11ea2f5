"""Reads how verl is started: the words of a command that set its configuration, or that configuration in YAML."""

from __future__ import annotations

import itertools
import re
from collections.abc import Mapping
from typing import Any

from trainspec_validate.interop.formats import Format
from trainspec_validate.interop.fragment import ForeignFormatError, ForeignText, Fragment
from trainspec_validate.interop.readers._composed import LIST, leave_composed_open
from trainspec_validate.interop.readers._launched_ranks import LAUNCHER_SIZE, started_ranks
from trainspec_validate.interop.readers._plan_identities import complete
from trainspec_validate.interop.readers._plan_parts import Draft, Lines
from trainspec_validate.interop.readers._plan_settings import flatten, lines_in, load_mapping, resolved
from trainspec_validate.interop.readers._shell_choices import ABSENT, Alternatives, has_marks
from trainspec_validate.interop.readers._shell_found import PROGRAM, Found, Option, either
from trainspec_validate.interop.readers._shell_options import Reader, Started, tell_outside
from trainspec_validate.interop.readers._shell_unread import leave_open, leave_unread_open
from trainspec_validate.interop.readers._shell_variables import Script, Word
from trainspec_validate.interop.readers._slurm_script import script_of
from trainspec_validate.interop.readers._training_programs import without_training
from trainspec_validate.interop.readers._verl_plan import ACTOR, write_ppo, write_tuning
from trainspec_validate.interop.readers._worlds import settled

_HEAD = 1024 * 1024
_COMMENT = re.compile(r"(?m)^[ \t]*#.*$")
_YAML = re.compile(r"(?m)^actor_rollout_ref[ \t]*:")
_WORD = re.compile(r"(?:^|[\s\"'+])actor_rollout_ref\.[\w.]{1,200}=")
_STARTS = re.compile(r"\bverl\.trainer\.(?:main_ppo|(?:fsdp_)?sft_trainer)\b")
_PAIR = re.compile(r"(?:\+{0,2}|--)(?P<name>[a-z_][\w.-]{0,200})=(?P<value>.*)", re.DOTALL)
_OWN = re.compile(r"(?:actor_rollout_ref|data|trainer|critic|algorithm|model|optim)\..+")
_FEWEST = 2
_SFT = frozenset({"verl.trainer.fsdp_sft_trainer"})
_PPO = frozenset({"verl.trainer.main_ppo", "recipe.dapo.main_dapo"})
_COUNTED = (("batch", "global_sequences"), ("batch", "micro_sequences"), ("model", "sequence_length"))
"""What settings state in units that a program of another name may count in its own way."""
_KNOWN = re.compile(r"(?:ppo|ppo_megatron|sft)_trainer(?:\.yaml)?")
"""Configurations of verl itself, whose settings the defaults here are of."""
_OTHERS = re.compile(
    r"(?:critic|reward|reward_model|algorithm|custom_reward_function|ray_init|ray_kwargs|global_profiler)\."
    r"|actor_rollout_ref\.(?:ref|rollout)\.|trainer\.(?:logger|critic_warmup|project_name|experiment_name|default_\w+_dir|\w+_freq)"
)
"""Settings of other models and phases, or about what a plan has no place for."""


def looks_like(text: ForeignText) -> bool:
    """Whether a text sets what only verl and its forks have."""
    head = text.text[:_HEAD]
    if head.lstrip()[:1] in {"{", "<"}:
        return False
    if _YAML.search(head):
        return True
    plain = _COMMENT.sub("", head)
    return len(_WORD.findall(plain)) >= _FEWEST or bool(_STARTS.search(plain))


def read(text: ForeignText) -> Fragment:
    """The plan of the model that a job trains: the actor of reinforcement learning, or the one that is tuned.

    Raises:
        ForeignFormatError: no command has settings of verl, or it evaluates.
    """
    if _YAML.search(text.text):
        return _of_yaml(text)
    script = script_of(text.text)
    found = _words(script)
    options = found.settings(script.outside)
    values = {name: option.value for name, option in options.items()}
    program = _program(values.pop(PROGRAM, None))
    if values.get("trainer.val_only") is True:
        raise without_training("a job with trainer.val_only")

    def lines(names: Any) -> Mapping[str, int]:
        return {name: options[name].line for name in names if name in options}

    def make(given: dict[str, Any]) -> Draft:
        return _made(given, lines, program, text.text)

    draft = settled(values, make)
    started = Started(options, script, found)
    leave_unread_open(draft, started)
    tell_outside(draft, script, found)
    return _finished(draft, values).fragment("verl-settings", text)


def _of_yaml(text: ForeignText) -> Fragment:
    source = load_mapping(text)
    values = resolved(flatten(source.data))

    def make(given: dict[str, Any]) -> Draft:
        draft = _made(given, lines_in(source), "verl.trainer.main_ppo", "")
        base = given.get(LIST)
        over = leave_composed_open(draft)
        if base and not over:
            leave_open(draft, "the files that defaults names may set it, and are not read")
        return draft

    return _finished(settled(values, make), values).fragment("verl-settings", text)


def _finished(draft: Draft, values: Mapping[str, Any]) -> Draft:
    if any(name.startswith("critic.") for name in values):
        draft.remark("the critic is a second model of the job; the plan is that of the actor")
    return draft


def _made(values: dict[str, Any], lines: Lines, program: str, text: str) -> Draft:
    draft = Draft(values, lines)
    draft.used.update(name for name in values if _OTHERS.match(name))
    tunes = program not in _PPO and (program in _SFT or not any(name.startswith(ACTOR) for name in values))
    named, where = draft.word("config-name"), draft.look("config-path")
    foreign = where is not None or (named is not None and not _KNOWN.fullmatch(named))
    unread = f"the configuration {named or 'in config-path'} may set it, and is not read" if foreign else ""
    if tunes:
        write_tuning(draft)
    else:
        write_ppo(draft, unread)
    own = program in (_SFT if tunes else _PPO)
    if not own:
        named_program = program[:60] or "the program, which is not named,"
        draft.drop_defaults(f"{named_program} may have defaults of its own")
        for place in (*_COUNTED, ("rollout", "num_responses_per_prompt"), ("rollout", "num_updates")):
            known = draft.get(*place)
            told = f"{known} in verl itself; " if known is not None else ""
            draft.drop([place], f"{told}{named_program} may count it in its own way")
    if foreign:
        draft.drop_defaults(unread)
    world, told = _world(draft)
    if world is None and tunes:
        world, told = started_ranks(draft, text)
    complete(draft, world, told)
    if foreign:
        draft.remark(f"the settings start from the configuration {named or 'in config-path'}, which is not read")
        leave_open(draft, unread)
    return draft


def _world(draft: Draft) -> tuple[int | None, str]:
    """Accelerators of the job, which the settings state as those of a node and the nodes."""
    each, nodes = draft.count("trainer.n_gpus_per_node"), draft.count("trainer.nnodes")
    if each and nodes:
        return each * nodes, f"{nodes} nodes x {each} GPUs"
    for name, other in (("trainer.nnodes", each), ("trainer.n_gpus_per_node", nodes)):
        for reason in draft.reasons(name):
            draft.lacks(("parallelism", "num_accelerators"), f"{other or 'GPUs'} x {name}: {reason}")
    return None, ""


def _program(named: object) -> str:
    return "" if named is None or named is ABSENT or isinstance(named, Alternatives) else str(named)


def _words(script: Script) -> Found:
    """Settings in the words of the commands; several commands with as many are alternatives."""
    reader, plain, picked = Reader(script, _pair), Reader(script), []
    for command in script.commands:
        here = reader.read(command)
        num_own = sum(bool(_OWN.fullmatch(name)) for name in here.options)
        if num_own < _FEWEST and not any(_STARTS.search(word.text) for word in command):
            continue
        launched = plain.read(command)
        sizes = {name: launched.options[name] for name in LAUNCHER_SIZE if name in launched.options}
        here.options.update(sizes)
        here.options[PROGRAM] = [Option(_module(command), command[0].line)]
        picked.append((num_own, here))
    if not picked:
        raise ForeignFormatError("no command has settings of verl", help="give the launch script")
    most = max(number for number, _ in picked)
    near = [found for number, found in picked if number >= max(_FEWEST, (most + 1) // 2)] or [picked[0][1]]
    return near[0] if len(near) == 1 else either(near, script.choices.event())


def _module(command: list[Word]) -> str:
    """The module or the file that a command starts; empty where it is not plain."""
    texts = [word.text for word in command]
    found = [after for before, after in itertools.pairwise(texts) if before == "-m"]
    found += [text for text in texts if text.endswith(".py")]
    return found[0] if found and not has_marks(found[0]) else ""


def _pair(word: str) -> tuple[str, str] | None:
    found = _PAIR.fullmatch(word)
    return (found["name"], found["value"]) if found else None


FORMATS = (Format("verl-settings", "command or configuration of verl", "TrainingPlan", looks_like, read),)
