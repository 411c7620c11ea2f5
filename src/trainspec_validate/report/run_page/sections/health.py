"""Shows how far the telemetry itself can be trusted: losses, delays, holes, clocks, odd values."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from math import isfinite

from trainspec_validate.report.run_page.chart import Chart, figures
from trainspec_validate.report.run_page.charts import BandReadings, window_chart
from trainspec_validate.report.run_page.context import Context
from trainspec_validate.report.run_page.frame import moment_of
from trainspec_validate.report.run_page.markup import Html, Node, cut, element, join
from trainspec_validate.report.run_page.subjects import growth
from trainspec_validate.report.run_page.tables import few, table
from trainspec_validate.report.run_page.words import count, duration, number, whose
from trainspec_validate.telemetry.view.run_view import EmitterSpan, RunView, Trail, Trouble

DROPPED = "train.telemetry.dropped"
LAG = "train.telemetry.lag"
OFFSET = "train.clock.offset"
_NUM_WORST = 15
_NUM_NAMED = 3
_MAX_NAME = 120
_WORDS = {
    Trouble.BELOW_MINIMUM: "below what the metric can be",
    Trouble.ABOVE_MAXIMUM: "above what the metric can be",
    Trouble.SENTINEL: "a value that represents none",
    Trouble.NOT_FINITE: "not finite where it has to be",
    Trouble.TIME_BACK: "time goes back",
    Trouble.DUPLICATE_SAME: "written twice",
    Trouble.DUPLICATE_OTHER: "two values for one moment",
    Trouble.GAP: "more than three intervals missing",
    Trouble.BURST: "many values at once after a hole",
    Trouble.COUNTER_FALL: "counter falls",
    Trouble.COUNTER_RESET: "counter starts again",
    Trouble.SECOND_WRITER: "a second writer",
    Trouble.WRONG_SCOPE: "not of the scope of the metric",
    Trouble.STEP_JUMP: "step jumps",
}


def health(context: Context) -> Html:
    """Figures of all emitters, the worst of them, clocks and delays over time, and what was odd."""
    view = context.view
    return join(
        figures(list(_figures(context))),
        _emitters(view),
        window_chart(
            context,
            BandReadings(LAG, duration, "subject"),
            Chart("Delay of the stream", "s", from_zero=True, height=90),
        ),
        window_chart(context, BandReadings(OFFSET, duration, "node"), Chart("Offset of clocks", "s", height=90)),
        _trails(view),
        _damage(view),
        _losses(view),
    )


def _figures(context: Context) -> Iterator[tuple[str, str]]:
    view = context.view
    yield "records", f"{view.num_records:,}"
    yield "emitters", f"{len({each.emitter for each in view.emitters}):,}"
    counted = [each for each in view.emitters if each.first_seq >= 0]
    if counted:
        yield "records missing", f"{sum(each.num_missing for each in counted):,}"
        yield "records repeated", f"{sum(each.num_repeated for each in counted):,}"
    else:
        yield "records missing", "not known: no sequence numbers"
    dropped = growth(view, DROPPED)
    yield "dropped, as declared", "not measured" if dropped is None else number(dropped.total)
    yield "lines that are no record", f"{len(view.damage):,}"


def _emitters(view: RunView) -> Html | None:
    odd = [each for each in view.emitters if each.num_missing or each.num_repeated]
    rows = sorted(odd, key=lambda each: (-each.num_missing, -each.num_repeated, each.emitter, each.attempt))
    if not rows:
        return None
    header = ("emitter", "#attempt", "#records", "#missing", "#repeated", "=first (UTC)", "=last (UTC)")
    caption = "Emitters that miss or repeat records, those that miss most first"
    return table(caption, header, [_emitter(view, each) for each in rows], _NUM_WORST)


def _emitter(view: RunView, span: EmitterSpan) -> tuple[str | int, ...]:
    missing = f"{span.num_missing:,}" if span.first_seq >= 0 else "not known"
    moments = (moment_of(view, span.first_time_us), moment_of(view, span.last_time_us))
    return (span.emitter, f"{span.attempt}", span.num_records, missing, span.num_repeated, *moments)


def _trails(view: RunView) -> Html | None:
    """What was noticed about values, one row for each kind of trouble."""
    groups: dict[Trouble, list[Trail]] = {}
    for trail in sorted(view.trails, key=lambda trail: (trail.first_time_us, str(trail.key), trail.attempt)):
        groups.setdefault(trail.trouble, []).append(trail)
    if not groups:
        return element("p", "Nothing odd was noticed about single values.", class_="absent")
    rows = sorted(groups.items(), key=lambda entry: (-sum(trail.num for trail in entry[1]), entry[0]))
    header = ("noticed", "#times", "in", "on", "=first (UTC)", "such as")
    caption = "Unusual values, whether a requirement forbids them or not"
    return table(caption, header, [_trouble(view, *row) for row in rows])


def _trouble(view: RunView, trouble: Trouble, trails: Sequence[Trail]) -> tuple[Node, ...]:
    names = list(dict.fromkeys(str(trail.key) for trail in trails))
    subjects = list(dict.fromkeys(subject for trail in trails for subject in trail.subjects))
    first = trails[0].first[0] if trails[0].first else None
    return (
        _WORDS[trouble],
        sum(trail.num for trail in trails),
        few([element("code", cut(name, _MAX_NAME)) for name in names[:_NUM_NAMED]], len(names)),
        whose(subjects[0]) if len(subjects) == 1 else count(len(subjects), "subject"),
        moment_of(view, trails[0].first_time_us),
        "" if first is None else _value(first.value_before, first.value),
    )


def _value(before: float, value: float) -> str:
    return f"{number(before)}, then {number(value)}" if isfinite(before) else number(value)


def _damage(view: RunView) -> Html | None:
    rows = [
        (view.files[each.location.file].path if 0 <= each.location.file < len(view.files) else "", each.message)
        for each in view.damage
    ]
    return table("Lines that are no record", ("file", "what is wrong"), rows, _NUM_WORST) if rows else None


def _losses(view: RunView) -> Html | None:
    rows = [(each.path, loss) for each in view.files for loss in each.losses]
    return table("Lost when other formats became records", ("file", "what"), rows, _NUM_WORST) if rows else None
