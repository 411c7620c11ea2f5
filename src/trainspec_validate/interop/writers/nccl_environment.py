"""Turns a job into environment variables for NCCL or RCCL and for PyTorch's watchdog."""

from __future__ import annotations

import math
import shlex
from collections.abc import Iterator
from dataclasses import dataclass

from trainspec_validate.interop.writers import _collectives
from trainspec_validate.interop.writers._target import Exported, Format, Job, header, joined, library, require_gpus

FILE = "nccl-env.sh"
CHECKED = "NCCL 2.30.7, RCCL 2.21.5, aws-ofi-nccl 1.21.1 and PyTorch 2.15.0"
_LEVELS = ("LOC", "PIX", "PXB", "PHB", "SYS")
"""Path classes that the user guide lists for NCCL_NET_GDR_LEVEL: https://docs.nvidia.com/deeplearning/nccl."""
_CROSS_NIC = {"forbidden": "0", "allowed": "1", "automatic": "2"}
_ALLOCATORS = {"expandable-segments": "expandable_segments:True", "asynchronous": "backend:cudaMallocAsync"}
_KNOWN_LIBRARIES = {"nvidia": ("", "nccl"), "amd": ("", "rccl")}
# A queue pair gives up after retries of 4.096 us times 2 to the power of NCCL_IB_TIMEOUT, asked seven times by default.
_TICK_SECONDS, _RETRIES, _LARGEST_TIMEOUT = 4.096e-6, 7, 31
_DEFAULT_TIMEOUTS = (18, 20)
"""Of RCCL 2.21 and of NCCL 2.30 (src/transport/net_ib.cc, src/transport/net_ib/connect.cc)."""


@dataclass(frozen=True, slots=True)
class Setting:
    """One environment variable with the keys that it follows from."""

    name: str
    value: str
    because: str
    """Keys of the documents, and the requirement where there is one."""


def ib_timeout(failover_seconds: float) -> int | None:
    """The smallest NCCL_IB_TIMEOUT, no smaller than a default, that outlasts a failover; None where defaults do.

    A queue pair waits 4.096 us x 2^timeout for an answer and asks seven times (InfiniBand specification, volume 1,
    local ACK timeout; NCCL user guide, NCCL_IB_TIMEOUT and NCCL_IB_RETRY_CNT). The smaller default of 18 lasts seven
    seconds, 20 half a minute, 22 two minutes:

    >>> ib_timeout(1.0), ib_timeout(10.0), ib_timeout(90.0)
    (None, 20, 22)

    Raises:
        ValueError: the time is negative, or longer than the largest value outlasts.
    """
    if failover_seconds < 0:
        raise ValueError("a failover takes no negative time")
    smallest, largest = _DEFAULT_TIMEOUTS
    for exponent in range(smallest, _LARGEST_TIMEOUT + 1):
        if _TICK_SECONDS * 2**exponent * _RETRIES >= failover_seconds:
            return None if exponent == smallest else max(exponent, largest)
    raise ValueError(f"no time-out of a queue pair outlasts {failover_seconds:g} s")


def settings(job: Job) -> tuple[list[Setting], list[str]]:
    """Every variable that the documents imply, and what they say that no variable can.

    Raises:
        NotExpressible: the accelerators are not those of NCCL or RCCL.
    """
    require_gpus(job)
    notes: list[str] = []
    name, _ = library(job)
    if name.casefold() not in _KNOWN_LIBRARIES[job.vendor]:
        notes.append(f"the library is {name}, whose variables were not checked; these are those of its ancestor")
    found = [*_interfaces(job, notes), *_machine(job, notes), *_network(job)]
    forced, unsaid = _collectives.forced(job)
    found += [Setting(variable, value, because) for variable, value, because in forced]
    found += _framework(job, notes)
    return found, [*notes, *unsaid]


def _interfaces(job: Job, notes: list[str]) -> Iterator[Setting]:
    fabric, nics, group = job.fabric, job.nics, job.nodes.group
    if fabric is None or not nics:
        if job.num_nodes > 1:
            notes.append("the fabric of the job's compute NICs is not decided, so no interface is chosen")
        return
    place = f"cluster: node_groups[{group.name}].nics[{', '.join(nic.name for nic in nics)}]"
    transport = f"cluster: fabrics[{fabric.name}].transport"
    variable = {"infiniband": "NCCL_IB_HCA", "rocev2": "NCCL_IB_HCA", "tcp": "NCCL_SOCKET_IFNAME"}.get(fabric.transport)
    if fabric.transport == "efa-srd":
        yield Setting("FI_PROVIDER", "efa", transport)
        if all(nic.gpu_direct for nic in nics):
            because = f"{place}.gpu_direct; needed before aws-ofi-nccl 1.7 with libfabric 1.18, harmless since"
            yield Setting("FI_EFA_USE_DEVICE_RDMA", "1", because)
    elif variable is None:
        notes.append(f"fabric {fabric.name} uses {fabric.transport}, for which no variable chooses interfaces")
    elif all(len(nic.devices) == nic.num_per_node for nic in nics):
        devices = ",".join(device for nic in nics for device in nic.devices)
        yield Setting(variable, f"={devices}", f"{place}.devices, matched exactly (TS-COM-002, TS-CLU-026)")
    else:
        notes.append(f"{place} lists no devices, so the library chooses among all interfaces; set {variable}")
    indices = {nic.gid_index for nic in nics}
    if fabric.transport == "rocev2" and len(indices) == 1 and None not in indices:
        yield Setting("NCCL_IB_GID_INDEX", str(indices.pop()), f"{place}.gid_index (TS-CLU-030)")
    yield from _direct_access(job, place, notes)


def _direct_access(job: Job, place: str, notes: list[str]) -> Iterator[Setting]:
    if any(nic.gpu_direct is False for nic in job.nics):
        yield Setting("NCCL_NET_GDR_LEVEL", "LOC", f"{place}.gpu_direct is false: never")
        return
    levels = {nic.gpu_direct_level for nic in job.nics}
    if len(levels) > 1:
        notes.append(f"{place}.gpu_direct_level differs between kinds; NCCL_NET_GDR_LEVEL holds for all")
        return
    for level in levels - {None}:
        if level in _LEVELS:
            yield Setting("NCCL_NET_GDR_LEVEL", str(level), f"{place}.gpu_direct_level (TS-CLU-031)")
        else:
            known = ", ".join(_LEVELS)
            notes.append(f"{place}.gpu_direct_level is {level}; NCCL_NET_GDR_LEVEL takes {known}")


def _machine(job: Job, notes: list[str]) -> Iterator[Setting]:
    group = job.nodes.group
    if group.host and group.host.topology_file:
        because = f"cluster: node_groups[{group.name}].host.topology_file (TS-CLU-019)"
        if "\n" in group.host.topology_file or "\r" in group.host.topology_file:
            notes.append("host.topology_file holds a line break and is no path that a script can carry")
        else:
            yield Setting("NCCL_TOPO_FILE", group.host.topology_file, because)
    scale_up = group.scale_up
    if job.vendor == "nvidia" and scale_up and scale_up.in_network_reduction is False:
        because = f"cluster: node_groups[{group.name}].scale_up.in_network_reduction is false (TS-COM-009)"
        yield Setting("NCCL_NVLS_ENABLE", "0", because)


def _network(job: Job) -> Iterator[Setting]:
    fabric = job.fabric
    if fabric is None:
        return
    place = f"cluster: fabrics[{fabric.name}]"
    if fabric.cross_rail_traffic:
        because = f"{place}.cross_rail_traffic is {fabric.cross_rail_traffic} (TS-TOP-003)"
        yield Setting("NCCL_CROSS_NIC", _CROSS_NIC[fabric.cross_rail_traffic], because)
    if fabric.failover_seconds is not None and fabric.transport in {"infiniband", "rocev2"}:
        timeout = ib_timeout(fabric.failover_seconds)
        if timeout is not None:
            because = f"{place}.failover_seconds, outlasted by 4.096 us x 2^{timeout} x {_RETRIES} (TS-COM-003)"
            yield Setting("NCCL_IB_TIMEOUT", str(timeout), because)
    if fabric.in_network_reduction and _collectives.wants_fabric_reduction(job):
        because = f"plan: communication.collectives, {place}.in_network_reduction (TS-COM-009)"
        yield Setting("NCCL_COLLNET_ENABLE", "1", because)


def _framework(job: Job, notes: list[str]) -> Iterator[Setting]:
    talk = job.plan.communication
    if talk and talk.timeout_seconds is not None:
        seconds = str(math.ceil(talk.timeout_seconds))
        because = "plan: communication.timeout_seconds"
        yield Setting("TORCH_NCCL_ASYNC_ERROR_HANDLING", "3", f"{because}: a time-out ends the process (TS-COM-004)")
        yield Setting(
            "TORCH_NCCL_HEARTBEAT_TIMEOUT_SEC",
            seconds,
            f"{because}: a watchdog that hangs is found as soon (TS-COM-004)",
        )
        notes.append(
            f"communication.timeout_seconds is no variable in PyTorch: init_process_group(timeout="
            f"timedelta(seconds={talk.timeout_seconds:g}))"
        )
    memory = job.plan.memory
    if memory and memory.allocator in _ALLOCATORS:
        because = "plan: memory.allocator; older versions of PyTorch read PYTORCH_CUDA_ALLOC_CONF"
        yield Setting("PYTORCH_ALLOC_CONF", _ALLOCATORS[memory.allocator], because)


def write(job: Job) -> Exported:
    """The variables as a file for `source`, each below the key that it follows from.

    Raises:
        NotExpressible: the accelerators are not those of NCCL or RCCL.
    """
    found, left_out = settings(job)
    lines = header(job, CHECKED)
    for setting in found:
        lines += ["", f"# {setting.because}", f"export {setting.name}={shlex.quote(setting.value)}"]
    if not found:
        lines += ["", "# The documents imply no setting; the library's defaults hold."]
    return Exported(FILE, joined(lines), tuple(left_out))


FORMATS = (Format("nccl-env", f"environment of NCCL or RCCL, a shell file ({CHECKED})", write),)
