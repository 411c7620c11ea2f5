"""Reads how Megatron-LM was started: launch scripts, argument lists and logged arguments."""

from __future__ import annotations

import re
from typing import Any

from trainspec_validate.interop.formats import Format
from trainspec_validate.interop.fragment import ForeignFormatError, ForeignText, Fragment
from trainspec_validate.interop.readers._huggingface_launch import add_launch_variables
from trainspec_validate.interop.readers._huggingface_weights import drop_untrained, leave_frozen_open
from trainspec_validate.interop.readers._launched_ranks import started_ranks
from trainspec_validate.interop.readers._megatron_count import count_biases
from trainspec_validate.interop.readers._megatron_deepspeed import FORK, settle
from trainspec_validate.interop.readers._megatron_defaults import (
    drop_after_exit,
    drop_all_defaults,
    drop_from_checkpoint,
    drop_model_defaults,
    leave_foreign_model_open,
)
from trainspec_validate.interop.readers._megatron_fork import sign_of_a_fork
from trainspec_validate.interop.readers._megatron_model import ARGUMENTS
from trainspec_validate.interop.readers._megatron_plan import write_plan
from trainspec_validate.interop.readers._optimizer_plan import write_megatron, write_peft
from trainspec_validate.interop.readers._overriding import MEGATRON, leave_overridden_open
from trainspec_validate.interop.readers._plan_identities import complete
from trainspec_validate.interop.readers._plan_parts import CUT, Draft, word_value
from trainspec_validate.interop.readers._shell_choices import Alternatives
from trainspec_validate.interop.readers._shell_documents import written_mapping
from trainspec_validate.interop.readers._shell_found import PROGRAM, Option, Options
from trainspec_validate.interop.readers._shell_options import Started, draft_of, options_of_script
from trainspec_validate.interop.readers._shell_unread import leave_configuration_open, leave_open, leave_unread_open
from trainspec_validate.interop.readers._training_programs import trains_nothing, without_training
from trainspec_validate.interop.readers._worlds import settled
from trainspec_validate.model.values import cut_to

_FLAG = re.compile(
    r"--(num-layers|hidden-size|num-attention-heads|seq-length|micro-batch-size|global-batch-size|train-iters"
    r"|train-samples|tensor-model-parallel-size|pipeline-model-parallel-size|context-parallel-size"
    r"|expert-model-parallel-size)[\"']?[\s=:,]"
)
_UNDERSCORED = re.compile(_FLAG.pattern.replace("-", "_").replace("__(", "--(", 1))
"""The same options as programs on top of Megatron-LM name them, such as `megatron sft` of ms-swift."""
_OF_A_JOB = frozenset({"micro_batch_size", "global_batch_size", "train_iters", "train_samples"})
"""Settings that a conversion of a checkpoint does not have."""
_SWIFT = re.compile(r"\bmegatron[ \t]+(?:sft|pt|rlhf)\b")
"""Commands of ms-swift that train with Megatron Core."""
_LOGGED = re.compile(r"\b(?:tensor|pipeline)_model_parallel_size \.{3,} ")
_OWN = re.compile(r"pretrain|finetune|train_gpt|train_rl|^main\.py$|^run_.*gpt")
"""Names of programs that read arguments with Megatron-LM's own parser."""
_ENTRIES = re.compile(
    r"pretrain_(?:gpt2?|gpt_core|bert|t5|ict|mamba|hybrid|retro|vlm|vision_\w+|prefix_lm)\.py|train_rl\.py|main\.py"
    r"|finetune_(?:t0|mtf|llama|t0_non_causal_decoder)\.py|run_\w*gpt\w*\.py"
)
"""Programs of Megatron-LM and its forks that build the model which the arguments describe."""
_CERTAIN = frozenset(
    {
        *("hidden_size", "num_attention_heads", "tensor_model_parallel_size", "pipeline_model_parallel_size"),
        *("context_parallel_size", "global_batch_size", "train_iters", "train_samples", "lr_decay_style"),
        *("model_parallel_size", "max_position_embeddings", "ffn_hidden_size"),
    }
)
"""Arguments of which a program with Megatron-LM's parser has at least one."""
_RANKS = frozenset({"tensor_model_parallel_size", "pipeline_model_parallel_size", "model_parallel_size"})
"""Arguments for the ranks of Megatron-LM's core, with whose optimizers a program of another name trains as well."""
_OF_ANOTHER = "Megatron-LM takes no options in underscores: they are those of another program, with defaults of its own"
_NO_PROGRAM = "the program that reads these arguments is not given, and may have defaults of its own"
_CONTINUED = re.compile(r"(?:[0-9]{1,6}: ?)?\.* ?([^\s.:=]\S{0,200})")
_COUNTED = re.compile(r"number of parameters on \(tensor, pipeline\) model parallel rank \(0, 0\): ([0-9]{1,15})\b")
_PLAIN_SCALAR = re.compile(
    r"""(?m)^([ \t]*--[A-Za-z][\w-]{0,100}):[ \t]+(?=[^\s#]*[|;&<>()])"""
    r"""([^\s"'`\\\[{#|>&*!%@][^\s"'`\\]{0,4096})(?=[ \t]*$|[ \t]+#)"""
)
"""A setting of a YAML file, `--name: value`, with signs that mean something else to a shell."""
_TUNING = ("MNLI", "QQP", "RACE", "RET-FINETUNE-NQ")
"""Tasks of Megatron-LM that train a model."""
_TRAINED = frozenset({"lr", "epochs", "train_iters", "train_samples"})
"""Arguments of which a task of Megatron-LM that trains has one, and one that evaluates or generates has none."""
_UNUSED = ("img_h", "img_w", "patch_dim", "num_channels", "num_classes", "bert_binary_head")
"""Arguments with a default that every model has in a log, whether it sees or not."""
_FEWEST_FLAGS = 3
_HEAD = 256 * 1024


def looks_like(text: ForeignText) -> bool:
    """Whether a text starts Megatron-LM or logs its arguments."""
    head = text.text[:_HEAD]
    if head.lstrip()[:1] in {"{", "<"}:
        return False
    return bool(_LOGGED.search(head)) or len(set(_FLAG.findall(head))) >= _FEWEST_FLAGS or _in_underscores(head)


def _in_underscores(text: str) -> bool:
    """Whether a text has options of Megatron-LM in underscores, which its own parser does not take."""
    names = set(_UNDERSCORED.findall(text))
    of_megatron = any(name.endswith("_parallel_size") for name in names) and names & _OF_A_JOB
    return bool(of_megatron) and len(names) >= _FEWEST_FLAGS > len(set(_FLAG.findall(text)))


def _quoted(found: re.Match[str]) -> str:
    name, value = found.groups()
    return f'{name}: "{value}"'


def read(text: ForeignText) -> Fragment:
    """The plan that a launch script, an argument list or a logged table of arguments describes.

    Raises:
        ForeignFormatError: there are no such arguments, or the script is cut off.
    """
    if _LOGGED.search(text.text):
        return _read_log(text)
    started = options_of_script(_PLAIN_SCALAR.sub(_quoted, text.text), _FLAG, _FEWEST_FLAGS)
    if started is None:
        why = "no command has arguments of Megatron-LM"
        raise ForeignFormatError(why, help="give the launch script, or its arguments alone")
    _take_launch(started, text.text)
    _refuse_idle(started)
    own, fork = _signs(text)
    named = started.values.get("deepspeed_config")
    written = written_mapping(started.script, text.text, named) if isinstance(named, str) else {}

    def make(values: dict[str, Any]) -> Draft:
        draft = started.draft(values)
        _write_training(draft)
        _drop_defaults(draft, draft.word(PROGRAM), own, fork)
        settle(draft, ARGUMENTS, written)
        drop_after_exit(draft)
        drop_from_checkpoint(draft)
        count_biases(draft)
        _put_rollouts(draft)
        _complete(draft, text.text)
        return draft

    here = {"deepspeed_config": str(named).rpartition("/")[2]} if written else {}  # needs no directory
    draft = settled({**started.values, **here}, make)
    leave_frozen_open(draft, started.values)
    leave_unread_open(draft, started)
    leave_configuration_open(draft)
    if own:
        leave_open(draft, own)
    started.tell(draft)
    return draft.fragment("megatron-arguments", text)


def _take_launch(started: Started, text: str) -> None:
    """The ranks that a command of ms-swift takes from the environment."""
    if _SWIFT.search(text):
        add_launch_variables(started)


def _write_training(draft: Draft) -> None:
    """The plan of the arguments, with adapters that programs on top of Megatron-LM train."""
    write_plan(draft)
    write_megatron(draft)
    if drop_untrained(draft):
        write_peft(draft)


def _complete(draft: Draft, text: str) -> None:
    """Fill in what follows, and leave open what another model or a further argument changes."""
    complete(draft, *started_ranks(draft, text))
    leave_foreign_model_open(draft)
    leave_overridden_open(draft, MEGATRON)


def _signs(text: ForeignText) -> tuple[str, str]:
    """Why the options are those of another program, and what shows that the program is one of a fork, or empty."""
    own = _OF_ANOTHER if _in_underscores(text.text) else ""
    return own, sign_of_a_fork(text)


def _drop_defaults(draft: Draft, program: str | None, own: str, fork: str) -> None:
    """Leave open what a program other than Megatron-LM's own decides.

    Args:
        draft: what was read.
        program: the name of the program.
        own: why the options are those of another program, or empty.
        fork: what shows that the program is one of a fork, or empty.
    """
    if own or not program:
        drop_all_defaults(draft, own or _NO_PROGRAM)
    elif not _OWN.search(program):
        known = "none of the programs of Megatron-LM that this reader knows"
        drop_all_defaults(draft, f"{cut_to(program, 60)} is {known}, and may have defaults of its own")
        if not _RANKS & draft.values.keys() and (draft.word("optimizer") or "").casefold() == "adam":
            why = f"adam or adamw: {cut_to(program, 60)} is {known}, and may decouple weight decay or not"
            draft.drop([("optimizer", "name")], why)
    elif not _ENTRIES.fullmatch(program):
        drop_model_defaults(
            draft, f"{cut_to(program, 60)} is none of Megatron-LM's own programs: its code makes the model"
        )
        drop_all_defaults(
            draft, f"{cut_to(program, 60)} is none of Megatron-LM's own programs, and may have other defaults"
        )
    elif fork:
        kept = [at for at, how in draft.derived.items() if FORK in how]
        drop_all_defaults(draft, f"{fork}: {cut_to(program, 60)} is of a fork, which may have other defaults", kept)


def _refuse_idle(started: Started) -> None:
    named = started.values.get(PROGRAM)
    programs = [str(name) for name in (named.values if isinstance(named, Alternatives) else [named or "$"])]
    if trains_nothing(programs):
        raise without_training(programs[0])
    foreign = named is not None and not any(_OWN.search(name) or "$" in name for name in programs)
    if foreign and not _CERTAIN & started.values.keys():
        raise ForeignFormatError(
            f"{cut_to(programs[0], 60)} is no program of Megatron-LM, and few of its arguments are of Megatron-LM",
            help="no reader knows its arguments",
        )
    tasks = {None, *_TUNING}
    idle = started.values.get("task") not in tasks and not _TRAINED & started.values.keys()
    if idle or started.values.get("retro_tasks") is not None:
        raise ForeignFormatError("the command evaluates, or prepares data", help="give the script of the training")


def logged_arguments(text: str) -> Options:
    """The table of arguments that Megatron-LM prints when it starts: a name, dots, a value."""
    options: dict[str, Option] = {}
    contents = text.split("\n")
    for line, content in enumerate(contents, 1):
        left, dots, right = content.partition(" ...")
        if not dots or len(content) > 4096:
            continue
        name = left.rpartition(" ")[2].rpartition(":")[2]
        if re.fullmatch(r"[a-z][a-z0-9_]*", name):
            value = right.lstrip(".").strip() or _continued(contents[line] if line < len(contents) else "")
            options.setdefault(name, Option(_logged_value(value), line))
    return options


def _continued(content: str) -> str:
    """The value that a writer of several ranks put on the next line."""
    found = _CONTINUED.fullmatch(content[:4096])
    return found[1] if found else CUT


def _logged_value(text: str) -> object:
    if text.startswith("[") and text.endswith("]"):
        return [word_value(item.strip().strip("'\"")) for item in text[1:-1].split(",") if item.strip()]
    return word_value(text)


def _is(options: Options, name: str, value: object) -> bool:
    return name in options and options[name].value is value


def _take_counted(draft: Draft, text: str) -> None:
    """The parameters that Megatron-LM itself counts, where one rank holds the whole model."""
    whole = all((draft.counted("parallelism", axis) or 1) == 1 for axis in ("tensor", "pipeline", "expert"))
    found = set(_COUNTED.findall(text)) if whole else set()
    if len(found) == 1:
        draft.put(("model", "num_parameters"), int(found.pop()), "counted by Megatron-LM on the rank that holds it all")


def _read_log(text: ForeignText) -> Fragment:
    options = logged_arguments(text.text)
    if not options:
        raise ForeignFormatError("no table of arguments is found", help="give the log of rank 0 from its beginning")
    if _is(options, "vision_pretraining", False):
        options = {name: option for name, option in options.items() if name not in _UNUSED}

    def make(values: dict[str, Any]) -> Draft:
        draft = Draft(values, draft_of(options).lines)
        world, source = started_ranks(draft, "")
        write_plan(draft, logged=True)
        write_megatron(draft)
        settle(draft, ARGUMENTS)
        drop_after_exit(draft)
        count_biases(draft)
        _take_counted(draft, text.text)
        leave_frozen_open(draft)
        complete(draft, world, source)
        leave_overridden_open(draft, MEGATRON)
        return draft

    values = {name: option.value for name, option in options.items()}
    draft = make(values)
    draft = settled(values, make) if draft.doubted else draft
    return draft.fragment("megatron-arguments", text)


def _put_rollouts(draft: Draft) -> None:
    """Prompts and responses of a rollout, the optimizer steps on it, and the accelerators that generate alone.

    Source: THUDM/slime:slime/utils/arguments.py.
    """
    prompts, responses = draft.count("rollout_batch_size"), draft.count("n_samples_per_prompt")
    if prompts is None or responses is None:
        return
    draft.put(("rollout", "num_prompts"), prompts)
    draft.put(("rollout", "num_responses_per_prompt"), responses)
    whole = draft.counted("batch", "global_sequences")
    if whole:
        how = f"{prompts} prompts x {responses} responses over the sequences of a step"
        updates = draft.divide(("rollout", "num_updates"), prompts * responses, whole, how)
        rollouts = draft.count("num_rollout")
        if updates and rollouts:
            draft.put(("job", "num_steps"), rollouts * updates, f"{rollouts} rollouts x {updates} optimizer steps")
    if draft.flag("colocate"):
        draft.look("rollout_num_gpus")
    else:
        draft.copy(("rollout", "num_accelerators"), "rollout_num_gpus")


FORMATS = (
    Format("megatron-arguments", "launch script or logged arguments of Megatron-LM", "TrainingPlan", looks_like, read),
)
