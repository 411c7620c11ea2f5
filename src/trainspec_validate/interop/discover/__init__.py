"""Describes the machine that it runs on, from its tools and from the files of its kernel."""

from __future__ import annotations

import re

from trainspec_validate.interop.discover import nvml_answer
from trainspec_validate.interop.discover.host import describe_host
from trainspec_validate.interop.discover.machine import LocalMachine, Machine, RecordedMachine
from trainspec_validate.interop.discover.sysfs import describe_devices
from trainspec_validate.interop.discover.tools import NVIDIA, TOOLS, Answer, ask, others
from trainspec_validate.interop.fragment import ForeignFormatError, ForeignText, Fragment
from trainspec_validate.interop.readers._draft import Draft, plain_int

__all__ = ["LocalMachine", "Machine", "RecordedMachine", "discover"]

KERNEL_FORMAT = "linux-kernel"
_NAME = "this machine"
_VENDORS = {"10de": "NVIDIA", "1002": "AMD", "1ae0": "Google"}


def discover(machine: Machine) -> tuple[Fragment, ...]:
    """One fragment from the kernel, then one from NVML or else nvidia-smi, and one from each other tool that answered.

    A source that is missing, fails or returns nonsense never stops the others; the fragment from the kernel says so
    where it matters. Host names, serial numbers and addresses of the network are not recorded.

    >>> discover(RecordedMachine())[0].format
    'linux-kernel'
    """
    draft = Draft()
    describe_host(machine, draft)
    vendors: frozenset[str] = frozenset()
    try:
        vendors = describe_devices(machine, draft)
    except ForeignFormatError as error:
        draft.remark(f"PCI devices were not read: {error}")
    draft.group_unknown("scale_up", reason="the kernel does not show links between accelerators; see the vendor's tool")
    answers = _answers(machine)
    answered = {answer.vendor for answer in answers if answer.fragment is not None}
    for answer in answers:
        if answer.failure:
            draft.remark(answer.failure)
    for vendor in sorted(vendors & set(_VENDORS)):
        if vendor not in answered:
            draft.remark(f"there are accelerators of {_VENDORS[vendor]}, but its tools gave no usable answer")
    if not vendors and not answered - {None}:
        draft.remark("no accelerator was found: this describes the host alone")
    _job(machine, draft)
    kernel = draft.fragment(KERNEL_FORMAT, ForeignText(_NAME, ""))
    return (kernel, *(answer.fragment for answer in answers if answer.fragment is not None))


def _answers(machine: Machine) -> list[Answer]:
    """NVML and the tools; those that NVML makes idle are not run."""
    library = nvml_answer.ask(machine)
    asked = TOOLS if library.fragment is None else others({NVIDIA})
    return [library, *(ask(machine, tool) for tool in asked)]


def _job(machine: Machine, draft: Draft) -> None:
    """What the scheduler tells about the job; a job is no cluster, so that these are remarks."""
    nodes = plain_int(machine.variable("SLURM_JOB_NUM_NODES") or machine.variable("SLURM_NNODES"), 1, 1_000_000)
    if nodes is not None:
        draft.remark(f"this Slurm job has {nodes} nodes; the cluster may have more")
    partition = machine.variable("SLURM_JOB_PARTITION")
    if partition and re.fullmatch(r"[A-Za-z0-9._-]{1,64}", partition):
        draft.remark(f"this Slurm job runs in the partition {partition}")
    given = plain_int(machine.variable("SLURM_GPUS_ON_NODE"), 1, 1024)
    if given is not None:
        draft.remark(f"Slurm gave this job {given} accelerators of the node; tools may show these alone")
    visible = machine.variable("CUDA_VISIBLE_DEVICES") or machine.variable("ROCR_VISIBLE_DEVICES")
    if visible:
        count = len([item for item in visible[:4096].split(",") if item.strip()])
        draft.remark(f"a variable makes {count} accelerators visible; tools may show others as well")
