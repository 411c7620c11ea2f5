"""Rules on paths and loss: packet order, flow control and the choice of routes."""

from __future__ import annotations

from collections.abc import Iterator

from trainspec_validate.documents.types import ClusterProfile
from trainspec_validate.documents.types.fabric import Fabric
from trainspec_validate.rules import NotApplicable, Unresolved, Violation, at, rule
from trainspec_validate.rules._machine import declared_fabrics

REORDERING = frozenset({"efa-srd", "mrc", "uet", "slingshot"})
"""Transports whose receivers place packets in any order by design."""


@rule("TS-TOP-004")
def packet_order(cluster: ClusterProfile) -> Iterator[Violation]:
    """Packets of one flow take different paths only where the receiver takes them in any order."""
    judged = False
    for index, fabric in declared_fabrics(cluster):
        spraying = fabric.spraying
        sprays = fabric.path_selection == "packet-spraying" or (spraying and spraying.mode == "packet")
        if not sprays:
            continue
        judged = True
        reorders = spraying.out_of_order_delivery if spraying else None
        if reorders is False or (reorders is None and fabric.transport not in REORDERING):
            key = ("spraying", "out_of_order_delivery") if reorders is False else ("path_selection",)
            if reorders is None and spraying and spraying.mode == "packet":
                key = ("spraying", "mode")
            yield Violation(
                at(cluster, "fabrics", index, *key),
                f"{fabric.name} sends the packets of a flow over several paths, but its receivers are "
                f"{'not ' if reorders is False else 'not said to be '}able to take them out of order",
                "set spraying.out_of_order_delivery: true if that is so, or spread flows and not packets",
            )
    if not judged:
        raise NotApplicable("no fabric spreads the packets of one flow")


@rule("TS-TOP-005")
def loss_handling(cluster: ClusterProfile) -> Iterator[Violation]:
    """Promise and means of loss handling agree."""
    found = [(i, f) for i, f in declared_fabrics(cluster) if f.loss is not None]
    if not found:
        raise NotApplicable("no fabric says how it handles loss")
    for index, fabric in found:
        for key, message, remedy in _loss_conflicts(fabric):
            yield Violation(at(cluster, "fabrics", index, *key), f"{fabric.name} {message}", remedy)
    for index, fabric in found:
        lacks = _open_means(fabric)
        if lacks:
            place = at(cluster, "fabrics", index, "loss", "lossless")
            reason = f"promises that {fabric.name} drops no packets, and does not give {' or '.join(lacks)}"
            raise Unresolved(place, reason, "write the one that the fabric uses")


def _open_means(fabric: Fabric) -> list[str]:
    """The means against loss that a lossless fabric does not state, where it states none that it uses."""
    if fabric.loss is None or not fabric.loss.lossless:
        return []
    means = {key: getattr(fabric.loss, key) for key in ("credit_flow_control", "priority_flow_control")}
    return [] if any(means.values()) else [key for key, value in means.items() if value is None]


def _loss_conflicts(fabric: Fabric) -> Iterator[tuple[tuple[str, ...], str, str]]:
    loss = fabric.loss
    if loss is None:
        return
    if loss.lossless:
        if loss.credit_flow_control is False and loss.priority_flow_control is False:
            yield (
                ("loss", "lossless"),
                "promises not to drop packets, but has neither credits nor priority flow control",
                "write credit_flow_control: true or priority_flow_control: true, or set lossless: false",
            )
        if loss.packet_trimming:
            yield (
                ("loss", "packet_trimming"),
                "promises not to drop packets, and trims them",
                "trimming belongs to a fabric with lossless: false and no priority flow control",
            )
    elif loss.priority_flow_control:
        yield (
            ("loss", "priority_flow_control"),
            "drops packets, yet pauses senders with priority flow control",
            "set priority_flow_control: false, or lossless: true",
        )
    elif fabric.transport == "infiniband":
        yield (
            ("loss", "lossless"),
            "runs infiniband, whose links always use credits, but claims to drop packets",
            "set lossless: true and credit_flow_control: true",
        )
    if fabric.congestion and fabric.congestion.signal == "trimming" and not loss.packet_trimming:
        yield (
            ("congestion", "signal"),
            "signals congestion by trimmed packets, but does not trim",
            "set loss.packet_trimming: true, or name the signal in use",
        )


@rule("TS-TOP-006")
def path_control(cluster: ClusterProfile) -> Iterator[Violation]:
    """Routing mode, control plane and path selection fit each other."""
    found = [(i, f) for i, f in declared_fabrics(cluster) if f.routing is not None]
    if not found:
        raise NotApplicable("no fabric says how it routes")
    for index, fabric in found:
        for key, message, remedy in _path_conflicts(fabric):
            yield Violation(at(cluster, "fabrics", index, *key), f"{fabric.name} {message}", remedy)


def _path_conflicts(fabric: Fabric) -> Iterator[tuple[tuple[str, ...], str, str]]:
    routing = fabric.routing
    if routing is None:
        return
    mode, control, path = routing.mode, routing.control_plane, fabric.path_selection
    plane = ("routing", "control_plane")
    if mode == "source" and control not in {None, "none"}:
        yield (
            plane,
            f"writes paths into packets, so {control} has nothing to compute",
            "set control_plane: none",
        )
    if mode in {"ecmp", "adaptive"} and control == "none":
        yield (
            plane,
            f"has no control plane, but {mode} routing needs the routes of one",
            "name what computes them",
        )
    if control == "subnet-manager" and fabric.transport not in {"infiniband", "omni-path", "other"}:
        message = f"names a subnet manager, which {fabric.transport} does not have"
        yield plane, message, "set control_plane to bgp, none or other"
    if control == "bgp" and fabric.transport in {"infiniband", "omni-path"}:
        yield (
            plane,
            f"names bgp, but {fabric.transport} gets its routes from a subnet manager",
            "set subnet-manager",
        )
    if path in {"ecmp", "adaptive"} and mode != path:
        message = f"selects paths by {path}, but routes by {mode}"
        yield (
            ("path_selection",),
            message,
            f"set routing.mode: {path}, or path_selection to what routing does",
        )
    if path == "single" and (mode in {"ecmp", "adaptive"} or (fabric.spraying and fabric.spraying.mode != "none")):
        message = "gives each flow a single path, but routing or spraying spreads flows"
        yield ("path_selection",), message, "set path_selection to what routing does"
