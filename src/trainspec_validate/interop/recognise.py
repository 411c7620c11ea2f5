"""Lists the foreign formats that can be read, and detects the format of a text."""

from __future__ import annotations

import re
from collections.abc import Mapping
from functools import cache

from trainspec_validate.interop import readers
from trainspec_validate.interop.formats import Format, collected
from trainspec_validate.interop.fragment import ForeignFormatError, ForeignText
from trainspec_validate.interop.readers._shell_documents import without_configurations
from trainspec_validate.interop.readers._training_programs import PADDLE, ROLL
from trainspec_validate.model.suggest import hint

_TRAINSPEC = re.compile(
    r"""^apiVersion[ \t]*:[ \t]*["']?trainspec/|"apiVersion"[ \t]*:[ \t]*"trainspec/""", re.MULTILINE
)
_TORCHTITAN = re.compile(r"(?m)^(?:from|import)[ \t]+torchtitan\b")
_MADE = re.compile(r"(?m)^def[ \t]+(\w{1,80})\([^)\n]{0,200}\)[ \t]*->[ \t]*[\"']?(?:\w{1,40}\.)?Trainer\.Config\b")
"""Functions of Python modules in which torchtitan keeps its configurations, such as `config_registry.py`."""
_SHAPE = "the config.json of the model"
_SHAPE_AND_STREAM = f"give {_SHAPE}, and write the rest of the plan by hand (`trainspec init --kind plan`)"
_STRANGERS: tuple[tuple[tuple[str, ...], str], ...] = (
    (
        (r"\A\s*\{", r'"(?:fsdp_)?transformer_layer_cls_to_wrap"[ \t]*:'),
        "settings of FSDP alone; give the arguments or the configuration of accelerate of the job",
    ),
    (
        (r"(?m)^apiVersion:[ \t]*\S", r"(?m)^kind:[ \t]*\S"),
        "a manifest of Kubernetes; give the script or the configuration that it starts",
    ),
    (
        (
            r"(?m)^(?:checkpoint_dir|model_name|out_dir)[ \t]*:",
            r"(?m)^train[ \t]*:",
            r"(?m)^[ \t]+(?:micro_batch_size|global_batch_size)[ \t]*:",
        ),
        f"settings of LitGPT, which no reader knows; {_SHAPE_AND_STREAM}",
    ),
    (
        (r"(?m)^defaults[ \t]*:[ \t]*\S+\.ya?ml", r"(?m)^(?:policy|cluster)[ \t]*:"),
        "a few settings over those of another file, which `defaults` names; give that file",
    ),
    (
        (r"(?m)^(?:device|global)_train_(?:micro)?batch_size[ \t]*:", r"(?m)^max_duration[ \t]*:"),
        f"a part of the settings of LLM Foundry or OLMo, or a program that no reader knows; {_SHAPE_AND_STREAM}",
    ),
    (
        (r"(?m)^[ \t]*(?:from|import)[ \t]+olmo_core\b",),
        f"a Python program of OLMo-core, and code is never executed; {_SHAPE_AND_STREAM}",
    ),
    (
        (r"(?m)^[ \t]*(?:from|import)[ \t]+nemo(?:_run|\.collections|\.lightning)?\b",),
        f"a Python program of NeMo, such as a recipe of NeMo 2, and code is never executed; {_SHAPE_AND_STREAM}",
    ),
    (
        (r"\bskyrl(?:_train)?\.(?:train\.)?(?:entrypoints|sft)|\bgenerator\.inference_engine\.\w+=",),
        f"arguments of SkyRL, which no reader knows; {_SHAPE_AND_STREAM}",
    ),
    (
        (r"(?m)^(?:actor|rollout|train_dataset)[ \t]*:", r"(?m)^(?:gconfig|total_train_epochs|allocation_mode)[ \t]*:"),
        f"settings of AReaL, which no reader knows; {_SHAPE_AND_STREAM}",
    ),
    (
        (r"(?m)^type[ \t]*:", r"(?m)^model[ \t]*:", r"(?m)^[ \t]+name_or_path[ \t]*:", r"(?m)^deepspeed[ \t]*:"),
        f"settings of ArcticTraining, which no reader knows; give its section `deepspeed` as a file, or {_SHAPE}",
    ),
    (
        (r"(?m)^[ \t]+component_key[ \t]*:", r"(?m)^[ \t]+variant_key[ \t]*:"),
        f"settings of Modalities, which no reader knows; {_SHAPE_AND_STREAM}",
    ),
    (
        (r"(?m)^[ \t]*\[\[?orchestrator\b", r"(?m)^[ \t]*\[(?:model|trainer|deployment|ckpt)\b"),
        f"settings of prime-rl, which no reader knows; {_SHAPE_AND_STREAM}",
    ),
    (
        (r"\bnemo_automodel\.|(?m:^recipe[ \t]*:[ \t]*[\"']?Train\w*Recipe\w*)",),
        f"settings of NeMo Automodel, which no reader knows; {_SHAPE_AND_STREAM}",
    ),
    (
        (r"(?m)^step_scheduler[ \t]*:", r"(?m)^(?:dist_env|distributed)[ \t]*:", r"(?m)^model[ \t]*:"),
        f"settings of NeMo Automodel, which no reader knows; {_SHAPE_AND_STREAM}",
    ),
    (
        (
            (
                r"(?m)^[ \t]+micro_batch_size_per_device_for_(?:update|experience)[ \t]*:"
                r"|\bverl\.trainer\.main\b|\bworker\.(?:actor|rollout|reward)\.\w+"
            ),
        ),
        f"settings of EasyR1, a fork of verl whose settings no reader knows; {_SHAPE_AND_STREAM}",
    ),
    (
        (ROLL,),
        f"settings of ROLL, which no reader knows; {_SHAPE_AND_STREAM}",
    ),
    (
        (r"(?m)^distributed[ \t]*:", r"(?m)^[ \t]+(?:fsdp_type|model_dtype)[ \t]*:", r"(?m)^(?:optim|model)[ \t]*:"),
        f"settings of Lingua, which no reader knows; {_SHAPE_AND_STREAM}",
    ),
    (
        (r"(?m)^method[ \t]*:", r"(?m)^train[ \t]*:", r"(?m)^[ \t]+(?:pipeline|trainer|num_layers_unfrozen)[ \t]*:"),
        f"settings of trlX, which no reader knows; {_SHAPE_AND_STREAM}",
    ),
    (
        (r"\A\s*\{", r'"pp_engine"[ \t]*:', r'"training"[ \t]*:', r'"cp_size"[ \t]*:'),
        f"settings of Picotron, which no reader knows; {_SHAPE_AND_STREAM}",
    ),
    (
        (PADDLE,),
        f"arguments of PaddleNLP, which no reader knows; {_SHAPE_AND_STREAM}",
    ),
    (
        (r"\bEasyLM\.models\.",),
        f"arguments of EasyLM, which no reader knows; {_SHAPE_AND_STREAM}",
    ),
    (
        (r"(?m)(?:^|[ \t])colossalai[ \t]+run\b",),
        f"a job of Colossal-AI, whose settings no reader knows; {_SHAPE_AND_STREAM}",
    ),
    (
        (r"(?m)^(?:from[ \t]+__gin__|include[ \t]+[\"'][\w./-]*\.gin[\"'])",),
        f"a configuration of gin, such as those of T5X, which no reader knows; {_SHAPE_AND_STREAM}",
    ),
    (
        (r"(?m)^[ \t]*export[ \t]+(?:DGX\w+|WALLTIME\w*)=",),
        "variables of an MLPerf submission, which its run script passes on; give that script or its configuration",
    ),
    (
        (r"(?m)^(?:from|import)[ \t]+xtuner\b",),
        f"a part of a Python configuration of xtuner, and code is never executed; {_SHAPE_AND_STREAM}",
    ),
    (
        (r"--(?:actor_|critic_)model_name_or_path[ =]",),
        f"arguments of DeepSpeed-Chat, which no reader knows; give the configuration of DeepSpeed, or {_SHAPE}",
    ),
    (
        (r"(?m)^modules[ \t]*:", r"(?m)^[ \t]+(?:pre|post)_trainer[ \t]*:"),
        "settings of Primus for a program whose settings no reader knows in this form; give those of that program",
    ),
    (
        (r"(?m)^experiment[ \t]*:", r"(?m)^[ \t]+entrypoint[ \t]*:"),
        "an experiment of FlagScale, which names its training in another file; give that file",
    ),
    (
        (r"(?m)^trainer[ \t]*:", r"(?m)^model[ \t]*:"),
        "nearest is nemo-megatron-yaml, which has settings such as tensor_model_parallel_size right below `model`",
    ),
    (
        (r"(?m)^train[ \t]*:", r"(?m)^model[ \t]*:"),
        "nearest is megatron-bridge-yaml, which has `ddp`, `mixed_precision` or sizes of Megatron right below `model`",
    ),
    (
        (r"--(?:job\.)?config[-_.]file[ =]\S|CONFIG_FILE=\S", r"torchtitan|\btrain\.py\b|torchrun"),
        "the script starts a job by its configuration file; give that file",
    ),
    (
        (r"(?m)^#SBATCH\b",),
        "a batch script of Slurm without arguments that a reader knows; give the script or the configuration it starts",
    ),
)
"""Marks of texts that no format fits, with what they are."""
_HEAD = 256 * 1024
_MAX_NAMES = 8


@cache
def formats() -> Mapping[str, Format]:
    """Every format by name, in the order of names."""
    return collected(readers, Format)


def recognise(text: ForeignText) -> Format:
    """The one format that a text is written in.

    Raises:
        ForeignFormatError: no format fits, or several do, or the text is a document already.
    """
    outside = ForeignText(text.name, without_configurations(text.text))
    fitting = [entry for entry in formats().values() if entry.looks_like(outside)]
    if len(fitting) == 1:
        return fitting[0]
    if fitting:
        names = ", ".join(entry.name for entry in fitting)
        raise ForeignFormatError(f"fits several formats: {names}", help="name one with --format")
    if not text.text.strip():
        raise ForeignFormatError("the file is empty", help="the program that wrote it may have failed; run it again")
    if _TRAINSPEC.search(text.text):
        raise ForeignFormatError("this already is a TrainSpec document", help="validate it with trainspec-validate")
    head = text.text[:_HEAD]
    if _TORCHTITAN.search(head) and (made := _MADE.findall(head)):
        more = f" and {len(made) - _MAX_NAMES} more" if len(made) > _MAX_NAMES else ""
        told = f"a Python module of torchtitan with {len(made)} configurations: {', '.join(made[:_MAX_NAMES])}{more}"
        raise ForeignFormatError(f"{told}; code is never executed", help="give the job configuration in TOML")
    told = f" by its first {_HEAD // 1024} KiB, which decide" if len(text.text) > _HEAD else ""
    own = "give what states the job alone, or name the format with --format; " if told else ""
    raise ForeignFormatError(
        f"fits no known format{told}", help=f"{_instead(head)}{own}`trainspec import --list` shows what is read"
    )


def _instead(head: str) -> str:
    """What a text looks like that no format fits, and what to give in its place; empty where nothing is known.

    >>> _instead('{"transformer_layer_cls_to_wrap": "A"}')
    'settings of FSDP alone; give the arguments or the configuration of accelerate of the job; '
    >>> _instead("a: 1")
    ''
    """
    told = next((words for marks, words in _STRANGERS if all(re.search(mark, head) for mark in marks)), "")
    return f"{told}; " if told else ""


def by_name(name: str) -> Format:
    """The format of a name.

    Raises:
        ForeignFormatError: there is none.
    """
    try:
        return formats()[name]
    except KeyError:
        told = hint(name, formats()) or "`trainspec import --list` shows what is read"
        raise ForeignFormatError(f"no format {name!r}; {told}") from None
