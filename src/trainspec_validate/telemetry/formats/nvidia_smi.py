"""Reads reports of `nvidia-smi -q`, in text and XML, one or those of a loop: values and errors of each GPU."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Final

from trainspec_validate.documents.types.stream import AttributeValue, Event, Head
from trainspec_validate.model.metrics import metrics
from trainspec_validate.model.smi_report import (
    ROOT_TAG,
    TITLE,
    UNREACHED,
    Gpus,
    TextReport,
    Tree,
    entry,
    lacking,
    of_xml,
)
from trainspec_validate.system import xml
from trainspec_validate.system.budget import Count, Limit
from trainspec_validate.system.foreign import ForeignFormatError
from trainspec_validate.telemetry.formats import fit
from trainspec_validate.telemetry.formats.items import Found, Refusal
from trainspec_validate.telemetry.formats.kernel_log import ERROR
from trainspec_validate.telemetry.formats.local_times import local_us
from trainspec_validate.telemetry.formats.machine_errors import pci_address
from trainspec_validate.telemetry.formats.smi_values import SINCE_LOAD, UNCORRECTED, codes_of, severity, values_of
from trainspec_validate.telemetry.formats.transcript import Transcript

_MOST_CHARACTERS: Final = Limit("a report of nvidia-smi in XML", 20_000_000, "characters")
_MOST_LINES: Final = Limit("a report of nvidia-smi", 200_000, "lines")
_MOST_GPUS: Final = Limit("a report of nvidia-smi", 1_024, "GPUs")
_MOST_DEVICES: Final = Limit("a file of reports of nvidia-smi", 100_000, "devices")
_TITLE = re.compile(TITLE)
_NO_HANDLE = re.compile(
    rf"{UNREACHED} for (?:GPU ?)?(?P<pci>[0-9A-Fa-f]{{4,8}}:[0-9A-Fa-f]{{2}}:[0-9A-Fa-f]{{2}}\.[0-9])"
)
_OPEN, _CLOSE = f"<{ROOT_TAG}", f"</{ROOT_TAG}>"
_WHOLE = "copy the whole output"
_LOST = "driver:no-handle"
_GONE = "driver:not-attached"
_MAX_TEXT = 300
_SECOND_US = 1_000_000
_MOST_SHOWN = 5
_MOST_ATTACHED = 1_000_000
_UNCORRECTED_KEY = "hw.errors{error.type=uncorrected,hw.type=gpu}"
_PCI = re.compile(r"(?:[0-9A-Fa-f]{4,8}:)?[0-9A-Fa-f]{2}:[0-9A-Fa-f]{2}(?:\.[0-9])?")


@dataclass(slots=True)
class _Report:
    """What a report says."""

    offset: int
    root: Tree
    gpus: Gpus
    offsets: list[int]
    """Bytes before the line of each GPU."""
    unreached: list[tuple[int, str]] = field(default_factory=list)
    """Places and lines that the tool prints for GPUs that do not answer."""


class _Text:
    """A report in text as its lines come."""

    def __init__(self, offset: int) -> None:
        self._taken = TextReport()
        self._count = Count(_MOST_LINES)
        self.report = _Report(offset, self._taken.root, self._taken.gpus, [])

    def take(self, offset: int, text: str) -> None:
        self._count.add()
        if UNREACHED in text:
            self.report.unreached.append((offset, text.strip()[:_MAX_TEXT]))
            return
        self._taken.take(text)
        if len(self.report.gpus) > len(self.report.offsets):
            self.report.offsets.append(offset)


class _Document:
    """A report in XML as its lines come."""

    def __init__(self, offset: int) -> None:
        self.offset = offset
        self._lines: list[str] = []
        self._offsets: list[int] = []
        self._count = Count(_MOST_CHARACTERS)

    def take(self, offset: int, text: str) -> None:
        self._count.add(len(text) + 1)
        self._lines.append(text)
        self._offsets.append(offset)

    def read(self) -> tuple[int, _Report | Refusal]:
        """What it says, or why it cannot be read, and the place."""
        try:
            root = xml.parse("\n".join(self._lines))
        except ForeignFormatError as error:
            return self._place(error.line), Refusal(f"the report {error}", error.help or _WHOLE)
        tree, gpus = of_xml(root)
        offsets = [self._place(child.line) for child in root.children if child.tag == "gpu"]
        return self.offset, _Report(self.offset, tree, gpus, offsets)

    def _place(self, line: int | None) -> int:
        return self._offsets[min(line or 1, len(self._offsets)) - 1]


@dataclass(slots=True)
class _Device:
    """What the report before said of a GPU."""

    codes: set[str] = field(default_factory=set)
    num_uncorrected: float | None = None
    counts: dict[str, float] = field(default_factory=dict)
    """Counts since the driver was loaded."""
    start_us: int | None = None
    """From when they count, where they were seen to count anew."""
    time_us: int = 0


class Reader:
    """Reads a file of reports; the values of each GPU are a sample, and each error that is new an event."""

    def __init__(self, transcript: Transcript) -> None:
        self._transcript = transcript
        self._text: _Text | None = None
        self._document: _Document | None = None
        self._devices: dict[str, _Device] = {}
        self._before: tuple[list[str], int | None] | None = None
        """Names of the GPUs of the report before, and how many it says are attached."""
        self._time_us: int | None = None
        self._is_told = False
        self._started = False

    def line(self, offset: int, text: str) -> Iterator[Found]:
        """The records of the report that a line ends."""
        text = text.rstrip("\r")
        if self._document is not None or _OPEN in text:
            yield from self._of_xml(offset, text)
        elif _TITLE.match(text):
            yield from self._finish()
            self._text = _Text(offset)
        elif self._text is not None:
            self._text.take(offset, text)

    def _of_xml(self, offset: int, text: str) -> Iterator[Found]:
        while text:
            if self._document is None:
                start = text.find(_OPEN)
                if start < 0:
                    return
                yield from self._finish()
                self._document, text = _Document(offset), text[start:]
            part, close, text = text.partition(_CLOSE)
            self._document.take(offset, part + close)
            if not close:
                return
            place, report = self._document.read()
            self._document = None
            if isinstance(report, Refusal):
                yield place, report
            else:
                yield from self._records(report)

    def _finish(self, *, is_last: bool = False) -> Iterator[Found]:
        """The records of a report in text, which the next one or the end of the file ends."""
        if self._text is not None:
            report, self._text = self._text.report, None
            yield from self._records(report)
            if is_last and (sections := lacking(report.gpus)):
                words = ", ".join(name.replace("_", " ") for name in sections[:_MOST_SHOWN])
                message = f"the report is cut off: its last GPU lacks sections that the others have ({words})"
                yield report.offsets[-1], Refusal(message, _WHOLE, "cut-off")

    def end(self) -> Iterator[Found]:
        """The records of the last report, and whether it is whole."""
        yield from self._finish(is_last=True)
        if self._document is not None:
            message = f"the report is cut off: it has no {_CLOSE}, and is not read"
            yield self._document.offset, Refusal(message, _WHOLE, "cut-off")

    def _records(self, report: _Report) -> Iterator[Found]:
        _MOST_GPUS.check(len(report.gpus))
        names = [self._name(pci, tree, offset) for (pci, tree), offset in zip(report.gpus, report.offsets, strict=True)]
        if not names and not report.unreached:
            yield (
                report.offset,
                Refusal("the report lists no GPU", "look whether the driver finds one: nvidia-smi -L", "value"),
            )
            return
        if len(set(names)) < len(names):
            message = "the report lists a GPU twice"
            yield report.offset, Refusal(message, "keep each report whole, from its line NVSMI LOG on", "value")
            return
        time_us = self._time(report)
        values = [values_of(tree) for _, tree in report.gpus]
        if not self._started:
            stated = [{key.partition("{")[0] for key in each} for each in values]
            yield report.offset, self._head(time_us, set.intersection(*stated) if stated else set())
        for name, (_, tree), offset, found in zip(names, report.gpus, report.offsets, values, strict=True):
            yield from self._of_gpu(name, tree, found, time_us, offset)
        yield from self._of_absent(report, names, time_us)

    def _head(self, time_us: int, stated: set[str]) -> Head:
        self._started = True
        message = "conditions of GPUs are read; their versions, settings and processes are not"
        self._transcript.lose("meaning", "nvidia-smi", message, 0)
        owed = (one for one in metrics().values() if one.level == "required" and "device" in one.scopes)
        can = self._transcript.format.metrics or frozenset()
        absent = {one.name: "the report does not state it of each GPU" for one in owed if one.name in can - stated}
        return self._transcript.head(time_us, ("device",), unsupported=absent)

    def _name(self, pci: str, tree: Tree, offset: int) -> str:
        uuid = fit.identity(entry(tree, "gpu_uuid") or entry(tree, "uuid"))
        if uuid is None:
            message = "the report has no UUID of the device; its PCI address is taken, which another slot changes"
            self._transcript.lose("identity", "device", message, offset)
        return uuid or _address(pci)

    def _time(self, report: _Report) -> int:
        """When a report was made; without a time that of the report before."""
        transcript, given = self._transcript, self._transcript.given
        try:
            made = datetime.strptime(entry(report.root, "timestamp") or "", "%a %b %d %H:%M:%S %Y")
        except ValueError:
            made = None
        time_us = local_us(made.isoformat(), given.utc_offset_seconds) if made else None
        if time_us is None:
            known = self._time_us if self._time_us is not None else given.start_us
            message = "reports without a time have that of the report before, else 0; --known start= states the first"
            transcript.lose("time", "Timestamp", message, report.offset)
            if not self._started:
                transcript.clock = "none"
            self._time_us = known or 0
            return self._time_us
        if not self._started:
            transcript.clock = "local" if given.utc_offset_seconds is None else "utc"
        if given.utc_offset_seconds is None:
            transcript.lose("time", "time", "times have no zone; they are taken for UTC", report.offset)
        if self._time_us is not None and time_us == self._time_us - self._time_us % _SECOND_US:
            message = "reports have whole seconds; those of one second are put 1 us apart"
            transcript.lose("time", "second", message, report.offset)
            time_us = self._time_us + 1
        self._time_us = time_us
        return time_us

    def _of_gpu(self, name: str, tree: Tree, found: dict[str, float], time_us: int, offset: int) -> Iterator[Found]:
        device = self._device(name)
        counts = {key: value for key, value in found.items() if key.startswith(SINCE_LOAD)}
        if any(value < device.counts.get(key, 0.0) for key, value in counts.items()):
            message = "counts since the load of the driver fall, and are taken to count anew from the report before"
            self._transcript.lose("meaning", "start", message, offset)
            device.start_us, device.num_uncorrected = device.time_us, 0.0
        device.counts, device.time_us = counts, time_us
        rest = {key: value for key, value in found.items() if key not in counts or device.start_us is None}
        if rest:
            yield offset, self._transcript.sample(time_us, rest, device=name)
        if counts and device.start_us is not None:
            yield offset, self._transcript.sample(time_us, counts, device=name, start_us=device.start_us)
        number, is_first = found.get(_UNCORRECTED_KEY, 0.0), device.num_uncorrected is None
        codes = codes_of(tree)
        if is_first and (codes or number):
            message = "a report does not say since when: errors of the first one are not newer than it"
            self._transcript.lose("time", "errors", message, offset)
        if number > (device.num_uncorrected or 0.0):
            words = f"errors of memory since the driver was loaded: {number:,.0f}"
            yield offset, self._error(time_us, name, UNCORRECTED, words)
        for code in sorted(codes - device.codes):
            yield offset, self._error(time_us, name, code)
        device.codes, device.num_uncorrected = codes, number

    def _device(self, name: str) -> _Device:
        _MOST_DEVICES.check(len(self._devices) + 1)
        return self._devices.setdefault(name, _Device())

    def _error(self, time_us: int, device: str | None, code: str, words: str | None = None) -> Event:
        attributes: dict[str, AttributeValue] = {"train.fault.vendor_code": code}
        if how_bad := severity(code):
            attributes["train.error.severity"] = how_bad
        if words:
            attributes["train.reason"] = words
        return self._transcript.event(time_us, ERROR, device=device, a=attributes)

    def _of_absent(self, report: _Report, names: Sequence[str], time_us: int) -> Iterator[Found]:
        """Errors of GPUs that do not answer or are no longer attached; those that are not listed are counted."""
        for offset, words in report.unreached:
            match = _NO_HANDLE.match(words)
            name = _address(match["pci"]) if match else UNREACHED
            if _LOST not in self._device(name).codes:
                self._device(name).codes = {_LOST}
                yield offset, self._error(time_us, name, _LOST, words)
        attached = fit.whole(entry(report.root, "attached_gpus"), _MOST_ATTACHED)
        before, num_before = self._before or ([], None)
        is_same = bool(names) and set(names) <= set(before)  # a file may have the reports of several machines
        if is_same and attached is not None and num_before is not None and attached < num_before:
            for name in (one for one in before if one not in names):
                words = f"{attached} GPUs are attached, and {num_before} were in the report before"
                yield report.offset, self._error(time_us, name, _GONE, words)
        num_absent = (attached or 0) - len(names) - len(report.unreached)
        if num_absent > 0 and not self._is_told:
            self._is_told = True
            message = "attached GPUs that the report does not list"
            self._transcript.lose("device", "attached_gpus", message, report.offset, num_absent)
        self._before = list(names), attached


def _address(text: str) -> str:
    """The address of a GPU as the kernel writes it; as it is, where it is none."""
    return pci_address(text) if _PCI.fullmatch(text) else fit.identity(text) or "unknown"
