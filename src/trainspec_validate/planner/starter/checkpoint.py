"""Writes a checkpoint policy from its figures, with a comment on where each comes from."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Literal

from trainspec_validate.documents.commented import as_text, body, figure, head
from trainspec_validate.performance.costs import reliability

_COMPILE_SECONDS = 20
_RESTART_SECONDS = 15
_DECIDE_SECONDS = 2
_PROCESS_SECONDS, _NODE_SECONDS = 5, 15
_SHORTEST_DETECTION_SECONDS = 3600.0
_LONGEST_BUDGET_SECONDS = 90
"""What a lost accelerator may cost (TS-CKP-042)."""
_LEAST_TARGET = 0.05
"""Share of lasting progress below which a policy promises none."""
Lines = list[tuple[str, str]]


@dataclass(frozen=True, slots=True)
class TierFigures:
    """One place that checkpoints go to."""

    name: str
    failure_domain: Literal["process", "node", "scale-up-domain", "rack", "cluster", "site"]
    storage: str | None = None
    """The target of the profile; None where it declares none."""
    num_replicas: int = 1
    """Copies, each on another node where there are several."""


@dataclass(frozen=True, slots=True)
class PolicyFigures:
    """Every figure that a policy states; times are in seconds."""

    name: str
    cluster: str
    """The reference to the profile, as YAML writes it on one line."""
    plan: str
    step_seconds: float
    interval_steps: int
    interval_reason: str
    checkpoint_bytes: float
    bytes_per_parameter: float
    num_parameters: float
    blocking_seconds: float
    blocking_reason: str
    persist_seconds: float
    persist_reason: str
    restore_seconds: float
    restore_reason: str
    num_nodes: int
    planned_seconds: float
    mtbf_seconds: float
    mtbf_reason: str
    """Why the policy states the time between failures itself; empty where it follows from the profile."""
    tiers: tuple[TierFigures, ...]
    loss_scaling: bool
    low_precision_scales: bool
    """Whether products below 16 bits have scales that a resumed run needs."""
    hang_seconds: float
    """Time without a step after which a running job hangs."""
    collective_seconds: float
    """Time-out of collectives, as in the plan; it outlasts a first set-up."""
    spare_seconds: float | None
    """Time until a spare has joined; None where there are no spares and the job waits for a repair."""
    repair_seconds: float
    final_only: bool = False
    """Whether the job is too short for a save before its end (TS-CKP-007)."""

    @property
    def interval_seconds(self) -> float:
        """Productive time between saves; the whole job where it saves at its end only."""
        return self.planned_seconds if self.final_only else self.interval_steps * self.step_seconds

    @property
    def error_detection_seconds(self) -> int:
        """Longest time until corruption is noticed."""
        return math.ceil(max(_SHORTEST_DETECTION_SECONDS, self.interval_seconds))

    @property
    def num_kept(self) -> int:
        """Checkpoints kept: enough to have one from before an error was noticed."""
        return 2 + math.ceil(self.error_detection_seconds / self.interval_seconds)

    @property
    def first_step_seconds(self) -> int:
        """Time of the first step, compilation included."""
        return math.ceil(_COMPILE_SECONDS + self.step_seconds)

    @property
    def node_seconds(self) -> float:
        """Time until another node runs the processes of a lost one."""
        return max(_RESTART_SECONDS, self.repair_seconds if self.spare_seconds is None else self.spare_seconds)

    def recovery_seconds(self, detection: float, restart: float) -> float:
        """Time from a fault to the first completed step."""
        return detection + _DECIDE_SECONDS + restart + self.restore_seconds + self.first_step_seconds

    @property
    def effective_share(self) -> float:
        """Share of wall time that makes lasting progress, with the slowest recovery path after every fault."""
        slowest = max(
            self.recovery_seconds(self.hang_seconds, _RESTART_SECONDS),
            self.recovery_seconds(_NODE_SECONDS, self.node_seconds),
        )
        return reliability.effective_training_time_ratio(
            self.interval_seconds, self.blocking_seconds, self.mtbf_seconds, slowest, self.persist_seconds
        )


def document(figures: PolicyFigures) -> str:
    """A policy with asynchronous saves, as often as its figures say."""
    lines: Lines = [
        ("metadata:", ""),
        (f"  name: {as_text(figures.name)}", "replace"),
        (f"cluster: {figures.cluster}", "the profile that this policy is for"),
        (f"plan: {figures.plan}", "the plan that this policy is for"),
        *_save(figures),
        *_places(figures),
        *_state(figures),
        *_recovery(figures),
        *_limits(figures),
    ]
    often = "at the end" if figures.final_only else f"every {figures.interval_seconds / 60:.3g} minutes"
    return head("CheckpointPolicy", f"A save {often}.") + body(lines)


def _interval(figures: PolicyFigures) -> Lines:
    lines: Lines = [("  final_only: true", "derived: the job is no longer than the best interval (TS-CKP-007)")]
    if not figures.final_only:
        lines = [
            (f"  steps: {figures.interval_steps}", f"derived: {figures.interval_reason}"),
            (f"  seconds: {figure(figures.interval_seconds)}", "derived: steps times their time"),
        ]
    return [("interval:", ""), *lines, (f"  step_seconds: {figures.step_seconds:g}", "derived: from the plan")]


def _save(figures: PolicyFigures) -> Lines:
    step = figures.step_seconds
    lines: Lines = [
        *_interval(figures),
        ("save:", ""),
        ("  mode: asynchronous", "replace"),
        (f"  size_bytes: {figure(figures.checkpoint_bytes)}", "derived: parameters times their bytes"),
        (f"  num_parameters: {figure(figures.num_parameters)}", "derived: from the plan"),
        (f"  bytes_per_parameter: {figures.bytes_per_parameter:g}", "derived: weights, master copy and moments"),
        (f"  blocking_seconds: {figure(figures.blocking_seconds)}", figures.blocking_reason),
        (f"  persist_seconds_p95: {figure(figures.persist_seconds)}", figures.persist_reason),
        ("  max_in_flight: 1", "replace"),
        ("job:", ""),
        (f"  num_nodes: {figures.num_nodes}", "chosen"),
        (f"  planned_seconds: {figure(figures.planned_seconds)}", "derived: from the plan"),
        (f"  step_seconds_p99: {1.2 * step:.4g}", "replace: measure it"),
    ]
    if figures.mtbf_reason:
        lines += [
            (f"  mean_time_between_failures_seconds: {figure(figures.mtbf_seconds)}", "replace"),
            (f"  mean_time_between_failures_reason: {figures.mtbf_reason}", ""),
        ]
    return lines


def _places(figures: PolicyFigures) -> Lines:
    lines: Lines = [("tiers:", "")]
    for tier in figures.tiers:
        lines.append((f"  - name: {tier.name}", ""))
        if tier.storage:
            lines.append((f"    storage: {as_text(tier.storage)}", "the target of the profile"))
        lines.append((f"    failure_domain: {tier.failure_domain}", ""))
        if tier.num_replicas > 1:
            lines += [
                (f"    num_replicas: {tier.num_replicas}", "one of them outlives any node"),
                ("    replicas_across: node", ""),
                ("    num_kept: 2", "the newest and the one under way"),
            ]
        else:
            lines.append((f"    num_kept: {figures.num_kept}", "derived: reaches back beyond the detection of errors"))
    return [
        *lines,
        ("commit:", ""),
        ("  protocol: rename", "replace"),
        ("  pointer: after-commit", "replace"),
        ("  durable_before_commit: true", "replace"),
        ("retention:", ""),
        (f"  num_kept: {figures.num_kept}", "derived: reaches back beyond the detection of errors"),
        (f"  error_detection_seconds: {figures.error_detection_seconds}", "replace"),
    ]


def _state(figures: PolicyFigures) -> Lines:
    items = [
        "model",
        "optimizer",
        "learning-rate-schedule",
        "rng",
        "data-position",
        "step",
        "samples-or-tokens",
    ]
    items += ["layout", "config-digest"]
    items += ["gradient-scaler"] if figures.loss_scaling else []
    items += ["low-precision-scales"] if figures.low_precision_scales else []
    return [
        ("state:", ""),
        ("  items:", ""),
        *((f"    - {item}", "") for item in items),
        ("  rng_scope: rank", "replace"),
        ("  resume_class: statistical", "replace"),
        ("integrity:", ""),
        ("  digest: sha256", "replace"),
        ("  manifest: true", ""),
        ("  verified_on_restore: true", ""),
        ("  format: tensor-only", "replace"),
    ]


def _recovery(figures: PolicyFigures) -> Lines:
    layers = [
        ("launcher", _PROCESS_SECONDS, "process-loss", "exit"),
        ("node-agent", _NODE_SECONDS, "node-loss", "heartbeat"),
        ("collective-watchdog", figures.collective_seconds, "hang", "collective-timeout"),
    ]
    if figures.hang_seconds < figures.collective_seconds:
        layers.append(("step-watchdog", figures.hang_seconds, "hang", "progress"))
    lines: Lines = [("detection:", "")]
    for layer, timeout, fault, signal in layers:
        text = f"  - {{layer: {layer}, timeout_seconds: {timeout:g}, faults: [{fault}], signal: {signal}}}"
        lines.append((text, "replace; it watches from the first step on" if signal == "progress" else "replace"))
    lines.append(("recovery:", ""))
    replaced = "wait-for-repair" if figures.spare_seconds is None else "replace-from-spares"
    lines += _path(figures, "process-loss", "restart-in-place", _PROCESS_SECONDS, _RESTART_SECONDS)
    lines += _path(figures, "hang", "restart-in-place", figures.hang_seconds, _RESTART_SECONDS)
    return lines + _path(figures, "node-loss", replaced, _NODE_SECONDS, figures.node_seconds)


def _path(figures: PolicyFigures, fault: str, action: str, timeout: float, restart: float) -> Lines:
    parts = figures.recovery_seconds(timeout, restart)
    budget = math.ceil(1.1 * parts)
    if parts <= _LONGEST_BUDGET_SECONDS < budget:
        budget = _LONGEST_BUDGET_SECONDS
    return [
        (f"  - fault: {fault}", ""),
        (f"    action: {action}", "replace"),
        (f"    budget_seconds: {budget}", "derived: detection and the four parts, up to a tenth more"),
        ("    quantile: 0.95", "replace"),
        (f"    decide_seconds: {_DECIDE_SECONDS}", "replace"),
        (f"    restart_seconds: {figure(restart)}", "replace"),
        (f"    restore_seconds: {figure(figures.restore_seconds)}", figures.restore_reason),
        (f"    first_step_seconds: {figures.first_step_seconds}", "replace: compilation and one step"),
    ]


def _limits(figures: PolicyFigures) -> Lines:
    point = math.ceil(1.1 * (figures.interval_seconds + figures.persist_seconds + figures.blocking_seconds))
    target = math.floor(100 * figures.effective_share - 1) / 100
    lines: Lines = [(f"recovery_point_seconds: {point}", "derived: interval and save, a tenth more")]
    if target >= _LEAST_TARGET:
        lines.append((f"effective_training_time_target: {target:g}", "derived: what interval and recovery allow"))
    return [
        *lines,
        ("grace:", ""),
        ("  preemptible: false", "replace"),
        ("restart:", ""),
        ("  max_restarts: 100", "replace"),
        ("  max_restarts_without_progress: 3", "replace"),
        (f"spare_policy: {'wait' if figures.spare_seconds is None else 'spares'}", "replace"),
    ]
