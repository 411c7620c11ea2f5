"""Writes the page of reliability: intervals, effective time, spares, detection, blast radius."""

from __future__ import annotations

from collections.abc import Iterator

from appendix_models import blast_radius
from appendix_text import Formula, Given, digits, fixed, formulas, page, percent, section, table

from trainspec_validate.performance.costs import detection, layout, reliability

LLAMA = layout.Layout(data=128, tensor=8, pipeline=16)
JOB = Given("job", LLAMA, "Llama 3 405B: tensor 8, pipeline 16, data 128, 16,384 ranks")
NODE = Given("node", blast_radius.Domain("node", 8), "eight adjacent ranks")
LAYERS = (
    detection.Layer("process-agent", 10, frozenset({"process-loss"}), poll_seconds=2),
    detection.Layer("heartbeat", 30, frozenset({"process-loss", "node-loss"}), poll_seconds=5),
    detection.Layer("node-monitor", 40, frozenset({"node-loss"}), poll_seconds=5),
    detection.Layer("eviction", 300, frozenset({"node-loss"}), after="node-monitor"),
    detection.Layer("collective-watchdog", 600, frozenset({"process-loss", "node-loss", "hang"})),
)
PHASES = detection.Phases(decide=0, restart=50, restore=5.4, first_step=12.7)
BUDGET_SECONDS = 90
WATCHED = Given("layers", LAYERS, "the five layers of the table of detection")
PARTS = Given("phases", PHASES, "50 s to restart, 5.4 s to restore, 12.7 s to the first step")
LAYOUTS = (
    ("pipeline inside data, replicas apart", LLAMA, ("tensor", "context", "pipeline", "data")),
    ("data inside pipeline, replicas apart", LLAMA, blast_radius.ORDER),
    (
        "data inside pipeline, state shared by 16",
        layout.Layout(data=128, tensor=8, pipeline=16, sharding_stage=1, sharding_degree=16),
        blast_radius.ORDER,
    ),
    (
        "data inside pipeline, state shared by all",
        layout.Layout(data=128, tensor=8, pipeline=16, sharding_stage=1),
        blast_radius.ORDER,
    ),
)
DALY = "Daly 2006, doi:10.1016/j.future.2004.11.016"


INTERVAL_FORMULAS = (
    Formula(
        reliability.young_interval,
        ("sqrt(2 C M)", "time", "Young, CACM 17(9), 1974"),
        (5, 1440),
        printed=(1.0, "min"),
    ),
    Formula(reliability.daly_first_order_interval, ("sqrt(2 C M) - C", "time", DALY), (5, 1440), printed=(1.0, "min")),
    Formula(
        reliability.daly_interval,
        ("sqrt(2 C M) (1 + sqrt(C/2M)/3 + C/2M/9) - C; M from C = 2 M on", "time", f"{DALY}, equation 37"),
        (5, 1440),
        printed=(1.0, "min"),
    ),
    Formula(
        reliability.optimal_interval,
        ("M (1 + W0(-exp(-1 - C / M)))", "time", "derivative of the effective time"),
        (5, 1440),
        printed=(1.0, "min"),
    ),
    Formula(reliability.lambert_w0, ("w exp(w) = x, w at least -1", "number", "Corless and others, 1996"), (1,)),
    Formula(
        reliability.recommended_interval,
        ("max(Daly's interval, P)", "time", DALY),
        (1, 180, 10),
        printed=(1.0, "min"),
    ),
    Formula(
        reliability.interval_window,
        ("half to twice the interval; overhead (x + 1/x) / 2", "time", "first order"),
        (30,),
        printed=(1.0, "min"),
    ),
    Formula(reliability.saves_of_job, ("max(1, round(planned / T))", "count", "counting"), (100, 30)),
    Formula(
        reliability.snapshots_to_keep,
        ("max(2, ceil(detection / T) + 1)", "count", "arXiv:2410.18124; that several snapshots do is ours"),
        (180, 30),
    ),
)


TIME_FORMULAS = (
    Formula(
        reliability.job_mtbf_seconds,
        ("1000 days / (nodes x failures per 1,000 node-days)", "s", "arXiv:2410.21680"),
        (2048, 6.5),
        printed=(60, "min"),
    ),
    Formula(
        reliability.time_shares,
        ("wall time of T: M exp((R + P) / M) (exp((T + C) / M) - 1)", "shares", DALY),
        (4.7, 0.105, 108.17, 1.5),
        taking=".lost_work",
    ),
    Formula(
        reliability.effective_training_time_ratio, ("T / wall time of T", "share", DALY), (4.7, 0.105, 108.17, 1.5)
    ),
    Formula(reliability.second_fault_share, ("1 - exp(-R / M)", "share", "exponential times"), (1.5, 180)),
    Formula(reliability.poisson_quantile, ("least k with P(X <= k) >= q", "count", "definition"), (13.312, 0.99)),
    Formula(
        reliability.spare_nodes,
        (
            "Poisson quantile of repair time / M",
            "count",
            "warm standbys of arXiv:2509.16293; the Poisson count is ours",
        ),
        (2048, 6.5, 86400),
    ),
)


RADIUS = blast_radius.blast_radius(LLAMA, NODE.value)
LOST, MODEL = (
    Given("radius", RADIUS, "the loss of a node"),
    Given("model", blast_radius.LossModel(recovery_seconds=90, rework_seconds=180), "90 s and half of 6 min again"),
)
FAULT_FORMULAS = (
    Formula(
        detection.worst_seconds,
        ("time-out + one poll + what it waits for", "s", "kubernetes/kubernetes#127352"),
        (WATCHED, "eviction"),
    ),
    Formula(
        detection.detection,
        ("the least worst time of the layers that see the fault", "s", "as above"),
        (WATCHED, "node-loss"),
        taking=".worst_seconds",
    ),
    Formula(
        detection.recovery,
        ("detect + decide + restart + restore + first step", "s", "counting of the parts"),
        (WATCHED, "hang", PARTS, BUDGET_SECONDS),
        taking=".total_seconds",
    ),
    Formula(
        detection.trials_needed,
        ("least n with P(at most the misses; n, 1 - q) <= 1 - confidence", "count", "Clopper-Pearson, one-sided"),
        (0.95,),
    ),
    Formula(
        blast_radius.blast_radius,
        ("replicas with a lost rank, and those coupled to them", "ranks", "counting; Megatron-LM's order of ranks"),
        (JOB, NODE),
        taking=".stopped_ranks",
    ),
    Formula(
        blast_radius.replica_coupling,
        ("lcm(shard group, expert ranks / (t c))", "count", "arXiv:1910.02054; counting"),
        (Given("hybrid", LAYOUTS[2][1], "the job, state shared by 16"),),
    ),
    Formula(
        blast_radius.lost_accelerator_hours,
        ("stopped x (recovery + rework) + others x pause", "hours", "counting"),
        (LOST, 16384, MODEL),
        printed=(1.0, "accelerator-hours"),
    ),
    Formula(
        blast_radius.lost_accelerator_hours_per_day,
        ("domains x rate / 1000 x the above", "hours", "arXiv:2407.21783 for the rate"),
        (LOST, 16384, 3.79, MODEL),
        printed=(1.0, "accelerator-hours a day"),
    ),
)


def reliability_formulas() -> list[Formula]:
    """Intervals, times and faults, in this order."""
    return [*INTERVAL_FORMULAS, *TIME_FORMULAS, *FAULT_FORMULAS]


MTBF_MINUTES = (15, 60, 180, 360, 1440, 10080)
SAVE_SECONDS = (1, 10, 60, 300)
RECOVERY_MINUTES = (1.5, 10, 30, 60)
NODES = (128, 256, 512, 2048, 12500)
RATES = (1.0, 3.79, 6.5)
RECOVERIES = (2, 10, 30)
QUANTILES = (0.5, 0.9, 0.99, 0.999)
REPAIR_HOURS = (4, 24, 72)
BLOCKS = (
    blast_radius.Domain("process", 1),
    blast_radius.Domain("node", 8),
    blast_radius.Domain("rack", 16),
    blast_radius.Domain("leaf switch", 16, stride=8),
    blast_radius.Domain("pod", 3072),
)
INTRODUCTION = """
How often to save, how much of the time is effective, how many spares suffice, how soon a fault is noticed and what it
takes along. This page is informative: it states no requirement.

Words: C is the time that a save blocks the job, M the mean time between failures of the job, of whatever cause, T the
productive time between saves, R the time to recover, P the time until an asynchronous save is durable. Count M on jobs
where you can: `job_mtbf_seconds` has the failures of nodes alone, so M is at most that. One call has one unit of time.
Failures are independent and exponential, and one can strike while a job saves or recovers.
"""


def intervals() -> Iterator[tuple[str, ...]]:
    """Minutes between failures, and Daly's interval in minutes for each blocking time of a save."""
    for mtbf in MTBF_MINUTES:
        cells = [digits(reliability.daly_interval(seconds / 60, mtbf)) for seconds in SAVE_SECONDS]
        yield digits(mtbf), *cells


def effective() -> Iterator[tuple[str, ...]]:
    """Nodes, failures, minutes between them, and effective share by recovery time, with saves of 10 s."""
    blocking = 10 / 60
    for nodes in NODES:
        for rate in RATES:
            mtbf = reliability.job_mtbf_seconds(nodes, rate) / 60
            interval = reliability.daly_interval(blocking, mtbf)
            ratios = [
                reliability.effective_training_time_ratio(interval, blocking, mtbf, recovery) for recovery in RECOVERIES
            ]
            yield digits(nodes), digits(rate), digits(mtbf), digits(interval), *(percent(ratio) for ratio in ratios)


def spares() -> Iterator[tuple[str, ...]]:
    """Nodes, hours of repair, mean nodes in repair, and spares by quantile at 6.5 failures per 1,000 node-days."""
    for nodes in NODES:
        for hours in REPAIR_HOURS:
            mean = hours * 3600 / reliability.job_mtbf_seconds(nodes, 6.5)
            cells = [reliability.spare_nodes(nodes, 6.5, hours * 3600, quantile) for quantile in QUANTILES]
            yield digits(nodes), str(hours), digits(mean), *map(digits, cells)


def second_faults() -> Iterator[tuple[str, ...]]:
    """Minutes between failures, and the share of recoveries with another fault by their length."""
    for mtbf in MTBF_MINUTES:
        yield digits(mtbf), *(percent(reliability.second_fault_share(each, mtbf)) for each in RECOVERY_MINUTES)


def watched() -> Iterator[tuple[str, ...]]:
    """Layer, time-out, poll, what it waits for, and its longest time."""
    for layer in LAYERS:
        worst = detection.worst_seconds(LAYERS, layer.name)
        times = (digits(float(layer.timeout_seconds)), digits(float(layer.poll_seconds)))
        yield layer.name, ", ".join(sorted(layer.faults)), *times, layer.after or "nothing", digits(worst)


def budgets() -> Iterator[tuple[str, ...]]:
    """Fault, what notices it, time to the first step, and what would have to be shorter."""
    faults = ("process-loss", "node-loss", "hang")
    verdicts = detection.recoveries(LAYERS, dict.fromkeys(faults, PHASES), dict.fromkeys(faults, BUDGET_SECONDS))
    for fault, verdict in verdicts.items():
        found, total = verdict.detection, verdict.total_seconds or 0.0
        shorten = (
            f"{verdict.shorten} to {fixed(verdict.shorten_to_seconds)} s" if verdict.shorten_to_seconds else "nothing"
        )
        seen = found.layer if found else "nothing"
        yield fault, seen, fixed(total), fixed(verdict.over_seconds), verdict.longest, shorten


def trials() -> Iterator[tuple[str, ...]]:
    """Share that is to be shown, and trials by misses."""
    for quantile in (0.5, 0.9, 0.95, 0.99):
        yield percent(quantile, 0), *(digits(detection.trials_needed(quantile, misses=misses)) for misses in (0, 1, 3))


TIMED_SCENARIOS = 4
"""Scenarios of the profile core that have the trials of a claimed share."""


def passes() -> Iterator[tuple[str, ...]]:
    """Share of faults that a stack handles in time, and the chance that it passes all trials of a claim."""
    numbers = [TIMED_SCENARIOS * detection.trials_needed(quantile) for quantile in (0.5, 0.9, 0.95)]
    for share in (0.95, 0.99, 0.999, 0.9999):
        yield f"{100 * share:g} %", *(percent(share**number) for number in numbers)


def radii() -> Iterator[tuple[str, ...]]:
    """Layout, domain, and what its loss takes."""
    for name, where, order in LAYOUTS:
        for domain in BLOCKS:
            radius = blast_radius.blast_radius(where, domain, order)
            share = percent(radius.stopped_share)
            hit = digits(radius.replicas_hit)
            yield name, domain.name, digits(radius.lost_ranks), hit, digits(radius.stopped_ranks), share


def _detection() -> list[str]:
    return [
        *section(
            "Detection",
            "Layers that watch a job, with common time-outs; seconds.",
            table(("layer", "sees", "time-out", "poll", "after", "at the latest"), watched()),
            f"Against a budget of {BUDGET_SECONDS} s from the fault to the first completed step, with {PARTS.words}:",
            table(("fault", "noticed by", "total s", "over s", "longest part", "shorten"), budgets()),
            "Trials that show, with 95 % confidence, that this share of recoveries keeps a budget:",
            table(("share", "no miss", "one miss", "three misses"), trials()),
        ),
        *section(
            "Chance to pass",
            "Four scenarios of the profile core have the trials of a claimed share. Chance that a stack passes all of "
            "them, by the share of faults that it handles in time, where trials are independent.",
            table(("share handled", *(f"claim of {share} %" for share in (50, 90, 95))), passes()),
        ),
        *section(
            "Blast radius",
            f"{JOB.words}. Shares are of the ranks that stop in the worst place. Sharded state couples replicas.",
            table(("layout", "lost", "its ranks", "replicas hit", "ranks stopped", "share"), radii()),
        ),
    ]


def write() -> str:
    """The page of reliability."""
    saves = (f"save of {seconds} s" for seconds in SAVE_SECONDS)
    recoveries = (f"recovery {minutes} min" for minutes in RECOVERIES)
    quantiles = (f"{digits(100 * quantile)} %" for quantile in QUANTILES)
    return page(
        "Reliability",
        INTRODUCTION,
        section("Formulas", formulas(reliability_formulas())),
        section(
            "Interval",
            "Daly's interval in minutes, by minutes between failures and time that a save blocks.",
            table(("minutes between failures", *saves), intervals()),
        ),
        section(
            "Effective time",
            "Effective share of the wall time at Daly's interval, with saves that block 10 s. Failures are per 1,000 "
            "node-days: 3.79 were counted on a job of H100, of any cause (arXiv:2407.21783), 6.5 on nodes of A100, "
            "without what else stops a job (arXiv:2410.21680); the other is an example. Jobs of 128 nodes in that "
            "fleet failed every 7.9 h, of any cause, which is 23.7: without a count of your own plan with that, as "
            "[scale classes](scale.md) do.",
            table(("nodes", "failure rate", "minutes between", "interval, min", *recoveries), effective()),
        ),
        section(
            "Spares",
            "Spares that suffice with a probability, at 6.5 failures per 1,000 node-days.",
            table(("nodes", "repair, hours", "mean in repair", *quantiles), spares()),
        ),
        section(
            "Faults during a recovery",
            "Share of recoveries in which another fault strikes before the job trains again. Failures that come in "
            "groups, as those of one rack or of one cause that stays, make it larger.",
            table(
                ("minutes between failures", *(f"recovery {digits(each)} min" for each in RECOVERY_MINUTES)),
                second_faults(),
            ),
        ),
        _detection(),
    )
