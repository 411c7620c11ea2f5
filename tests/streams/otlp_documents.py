"""OTLP/JSON as other programs write it."""

from __future__ import annotations

import json
from typing import Any

NANO = 1_000_000_000


def attributes(pairs: dict[str, Any]) -> list[dict[str, Any]]:
    def value(item: Any) -> dict[str, Any]:
        if isinstance(item, bool):
            return {"boolValue": item}
        if isinstance(item, int):
            return {"intValue": str(item)}
        return {"doubleValue": item} if isinstance(item, float) else {"stringValue": item}

    return [{"key": key, "value": value(item)} for key, item in pairs.items()]


def point(value: float | int | str, seconds: float = 5.0, **more: Any) -> dict[str, Any]:
    number = {"asInt": str(value)} if isinstance(value, int) else {"asDouble": value}
    named = more.pop("attributes", {})
    return {"timeUnixNano": str(int(seconds * NANO)), "attributes": attributes(named), **number, **more}


def gauge(name: str, *points: dict[str, Any], unit: str = "1") -> dict[str, Any]:
    return {"name": name, "unit": unit, "gauge": {"dataPoints": list(points)}}


def total(name: str, *points: dict[str, Any], unit: str = "1", temporality: int = 2, **more: Any) -> dict[str, Any]:
    data = {"dataPoints": list(points), "aggregationTemporality": temporality, "isMonotonic": True} | more
    return {"name": name, "unit": unit, "sum": data}


def histogram(name: str, *points: dict[str, Any], temporality: int = 1, kind: str = "histogram") -> dict[str, Any]:
    return {"name": name, "unit": "s", kind: {"dataPoints": list(points), "aggregationTemporality": temporality}}


def metrics(*entries: dict[str, Any], resource: dict[str, Any] | None = None) -> str:
    scope = {"scope": {"name": "some.library"}, "metrics": list(entries), "schemaUrl": "x", "unknownField": [1]}
    part = {"resource": {"attributes": attributes(resource or {})}, "scopeMetrics": [scope]}
    return json.dumps({"resourceMetrics": [part]}) + "\n"


def logs(*entries: dict[str, Any], resource: dict[str, Any] | None = None) -> str:
    scope = {"scope": {}, "logRecords": list(entries)}
    return json.dumps(
        {"resourceLogs": [{"resource": {"attributes": attributes(resource or {})}, "scopeLogs": [scope]}]}
    )


def event(name: str, seconds: float = 5.0, **more: Any) -> dict[str, Any]:
    named = more.pop("attributes", {})
    return {"timeUnixNano": str(int(seconds * NANO)), "eventName": name, "attributes": attributes(named), **more}
