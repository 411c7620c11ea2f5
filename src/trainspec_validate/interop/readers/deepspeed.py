"""The only place that reads configuration files of DeepSpeed."""

from __future__ import annotations

import re

from trainspec_validate.interop.formats import Format
from trainspec_validate.interop.fragment import ForeignText, Fragment
from trainspec_validate.interop.readers._deepspeed_plan import write_plan
from trainspec_validate.interop.readers._plan_identities import complete
from trainspec_validate.interop.readers._plan_parts import Draft
from trainspec_validate.interop.readers._plan_settings import flatten, lines_in, load_mapping

_KEYS = re.compile(
    r'"(?:train_batch_size|train_micro_batch_size_per_gpu|zero_optimization|zero_allow_untested_optimizer)"\s*:'
)
_OTHERS = re.compile(r'"(?:model_type|per_device_train_batch_size|distributed_type)"\s*:')
_HEAD = 256 * 1024


def looks_like(text: ForeignText) -> bool:
    """Whether a text is a JSON object with keys that only DeepSpeed has."""
    head = text.text[:_HEAD]
    return head.lstrip()[:1] == "{" and bool(_KEYS.search(head)) and not _OTHERS.search(head)


def read(text: ForeignText) -> Fragment:
    """The batch, formats, sharding, buckets and offload that a configuration of DeepSpeed describes.

    Raises:
        ForeignFormatError: it is no JSON object.
    """
    source = load_mapping(text)
    draft = Draft(flatten(source.data), lines_in(source))
    write_plan(draft)
    complete(draft)
    return draft.fragment("deepspeed-json", text)


FORMATS = (Format("deepspeed-json", "configuration file of DeepSpeed", "TrainingPlan", looks_like, read),)
