"""Machines that were recorded: their files in /proc and /sys, and what their tools printed."""

from __future__ import annotations

from trainspec_validate.interop.discover import RecordedMachine
from trainspec_validate.interop.discover.tools import TOOLS

COMMANDS = {tool.format: tool.commands[0] for tool in TOOLS}
HOST_NAME = "secret-host-17"


def processors(num_sockets: int, num_cores: int, flags: str = "fpu sse2") -> str:
    """The text of /proc/cpuinfo, two threads on each core."""
    blocks = [
        f"processor\t: {2 * (socket * num_cores + core) + thread}\nphysical id\t: {socket}\ncore id\t\t: {core}\n"
        f"flags\t\t: {flags}\n"
        for socket in range(num_sockets)
        for core in range(num_cores)
        for thread in range(2)
    ]
    return "\n".join(blocks) + "\n"


def host(num_numa_nodes: int, flags: str = "fpu sse2") -> dict[str, str]:
    nodes = {f"/sys/devices/system/node/node{k}/cpulist": f"{k}\n" for k in range(num_numa_nodes)}
    return {
        "/proc/cpuinfo": processors(2, 48, flags),
        "/proc/meminfo": "MemTotal:       2113409024 kB\nMemFree:        1 kB\n",
        "/etc/os-release": 'PRETTY_NAME="Ubuntu 22.04.4 LTS"\nID=ubuntu\nVERSION_ID="22.04"\n',
        "/proc/sys/kernel/hostname": f"{HOST_NAME}\n",
        **nodes,
    }


def bridge(path: str, speed: str = "32.0 GT/s PCIe") -> dict[str, str]:
    return {
        f"{path}/class": "0x060400\n",
        f"{path}/current_link_speed": f"{speed}\n",
        f"{path}/current_link_width": "16\n",
    }


def device(path: str, identity: tuple[str, str, str], numa: int, **slot: str) -> dict[str, str]:
    device_class, vendor, number = identity
    slots = {
        "current_link_speed": "32.0 GT/s PCIe",
        "max_link_speed": "32.0 GT/s PCIe",
        "current_link_width": "16",
        "max_link_width": "16",
        **slot,
    }
    return {
        f"{path}/class": f"{device_class}\n",
        f"{path}/vendor": f"{vendor}\n",
        f"{path}/device": f"{number}\n",
        f"{path}/numa_node": f"{numa}\n",
        **{f"{path}/{key}": f"{value}\n" for key, value in slots.items()},
    }


def port(path: str, name: str, rate: str, layer: str = "InfiniBand", state: str = "4: ACTIVE") -> dict[str, str]:
    base = f"{path}/infiniband/{name}/ports/1"
    return {
        f"{base}/rate": f"{rate}\n",
        f"{base}/link_layer": f"{layer}\n",
        f"{base}/state": f"{state}\n",
        f"/sys/class/infiniband/{name}/node_guid": "0000:0000:0000:0000\n",
    }


def switched_slots(
    num: int, gpu: tuple[str, str, str], nic: tuple[str, str, str], rate: str, layer: str, **gpu_slot: str
) -> dict[str, str]:
    """One PCIe switch for each accelerator and its interface, half of them on each socket."""
    files: dict[str, str] = {}
    for k in range(num):
        bus = 0x10 * (k + 1)
        root = f"/sys/devices/pci0000:{bus:02x}/0000:{bus:02x}:01.0"
        up = f"{root}/0000:{bus + 1:02x}:00.0"
        down = [f"{up}/0000:{bus + 2:02x}:0{port_number}.0" for port_number in (0, 1)]
        numa = k * 2 // num
        for path in (root, up, *down):
            files |= bridge(path)
        files |= device(f"{down[0]}/0000:{bus + 3:02x}:00.0", gpu, numa, **gpu_slot)
        interface = f"{down[1]}/0000:{bus + 4:02x}:00.0"
        files |= device(interface, nic, numa) | port(interface, f"mlx5_{k}", rate, layer)
    return files


H100 = ("0x030200", "0x10de", "0x2330")
MI300X = ("0x120000", "0x1002", "0x74a1")
CONNECTX7_IB = ("0x020700", "0x15b3", "0x1021")
CONNECTX7_ETHERNET = ("0x020000", "0x15b3", "0x1021")


def nvidia_matrix(num: int) -> str:
    labels = [f"GPU{k}" for k in range(num)] + [f"NIC{k}" for k in range(num)]
    lines = ["\t" + "\t".join([*labels, "CPU Affinity", "NUMA Affinity", "GPU NUMA ID"])]
    for i in range(2 * num):
        cells = []
        for j in range(2 * num):
            same_socket = i % num * 2 // num == j % num * 2 // num
            far = "NODE" if same_socket else "SYS"
            both = i < num and j < num
            cells.append(" X " if i == j else "NV18" if both else "PIX" if i % num == j % num else far)
        lines.append("\t".join([labels[i], *cells, f"0-47\t{i * 2 // num}\t\tN/A" if i < num else "\t"]))
    legend = [f"  NIC{k}: mlx5_{k}" for k in range(num)]
    return "\n".join([*lines, "", "NIC Legend:", "", *legend, ""])


def h100_node() -> RecordedMachine:
    header = "index, name, memory.total [MiB], power.limit [W], pcie.link.gen.max, pcie.link.width.max, "
    rows = [f"{k}, NVIDIA H100 80GB HBM3, 81559 MiB, 700.00 W, 5, 16, Disabled, 550.90.07" for k in range(8)]
    idle = {"current_link_speed": "2.5 GT/s PCIe"}
    slots = switched_slots(8, H100, CONNECTX7_IB, "400 Gb/sec (4X NDR)", "InfiniBand", **idle)
    management = device("/sys/devices/pci0000:00/0000:00:05.0", ("0x020000", "0x8086", "0x1563"), 0)
    return RecordedMachine(
        {
            COMMANDS["nvidia-smi-query-csv"]: header + "mig.mode.current, driver_version\n" + "\n".join(rows) + "\n",
            COMMANDS["nvidia-smi-topology-matrix"]: nvidia_matrix(8),
        },
        {**host(2), **slots, **management},
        {"SLURM_JOB_NUM_NODES": "16", "SLURM_GPUS_ON_NODE": "8", "SLURMD_NODENAME": HOST_NAME},
    )


def rocm_matrices(num: int) -> str:
    def matrix(title: str, same: str, other: str) -> list[str]:
        labels = [f"GPU{k}" for k in range(num)]
        rows = [f"{label} " + " ".join(same if k == j else other for j in range(num)) for k, label in enumerate(labels)]
        return [f" {title} ".center(90, "="), " ".join(labels), *rows, ""]

    return "\n".join(
        [
            *matrix("Weight between two GPUs", "0", "15"),
            *matrix("Hops between two GPUs", "0", "1"),
            *matrix("Link Type between two GPUs", "0", "XGMI"),
            *(f"GPU[{k}]\t\t: (Topology) Numa Node: {k * 2 // num}" for k in range(num)),
            "",
        ]
    )


def mi300x_node() -> RecordedMachine:
    rows = [
        f"GPU[{k}]\t\t: Card Series: \t\tAMD Instinct MI300X\nGPU[{k}]\t\t: VRAM Total Memory (B): 206141652992\n"
        f"GPU[{k}]\t\t: Max Graphics Package Power (W): 750.0"
        for k in range(8)
    ]
    slots = switched_slots(8, MI300X, CONNECTX7_ETHERNET, "400 Gb/sec (4X NDR)", "Ethernet")
    return RecordedMachine(
        {COMMANDS["rocm-smi-list"]: "\n".join(rows) + "\n", COMMANDS["rocm-smi-topology"]: rocm_matrices(8)},
        {**host(2), **slots},
    )


def broken_node() -> RecordedMachine:
    """Tools print nonsense, a port is down, a slot lost half of its lanes, and files hold garbage."""
    slots = switched_slots(8, H100, CONNECTX7_IB, "400 Gb/sec (4X NDR)", "InfiniBand")
    base = "/sys/devices/pci0000:20/0000:20:01.0/0000:21:00.0"
    slots[f"{base}/0000:22:00.0/0000:23:00.0/current_link_width"] = "8\n"
    slots[f"{base}/0000:22:01.0/0000:24:00.0/infiniband/mlx5_1/ports/1/state"] = "1: DOWN\n"
    slots["/sys/devices/pci0000:30/0000:30:01.0/0000:31:00.0/0000:32:00.0/0000:33:00.0/numa_node"] = "-1\n"
    return RecordedMachine(
        {
            COMMANDS[
                "nvidia-smi-query-csv"
            ]: "Unable to determine the device handle for GPU 0000:23:00.0: Unknown Error\n",
            COMMANDS["nvidia-smi-topology-matrix"]: nvidia_matrix(8)[:700],
            COMMANDS["hwloc-xml"]: "<topology version='2.0'><object",
            COMMANDS["amd-smi"]: "\x00\x01garbage",
        },
        {
            **host(2),
            **slots,
            "/proc/cpuinfo": "\x00\ufffd",
            "/proc/meminfo": "MemTotal: many kB\n",
            "/etc/os-release": "ID\n",
        },
    )
