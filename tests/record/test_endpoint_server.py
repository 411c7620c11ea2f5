"""The server of the endpoint: requests, limits, addresses, and the launcher and the agent that start it."""

from __future__ import annotations

import http.client
import re
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from trainspec_record import command
from trainspec_record.endpoint import server as server_module
from trainspec_record.endpoint.serve import address
from trainspec_record.endpoint.server import MAX_CONNECTIONS, MAX_REQUEST_BYTES, Server, judge

from .launch_jobs import finish, start
from .recorded import SOURCE

PAGE = b"# TYPE train_rank_step gauge\ntrain_rank_step{} 5\n"
LOOP = """
import time, trainspec_record
with trainspec_record.run() as run:
    for number in range(10**6):
        with run.step(number):
            time.sleep(0.01)
"""


class Served:
    """A server with a page of its own."""

    def __init__(self, page: Callable[[], bytes]) -> None:
        self.num_pages = 0
        listener = socket.create_server(("127.0.0.1", 0))
        self.port = listener.getsockname()[1]

        def counted() -> bytes:
            self.num_pages += 1
            return page()

        self.server = Server(listener, counted, lambda: None)
        self.server.start()

    def send(self, request: bytes) -> bytes:
        """Everything that comes for a request, until the server closes the connection."""
        with socket.create_connection(("127.0.0.1", self.port), timeout=600) as connection:
            connection.sendall(request)
            return b"".join(iter(lambda: connection.recv(65_536), b""))


@pytest.fixture
def served() -> Iterator[Served]:
    """A server that ends with the test."""
    found = Served(lambda: PAGE)
    yield found
    found.server.stop()


# --- requests -----------------------------------------------------------------------------------------------


def test_the_page_is_served(served: Served) -> None:
    for method in ("GET", "HEAD"):
        connection = http.client.HTTPConnection("127.0.0.1", served.port)
        connection.request(method, "/metrics?name[]=up", headers={"Accept-Encoding": "gzip"})
        answer = connection.getresponse()
        assert (answer.status, answer.version) == (200, 11)
        assert answer.getheader("Content-Type") == "text/plain; version=0.0.4; charset=utf-8"
        assert answer.getheader("Content-Length") == str(len(PAGE))
        assert answer.read() == (PAGE if method == "GET" else b"")


@pytest.mark.parametrize(
    ("line", "status"),
    [
        ("GET / HTTP/1.1", 404),
        ("GET /metrics/ HTTP/1.1", 404),
        ("GET /metrics/../../etc/passwd HTTP/1.1", 404),
        ("GET /etc/passwd HTTP/1.1", 404),
        ("HEAD /job.0.jsonl HTTP/1.1", 404),
        ("GET //metrics HTTP/1.1", 404),
        ("GET http://node-1:9464/metrics HTTP/1.1", 200),
        ("GET http://[/metrics HTTP/1.1", 400),
        ("POST /metrics HTTP/1.1", 405),
        ("OPTIONS * HTTP/1.1", 405),
        ("get /metrics HTTP/1.1", 405),
        ("GET /metrics HTTP/2.0", 505),
        ("GET /metrics", 400),
        ("GET /a b HTTP/1.1", 400),
        ("\x16\x03\x01", 400),
    ],
)
def test_everything_else_is_refused(served: Served, line: str, status: int) -> None:
    answer = served.send(line.encode("latin-1") + b"\r\n\r\n")
    assert answer.startswith(b"HTTP/1.1 %d " % status)
    assert (b"\r\nAllow: GET, HEAD\r\n" in answer) == (status == 405)
    assert (b"train_rank_step" in answer) == (status == 200)


@given(st.binary(max_size=60))
@example(b"GET /metrics HTTP/1.1\r\nHost: x")
@example(b"GET /metrics\0 HTTP/1.1")
def test_only_a_request_for_the_page_is_answered_with_it(request: bytes) -> None:
    status, is_head = judge(request)
    assert status in server_module._REASONS
    if status == 200:
        method = b"HEAD" if is_head else b"GET"
        assert re.match(method + rb" [^ ]*/metrics([?#][^ ]*)? HTTP/1\.[0-9](\r\n|$)", request)


def test_a_request_is_bounded(served: Served) -> None:
    field = b"GET /metrics HTTP/1.1\r\nX: "
    assert served.send(field + b"x" * (MAX_REQUEST_BYTES - 100) + b"\r\n\r\n").startswith(b"HTTP/1.1 200 ")
    assert served.send(field + b"x" * (MAX_REQUEST_BYTES + 100)).startswith(b"HTTP/1.1 431 ")


def test_connections_and_their_time_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(server_module, "MAX_SECONDS", 3.0)
    served = Served(lambda: PAGE)
    idle = [socket.create_connection(("127.0.0.1", served.port), timeout=600) for _ in range(MAX_CONNECTIONS)]
    for connection in idle:
        connection.sendall(b"GET /metr")
    refused = b"?"
    while refused:  # the server may not have accepted all of them yet
        with socket.create_connection(("127.0.0.1", served.port), timeout=600) as connection:
            try:
                connection.sendall(b"GET /metrics HTTP/1.1\r\n\r\n")
                refused = connection.recv(1)
            except ConnectionError:
                refused = b""
    for connection in idle:
        try:
            assert connection.recv(1) == b""
        except ConnectionError:
            continue
        finally:
            connection.close()
    assert served.send(b"GET /metrics HTTP/1.1\r\n\r\n").endswith(PAGE)
    served.server.stop()


def test_a_reader_that_takes_nothing_does_not_hold_up_others(monkeypatch: pytest.MonkeyPatch) -> None:
    served = Served(lambda: PAGE * 400_000)
    slow = socket.create_connection(("127.0.0.1", served.port), timeout=600)
    slow.sendall(b"GET /metrics HTTP/1.1\r\n\r\n")
    assert served.send(b"HEAD /metrics HTTP/1.1\r\n\r\n").startswith(b"HTTP/1.1 200 ")
    slow.close()
    assert len(served.send(b"GET /metrics HTTP/1.1\r\n\r\n")) > len(PAGE) * 400_000
    served.server.stop()


def test_scrapes_within_a_second_cost_one_look(served: Served, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(server_module, "PAGE_SECONDS", 600.0)
    for _ in range(5):
        assert served.send(b"GET /metrics HTTP/1.1\r\n\r\n").endswith(PAGE)
    assert served.num_pages == 1


def test_a_mistake_of_ours_is_an_answer_too() -> None:
    served = Served(lambda: PAGE[:0] + b"x"[2])  # type: ignore[operator]
    for _ in range(2):
        assert served.send(b"GET /metrics HTTP/1.1\r\n\r\n").startswith(b"HTTP/1.1 500 ")
    served.server.stop()


def test_after_the_end_no_one_listens(served: Served) -> None:
    served.server.stop()
    with pytest.raises(ConnectionRefusedError):
        socket.create_connection(("127.0.0.1", served.port))


# --- addresses ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "host", "port"),
    [
        ("9464", "127.0.0.1", 9464),
        ("127.0.0.1:0", "127.0.0.1", 0),
        ("localhost:9464", "localhost", 9464),
        ("0.0.0.0:9464", "0.0.0.0", 9464),
        ("[::]:65535", "::", 65535),
    ],
)
def test_an_address(text: str, host: str, port: int) -> None:
    assert address(text) == (host, port)


@pytest.mark.parametrize(
    "text", ["", ":", "x", "x:", "1:65536", "::1:9464", "[::1]", "[x]:1", ":9464", "*:9464", "a:٣"]
)
def test_what_is_no_address_is_refused_before_anything_starts(text: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert command.main(["launch", "--metrics-address", text, "--", "no-such-command"]) == 2
    assert "no-such-command" not in capsys.readouterr().err


def test_an_address_without_an_interface_names_both_that_can_be_meant(capsys: pytest.CaptureFixture[str]) -> None:
    assert command.main(["agent", "--run", "r", "--metrics-address", ":9464"]) == 2
    told = capsys.readouterr().err
    assert "127.0.0.1:9464 for this host alone" in told
    assert "0.0.0.0:9464 for all" in told


# --- launcher and agent -------------------------------------------------------------------------------------


def scraped(process: subprocess.Popen[str], name: str) -> tuple[str, int]:
    """The page of a process that says where it serves, as soon as it has a metric; and the port."""
    assert process.stderr is not None
    line = process.stderr.readline()
    match = re.fullmatch(r"trainspec-record: metrics for Prometheus are at http://127\.0\.0\.1:(\d+)/metrics\n", line)
    assert match, line + process.stderr.read()
    end, page = time.monotonic() + 600, ""
    while name not in page:
        assert time.monotonic() < end
        connection = http.client.HTTPConnection("127.0.0.1", int(match[1]))
        connection.request("GET", "/metrics")
        page = connection.getresponse().read().decode()
        time.sleep(0.05)
    return page, int(match[1])


def test_the_launcher_serves_as_long_as_its_command_runs(tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text(LOOP)
    process = start("--run", "r-1", "--metrics-address", "127.0.0.1:0", "--", sys.executable, "train.py", cwd=tmp_path)
    page, port = scraped(process, "train_step_count_total")
    assert 'train_rank_step{host_id="node-1",train_rank_id="0",train_run_attempt="0",train_run_id="r-1"}' in page
    process.terminate()
    finish(process)
    assert process.returncode == -15  # the signal is passed on, and the launcher ends as its command
    with pytest.raises(ConnectionRefusedError):
        socket.create_connection(("127.0.0.1", port))


def test_a_taken_port_is_one_warning(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        words = ("--metrics-address", f"{port}", "--", sys.executable, "-c", "print('trained')")
        code, out, told = finish(start("--run", "r-1", *words, cwd=tmp_path))
    assert (code, out) == (0, "trained\n")
    assert re.fullmatch(
        rf"trainspec-record: nothing is served at 127\.0\.0\.1:{port}: address already in use.*; "
        r"the run continues without\n",
        told,
    )


def test_an_unknown_host_is_one_warning(tmp_path: Path) -> None:
    words = ("--metrics-address", "host.invalid:9464", "--", sys.executable, "-c", "print('trained')")
    code, out, told = finish(start("--run", "r-1", *words, cwd=tmp_path))
    assert (code, out) == (0, "trained\n")
    assert re.fullmatch(r"trainspec-record: nothing is served at host\.invalid:9464: .*\n", told)


def test_one_process_of_a_node_serves(tmp_path: Path) -> None:
    words = ("--run", "r-1", "--metrics-address", "0", "--", sys.executable, "-c", "")
    code, _, told = finish(start(*words, cwd=tmp_path, RANK="1", WORLD_SIZE="2", LOCAL_RANK="1"))
    assert (code, told) == (0, "")


def test_the_agent_serves_the_ranks_of_its_node(tmp_path: Path) -> None:
    environment = {"PATH": "", "PYTHONPATH": SOURCE, "TRAINSPEC_RUN": str(tmp_path / "r-1"), "TRAINSPEC_HOST": "node-1"}
    agent = subprocess.Popen(
        [sys.executable, "-m", "trainspec_record", "agent", "--metrics-address", "127.0.0.1:0"],
        env=environment,
        stderr=subprocess.PIPE,
        text=True,
    )
    environment["TRAINSPEC_NODE_SAMPLER"] = "none"
    train = subprocess.Popen([sys.executable, "-c", LOOP], env=environment)
    try:
        page, _ = scraped(agent, "system_memory_utilization_ratio")
        assert "train_rank_step{" in page
    finally:
        for each in (train, agent):
            each.terminate()
            each.communicate()


def test_nothing_of_it_is_loaded_where_nothing_is_served(tmp_path: Path) -> None:
    script = (
        "import os, sys; from trainspec_record import command; "
        f"status = command.main(['launch', '--run', 'r', '--', {sys.executable!r}, '-c', '']); "
        "print(status, [name for name in sys.modules if name.startswith(('asyncio', 'trainspec_record.endpoint'))])"
    )
    done = subprocess.run(
        [sys.executable, "-c", script],
        cwd=tmp_path,
        env={"PYTHONPATH": SOURCE},
        capture_output=True,
        text=True,
        check=True,
    )
    assert done.stdout == "0 []\n"
