"""Shows the load of the devices: busy, matrix units, memory and power, in a band over all of them."""

from __future__ import annotations

from dataclasses import replace

from trainspec_validate.report.run_page.chart import Chart, Limit
from trainspec_validate.report.run_page.charts import BandReadings, Write, window_chart
from trainspec_validate.report.run_page.context import Context
from trainspec_validate.report.run_page.markup import Html, join
from trainspec_validate.report.run_page.measures import is_device
from trainspec_validate.report.run_page.subjects import tallies
from trainspec_validate.report.run_page.words import percent, prefixed

BUSY = "hw.gpu.utilization"
MATRIX = "train.accelerator.matrix.active"
MEMORY = "hw.gpu.memory.usage"
MEMORY_LIMIT = "hw.gpu.memory.limit"
POWER = "hw.power"


def devices(context: Context) -> Html:
    """Four charts, or what is missing of them."""

    def drawn(metric: str, draft: Chart, write: Write) -> Html:
        return window_chart(context, BandReadings(metric, write, "device", is_device), draft)

    return join(
        drawn(BUSY, Chart("Busy", "%", from_zero=True), percent),
        drawn(MATRIX, Chart("Matrix units active", "%", from_zero=True), percent),
        drawn(MEMORY, _memory(context), lambda value: prefixed(value, "B")),
        drawn(POWER, Chart("Power", "W", from_zero=True), lambda value: prefixed(value, "W")),
    )


def _memory(context: Context) -> Chart:
    draft = Chart("Memory in use", "By", from_zero=True)
    limit = tallies(context.view, MEMORY_LIMIT, of=is_device)
    used = tallies(context.view, MEMORY, of=is_device)
    if limit is None:
        return replace(draft, notes=("The stream does not say how much memory a device has.",))
    low, high = float(limit.minimum.min()), float(limit.maximum.max())
    word = "memory of a device" if low == high else "memory of the smallest device"
    line = Limit(low, f"{word}: {prefixed(low, 'B')}")
    if used is None or not 0 < low == high:
        return replace(draft, limits=(line,))
    return replace(
        draft, limits=(line,), figures=(("fullest", f"{percent(float(used.maximum.max()) / low)} of its memory"),)
    )
