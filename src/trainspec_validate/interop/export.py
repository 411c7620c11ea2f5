"""Lists the formats that a job can be exported to, and writes one or all of them."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache

from trainspec_validate.interop import writers
from trainspec_validate.interop.registry import collected
from trainspec_validate.interop.writers._target import Exported, Format, Job, NotExpressible

__all__ = ["Exported", "Format", "Job", "NotExpressible", "export_all", "formats"]


@cache
def formats() -> Mapping[str, Format]:
    """Every format by name, in the order of names."""
    return collected(writers, Format)


def export_all(job: Job) -> tuple[dict[str, Exported], dict[str, NotExpressible]]:
    """The job in every format that can run it, by name; and why the others cannot."""
    written: dict[str, Exported] = {}
    refused: dict[str, NotExpressible] = {}
    for name, entry in formats().items():
        try:
            written[name] = entry.write(job)
        except NotExpressible as error:
            refused[name] = error
    return written, refused
