"""The appendix: its numbers equal values that are worked out here, its names exist, and it covers every model."""

from __future__ import annotations

import doctest
import importlib
import math
import re
from pathlib import Path

import appendix
import appendix_text
import metric_pages
import public_log_page
import pytest
import scenario_page
from appendix_machines import MACHINES, shape
from appendix_text import Formula, Given, digits, table

from tests.every import every
from trainspec_validate.performance.costs.collectives import estimate

ROOT = Path(__file__).resolve().parent.parent
REFERENCE = ROOT / "spec" / "reference"
OTHERS = {*metric_pages.NAMES, Path(public_log_page.PAGE).name, Path(scenario_page.PAGE).name}
"""Pages that no model writes."""
PAGES = sorted(path for path in REFERENCE.glob("*.md") if path.name not in OTHERS)
LEVEL_WORD = re.compile(r"\b(must|shall|should|may|required|recommended|optional)\b", re.IGNORECASE)
AMERICAN = re.compile(r"\b\w*(?:ization|izing|yzing|ized|behavior|favorite|data center)\b", re.IGNORECASE)
MAX_PAGE_LINES, MAX_LINE = 500, 140
GIB = 2**30


def page_id(path: Path) -> str:
    return path.name


def prose(path: Path) -> list[str]:
    """Lines without what stands in `code`."""
    return [re.sub(r"`[^`]*`", " ", line) for line in path.read_text(encoding="utf-8").splitlines()]


def cells(page: str, *start: str, under: str = "") -> list[str]:
    """The one row that begins with these cells, without them; `under` a heading where several do."""
    text = (REFERENCE / page).read_text(encoding="utf-8")
    if under:
        text = re.split(r"^##", text.split(f"# {under}\n")[1], maxsplit=1, flags=re.MULTILINE)[0]
    rows = [[cell.strip() for cell in line.strip("|").split("|")] for line in text.splitlines() if line.startswith("|")]
    (found,) = [row for row in rows if row[: len(start)] == list(start)]
    return found[len(start) :]


def number(cell: str) -> float:
    return float(cell.replace(",", "").removesuffix("%").strip())


# --- coverage and form --------------------------------------------------------------------------------------


def test_every_page_is_written_and_no_other() -> None:
    assert {path.name for path in PAGES} == {*appendix.WRITERS, "index.md"}
    assert set(appendix.SUBJECTS) == set(appendix.WRITERS)


@every("module", appendix.models())
def test_every_model_is_covered(module: str) -> None:
    covering = [path.name for path in PAGES if path.name != "index.md" and f"`{module}." in path.read_text("utf-8")]
    assert covering, f"no page mentions {module}: add its formulas to tools/appendix_*.py"


@pytest.mark.parametrize("path", PAGES, ids=page_id)
def test_names_on_a_page_exist(path: Path) -> None:
    models, mentioned = appendix.models(), appendix.mentions(path.read_text(encoding="utf-8"))
    assert mentioned or path.name == "index.md"
    for module, name in mentioned:
        if module in {"topology", "trainspec_validate"}:
            room = "trainspec_validate" if module == "trainspec_validate" else "trainspec_validate.performance.topology"
            assert importlib.import_module(f"{room}.{name}")
            continue
        assert module in models
        assert not name.startswith("_")
        home = next(full for path, full in appendix.MODELS.items() if path.stem == module)
        assert hasattr(importlib.import_module(home), name), f"{module}.{name}"


@pytest.mark.parametrize("path", PAGES, ids=page_id)
def test_a_page_keeps_its_form(path: Path) -> None:
    text = path.read_text(encoding="utf-8")
    lines = text.splitlines()
    assert lines[0] == appendix_text.FIRST_LINE
    assert re.fullmatch(r"# [A-Z].+", lines[2])
    assert len(lines) <= MAX_PAGE_LINES
    assert [line for line in lines if len(line) > MAX_LINE and not line.startswith("|")] == []
    assert [line for line in lines if line != line.rstrip()] == []
    assert text.endswith("\n")
    assert not text.endswith("\n\n")


@pytest.mark.parametrize("path", PAGES, ids=page_id)
def test_a_page_states_no_requirement(path: Path) -> None:
    assert [line for line in prose(path) if LEVEL_WORD.search(line)] == []
    assert [line for line in prose(path) if AMERICAN.search(line)] == []


@pytest.mark.parametrize("path", PAGES, ids=page_id)
def test_tables_have_even_rows(path: Path) -> None:
    width = 0
    for line in path.read_text(encoding="utf-8").splitlines():
        if not line.startswith("|"):
            width = 0
            continue
        width = width or line.count("|")
        assert line.count("|") == width, line


def test_the_index_of_the_specification_links_every_page() -> None:
    text = (ROOT / "spec" / "index.md").read_text(encoding="utf-8")
    assert [path.name for path in PAGES if f"(reference/{path.name})" not in text] == []


# --- numbers ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("module", [appendix, appendix_text], ids=lambda module: module.__name__)
def test_examples_of_the_generator(module: object) -> None:
    result = doctest.testmod(module)  # type: ignore[arg-type]
    assert result.attempted > 0
    assert result.failed == 0


@pytest.mark.slow
def test_no_printed_number_lies_at_a_boundary_of_rounding(monkeypatch: pytest.MonkeyPatch) -> None:
    """A last bit that another processor or Python computes cannot change a page."""
    before = appendix.pages()
    monkeypatch.setattr(appendix_text, "NUDGE", 1 + 1e-8)
    assert appendix.pages() == before


def test_a_half_is_rounded_up_whichever_side_its_last_bit_lies_on() -> None:
    for value in (0.0625, math.nextafter(0.0625, 0), math.nextafter(0.0625, 1)):
        assert appendix_text.fixed(value, 3) == "0.063"
        assert appendix_text.percent(value) == "6.3 %"


def test_a_worked_example_is_run() -> None:
    def half(value: float, *, shift: float = 0.0) -> float:
        return value / 2 + shift

    one = Formula(half, ("x / 2", "m", "arithmetic"), (Given("x", 7.0, "seven"),), {"shift": 1})
    assert one.example() == "`half(x, shift=1)` = 4.5 m"
    scaled = Formula(half, ("x / 2", "m", "arithmetic"), (7000.0,), printed=(1000.0, "km"))
    assert scaled.example() == "`half(7000)` = 3.5 km"


def test_a_row_that_would_break_a_table_is_refused() -> None:
    with pytest.raises(ValueError, match="does not fit"):
        table(("a", "b"), [("1",)])
    with pytest.raises(ValueError, match="does not fit"):
        table(("a",), [("1|2",)])


def test_state_by_sharding() -> None:
    """18 bytes: 2 of weights, 4 of gradients, 12 of the optimizer."""
    assert cells("memory.md", "ZeRO-0") == ["18"] * 5
    assert cells("memory.md", "ZeRO-1")[2] == digits(2 + 4 + 12 / 64)
    assert cells("memory.md", "ZeRO-2")[1] == digits(2 + 16 / 8)
    assert cells("memory.md", "ZeRO-3")[4] == digits(18 / 1024)


def test_activations_of_gpt3() -> None:
    """arXiv:2205.05198: 34 s b h + 5 a s^2 b without recomputation, 34 selective, 2 full."""
    hidden_states = 2048 * 12288 / 2**20
    assert number(cells("memory.md", "selective", under="Activations of a layer")[0]) == 34 * hidden_states
    assert "`layer_bytes(gpt3, one, unfused)` = 2,736 MiB" in (REFERENCE / "memory.md").read_text("utf-8")
    assert 34 * hidden_states + 5 * 96 * 2048**2 / 2**20 == 2736


def test_peak_of_llama_405b() -> None:
    """State alone: 3.2 billion parameters of a rank at 2 and 4 bytes, 12 bytes over 128 ranks."""
    layer = 2 * 16384 * (16384 + 1024) + 3 * 16384 * 53248
    of_first_stage = (8 * layer + 128256 * 16384) / 8
    weights, gradients, optimizer = cells("memory.md", "llama3-405b", "128 x 8 x 16", "1", "full", "1")[:3]
    assert number(weights) == pytest.approx(2 * of_first_stage / GIB, abs=0.06)
    assert number(gradients) == pytest.approx(4 * of_first_stage / GIB, abs=0.06)
    assert number(optimizer) == pytest.approx(12 * of_first_stage / 128 / GIB, abs=0.06)


def test_in_flight() -> None:
    assert cells("memory.md", "1f1b") == ["8", "4", "1"]
    assert number(cells("memory.md", "interleaved-1f1b")[0]) == 8 * (1 + 7 / (8 * 4))  # 1 + (p - 1) / (p v)


def test_bubbles() -> None:
    assert cells("step-time.md", "1f1b", "1")[1] == "43.8 %"  # 7 / 16
    assert cells("step-time.md", "interleaved-1f1b", "4")[1] == "10.9 %"  # 7 / 64
    assert cells("step-time.md", "zero-bubble", "1")[1] == "14.6 %"  # a third of 7 / 16


def test_operations_by_convention() -> None:
    layers, hidden, vocabulary, length = 96, 12288, 51200, 2048
    matrices = 12 * layers * hidden**2
    weights = matrices + 2 * vocabulary * hidden + (2 * layers + 1) * hidden
    full = 12 * layers * hidden * length
    expected = {
        "6n": 6 * weights,
        "palm": 6 * weights + full,
        "6n-causal-attention": 6 * (weights - vocabulary * hidden) + full / 2,
        "megatron-2022-model": 6 * (matrices + vocabulary * hidden) + full,
        "megatron-2021-hardware": 8 * matrices + 6 * vocabulary * hidden + full * 4 / 3,
    }
    for convention, operations in expected.items():
        assert number(cells("step-time.md", convention)[0]) == pytest.approx(operations / 1e9, rel=5e-4), convention


def test_shares_of_a_published_step_add_up() -> None:
    for row in ("llama3_t4-001", "megatron2021_t1-007"):
        found = cells("step-time.md", row)
        shares = [number(cell) for cell in found[3:10]]
        assert sum(shares) == pytest.approx(100, abs=len(shares) / 2)
        predicted, published = number(found[10]), number(found[11])
        assert number(found[12].removeprefix("+")) == round(100 * (predicted / published - 1))


def test_intervals_that_daly_published() -> None:
    """A save of 5 minutes: 117, 57 and 9.1 minutes at 24 h, 6 h and 15 min between failures."""
    rows = {
        minutes: number(cells("reliability.md", minutes, under="Interval")[3]) for minutes in ("1,440", "360", "15")
    }
    assert [round(value, 0 if value > 10 else 1) for value in rows.values()] == [117, 57, 9.1]


def test_effective_time() -> None:
    """The renewal formula, written out for 2,048 nodes at 6.5 failures, saves of 10 s and recoveries of 10 min."""
    mtbf, save, interval = 1000 * 1440 / (2048 * 6.5), 1 / 6, 5.89
    wall = mtbf * math.exp(10 / mtbf) * math.expm1((interval + save) / mtbf)
    row = cells("reliability.md", "2,048", "6.5")
    assert number(row[0]) == round(mtbf)
    assert number(row[3]) == pytest.approx(100 * interval / wall, abs=0.06)


def test_spares() -> None:
    mean = 2048 * 6.5 / 1000  # nodes lost in a day of repair
    total, count = math.exp(-mean), 0
    while total < 0.99:
        count += 1
        total += math.exp(-mean) * mean**count / math.factorial(count)
    assert number(cells("reliability.md", "2,048", "24")[3]) == count == 22


def test_detection_and_trials() -> None:
    assert cells("reliability.md", "hang")[1] == f"{600 + 50 + 5.4 + 12.7:.1f}"
    assert number(cells("reliability.md", "95 %", under="Detection")[0]) == math.ceil(math.log(0.05) / math.log(0.95))


def test_second_faults_and_the_chance_to_pass() -> None:
    second = cells("reliability.md", "180", under="Faults during a recovery")
    assert second[0] == f"{100 * (1 - math.exp(-1.5 / 180)):.1f} %"
    assert cells("reliability.md", "99.9 %", under="Chance to pass")[2] == f"{100 * 0.999 ** (4 * 59):.1f} %"


def test_blast_radius() -> None:
    """A leaf switch of 16 ranks, eight apart: 16 replicas when data is innermost of what crosses nodes, else one."""
    assert cells("reliability.md", "data inside pipeline, replicas apart", "leaf switch")[1] == "16"
    assert cells("reliability.md", "pipeline inside data, replicas apart", "leaf switch")[1] == "1"


def test_noise_of_uneven_groups() -> None:
    """Signal 1 and noise 32 a unit, by the definition of the weighted means of groups of 1, 2, 4 and 9."""
    sizes = (1, 2, 4, 9)
    mean_of_norms, norm_of_mean = sum(size * (1 + 32 / size) for size in sizes) / 16, 1 + 32 / 16
    assert (4 * norm_of_mean - mean_of_norms) / 3 == pytest.approx(1)
    assert 16 * (mean_of_norms - norm_of_mean) / 3 == pytest.approx(32)
    assert "`gradient_noise([1, 2, 4, 9], norms, 3).noise_scale` = 32" in (REFERENCE / "batch.md").read_text("utf-8")
    assert number(cells("batch.md", "9")[0]) == pytest.approx(1 + 32 / 9, abs=5e-4)


def test_batch_trade_off_and_rates() -> None:
    assert cells("batch.md", "0.2") == ["6", "1.2"]
    assert cells("batch.md", "adascale", "8")[1:3] == [digits(9 / 5), digits(9 / 3)]
    assert cells("batch.md", "square-root", "any")[1] == digits(math.sqrt(2))


def test_elastic_sizes() -> None:
    """Of 56 accelerators 1,024 sequences can use 32, a power of two; 1,680 sequences can use all 56."""
    row = cells("batch.md", "56")
    for batch, cell, world in zip((1024, 1680), row, (32, 56), strict=False):
        factors = [int(part) for part in cell.split(" x ")]
        assert math.prod(factors) == batch
        assert factors[2] == world


def test_energy_chain() -> None:
    node = 64 * 8 * 700 * 1.8 * 0.69 * 3412 / 3.6e6
    assert number(cells("energy.md", "node")[0]) == pytest.approx(node, abs=0.06)
    assert number(cells("energy.md", "device")[0]) == pytest.approx(node / 1.8, abs=0.06)
    assert number(cells("energy.md", "facility")[0]) == pytest.approx(node * 1.136 * 1.2, abs=0.06)
    assert number(cells("energy.md", "gpt3-175b", "nvidia-h100-sxm-80gb")[0]) == pytest.approx(
        0.5 * 6 * 175e9 * 700 / 989e12, rel=0.01
    )


def test_steps_and_bytes_of_rings_and_trees() -> None:
    """64 ranks in 8 domains: 2 x 63 steps, 2 x 7 of them across; a tree climbs and falls three levels."""
    assert cells("collectives.md", "ring", under="Steps and bytes by algorithm")[:3] == [
        "112",
        "14",
        digits(2 * 63 / 64),
    ]
    assert cells("collectives.md", "tree", under="Steps and bytes by algorithm")[1] == "6"


def choice(num_ranks: str, machine: str, under: str = "Choices for all-reduce") -> list[str]:
    return cells("collectives.md", machine, num_ranks, under=under)[0].split(" → ")


def test_thresholds_of_the_tuner() -> None:
    """8 MiB and 256 MiB for each of 16 domains, but at most 256 MiB for a tree; rings by 64 KiB and 16 MiB a rank."""
    assert choice("128", "8 x NVLink 4, EFA")[2:] == ["tree LL128", "128 MiB", "in-network-tree", "4 GiB", "ring"]
    gathered = choice("128", "8 x NVLink 4, EFA", "Choices for all-gather and reduce-scatter")
    assert gathered == ["ring LL", "8 MiB", "ring LL128", "2 GiB", "ring"]


@pytest.mark.parametrize("num_ranks", ["32", "512", "16,384"])
def test_estimates_are_equal_where_the_choice_changes(num_ranks: str) -> None:
    protocols = {"": "simple", "LL": "low-latency", "LL128": "low-latency-128"}
    units = {"KiB": 2**10, "MiB": 2**20, "GiB": 2**30}
    network = MACHINES[0].network(int(number(num_ranks)))
    parts = choice(num_ranks, "8 x NVLink 4, InfiniBand")
    assert len(parts) >= 3
    for before, start, after in zip(parts[::2], parts[1::2], parts[2::2], strict=False):
        amount, unit = start.split()
        seconds = []
        for name in (before, after):
            algorithm, _, protocol = name.partition(" ")
            message = float(amount) * units[unit]
            seconds.append(estimate("all-reduce", message, network, algorithm, protocols[protocol]).seconds)
        assert seconds[0] == pytest.approx(seconds[1], rel=0.01)


def test_bands_hold_the_prediction() -> None:
    row = cells("collectives.md", "8 x NVLink 4, RoCE", "128", under="Bus bandwidth of all-reduce")
    for cell in row:
        middle, low, _, high = (part.strip("()") for part in cell.split())
        assert number(low) <= number(middle) <= number(high)


def test_a_pair_of_a_mesh_has_one_link() -> None:
    assert cells("collectives.md", "2", under="A link for every pair")[0] == digits(448 / 7)


def test_order_of_hosts() -> None:
    """Pods of one eighth of the machine behind a tier of 7:1: 7/8 of the traffic leaves, at 50 / 7 GB/s."""
    rates = {
        order: cells("collectives.md", "meta-llama3-24k", order, "all-reduce")[1]
        for order in ("topology", "alphabetical")
    }
    assert rates == {"topology": "50", "alphabetical": digits(50 / 7 / (7 / 8))}


def test_roles_of_a_rank() -> None:
    """Tensor 4 and pipeline 2 are inside data, so data groups are eight apart."""
    members, ring, *_ = cells("collectives.md", "13", "data")
    assert members == "5 13 21 29"
    assert ring == "from 5, to 21"


def test_models_come_from_the_catalog() -> None:
    assert (shape("llama3-405b").num_layers, shape("llama3-405b").hidden_size) == (126, 16384)


CITATION = re.compile(r"arXiv:\d{4}\.\d{5}|doi:[\w./-]+|\b[\w.-]+/[\w.-]+@[0-9a-f]{8}")


@pytest.mark.parametrize("path", PAGES, ids=page_id)
def test_sources_are_those_of_the_code(path: Path) -> None:
    """A page cites nothing that the code, its data or its benchmarks do not cite."""
    folders = (ROOT / "src" / "trainspec_validate", ROOT / "tools" / "appendix_models", ROOT / "benchmarks")
    files = [file for folder in folders for suffix in ("py", "csv") for file in folder.rglob(f"*.{suffix}")]
    files += appendix.MODELS
    known = {match for file in files for match in CITATION.findall(file.read_text(encoding="utf-8"))}
    cited = set(CITATION.findall(path.read_text(encoding="utf-8")))
    assert cited or path.name == "index.md"
    assert cited - known == set()


# --- scale classes ------------------------------------------------------------------------------------------


def test_failures_by_scale() -> None:
    nodes, between, quiet, interval, effective, spares = cells("scale.md", "16,384", under="Failures")
    assert (nodes, between, spares) == ("2,048", "108.2 min", "22")
    assert number(between.removesuffix(" min")) == pytest.approx(1e6 / 2048 / 6.5 * 1.44, abs=0.1)
    assert quiet == "0.0 %"
    assert number(interval.removesuffix(" min")) * 60 == pytest.approx(math.sqrt(2 * 2 * 108.2 * 60), rel=0.03)
    assert 96 < number(effective) < 97


def test_tiers_by_scale() -> None:
    assert cells("scale.md", "1,024", under="Network")[:2] == ["2", "2"]  # 64 ports: 2,048 in two tiers
    assert cells("scale.md", "16,384", under="Network")[:2] == ["3", "2"]  # 64 ports: 65,536 in three tiers
    assert cells("scale.md", "131,072", under="Network")[:2] == ["4", "2"]  # 512 ports: arXiv:2605.04333


def test_power_and_telemetry_by_scale() -> None:
    full, swing, records, a_day = cells("scale.md", "131,072", under="Power and telemetry")
    assert number(full.removesuffix(" MW")) == pytest.approx(16384 * 8 * 700 * 1.8 / 1e6, rel=0.01)
    assert number(swing.removesuffix(" MW")) == pytest.approx(0.23 * number(full.removesuffix(" MW")), rel=0.01)
    assert number(records) == 131072 * 20 / 10
    assert number(a_day.removesuffix(" GB")) == pytest.approx(262144 * 150 * 86400 / 1e9, rel=0.01)
