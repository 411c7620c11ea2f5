"""The registry for OpenTelemetry Weaver: its form, and that it holds every name once and defines none of theirs.

Weaver itself judges it where it is installed, and its published schema where TRAINSPEC_WEAVER_SCHEMA is the file.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import jsonschema
import pytest
import weaver_registry
import yaml

from trainspec_validate.model.metrics import catalog, events, metrics

ROOT = Path(__file__).resolve().parents[2]
FOLDER = ROOT / "integrations" / "opentelemetry" / "registry"
FILES = weaver_registry.registry(ROOT / "spec" / "v1")
LOADER = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
READ: dict[str, Any] = {path.name: yaml.load(path.read_text("utf-8"), LOADER) for path in sorted(FOLDER.iterdir())}
# Keys of each definition in the syntax definition/2 of open-telemetry/weaver@afa9700: those it needs, then all others.
COMMON = {"brief", "note", "stability", "deprecated", "annotations"}
SIGNAL = COMMON | {"attributes", "entity_associations", "requirement_level"}
FORMS: dict[str, tuple[set[str], set[str]]] = {
    "attributes": ({"key", "type", "brief", "stability"}, COMMON | {"examples"}),
    "entities": ({"type", "identity", "brief", "stability"}, COMMON | {"description", "requirement_level"}),
    "metrics": ({"name", "instrument", "unit", "brief", "stability"}, SIGNAL),
    "metric_refinements": ({"id", "ref"}, SIGNAL - {"requirement_level"}),
    "events": ({"name", "brief", "stability"}, SIGNAL),
}
TYPES = {"string", "int", "double", "boolean", "string[]", "int[]", "double[]", "boolean[]"}
LEVELS = {"required", "recommended", "opt_in"}
# What the catalog takes from OpenTelemetry: written out here, so that a new one is a decision.
THEIR_METRICS = {
    *("hw.gpu.utilization", "hw.gpu.memory.usage", "hw.gpu.memory.limit", "hw.power", "hw.energy", "hw.temperature"),
    *("hw.errors", "hw.network.io", "system.memory.utilization"),
}
THEIR_ATTRIBUTES = {
    *("host.id", "hw.id", "hw.type", "hw.sensor_location", "error.type", "network.io.direction"),
    "system.memory.state",
}


def entries(kind: str) -> list[dict[str, Any]]:
    """All definitions of a kind, over all files."""
    return [entry for content in READ.values() for entry in content.get(kind, ())]


def references() -> Iterator[dict[str, Any]]:
    for kind in FORMS:
        for entry in entries(kind):
            for key in ("attributes", "identity", "description"):
                yield from entry.get(key, ())


@pytest.mark.parametrize("name", FILES)
def test_files_are_as_generated(name: str) -> None:
    assert (FOLDER / name).read_text(encoding="utf-8") == FILES[name], "run: make generate"


def test_nothing_else_lies_there() -> None:
    assert set(READ) == set(FILES)


def test_the_manifest() -> None:
    manifest = READ["manifest.yaml"]
    assert set(manifest) == {"description", "schema_url", "stability", "dependencies"}
    semantic = r"https://\S+/\d+\.\d+\.\d+(-[a-z0-9.]+)?"
    (dependency,) = manifest["dependencies"]
    assert re.fullmatch(semantic, manifest["schema_url"])
    assert re.fullmatch(semantic, dependency["schema_url"])
    release = dependency["schema_url"].rsplit("/", 1)[1]
    assert dependency["registry_path"].endswith(f"@v{release}[model]")


@pytest.mark.parametrize("name", [name for name in FILES if name != "manifest.yaml"])
def test_definitions_have_the_keys_of_the_syntax(name: str) -> None:
    content = READ[name]
    assert content["file_format"] == "definition/2"
    assert set(content) <= {*FORMS, "file_format", "imports"}
    for kind in set(content) & set(FORMS):
        needed, allowed = FORMS[kind]
        assert [entry for entry in content[kind] if needed - set(entry)] == []
        assert [entry for entry in content[kind] if set(entry) - needed - allowed] == []


def test_every_metric_is_there_once() -> None:
    defined = [entry["name"] for entry in entries("metrics")]
    refined = [entry["ref"] for entry in entries("metric_refinements")]
    imported = [name for content in READ.values() for name in content.get("imports", {}).get("metrics", ())]
    synonyms = [metric.synonym for metric in metrics().values() if metric.synonym]
    assert Counter([*defined, *refined]) == Counter([*metrics(), *synonyms])
    assert refined == imported
    assert set(imported) == THEIR_METRICS
    assert len({entry["id"] for entry in entries("metric_refinements")}) == len(refined)


def test_every_event_and_attribute_is_there_once() -> None:
    assert [entry["name"] for entry in entries("events")] == list(events())
    keys = [entry["key"] for entry in entries("attributes")]
    assert Counter([*keys, *THEIR_ATTRIBUTES]) == Counter(list(catalog().attributes))


def test_nothing_of_opentelemetry_is_defined_again() -> None:
    names = [entry["name"] for kind in ("metrics", "events") for entry in entries(kind)]
    names += [entry["key"] for entry in entries("attributes")]
    names += [entry["type"] for entry in entries("entities")]
    assert [name for name in names if not name.startswith("train.")] == []


def test_units_and_instruments_are_those_of_the_table() -> None:
    by_name = {name: metric for metric in metrics().values() for name in (metric.name, metric.synonym)}
    for entry in entries("metrics"):
        metric = by_name[entry["name"]]
        assert (entry["unit"], entry["instrument"]) == (metric.unit, metric.instrument)
        assert entry["requirement_level"] == ("opt_in" if metric.level == "optional" else "recommended")
        assert entry["annotations"]["trainspec"]["level"] == metric.level
        assert entry["annotations"]["trainspec"].get("minimum") == metric.minimum


def test_references_lead_to_attributes() -> None:
    known = {entry["key"] for entry in entries("attributes")} | THEIR_ATTRIBUTES
    found = list(references())
    assert len(found) > 100
    assert [each for each in found if each["ref"] not in known] == []
    assert [each for each in found if each.get("requirement_level", "required") not in LEVELS] == []


def test_references_of_a_signal_are_those_of_the_table() -> None:
    """What tells series apart or goes with a value stands at the metric; what is declared once stands at the entity."""
    for entry in entries("events"):
        table = events()[entry["name"]]
        levels = {each["ref"]: each["requirement_level"] for each in entry["attributes"]}
        wanted = dict.fromkeys(table.attributes, "required") | dict.fromkeys(table.optional_attributes, "recommended")
        assert levels == wanted
    roles = {name: attribute.role for name, attribute in catalog().attributes.items()}
    for entry in (*entries("metrics"), *entries("metric_refinements")):
        assert {roles[each["ref"]] for each in entry.get("attributes", ())} <= {"series", "reading"}
    (run,) = [entry for entry in entries("entities") if entry["type"] == "train.run"]
    declared = {each["ref"] for each in run["description"]}
    assert {"train.flops.peak", "train.world.size", "train.gradient.tap"} <= declared


def test_associations_name_entities() -> None:
    own = {entry["type"] for entry in entries("entities")}
    imported = {name for content in READ.values() for name in content.get("imports", {}).get("entities", ())}
    assert own == {"train.run", "train.rank"}
    used = {name for kind in FORMS for entry in entries(kind) for name in entry.get("entity_associations", ())}
    assert used == own | imported


def test_attributes_have_types_members_and_examples() -> None:
    for entry in entries("attributes"):
        table = catalog().attributes[entry["key"]]
        if table.values:
            members = entry["type"]["members"]
            assert [member["value"] for member in members] == list(table.values)
            assert all(re.fullmatch(r"[a-z][a-z0-9_]*", member["id"]) and member["stability"] for member in members)
        else:
            assert entry["type"] == table.type
            assert table.type in TYPES
            assert ("examples" in entry) == table.type.startswith("string")
    assert set(weaver_registry.EXAMPLES) == {entry["key"] for entry in entries("attributes") if "examples" in entry}


@pytest.mark.parametrize("name", [name for name in FILES if name != "manifest.yaml"])
def test_the_published_schema_accepts_it(name: str) -> None:
    schema = os.environ.get("TRAINSPEC_WEAVER_SCHEMA")
    if not schema:
        pytest.skip("TRAINSPEC_WEAVER_SCHEMA names no file: schemas/semconv.schema.v2.json of open-telemetry/weaver")
    jsonschema.Draft202012Validator(json.loads(Path(schema).read_text("utf-8"))).validate(READ[name])


def test_weaver_accepts_it() -> None:
    program = shutil.which("weaver")
    if program is None:
        pytest.skip("weaver is not installed")
    done = subprocess.run(
        [program, "registry", "check", "--registry", str(FOLDER)], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr
