"""Writes SARIF 2.1.0 of a conformance report: what a check found in a file, at its line."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import PurePosixPath
from typing import Any

from trainspec_validate.documents.types.conformance_report import (
    CheckVerdict,
    ConformanceReport,
    ScenarioReport,
    TrialReport,
)
from trainspec_validate.model.requirements import load_index
from trainspec_validate.report.places import dumps, location_of
from trainspec_validate.report.sarif import SCHEMA, SITE

Json = dict[str, Any]
HISTORY = "history.jsonl"
MAX_PLACES = 20
_PLACE = re.compile(r"(?P<file>.+):(?P<line>[1-9]\d{0,8})", re.DOTALL)


def render(report: ConformanceReport) -> str:
    """One run; a check that points to no file has no result, for it is at no place."""
    names = list(dict.fromkeys(one.requirement for one in report.scenarios))
    results = [result for one in report.scenarios for result in _results(one, names.index(one.requirement))]
    driver = {
        "name": "trainspec-conformance",
        "informationUri": SITE,
        "version": report.suite_version,
        "rules": [_rule(name) for name in names],
    }
    broken = any(one.verdict == "error" for one in report.scenarios)
    run = {
        "tool": {"driver": driver},
        "invocations": [{"executionSuccessful": not broken}],
        "columnKind": "unicodeCodePoints",
        "results": results,
    }
    return dumps({"$schema": SCHEMA, "version": "2.1.0", "runs": [run]})


def _rule(identifier: str) -> Json:
    index = load_index()
    known = index.by_id.get(identifier)
    rule: Json = {"id": identifier, "defaultConfiguration": {"level": "error"}}
    if known is not None:
        rule |= {"name": known.name, "shortDescription": {"text": known.title}, "helpUri": index.url(known)}
    return rule


def _results(one: ScenarioReport, index: int) -> Iterator[Json]:
    for trial in one.trials:
        for check in trial.checks:
            places = [] if check.passed else _locations(trial, check)
            if not places:
                continue
            message = f"{one.scenario}, trial {trial.number}: {check.check}: " + "; ".join(check.messages[:5])
            result: Json = {
                "ruleId": one.requirement,
                "ruleIndex": index,
                "level": "warning" if one.gap else "error",
                "message": {"text": message},
                "locations": places[:1],
            }
            if places[1:]:
                related = enumerate(places[1:MAX_PLACES], start=1)
                result["relatedLocations"] = [{"id": number, **place} for number, place in related]
            yield result


def _locations(trial: TrialReport, check: CheckVerdict) -> list[Json]:
    """Places in files that the stack wrote, then those in the history that the suite wrote of them."""
    found = [match for place in check.places if (match := _PLACE.fullmatch(place))]
    found.sort(key=lambda match: match["file"] == HISTORY)
    locations = []
    for match in found:
        path = PurePosixPath(trial.directory) / match["file"]
        region = {"startLine": int(match["line"])}
        locations.append({"physicalLocation": {"artifactLocation": location_of(path.as_posix(), ""), "region": region}})
    return locations
