"""A visitor of the playground: sees the findings of an example, mends them, and breaks a good document."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from site_visit import PATIENCE_MILLISECONDS, Visit

pytest.importorskip("playwright", reason="playwright is not installed: run make site-test")
from playwright.sync_api import Locator, Page, expect

expect.set_options(timeout=PATIENCE_MILLISECONDS)


@pytest.fixture
def page(visit: Visit, built: Path) -> Page:
    """The playground, with the first example judged."""
    if not (built / "assets" / "playground" / "pyodide.mjs").exists():
        pytest.skip("this site was built without Pyodide, for want of npm")
    opened = visit.open("draft/playground/")
    expect(status(opened)).to_contain_text(re.compile("requirements hold|does not work here"))
    assert "does not work here" not in status(opened).inner_text()
    return opened


VIEW = "(await import('../assets/playground/modules/codemirror-view.js')).EditorView"


def text_of(page: Page) -> str:
    """The text that the editor holds, also what is scrolled out of sight."""
    held = page.evaluate(f"async () => {VIEW}.findFromDOM(document.querySelector('.cm-editor')).state.doc.toString()")
    return str(held)


def write(page: Page, text: str) -> None:
    """Replace the text of the editor as a visitor does: select all of it, and paste."""
    page.locator(".cm-content").click()
    page.keyboard.press("ControlOrMeta+A")
    page.keyboard.press("Delete")
    page.keyboard.insert_text(text)


def status(page: Page) -> Locator:
    return page.locator("[data-part=status]")


def finding(page: Page, identifier: str) -> Locator:
    return page.locator(f"[data-part=findings] li[data-requirement={identifier}]")


def test_a_broken_example_is_flagged_and_clears_when_mended(page: Page) -> None:
    wrong = finding(page, "TS-CLU-001")
    expect(wrong).to_have_count(1)
    expect(wrong.locator("pre")).to_contain_text("11 | num_nodes: 9")
    expect(wrong.locator("pre")).to_contain_text("^")
    expect(wrong.locator("a")).to_have_attribute("href", re.compile(r"/draft/v1/02-cluster/#TS-CLU-001$"))
    write(page, text_of(page).replace("num_nodes: 9", "num_nodes: 8"))
    expect(wrong).to_have_count(0)


def test_documents_are_judged_together(page: Page) -> None:
    page.get_by_label("Example").select_option("Llama 3 405B: cluster, plan and policy")
    expect(status(page)).to_contain_text("no findings")
    page.get_by_role("button", name="plan.yaml").click()
    write(page, text_of(page).replace("num_accelerators: 16384", "num_accelerators: 160000"))
    expect(finding(page, "TS-PAR-002")).to_have_count(1)


def test_a_link_holds_the_text_in_its_fragment(page: Page, visit: Visit) -> None:
    page.context.grant_permissions(["clipboard-read", "clipboard-write"])
    page.get_by_label("Example").select_option("none")
    write(page, "apiVersion: trainspec/v1\nkind: ClusterProfile\nnum_nods: 1  # \u00fc\n")
    page.get_by_role("button", name="Copy a link").click()
    expect(status(page)).to_contain_text("The link is copied")
    link = page.evaluate("navigator.clipboard.readText()")
    assert re.fullmatch(r"http://[^#?]*/draft/playground/#files=[\w-]+", link)
    other = page.context.new_page()
    other.goto(link)
    expect(other.locator(".cm-content")).to_contain_text("num_nods: 1  # \u00fc")
    expect(finding(other, "TS-DOC-005")).to_have_count(1)


def test_a_link_without_a_readable_text_shows_the_first_example(page: Page, visit: Visit) -> None:
    other = page.context.new_page()
    other.goto(page.url.partition("#")[0] + "#files=AAAA")
    expect(finding(other, "TS-CLU-001")).to_have_count(1)


def test_what_a_schema_refuses_is_told_with_its_place(page: Page) -> None:
    page.get_by_label("Example").select_option("none")
    expect(status(page)).to_contain_text("Nothing to judge")
    before = "apiVersion: trainspec/v1\nkind: ClusterProfile\n"
    write(page, f"{before}num_nods: 1\n")
    told = finding(page, "TS-DOC-005")
    expect(told).to_contain_text("did you mean 'num_nodes'?")
    told.get_by_role("button").click()
    expect(page.locator(".cm-content")).to_be_focused()
    assert page.evaluate("getSelection().toString()") == "num_nods: 1"
    assert text_of(page).startswith(before)


def test_text_that_is_no_yaml_is_told(page: Page) -> None:
    write(page, "a: [1")
    expect(finding(page, "TS-DOC-001")).to_have_count(1)


def test_records_of_a_stream_are_held_to_their_schema(page: Page) -> None:
    page.get_by_label("Example").select_option("A stream with five damaged records")
    expect(status(page)).to_contain_text("5 findings. 8 lines of the stream were held to the schema of records")
    expect(status(page)).to_contain_text("NumPy, which has no wheel for browsers")
    unknown = page.locator("[data-part=findings] li", has_text="did you mean 'step'?")
    expect(unknown.locator("a")).to_have_attribute("href", re.compile(r"/v1/09-telemetry/#TS-TEL-001$"))
    expect(unknown.get_by_role("button")).to_have_text("job.jsonl:3")
    write(page, text_of(page).replace("stepp", "step"))
    expect(status(page)).to_contain_text("4 findings.")
    expect(unknown).to_have_count(0)


def test_findings_are_marked_in_the_text_and_in_its_margin(page: Page) -> None:
    page.get_by_label("Example").select_option("none")
    write(page, "apiVersion: trainspec/v1\nkind: ClusterProfile\nnum_nods: 1  # a slip\n")
    marked = page.locator(".cm-lintRange-error", has_text="num_nods: 1")
    expect(marked.first).to_be_visible()
    expect(page.locator(".cm-lint-marker-error").first).to_be_visible()
    marked.first.hover()
    expect(page.locator(".cm-tooltip-lint")).to_contain_text("did you mean 'num_nodes'?")


@pytest.mark.parametrize(
    ("before", "typed", "offered", "written"),
    [
        ("kind: ClusterProfile\n", "num_n", "num_nodes", "num_nodes: "),
        ("", "kind: Clus", "ClusterProfile", "kind: ClusterProfile"),
        (
            "kind: ClusterProfile\nnode_groups:\n  - name: a\n    accelerator: {",
            "memory_by",
            "memory_bytes",
            "{memory_bytes: ",
        ),
        ("kind: TrainingPlan\noptimizer:\n  ", "name: adam", "adamw", "name: adamw"),
    ],
    ids=["key", "kind", "flow", "value"],
)
def test_what_the_schema_allows_is_offered(page: Page, before: str, typed: str, offered: str, written: str) -> None:
    page.get_by_label("Example").select_option("none")
    write(page, before)
    page.keyboard.type(typed)
    option = page.locator(".cm-tooltip-autocomplete li", has_text=re.compile(rf"^{offered}"))
    expect(option.first).to_be_visible()
    option.first.click()
    assert written in text_of(page)


def test_nothing_is_offered_in_a_comment(page: Page) -> None:
    page.get_by_label("Example").select_option("none")
    write(page, "kind: ClusterProfile\n")
    page.keyboard.type("# num_n")
    page.keyboard.press("Control+Space")
    page.wait_for_timeout(500)
    expect(page.locator(".cm-tooltip-autocomplete")).to_have_count(0)


def test_a_plan_is_searched_and_judged(page: Page) -> None:
    page.get_by_label("Example").select_option("Llama 3 405B: cluster, plan and policy")
    page.get_by_label("Model").select_option("llama3-8b")
    page.get_by_label("Ranks").fill("16")
    page.get_by_role("button", name="Search a plan").click()
    told = page.locator("[data-part=planned]")
    expect(told).to_contain_text("layouts on 16 ranks were compared")
    expect(told).to_contain_text("for a step")
    expect(page.locator(".cm-content")).to_contain_text("llama3-8b on 16 ranks")
    assert "num_accelerators: 16" in text_of(page)
    expect(status(page)).to_contain_text("requirements hold")
    expect(page.locator("[data-part=findings] .ts-finding-error")).to_have_count(0)


def test_a_search_without_a_usable_cluster_says_so(page: Page) -> None:
    page.get_by_label("Example").select_option("none")
    page.get_by_label("Model").select_option("llama3-8b")
    page.get_by_role("button", name="Search a plan").click()
    expect(page.locator("[data-part=planned]")).to_contain_text("cluster.yaml")
