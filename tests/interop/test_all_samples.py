"""Every published topology file is recognised and read."""

from __future__ import annotations

from fnmatch import fnmatchcase

import pytest
from hypothesis import given
from hypothesis import strategies as st
from network_files import SAMPLES, assert_sound

from tests.examples import examples
from trainspec_validate.interop.fragment import ForeignFormatError, ForeignText
from trainspec_validate.interop.recognise import formats, recognise

FOLDER = SAMPLES / "topology"
FILES = sorted(path for path in FOLDER.rglob("*") if path.is_file()) if FOLDER.is_dir() else []
FORMATS = (
    ("astra-sim-*.yml", "astra-sim-network"),
    ("azure-*-graph.xml", "nccl-graph-xml"),
    ("hwloc-*.xml", "hwloc-xml"),
    ("mlperf-system-*.json", "mlperf-system"),
    ("*ccl-info-*.txt", "collective-library-log"),
    ("nccl-tests-*.txt", "collective-benchmark"),
    ("*topo-m-*.txt", "nvidia-smi-topology-matrix"),
    ("topograph-expected-*.conf", "slurm-topology-conf"),
    ("topograph-ibnetdiscover-*.out", "ibnetdiscover"),
    ("topograph-model-*.yaml", "topograph-model"),
    ("topograph-netq-computeNodes.json", "netq-compute-nodes"),
    ("topograph-netq-topologyGraph.json", "netq-topology-graph"),
    ("*.xml", "nccl-topology-xml"),
)


@examples(100)
@given(st.text(max_size=300))
def test_any_text_fits_one_format_or_is_refused(text: str) -> None:
    try:
        assert recognise(ForeignText("noise", text)).name
    except ForeignFormatError as error:
        assert error.help  # noqa: PT017 - no exception is a pass as well


@pytest.mark.parametrize("letter", ["a", "\n", " ", "\t", "[", "1", '"', "#"])
def test_long_runs_of_one_letter_end(letter: str) -> None:
    """A text of a million equal characters is judged in linear time; a quadratic search would take hours."""
    for entry in formats().values():
        assert entry.looks_like(ForeignText("noise", letter * 1_000_000)) is False, entry.name


@pytest.mark.skipif(not FILES, reason="no samples; TRAINSPEC_SAMPLES names their folder")
def test_there_is_a_sample_of_most_formats() -> None:
    assert len(FILES) > 30


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.name)
def test_a_sample_is_read(path: object) -> None:
    file = next(entry for entry in FILES if entry == path)
    text = ForeignText(file.name, file.read_text(encoding="utf-8"))
    wanted = next(name for pattern, name in FORMATS if fnmatchcase(file.name, pattern))
    found = recognise(text)
    assert found.name == wanted
    fragment = found.read(text)
    assert fragment.facts
    assert_sound(fragment, wanted)


RUNS = ["a" * 300_000, " " * 300_000, "\n" * 300_000, "1 " * 150_000, "a=" * 150_000, "[" * 300_000, "-> 1" * 75_000]
STARTS = {
    "slurm-topology-conf": "SwitchName=a Nodes=",
    "ibnetdiscover": 'Switch\t8 "S-1"\t\t# "leaf" base\n[1]\t"H-1"[1](1) \t\t# "',
    "collective-library-log": "NCCL INFO NET/IB : Using ",
    "collective-benchmark": "#  size  count  type  redop  root  time  algbw  busbw #wrong\n",
    "topograph-model": "blocks: []\nswitches: ",
    "astra-sim-network": "topology: [Ring]\nnpus_count: [2]\nbandwidth: ",
    "levanter-yaml": "trainer:\n  num_train_steps: 1\n  train_batch_size: ",
    "nemo-rl-yaml": "policy:\n  train_global_batch_size: ",
}


@pytest.mark.parametrize("name", STARTS)
@pytest.mark.parametrize("run", RUNS, ids=range(len(RUNS)))
def test_a_file_of_one_long_run_is_read_or_refused(name: str, run: str) -> None:
    try:
        fragment = formats()[name].read(ForeignText("noise", STARTS[name] + run))
    except ForeignFormatError as error:
        assert str(error)  # noqa: PT017 - no exception is a pass as well
    else:
        assert fragment.format == name


@pytest.mark.parametrize("text", ["", "\n", "  \t\n\n"])
def test_an_empty_file_is_called_empty(text: str) -> None:
    with pytest.raises(ForeignFormatError, match="the file is empty"):
        recognise(ForeignText("nothing", text))
