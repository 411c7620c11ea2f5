"""Turns the sources that pages name, such as `owner/repository@commit:path` and `arXiv:2407.21783`, into links."""

from __future__ import annotations

import re

KEPT = re.compile(
    r"`[^`]*`|\[[^\]]*\]\([^)]*\)|\[[^\]]*\]\[[^\]]*\]|<[^>]*>|^Terms:.*?(?=\n\n)|\{#[^}]*\}", re.DOTALL | re.MULTILINE
)
"""Code, links, HTML and facts of headings, which stay as they are."""
OWNERS = (
    r"AI-Hypercomputer|allenai|AMD-AGI|apache|astral-sh|aws|awslabs|Azure|bigscience-workshop|"
    r"ByteDance-Seed|Dao-AILab|databricks|deepspeedai|google|huggingface|intel|jax-ml|jepsen-io|kubernetes|"
    r"kubernetes-sigs|Lightning-AI|meta-llama|microsoft|mlco2|mlcommons|NVIDIA|NVIDIA-NeMo|open-telemetry|"
    r"petuum|prometheus|pytorch|ray-project|ROCm|safetensors|stas00|TensorAuto|wandb|yaml"
)
"""Owners whose repositories are linked where no commit, path or number follows."""
REPOSITORY = r"(?<![\w/.@:-])(?P<repository>[A-Za-z0-9][A-Za-z0-9-]{1,38}/[A-Za-z0-9._-]*[A-Za-z0-9_-])"
KNOWN = rf"(?<![\w/.@:-])(?P<known>(?:{OWNERS})/[A-Za-z0-9._-]*[A-Za-z0-9_-])"
NUMBERS = r"\d+(?:,\s+\d+)*(?:,?\s+and\s+\d+)?"
SOURCE = re.compile(
    r"(?P<url>https?://[^\s<>|)\]]*[\w/])"
    r"|arXiv:(?P<paper>\d{4}\.\d{4,5}(?:v\d+)?)"
    r"|(?P<cve>CVE-\d{4}-\d{4,})|(?P<advisory>GHSA(?:-[a-z0-9]{4}){3})|doi:(?P<doi>10\.\d{4,9}/[\w./()-]*\w)"
    r"|RFC\s(?P<rfc>\d{3,5})"
    r"|(?<![\w/.-])(?P<own>(?:benchmarks|examples|conformance|tests|tools|reference)/[\w./-]*\w)"
    rf"|{REPOSITORY}(?:@(?P<commit>[0-9a-f]{{7,40}})(?::(?P<path>[\w./+-]*[\w/]))?"
    r"|:(?P<newest>[\w+-]*[./][\w./+-]*[\w/])"
    r"|#(?P<number>\d+)"
    rf"|,?\s+(?P<kind>issues?|pull\srequests?|PR|discussions?)\s+(?P<numbers>{NUMBERS}))"
    rf"|{KNOWN}(?:,?\s(?P<file>[\w.-]+(?:/[\w.-]+)*\.(?:py|rst|md|adoc|cpp|hpp|cc|h|yaml|json)(?![\w/])))?"
)
GITHUB = "https://github.com"


def with_source_links(text: str, own: str) -> str:
    """The text of a page, without its fences, with each source that has an address as a link; those of `own` too."""
    pieces, start = [], 0

    def linked(part: str) -> str:
        return SOURCE.sub(lambda found: _link(found, own), part)

    for kept in KEPT.finditer(text):
        pieces += [linked(text[start : kept.start()]), kept[0]]
        start = kept.end()
    return "".join([*pieces, linked(text[start:])])


def _link(found: re.Match[str], own: str) -> str:
    words, repository = found[0], f"{GITHUB}/{found['repository'] or found['known']}"
    if found["url"]:
        return f"<{words}>"
    if found["own"] and not own:
        return words
    if found["numbers"]:
        folder = {"i": "issues", "p": "pull", "P": "pull", "d": "discussions"}[found["kind"][0]]
        start = found.start("numbers") - found.start()
        return words[:start] + re.sub(r"\d+", lambda n: f"[{n[0]}]({repository}/{folder}/{n[0]})", found["numbers"])
    kind = "blob" if "." in (found["path"] or "").rpartition("/")[2] else "tree"
    targets = {
        "paper": f"https://arxiv.org/abs/{found['paper']}",
        "cve": f"https://nvd.nist.gov/vuln/detail/{found['cve']}",
        "advisory": f"{GITHUB}/advisories/{found['advisory']}",
        "doi": f"https://doi.org/{found['doi']}",
        "rfc": f"https://www.rfc-editor.org/rfc/rfc{found['rfc']}",
        "own": f"{own}/{found['own']}",
        "number": f"{repository}/issues/{found['number']}",
        "newest": f"{repository}/blob/HEAD/{found['newest']}",
        "path": f"{repository}/{kind}/{found['commit']}/{found['path']}",
        "commit": f"{repository}/tree/{found['commit']}",
        "file": f"{repository}/blob/HEAD/{found['file']}",
        "known": repository,
    }
    return f"[{words}]({next(target for key, target in targets.items() if found[key])})"
