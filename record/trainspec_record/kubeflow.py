"""Reports progress and metrics to Kubeflow Trainer, which shows them in `status.trainerStatus` of a TrainJob.

    from trainspec_record.kubeflow import TrainJobStatus

    status = TrainJobStatus(num_steps=10_000)
    status.update(step, {"loss": loss})

Kubeflow Trainer 2.2 and later gives each container an address, a certificate and a token where its feature gate
`TrainJobStatus` is on. Without them, and on other ranks than the first, every call does nothing. Reports are sent at
most every five seconds, from a thread, the newest alone; no call raises or waits for the network. The Hugging Face
Trainer reports by itself.
"""

from __future__ import annotations

import atexit
import json
import math
import os
import ssl
import threading
import time
import urllib.error
import urllib.request
from collections.abc import Mapping
from contextlib import suppress
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, NamedTuple

from trainspec_record.guard import never_raises, tell_once
from trainspec_record.identity import rank_of

ADDRESS = "KUBEFLOW_TRAINER_SERVER_URL"
CERTIFICATE = "KUBEFLOW_TRAINER_SERVER_CA_CERT"
TOKEN = "KUBEFLOW_TRAINER_SERVER_TOKEN"  # noqa: S105 - the variable that names its file
INTERVAL_SECONDS = 5.0
"""Least time between two reports, as Kubeflow asks for."""
TIMEOUT_SECONDS = 5.0
MAX_METRICS = 256
MAX_LETTERS = 64
"""Letters of a name and of a value."""
MAX_TOKEN_BYTES = 1 << 16
_MAX_INT32 = 2**31 - 1


class Server(NamedTuple):
    """Where reports go, as the environment of the container says."""

    address: str
    certificate: Path
    token: Path
    """File whose content changes while the job runs."""


def server(environment: Mapping[str, str]) -> Server | None:
    """The server of this job; None where the environment names none, or not one that is reached by TLS."""
    address, certificate, token = (environment.get(name, "") for name in (ADDRESS, CERTIFICATE, TOKEN))
    if not (address and certificate and token):
        return None
    if not address.startswith("https://"):
        tell_once(f"{ADDRESS} is not an address of https, so no progress is reported")
        return None
    return Server(address, Path(certificate), Path(token))


class TrainJobStatus:
    """Progress of a job. The remaining time follows from the steps since the first call."""

    def __init__(self, num_steps: int | None = None, *, environment: Mapping[str, str] | None = None) -> None:
        """Begin to report.

        Args:
            num_steps: optimizer steps of the whole job; without it no share and no remaining time is reported.
            environment: variables of the process; None takes its own.
        """
        self._num_steps = num_steps if num_steps and num_steps > 0 else None
        self._begin: tuple[int, float] | None = None
        self._next: dict[str, Any] | None = None
        self._changed = threading.Condition()
        self._is_ended = False
        self._thread: threading.Thread | None = None
        self._server: Server | None = None
        self._start(os.environ if environment is None else environment)

    @never_raises(None)
    def _start(self, environment: Mapping[str, str]) -> None:
        self._server = server(environment) if rank_of(environment) == 0 else None

    @property
    def is_active(self) -> bool:
        """Whether reports are sent."""
        return self._server is not None and not self._is_ended

    @never_raises(None)
    def update(self, step: int, metrics: Mapping[str, float] | None = None) -> None:
        """An optimizer step was completed: `step` counts them, `metrics` are numbers by names that users see."""
        if not self.is_active:
            return
        now = time.monotonic()
        if self._begin is None:
            self._begin = step, now
        found = status(step, self._num_steps, _pace(self._begin, step, now), metrics or {})
        with self._changed:
            self._next = found
            if self._thread is None:
                self._thread = threading.Thread(target=self._send_all, name="trainspec-kubeflow", daemon=True)
                self._thread.start()
                atexit.register(self.end)
            self._changed.notify()

    @never_raises(None)
    def end(self) -> None:
        """Send the newest report, and no more after it."""
        with self._changed:
            self._is_ended = True
            self._changed.notify()
        if self._thread is not None:
            self._thread.join(2 * TIMEOUT_SECONDS)

    def _send_all(self) -> None:
        while True:
            with self._changed:
                while self._next is None and not self._is_ended:
                    self._changed.wait()
                report, self._next = self._next, None
            if report is None or self._server is None:
                return
            _send(self._server, report)
            with self._changed:
                self._changed.wait_for(lambda: self._is_ended, INTERVAL_SECONDS)


def _pace(begin: tuple[int, float], step: int, now: float) -> float | None:
    """Seconds of a step since the first report; None before there is one."""
    first, then = begin
    return (now - then) / (step - first) if step > first and now > then else None


def status(
    step: int, num_steps: int | None, seconds_per_step: float | None, metrics: Mapping[str, float]
) -> dict[str, Any]:
    """A report in the form of `UpdateTrainJobStatusRequest` in trainer.kubeflow.org/v1alpha1.

    >>> status(25, 100, 2.0, {"loss": 2.5})["trainerStatus"]["estimatedRemainingSeconds"]
    150
    """
    found: dict[str, Any] = {}
    if num_steps is not None:
        found["progressPercentage"] = max(0, min(100, 100 * step // num_steps))
        if seconds_per_step is not None:
            found["estimatedRemainingSeconds"] = min(math.ceil(max(0, num_steps - step) * seconds_per_step), _MAX_INT32)
    told: dict[str, str] = {}
    for name, value in metrics.items():
        text = _text(value)
        if text is None or not 0 < len(str(name)) <= MAX_LETTERS or len(told) == MAX_METRICS:
            tell_once(f"{str(name)[:MAX_LETTERS]!r} is not reported to Kubeflow, which takes {MAX_METRICS} numbers")
        else:
            told[str(name)] = text
    if told:
        found["metrics"] = [{"name": name, "value": text} for name, text in told.items()]
    found["lastUpdatedTime"] = datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
    return {"trainerStatus": found}


def _text(value: object) -> str | None:
    """A number as text; None for what is no number of Python, such as a tensor, which would wait for its device."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    text = repr(value) if isinstance(value, float) else str(value) if abs(value) < 10**60 else ""
    return text or None


class _NoRedirect(urllib.request.HTTPRedirectHandler):
    """The token is for one server alone."""

    def redirect_request(self, *_: Any, **__: Any) -> None:
        return None


def _send(where: Server, report: dict[str, Any]) -> None:
    """Send a report; a failure is logged once and training continues."""
    try:
        with where.token.open("rb") as file:
            token = file.read(MAX_TOKEN_BYTES).decode("ascii").strip()
        request = urllib.request.Request(  # noqa: S310 - https alone, see `server`
            where.address,
            data=json.dumps(report, allow_nan=False).encode(),
            headers={"Authorization": f"Bearer {token}", "Content-Type": "application/json"},
            method="POST",
        )
        context = ssl.create_default_context(cafile=str(where.certificate))
        opener = urllib.request.build_opener(
            urllib.request.ProxyHandler({}), urllib.request.HTTPSHandler(context=context), _NoRedirect
        )
        with opener.open(request, timeout=TIMEOUT_SECONDS) as answer:
            answer.read(1024)
    except urllib.error.HTTPError as error:
        with suppress(OSError):
            tell_once(f"Kubeflow refused a report of progress: {error.code} {error.read(500).decode(errors='replace')}")
    except Exception as error:  # noqa: BLE001, RUF100 - training continues, whatever it is
        tell_once(f"progress was not reported to Kubeflow: {type(error).__name__}: {error}")
