"""A required key that a document lists as unknown is no error, and switches off the rules that read it alone."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from tests.mutation.operators import replaced, without
from trainspec_validate import InputError, export, plan, validate
from trainspec_validate.cli.toolbox import command
from trainspec_validate.documents import schema
from trainspec_validate.documents.load import load_file
from trainspec_validate.documents.types import KINDS
from trainspec_validate.model.finding import Pointer, Report

BASE = Path(__file__).resolve().parents[1] / "spec" / "v1" / "base"
BASES = {data["kind"]: data for data in (load_file(path).data for path in BASE.glob("*.yaml"))}
NAMES = {("metadata",), ("metadata", "name")}
HEAD = {("apiVersion",), ("kind",), *NAMES}
WORDS = {"digest": "sha256:" + "0" * 64, "file": "example.yaml", "bdf": "0000:00:00.0"}


def resolved(kind: str, node: dict[str, Any]) -> dict[str, Any]:
    found: dict[str, Any] = (
        schema.load_schema(kind)["$defs"][node["$ref"].rsplit("/", 1)[1]] if "$ref" in node else node
    )
    return found


def made(kind: str, node: dict[str, Any], key: str = "") -> Any:
    """The least value of a schema that has every part with required keys below it."""
    node = resolved(kind, node)
    if "properties" in node:
        wanted = {k: n for k, n in node["properties"].items() if k in node.get("required", ()) or is_part(kind, n)}
        return {k: made(kind, n, k) for k, n in wanted.items()}
    if node.get("type") == "array":
        return [made(kind, node["items"], key)] * node.get("minItems", 1)
    if "enum" in node or "const" in node:
        return node.get("const", node.get("enum", [""])[0])
    if node.get("type") in {"number", "integer"}:
        return max(1, node.get("minimum", 1)) if node.get("maximum", 1) >= 1 else node["maximum"]
    return False if node.get("type") == "boolean" else WORDS.get(key, "example")


def is_part(kind: str, node: dict[str, Any]) -> bool:
    return "properties" in resolved(kind, node) or "properties" in resolved(kind, node.get("items", {}))


def document(kind: str) -> dict[str, Any]:
    """The base document, with every part that it lacks."""
    found: dict[str, Any] = merged(BASES[kind], made(kind, schema.load_schema(kind)))
    return found


def merged(given: Any, other: Any) -> Any:
    if isinstance(given, dict) and isinstance(other, dict):
        return {**other, **{key: merged(item, other.get(key)) for key, item in given.items()}}
    if isinstance(given, list) and given and isinstance(other, list) and other:
        return [merged(item, other[0]) for item in given]
    return given


def required(kind: str, value: Any, node: dict[str, Any], place: Pointer = ()) -> Iterator[Pointer]:
    """The places of all required keys that a document holds, in the first entry of each list."""
    if "$ref" in node:
        node = schema.load_schema(kind)["$defs"][node["$ref"].rsplit("/", 1)[1]]
    if isinstance(value, list) and value and isinstance(node.get("items"), dict):
        yield from required(kind, value[0], node["items"], (*place, 0))
    elif isinstance(value, dict):
        yield from ((*place, key) for key in node.get("required", ()) if key in value)
        for key, inner in node.get("properties", {}).items():
            if key in value:
                yield from required(kind, value[key], inner, (*place, key))


def keys(kind: str) -> Iterator[tuple[Pointer, bool]]:
    """Every required key of a kind of document, and whether the base document has it."""
    root = schema.load_schema(kind)
    in_base = set(required(kind, BASES[kind], root))
    yield from ((place, place in in_base) for place in required(kind, document(kind), root))


def judged(kind: str, data: dict[str, Any]) -> Report:
    return validate([data, *(other for name, other in BASES.items() if name != kind)])


def listing(data: dict[str, Any], place: Pointer) -> dict[str, Any]:
    return {**without(data, place), "unknowns": [".".join(map(str, place))]}


def found(report: Report) -> set[tuple[str, Pointer]]:
    return {(finding.requirement, finding.pointer) for finding in report.findings}


def wrong(kind: str, place: Pointer, before: Report, after: Report) -> list[str]:
    """Faults in how a document is judged that lists one key as unknown, against the document that gives it."""
    told = [f"new finding: {one}" for one in sorted(found(after) - found(before), key=str)]
    name = re.sub(r"\.0(?=\.|$)", "[]", ".".join(map(str, place)))
    new = [entry for entry in after.unjudged if entry.reason not in {old.reason for old in before.unjudged}]
    told += [entry.reason for entry in new if entry.reason != f"lists {name} as unknown"]
    verdicts = {outcome.requirement: outcome.verdict for outcome in before.outcomes}
    changed = {o.requirement for o in after.outcomes if o.verdict is not verdicts[o.requirement]}
    unjudged = {requirement for entry in after.unjudged for requirement in entry.requirements}
    told += [f"other verdict: {one}" for one in sorted(changed - unjudged)]
    kinds = {entry.kind for entry in after.documents}
    return told + [f"no {kind} is in the report"] * (kind not in kinds)


@pytest.mark.parametrize("kind", sorted(KINDS))
def test_every_required_key_may_be_listed_as_unknown(kind: str) -> None:
    whole = {True: BASES[kind], False: document(kind)}
    assert [list(schema.failures(kind, data)) for data in whole.values()] == [[], []]
    before = {is_base: judged(kind, data) for is_base, data in whole.items()}
    # The first two select the schema (TS-DOC-004); by the others documents of a run find each other.
    cases = [(place, base) for place, base in keys(kind) if place not in HEAD]
    assert len(cases) > 40
    faults = {}
    for place, is_base in cases:
        told = wrong(kind, place, before[is_base], judged(kind, listing(whole[is_base], place)))
        if told:
            faults[".".join(map(str, place))] = told
    assert faults == {}


@pytest.mark.parametrize("kind", sorted(KINDS))
def test_the_examples_hold_every_key_that_a_schema_requires(kind: str) -> None:
    definitions = schema.load_schema(kind)["$defs"]
    wanted = {(name, key) for name, node in definitions.items() for key in node.get("required", ())}
    assert wanted == {(owner(kind, place[:-1]), place[-1]) for place, _ in keys(kind) if len(place) > 1} | {
        pair for pair in wanted if pair[0] == kind
    }


def owner(kind: str, place: Pointer) -> str:
    """The definition of a schema that a place has."""
    node: dict[str, Any] = schema.load_schema(kind)
    name = ""
    for step in place:
        node = node["items"] if isinstance(step, int) else node["properties"][step]
        name = node.get("$ref", name).rsplit("/", 1)[-1]
        node = resolved(kind, node)
    return name


@pytest.mark.parametrize("kind", sorted(KINDS))
def test_a_name_that_is_listed_as_unknown_is_no_error(kind: str) -> None:
    for place in NAMES:
        assert found(judged(kind, listing(BASES[kind], place))) == set()


RATE = ("node_groups", 0, "nics", 0, "rate_bytes_per_second")
LISTED = ".".join(map(str, RATE))


def cluster(num_nics: int, num_listed: int, **more: Any) -> dict[str, Any]:
    """A profile of which no interface has a rate, some of them listed as unknown."""
    nic = {"name": "a", "num_per_node": 1, "technology": "infiniband"}
    places = [LISTED.replace("nics.0", f"nics.{number}") for number in range(num_listed)]
    nics = [{**nic, "name": f"nic-{number}"} for number in range(num_nics)]
    return {**replaced(BASES["ClusterProfile"], RATE[:3], nics), "unknowns": places, **more}


def test_a_key_that_is_absent_and_not_listed_stays_an_error() -> None:
    report = validate([cluster(3, 2)])
    [absent] = [finding for finding in report.findings if finding.requirement == "TS-DOC-006"]
    assert absent.pointer == (*RATE[:3], 2)


def test_a_key_without_a_value_stays_an_error() -> None:
    data = {**replaced(BASES["ClusterProfile"], RATE, None), "unknowns": [LISTED]}
    assert [finding.pointer for finding in validate([data]).findings] == [RATE]


def test_the_same_lack_in_many_entries_is_one_reason() -> None:
    report = validate([cluster(40, 40)])
    assert "TS-DOC-006" not in {finding.requirement for finding in report.findings}
    reasons = [entry.reason for entry in report.unjudged if "rate_bytes_per_second" in entry.reason]
    assert reasons == ["lists node_groups[].nics[].rate_bytes_per_second as unknown"]


def places_of(num: int) -> frozenset[Pointer]:
    return frozenset((*RATE[:3], number, RATE[-1]) for number in range(num))


@pytest.mark.parametrize("num_labels", [0, 1_500])
def test_listed_keys_of_a_large_document_hide_no_other_error(num_labels: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """One that is judged in pieces, with more listed keys than errors are listed."""
    monkeypatch.setattr(schema, "MAX_VALUES_AT_ONCE", 50)
    monkeypatch.setattr(schema, "MAX_ERRORS", 20)
    labels = {f"label-{number}": "a" for number in range(num_labels)}
    metadata = {"name": "example", **({"labels": labels} if labels else {})}
    data = cluster(60, 60, metadata=metadata)
    assert list(schema.failures("ClusterProfile", data, unknown=places_of(60))) == []
    [absent] = schema.failures("ClusterProfile", data, unknown=places_of(59))
    assert absent.pointer == (*RATE[:3], 59)
    labels["last"] = 5  # type: ignore[assignment]
    wrong_label = {**data, "metadata": {"name": "example", "labels": labels}}
    [other] = schema.failures("ClusterProfile", wrong_label, unknown=places_of(60))
    assert other.pointer == ("metadata", "labels", "last")


@pytest.mark.parametrize(
    "arguments",
    [
        ("plan", "cluster.yaml", "--predict", "plan.yaml"),
        ("plan", "cluster.yaml", "--predict", "plan.yaml", "--force"),
        ("export", "plan.yaml", "--to", "slurm", "--cluster", "cluster.yaml"),
        ("export", "plan.yaml", "--to", "slurm", "--cluster", "cluster.yaml", "--force"),
    ],
)
def test_commands_that_need_the_value_name_the_key(
    arguments: tuple[str, ...], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    for path in BASE.glob("*.yaml"):
        Path(path.name).write_text(path.read_text(encoding="utf-8"), encoding="utf-8")
    text = Path("cluster.yaml").read_text(encoding="utf-8")
    text = text.replace("        rate_bytes_per_second: 50e9\n", "", 1) + f"unknowns: [{LISTED}]\n"
    Path("cluster.yaml").write_text(text, encoding="utf-8")
    result = CliRunner().invoke(command, arguments)
    assert result.exit_code == 2
    assert result.stderr == f"Error: cluster.yaml: listed as unknown, and needed here: {LISTED}\n"


def test_the_python_interface_names_the_key() -> None:
    data = listing(BASES["ClusterProfile"], RATE)
    with pytest.raises(InputError, match=f"listed as unknown, and needed here: {re.escape(LISTED)}"):
        export(BASES["TrainingPlan"], "slurm", cluster=data)
    with pytest.raises(InputError, match="listed as unknown"):
        plan(data, "llama-3-8b")
