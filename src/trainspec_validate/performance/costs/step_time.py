"""Predicts the time of an optimizer step."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from functools import lru_cache
from types import MappingProxyType

from trainspec_validate.performance.costs import collectives
from trainspec_validate.performance.costs.collective_libraries import NEWER_SWITCHES
from trainspec_validate.performance.costs.kernel_efficiency import MEMORY_FRACTION
from trainspec_validate.performance.costs.network import Network
from trainspec_validate.performance.costs.step_compute import (
    CALIBRATION,
    Calibration,
    Passes,
    Work,
    idle_ratio,
    passes,
    steady_share,
)
from trainspec_validate.performance.costs.step_traffic import (
    Transfer,
    gradient_reductions,
    rank_parameters,
    recomputed,
    transfers,
)

__all__ = ["CALIBRATION", "Calibration", "StepTime", "Work", "least_seconds", "seconds_of", "step_time"]

TimeOf = Callable[[str, float, Network], float]
"""Seconds of an operation on a message of so many bytes over a network."""


@dataclass(frozen=True, slots=True)
class StepTime:
    """Where the seconds of an optimizer step go, on the slowest path."""

    compute_seconds: float
    """Matrix products, attention and kernels bound by memory, recomputation included."""
    bubble_seconds: float
    """Waiting for other pipeline stages."""
    exposed_seconds: Mapping[str, float]
    """Communication that computation does not hide, by axis."""
    optimizer_seconds: float
    data_stall_seconds: float

    @property
    def seconds(self) -> float:
        """The whole step."""
        parts = (self.compute_seconds, self.bubble_seconds, self.optimizer_seconds, self.data_stall_seconds)
        return sum(parts) + sum(self.exposed_seconds.values())


class _Cover:
    """Seconds of computation that messages can still hide behind.

    Messages of every micro-batch have all of them, those of experts the other micro-batches; tensor ranks hide theirs
    behind the products next to them, or the sums of input gradients behind the gradients of weights, half of a
    backward pass where all are trained. Messages of once a step have the last backward or first forward pass; with v
    chunks the gradients of a chunk are complete after its p last micro-batches, so that they spread over
    (1 - 1/v) (p - 1) passes more. Each second of computation hides one message once, whatever links it takes. Windows
    contain each other or share nothing, so that no order of messages hides more than another, and a step with less to
    hide behind saves at least as much computation as it then waits.
    """

    def __init__(self, work: Work, passes: Passes) -> None:
        layout = work.layout
        m, v = layout.num_micro_batches, layout.num_virtual_stages
        once = 1 + (1 - 1 / v) * (min(layout.pipeline, m) - 1)
        forward = m if layout.sharding_stage == 3 else once
        backward = min(m, once * gradient_reductions(layout)) if layout.sharding_stage >= 2 else once
        gradients = work.trained_share / (1 + work.trained_share)
        self._left: dict[str, float] = {
            "all": m * (passes.forward + passes.backward),
            "all backward": m * passes.backward,
            "forward": forward * passes.forward if work.overlap_parameters else 0.0,
            "backward": backward * passes.backward if work.overlap_gradients else 0.0,
            "other micro-batches": (m - 1) * (passes.forward + passes.backward),
            "weight-gradients": m * passes.backward * gradients if work.overlap_input_gradients else 0.0,
        }
        self._windows: dict[str, tuple[str, ...]] = {
            "forward": ("forward", "all"),
            "backward": ("backward", "all backward", "all"),
            "weight-gradients": ("weight-gradients", "all backward", "all"),
        }
        if work.overlap_tensor:
            self._windows["tensor"] = ("all",)
        if work.overlap_expert or work.layout.schedule == "dual-pipe":
            self._windows["expert"] = ("other micro-batches", "all")
        if work.overlap_pipeline:
            self._windows["compute"] = ("all",)

    def hide(self, seconds: float, kind: str) -> float:
        """Seconds of a message that computation hides; they are spent then."""
        windows = self._windows.get(kind, ())
        hidden = min((seconds, *(self._left[name] for name in windows))) if windows else 0.0
        for name in windows:
            self._left[name] -= hidden
        return hidden


def _messages(work: Work, networks: Mapping[str, Network], time_of: TimeOf) -> list[tuple[str, float, str]]:
    """Axis and seconds of the messages of a step, with what they can hide behind."""
    gradient_bytes = work.trained_share * work.gradient_bytes
    plain = transfers(work.shape, work.layout, 2, gradient_bytes, work.parameter_bytes)
    found = []
    for once, one in zip(plain, recomputed(plain, work.repeated_share), strict=True):
        each = time_of(one.operation, one.message_bytes, _network(networks, one))
        if one.axis == "tensor" and one.operation != "all-gather" and not work.overlap_tensor:
            backward = once.count / 2
            found.append((one.axis, backward * each, "weight-gradients"))
            found.append((one.axis, (one.count - backward) * each, "none"))
        else:
            kind = one.axis if one.axis in {"tensor", "expert"} else one.overlappable
            found.append((one.axis, one.count * each, kind))
    return found


def _network(networks: Mapping[str, Network], sent: Transfer) -> Network:
    name = "data" if sent.axis == "expert-data" and "expert-data" not in networks else sent.axis
    try:
        return networks[name]
    except KeyError:
        raise ValueError(f"the {name} axis sends messages, but no network is given for it") from None


@lru_cache(maxsize=1 << 18)
def seconds_of(operation: str, message_bytes: float, network: Network) -> float:
    """Seconds of the collective that a well-tuned library would pick, never more than with slower switches.

    The constants of each generation of switches were measured at its own rate; between the rates those of the older
    generation may be faster, so that both are tried.
    """
    found = collectives.best(operation, message_bytes, network).seconds
    domain = network.domain
    if domain is None or not network.domain_reduces or domain.bandwidth_bytes_per_second <= NEWER_SWITCHES:
        return found
    older = replace(network, domain=replace(domain, bandwidth_bytes_per_second=NEWER_SWITCHES))
    return min(found, collectives.best(operation, message_bytes, older).seconds)


def _exposed(
    work: Work, messages: Iterable[tuple[str, float, str]], computed: Passes, hidden_share: float
) -> dict[str, float]:
    """Seconds of communication that the step pays for, by axis."""
    cover, exposed = _Cover(work, computed), dict[str, float]()
    for axis, seconds, kind in messages:
        beside = seconds * steady_share(work.layout) if kind == "compute" and not work.overlap_warm_up else seconds
        hidden = cover.hide(beside, kind)
        exposed[axis] = exposed.get(axis, 0.0) + seconds - hidden * (1 - hidden_share)
    return exposed


def step_time(
    work: Work,
    networks: Mapping[str, Network],
    time_of: TimeOf = seconds_of,
    calibration: Calibration = CALIBRATION,
) -> StepTime:
    """Predict one optimizer step; `networks` has one entry for each axis of `step_traffic.AXES` that sends messages.

    Computation of the slowest pipeline rank, then `idle_ratio` times that of the others together with the messages
    between layers, since a pipeline fills and drains through the others; then what is left of gradient and weight
    messages after hiding behind passes, then the optimizer over the memory bandwidth, then the wait for input. A
    hidden message still costs a share of its time. Sources: `passes`, `idle_ratio`, `steady_share`, `step_traffic`;
    the overlap of gradients with backward passes as arXiv:2006.15704, section 3.2.3 describes it. Example: Llama 2 13B
    on one A100, without messages:

    >>> from trainspec_validate.performance.costs import layout, transformer
    >>> llama = transformer.Shape(40, 5120, 40, 40, 128, 13824, 32000, gated_ffn=True)
    >>> half = layout.Layout(micro_sequences=2, sequence_length=4096)
    >>> round(step_time(Work(llama, half, 312e12, 0.869, 2e12, generation="ampere"), {}).seconds, 1)
    3.7

    Raises:
        ValueError: an axis sends messages but has no network, or `time_of` or `passes` cannot judge their arguments.
    """
    computed, m = passes(work, calibration), work.layout.num_micro_batches
    messages = _messages(work, networks, time_of)
    exposed = _exposed(work, messages, computed, calibration.hidden_communication)
    beside = exposed
    if work.layout.pipeline > 1:  # the other ranks have less to hide their messages behind
        beside = _exposed(work, messages, Passes(*computed.others), calibration.hidden_communication)
    inside = sum(beside.get(axis, 0.0) for axis in ("tensor", "context", "expert"))
    return StepTime(
        compute_seconds=m * (computed.forward + computed.backward),
        bubble_seconds=idle_ratio(work.layout) * (m * sum(computed.others) + inside),
        exposed_seconds=MappingProxyType(exposed),
        optimizer_seconds=_optimizer_seconds(work),
        data_stall_seconds=work.data_stall_seconds,
    )


_OF_LAYERS = frozenset({"tensor", "context", "expert"})


def least_seconds(
    work: Work, networks: Mapping[str, Network], time_of: TimeOf = seconds_of, calibration: Calibration = CALIBRATION
) -> float:
    """Seconds that a step takes however its copies share their state: all but their messages and the optimizer.

    Messages between stages are left out too, which depend on the order of ranks. Less sharding, less recomputation and
    fused accumulation give less, so that `work` without them bounds all forms of a layout.

    Raises:
        ValueError: as `step_time`.
    """
    computed, m = passes(work, calibration), work.layout.num_micro_batches
    share = calibration.hidden_communication
    messages = [one for one in _messages(work, networks, time_of) if one[0] in _OF_LAYERS]
    exposed = beside = sum(_exposed(work, messages, computed, share).values())
    if work.layout.pipeline > 1:
        beside = sum(_exposed(work, messages, Passes(*computed.others), share).values())
    return (
        m * (computed.forward + computed.backward)
        + exposed
        + idle_ratio(work.layout) * (m * sum(computed.others) + beside)
    )


def _optimizer_seconds(work: Work) -> float:
    layout = work.layout
    held = rank_parameters(work.shape, layout)
    shards = layout.num_shards if layout.sharding_stage else 1
    expert_shards = layout.num_expert_copies if layout.sharding_stage else 1
    updated = held.dense / shards + held.experts / expert_shards
    return updated * work.optimizer_bytes_per_parameter / (work.memory_bandwidth_bytes_per_second * MEMORY_FRACTION)
