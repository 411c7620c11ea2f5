"""Presents the CPU as the accelerator that torchtitan requires; import it before torchtitan."""

from __future__ import annotations

import os
from types import SimpleNamespace
from typing import Any

import torch
import torch._utils
from torch import distributed
from torch.distributed.fsdp import FSDPModule
from torch.distributed.tensor import _random


def stand_in() -> None:
    """Give torchtitan answers to what it asks of its device, and reductions that gloo has."""
    size = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    device = SimpleNamespace(total_memory=size, name="CPU", multi_processor_count=os.cpu_count())
    answers: dict[str, Any] = {
        "get_device_name": lambda *_: device.name,
        "get_device_properties": lambda *_: device,
        "reset_peak_memory_stats": lambda *_: None,
        "memory_stats": lambda *_: {},
        "empty_cache": lambda: None,
        "manual_seed_all": torch.manual_seed,
    }
    for name, answer in answers.items():
        if not hasattr(torch.cpu, name):
            setattr(torch.cpu, name, answer)
    torch._utils._get_available_device_type = lambda: "cpu"
    _random.manual_seed = lambda seed, _mesh=None: torch.manual_seed(seed)
    divide, barrier = FSDPModule.set_gradient_divide_factor, distributed.barrier

    def set_gradient_divide_factor(self: FSDPModule, factor: float) -> None:
        divide(self, factor)
        self.set_force_sum_reduction_for_comms(True)  # gloo has no reduction that multiplies

    FSDPModule.set_gradient_divide_factor = set_gradient_divide_factor
    distributed.barrier = lambda group=None, async_op=False, device_ids=None: barrier(group, async_op)  # noqa: ARG005
