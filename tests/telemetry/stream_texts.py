"""Makes views out of the text of streams, for tests of what is wrong with the text itself."""

from __future__ import annotations

import gzip
import json
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from telemetry_makers import Stream

from trainspec_validate.telemetry.fold.engine import Options, read_run, run_file
from trainspec_validate.telemetry.view.run_view import RunView


def text_of(*streams: Stream) -> str:
    """All lines of streams, one after another."""
    return "".join(json.dumps(line) + "\n" for stream in streams for line in stream.lines)


def written_by(stream: Stream) -> Stream:
    """The stream with its emitter and attempt on each record, for a file of several heads."""
    emitter, attempt = stream.lines[0]["emitter"], stream.lines[0]["att"]
    stream.lines[1:] = [{**line, "emitter": emitter, "att": attempt} for line in stream.lines[1:]]
    return stream


def view_of(*texts: str, suffix: str = "jsonl", **options: Any) -> RunView:
    """What checks see of files with these texts."""
    with TemporaryDirectory() as directory:
        paths = [Path(directory) / f"{number:04}.{suffix}" for number, _ in enumerate(texts)]
        for path, text in zip(paths, texts, strict=True):
            content = text.encode()
            path.write_bytes(gzip.compress(content) if suffix.endswith(".gz") else content)
        files = [run_file(number, path, path.name) for number, path in enumerate(paths)]
        return read_run(files, Options(**options))
