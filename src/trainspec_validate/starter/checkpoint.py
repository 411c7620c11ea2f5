"""The only place that writes the starter of a checkpoint policy."""

from __future__ import annotations

import math

from trainspec_validate.commented import body, figure, head
from trainspec_validate.costs import reliability
from trainspec_validate.starter import cluster, plan
from trainspec_validate.starter.sizing import BLOCKING_SECONDS, SAVED_BYTES, Sizes

NAME = "my-policy"
_COMPILE_SECONDS = 20
_RESTART_SECONDS = 15
_DECIDE_SECONDS = 2
Lines = list[tuple[str, str]]


def document(sizes: Sizes) -> str:
    """Asynchronous saves to shared files, as often as Daly's formula says."""
    lines: Lines = [
        ("metadata:", ""),
        (f"  name: {NAME}", "replace"),
        (f"cluster: {{name: {cluster.NAME}}}", "the profile that this policy is for"),
        (f"plan: {{name: {plan.NAME}}}", "the plan that this policy is for"),
        *_save(sizes),
        *_places(sizes),
        *_state(sizes),
        *_recovery(sizes),
        *_limits(sizes),
    ]
    minutes = f"{sizes.interval_seconds / 60:.3g} minutes"
    return head("CheckpointPolicy", f"A save every {minutes}.") + body(lines)


def _save(sizes: Sizes) -> Lines:
    preset = sizes.layout.preset
    step = sizes.step_seconds
    return [
        ("interval:", ""),
        (
            f"  steps: {sizes.interval_steps}",
            "derived: Daly's interval for the failure rate and the save time",
        ),
        (f"  seconds: {figure(sizes.interval_seconds)}", "derived: steps times their time"),
        (f"  step_seconds: {step:g}", "derived: from the plan"),
        ("save:", ""),
        ("  mode: asynchronous", "replace"),
        (f"  size_bytes: {figure(sizes.checkpoint_bytes)}", "derived: parameters times their bytes"),
        (f"  num_parameters: {figure(preset.num_parameters)}", "derived: from the plan"),
        (f"  bytes_per_parameter: {SAVED_BYTES}", "derived: weights, master copy and moments"),
        (f"  blocking_seconds: {figure(BLOCKING_SECONDS)}", "replace: measure it"),
        (
            f"  persist_seconds_p95: {figure(sizes.persist_seconds)}",
            "derived: size over write rate; measure it",
        ),
        ("  max_in_flight: 1", "replace"),
        ("job:", ""),
        (f"  num_nodes: {sizes.num_nodes}", "chosen"),
        (f"  planned_seconds: {figure(sizes.planned_seconds)}", "derived: from the plan"),
        (f"  step_seconds_p99: {1.2 * step:.4g}", "replace: measure it"),
    ]


def _places(sizes: Sizes) -> Lines:
    return [
        ("tiers:", ""),
        ("  - name: durable", ""),
        ("    storage: shared-files", "the target of the profile"),
        ("    failure_domain: cluster", ""),
        (f"    num_kept: {_kept(sizes)}", "derived: reaches back beyond the detection of errors"),
        ("commit:", ""),
        ("  protocol: rename", "replace"),
        ("  pointer: after-commit", "replace"),
        ("  durable_before_commit: true", "replace"),
        ("retention:", ""),
        (f"  num_kept: {_kept(sizes)}", "derived: reaches back beyond the detection of errors"),
        (f"  error_detection_seconds: {_detection(sizes)}", "replace"),
    ]


def _detection(sizes: Sizes) -> int:
    return math.ceil(max(3600.0, sizes.interval_seconds))


def _kept(sizes: Sizes) -> int:
    return 2 + math.ceil(_detection(sizes) / sizes.interval_seconds)


def _state(sizes: Sizes) -> Lines:
    items = [
        "model",
        "optimizer",
        "learning-rate-schedule",
        "rng",
        "data-position",
        "step",
        "samples-or-tokens",
    ]
    items += ["layout", "config-digest", *(["gradient-scaler"] if sizes.build.format == "fp16" else [])]
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


def _recovery(sizes: Sizes) -> Lines:
    layers = (
        ("launcher", 5, "process-loss", "exit"),
        ("node-agent", 15, "node-loss", "heartbeat"),
        ("collective-watchdog", plan.TIMEOUT_SECONDS, "hang", "collective-timeout"),
    )
    lines: Lines = [("detection:", "")]
    for layer, timeout, fault, signal in layers:
        text = f"  - {{layer: {layer}, timeout_seconds: {timeout}, faults: [{fault}], signal: {signal}}}"
        lines.append((text, "replace"))
    lines.append(("recovery:", ""))
    actions = {
        "process-loss": "restart-in-place",
        "hang": "restart-in-place",
        "node-loss": "replace-from-spares",
    }
    for _, timeout, fault, _ in sorted(layers, key=lambda layer: list(actions).index(layer[2])):
        restart = cluster.SPARE_SECONDS if fault == "node-loss" else _RESTART_SECONDS
        budget = math.ceil(1.1 * _recovery_seconds(sizes, timeout, restart))
        lines += [
            (f"  - fault: {fault}", ""),
            (f"    action: {actions[fault]}", "replace"),
            (f"    budget_seconds: {budget}", "derived: detection and the four parts, a tenth more"),
            ("    quantile: 0.95", "replace"),
            (f"    decide_seconds: {_DECIDE_SECONDS}", "replace"),
            (f"    restart_seconds: {restart}", "replace"),
            (
                f"    restore_seconds: {figure(sizes.restore_seconds)}",
                "derived: size over read rate; measure it",
            ),
            (f"    first_step_seconds: {_first_step_seconds(sizes)}", "replace: compilation and one step"),
        ]
    return lines


def _first_step_seconds(sizes: Sizes) -> int:
    """Time of the first step, compilation included."""
    return math.ceil(_COMPILE_SECONDS + sizes.step_seconds)


def _recovery_seconds(sizes: Sizes, detection: float, restart: float) -> float:
    """Time from a fault to the first completed step."""
    return detection + _DECIDE_SECONDS + restart + sizes.restore_seconds + _first_step_seconds(sizes)


def _limits(sizes: Sizes) -> Lines:
    point = math.ceil(1.1 * (sizes.interval_seconds + sizes.persist_seconds + BLOCKING_SECONDS))
    effective = reliability.effective_training_time_ratio(
        sizes.interval_seconds,
        BLOCKING_SECONDS,
        sizes.mtbf_seconds,
        _recovery_seconds(sizes, plan.TIMEOUT_SECONDS, cluster.SPARE_SECONDS),
        sizes.persist_seconds,
    )
    target = max(0.01, math.floor(100 * effective - 1) / 100)
    return [
        (f"recovery_point_seconds: {point}", "derived: interval and save, a tenth more"),
        (f"effective_training_time_target: {target:g}", "derived: what interval and recovery allow"),
        ("grace:", ""),
        ("  preemptible: false", "replace"),
        ("restart:", ""),
        ("  max_restarts: 100", "replace"),
        ("  max_restarts_without_progress: 3", "replace"),
        ("spare_policy: spares", "replace"),
    ]
