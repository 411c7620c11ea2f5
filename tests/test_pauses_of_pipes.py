"""Standard streams that do not wait: a pause of the writer is no end, and a slow reader gets all."""

from __future__ import annotations

import errno
import os
import subprocess
import sys
import time
from pathlib import Path

import pytest

from trainspec_validate.system.boundary import open_regular

VALIDATE = [sys.executable, "-m", "trainspec_validate"]
HEAD = "apiVersion: trainspec/v1\nkind: ClusterProfile\nmetadata: {name: one}\n"


@pytest.mark.parametrize("first", ["", HEAD], ids=["nothing-yet", "a-part"])
def test_a_pause_of_the_writer_is_no_end(first: str) -> None:
    reader, writer = os.pipe()
    os.set_blocking(reader, False)
    with subprocess.Popen(
        [*VALIDATE, "--format", "concise", "-"], stdin=reader, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as process:
        os.close(reader)
        os.write(writer, first.encode())
        time.sleep(1.5)
        os.write(writer, (HEAD.removeprefix(first) + "no_such_key: 1\n").encode())
        os.close(writer)
        output, errors = process.communicate(timeout=120)
    assert process.returncode in {1, 2}, errors
    assert "no_such_key" in output + errors


def test_a_slow_reader_gets_the_whole_text() -> None:
    command = [sys.executable, "-c", "from trainspec_validate.cli.toolbox import command; command()"]
    whole = subprocess.run([*command, "schema", "TrainingPlan"], capture_output=True, check=True, timeout=120).stdout
    assert len(whole) > 65_536
    reader, writer = os.pipe()
    os.set_blocking(writer, False)
    with subprocess.Popen([*command, "schema", "TrainingPlan"], stdout=writer) as process:
        os.close(writer)
        time.sleep(1.5)
        with os.fdopen(reader, "rb") as slow:
            assert slow.read() == whole
        assert process.wait(timeout=120) == 0


@pytest.mark.parametrize("value", ["nan", "inf", "1e20"])
def test_an_interval_that_is_no_time_is_wrong_use(value: str) -> None:
    done = subprocess.run(
        [*VALIDATE, "--follow", "--interval", value, "x.jsonl"],
        capture_output=True,
        text=True,
        check=False,
        timeout=120,
    )
    assert done.returncode == 2
    assert "--interval" in done.stderr


def test_a_file_of_the_kernel_without_anything_to_read_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def nothing_yet(*_: int) -> bytes:
        raise BlockingIOError(errno.EAGAIN, "Resource temporarily unavailable")

    place = tmp_path / "cluster.yaml"
    place.write_text(HEAD, encoding="utf-8")
    monkeypatch.setattr(os, "pread", nothing_yet)
    with pytest.raises(BlockingIOError):
        open_regular(place)
