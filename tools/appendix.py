"""Gathers the pages of the informative appendix, and maps models to pages."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator, Mapping
from pathlib import Path

import appendix_batch
import appendix_blueprints
import appendix_collectives
import appendix_energy
import appendix_memory
import appendix_reliability
import appendix_scale
import appendix_step_time
from appendix_text import page, section, table

ROOT = Path(__file__).resolve().parent.parent
COSTS = ROOT / "src" / "trainspec_validate" / "performance" / "costs"
MODELS = {
    **{path: f"trainspec_validate.performance.costs.{path.stem}" for path in COSTS.glob("[!_]*.py")},
    **{path: f"appendix_models.{path.stem}" for path in (ROOT / "tools" / "appendix_models").glob("[!_]*.py")},
}
"""Module of each file that holds models."""
MENTION = re.compile(r"`(?P<module>[a-z_]+)\.(?P<name>[A-Za-z_]\w*)`")
WRITERS = {
    "collectives.md": appendix_collectives.write,
    "memory.md": appendix_memory.write,
    "step-time.md": appendix_step_time.write,
    "reliability.md": appendix_reliability.write,
    "batch.md": appendix_batch.write,
    "energy.md": appendix_energy.write,
    "scale.md": appendix_scale.write,
    "blueprints.md": appendix_blueprints.write,
}
SUBJECTS = {
    "collectives.md": "time of a collective; ring or tree; what hierarchy and rank order do; roles of ranks",
    "memory.md": "device memory of a rank by class",
    "step-time.md": "where an optimizer step goes; kernels; bubbles; operations by convention",
    "reliability.md": "interval of saves; effective time; spares; detection; blast radius",
    "batch.md": "gradient noise; time against compute; learning rate; elastic sizes",
    "energy.md": "from the devices to the facility; joules of a token",
    "scale.md": "what changes from 8 to 131,072 accelerators: failures, network, power, telemetry",
    "blueprints.md": "rows of collectives to copy for common machines; published jobs with their machine",
}
INTRODUCTION = """
The models behind the predictions and recommendations of the tools: formulas, worked examples and tables. Every number
is computed by the code that the tools run, so a page cannot depart from it. These pages are informative: the chapters
state the requirements, and nothing here adds one.

`trainspec_validate.performance.costs` holds the models that the validator uses, and `tools/appendix_models` those that
only these pages show. They are pure functions over plain numbers. Each cites its source and has a worked example that
the tests execute. Where constants are fitted, the page says to what, and how far off the model was on data that it was
not fitted to.
"""


def pages() -> dict[str, str]:
    """Text of each page by its file name.

    Raises:
        ValueError: a row does not fit its table, or an example cannot run.
    """
    written = {name: write() for name, write in WRITERS.items()}
    return {"index.md": _index(written), **written}


def mentions(text: str) -> set[tuple[str, str]]:
    """Module and name of every `module.name` that a page mentions.

    >>> sorted(mentions("`energy.node_watts` and `memory.ModelState`, not `data` or `nccl 2.30`"))
    [('energy', 'node_watts'), ('memory', 'ModelState')]
    """
    return {(match["module"], match["name"]) for match in MENTION.finditer(text)}


def models() -> dict[str, str]:
    """First sentence of the docstring of each module of the models, by module."""
    found = {}
    for path in sorted(MODELS, key=lambda path: path.stem):
        words = ast.get_docstring(ast.parse(path.read_text(encoding="utf-8"))) or ""
        found[path.stem] = " ".join(words.split("\n\n")[0].split()).split(". ")[0]
    return found


def _link(name: str) -> str:
    return f"[{name.removesuffix('.md').replace('-', ' ')}]({name})"


def _coverage(written: Mapping[str, str]) -> Iterator[tuple[str, str, str]]:
    covered = {name: {module for module, _ in mentions(text)} for name, text in written.items()}
    for module, words in models().items():
        links = [_link(name) for name, modules in covered.items() if module in modules]
        yield f"`{module}`", words.rstrip("."), ", ".join(links) or "no page"


def _index(written: Mapping[str, str]) -> str:
    return page(
        "Formulas and tables",
        INTRODUCTION,
        section("Pages", table(("page", "covers"), ((_link(name), SUBJECTS[name]) for name in WRITERS))),
        section(
            "Models",
            "The purpose of each module, and the page with its formulas.",
            table(("module", "what it does", "page"), _coverage(written)),
        ),
    )
