"""Workers on hosts: who reaches whom, where a worker goes, and when one that is cut off ends."""

from __future__ import annotations

import socket
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

import pytest
from trainspec_conformance.testbed.muster import Muster, Reached, largest_group
from trainspec_conformance.testbed.places import Place, Places
from trainspec_conformance.testbed.reach import Doorbell, reached
from trainspec_reference.common.channel import LOOPBACK, free_address
from trainspec_reference.common.controller import MemoryKills
from trainspec_reference.common.crew import Clock, Worker

SECONDS = 600


def full(*groups: str) -> dict[str, set[str]]:
    return {host: set(group) for group in groups for host in group}


@pytest.mark.parametrize(
    ("reach", "group"),
    [
        (full("abcd"), "abcd"),
        (full("abc", "d"), "abc"),
        (full("ab", "cd"), "ab"),
        (full("a", "bcd"), "bcd"),
        ({"a": {"a", "b"}, "b": {"b", "c"}, "c": {"b", "c"}}, "bc"),
        ({"a": set(), "b": {"b"}}, "a"),
    ],
    ids=["whole", "one-out", "halves", "first-out", "one-way", "no-answer"],
)
def test_the_largest_group_that_reaches_each_other(reach: Mapping[str, set[str]], group: str) -> None:
    assert largest_group(reach) == set(group)


def worker(number: int, host: str) -> Worker:
    process = subprocess.Popen([sys.executable, "-c", ""])
    process.wait()
    return Worker(number, process, host, 0.0, notes={"address": f"{host}:{number}"})


def test_a_worker_that_its_peers_do_not_reach_is_outside_whatever_it_says() -> None:
    members = [worker(number, host) for number, host in enumerate("aabc")]
    muster = Muster(members, Clock())
    everyone = tuple(member.notes["address"] for member in members)
    assert not muster.is_over
    for member, seen in zip(members, (everyone[:3], everyone[:3], everyone[:3], everyone), strict=True):
        muster.hear(member, Reached(addresses=seen, free=f"{member.host}:1"))
    assert muster.is_over
    assert [member.number for member in muster.outside()] == [3]
    assert muster.address == "a:1"


def test_workers_leave_hosts_that_are_cut_off_for_the_emptiest_one() -> None:
    places = Places({host: Place(LOOPBACK, "lo", ("env",)) for host in "abc"})
    assert places.for_worker("c", []) == "c"
    places.cut_off("c")
    assert places.for_worker("c", ["a", "a", "b"]) == "b"
    assert places.for_worker("a", ["a"]) == "a"
    for host in "ab":
        places.cut_off(host)
    assert places.for_worker("c", []) == "c", "with nothing left each may be tried again"
    assert places.for_worker("a", []) == "a"


def test_hosts_that_are_names_only_are_never_cut_off() -> None:
    places = Places({})
    places.cut_off("a")
    assert places.for_worker("a", []) == "a"
    assert places.of("a") is None


def test_peers_that_take_a_connection_are_reached_and_others_are_not() -> None:
    bells = [Doorbell(LOOPBACK).address for _ in range(2)]
    nobody = free_address()
    assert set(reached([*bells, nobody], SECONDS)) == set(bells)


WAIT = """
import sys, time
from trainspec_reference.common import messages as say
from trainspec_reference.common.channel import Link
link = Link(sys.argv[1], say.Hello(token="t", worker=0, can_rejoin=True), 4, float(sys.argv[2]))
link.listen(lambda message: None)
time.sleep(600)
"""


def test_a_worker_that_hears_nothing_of_its_controller_ends() -> None:
    listener = socket.create_server((LOOPBACK, 0))
    address = f"{LOOPBACK}:{listener.getsockname()[1]}"
    process = subprocess.Popen([sys.executable, "-c", WAIT, address, "0.5"])
    try:
        assert process.wait(SECONDS) == 4
    finally:
        process.kill()
        process.wait()
        listener.close()


def test_ends_for_want_of_memory_are_counted_once(tmp_path: Path) -> None:
    counters = tmp_path / "vmstat"
    counters.write_text("nr_free_pages 17\noom_kill 3\n")
    kills = MemoryKills(counters)
    assert not kills.there_was_one()
    counters.write_text("nr_free_pages 17\noom_kill 4\n")
    assert kills.there_was_one()
    assert not kills.there_was_one()
    assert not MemoryKills(tmp_path / "absent").there_was_one()
