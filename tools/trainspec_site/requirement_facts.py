"""Turns the facts in the heading of a requirement into a line that people read.

A Python-Markdown extension, named in mkdocs.yml. MkDocs and Zensical both take it, since it is no plug-in of either.
"""

from __future__ import annotations

from typing import Any
from xml.etree import ElementTree as ET

from markdown import Markdown
from markdown.extensions import Extension
from markdown.treeprocessors import Treeprocessor

from trainspec_site.rule_pages import page_path

AFTER_ATTRIBUTES = 7
"""Priority of the step: attr_list works at 8, the table of contents at 5, links at 0."""
FACTS = ("level", "ground", "check", "profile", "since", "name", "was")
PREFIX = "TS-"


class RequirementFacts(Extension):
    """Shows id, level, check, profile and version below each heading that has them."""

    def extendMarkdown(self, md: Markdown) -> None:  # noqa: N802
        """Register the step."""
        md.treeprocessors.register(_Facts(md), "requirement_facts", AFTER_ATTRIBUTES)


class _Facts(Treeprocessor):
    def run(self, root: ET.Element) -> None:
        for place, element in reversed(list(enumerate(root))):
            if element.tag == "h3" and element.get("id", "").startswith(PREFIX) and "level" in element.attrib:
                root.insert(place + 1, facts_line(element))


def facts_line(heading: ET.Element) -> ET.Element:
    """The line of facts of a heading; takes them off the heading, where HTML knows no such attributes."""
    identifier = heading.get("id", "")
    facts = {key: heading.attrib.pop(key, "") for key in FACTS}
    line = ET.Element("p", {"class": "ts-facts"})
    link = ET.SubElement(line, "a", {"class": "ts-id", "href": f"../rules/{page_path(identifier)}"})
    link.text = identifier
    words = {
        "level": facts["level"].replace("_", " "),
        **({"ground": f"ground: {facts['ground']}"} if facts["ground"] else {}),
        "name": facts["name"],
        "profile": f"profile {facts['profile']}",
        "check": f"checked by {facts['check']}" if facts["check"] != "manual" else "checked by a person",
        "since": f"since {facts['since']}",
    }
    for key, word in words.items():
        line[-1].tail = " "
        kind = f" ts-{facts['level'].split('_', maxsplit=1)[0].lower()}" if key == "level" else ""
        ET.SubElement(line, "span", {"class": f"ts-fact ts-fact-{key}{kind}"}).text = word
    return line


def makeExtension(**options: Any) -> RequirementFacts:  # noqa: N802
    """Entry point for Python-Markdown."""
    return RequirementFacts(**options)
