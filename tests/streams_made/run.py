"""Makes one complete conformant run: its streams and the documents that it claims to follow."""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from hashlib import sha256

from .emitter import Stream
from .job import job_streams
from .nodes import node_streams
from .papers import papers
from .ranks import rank_streams
from .shape import Shape
from .timeline import Timeline


@dataclass(frozen=True, slots=True)
class Run:
    """A made run."""

    shape: Shape
    streams: tuple[Stream, ...]
    documents: dict[str, str]
    """Text of `cluster.yaml`, `plan.yaml` and `checkpoint.yaml`."""

    @property
    def num_records(self) -> int:
        """Samples and events."""
        return sum(len(stream.records) for stream in self.streams)


def make_run(shape: Shape | None = None) -> Run:
    """The run of a shape; equal shapes give equal runs."""
    return _made(shape or Shape())


@lru_cache(maxsize=8)
def _made(shape: Shape) -> Run:
    timeline = Timeline(shape)
    documents = papers(shape)
    claims = [f"{name} sha256:{sha256(text.encode()).hexdigest()}" for name, text in documents.items()]
    streams = job_streams(shape, timeline, claims) + rank_streams(shape, timeline) + node_streams(shape, timeline)
    return Run(shape, tuple(streams), documents)
