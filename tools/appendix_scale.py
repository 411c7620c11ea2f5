"""Writes the page of scale classes: what changes from one node to the largest fabrics, by the models of the tools."""

from __future__ import annotations

import math
from collections.abc import Iterator

from appendix_machines import switched
from appendix_text import MIB, digits, fixed, page, percent, section, size, table

from trainspec_validate.performance.costs import collectives, energy, fabric, reliability

CLASSES = (8, 64, 1_024, 16_384, 131_072)
PER_NODE, ACCELERATOR_WATTS = 8, 700
FAILURES = 6.5
BLOCKING_SECONDS, RECOVERY_SECONDS, PERSIST_SECONDS = 2.0, 90.0, 60.0
MESSAGES = (1.0 * MIB, 256.0 * MIB)
PORTS = (64, 512)
INTERFACE_RATE = 50e9
CADENCE_SECONDS, RECORD_BYTES, SERIES_PER_RANK = 10, 150, 20
DAY = 86400.0

INTRODUCTION = f"""
A rule that is right for one node can be wrong for a thousand. This page has what changes between five classes of scale:
{", ".join(digits(count) for count in CLASSES)} accelerators. The numbers follow from the formulas of the other pages;
the last section says what to do in each class, with the requirements that ask for it. This page is informative: it
states no requirement.

All classes have nodes of {PER_NODE} accelerators with a limit of {ACCELERATOR_WATTS} W each, one interface of 400 Gb/s
for each accelerator, and {FAILURES:g} failures of nodes that stop a job in 1,000 node-days, as one fleet of A100 had.
That rate is a lower bound: counted on jobs, those of 1,024 accelerators in that fleet failed every 7.9 h where it gives
28.8 (arXiv:2410.21680). **Without a count of your own plan with the shorter time:** 7.9 h at 128 nodes, in proportion
4 h at 256. No published rate of AMD accelerators was found.
A save stops training for {BLOCKING_SECONDS:g} s and is durable after {PERSIST_SECONDS:g} s, a recovery takes
{RECOVERY_SECONDS:g} s. Failures are taken to grow in proportion to nodes. Other machines have other numbers.
"""
FAILURE_TEXT = """
Failures grow with the nodes, and the best interval of saves with the square root of the time between two failures
(`reliability.job_mtbf_seconds`, `reliability.recommended_interval`). Effective time is what is left of the wall time
after saves, lost work and recoveries (`reliability.effective_training_time_ratio`). Spares cover a repair time of one
day in 99 of 100 cases (`reliability.spare_nodes`).
"""
NETWORK_TEXT = """
The fewest tiers that join all interfaces without oversubscription, by ports of a switch (`fabric.most_interfaces`), and
the algorithm and time of an all-reduce over all ranks (`collectives.best`, on InfiniBand under NCCL). A multi-plane
fabric splits each interface, so that a switch counts as one of more ports ([Fabrics](../v1/92-fabrics.md#mrc)).
"""
OPERATION_TEXT = f"""
Full power of the nodes is that of `energy.node_watts`. The swing is what they change by between working and waiting
([TS-NRG-016](../v1/12-energy.md#TS-NRG-016)). Telemetry is {SERIES_PER_RANK} series of every rank with a value every
{CADENCE_SECONDS} s and {RECORD_BYTES} bytes for each record, before compression.
"""
PRACTICE = {
    "8": "One node: no fabric and no placement. The domain holds every group; memory and kernels decide.",
    "64": "Data ranks cross the fabric. Versions of the collective library, NIC paths and overlap begin to matter.",
    "1,024": "A job fails every 8 to 29 h: saves are asynchronous, spares are ready, stragglers are looked for.",
    "16,384": """Failures come within hours: copies are in memory or at peers, ranks follow the topology, trees carry
        more messages than rings, and the power of all nodes swings together.""",
    "131,072": """Failures come every quarter of an hour and take a sixth of the time, so that a part of the job
        restarts and not the whole. The fabric routes around lost links without a restart. Sites or pods can average
        at an interval.""",
}
"""Recommendations for each class."""
ANSWERS = {
    "8": ("06-memory", "07-kernels"),
    "64": ("05-communication#TS-COM-001", "02-network#TS-CLU-027", "05-communication#TS-COM-011"),
    "1,024": ("10-checkpoints#TS-CKP-005", "10-recovery-policy#TS-CKP-048", "09-ranks#TS-TEL-035"),
    "16,384": (
        "10-copies-and-tiers#TS-CKP-019",
        "10-peers#TS-CKP-106",
        "03-placement#TS-TOP-022",
        "12-energy#TS-NRG-016",
    ),
    "131,072": ("05-communication#TS-COM-003", "10-recovery-policy#TS-CKP-042", "04-synchrony#TS-PAR-045"),
}
"""Pages and requirements that ask for it."""


def _nodes(count: int) -> int:
    return count // PER_NODE


def _failures() -> Iterator[tuple[str, ...]]:
    for count in CLASSES:
        mtbf = reliability.job_mtbf_seconds(_nodes(count), FAILURES)
        interval = reliability.recommended_interval(BLOCKING_SECONDS, mtbf, PERSIST_SECONDS)
        effective = reliability.effective_training_time_ratio(interval, BLOCKING_SECONDS, mtbf, RECOVERY_SECONDS)
        yield (
            digits(count),
            digits(_nodes(count)),
            _duration(mtbf),
            percent(math.exp(-DAY / mtbf)),
            _duration(interval),
            percent(effective),
            digits(reliability.spare_nodes(_nodes(count), FAILURES, DAY)),
        )


def _duration(seconds: float) -> str:
    for unit, name in ((DAY, "days"), (3600.0, "h"), (60.0, "min")):
        if seconds >= 2 * unit:
            return f"{fixed(seconds / unit)} {name}"
    return f"{fixed(seconds)} s"


def num_tiers(count: int, ports: int) -> int:
    """Fewest tiers of switches that join so many interfaces without oversubscription."""
    tiers = 1
    while _most(tiers, ports) < count:
        tiers += 1
    return tiers


def _most(tiers: int, ports: int) -> int:
    half = ports // 2
    below = [fabric.Layer(half, INTERFACE_RATE, INTERFACE_RATE) for _ in range(tiers - 1)]
    return fabric.most_interfaces([*below, fabric.Layer(ports, INTERFACE_RATE, INTERFACE_RATE)], INTERFACE_RATE)


def _networks() -> Iterator[tuple[str, ...]]:
    for count in CLASSES:
        tiers = [digits(num_tiers(count, ports)) if count > PER_NODE else "none" for ports in PORTS]
        found = [collectives.best("all-reduce", message, switched(count, "infiniband")) for message in MESSAGES]
        times = [f"{one.algorithm}, {fixed(one.seconds * 1e3, 2)} ms" for one in found]
        yield digits(count), *tiers, *times


def _operation() -> Iterator[tuple[str, ...]]:
    for count in CLASSES:
        watts = _nodes(count) * energy.node_watts(PER_NODE, ACCELERATOR_WATTS)
        swing = (energy.BUSY_SHARE - energy.WAITING_SHARE) * watts
        records = count * SERIES_PER_RANK / CADENCE_SECONDS
        yield (
            digits(count),
            _power(watts),
            _power(swing),
            digits(records),
            f"{digits(records * RECORD_BYTES * DAY / 1e9)} GB",
        )


def _practice() -> Iterator[tuple[str, str, str]]:
    for count, words in PRACTICE.items():
        yield count, " ".join(words.split()), ", ".join(map(_link, ANSWERS[count]))


def _link(place: str) -> str:
    page_name, _, requirement = place.partition("#")
    return f"[{requirement or page_name[3:]}](../v1/{page_name}.md{'#' if requirement else ''}{requirement})"


def _power(watts: float) -> str:
    return f"{digits(watts / 1e6)} MW" if watts >= 1e6 else f"{digits(watts / 1e3)} kW"


def write() -> str:
    """Text of the page."""
    failures = ("accelerators", "nodes", "between failures", "a day without one", "interval", "effective", "spares")
    networks = ("accelerators", *(f"tiers of {ports} ports" for ports in PORTS))
    messages = (f"all-reduce of {size(message)}" for message in MESSAGES)
    operation = ("accelerators", "full power", "swing", "records per second", "telemetry per day")
    return page(
        "Scale classes",
        INTRODUCTION,
        section("Failures", FAILURE_TEXT, table(failures, _failures())),
        section("Network", NETWORK_TEXT, table((*networks, *messages), _networks())),
        section("Power and telemetry", OPERATION_TEXT, table(operation, _operation())),
        section("Differences of classes", table(("accelerators", "what changes", "requirements"), _practice())),
    )
