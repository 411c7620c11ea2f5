"""`trainspec accept` of a node whose files contradict each other, are cut off, or end with a failure."""

from __future__ import annotations

from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from tests.node_reports import benchmark, links, profile, smi
from trainspec_validate.cli.toolbox import command


def accept(root: Path, files: dict[str, str]) -> Result:
    (root / "cluster.yaml").write_text(profile(1), encoding="utf-8")
    (root / "nodes" / "node-0").mkdir(parents=True, exist_ok=True)
    for name, text in files.items():
        (root / "nodes" / "node-0" / name).write_text(text, encoding="utf-8")
    arguments = ["accept", f"{root}/cluster.yaml", "--from", f"{root}/nodes", "--format", "concise"]
    return CliRunner().invoke(command, arguments, prog_name="trainspec")


@pytest.mark.parametrize(
    ("sound", "wrong", "words"),
    [
        (smi(), smi(errors=5), "5 uncorrected memory errors"),
        (smi(), smi(ecc="Disabled"), "ECC is off"),
        (smi(), smi(width="8x"), "8 of 16 lanes"),
        (smi(), smi(power="400.00"), "power limit of 400 W"),
        (links(), links().replace("26.562 GB/s", "<inactive>", 3), "15 of 18 scale-up links are up"),
    ],
    ids=["errors", "ecc", "lanes", "power", "links"],
)
@pytest.mark.parametrize("names", ["ab", "ba"])
def test_the_worse_of_two_reports_counts(tmp_path: Path, sound: str, wrong: str, words: str, names: str) -> None:
    found = accept(tmp_path, dict(zip(names, (sound, wrong), strict=True)))
    assert found.exit_code == 1, found.output
    assert words in found.stdout


def test_two_drivers_of_one_node_are_named(tmp_path: Path) -> None:
    found = accept(tmp_path, {"a": smi(), "b": smi(driver="999.1")})
    words = "holds a value that another file contradicts: node-0/b (driver 999.1; another file has 535.183.01)"
    assert f"{words}: 1 requirement not judged" in found.output
    assert "TS-CLU-054" in found.output


@pytest.mark.parametrize("section", ["ECC Errors", "Max Clocks"])
def test_a_report_that_is_cut_off_in_its_last_device_is_refused(tmp_path: Path, section: str) -> None:
    text = smi()
    found = accept(tmp_path, {"a": text[: text.rindex(section)]})
    assert found.exit_code == 2, found.output
    assert "is cut off: the last GPU lacks sections that the others have" in found.output


def test_a_test_of_collectives_that_ends_with_a_failure_is_an_error(tmp_path: Path) -> None:
    end = "node-0: Test NCCL failure common.cu:1005 'unhandled cuda error'\n"
    assert accept(tmp_path, {"a": smi(), "b": benchmark(380.0)}).exit_code == 0
    found = accept(tmp_path, {"b": benchmark(380.0) + end})
    assert found.exit_code == 1
    assert "collective: Test NCCL failure common.cu:1005 'unhandled cuda error'" in found.stdout
