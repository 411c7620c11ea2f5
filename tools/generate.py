"""Writes all that is generated: schemas, requirement index, packaged data, appendix; `--check` only compares."""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
sys.path[:0] = [str(ROOT / folder) for folder in ("src", "record", "reference", "conformance", "tools")]
sys.path.append(str(ROOT))

import api_reference  # noqa: E402
import appendix  # noqa: E402
import catalogs  # noqa: E402
import cli_reference  # noqa: E402
import grafana_dashboard  # noqa: E402
import hardware_pages  # noqa: E402
import limit_table  # noqa: E402
import metric_pages  # noqa: E402
import own_distributions  # noqa: E402
import prometheus_rules  # noqa: E402
import public_log_page  # noqa: E402
import pydantic_models  # noqa: E402
import recorder_catalog  # noqa: E402
import recovery_figures  # noqa: E402
import sbom  # noqa: E402
import scenario_index  # noqa: E402
import scenario_page  # noqa: E402
import schemastore  # noqa: E402
import spec_text  # noqa: E402
import verdict_tables  # noqa: E402
import weaver_registry  # noqa: E402
from trainspec_site import checked_by  # noqa: E402
from trainspec_site import generated as site_pages  # noqa: E402
from trainspec_site import navigation as site_navigation  # noqa: E402

import schemas  # noqa: E402
from trainspec_validate._version import SPECIFICATION_VERSION  # noqa: E402
from trainspec_validate.rules import all_rules  # noqa: E402

SITE = f"{schemas.SITE}/v1/"


def outputs() -> dict[Path, str]:
    """Text of every generated file, by path."""
    files: dict[Path, str] = {}
    data = ROOT / "src" / "trainspec_validate" / "data"
    for name, text in schemas.schemas().items():
        files[ROOT / "schemas" / "v1" / name] = text
        files[data / "schemas" / name] = text
    entries = spec_text.requirements(ROOT / "spec" / "v1")
    files[ROOT / "spec" / "v1" / "requirements.json"] = index_text([with_documents(entry) for entry in entries])
    files[data / "requirements.json"] = index_text([with_module(with_documents(entry)) for entry in entries])
    files[data / "scenarios.json"] = scenario_index.index(ROOT / "conformance" / "scenarios")
    for name, text in catalogs.catalogs(ROOT / "spec" / "v1").items():
        files[data / name] = text
    for name, text in {**appendix.pages(), **metric_pages.pages(ROOT / "spec" / "v1")}.items():
        files[ROOT / "spec" / "reference" / name] = text
    repeated = {**own_distributions.versioned_files(ROOT), **sbom.documents(ROOT)}
    files |= {ROOT / name: text for name, text in repeated.items()}
    files |= {ROOT / "schemas" / "schemastore" / name: text for name, text in schemastore.files().items()}
    files |= dict(pydantic_models.files(ROOT))
    files[ROOT / "spec" / "python.md"] = api_reference.page()
    files[ROOT / "spec" / "commands.md"] = cli_reference.page()
    files[ROOT / limit_table.PAGE] = limit_table.page(ROOT)
    files[ROOT / "spec" / scenario_page.PAGE] = scenario_page.page(ROOT / "conformance" / "scenarios", entries)
    results = ROOT / "conformance" / "results"
    files[results / recovery_figures.PAGE] = recovery_figures.page(results)
    files[results / verdict_tables.PAGE] = verdict_tables.page(results)
    files[ROOT / "spec" / "v1" / "91-hardware.md"] = hardware_pages.page(ROOT / "spec" / "v1")
    files |= {ROOT / path: text for path, text in of_the_metrics(ROOT / "spec" / "v1", entries).items()}
    indexed = [with_documents(entry) for entry in entries]
    files[ROOT / "spec" / public_log_page.PAGE] = public_log_page.page(ROOT)
    files[ROOT / "mkdocs.yml"] = site_navigation.settings(ROOT)
    pages = site_pages.pages(ROOT, indexed, SPECIFICATION_VERSION)
    files |= {ROOT / "spec" / name: text for name, text in pages.items()}
    return files


def of_the_metrics(directory: Path, entries: list[dict[str, object]]) -> dict[str, str]:
    """Text of every file that other programs read the metrics from, by its path in the repository."""
    folders = {
        "record/trainspec_record/catalog": recorder_catalog.modules(directory),
        "integrations/prometheus": prometheus_rules.rules(directory, entries),
        "integrations/grafana": grafana_dashboard.dashboard(directory),
        "integrations/opentelemetry/registry": weaver_registry.registry(directory),
    }
    return {f"{folder}/{name}": text for folder, files in folders.items() for name, text in files.items()}


def index_text(entries: list[dict[str, object]]) -> str:
    """Text of an index of requirements."""
    index = {"specification_version": SPECIFICATION_VERSION, "site": SITE, "requirements": entries}
    return json.dumps(index, indent=1, ensure_ascii=False) + "\n"


def with_documents(entry: dict[str, object]) -> dict[str, object]:
    """The entry with the kinds of documents that its rule judges together."""
    rule, check = all_rules().get(str(entry["id"])), checked_by.check_of(str(entry["id"]))
    kinds = rule.parameters if rule else check.documents if check else ()
    return {**entry, "documents": [kind.__name__ for _, kind in kinds]} if rule or check else entry


def with_module(entry: dict[str, object]) -> dict[str, object]:
    """The entry with the module of its rule, so that the program need not import all of them."""
    rule = all_rules().get(str(entry["id"])) or checked_by.check_of(str(entry["id"]))
    return entry if rule is None else {**entry, "module": rule.function.__module__.rsplit(".", 1)[1]}


def main() -> int:
    """Write what differs, or with `--check` say what would be written; exit 1 when that is anything."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--check", action="store_true", help="write nothing; exit 1 when a file is out of date")
    parser.add_argument("--once", action="store_true", help="do not start again after packaged data has changed")
    arguments = parser.parse_args()
    check = arguments.check
    try:
        wanted = outputs()
    except spec_text.SpecificationError as error:
        print(error, file=sys.stderr)
        return 2
    stale = [path for path, text in wanted.items() if not path.exists() or path.read_text(encoding="utf-8") != text]
    for path in stale:
        if not check:
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(wanted[path], encoding="utf-8")
        print(f"{'out of date' if check else 'written'}: {path.relative_to(ROOT)}")
    print(f"{len(wanted)} generated files, {len(stale)} {'out of date' if check else 'written'}")
    if stale and not check and not arguments.once and any(path.is_relative_to(ROOT / "src") for path in stale):
        print("packaged data has changed: once more for the files that follow from it")
        return subprocess.call([sys.executable, __file__, "--once"])
    return 1 if check and stale else 0


if __name__ == "__main__":
    sys.exit(main())
