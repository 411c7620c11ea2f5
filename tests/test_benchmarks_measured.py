"""Own measurements run, and print the figures that the chapters give for them."""

from __future__ import annotations

import re
import subprocess
import sys
from functools import cache
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
CHAPTERS = ROOT / "spec" / "v1"
SCRIPTS = sorted((ROOT / "benchmarks" / "measured").glob("*.py"))


@cache
def printed(name: str) -> str:
    """What a script prints; a test is skipped where a library that it needs is not installed."""
    script = ROOT / "benchmarks" / "measured" / f"{name}.py"
    done = subprocess.run([sys.executable, str(script)], capture_output=True, text=True, timeout=600, check=False)
    assert done.returncode == 0, done.stderr[-2000:]
    return done.stdout


def measured(name: str) -> str:
    output = printed(name)
    if "not measured" in output:
        pytest.skip(output.strip())
    return output


def text_of(chapter: str) -> str:
    return " ".join((CHAPTERS / f"{chapter}.md").read_text(encoding="utf-8").split())


def test_each_measurement_is_the_source_of_a_chapter() -> None:
    chapters = " ".join(text_of(path.stem) for path in CHAPTERS.glob("*.md"))
    assert [path.name for path in SCRIPTS if f"benchmarks/measured/{path.name}" not in chapters] == []


@pytest.mark.parametrize(
    ("name", "line", "chapter", "words"),
    [
        (
            "gradient_noise",
            "unweighted -2.59 and 107, weighted 1.00 and 49.9",
            "08-gradient-noise",
            "gave a signal of -2.59 and a noise of 107 where 1 and 50 were true; the weighted one gave 1.00 and 49.9",
        ),
        ("gradient_noise", "unweighted -2.59 and", "14-numbers", "a signal of -2.59 where it is 1"),
        (
            "gradient_noise",
            "ratio of means 3233, means of ratios -1991 to 34705,",
            "08-gradient-noise",
            "the ratio of means gave 3,233, and means of ratios of 2,000 steps each gave -1,991 to 34,705",
        ),
        ("gradient_noise", ": 3131 to 14101", "08-gradient-noise", "3,131 to 14,101 where 5,150 is true"),
        ("gradient_noise", "off by at most 0.40%", "14-numbers", "to within 1 % of the truth"),
        ("narrow_sums", "to nearest 1, by chance 1.1005", "07-precision", "with stochastic rounding it averages 1.1"),
        ("narrow_sums", "sum of 8 gradients: off by 0.4% in bf16", "07-precision", "by 0.4 % after 8 terms"),
        ("narrow_sums", "sum of 512 gradients: off by 2.7% in bf16", "07-precision", "by 2.7 % after 512"),
        ("narrow_sums", "sum of 512 gradients: off by 2.7% in bf16", "14-numbers", "in bf16 is off by 2.7 %"),
        ("narrow_sums", "off by 0.86 to 1.20 of what chance gives", "14-numbers", "0.86 to 1.20 of what chance gives"),
    ],
)
def test_a_chapter_has_the_figure_that_is_printed(name: str, line: str, chapter: str, words: str) -> None:
    assert line in printed(name)
    assert words in text_of(chapter)


@pytest.mark.slow
def test_only_a_complete_state_resumes_exactly() -> None:
    found = re.findall(
        r"without (.+): first step off by ([\d.]+)%, largest of 50 steps off by ([\d.]+)%", measured("resumed_training")
    )
    largest = {name: float(most) for name, _, most in found}
    assert [name for name, most in largest.items() if most == 0] == ["nothing"]
    unseen = {name for name, first, _ in found if float(first) == 0}
    assert unseen == {"nothing", "optimizer", "schedule", "optimizer and schedule", "second moments"}
    assert largest["second moments"] > largest["schedule"] > largest["optimizer"]


@pytest.mark.slow
def test_loaders_take_changed_bits() -> None:
    output = measured("unchecked_bytes")
    assert output.count(": 60 of 60 flipped bits load without an error") == 3
    assert output.count(": True") == 5


def test_memory_of_values_is_many_times_that_of_their_text() -> None:
    factor = float(re.findall(r"([\d.]+) bytes of memory for each byte of text", printed("metadata_memory"))[0])
    assert factor == pytest.approx(22, rel=0.2)
    assert "takes 22 times its size in memory" in text_of("13-security")


@pytest.mark.slow
def test_rates_of_digests_are_printed() -> None:
    lines = printed("hash_rates").splitlines()
    assert len(lines) == 7
    assert all(re.search(r": (?:[\d.]+ GB/s|not measured, its package is not installed)$", line) for line in lines)
    assert re.match(r"SHA-256: [\d.]+ GB/s$", lines[0])


@pytest.mark.slow
def test_a_process_of_jax_ends_without_its_coordinator() -> None:
    assert re.search(r"ends with status -\d+ after \d+ s", measured("coordinator_loss"))


@pytest.mark.long
def test_feedback_is_what_compressed_training_needs() -> None:
    figures = [float(one) for one in re.findall(r"\d+\.\d\d", printed("compressed_training"))]
    assert figures == pytest.approx([0.09, 2.73, 0.92], abs=0.03)
    assert "0.09 above a loss of 2.73 with feedback, 0.92 above it without" in text_of("14-numbers")
