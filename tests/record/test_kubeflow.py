"""Reports of progress to Kubeflow Trainer: what is sent, to whom, and that training never notices."""

from __future__ import annotations

import json
import os
import ssl
import threading
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from ipaddress import IPv4Address
from pathlib import Path
from typing import Any

import pytest
import yaml

from trainspec_record import kubeflow
from trainspec_record.kubeflow import TrainJobStatus, status

PATIENCE_SECONDS = 600
CRD = Path(os.environ.get("TRAINSPEC_TRAINJOB_CRD", ""))
"""`manifests/base/crds/trainer.kubeflow.org_trainjobs.yaml` of kubeflow/trainer v2.3.0."""


class StatusServer(ThreadingHTTPServer):
    """Acts as the server of `pkg/statusserver` in kubeflow/trainer: keeps requests and answers with `code`."""

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), Handler)
        self.code = 200
        self.requests: list[tuple[str, str, Any]] = []
        self.arrived = threading.Condition()

    def wait(self, count: int) -> None:
        with self.arrived:
            assert self.arrived.wait_for(lambda: len(self.requests) >= count, PATIENCE_SECONDS)


class Handler(BaseHTTPRequestHandler):
    server: StatusServer

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers["Content-Length"]))
        with self.server.arrived:
            self.server.requests.append((self.path, self.headers["Authorization"], json.loads(body)))
            self.server.arrived.notify_all()
        self.send_response(self.server.code)
        if self.server.code == 302:
            self.send_header("Location", f"https://127.0.0.1:{self.server.server_port}/elsewhere")
        self.send_header("Content-Length", "2")
        self.end_headers()
        self.wfile.write(b"{}")

    def log_message(self, *_: Any) -> None:
        pass


def certificate(folder: Path) -> tuple[Path, Path]:
    x509 = pytest.importorskip("cryptography.x509")
    from cryptography.hazmat.primitives import hashes, serialization
    from cryptography.hazmat.primitives.asymmetric import ec

    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(x509.oid.NameOID.COMMON_NAME, "status")])
    now = datetime.now(UTC)
    made = (
        x509.CertificateBuilder(name, name, key.public_key(), x509.random_serial_number())
        .not_valid_before(now - timedelta(days=1))
        .not_valid_after(now + timedelta(days=1))
        .add_extension(x509.SubjectAlternativeName([x509.IPAddress(IPv4Address("127.0.0.1"))]), critical=False)
        .sign(key, hashes.SHA256())
    )
    pem, secret = folder / "ca.crt", folder / "key.pem"
    pem.write_bytes(made.public_bytes(serialization.Encoding.PEM))
    form = serialization.PrivateFormat.PKCS8
    secret.write_bytes(key.private_bytes(serialization.Encoding.PEM, form, serialization.NoEncryption()))
    return pem, secret


@pytest.fixture
def server(tmp_path: Path) -> Iterator[StatusServer]:
    pem, secret = certificate(tmp_path)
    made = StatusServer()
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(pem, secret)
    made.socket = context.wrap_socket(made.socket, server_side=True)
    threading.Thread(target=made.serve_forever, daemon=True).start()
    yield made
    made.shutdown()
    made.server_close()


@pytest.fixture
def environment(server: StatusServer, tmp_path: Path) -> dict[str, str]:
    (tmp_path / "token").write_text("first\n", encoding="ascii")
    return {
        kubeflow.ADDRESS: f"https://127.0.0.1:{server.server_port}/status",
        kubeflow.CERTIFICATE: str(tmp_path / "ca.crt"),
        kubeflow.TOKEN: str(tmp_path / "token"),
    }


def test_progress_arrives_with_the_present_token(
    server: StatusServer, environment: dict[str, str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(kubeflow, "INTERVAL_SECONDS", 0.0)
    reported = TrainJobStatus(num_steps=200, environment=environment)
    reported.update(10, {"loss": 2.5, "tokens": 4096})
    server.wait(1)
    (tmp_path / "token").write_text("second", encoding="ascii")
    reported.update(20, {"loss": float("nan")})
    reported.end()
    (path, first, begin), (_, second, later) = server.requests
    assert (path, first, second) == ("/status", "Bearer first", "Bearer second")
    begin, later = begin["trainerStatus"], later["trainerStatus"]
    assert begin["progressPercentage"] == 5
    assert "estimatedRemainingSeconds" not in begin, "no pace is known after one report"
    assert begin["metrics"] == [{"name": "loss", "value": "2.5"}, {"name": "tokens", "value": "4096"}]
    assert later["progressPercentage"] == 10
    assert later["estimatedRemainingSeconds"] >= 0
    assert later["metrics"] == [{"name": "loss", "value": "nan"}]
    assert datetime.fromisoformat(later["lastUpdatedTime"]).tzinfo is not None


def test_only_the_newest_report_waits(server: StatusServer, environment: dict[str, str]) -> None:
    reported = TrainJobStatus(num_steps=100, environment=environment)
    reported.update(1)
    server.wait(1)
    for step in range(2, 100):
        reported.update(step)
    reported.end()
    reported.update(100)
    told = [request[2]["trainerStatus"]["progressPercentage"] for request in server.requests]
    assert told == [1, 99]


@pytest.mark.parametrize("code", [302, 403, 422, 500])
def test_a_refusal_is_logged_and_not_raised(
    code: int, server: StatusServer, environment: dict[str, str], caplog: pytest.LogCaptureFixture
) -> None:
    server.code = code
    reported = TrainJobStatus(environment=environment)
    reported.update(code)
    reported.end()
    assert len(server.requests) == 1, "no redirection is followed with the token"
    assert f"Kubeflow refused a report of progress: {code}" in caplog.text


def test_an_unknown_certificate_gets_no_token(
    server: StatusServer, environment: dict[str, str], tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    other = tmp_path / "other"
    other.mkdir()
    reported = TrainJobStatus(environment=environment | {kubeflow.CERTIFICATE: str(certificate(other)[0])})
    reported.update(1)
    reported.end()
    assert not server.requests
    assert "progress was not reported to Kubeflow" in caplog.text


@pytest.mark.parametrize(
    "changes",
    [
        {kubeflow.ADDRESS: ""},
        {kubeflow.TOKEN: ""},
        {kubeflow.ADDRESS: "http://127.0.0.1/status"},
        {kubeflow.ADDRESS: "file:///etc/passwd"},
        {"RANK": "1", "WORLD_SIZE": "2"},
    ],
)
def test_nothing_is_sent_elsewhere(changes: dict[str, str]) -> None:
    given = {kubeflow.ADDRESS: "https://127.0.0.1:1/s", kubeflow.CERTIFICATE: "c", kubeflow.TOKEN: "t"}
    assert TrainJobStatus(environment=given).is_active
    reported = TrainJobStatus(environment=given | changes)
    assert not reported.is_active
    reported.update(1, {"loss": 1.0})
    assert reported._thread is None


def test_what_is_no_number_is_left_out() -> None:
    values: Any = {"a": object(), "b": True, "": 1.0, "x" * 65: 1.0, "c": 10**80, "ok": 1}
    assert status(1, None, None, values)["trainerStatus"]["metrics"] == [{"name": "ok", "value": "1"}]
    many = status(1, None, None, {str(number): number for number in range(1000)})
    assert len(many["trainerStatus"]["metrics"]) == 256


@pytest.mark.parametrize(
    ("step", "num_steps", "pace"), [(0, None, None), (0, 10, 1.5), (11, 10, 0.1), (1, 10**12, 1e9), (-1, 3, 1.0)]
)
def test_the_published_definition_accepts_every_report(step: int, num_steps: int | None, pace: float | None) -> None:
    if not CRD.is_file():
        pytest.skip("no published definition of TrainJob; TRAINSPEC_TRAINJOB_CRD names its file")
    validator = pytest.importorskip("jsonschema").Draft202012Validator
    (version,) = yaml.safe_load(CRD.read_text(encoding="utf-8"))["spec"]["versions"]
    schema = version["schema"]["openAPIV3Schema"]["properties"]["status"]["properties"]["trainerStatus"]
    found = status(step, num_steps, pace, {"loss": 1e-300, "x" * 64: -1, "tokens": 10**59})["trainerStatus"]
    assert not list(validator(schema | {"additionalProperties": False}).iter_errors(found))
    assert "lastUpdatedTime" in found
