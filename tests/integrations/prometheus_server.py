"""A Prometheus server of the machine on a loopback port, with the shipped rules, whose durations are divided."""

from __future__ import annotations

import json
import re
import shutil
import socket
import subprocess
import time
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.integrations.promql_words import FOLDER

DIVISOR = 60
"""An hour of the rules is a minute of a test."""
SCRAPE_SECONDS = 0.5
_SECONDS = {"s": 1, "m": 60, "h": 3600}
_IN_EXPRESSION = re.compile(r"(?<=\[)\d+[smh](?=\])|(?<=offset )\d+[smh]")


def shorter(duration: str) -> str:
    """A duration of a rule, divided.

    >>> shorter("90s"), shorter("1h")
    ('1500ms', '60000ms')
    """
    return f"{int(duration[:-1]) * _SECONDS[duration[-1]] * 1000 // DIVISOR}ms"


def shorter_rules(path: Path) -> str:
    """A file of rules with every duration divided."""
    rules = yaml.safe_load(path.read_text(encoding="utf-8"))
    for group in rules["groups"]:
        group["interval"] = shorter(group["interval"])
        for rule in group["rules"]:
            rule["expr"] = _IN_EXPRESSION.sub(lambda found: shorter(found[0]), rule["expr"])
            if "for" in rule:
                rule["for"] = shorter(rule["for"])
    return yaml.safe_dump(rules)


class Prometheus:
    """The HTTP API of a server."""

    def __init__(self, port: int) -> None:
        self.address = f"http://127.0.0.1:{port}"

    def get(self, path: str, **query: str) -> bytes:
        """The answer to a request."""
        url = f"{self.address}{path}?{urllib.parse.urlencode(query)}"
        with urllib.request.urlopen(url, timeout=600) as answer:
            return bytes(answer.read())

    def api(self, path: str, **query: str) -> Any:
        """The data of an answer of the API."""
        found = json.loads(self.get(f"/api/v1/{path}", **query))
        assert found["status"] == "success", found
        return found["data"]

    def values(self, expression: str) -> dict[frozenset[tuple[str, str]], float]:
        """The present values of an expression, by their labels."""
        found = self.api("query", query=expression)["result"]
        return {frozenset(each["metric"].items()): float(each["value"][1]) for each in found}

    def firing(self, severity: str) -> set[tuple[str, str]]:
        """Alerts that fire, with the run of each."""
        told = [each for each in self.api("alerts")["alerts"] if each["state"] == "firing"]
        labels = [each["labels"] for each in told if each["labels"]["severity"] == severity]
        return {(each["alertname"], each.get("train_run_id", "")) for each in labels}


def until(holds: Callable[[], bool], seconds: float = 600) -> None:
    """Wait until something holds."""
    end = time.monotonic() + seconds
    while not holds():
        assert time.monotonic() < end, holds
        time.sleep(SCRAPE_SECONDS)


@contextmanager
def prometheus(folder: Path, targets: Mapping[str, int]) -> Iterator[Prometheus]:
    """A server that scrapes loopback ports by the name of each job; the test is skipped where none is installed."""
    program = shutil.which("prometheus")
    if program is None:
        pytest.skip("prometheus is not installed; it is a package of Debian")
    for path in FOLDER.glob("*-rules.yaml"):
        (folder / path.name).write_text(shorter_rules(path), encoding="utf-8")
    interval = f"{int(SCRAPE_SECONDS * 1000)}ms"
    jobs = [
        {"job_name": name, "static_configs": [{"targets": [f"127.0.0.1:{port}"]}]} for name, port in targets.items()
    ]
    settings = {
        "global": {"scrape_interval": interval, "scrape_timeout": interval, "evaluation_interval": interval},
        "rule_files": ["*-rules.yaml"],
        "scrape_configs": jobs,
    }
    (folder / "prometheus.yaml").write_text(yaml.safe_dump(settings), encoding="utf-8")
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    words = [program, "--config.file=prometheus.yaml", "--storage.tsdb.path=data", "--query.lookback-delta=5s"]
    with (folder / "prometheus.log").open("wb") as log:
        server = subprocess.Popen([*words, f"--web.listen-address=127.0.0.1:{port}"], cwd=folder, stderr=log)
    try:
        found = Prometheus(port)
        until(lambda: server.poll() is None and is_ready(found))
        yield found
    finally:
        server.terminate()
        server.wait()


def is_ready(server: Prometheus) -> bool:
    """Whether a server answers."""
    try:
        server.get("/-/ready")
    except OSError:
        return False
    return True
