"""Makes one run by hand that fills every section of its page."""

from __future__ import annotations

from functools import cache

import numpy as np
from run_page_makers import (
    NOBODY,
    START_US,
    attempt,
    emitter,
    event,
    finding,
    head,
    job,
    lockstep,
    placement,
    report,
    series,
    trail,
    view,
    windows,
)

from trainspec_validate.model.finding import Outcome, Report, Severity, Suppressed, SuppressionKind, Verdict
from trainspec_validate.telemetry.view.run_view import RunView, Subject, Trouble

DEVICES = [Subject(None, f"h{number // 4}", f"GPU-{number}") for number in range(8)]
RANKS = [Subject(number, f"h{number // 4}", None) for number in range(8)]
DECLARED = {
    "train.flops.convention": "6n",
    "train.flops.per_token": 48.18e9,
    "train.flops.peak": 989e12,
    "train.gradient.noise_unit": "sequence",
    "train.gradient.num_groups": 4,
}


def _jobs():
    steps = np.arange(1, 101)
    noise = 1000.0 + 10 * np.arange(10)
    yield job("train.step.count", steps.astype(float), step=steps)
    yield job("train.step.duration", [20.0, *([5.0] * 98), 6.0], warmup=[True] + [False] * 99)
    yield job("train.token.rate", [26_000.0] * 100)
    yield job("train.token.count{train.token.kind=all}", steps * 130_000.0)
    yield job("train.flops.utilization", [0.4] * 100)
    yield job("train.loss.mean{train.loss.name=total}", 11.0 / np.sqrt(steps))
    yield job("train.gradient.norm", [0.8, *([0.2] * 98), 40.0])
    yield job("train.gradient.noise_scale", noise, every=50.0, low=noise - 200, high=noise + 300)
    for category, seconds in (("productive", 480.0), ("checkpoint_save", 60.0), ("replay", 60.0)):
        yield job(f"train.goodput.time{{train.time.category={category}}}", [seconds / 2, seconds], every=300.0)


def _series():
    for number, device in enumerate(DEVICES):
        yield series("hw.gpu.utilization", device, [0.9, 0.95 - number / 100])
        yield series("train.accelerator.matrix.active", device, [0.4, 0.45])
        yield series("hw.gpu.memory.usage", device, [60e9, 61e9 + number])
        yield series("hw.gpu.memory.limit", device, [80e9, 80e9])
        yield series("hw.power{hw.type=gpu}", device, [600.0, 610.0], integral=363_000.0, integral_seconds=600.0)
        yield series("hw.energy{hw.type=gpu}", device, [100.0, 360_100.0])
    for rank in RANKS:
        yield series("train.rank.slowdown", rank, [1.0, 1.0 + (rank.rank or 0) / 10])
        yield series("train.rank.step", rank, [1.0, 100.0])
    yield series("train.telemetry.dropped", NOBODY, [0.0, 12.0])
    yield series("train.telemetry.lag", NOBODY, [0.01, 0.02])
    yield series("train.clock.offset", Subject(None, "h0", None), [-1e-5, 2e-5])
    for mean in (4e-6, 9e-6):
        far = f"train.network.latency{{train.network.source=h0,train.network.target=h{mean * 1e6:.0f}}}"
        yield series(far, Subject(None, "h0", None), [mean, mean])


def _windows():
    for text, low, high in (
        ("hw.gpu.utilization", 0.88, 0.95),
        ("train.accelerator.matrix.active", 0.4, 0.45),
        ("hw.gpu.memory.usage", 60e9, 61e9),
        ("hw.power{hw.type=gpu}", 600.0, 610.0),
        ("train.telemetry.lag", 0.01, 0.02),
        ("train.clock.offset", -1e-5, 2e-5),
    ):
        cell = (8, 4 * (low + high), low, high)
        yield windows(text, [cell] * 10 + [(0, 0.0, 0.0, 0.0)] * 3 + [cell] * 7)


def _events():
    yield event("train.run.start", 0)
    for number, at in enumerate((100.0, 200.0, 300.0)):
        yield event("train.checkpoint.begin", at, id=f"ck-{number}", step=20 * (number + 1))
    for number, at in ((0, 110.0), (2, 312.0)):
        yield event(
            "train.checkpoint.commit",
            at,
            id=f"ck-{number}",
            a={"train.checkpoint.location": "object-store", "train.checkpoint.durability": "site"},
            values={"train.checkpoint.size": 112.4e9},
        )
    yield event("train.checkpoint.fail", 215, id="ck-1", a={"train.reason": "no space left"})
    yield event("train.evaluation.begin", 240, id="ev-0")
    yield event("train.evaluation.end", 260, id="ev-0", values={"train.evaluation.loss": 2.5})
    fault = {"train.fault.id": "f-0", "train.fault.class": "device", "train.fault.vendor_code": "xid:79"}
    yield event("train.fault.detected", 400, step=70, a={**fault, "train.fault.domain": "infrastructure"})
    yield event("train.recovery.begin", 405, id="r-0", a={"train.fault.id": "f-0", "train.recovery.action": "restart"})
    done = {"train.fault.id": "f-0", "train.recovery.outcome": "resumed"}
    yield event("train.recovery.end", 475, id="r-0", a=done, values={"train.step.repeated": 9.0}, attempt=1)
    yield event(
        "train.straggler.detected", 520, a={"train.rank.ids": [7]}, values={"train.rank.slowdown": 1.7}, attempt=1
    )
    yield event("train.telemetry.gap", 560, a={"train.gap.start": START_US, "train.gap.end": START_US + 9_000_000})


@cache
def full_run() -> RunView:
    """A run with something of everything."""
    return view(
        job=_jobs(),
        series=_series(),
        windows=_windows(),
        heads=(head(declared=DECLARED),),
        attempts=(attempt(0, 0, 400), attempt(1, 430, 600)),
        events=tuple(sorted(_events(), key=lambda each: each.time_us)),
        lockstep=(lockstep("train.rank.step", [1, 2, 3], [1, 2, 5]),),
        emitters=(emitter("job"), emitter("node/h0", num_missing=5)),
        placements=tuple(placement(number, f"h{number // 4}", f"GPU-{number}") for number in range(8)),
        trails=(trail(Trouble.GAP, "train.step.count", at=130, before=90),),
    )


def full_report() -> Report:
    """Findings of three weights, one silenced, and requirements without a verdict."""
    silenced = Suppressed(finding("TS-TEL-022", Severity.NOTE), SuppressionKind.WAIVER, "the agent is being replaced")
    return report(
        finding(),
        finding("TS-TEL-021", Severity.WARNING, name="gap", message="nothing for 40 s", url="https://example.org/gap"),
        suppressed=(silenced,),
        outcomes=(
            Outcome("TS-TEL-001", Verdict.PASS),
            Outcome("TS-TEL-013", Verdict.FAIL, 1),
            Outcome("TS-TEL-021", Verdict.WARN, 1),
            Outcome("TS-TEL-050", Verdict.NOT_APPLICABLE, 0, "no `train.clock.error` in the stream"),
            Outcome("TS-TEL-051", Verdict.UNSUPPORTED, 0, "the exporter has no clock"),
        ),
    )
