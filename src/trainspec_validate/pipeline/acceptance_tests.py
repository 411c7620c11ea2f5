"""Finds which tests no file of a node has a result of, for the statement on an acceptance."""

from __future__ import annotations

from collections.abc import Mapping, Set

BUS_BANDWIDTH = "bus bandwidth"
SHORT_RUN = "short run"
_COPIES = ("host-to-device", "device-to-host", "device-to-device")
_TESTS: Mapping[str, tuple[str, ...]] = {
    "diagnostics": ("Integration", "Hardware", "Stress"),
    "copies": _COPIES,
    "Linpack": (),
    BUS_BANDWIDTH: (),
    SHORT_RUN: (),
}
"""Tests that load a machine, each with its parts. Levels 1, 2 and 3 of `dcgmi diag` end with other sections."""


def not_run(ran: Mapping[str, Set[str]]) -> dict[str, tuple[str, ...]]:
    """The nodes of which no file has a result of a test, by test; of a test that ran in part, by part.

    Args:
        ran: the tests and parts that files of a node have results of, by node.

    >>> not_run({"node-0": {"copies: host-to-device", "Linpack", "bus bandwidth"}})
    {'diagnostics': ('node-0',), 'copies: device-to-host': ('node-0',), 'copies: device-to-device': ('node-0',), \
'short run': ('node-0',)}
    """
    found: dict[str, tuple[str, ...]] = {}
    for test, names in _TESTS.items():
        parts = {f"{test}: {name}" for name in names}
        found[test] = tuple(node for node, own in ran.items() if test not in own and not own & parts)
        for part in (f"{test}: {name}" for name in names):
            found[part] = tuple(node for node, own in ran.items() if part not in own and node not in found[test])
    return {test: nodes for test, nodes in found.items() if nodes}
