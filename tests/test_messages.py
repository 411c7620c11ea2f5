"""What a person reads after a mistake: one finding, at the right place, with what would be right."""

from __future__ import annotations

import re
import subprocess
import sys
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pytest

from tests.every import every
from trainspec_validate.checking.selection import resolve
from trainspec_validate.documents.commented import said
from trainspec_validate.documents.keys import key_paths
from trainspec_validate.documents.schema import load_schema
from trainspec_validate.documents.schema_messages import FORMS, _range_message, shown
from trainspec_validate.documents.types import KINDS
from trainspec_validate.interop.fragment import Remark
from trainspec_validate.model.aliases import KEYS, REMEDIES, VALUES, fold
from trainspec_validate.model.finding import Finding, Report, Severity
from trainspec_validate.model.quantities import in_words, read_quantity, singular_of_one, written
from trainspec_validate.model.requirements import load_index
from trainspec_validate.pipeline.validation import validate
from trainspec_validate.report import render
from trainspec_validate.report.places import MAX_SHOWN
from trainspec_validate.system.boundary import InputError

BASE = Path(__file__).resolve().parents[1] / "spec" / "v1" / "base"
NAMES = ("cluster", "plan", "checkpoint")


@pytest.fixture(autouse=True)
def _in_a_folder_of_its_own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


def judge(name: str, old: str, new: str) -> Report:
    """The report on the three base documents after one edit; the old text ends the document where it is empty."""
    for other in NAMES:
        text = (BASE / f"{other}.yaml").read_text(encoding="utf-8")
        if other == name:
            assert old in text, f"the base no longer holds {old!r}"
            text = text.replace(old, new, 1) if old else text + new
        Path(f"{other}.yaml").write_text(text, encoding="utf-8")
    return validate(["."])


def told(findings: Iterable[Finding]) -> list[str]:
    """Message and help of each; lines of the base documents, which may grow, are left out."""
    texts = [f"{f.message} ({f.help})" if f.help else f.message for f in findings]
    return [re.sub(r"line \d+, column \d+", "line N, column N", text) for text in texts]


def marked(finding: Finding) -> str:
    """The text under the marks."""
    assert finding.span is not None
    line = Path(finding.path).read_text(encoding="utf-8").split("\n")[finding.span.line - 1]
    return line[finding.span.column - 1 : finding.span.end_column - 1]


def yaml(name: str, old: str, new: str, mark: str, said: str) -> object:
    return pytest.param(name, old, new, mark, said, id=new.strip().replace("\n", " ")[:50] or old[:50])


CLOCK = "clock:\n  discipline: ptp\n  max_offset_seconds: 0.0001\n"
ONE_MISTAKE = [
    # keys
    yaml("plan", "parallelism:", "paralelism:", "paralelism", "unknown key 'paralelism' (did you mean 'parallelism'?)"),
    yaml("plan", "  tensor: 8", "  tensr: 8", "tensr", "unknown key 'tensr' (did you mean 'tensor'?)"),
    yaml(
        "plan",
        "  global_sequences: 512",
        "  globalSequences: 512",
        "globalSequences",
        "unknown key 'globalSequences' (did you mean 'global_sequences'?)",
    ),
    yaml(
        "cluster", "node_groups:", "node_group:", "node_group", "unknown key 'node_group' (did you mean 'node_groups'?)"
    ),
    yaml("cluster", "    nics:", "    nic:", "nic", "unknown key 'nic' (did you mean 'nics'?)"),
    yaml(
        "cluster",
        "        rate_bytes_per_second: 50e9",
        "        rate_bits_per_second: 400e9",
        "rate_bits_per_second",
        "unknown key 'rate_bits_per_second' (did you mean 'rate_bytes_per_second'? 8 bits are 1 byte)",
    ),
    yaml("plan", "", "tensor: 8\n", "tensor", "unknown key 'tensor' (it belongs under 'parallelism')"),
    yaml(
        "plan",
        "  data: 4\n",
        "  data: 4\n  bucket_bytes: 1e6\n",
        "bucket_bytes",
        "unknown key 'bucket_bytes' (it belongs under 'communication')",
    ),
    yaml(
        "plan",
        "",
        "num_nodes: 16\n",
        "num_nodes",
        "unknown key 'num_nodes' (this is a key of a ClusterProfile, which is a document of its own)",
    ),
    yaml(
        "plan",
        "",
        "zebra: 16\n",
        "zebra",
        "unknown key 'zebra' (remove it, or keep it under extensions: {org.example: {zebra: …}})",
    ),
    # keys of other tools
    yaml(
        "plan",
        "  tensor: 8",
        "  tensor_model_parallel_size: 8",
        "tensor_model_parallel_size",
        "unknown key 'tensor_model_parallel_size' (write it as 'tensor')",
    ),
    yaml(
        "plan",
        "  micro_sequences: 1",
        "  per_device_train_batch_size: 1",
        "per_device_train_batch_size",
        "unknown key 'per_device_train_batch_size' (write it as 'micro_sequences')",
    ),
    yaml(
        "plan",
        "",
        "micro_batch_size: 1\n",
        "micro_batch_size",
        "unknown key 'micro_batch_size' (write it as 'batch.micro_sequences')",
    ),
    yaml(
        "plan",
        "  sharding: optimizer",
        "  zero_stage: 1",
        "zero_stage",
        "unknown key 'zero_stage' (write it as 'sharding'; ZeRO stage 1 is optimizer, 2 gradients, 3 parameters)",
    ),
    yaml(
        "cluster",
        "num_accelerators: 128",
        "num_gpus: 128",
        "num_gpus",
        "unknown key 'num_gpus' (write it as 'num_accelerators')",
    ),
    # missing keys and empty values
    yaml(
        "plan",
        "  global_sequences: 512\n",
        "",
        "batch",
        "batch lacks the key 'global_sequences' (add it: sequences of one optimizer step)",
    ),
    yaml(
        "cluster",
        "        role: compute\n        fabric: backend\n        num_per_node: 8\n        technology: infiniband\n",
        "        role: compute\n        fabric: backend\n",
        "name: rail",
        "node_groups[0].nics[0] lacks the keys 'num_per_node' and 'technology' "
        "(add them, or correct a key that should be one of them)",
    ),
    yaml(
        "cluster",
        "num_nodes: 16\n",
        "num_nodes:\n",
        "num_nodes",
        "the key has no value; a whole number is needed (give the value)",
    ),
    yaml(
        "cluster",
        CLOCK,
        CLOCK.replace("  ", ""),
        "clock",
        "the key has no value; a mapping is needed (indent its keys below it, or leave the key out)",
    ),
    yaml(
        "plan",
        "[rail]",
        "[~]",
        "~",
        "the item has no value; text is needed (give the value, or remove the item)",
    ),
    # kinds of values
    yaml(
        "plan", "num_parameters: 70.55e9", "num_parameters: 70B", "70B", "the text '70B' is not a number (write 70e9)"
    ),
    yaml(
        "cluster",
        "rate_bytes_per_second: 50e9",
        "rate_bytes_per_second: 400Gb/s",
        "400Gb/s",
        "the text '400Gb/s' is not a number (write 50e9, in bytes per second)",
    ),
    yaml(
        "cluster",
        "memory_bytes: 80e9",
        "memory_bytes: 80 GiB",
        "80 GiB",
        "the text '80 GiB' is not a number (write 85899345920, in bytes)",
    ),
    yaml(
        "cluster",
        "memory_bytes: 80e9",
        "memory_bytes: 80e9x",
        "80e9x",
        "the text '80e9x' is not a number (write a plain number in bytes, without unit, quotes or separators)",
    ),
    yaml(
        "cluster",
        "num_nodes: 16",
        'num_nodes: "16"',
        '"16"',
        "the text '16' is not a whole number (write 16, without quotes)",
    ),
    yaml("cluster", "num_nodes: 16", "num_nodes: 16.5", "16.5", "16.5 is not a whole number (write 16 or 17)"),
    yaml("cluster", "virtualised: false", "virtualised: no", "no", "the text 'no' is not true or false (write false)"),
    yaml(
        "cluster",
        "rails_joined: true",
        'rails_joined: "true"',
        '"true"',
        "the text 'true' is not true or false (write true, without quotes)",
    ),
    yaml("cluster", 'generation: "4"', "generation: 4", "4", '4 is not text (put it into quotes: "4")'),
    yaml(
        "plan",
        "cluster: {name: example-cluster}",
        "cluster: example-cluster",
        "example-cluster",
        "the text 'example-cluster' is not a mapping (write {name: example-cluster})",
    ),
    yaml(
        "plan", "nic_names: [rail]", "nic_names: rail", "rail", "the text 'rail' is not a list (write a list: [rail])"
    ),
    yaml(
        "plan",
        "    - {axis: tensor, within: scale-up-domain}\n    - {axis: data, within: fabric}\n"
        "    - {axis: pipeline, within: fabric}\n",
        "    tensor: scale-up-domain\n",
        "placements",
        "a mapping appears where a list is needed (start each item with '- ', also when there is only one)",
    ),
    yaml(
        "plan",
        "tensor: 8",
        "tensor: ${TENSOR}",
        "${TENSOR}",
        "the text '${TENSOR}' is not a whole number "
        "(this looks like a placeholder; put the value in before validating)",
    ),
    # words, ranges and forms
    yaml(
        "cluster",
        "transport: infiniband",
        "transport: RoCE v2",
        "RoCE v2",
        "'RoCE v2' is not a value of 'transport' (did you mean 'rocev2'?)",
    ),
    yaml(
        "cluster",
        "technology: nvlink",
        "technology: NVLink",
        "NVLink",
        "'NVLink' is not a value of 'technology' (did you mean 'nvlink'?)",
    ),
    yaml(
        "plan", "compute: bf16", "compute: bfloat16", "bfloat16", "'bfloat16' is not a value of 'compute' (write bf16)"
    ),
    yaml("plan", "sharding: optimizer", "sharding: 3", "3", "3 is not a value of 'sharding' (write parameters)"),
    yaml(
        "plan",
        "sharding: optimizer",
        "sharding: everything",
        "everything",
        "'everything' is not a value of 'sharding' (one of: gradients, none, optimizer, parameters)",
    ),
    yaml(
        "cluster",
        "memory_bytes: 80e9",
        "memory_bytes: 80",
        "80",
        "80 is too small; the least is 100e6 (100 MB) (the value is in bytes: 80 GB is 80e9)",
    ),
    yaml(
        "cluster",
        "power_usage_effectiveness: 1.2",
        "power_usage_effectiveness: 0.8",
        "0.8",
        "0.8 is too small; the least is 1 (write a value from 1 to 3)",
    ),
    yaml(
        "plan",
        "  coverage: 1\n",
        "  coverage: 95\n",
        "95",
        "95 is too large; the most is 1 (a share, not per cent: 95 % is 0.95)",
    ),
    yaml(
        "plan",
        "name: example-70b",
        "name: Example 70B!",
        "Example 70B!",
        "'Example 70B!' is not of the form that 'name' has "
        "(use letters, digits and . _ + - only, and start with a letter or a digit, such as Example-70B)",
    ),
    yaml("plan", "name: example-70b", 'name: ""', '""', "the text has 0 characters (write 1 to 128 characters)"),
    yaml(
        "plan",
        "",
        "extensions: {MyVendor: {a: 1}}\n",
        "MyVendor",
        "the key 'MyVendor' is not of the required form "
        "(use a domain name of yours from right to left, such as org.example)",
    ),
    # kind and version
    yaml(
        "cluster",
        "kind: ClusterProfile",
        "kind: Cluster",
        "Cluster",
        "kind is 'Cluster', which is none of ours (write kind: ClusterProfile)",
    ),
    yaml(
        "cluster",
        "kind: ClusterProfile",
        "kind: TrainingPlan",
        "TrainingPlan",
        "kind is TrainingPlan, but the keys are those of a ClusterProfile: num_nodes, num_accelerators, node_groups, … "
        "(write kind: ClusterProfile)",
    ),
    yaml("plan", "kind: TrainingPlan\n", "", "apiVersion", "the document has no kind (write kind: TrainingPlan)"),
    yaml(
        "plan",
        "apiVersion: trainspec/v1\n",
        "apiversion: trainspec/v1\n",
        "apiversion",
        "the key 'apiversion' is spelt apiVersion (write apiVersion)",
    ),
    yaml(
        "plan",
        "apiVersion: trainspec/v1\n",
        "apiVersion: v1\n",
        "v1",
        "apiVersion is 'v1', which this tool does not know (write apiVersion: trainspec/v1)",
    ),
    yaml(
        "plan",
        "apiVersion: trainspec/v1\n",
        "apiVersion: tr\N{CYRILLIC SMALL LETTER A}inspec/v1\n",
        "tr\N{CYRILLIC SMALL LETTER A}inspec/v1",
        "apiVersion is 'tr\N{CYRILLIC SMALL LETTER A}inspec/v1', which this tool does not know (write apiVersion: "
        "trainspec/v1; character 3 is U+0430, CYRILLIC SMALL LETTER A)",
    ),
    yaml(
        "plan",
        "kind: TrainingPlan\n",
        "kind: TrainingPl\N{CYRILLIC SMALL LETTER A}n\n",
        "TrainingPl\N{CYRILLIC SMALL LETTER A}n",
        "kind is 'TrainingPl\N{CYRILLIC SMALL LETTER A}n', which is none of ours (write kind: TrainingPlan; "
        "character 11 is U+0430, CYRILLIC SMALL LETTER A)",
    ),
    # references
    yaml(
        "plan",
        "cluster: {name: example-cluster}",
        "cluster: {file: clusters.yaml}",
        "clusters.yaml",
        "'clusters.yaml' does not exist (did you mean 'cluster.yaml'?)",
    ),
    yaml(
        "plan",
        "cluster: {name: example-cluster}",
        "cluster: {file: .}",
        ".",
        "'.' is not a file (name the file of the ClusterProfile)",
    ),
    yaml(
        "plan",
        "cluster: {name: example-cluster}",
        "cluster: {file: cluster.yaml, name: other}",
        "other",
        "'cluster.yaml' is named 'example-cluster', not 'other' (write name: example-cluster, or name another file)",
    ),
    # the text itself
    yaml(
        "plan",
        "name: example-plan",
        'name: "example-plan',
        '"',
        "the quote that opens here is closed only at line N, column N (close it where its text ends)",
    ),
    yaml(
        "plan",
        "data, pipeline]",
        "data, pipeline",
        "[",
        "this list lacks a ',' or its closing ']' before line N, column N "
        "(separate items by ',' and close the list with ']')",
    ),
    yaml(
        "plan",
        "within: scale-up-domain}",
        "within: scale-up-domain",
        "{",
        "this mapping lacks a ',' or its closing '}' before line N, column N "
        "(separate entries by ',' and close the mapping with '}')",
    ),
    yaml(
        "plan",
        "  tensor: 8",
        "  tensor: {{ tensor }}",
        "{",
        "'{{' opens a placeholder of a template (render the template first, and validate the result)",
    ),
    yaml(
        "plan",
        "  - {axis: tensor",
        "  -{axis: tensor",
        ":",
        "no blank follows the '-' of this list item (put a blank after the '-')",
    ),
    yaml(
        "plan",
        "  tensor: 8",
        "  tensor:\N{NO-BREAK SPACE}8",
        "t",
        "this line holds a no-break space (U+00A0) (replace it by a blank)",
    ),
]


@pytest.mark.parametrize(("name", "old", "new", "mark", "said"), ONE_MISTAKE)
def test_one_mistake_is_one_finding(name: str, old: str, new: str, mark: str, said: str) -> None:
    findings = judge(name, old, new).findings
    assert told(findings) == [said]
    assert findings[0].path == f"{name}.yaml"
    assert marked(findings[0]).startswith(mark)


@pytest.mark.parametrize(
    ("text", "place", "said"),
    [
        ('{"a": {"b": 1,},}', (1, 14), "a comma follows the last entry (remove the comma)"),
        (
            '{\n  // why\n  "a": 1}',
            (2, 3),
            "JSON has no comments (remove it, or name the file .yaml and start the comment with '#')",
        ),
        ("{'a': 1}", (1, 2), "JSON knows no single quotes (use double quotes)"),
        ('{"a": True}', (1, 7), "JSON spells this true (write true)"),
        (
            '{"a": [1, 2}',
            (1, 12),
            "a ',' or a closing bracket is missing here (separate entries by ',' and close every bracket)",
        ),
        ('{"a": [1, 2]\n', (1, 1), "this bracket is never closed (close it with '}')"),
        ("apiVersion: trainspec/v1\n", (1, 1), "this file is not JSON (name a file of YAML .yaml)"),
    ],
)
def test_json_mistakes(text: str, place: tuple[int, int], said: str) -> None:
    Path("plan.json").write_text(text, encoding="utf-8")
    (finding,) = validate(["plan.json"]).findings
    assert told([finding]) == [said]
    assert finding.span is not None
    assert (finding.span.line, finding.span.column) == place


@pytest.mark.parametrize(
    ("content", "said"),
    [
        ("kind: ü".encode("utf-16"), "the file is encoded in UTF-16 or UTF-32 (save it as UTF-8)"),
        ("kind: TrainingPlan".encode("utf-16-le"), "the file is encoded in UTF-16 or UTF-32 (save it as UTF-8)"),
        (bytes(range(256)) * 10, "this is a binary file, not text (name a YAML or JSON file)"),
    ],
)
def test_foreign_encodings(content: bytes, said: str) -> None:
    Path("plan.yaml").write_bytes(content)
    assert told(validate(["plan.yaml"]).findings) == [said]


@pytest.mark.parametrize("broken", ["kind: [", "num_node: 16"], ids=["unreadable", "misspelt"])
def test_a_reference_to_a_document_with_findings_is_not_called_dangling(broken: str) -> None:
    judge("cluster", "num_nodes: 16", broken)
    other = (BASE / "cluster.yaml").read_text(encoding="utf-8").replace("example-cluster", "other-cluster")
    Path("other.yaml").write_text(other, encoding="utf-8")
    assert {finding.path for finding in validate(["."]).findings} == {"cluster.yaml"}


@every("alias", KEYS.values(), ids=lambda alias: alias.path)
def test_aliases_lead_to_keys_of_the_schemas(alias: object) -> None:
    assert getattr(alias, "kind", "") in {"ClusterProfile", "TrainingPlan", "CheckpointPolicy"}
    path = tuple(getattr(alias, "path", "").split("."))
    assert path[:-1] in key_paths(load_schema(getattr(alias, "kind", ""))).get(path[-1], ())


def test_aliases_are_no_keys_of_ours() -> None:
    for foreign, alias in KEYS.items():
        paths = key_paths(load_schema(alias.kind))
        assert not any(fold(key) == foreign for key in paths if tuple(alias.path.split("."))[:-1] in paths[key])


def options() -> set[str]:
    found: set[str] = set()

    def walk(node: object) -> None:
        if isinstance(node, dict):
            found.update(option for option in node.get("enum", ()) if isinstance(option, str))
            for inner in node.values():
                walk(inner)

    for kind in ("ClusterProfile", "TrainingPlan", "CheckpointPolicy"):
        walk(load_schema(kind))
    return found


def test_words_of_other_tools_lead_to_words_of_the_schemas() -> None:
    assert {ours for words in VALUES.values() for ours in words} <= options()


@pytest.mark.parametrize(
    ("word", "ours"),
    [("dragonfly+", "dragonfly"), ("megafly", "dragonfly"), ("spine-leaf", "fat-tree"), ("slim-fly", "other")],
)
def test_names_of_topologies_lead_to_values(word: str, ours: str) -> None:
    report = judge("cluster", "topology: rail-optimised", f"topology: {word}")
    assert [finding.help for finding in report.findings] == [f"write {ours}"]


def test_every_form_of_the_schemas_is_put_into_words() -> None:
    found: set[str] = set()

    def walk(node: object) -> None:
        if isinstance(node, dict):
            found.update({node["pattern"]} if isinstance(node.get("pattern"), str) else ())
            for key, inner in node.items():
                if key != "x-requirements":
                    walk(inner)

    for kind in ("ClusterProfile", "TrainingPlan", "CheckpointPolicy", "Waivers"):
        walk(load_schema(kind))
    assert found == set(FORMS)


@pytest.mark.parametrize(
    ("text", "unit", "number"),
    [
        ("400 Gbps", "By/s", 50e9),
        ("50GB/s", "By/s", 50e9),
        ("400G", "By/s", None),
        ("80 GB", "By", 80e9),
        ("80 Gb", "By", None),
        ("1.5TB", "By", 1.5e12),
        ("7d", "s", 604800),
        ("30 min", "s", 1800),
        ("5%", "1", 0.05),
        ("5%", "By", None),
        ("989 TFLOPS", "{flop}/s", 989e12),
        ("10.2 kW", "W", 10200),
        ("64k", "", 64000),
        ("80_000_000", "By", 80e6),
        ("80,000", "By", 80000),
        ("1,5", "", None),
        ("1.2.3", "", None),
        ("9" * 40, "", None),
        ("9" * 400, "", None),
        ("twelve", "", None),
        ("-5 GB", "By", None),
    ],
)
def test_quantities_as_people_write_them(text: str, unit: str, number: float | None) -> None:
    assert read_quantity(text, unit) == number


@pytest.mark.parametrize(
    ("number", "text"),
    [
        (1800, "1800"),
        (50e9, "50e9"),
        (70.55e9, "70.55e9"),
        (4194304, "4194304"),
        (0.0001, "0.0001"),
        (1e-9, "1e-09"),
        (-16, "-16"),
        (1e300, "1e300"),
        (10**400, "1e400"),
    ],
)
def test_numbers_as_documents_write_them(number: float, text: str) -> None:
    assert written(number) == text


def test_numbers_in_words() -> None:
    shown = [in_words(80e9, "By"), in_words(50, "By"), in_words(7200, "s"), in_words(0.002, "s"), in_words(5, "1")]
    assert shown == ["80 GB", "", "2 h", "2 ms", ""]


def many(number: int) -> Report:
    findings = tuple(
        Finding("TS-DOC-005", "known-keys", Severity.ERROR, f"unknown key '{i}'", "a.yaml") for i in range(number)
    )
    return Report(findings)


@pytest.mark.parametrize("style", ["full", "concise"])
def test_reports_for_people_are_cut(style: str) -> None:
    assert "more of" not in render(many(MAX_SHOWN), style)
    text = render(many(10_000), style)
    assert f"\n… and {10_000 - MAX_SHOWN:,} more of TS-DOC-005; --format json has all\n" in text
    assert text.count("unknown key") == MAX_SHOWN
    assert "10000 errors" in text


def test_reports_for_programs_are_whole() -> None:
    assert render(many(200), "json").count("unknown key") == 200


@pytest.mark.parametrize(
    ("argument", "said"),
    [
        ("", "a path is empty; write . for the working directory"),
        ("a" * 5000, "a" * 5000 + ": no such file or directory"),
        ("***", "***: this is not a pattern; write ** only as a whole step, as in a/**/b*"),
        ("loop.yaml", "loop.yaml: the link leads nowhere"),
    ],
)
def test_paths_that_lead_nowhere(argument: str, said: str) -> None:
    Path("loop.yaml").symlink_to("loop.yaml")
    with pytest.raises(InputError) as caught:
        validate([argument])
    assert caught.value.args == (said,)


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("--baseline", "no.json"), "no.json: no such file or directory; check the name, or write it with"),
        (("--waivers", "no.yaml"), "no such file or directory (check the name; if the file was there, run again"),
        (("--rules", "no.yaml"), "no such file or directory; check the name; if the file was there, run again"),
        (("--config", "no.toml"), "no such file or directory; check the name; if the file was there, run again"),
        (("--follow",), "cluster.yaml: --follow judges streams, and no PATH is one; name the stream too"),
    ],
)
def test_wrong_use_names_what_would_be_right(arguments: tuple[str, ...], said: str) -> None:
    Path("cluster.yaml").write_text("apiVersion: trainspec/v1\nkind: ClusterProfile\n", encoding="utf-8")
    command = [sys.executable, "-m", "trainspec_validate", *arguments, "cluster.yaml"]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=600)
    assert (done.returncode, done.stdout) == (2, "")
    assert said in done.stderr


@pytest.mark.parametrize(
    ("argument", "end"),
    [
        ("nosuch.yaml", "directory"),
        ("clutser.yaml", "'cluster.yaml'?"),
        ("cluster.yml", "'cluster.yaml'?"),
        ("s.json", "'s.jsonl'?"),
    ],
)
def test_a_common_suffix_is_no_likeness(argument: str, end: str) -> None:
    for name in ("c.yaml", "cluster.yaml", "s.jsonl", "s.yaml.bak"):
        Path(name).touch()
    with pytest.raises(InputError) as caught:
        validate([argument])
    assert caught.value.args[0].endswith(end)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("a = " + "1" * 5000, "an integer in it has more digits than can be read; write a shorter number"),
        ('baseline = "a\\u0000b"', "the name of a file has a NUL character; write the name without it"),
    ],
)
def test_settings_are_refused_in_words_of_the_format(text: str, said: str) -> None:
    Path("trainspec.toml").write_text(text + "\n", encoding="utf-8")
    done = subprocess.run([sys.executable, "-m", "trainspec_validate"], capture_output=True, text=True, check=False)
    assert done.returncode == 2
    assert done.stderr.endswith(f"trainspec.toml: the settings cannot be read: {said}\n")


def test_closed_standard_input() -> None:
    command = f"'{sys.executable}' -m trainspec_validate - <&-"
    done = subprocess.run(["/bin/sh", "-c", command], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout, done.stderr) == (2, "", "Error: standard input is closed\n")


def test_errors_of_use_are_short_and_harmless() -> None:
    command = [sys.executable, "-m", "trainspec_validate", "--select", "\x1b[31m" + "a" * 50_000]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 2
    assert "\x1b" not in done.stderr
    assert len(done.stderr) < 1000


def test_a_degree_that_divides_nothing_is_named_once() -> None:
    """Three sizes that do not divide over the tensor ranks are one slip in the degree."""
    findings = [f for f in judge("plan", "  tensor: 8", "  tensor: 3").findings if f.requirement == "TS-PAR-016"]
    said = "64 attention heads and 28,672 feed-forward columns do not divide over 3 tensor ranks"
    assert told(findings) == [f"{said} (use tensor 2, or another divisor of them)"]
    assert marked(findings[0]) == "3"
    assert [related.pointer[-1] for related in findings[0].related] == ["num_attention_heads", "ffn_hidden_size"]


@pytest.mark.parametrize(
    ("new", "said"),
    [
        (
            "  tensor: 16",
            (
                "tensor groups reach over 16 consecutive ranks (degree 16, adjacent ranks), "
                "but a scale-up domain holds 8 "
                "(place it within a larger thing, move it inwards in the order, or use degree 8)"
            ),
        ),
        (
            "  tensor: 3",
            (
                "tensor groups reach over 3 consecutive ranks (degree 3, adjacent ranks), "
                "but a scale-up domain holds 8, "
                "which is no multiple of 3 (place it within a larger thing, or move it inwards in the order)"
            ),
        ),
    ],
)
def test_why_a_group_does_not_fit(new: str, said: str) -> None:
    findings = judge("plan", "  tensor: 8", new).findings
    assert said in told(finding for finding in findings if finding.requirement == "TS-TOP-020")


def test_no_remedy_writes_numbers_as_no_document_does() -> None:
    """`5e+10` and `1,800` are no numbers that one would copy into a document."""
    for name, old, new in (
        ("cluster", "rate_bytes_per_second: 50e9", "rate_bytes_per_second: 400e9"),
        ("cluster", "bandwidth_bytes_per_second: 450e9", "bandwidth_bytes_per_second: 900e9"),
        ("checkpoint", "seconds: 1800", "seconds: 3600"),
        ("checkpoint", "num_parameters: 70.55e9", "num_parameters: 7e9"),
        ("checkpoint", "recovery_point_seconds: 1900", "recovery_point_seconds: 600"),
    ):
        findings = judge(name, old, new).findings
        assert findings
        assert not [f.help for f in findings if re.search(r"e\+|(write|promise|to) \d+,\d{3}", f.help)]


def test_starter_comments_say_figures_as_people_do() -> None:
    assert said("  replacement_seconds: 86400", "replace") == "replace: 1 d"
    assert said("  memory_bytes: 80e9", "catalog") == "catalog: 80 GB"
    assert said("  rate_bytes_per_second: 50e9", "replace: one way") == "replace: 50 GB/s, one way"
    assert said("  timeout_seconds: 85", "derived: from both") == "derived: from both"
    assert said("  num_nodes: 16", "chosen") == "chosen"
    assert said("  memory_bytes: 80e9", "") == ""


def test_chapters_are_chosen_with_and_without_their_prefix() -> None:
    assert resolve(["PAR", "ts-par", "TS-COM,par"], load_index()) == ("TS-PAR", "TS-COM")


def test_null_is_told_as_it_stands() -> None:
    assert shown(None) == "null"
    assert judge("plan", "  schedule: 1f1b", "  schedule: null").findings


@pytest.mark.parametrize(
    ("name", "old", "new", "said"),
    [
        (
            "plan",
            "  num_steps:",
            "  num_st\N{CYRILLIC SMALL LETTER IE}ps:",
            "'num_steps'? character 7 is U+0435, CYRILLIC",
        ),
        (
            "cluster",
            "role: storage",
            "role: storag\N{CYRILLIC SMALL LETTER IE}",
            "character 7 is U+0435, CYRILLIC SMALL",
        ),
        ("plan", "name: example-plan", "name: ex\N{ZERO WIDTH SPACE}ample", "character 3 is U+200B, ZERO WIDTH SPACE"),
        ("cluster", "num_nodes: 16", "num_nodes: 16# two", "a comment starts after a blank: write 16 # two"),
        ("plan", "compute: bf16", "compute: bf16# x", "a comment starts after a blank: write bf16 # x"),
        ("plan", "compute: bf16", "compute: fp8", "such as compute: bf16, and add recipe: {format: fp8-hybrid}"),
        ("plan", "compute: bf16", "compute: mxfp8", "such as compute: bf16, and add recipe: {format: mxfp8}"),
        ("plan", "learning_rate: {rule: none}", "learning_rate: 3e-4", "the key says how the learning rate follows"),
        ("cluster", "generation: ndr\n", "generation: ndr400\n", "did you mean 'ndr'?; it carries 400 Gb/s"),
        ("cluster", "generation: ndr\n", "generation: ndr-200\n", "did you mean 'ndr'?; it carries 400 Gb/s"),
        ("plan", "vocabulary_size: 128256", "", "give it, or set family: other"),
        ("plan", "  num_layers: 80", "  num_layers: 81", "81 layers do not divide over 4 stages"),
        (
            "plan",
            "schedule: 1f1b",
            "schedule: interleaved-1f1b\n  num_virtual_stages: 3",
            "80 layers do not divide over 12 chunks (4 stages x 3)",
        ),
        (
            "plan",
            "\njob:\n",
            "\noptimizer: {name: lion, moments: [fp32, fp32]}\njob:\n",
            "lion keeps 1 moment of each parameter, but 2 are declared",
        ),
        ("checkpoint", "size_bytes: 988e9", "size_bytes: 988e3", "is 1.4e-05 bytes each"),
        ("plan", "reserve_bytes: 4e9", "reserve_bytes: 70e9", "free at most, or shard the state over more ranks"),
    ],
)
def test_what_would_be_right(name: str, old: str, new: str, said: str) -> None:
    assert [text for text in told(judge(name, old, new).findings) if said in text]


def test_what_is_proposed_as_a_recipe_is_one() -> None:
    for proposed in {text[text.index("recipe:") :] for text in REMEDIES.values()}:
        report = judge("plan", "compute: bf16", f"compute: bf16\n  {proposed}")
        assert [f for f in report.findings if f.requirement.startswith("TS-DOC")] == []


@pytest.mark.parametrize(
    ("text", "one"),
    [
        ("12 compute NICs for 1 accelerators", "12 compute NICs for 1 accelerator"),
        ("1 sequences for 11 ranks", "1 sequence for 11 ranks"),
        ("1 sequences of 8,192 tokens are 8,192", "1 sequence of 8,192 tokens is 8,192"),
        ("1 steps are 4,096 tokens, not 5", "1 step is 4,096 tokens, not 5"),
        ("every step: 1 steps of 3.5 s are 3.5 s", "every step: 1 step of 3.5 s is 3.5 s"),
        ("1 of 3 ranks are late", "1 of 3 ranks are late"),
        ("1 of 3 ranks", "1 of 3 ranks"),
        ("8 x 1 ranks, 0.1 steps, 2-1 nodes, v1 links", "8 x 1 ranks, 0.1 steps, 2-1 nodes, v1 links"),
        ("1 switches, 1 data copies", "1 switch, 1 data copy"),
    ],
)
def test_one_thing_is_not_many(text: str, one: str) -> None:
    assert singular_of_one(text) == one


COUNTS_OF_ONE = {
    "the row has 1 cells, and the header 2": "the row has 1 cell, and the header 2",
    "1 switches have several parents, for example s1": "1 switch has several parents, for example s1",
    "1 devices are named by cables but not listed": "1 device is named by cables but not listed",
    "the layout has 1 chunks, the stages have 4": "the layout has 1 chunk, the stages have 4",
    "11 entries of 21 records": "11 entries of 21 records",
    "rank 1 needs 1 bytes": "rank 1 needs 1 byte",
}


@pytest.mark.parametrize(("text", "told"), COUNTS_OF_ONE.items())
def test_one_thing_is_not_many_in_findings_and_remarks(text: str, told: str) -> None:
    index = load_index()
    requirement = next(iter(index.by_id.values()))
    finding = index.finding(requirement, text, text, "file.yaml")
    assert (finding.message, finding.help, Remark(text).message, singular_of_one(text)) == (told,) * 4


def test_a_message_of_a_rule_counts_one_thing_as_one() -> None:
    new = "num_accelerators_per_node: 1\n    accelerator:"
    report = judge("cluster", "num_accelerators_per_node: 8\n    accelerator:", new)
    texts = told(report.findings)
    assert [text for text in texts if re.search(r"8 compute NICs for 1 accelerator\b(?!s)", text)]
    assert not [text for text in texts if "1 accelerators" in text]


def test_a_short_value_with_a_letter_of_another_script_names_it() -> None:
    [found] = judge("cluster", "discipline: ptp", "discipline: \N{CYRILLIC SMALL LETTER ER}tp").findings
    assert found.help == "one of: gps, none, ntp, ptp; character 1 is U+0440, CYRILLIC SMALL LETTER ER"


def test_a_figure_that_only_the_catalog_replaces_is_asked_for() -> None:
    [found] = judge("cluster", "      memory_bytes: 80e9", "      memory_bytes:").findings
    assert found.help == "give the value, or leave the key out for an accelerator of the catalog"
    [found] = judge("cluster", "      num_cores: 96", "      num_cores:").findings
    assert found.help == "give the value, or leave the key out"


def test_a_mapping_of_any_keys_without_a_value_beside_an_unknown_key_is_a_finding(tmp_path: Path) -> None:
    path = tmp_path / "cluster.yaml"
    path.write_text("apiVersion: trainspec/v1\nkind: ClusterProfile\nmetadata:\n  name: x\n  driver: 1\n  labels:\n")
    found = {(one.requirement, one.span.line) for one in validate([path]).findings if one.span}
    assert found >= {("TS-DOC-005", 5), ("TS-DOC-007", 6)}


def _ranges(kind: str) -> list[tuple[str, Any, dict[str, Any]]]:
    """Every bound in the schema of a kind, with a value beyond it."""
    found: list[tuple[str, Any, dict[str, Any]]] = []
    pending: list[Any] = [load_schema(kind)]
    while pending:
        node = pending.pop()
        pending += node.values() if isinstance(node, dict) else node if isinstance(node, list) else ()
        for key in ("minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum"):
            if isinstance(node, dict) and isinstance(node.get(key), int | float):
                step = -(abs(node[key]) + 1) if key.endswith("inimum") else abs(node[key]) + 1
                found.append((key, node[key] + step, node))
    return found


@pytest.mark.parametrize("kind", KINDS)
def test_a_value_beyond_its_bounds_is_told_what_would_be_right(kind: str) -> None:
    ranges = _ranges(kind)
    assert len(ranges) > 50
    for key, value, subschema in ranges:
        _, remedy = _range_message(key, value, subschema)
        assert remedy, subschema


@pytest.mark.parametrize(
    ("name", "old", "new"),
    [
        ("plan", "global_sequences: 512", "global_sequences: 134217728"),
        ("plan", "micro_sequences: 1", "micro_sequences: 134217728"),
        ("plan", "global_tokens: 4194304", "global_tokens: 1073741824"),
        ("checkpoint", "retention:\n  num_kept: 4", "retention:\n  num_kept: 2360"),
    ],
)
def test_the_largest_jobs_are_within_bounds(name: str, old: str, new: str) -> None:
    assert "TS-DOC-009" not in {finding.requirement for finding in judge(name, old, new).findings}
