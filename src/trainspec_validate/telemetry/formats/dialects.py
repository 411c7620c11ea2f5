"""Lists the names that training programs give their scalars, and what the number next to a scalar counts."""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from typing import Literal

from trainspec_validate.model.metrics import Alias
from trainspec_validate.telemetry.formats.names import IMPLIED

Axis = Literal["steps", "index", "samples", "unknown"]
"""Optimizer steps completed; the index of the step, from 0; samples; or what the program chose."""
_LOSS, _EVALUATED, _RATE = "train.loss.mean", "train.evaluation.loss", "train.learning_rate"


@dataclass(frozen=True, slots=True)
class Pattern:
    """Names of one form, and the metric that they are in its unit."""

    form: re.Pattern[str]
    metric: str
    attributes: Mapping[str, str]
    """Series attributes: a value, or with braces the part of the name that the form calls so."""


@dataclass(frozen=True, slots=True)
class Dialect:
    """The names of one program."""

    title: str
    marks: frozenset[str]
    """Names by one of which the program is known."""
    axis: Axis
    ecosystems: tuple[str, ...] = ()
    """Programs of the catalog whose names it has."""
    beside: tuple[Alias, ...] = ()
    """Names that the catalog does not list."""
    patterns: tuple[Pattern, ...] = ()
    starts: tuple[tuple[str, str], ...] = ()
    """Starts of names, and what takes their place before a name is looked up."""
    implied: Mapping[str, Mapping[str, str]] = field(default_factory=lambda: IMPLIED)
    left_out: Mapping[str, str] = field(default_factory=dict)
    """Names that are no value of a step, with the reason."""
    not_at_first: frozenset[str] = frozenset()
    """Names whose value at the first step is of another interval than it says."""
    evaluation_seconds: re.Pattern[str] | None = None
    """Names of the seconds that an evaluation took, which ended with the row; `set` is the part that names its data."""
    step_names: tuple[str, ...] = ()
    """Names under which the step is a value of its own."""
    has_own_names: bool = False
    """Whether its users name the values."""

    def plain(self, name: str) -> str:
        """A name as the tables have it."""
        for start, instead in self.starts:
            if name.startswith(start):
                return instead + name[len(start) :]
        return name


def _pattern(form: str, metric: str, **attributes: str) -> Pattern:
    names = {"loss": "train.loss.name", "evaluated": "train.evaluation.set", "group": "train.parameter.group"}
    return Pattern(re.compile(form), metric, {names[name]: value for name, value in attributes.items()})


_OF_THE_RUN = "is of the whole run, from its last start on: its steps may be those of another start"
HUGGINGFACE = Dialect(
    "the Hugging Face Trainer",
    frozenset({"train/epoch", "eval/runtime"}),
    "steps",
    ("huggingface",),
    patterns=(
        _pattern(r"eval_loss", _EVALUATED, evaluated="eval", loss="total"),
        _pattern(r"eval_(?P<set>.{1,200})_loss", _EVALUATED, evaluated="{set}", loss="total"),
    ),
    starts=(("train/", ""), ("eval/", "eval_")),
    left_out={
        **dict.fromkeys(
            ("train_loss", "train_runtime", "train_steps_per_second", "train_samples_per_second"), _OF_THE_RUN
        ),
        "train_tokens_per_second": "is of the whole run, from its last start on",
        "num_input_tokens_seen": "counts tokens with or without padding; the file does not say which",
        "global_step": "is the step of the record itself",
    },
    evaluation_seconds=re.compile(r"eval(?:_(?P<set>.{1,200}))?_runtime"),
    step_names=("train/global_step",),
)
_MEGATRON = Dialect(
    "Megatron-LM",
    frozenset(
        {
            *("lm loss", "lm-loss", "learning-rate", "loss-scale", "lm loss validation"),
            *("lm-loss-training/lm loss", "learning-rate/learning-rate", "lm-loss-validation/lm loss validation"),
        }
    ),
    "steps",
    ("megatron",),
    beside=(
        Alias(_RATE, "megatron", "learning-rate", "1", 1.0),
        Alias("train.gradient.norm", "megatron", "grad-norm", "1", 1.0),
        Alias("train.batch.size", "megatron", "batch-size", "{sample}", 1.0),
        Alias("train.step.duration", "megatron", "iteration-time", "s", 1.0),
        Alias("train.world.active", "megatron", "world-size", "{rank}", 1.0),
        Alias(
            "train.flops.utilization", "megatron", "throughput", "T{operation}/s", 1e12, over=("peak_flops_per_second",)
        ),
    ),
    patterns=(
        _pattern(r"lm-loss", _LOSS, loss="lm"),
        _pattern(r"lm loss validation", _EVALUATED, evaluated="validation", loss="lm"),
    ),
    starts=tuple(
        (f"{group}/", "")
        for group in (
            *("lm-loss-training", "lm-loss-validation", "learning-rate", "loss-scale", "grad-norm", "batch-size"),
            *("iteration-time", "throughput"),
        )
    ),
    implied={**IMPLIED, _LOSS: {"train.loss.name": "lm"}},
)
_OWN_NAMES = (
    _pattern(r"(?:(?:train|training)[_/ ])?loss(?:_step)?", _LOSS, loss="total"),
    _pattern(r"[Ll]oss/train(?:ing)?", _LOSS, loss="total"),
    _pattern(
        r"(?P<set>val|valid|validation|eval|test)[_/ ]loss(?:_epoch)?", _EVALUATED, evaluated="{set}", loss="total"
    ),
    _pattern(r"[Ll]oss/(?P<set>val|valid|validation|eval|test)", _EVALUATED, evaluated="{set}", loss="total"),
    _pattern(r"lr|learning[_ -]rate|train/lr|train/learning_rate|lr-[A-Za-z]{1,40}", _RATE),
    _pattern(r"lr-(?P<group>[A-Za-z]{1,40}[/-][^{},=]{1,60})", _RATE, group="{group}"),
    _pattern(r"(?:train(?:ing)?[_/ ])?grad(?:ient)?[_ -]norm", "train.gradient.norm"),
)
"""What users of a framework without names of its own call their scalars."""
LOSSES_OF_ALL = _pattern(r"(?:(?:train|training)[_/ ])?(?:mean|avg|average|total)_loss(?:_step)?", _LOSS, loss="total")
"""Losses of a step where no name is simply that of the loss, of which these may be means over other steps."""
_LIGHTNING_NORM = Alias("train.gradient.norm", "lightning", "grad_2.0_norm_total", "1", 1.0)
_NEMO = Dialect(
    "NeMo",
    frozenset({"reduced_train_loss"}),
    "index",
    ("nemo",),
    beside=(_LIGHTNING_NORM,),
    patterns=_OWN_NAMES[2:],
    left_out={
        "global_step": "is the step of the record itself",
        "consumed_samples": "counts with or without the samples of the step, by the release",
    },
    step_names=("trainer/global_step",),
)
_MAXTEXT = Dialect(
    "MaxText",
    frozenset({"learning/loss", "perf/step_time_seconds"}),
    "index",
    ("maxtext",),
    patterns=(_pattern(r"eval(?:uation)?/avg_loss", _EVALUATED, evaluated="eval", loss="total"),),
)
_TORCHTITAN = Dialect(
    "torchtitan",
    frozenset({"loss_metrics/global_avg_loss"}),
    "steps",
    ("torchtitan",),
    implied={**IMPLIED, _EVALUATED: {"train.evaluation.set": "validation", "train.loss.name": "total"}},
    not_at_first=frozenset({"time_metrics/end_to_end(s)", "throughput(tps)", "tflops", "mfu(%)"}),
)
_DEEPSPEED = Dialect(
    "DeepSpeed",
    frozenset({"Train/Samples/train_loss", "Train/Samples/lr"}),
    "samples",
    ("deepspeed",),
    implied={**IMPLIED, _EVALUATED: {"train.evaluation.set": "eval", "train.loss.name": "total"}},
)
_GPT_NEOX = Dialect(
    "GPT-NeoX",
    frozenset({"train/lm_loss", "validation/lm_loss"}),
    "steps",
    ("gpt-neox",),
    patterns=(
        _pattern(r"train/lm_loss", _LOSS, loss="lm"),
        _pattern(r"(?P<set>validation|test)/lm_loss", _EVALUATED, evaluated="{set}", loss="lm"),
    ),
)
LIGHTNING = Dialect(
    "Lightning",
    frozenset({"epoch", "hp_metric", "trainer/global_step"}),
    "index",
    beside=(_LIGHTNING_NORM,),
    patterns=_OWN_NAMES,
    step_names=("trainer/global_step",),
    has_own_names=True,
)
UNKNOWN = Dialect("a program of its own", frozenset(), "unknown", patterns=_OWN_NAMES, has_own_names=True)
_KNOWN = (_NEMO, _MAXTEXT, _TORCHTITAN, _DEEPSPEED, _GPT_NEOX, _MEGATRON, HUGGINGFACE, LIGHTNING)


def dialect_of(names: Collection[str]) -> Dialect | None:
    """The program that gave scalars their names; None where they show none.

    >>> dialect_of(["train/loss", "train/epoch"]).title, dialect_of(["loss"])
    ('the Hugging Face Trainer', None)
    """
    return next((each for each in _KNOWN if not each.marks.isdisjoint(names)), None)
