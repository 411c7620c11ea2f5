"""The generated parts of the site: short addresses, links to the repository, changes, figures, versions, the twin."""

from __future__ import annotations

import importlib.util
import json
import re
import sys
from pathlib import Path
from types import ModuleType
from typing import Any
from xml.etree import ElementTree as ET

import pytest
import yaml
from site_visit import ROOT
from trainspec_site import (
    alert_page,
    as_files,
    changes,
    document_pages,
    editor_modules,
    figures,
    navigation,
    npm,
    redirects,
    rule_pages,
    search_words,
    stage,
    stream_examples,
    term_links,
)

from trainspec_validate.checking.selection import Selection
from trainspec_validate.documents import schema
from trainspec_validate.model.metrics import metrics
from trainspec_validate.pipeline.validation import validate

INDEX = stage.requirements(ROOT)
BROKEN: list[tuple[str, Any]] = [
    ("TrainingPlan", {}),
    ("TrainingPlan", {"apiVersion": "trainspec/v1", "kind": "TrainingPlan", "modell": {}, "model": None}),
    ("TrainingPlan", {"parallelism": {"tensor": "x", "bogus": 1}, "batch": {"global_sequences": 0}}),
    ("ClusterProfile", {"num_nodes": -1, "node_groups": [], "metadata": {"name": "a b"}, "extensions": {"x": 1}}),
    ("ClusterProfile", {"node_groups": [{"num_nodes": 1.5, "accelerator": {"peak_rates": [{"format": "b"}]}}]}),
    ("CheckpointPolicy", {"recovery": [{"fault": "none"}], "interval": {"steps": True}, "tiers": "x"}),
]


@pytest.fixture
def twin(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    """The module that stands for jsonschema_rs in a browser."""
    path = ROOT / "tools" / "trainspec_site" / "in_browser" / "jsonschema_rs.py"
    spec = importlib.util.spec_from_file_location("twin_of_jsonschema_rs", path)
    assert spec
    assert spec.loader
    module = importlib.util.module_from_spec(spec)
    monkeypatch.setitem(sys.modules, spec.name, module)
    spec.loader.exec_module(module)
    return module


def told(kind: str, data: Any) -> list[str]:
    return sorted(map(str, schema.failures(kind, data)))


@pytest.mark.parametrize(("kind", "data"), BROKEN)
def test_the_playground_judges_schemas_as_the_program_does(
    twin: ModuleType, monkeypatch: pytest.MonkeyPatch, kind: str, data: Any
) -> None:
    schema._validator.cache_clear()
    expected = told(kind, data)
    schema._validator.cache_clear()
    monkeypatch.setitem(sys.modules, "jsonschema_rs", twin)
    try:
        assert expected
        assert told(kind, data) == expected
    finally:
        schema._validator.cache_clear()


def records_in_browser(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    monkeypatch.syspath_prepend(str(ROOT / "tools" / "trainspec_site" / "in_browser"))
    monkeypatch.delitem(sys.modules, "records", raising=False)
    module = importlib.import_module("records")
    monkeypatch.delitem(sys.modules, "records")
    return module


def test_the_playground_judges_records_as_the_program_does(monkeypatch: pytest.MonkeyPatch) -> None:
    path = ROOT / "examples" / "broken" / "records.jsonl"
    judged = records_in_browser(monkeypatch).judge_records("records.jsonl", path.read_text(encoding="utf-8"))
    report = validate([path], Selection(select=("TS-TEL-001", "TS-TEL-002", "TS-TEL-015", "TS-TEL-016")))
    told = [(one.requirement, one.message, one.help, one.span and one.span.line) for one in report.findings]
    assert told
    assert [(one.requirement, one.message, one.help, one.span.line) for one in judged.findings] == told
    assert (judged.num_records, judged.num_damaged) == (3, 5)


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("", [("TS-TEL-001", 1)]),
        ('{"k":"m","time_us":1,"seq":0,"m":{}}\nx\n', [("TS-TEL-002", 1), ("TS-TEL-001", 2)]),
        ("\ud800", [("TS-TEL-001", 1)]),
    ],
)
def test_the_playground_tells_what_is_no_stream(
    monkeypatch: pytest.MonkeyPatch, text: str, told: list[tuple[str, int]]
) -> None:
    judged = records_in_browser(monkeypatch).judge_records("job.jsonl", text)
    assert [(one.requirement, one.span.line) for one in judged.findings] == told


def test_a_short_address_leads_to_the_place() -> None:
    entry = {"id": "TS-PAR-001", "title": "A & B", "chapter": "04-parallelism"}
    (path, text), *rest = redirects.redirects([entry]).items()
    assert path == "TS-PAR-001/index.html"
    assert 'content="0; url=../v1/04-parallelism/#TS-PAR-001"' in text
    assert "A &amp; B" in text
    assert rest == []


def test_links_out_of_the_pages_lead_to_the_repository(tmp_path: Path) -> None:
    page = tmp_path / "spec" / "v1" / "a.md"
    page.parent.mkdir(parents=True)
    (tmp_path / "LICENSE").touch()
    written = "[l](../../LICENSE) [b](b.md#c)\n\n```yaml\n[x](../../LICENSE)\n```\n"
    text = stage.with_repository_links(written, page, tmp_path, "https://host/blob")
    assert text == "[l](https://host/blob/LICENSE) [b](b.md#c)\n\n```yaml\n[x](../../LICENSE)\n```\n"
    with pytest.raises(stage.BrokenLinkError, match=r"spec/v1/a\.md: \.\./\.\./LICENCE does not exist"):
        stage.with_repository_links("[l](../../LICENCE)", page, tmp_path, "https://host/blob")


def test_without_an_address_of_the_repository_its_files_are_named(tmp_path: Path) -> None:
    page = tmp_path / "spec" / "v1" / "a.md"
    page.parent.mkdir(parents=True)
    (tmp_path / "LICENSE").touch()
    written = "[the [full] words](../../LICENSE#mit) [`LICENSE`](../../LICENSE) [b](b.md#c)\n"
    text = stage.with_repository_links(written, page, tmp_path, "")
    assert text == "the [full] words (`LICENSE` in the repository) `LICENSE` (in the repository) [b](b.md#c)\n"


def test_changes_are_told_between_indexes(tmp_path: Path) -> None:
    gone, kept, new = ({**entry} for entry in INDEX[:3])
    (tmp_path / "1.0.json").write_text(json.dumps({"requirements": [gone, kept]}), encoding="utf-8")
    later = {**kept, "level": "MAY", "why": "Another."}
    text = changes.page(tmp_path, "1.1", [later, new])
    newest = text[text.index("## Version 1.1") : text.index("## Version 1.0")]
    assert "1 added, 1 removed, 1 changed." in newest
    assert f"- {gone['id']} ({gone['level']})" in newest
    assert f"level {kept['level']} → MAY; the reason is worded anew" in newest
    assert "The first version: 2 requirements" in text


def test_a_version_that_is_kept_at_its_release_is_told_once(tmp_path: Path) -> None:
    (tmp_path / "1.0.json").write_text(json.dumps({"requirements": INDEX[:2]}), encoding="utf-8")
    text = changes.page(tmp_path, "1.0", INDEX[:2])
    assert text.count("## Version 1.0") == 1
    assert "The first version: 2 requirements" in text


def test_a_page_begins_with_its_title_and_not_with_how_it_was_made() -> None:
    made = "<!-- Generated -->\n\n# Title\n"
    assert stage.MADE_BY.sub(lambda found: found["settings"] or "", made) == "# Title\n"
    settings = "---\nhide:\n  - toc\n---\n"
    assert stage.MADE_BY.sub(lambda found: found["settings"] or "", settings + made) == settings + "# Title\n"
    assert stage.MADE_BY.sub("", "# Title\n\n<!-- note -->\n") == "# Title\n\n<!-- note -->\n"


def test_chapters_of_one_number_stand_as_the_front_page_lists_them() -> None:
    text = navigation.settings(ROOT)
    order = ["v1/10-checkpoints.md", "v1/10-saves.md", "v1/10-manifest.md", "v1/11-recovery.md", "v1/11-lost-work.md"]
    places = [text.index(f"- {name}\n") for name in order]
    assert places == sorted(places)


def test_the_page_of_a_requirement_leads_to_what_checks_it() -> None:
    checked = {"runtime": "Scenario: [conformance/scenarios/", "schema": "In the schemas:", "manual": "*Checklist:* "}
    pages = stage.rule_pages_of(ROOT)
    assert len(pages) == 1 + len(INDEX)
    for entry in INDEX:
        text = pages[f"rules/{rule_pages.page_path(entry['id'])}"]
        if entry["check"] in checked:
            assert checked[entry["check"]] in text, entry["id"]


def properties(schema: Any) -> int:
    own = len(schema.get("properties", {}))
    return own + sum(len(part.get("properties", {})) for part in schema.get("$defs", {}).values())


def test_every_key_of_a_document_has_a_row_with_its_meaning() -> None:
    pages = document_pages.pages(ROOT, INDEX)
    found = 0
    for path in (ROOT / "schemas" / "v1").glob("*.schema.json"):
        schema = json.loads(path.read_text(encoding="utf-8"))
        if f"{schema['title']}.md" in pages:
            rows = re.findall(r"^\| (?:\*\*)?`.*\|$", pages[f"{schema['title']}.md"], re.MULTILINE)
            assert len(rows) == properties(schema), path.name
            found += len(rows)
    assert found > 400


def test_a_key_has_its_unit_an_example_and_the_requirements_that_concern_it() -> None:
    text = document_pages.pages(ROOT, INDEX)["ClusterProfile.md"]
    (row,) = re.findall(r"^\| (?:\*\*)?`bandwidth_bytes_per_second`.*TS-CLU-010.*\|$", text, re.MULTILINE)
    cells = [cell.strip() for cell in re.split(r"(?<!\\)\|", row)]
    assert cells[3] == "`By/s`"
    assert re.search(r"\d", cells[6])


def test_no_level_of_the_menu_has_more_than_twelve_entries() -> None:
    text = navigation.settings(ROOT)
    levels = [yaml.safe_load(text[text.index(navigation.START) :])["nav"]]
    for level in levels:
        assert len(level) <= 12, level
        groups = [below for entry in level if isinstance(entry, dict) for below in entry.values()]
        levels += [group for group in groups if isinstance(group, list)]
    assert len(levels) > 10


def test_terms_have_tooltips_at_their_first_use() -> None:
    meanings = term_links.definitions('# Terms\n\n### data rank\n\nA rank (one of `DP`) with a "copy". More.\n')
    assert meanings == {"data-rank": "A rank with a 'copy'."}
    terms = "Terms: [data rank](00-terms.md#data-rank), [rank](00-terms.md#rank).\n\n"
    code = "```yaml\nrank: 1\n```\n"
    found = term_links.with_tooltips(f"# A rank\n\n{terms}{code}`rank`, data\nranks and rank. A data rank.\n", meanings)
    link = "[data\nranks](00-terms.md#data-rank \"A rank with a 'copy'.\")"
    assert found == f"# A rank\n\n{code}`rank`, {link} and [rank](00-terms.md#rank). A data rank.\n"


def test_a_term_is_no_beginning_of_another_word() -> None:
    terms = "Terms: [plan](00-terms.md#plan), [mesh](00-terms.md#mesh).\n\n"
    found = term_links.with_tooltips(f"# A fabric\n\n{terms}Planes of meshes. Plans of one.\n", {})
    assert found == "# A fabric\n\nPlanes of [meshes](00-terms.md#mesh). [Plans](00-terms.md#plan) of one.\n"


def test_every_term_of_a_page_is_defined() -> None:
    meanings = term_links.definitions((ROOT / "spec" / "v1" / "00-terms.md").read_text(encoding="utf-8"))
    pages = [path.read_text(encoding="utf-8") for path in (ROOT / "spec" / "v1").glob("*.md")]
    named = {found["slug"] for page in pages for found in term_links.TERM.finditer(page)}
    assert named
    assert named <= {slug for slug, meaning in meanings.items() if meaning}


def test_a_link_to_a_requirement_of_its_chapter_holds_on_the_page_of_a_requirement() -> None:
    entry = INDEX[0] | {"statement": "See [TS-DOC-002](#TS-DOC-002) and [files](10-artifacts.md)."}
    text = rule_pages.page(entry, rule_pages.SchemaPlaces(), "")
    assert f"See [TS-DOC-002](../../v1/{entry['chapter']}.md#TS-DOC-002) and [files](../../v1/10-artifacts.md)." in text


def test_every_page_is_in_the_navigation() -> None:
    text = navigation.settings(ROOT)
    pages = [path.relative_to(ROOT / "spec").as_posix() for path in (ROOT / "spec").rglob("*.md")]
    assert not [page for page in [*pages, "rules/index.md"] if f" {page}\n" not in text]


@pytest.mark.parametrize("name", [path.stem for path in sorted((ROOT / "spec" / "figures").glob("*.svg"))])
def test_a_figure_has_words_for_those_who_do_not_see_it(name: str) -> None:
    root = ET.fromstring(figures.figures(ROOT)[f"{name}.svg"])
    title, words = root[0], root[1]
    assert title.text
    assert words.text
    assert len(words.text) > 80
    assert root.get("role") == "img"


def test_the_time_line_has_the_marks_of_the_chapter() -> None:
    chapter = (ROOT / "spec" / "v1" / "11-recovery.md").read_text(encoding="utf-8")
    text = figures.recovery_line(chapter).text()
    assert all(f">{mark}<" in text for mark in ("fault", "detected", "restored", "first step", "caught up"))
    assert all(f">{phase}<" in text for phase in ("detect", "decide", "restart", "restore", "replay"))


def test_what_is_released_stays_as_it_was(tmp_path: Path) -> None:
    pytest.importorskip("mike", reason="mike is not installed: run make site-test")
    from trainspec_site import versions

    page = tmp_path / "built" / "index.html"
    page.parent.mkdir()
    page.write_text("first", encoding="utf-8")
    stores = [tmp_path / name for name in ("a", "b", "c")]
    versions.publish(page.parent, versions.Version("1.0", "Approved"), stores[0])
    page.write_text("second", encoding="utf-8")
    with pytest.raises(versions.FrozenVersionError, match=r"1\.0 is Approved"):
        versions.publish(page.parent, versions.Version("1.0", "Approved"), stores[1], stores[0])
    versions.publish(page.parent, versions.Version("1.1-draft", "Draft"), stores[2], stores[0])
    versions.export(stores[2], tmp_path / "www")
    assert (tmp_path / "www" / "latest" / "index.html").read_text(encoding="utf-8") == "first"
    assert (tmp_path / "www" / "draft" / "index.html").read_text(encoding="utf-8") == "second"


def test_modules_of_the_editor_import_each_other_by_file() -> None:
    names = {"@codemirror/state": "codemirror-state.js", "crelt": "crelt.js"}
    text = (
        "import { A } from '@codemirror/state';\nimport elt from \"crelt\";\nexport function f() { return 'crelt'; }\n"
    )
    assert editor_modules.by_file("x", text, names) == (
        "import { A } from './codemirror-state.js';\nimport elt from \"./crelt.js\";\n"
        "export function f() { return 'crelt'; }\n"
    )
    with pytest.raises(npm.AssetError, match="x imports left-pad, which is not locked"):
        editor_modules.by_file("x", "export { pad } from 'left-pad';\n", names)


def test_the_page_of_a_requirement_says_its_facts_and_leads_to_its_neighbours() -> None:
    text = rule_pages.pages(INDEX, ROOT / "schemas" / "v1", {})
    assert '<span class="ts-fact ts-must">MUST</span>' in text["PAR/TS-PAR-001.md"]
    assert "](TS-PAR-000.md)" not in text["PAR/TS-PAR-001.md"]
    for name, page in text.items():
        for target in re.findall(r"\]\((TS-[A-Z]+-\d+\.md)\)", page):
            assert f"{name.partition('/')[0]}/{target}" in text
    assert all(page.count("[All requirements](../index.md)") == 1 for name, page in text.items() if "/" in name)
    alone = [name for name, page in text.items() if "/" in name and "\u2190" not in page]
    assert len(alone) == len({name.partition("/")[0] for name in text if "/" in name})


def test_the_search_finds_concepts_before_requirements(tmp_path: Path) -> None:
    index = tmp_path / "search" / "search_index.json"
    index.parent.mkdir()
    locations = [
        "v1/04-parallelism/#TS-PAR-001",
        "rules/PAR/TS-PAR-001/",
        "rules/PAR/TS-PAR-001/#bad-example",
        "v1/00-terms/#plan",
        "guide/plan/",
        "rules/",
        *search_words.PLACES,
    ]
    text = "<p>The rule.</p> <p>Bad:</p> a.yaml<pre><code>key: 1</code></pre>"
    index.write_text(json.dumps({"docs": [{"location": place, "text": text} for place in locations]}), encoding="utf-8")
    scripts = tmp_path / "assets" / "javascripts"
    scripts.mkdir(parents=True)
    (scripts / "bundle.1.js").write_text(
        'location.protocol==="file:"?a(`${new URL("search/search_index.js")`)', encoding="utf-8"
    )
    worker = scripts / "workers" / "search.1.min.js"
    worker.parent.mkdir()
    names_of_nodes = "t.TokenSet.prototype.toString=function(){var s=r[i],o=this.edges[s];e=e+s+o.id}return e}"
    worker.write_text(names_of_nodes, encoding="utf-8")
    as_files.write_index(tmp_path)
    assert worker.read_text(encoding="utf-8") == names_of_nodes.replace("o.id", 'o.id+","')
    found = json.loads(index.with_suffix(".js").read_text(encoding="utf-8").partition("= ")[2])["docs"]
    boosts = {entry["location"]: entry["boost"] for entry in found}
    assert "rules/PAR/TS-PAR-001/#bad-example" not in boosts
    assert boosts["rules/PAR/TS-PAR-001/"] < 1
    texts = {entry["location"]: entry["text"] for entry in found}
    assert texts["v1/04-parallelism/#TS-PAR-001"] == "<p>The rule.</p> "
    assert texts["guide/plan/"] == text
    assert {entry["location"]: tuple(entry["tags"]) for entry in found if "tags" in entry} == search_words.PLACES
    assert [entry["text"] for entry in found if entry["location"].startswith("rules/PAR/")] == [""]
    assert boosts["v1/00-terms/#plan"] > boosts["guide/plan/"] > boosts["v1/04-parallelism/#TS-PAR-001"] == 1


def test_words_that_lead_to_no_place_are_a_mistake() -> None:
    with pytest.raises(ValueError, match="search words lead to places that the site lacks: documents/"):
        as_files._lead([])


def test_an_example_of_a_stream_keeps_its_text(tmp_path: Path) -> None:
    example = '{"k":"head","x":1}\n{"k":"m"}  # &lt;-- TS-TEL-020\n{"k":"m"}\n'
    start = '<span class="filename">job.jsonl</span><pre><span></span><code>'
    (tmp_path / "page.html").write_text(f"<p>{start}{example}</code></pre>", encoding="utf-8")
    stream_examples.lay_out(tmp_path)
    text = (tmp_path / "page.html").read_text(encoding="utf-8")
    assert re.sub(r"<[^>]*>", "", text) == f"job.jsonl{example}"
    assert text.count("ts-head") == text.count("ts-mark") == 1


def test_the_verdicts_on_stacks_are_a_page_that_others_lead_to(tmp_path: Path) -> None:
    stage.stage(ROOT, tmp_path / "pages", "")
    page = (tmp_path / "pages" / "reference" / "stacks.md").read_text(encoding="utf-8")
    assert page.startswith("# Verdicts of stacks in each scenario")
    assert "| Failed |" not in page
    assert "## accelerate" in page
    assert "](README.md)" not in page
    excerpt = (tmp_path / "pages" / "guide" / "mixture-of-experts.md").read_text(encoding="utf-8")
    assert '```yaml title="examples/plans/deepseek-v3-gb200.yaml"' in excerpt
    for name in ("00-introduction", "00-contract", "14-faults"):
        assert "](../reference/stacks.md)" in (tmp_path / "pages" / "v1" / f"{name}.md").read_text(encoding="utf-8")


def test_the_governance_is_a_page_with_links_that_lead_on(tmp_path: Path) -> None:
    stage.stage(ROOT, tmp_path / "pages", "")
    page = (tmp_path / "pages" / "reference" / "governance.md").read_text(encoding="utf-8")
    assert page.startswith("# Governance")
    assert "](../v1/97-rationale.md#levels-that-were-in-doubt)" in page
    assert "](spec/" not in page
    assert "](../../" not in page
    for name in ("index.md", "changes.md"):
        assert "](reference/governance.md)" in (tmp_path / "pages" / name).read_text(encoding="utf-8")


def test_the_promises_of_the_tools_are_a_page_that_others_lead_to(tmp_path: Path) -> None:
    stage.stage(ROOT, tmp_path / "pages", "")
    page = (tmp_path / "pages" / "reference" / "security.md").read_text(encoding="utf-8")
    assert page.startswith("# Security")
    assert "](../v1/94-security-considerations.md)" in page
    assert "](../../" not in page
    home = (tmp_path / "pages" / "index.md").read_text(encoding="utf-8")
    assert "](reference/security.md)" in home


def test_exporters_of_alerts_have_a_metric_of_the_catalog_that_converts() -> None:
    converting = {alias.name for metric in metrics().values() for alias in metric.aliases if alias.factor is not None}
    rows = [line for line in alert_page.HEAD.splitlines() if line.startswith("| `")]
    named = [set(re.findall(r"`(\w+)`", row)) for row in rows]
    rules = yaml.safe_load((ROOT / "integrations/prometheus/alert-rules.yaml").read_text(encoding="utf-8"))
    alerts = {alert["alert"] for group in rules["groups"] for alert in group["rules"]}
    exporters = {name for names in named for name in names if name.startswith(("DCGM_", "GPU_"))}
    assert len(exporters) > 5
    assert exporters <= converting
    assert {name for names in named for name in names if name.startswith("Train")} <= alerts


def test_the_alerts_are_a_page_with_their_conditions_and_the_files_that_programs_load(tmp_path: Path) -> None:
    stage.stage(ROOT, tmp_path / "pages", "")
    page = (tmp_path / "pages" / "reference" / "alerts.md").read_text(encoding="utf-8")
    rules = yaml.safe_load((ROOT / "integrations/prometheus/alert-rules.yaml").read_text(encoding="utf-8"))
    alerts = [alert for group in rules["groups"] for alert in group["rules"]]
    missing = [alert["alert"] for alert in alerts if f"### {alert['alert']} " not in page or alert["expr"] not in page]
    assert alerts
    assert missing == []
    assert "](../reference/alerts.md)" in (tmp_path / "pages" / "guide" / "dashboards.md").read_text(encoding="utf-8")
    for name in alert_page.FILES:
        copy = tmp_path / "pages" / "integrations" / name
        assert copy.read_bytes() == (ROOT / "integrations" / name).read_bytes()
        assert f'"../integrations/{name}"' in (tmp_path / "pages" / "downloads.md").read_text(encoding="utf-8")


def test_the_mark_is_of_its_own() -> None:
    theme = yaml.safe_load(navigation.settings(ROOT).replace("!ENV", ""))["theme"]
    places = (f"overrides/.icons/{theme['icon']['logo']}.svg", theme["favicon"])
    icon, image = (ET.fromstring((ROOT / "spec" / place).read_text(encoding="utf-8")) for place in places)
    assert icon[0].get("d") == image[0].get("d")


def test_plans_are_searched_in_a_browser(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.syspath_prepend(str(ROOT / "tools" / "trainspec_site" / "in_browser"))
    proposing = importlib.import_module("proposing")
    monkeypatch.setattr(proposing, "FOLDER", tmp_path)
    monkeypatch.chdir(tmp_path)
    cluster = (ROOT / "examples" / "clusters" / "meta-llama3-24k.yaml").read_text(encoding="utf-8")
    seen: list[tuple[int, int]] = []
    asked = {"files": {"cluster.yaml": cluster}, "model": "llama3-8b", "num_ranks": 16}
    found = json.loads(proposing.propose(json.dumps(asked), lambda *numbers: seen.append(numbers)))
    assert set(found["files"]) == {"plan.yaml", "checkpoint.yaml"}
    assert "num_accelerators: 16" in found["files"]["plan.yaml"]
    assert re.match(r"\d+ layouts on 16 ranks were compared", found["words"])
    assert seen
    without = json.loads(proposing.propose(json.dumps({"files": {}, "model": "llama3-8b", "num_ranks": 0})))
    assert (without["files"], "cluster.yaml" in without["words"]) == ({}, True)
    alone = json.loads(proposing.propose(json.dumps({**asked, "model": ""})))
    assert (alone["files"], "plan.yaml" in alone["words"]) == ({}, True)
