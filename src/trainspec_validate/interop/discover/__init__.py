"""Describes the machine that it runs on, from its tools and from the files of its kernel."""

from __future__ import annotations

import re

from trainspec_validate.interop.discover import nvml_answer
from trainspec_validate.interop.discover.machine import LocalMachine, Machine, RecordedMachine
from trainspec_validate.interop.discover.sysfs import describe_devices
from trainspec_validate.interop.discover.tools import NVIDIA, TOOLS, Answer, ask, others
from trainspec_validate.interop.fragment import ForeignFormatError, ForeignText, Fragment
from trainspec_validate.interop.readers._draft import Draft, as_name, plain_int

__all__ = ["LocalMachine", "Machine", "RecordedMachine", "discover"]

KERNEL_FORMAT = "linux-kernel"
_NAME = "this machine"
_VENDORS = {"10de": "NVIDIA", "1002": "AMD", "1ae0": "Google"}
_NODES = "/sys/devices/system/node"
_CPUS = "/sys/devices/system/cpu"
_MAX_PROCESSORS = 16_384
_MEMORY = re.compile(r"(?:Node [0-9]{1,4} )?MemTotal:\s*([0-9]{1,15}) kB", re.ASCII)


def discover(machine: Machine) -> tuple[Fragment, ...]:
    """One fragment from the kernel, then one from NVML or else nvidia-smi, and one from each other tool that answered.

    A source that is missing, fails or returns nonsense never stops the others; the fragment from the kernel says so
    where it matters. Host names, serial numbers and addresses of the network are not recorded.

    >>> discover(RecordedMachine())[0].format
    'linux-kernel'
    """
    draft = Draft()
    _describe_host(machine, draft)
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


def _describe_host(machine: Machine, draft: Draft) -> None:
    """Writes what the operating system reports about the host side of the node."""
    cpuinfo = machine.read("/proc/cpuinfo") or ""
    cores = _cores_of_cpuinfo(cpuinfo) or _cores_of_sysfs(machine)
    if cores:
        draft.group("host", "num_sockets", value=min(64, len({package for package, _ in cores})), how="packages seen")
        draft.group("host", "num_cores", value=len(cores), how="pairs of package and core, which threads share")
    else:
        for key in ("num_sockets", "num_cores"):
            draft.group_unknown("host", key, reason="neither /proc/cpuinfo nor /sys lists packages and cores")
    _virtual(cpuinfo, draft)
    _memory(machine, draft)
    _system(machine, draft)
    for key in ("acs_enabled", "ats_enabled"):
        draft.group_unknown("host", key, reason="needs the right to read PCI configuration; see lspci -vvv")


def _cores_of_cpuinfo(text: str) -> set[tuple[int, int]]:
    """Package and core of every processor; empty where the architecture does not write them."""
    found: set[tuple[int, int]] = set()
    for block in text.split("\n\n")[:_MAX_PROCESSORS]:
        fields = {key.strip(): value.strip() for key, _, value in (line.partition(":") for line in block.split("\n"))}
        package = plain_int(fields.get("physical id"), 0, 4096)
        core = plain_int(fields.get("core id"), 0, 1_000_000)
        if package is not None and core is not None:
            found.add((package, core))
    return found


def _cores_of_sysfs(machine: Machine) -> set[tuple[int, int]]:
    found: set[tuple[int, int]] = set()
    for name in machine.list(_CPUS)[:_MAX_PROCESSORS]:
        if re.fullmatch(r"cpu[0-9]{1,5}", name):
            package = plain_int(machine.read(f"{_CPUS}/{name}/topology/physical_package_id"), 0, 4096)
            core = plain_int(machine.read(f"{_CPUS}/{name}/topology/core_id"), 0, 1_000_000)
            if package is not None and core is not None:
                found.add((package, core))
    return found


def _virtual(cpuinfo: str, draft: Draft) -> None:
    flags = re.search(r"^flags[ \t]*:(.*)$", cpuinfo, re.MULTILINE)
    if flags is None:
        draft.group_unknown("host", "virtualised", reason="the processor does not report it; see systemd-detect-virt")
    else:
        value = "hypervisor" in flags[1].split()
        draft.group("host", "virtualised", value=value, how="the flag `hypervisor` of the processor")


def _memory(machine: Machine, draft: Draft) -> None:
    """Memory of NUMA nodes with processors; a node without may be the memory of an accelerator."""
    nodes = [name for name in machine.list(_NODES) if re.fullmatch(r"node[0-9]{1,4}", name)][:1024]
    if nodes:
        draft.group("host", "num_numa_nodes", value=len(nodes))
    else:
        draft.group_unknown("host", "num_numa_nodes", reason="/sys shows no NUMA node")
    bare = [name for name in nodes if (machine.read(f"{_NODES}/{name}/cpulist") or "0").strip() == ""]
    if bare:
        draft.remark(f"{len(bare)} NUMA nodes have no processor; their memory is not counted as the host's")
        texts = [machine.read(f"{_NODES}/{name}/meminfo") for name in nodes if name not in bare]
    else:
        texts = [machine.read("/proc/meminfo")]
    sizes = [match and int(match[1]) * 1024 for match in (_MEMORY.search(text or "") for text in texts)]
    total = sum(size for size in sizes if size)
    if sizes and all(sizes) and 1e8 <= total <= 1e14:
        draft.group("host", "memory_bytes", value=float(total), how="MemTotal, without what the kernel keeps")
    else:
        draft.group_unknown("host", "memory_bytes", reason="no MemTotal was readable")


def _system(machine: Machine, draft: Draft) -> None:
    pairs = (line.partition("=") for line in (machine.read("/etc/os-release") or "").split("\n"))
    fields = {key: value.strip().strip('"') for key, _, value in pairs}
    name, version = fields.get("ID", ""), fields.get("VERSION_ID", "")
    if name:
        system = {"name": as_name(name, "linux")}
        if re.fullmatch(r"[!-~]{1,64}", version):
            system["version"] = version
        draft.fact(("software", "operating_system"), system)
