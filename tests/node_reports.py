"""What the tools of a node print, and the profile of the cluster that it belongs to: made for tests of acceptance."""

from __future__ import annotations

from typing import Any

HEAD = """
==============NVSMI LOG==============

Timestamp                                 : Thu Nov 26 12:00:00 2026
Driver Version                            : {driver}
CUDA Version                              : 12.2

Attached GPUs                             : {num}
"""
GPU = """GPU 00000000:{bus:02X}:00.0
    Product Name                          : NVIDIA H100 80GB HBM3
    Serial Number                         : {serial}
    GPU UUID                              : GPU-00000000-0000-0000-0000-0000000000{bus:02x}
    VBIOS Version                         : {vbios}
    MIG Mode
        Current                           : {mig}
        Pending                           : Disabled
    GPU Reset Status
        Reset Required                    : {reset}
        Drain and Reset Recommended       : {drain}
    GPU Recovery Action                   : {action}
    PCI
        Bus                               : 0x{bus:02X}
        GPU Link Info
            PCIe Generation
                Max                       : {most}
                Current                   : {generation}
                Device Max                : 5
                Host Max                  : N/A
            Link Width
                Max                       : 16x
                Current                   : {width}
    Performance State                     : {state}
    Clocks Event Reasons
        Idle                              : Active
        HW Slowdown                       : Not Active
            HW Thermal Slowdown           : {thermal}
    ECC Mode
        Current                           : {ecc}
        Pending                           : Enabled
    FB Memory Usage
        Total                             : 81559 MiB
    ECC Errors
        Volatile
            SRAM Uncorrectable Parity     : 0
            DRAM Correctable              : 7
            DRAM Uncorrectable            : {errors}
        Aggregate
            DRAM Uncorrectable            : 9
            SRAM Threshold Exceeded       : {sram}
    Retired Pages
        Pending Page Blacklist            : {retired}
    Remapped Rows
        Uncorrectable Error               : 1
        Pending                           : {pending}
        Remapping Failure Occurred        : No
    GPU Power Readings
        Current Power Limit               : {power} W
        Default Power Limit               : 700.00 W
    Applications Clocks
        Graphics                          : {application} MHz
    Max Clocks
        SM                                : {clock} MHz
    Fabric
        State                             : {fabric}
        Status                            : {status}
        Health
            Summary                       : {health}
            Bandwidth                     : N/A
"""
USUAL = {
    "vbios": "96.00.5E.00.01",
    "width": "16x",
    "thermal": "Not Active",
    "errors": 0,
    "pending": "No",
    "clock": 1980,
    "mig": "Disabled",
    "reset": "No",
    "drain": "No",
    "action": "None",
    "most": 5,
    "generation": 1,
    "state": "P8",
    "ecc": "Enabled",
    "sram": "No",
    "retired": "N/A",
    "power": "700.00",
    "application": 1980,
    "fabric": "Completed",
    "status": "Success",
    "health": "Healthy",
}
PORT = """CA '{device}'
\tCA type: MT4129
\tNumber of ports: 1
\tFirmware version: {firmware}
\tHardware version: 0
\tNode GUID: 0x{guid}
\tPort 1:
\t\tState: {state}
\t\tPhysical state: LinkUp
\t\tRate: {rate}
\t\tLink layer: {layer}
"""
DIAGNOSTIC = """Successfully ran diagnostic for group.
+---------------------------+------------------------------------------------+
| Diagnostic                | Result                                         |
+===========================+================================================+
| Denylist                  | Pass                                           |
| PCIe                      | {result}|
| EUD Test                  | Pass - All                                     |
+---------------------------+------------------------------------------------+
"""


def smi(num: int = 8, driver: str = "535.183.01", *, of_all: bool = False, **odd: Any) -> str:
    """The report of GPUs, of which the third is odd, or all."""
    usual = ({**USUAL, "bus": 16 + 8 * i, "serial": f"16500000000{i:02}"} for i in range(num))
    gpus = (GPU.format(**{**one, **(odd if of_all or i == 2 else {})}) for i, one in enumerate(usual))
    return HEAD.format(num=num, driver=driver) + "\n".join(gpus)


def ports(**odd: Any) -> str:
    """Eight ports, of which the third is odd."""
    usual = {"firmware": "28.39.1002", "state": "Active", "rate": 400, "layer": "InfiniBand"}
    own = ({"device": f"mlx5_{i}", "guid": f"a088c20300000{i:03}", **usual} for i in range(8))
    each = (PORT.format(**{**one, **(odd if i == 2 else {})}) for i, one in enumerate(own))
    return "".join(each)


def of_node(number: int, text: str) -> str:
    """Reports with what is unique on each node, and with the name of the node."""
    for fixed, own in (
        ("GPU-00000000-", f"GPU-{number:08x}-"),
        (": 165000", f": 165{number:03}"),
        ("0xa088c203", f"0xa088c2{number:02x}"),
        (" on node device", f" on node-{number} device"),
    ):
        text = text.replace(fixed, own)
    return text


def diagnostic(result: str = "Pass - All") -> str:
    return DIAGNOSTIC.format(result=f"{result:<47}")


def links(num: int = 8) -> str:
    """The state of the links of GPUs."""
    return "".join(
        f"GPU {gpu}: NVIDIA H100 (UUID: GPU-00000000-0000-0000-0000-0000000000{16 + 8 * gpu:02x})\n"
        + "".join(f"\t Link {i}: 26.562 GB/s\n" for i in range(18))
        for gpu in range(num)
    )


def benchmark(rate: float, size: int = 8589934592, num_wrong: str = "0") -> str:
    ranks = "".join(f"#  Rank {i:2} Group  0 Pid  9 on node device {i} [0x{i:02x}] NVIDIA H100\n" for i in range(8))
    head = "#       size         count      type   redop    root     time   algbw   busbw #wrong\n"
    time = f"{size / (rate / 1.75) / 1e3:.1f}"
    row = f"  {size}  {size // 4}  float  sum  -1  {time}  {rate / 1.75:.2f}  {rate:.2f}  {num_wrong}\n"
    return f"# all_reduce_perf\n# Using devices\n{ranks}{head}{row}"


def profile(num_nodes: int) -> str:
    nics = "{name: rail, num_per_node: 8, technology: infiniband, rate_bytes_per_second: 50e9, devices: [%s]}"
    nic = nics % ", ".join(f"mlx5_{i}" for i in range(8))
    return f"""apiVersion: trainspec/v1
kind: ClusterProfile
metadata: {{name: hall-a}}
num_nodes: {num_nodes}
num_accelerators: {8 * num_nodes}
node_groups:
  - name: compute
    num_nodes: {num_nodes}
    num_accelerators_per_node: 8
    accelerator: {{model: nvidia-h100-sxm-80gb}}
    host_link: {{technology: pcie, generation: 5, num_lanes: 16}}
    scale_up:
      {{technology: nvlink, generation: "4", topology: switched, domain_num_accelerators: 8, num_links: 18,
       link_bandwidth_bytes_per_second: 25e9, bandwidth_bytes_per_second: 450e9}}
    nics:
      - {nic}
software:
  driver: {{name: nvidia, version: 535.183.01}}
"""
