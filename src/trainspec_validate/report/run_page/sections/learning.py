"""Shows how a run learned: loss, gradient norm, and the noise of the gradient with its interval."""

from __future__ import annotations

from trainspec_validate.report.run_page.chart import Chart
from trainspec_validate.report.run_page.charts import JobReadings, job_chart
from trainspec_validate.report.run_page.context import Context
from trainspec_validate.report.run_page.markup import Html, cut, join
from trainspec_validate.report.run_page.measures import Spread
from trainspec_validate.report.run_page.words import count, number

LOSS = "train.loss.mean"
EVALUATION_LOSS = "train.evaluation.loss"
NORM = "train.gradient.norm"
NOISE = ("train.gradient.noise_scale", "train.gradient.variance")
_MAX_DOTS = 400


def learning(context: Context) -> Html:
    """Three charts, or what is missing of them."""
    dots = _evaluations(context)
    loss = Chart("Training loss", "nats", dots=dots, dots_name="loss on an evaluation set", height=190)
    norm = Chart("Norm of the gradient before clipping", "norm", log=True)
    return join(
        job_chart(context, JobReadings(LOSS, number, _loss), loss),
        None if context.points(LOSS) else _evaluations_alone(context),
        job_chart(context, JobReadings(NORM, number), norm),
        _noise(context),
    )


def _loss(told: Spread) -> str:
    ends = f"from {number(told.maximum)} to {number(told.minimum)}"
    return f"{count(told.num, 'value')} {ends}; the last is {number(told.last)}."


def _evaluations(context: Context) -> tuple[tuple[float, float], ...]:
    found = [
        pair
        for each in context.points(EVALUATION_LOSS)
        for pair in zip(each.time_us.tolist(), each.value.tolist(), strict=True)
    ]
    found += [
        (float(event.time_us), value)
        for event in context.view.events_named("train.evaluation.end")
        if (value := event.value(EVALUATION_LOSS)) is not None
    ]
    found = sorted(set(found))
    return tuple(found[:: -(-len(found) // _MAX_DOTS)]) if found else ()


def _evaluations_alone(context: Context) -> Html | None:
    if not context.points(EVALUATION_LOSS):
        return None
    return job_chart(context, JobReadings(EVALUATION_LOSS, number), Chart("Loss on an evaluation set", "nats"))


def _noise(context: Context) -> Html:
    metric = next((name for name in NOISE if context.points(name)), None)
    if metric is None:
        return context.absent(*NOISE)
    unit = _declared(context, "train.gradient.noise_unit") or "noise units"
    has_interval = any(each.low is not None for each in context.points(metric))
    notes = [f"Groups compared: {_declared(context, 'train.gradient.num_groups') or 'not declared'}."]
    if not has_interval:
        notes.append("The stream gives no 95 % interval of these values.")
    title = "Gradient noise scale" if metric == NOISE[0] else "Gradient variance"
    plural = unit if unit.endswith(("s", "es")) else f"{unit}{'es' if unit.endswith('ch') else 's'}"
    chart = Chart(title, plural, log=True, band_name="95 % interval", notes=tuple(notes))
    return job_chart(context, JobReadings(metric, lambda value: f"{number(value)} {plural}"), chart)


def _declared(context: Context, attribute: str) -> str:
    values = sorted({cut(str(value), 40) for value, _ in context.view.declared(attribute)})
    return " or ".join(values[:3])
