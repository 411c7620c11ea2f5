"""Reads configuration files of DeepSpeed."""

from __future__ import annotations

from typing import Any

from trainspec_validate.interop.formats import Format
from trainspec_validate.interop.fragment import ForeignText, Fragment
from trainspec_validate.interop.readers import neox
from trainspec_validate.interop.readers._deepspeed_plan import write_plan
from trainspec_validate.interop.readers._overriding import DEEPSPEED, leave_overridden_open
from trainspec_validate.interop.readers._plan_identities import complete
from trainspec_validate.interop.readers._plan_parts import Draft
from trainspec_validate.interop.readers._plan_settings import flatten, lines_in, load_mapping, top_keys
from trainspec_validate.interop.readers._worlds import settled

_KEYS = frozenset(
    {"train_batch_size", "train_micro_batch_size_per_gpu", "zero_optimization", "zero_allow_untested_optimizer"}
)
_OTHERS = frozenset(
    {"log_history", "model_type", "per_device_train_batch_size", "distributed_type", "pipe_parallel_size"}
)
_HEAD = 256 * 1024


def looks_like(text: ForeignText) -> bool:
    """Whether a text is a JSON object that has keys at its top which only DeepSpeed has."""
    head = text.text[:_HEAD]
    if head.lstrip()[:1] != "{":
        return False
    keys = {key.replace("-", "_") for key in top_keys(head)}
    return bool(keys & _KEYS) and not keys & _OTHERS and not neox.looks_like(text)


def read(text: ForeignText) -> Fragment:
    """The batch, formats, sharding, buckets and offload that a configuration of DeepSpeed describes.

    Raises:
        ForeignFormatError: it is no JSON object.
    """
    source = load_mapping(text)

    def make(values: dict[str, Any]) -> Draft:
        draft = Draft(values, lines_in(source))
        write_plan(draft)
        complete(draft)
        leave_overridden_open(draft, DEEPSPEED)
        return draft

    draft = settled(_with_one_half(flatten(source.data)), make)
    return draft.fragment("deepspeed-json", text)


def _with_one_half(flat: dict[str, Any]) -> dict[str, Any]:
    """Settings in which a half-precision format that says `auto` is off where the other one is on.

    DeepSpeed refuses both, so that no program may fill in another value.

    >>> _with_one_half({"bf16.enabled": True, "fp16.enabled": "auto"})
    {'bf16.enabled': True, 'fp16.enabled': False}
    """
    pairs = (("bf16.enabled", "fp16.enabled"), ("fp16.enabled", "bf16.enabled"))
    off = {other: False for one, other in pairs if flat.get(one) is True and flat.get(other) == "auto"}
    return {**flat, **off}


FORMATS = (Format("deepspeed-json", "configuration file of DeepSpeed", "TrainingPlan", looks_like, read),)
