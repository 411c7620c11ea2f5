"""Writes the page of energy: from the devices to the facility, a token, and the error."""

from __future__ import annotations

from collections.abc import Iterator

from appendix_machines import peak_flops
from appendix_models import power_samples
from appendix_text import Formula, Given, digits, fixed, formulas, page, percent, section, signed_percent, table

from benchmarks import score_energy
from trainspec_validate.model.catalog import accelerators, models
from trainspec_validate.performance.costs import energy

KILOWATT_HOUR = energy.JOULES_PER_KILOWATT_HOUR
NODES, SECONDS, DEVICE_WATTS = 64, 3412, 700
EFFECTIVENESS, INTENSITY = 1.2, 0.4
MODELS = ("llama3-8b", "llama3-70b", "llama3-405b", "gpt3-175b")
DEVICES = (("nvidia-a100-sxm-80gb", "bf16"), ("nvidia-h100-sxm-80gb", "bf16"), ("nvidia-b200-sxm-180gb", "bf16"))
UTILISATION = 0.4
SAMPLES = (
    Given("seconds", (0, 1, 2, 3, 10), "time stamps 0, 1, 2, 3 and 10 s"),
    Given("watts", (100, 110, None, 120, 130), "100, 110, none, 120 and 130 W"),
)

INTRODUCTION = f"""
Energy of a job from its devices to the facility, what a token costs, and carbon. [Error](#error) says how far off the
energy of nodes is. This page is informative: it states no requirement.

Words: device is the accelerators alone; node adds host, fans and losses of the supplies; network adds switches;
facility adds cooling and distribution. Full power of a node is the limits of its accelerators times {
    1 + energy.HOST_SHARE:g}.
"""


ENERGY_FORMULAS = (
    Formula(
        energy.node_watts,
        ("accelerators x limit x (1 + host share)", "W", "largest input by NVIDIA's user guides of DGX H100 and B200"),
        (8, 700),
    ),
    Formula(
        energy.mean_node_watts,
        (
            f"full x ({energy.WAITING_SHARE} + {digits(energy.BUSY_SHARE - energy.WAITING_SHARE)} x busy)",
            "W",
            "fitted to MLPerf Training v4.0 to v5.0",
        ),
        (10080,),
    ),
    Formula(
        energy.predicted_joules,
        ("nodes x mean power x seconds", "J", "as above"),
        (NODES, 10080, SECONDS),
        printed=(KILOWATT_HOUR, "kWh"),
    ),
    Formula(
        energy.least_joules,
        (f"{energy.IDLE_SHARE} x limit x accelerators x seconds", "J", "idle boards of 700 W draw 70 to 100 W"),
        (700, 512, SECONDS),
        printed=(KILOWATT_HOUR, "kWh"),
    ),
    Formula(
        energy.most_joules,
        (
            f"{1 + energy.RESTART_SHARE:g} x watts x seconds, with switches and overhead",
            "J",
            "MLPerf Training v4.0 for the switches",
        ),
        (64 * 10200, SECONDS),
        printed=(KILOWATT_HOUR, "kWh"),
    ),
    Formula(
        energy.least_joules_per_token,
        ("0.5 x 6 N x limit / peak", "J", "arXiv:2001.08361, section 2.1"),
        (175e9, 1979e12, 700),
    ),
    Formula(
        energy.boundaries,
        (
            "device + host; x (1 + loss); x (1 + network); x effectiveness",
            "J",
            "definition; MLPerf Training v4.0 for the shares",
        ),
        (80, 20),
        options={"network_share": 0.1, "power_usage_effectiveness": 1.2},
        taking=".facility",
    ),
    Formula(energy.facility_joules, ("machines x power usage effectiveness", "J", "definition"), (100, 1.25)),
    Formula(
        energy.carbon_kilograms,
        ("kWh of the facility x intensity", "kg", "model card of Llama 3.1"),
        (27.5e6 * KILOWATT_HOUR, 1.0, 0.414),
        printed=(1000, "t"),
    ),
    Formula(
        power_samples.sampled_energy,
        ("sum of reading x time to the next one that is there", "J", "as in the MLPerf training power rules"),
        SAMPLES,
        options={"max_gap_seconds": 5},
        taking=".joules",
    ),
)


def job() -> energy.Boundaries:
    """GPT-3 on 64 nodes of eight H100: what the devices and the rest of the nodes take, and all boundaries."""
    full = energy.node_watts(8, DEVICE_WATTS)
    total = energy.predicted_joules(NODES, full, SECONDS)
    device = total / (1 + energy.HOST_SHARE)
    return energy.boundaries(device, total - device, power_usage_effectiveness=EFFECTIVENESS)


def chain() -> Iterator[tuple[str, ...]]:
    """Boundary, kWh and what it adds."""
    found = job()
    parts = {
        "device": found.device,
        "node": found.node,
        "node and network": found.node_and_network,
        "facility": found.facility,
    }
    before = 0.0
    for name, joules in parts.items():
        added = f"+{percent(joules / before - 1)}" if before else ""
        yield name, fixed(joules / KILOWATT_HOUR), added or "none"
        before = joules


def tokens() -> Iterator[tuple[str, ...]]:
    """Model and accelerator: joules of a token of all operations at the peak, and at a utilisation of the peak."""
    for model in MODELS:
        size = float(models()[model].model["num_parameters"])
        for name, number_format in DEVICES:
            watts, peak = accelerators()[name].power_watts, peak_flops(name, number_format)
            if watts is None:
                raise ValueError(f"the catalog has no power of {name}")
            least = energy.least_joules_per_token(size, peak, watts)
            seconds = 6 * size / (UTILISATION * peak)
            node = energy.mean_node_watts(energy.node_watts(8, watts)) / 8 * seconds
            whole = energy.boundaries(node, 0.0, power_usage_effectiveness=EFFECTIVENESS).facility
            yield model, name, *(digits(joules) for joules in (least, node, whole))


def errors() -> Iterator[tuple[str, ...]]:
    """Kinds of runs: measured kWh, and error with the system and with the maker left out of the fit."""
    runs = score_energy.read_runs()
    system = score_energy.left_out(runs, lambda run: run.system)
    maker = score_energy.left_out(runs, lambda run: run.maker)
    for run in runs:
        busy = score_energy.busy_share(run, runs)
        name, kilowatt_hours = f"{run.system}, {run.benchmark}", run.joules / KILOWATT_HOUR
        ends = (signed_percent(system[run]), signed_percent(maker[run]))
        yield name, digits(run.num_nodes), fixed(busy, 2), digits(kilowatt_hours), *ends


def _summary() -> str:
    runs = score_energy.read_runs()
    means = [
        percent(score_energy.mean_error(found))
        for found in (
            score_energy.left_out(runs, lambda run: run.system),
            score_energy.left_out(runs, lambda run: run.maker),
            score_energy.limits_times_time(runs),
        )
    ]
    return (
        f"Mean absolute error {means[0]} with the system left out of the fit, {means[1]} with its maker left out; the "
        f"limits of the accelerators times the time alone are off by {means[2]} (`benchmarks/score_energy.py`)."
    )


def _chain() -> list[str]:
    measured = next(run for run in score_energy.read_runs() if (run.benchmark, run.num_nodes) == ("gpt3", NODES))
    carbon = energy.carbon_kilograms(job().node_and_network, EFFECTIVENESS, INTENSITY)
    return section(
        "From the devices to the facility",
        f"GPT-3 on {NODES} nodes of eight H100 in {digits(SECONDS)} s. MLPerf Training v4.0 measured "
        f"{fixed(measured.joules / KILOWATT_HOUR)} kWh at the nodes. Nodes are predicted, switches add "
        f"{percent(energy.NETWORK_ESTIMATE)}, the facility has an effectiveness of {EFFECTIVENESS}, an example. The "
        "devices have their share of full power.",
        table(("boundary", "kWh", "over the one before"), chain()),
        f"At {INTENSITY} kg/kWh, an example, the facility's energy is {digits(carbon)} kg of carbon dioxide.",
    )


def write() -> str:
    """The page of energy."""
    return page(
        "Energy",
        INTRODUCTION,
        section("Formulas", formulas(ENERGY_FORMULAS)),
        _chain(),
        section(
            "Joules of a token",
            "Least: all operations at the peak rate for half the power limit, a lower bound. Node: nodes that work, at "
            f"{percent(UTILISATION, 0)} of the peak. Facility: with switches and an effectiveness of {EFFECTIVENESS}. "
            "Six operations for each parameter and token.",
            table(("model", "accelerator", "least J", "node J", "facility J"), tokens()),
        ),
        section(
            "Error",
            "Power logs of MLPerf Training. Busy is the throughput of a node over that of the best single node.",
            _summary(),
            table(("run", "nodes", "busy", "measured kWh", "system left out", "maker left out"), errors()),
        ),
    )
