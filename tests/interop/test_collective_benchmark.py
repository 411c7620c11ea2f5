"""nccl-tests and rccl-tests: operation, ranks, hosts, and rows whose figures can be compared."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from network_files import assert_recognised, assert_sound, damaged, fixture, sample, survives, told, value

from tests.examples import examples
from trainspec_validate.interop.fragment import ForeignFormatError, ForeignText, Fragment
from trainspec_validate.interop.readers.collective_benchmark import NAME, read


def changed(*pairs: tuple[str, str]) -> Fragment:
    text = fixture("all_reduce.out").text
    for old, new in pairs:
        assert old in text
        text = text.replace(old, new)
    fragment = read(ForeignText("changed.out", text))
    assert_sound(fragment, NAME)
    return fragment


def test_a_table() -> None:
    text = fixture("all_reduce.out")
    assert_recognised(text, NAME)
    fragment = read(text)
    assert_sound(fragment, NAME)
    small, large = value(fragment, "measurements")
    assert large == {
        "operation": "all-reduce",
        "num_ranks": 16,
        "num_domains": 2,
        "message_bytes": 2**30,
        "algorithm_bandwidth_bytes_per_second": 200e9,
        "bus_bandwidth_bytes_per_second": 375e9,
        "time_seconds": pytest.approx(2**30 / 200e9, rel=1e-3),
        "source": {"title": "Output of a collective benchmark", "reference": "all_reduce.out:27"},
    }
    assert (small["message_bytes"], small["time_seconds"]) == (8, pytest.approx(30.12e-6))
    assert "bus_bandwidth_bytes_per_second" not in small
    assert value(fragment, "software", "collective_library") == {"name": "nccl", "version": "2.27.3"}
    assert "all-reduce over 16 ranks on 2 hosts, NVIDIA H100 80GB HBM3" in told(fragment)


def test_the_operation_follows_from_the_ratio() -> None:
    fragment = changed(("# Collective test starting: all_reduce_perf\n", ""))
    assert value(fragment, "measurements", 1, "operation") == "all-reduce"
    assert "all-reduce follows from its columns and bandwidths" in told(fragment)
    fragment = changed(("# Collective test starting: all_reduce_perf\n", ""), ("375.00", "187.50"))
    assert value(fragment, "measurements", 1, "operation") == "reduce-scatter"


def test_what_cannot_be_told_apart_is_left_out() -> None:
    fragment = changed(("# Collective test starting: all_reduce_perf\n", ""), ("  sum ", " none "))
    assert "measurements" not in fragment.facts
    assert "2 rows are left out: no line names the program" in told(fragment)


def test_a_program_that_no_key_takes() -> None:
    assert "hypercube_perf is no collective of a profile" in told(changed(("all_reduce_perf", "hypercube_perf")))


def test_a_ratio_of_other_ranks_is_told() -> None:
    fragment = changed(("375.00", "390.00"))
    assert "busbw over algbw is 1.95, but all-reduce over 16 ranks has the factor 1.875" in told(fragment)


def test_a_list_of_ranks_with_a_gap() -> None:
    fragment = changed(("#  Rank  3 ", "#  Ronk  3 "))
    assert "measurements" not in fragment.facts
    assert "15 ranks up to 15" in told(fragment)


def test_wrong_values_are_told() -> None:
    fragment = changed(("375.00      0", "375.00      7"))
    assert [remark.line for remark in fragment.remarks if "left out: 7 wrong values" in remark.message] == [27]
    assert [one["source"]["reference"] for one in fragment.facts["measurements"]] == ["changed.out:26"]


def test_a_table_of_wrong_values_alone_is_refused() -> None:
    with pytest.raises(ForeignFormatError, match="every row has wrong values, the first 4 at 8 bytes"):
        changed(("375.00      0", "375.00      7"), ("0.00    0.00      0    29", "0.00    0.00      4    29"))


def test_two_programs_in_one_file() -> None:
    text = fixture("all_reduce.out").text
    both = ForeignText(
        "both.out", text + text.replace("all_reduce_perf", "all_gather_perf").replace("375.00", "187.50")
    )
    fragment = read(both)
    assert_sound(fragment, NAME)
    kinds = [row["operation"] for row in value(fragment, "measurements")]
    assert kinds == ["all-reduce", "all-reduce", "all-gather", "all-gather"]


def test_a_table_with_the_lines_of_the_library() -> None:
    text = ForeignText("both.out", fixture("nccl.log").text + fixture("all_reduce.out").text)
    assert_recognised(text, NAME)
    fragment = read(text)
    assert_sound(fragment, NAME)
    assert value(fragment, "observations", 0, "transport") == "infiniband"
    assert len(value(fragment, "measurements")) == 2


INFO = "node-1:64904:64904 [1] NCCL INFO AllReduce: opCount 0 count 2097152 datatype 7"


def test_rows_with_lines_of_the_library_in_their_middle() -> None:
    """With NCCL_DEBUG=INFO the library prints between the parts of a row, which are flushed one by one."""
    row = "  1073741824     268435456     float     sum      -1" + "   5368.7  200.00  375.00      {}" * 2
    row = row.format(0, 3)
    first, second, third = row[:53], row[53:83], row[83:]
    cut = f"{first}{INFO}\n{INFO}\n{second}{INFO}\n{INFO}\n{third}"
    whole, apart = (value(one, "measurements", 1) for one in (read(fixture("all_reduce.out")), changed((row, cut))))
    assert {**whole, "source": None} == {**apart, "source": None}
    assert apart["source"]["reference"] == "changed.out:27"
    unended = changed((row, f"{first}{INFO}\n{second}"))
    assert len(value(unended, "measurements")) == 1
    assert "left out: line 27: cut by other lines" in told(unended)


def test_a_table_whose_rows_are_all_odd() -> None:
    text = fixture("all_reduce.out").text
    odd = "".join(line.replace(" -1 ", " -1 odd ") for line in text.splitlines(keepends=True))
    with pytest.raises(ForeignFormatError, match="of which no row can be read: line 26: 14 values for 13 columns"):
        read(ForeignText("odd.out", odd))


def test_a_run_that_ended_before_it_measured() -> None:
    head = "#       size         count      type   redop    root     time   algbw   busbw #wrong\n"
    with pytest.raises(ForeignFormatError, match="a table without a row"):
        read(ForeignText("head", head))


@examples(80)
@given(damaged("all_reduce.out") | st.text(max_size=200))
def test_any_text_is_read_or_refused(text: str) -> None:
    survives(read, text)


def test_the_published_table() -> None:
    fragment = read(sample("nccl-tests-output-gcp-a3ultra-8x8-h200.txt"))
    (row,) = value(fragment, "measurements")
    assert (row["operation"], row["num_ranks"], row["num_domains"]) == ("all-reduce", 64, 8)
    assert (row["message_bytes"], row["time_seconds"]) == (1731821448, 0.014196)
    assert row["bus_bandwidth_bytes_per_second"] == 240.18e9
