"""Writes the formulas of reliability."""

from __future__ import annotations

from appendix_models import blast_radius
from appendix_text import Formula, Given

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
        ("detect + decide + restart + restore + first step", "s", "Google Developers Blog, 2026-07-06"),
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
