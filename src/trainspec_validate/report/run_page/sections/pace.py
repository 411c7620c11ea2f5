"""Shows how fast a run went: time of an optimizer step, tokens per second, MFU."""

from __future__ import annotations

from trainspec_validate.report.run_page.chart import Chart
from trainspec_validate.report.run_page.charts import JobReadings, job_chart
from trainspec_validate.report.run_page.context import Context
from trainspec_validate.report.run_page.markup import Html, cut, join
from trainspec_validate.report.run_page.measures import Spread
from trainspec_validate.report.run_page.words import count, duration, percent, prefixed, tokens

STEP_TIME = "train.step.duration"
TOKEN_RATE = "train.token.rate"  # noqa: S105 - a name of a metric
UTILIZATION = "train.flops.utilization"


def pace(context: Context) -> Html:
    """Three charts, or what is missing of them."""
    utilization = Chart("Model utilisation of the peak (MFU)", "%", from_zero=True, notes=_convention(context))
    return join(
        job_chart(
            context,
            JobReadings(STEP_TIME, duration, _step_time, without_warmup=True),
            Chart("Time of a step", "s", from_zero=True),
        ),
        job_chart(context, JobReadings(TOKEN_RATE, _rate, _throughput), Chart("Throughput", "token/s", from_zero=True)),
        job_chart(context, JobReadings(UTILIZATION, percent), utilization),
    )


def _step_time(told: Spread) -> str:
    return (
        f"Of {count(told.num, 'reported time')} without warm-up, half are at most {duration(told.median)} "
        f"and 99 % at most {duration(told.high)}."
    )


def _rate(value: float) -> str:
    return f"{tokens(value)}/s"


def _throughput(told: Spread) -> str:
    return f"Half of {count(told.num, 'value')} are at most {tokens(told.median)} tokens per second."


def _convention(context: Context) -> tuple[str, ...]:
    """What utilisation is measured against, as the stream declares it."""
    said = {}
    for name in ("convention", "per_token", "peak", "precision"):
        values = {str(value): value for value, _ in context.view.declared(f"train.flops.{name}")}
        values |= {
            str(value): value
            for event in context.view.events_named("train.run.start")
            if (value := event.attribute(f"train.flops.{name}")) is not None
        }
        if values:
            said[name] = " or ".join(_written(name, value) for value in list(values.values())[:3])
    if not said:
        return ("The stream does not declare what the utilisation is measured against.",)
    words = {"convention": "convention", "per_token": "of a token", "peak": "peak of an accelerator", "precision": "in"}
    return (f"As declared: {'; '.join(f'{words[name]} {value}' for name, value in said.items())}.",)


def _written(name: str, value: object) -> str:
    if isinstance(value, (int, float)) and name in {"per_token", "peak"}:
        return prefixed(float(value), "FLOP" if name == "per_token" else "FLOP/s")
    return cut(str(value), 80)
