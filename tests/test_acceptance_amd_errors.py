"""`trainspec accept` with what `amd-smi metric --ecc --ecc-blocks` counts on AMD GPUs."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.test_toolbox_accept import ALL, GOOD, accept
from trainspec_validate.interop.fragment import ForeignFormatError
from trainspec_validate.interop.node_tools import node_facts

KINDS = ("CORRECTABLE_COUNT", "UNCORRECTABLE_COUNT", "DEFERRED_COUNT")
BLOCKS = ("UMC", "SDMA", "GFX", "XGMI_WAFL")


def metric(num_gpus: int = 2, indent: str = "    ") -> str:
    """As amd-smi of ROCm 6.2 and later prints it, in which corrected errors are usual."""
    total = "".join(f"{indent * 2}TOTAL_{kind}: {2 if kind == KINDS[0] else 0}\n" for kind in KINDS)
    caches = "".join(f"{indent * 2}CACHE_{kind}: N/A\n" for kind in KINDS[:2])
    counts = "".join(f"{indent * 3}{kind}: 0\n" for kind in KINDS)
    blocks = "".join(f"{indent * 2}{name}:\n{counts}" for name in BLOCKS)
    return "".join(f"GPU: {i}\n{indent}ECC:\n{total}{caches}{indent}ECC_BLOCKS:\n{blocks}\n" for i in range(num_gpus))


def in_second(text: str, after: str, old: str, new: str) -> str:
    """A text with another value of the second GPU, behind a line."""
    head, gpu, rest = text.partition("GPU: 1\n")
    front, mark, back = rest.partition(after)
    assert old in back
    return head + gpu + front + mark + back.replace(old, new, 1)


@pytest.mark.parametrize("indent", ["    ", "        "])
def test_corrected_errors_are_no_fault(indent: str) -> None:
    facts = node_facts(metric(indent=indent)) or {}
    assert facts.pop("devices") == [{"name": "GPU 0", "faults": []}, {"name": "GPU 1", "faults": []}]
    assert facts == {"unread": [], "stated": ["memory errors"], "num_stated": 2}


def test_errors_that_were_not_corrected_are_a_fault_of_their_gpu_and_block(tmp_path: Path) -> None:
    text = in_second(metric(), "ECC:", "TOTAL_UNCORRECTABLE_COUNT: 0", "TOTAL_UNCORRECTABLE_COUNT: 3")
    assert [one["faults"] for one in (node_facts(text) or {})["devices"]] == [[], ["ras:uncorrectable 3"]]
    text = in_second(text, "XGMI_WAFL:", " UNCORRECTABLE_COUNT: 0", " UNCORRECTABLE_COUNT: 3")
    found = accept(tmp_path, {"node-0": {**GOOD, **ALL, "ecc.txt": text}})
    assert found.exit_code == 1, found.output
    assert "node-0/GPU 1: ras:uncorrectable 3 of XGMI_WAFL (errors that the GPU could not correct" in found.output


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("TOTAL_UNCORRECTABLE_COUNT: 0", "TOTAL_UNCORRECTABLE_COUNT: N/A"),
        ("TOTAL_DEFERRED_COUNT: 0", "TOTAL_DEFERRED_COUNT: 4"),
    ],
)
def test_a_count_that_is_not_judged_is_named(old: str, new: str) -> None:
    facts = node_facts(in_second(metric(), "ECC:", old, new)) or {}
    assert (facts["unread"], facts["devices"][1]["faults"]) == ([f"GPU 1: {new.replace(':', '')}"], [])


@pytest.mark.parametrize(
    "end", ["GPU: 1\n    ECC:\n        TOTAL_CORR", "GPU: 1\n    ECC:\n        TOTAL_UNCORRECTABLE_COUNT: 1"]
)
def test_counts_that_are_cut_off_are_refused(end: str) -> None:
    with pytest.raises(ForeignFormatError, match="is cut off"):
        node_facts(metric(1) + end)
