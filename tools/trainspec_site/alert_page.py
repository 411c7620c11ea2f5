"""Writes the page of alerts, with the condition of each, from the rules that Prometheus loads."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import yaml

PAGE = "reference/alerts.md"
FOLDER = "integrations"
RULES = f"{FOLDER}/prometheus/alert-rules.yaml"
FILES = {
    "prometheus/recording-rules.yaml": "series that the alerts and the dashboard read",
    "prometheus/alert-rules.yaml": "the alerts of this page",
    "grafana/trainspec-run.json": "the dashboard of a run",
}
"""Files that Prometheus and Grafana load, below the folder, and what each holds."""
PREFIX = "trainspec-alerts-"
HEAD = """\
# Alerts

Each alert with its condition and its limit, in the language of Prometheus. An alert fires when its condition holds, and
has held for the time that *for* names. [Dashboards and alerts](../guide/dashboards.md) says how the rules are loaded.
The limits are starting points: set them to those of your policy. This page is informative.

**An alert whose metrics are not written never fires.** Most metrics come from the job itself, through the recorder or a
writer of its own. Those of devices and nodes come from `trainspec-record agent`, or from an exporter whose series are
[converted](metric-names.md) to these names first:

| alert | agent | DCGM exporter | AMD exporter |
|---|---|---|---|
| `TrainDevicesSilent`, `TrainNoProgress` | yes | `DCGM_FI_DEV_GPU_UTIL` | `GPU_GFX_ACTIVITY` |
| `TrainBusyWithoutWork` | if NVML has GPM | `DCGM_FI_PROF_PIPE_TENSOR_ACTIVE` | `GPU_PROF_TENSOR_ACTIVE_PERCENT` |
| `TrainMemoryNearLimit` | yes | no limit | unit not settled |
| `TrainUncorrectedErrors` | yes | `DCGM_FI_DEV_ECC_DBE_VOL_TOTAL` | `GPU_ECC_UNCORRECT_TOTAL` |
| `TrainThrottled` | no | unit not settled | no |
| `TrainLinkDown` | InfiniBand and RoCE ports | `DCGM_FI_DEV_NVLINK_RECOVERY_ERROR_COUNT_TOTAL` | no |
| `TrainHostMemoryPressure` | yes | no | no |
| `TrainLatencyRisen` | with `TRAINSPEC_PROBE_NODES` | no | no |

The node exporter has `node_infiniband_link_downed_total` for `TrainLinkDown`.
"""


def page(root: Path) -> str:
    """Text of the page.

    Raises:
        KeyError: an alert has no severity, requirement or description.
    """
    rules = yaml.safe_load((root / RULES).read_text(encoding="utf-8"))
    lines = [HEAD, "| file | holds |", "|---|---|"]
    lines += [f"| {link(name, '../../')} | {words} |" for name, words in FILES.items()]
    for group in rules["groups"]:
        lines += ["", f"## {group['name'].removeprefix(PREFIX).capitalize()}"]
        for alert in group["rules"]:
            lines += ["", *_alert(alert)]
    return "\n".join([*lines, ""])


def link(name: str, to_root: str) -> str:
    """A link to one of the files, from a page of the site."""
    return f'<a href="{to_root}{FOLDER}/{name}">{name.rsplit("/", 1)[-1]}</a>'


def _alert(alert: Mapping[str, Any]) -> Iterator[str]:
    labels, words = alert["labels"], alert["annotations"]
    yield f"### {alert['alert']} {{#{alert['alert']}}}"
    yield ""
    held = f", for {alert['for']}" if "for" in alert else ""
    chapter, _, requirement = words["runbook_url"].rpartition("/v1/")[2].partition("/#")
    yield f"{labels['severity'].capitalize()}{held}; [{requirement}](../v1/{chapter}.md#{requirement})."
    yield words["description"]
    yield ""
    yield "```promql"
    yield from str(alert["expr"]).splitlines()
    yield "```"
