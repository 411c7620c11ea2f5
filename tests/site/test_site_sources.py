"""Sources that have an address are links in the site, and other words stay as they are."""

from __future__ import annotations

import re

import pytest
from site_visit import ROOT
from trainspec_site.source_links import with_source_links
from trainspec_site.stage import requirements

OWN = "https://github.com/OWNER/trainspec/blob/main"


@pytest.mark.parametrize(
    ("text", "target"),
    [
        ("arXiv:2407.21783, section 3", "https://arxiv.org/abs/2407.21783"),
        ("NVIDIA/nccl@1a2b3c4:src/init.cc;", "https://github.com/NVIDIA/nccl/blob/1a2b3c4/src/init.cc"),
        ("NVIDIA/nccl@1a2b3c4:src/include.", "https://github.com/NVIDIA/nccl/tree/1a2b3c4/src/include"),
        ("google/orbax@1a2b3c4d.", "https://github.com/google/orbax/tree/1a2b3c4d"),
        ("databricks/flashoptim#3;", "https://github.com/databricks/flashoptim/issues/3"),
        ("some-one/some.thing, pull request 29", "https://github.com/some-one/some.thing/pull/29"),
        (
            "pytorch/pytorch torch/amp/grad_scaler.py.",
            "https://github.com/pytorch/pytorch/blob/HEAD/torch/amp/grad_scaler.py",
        ),
        ("google/orbax (commit file)", "https://github.com/google/orbax"),
        ("CVE-2007-4559, path", "https://nvd.nist.gov/vuln/detail/CVE-2007-4559"),
        ("doi:10.1016/j.future.2004.11.016;", "https://doi.org/10.1016/j.future.2004.11.016"),
        ("RFC 5905;", "https://www.rfc-editor.org/rfc/rfc5905"),
        ("benchmarks/score_memory.py.", f"{OWN}/benchmarks/score_memory.py"),
    ],
)
def test_a_source_is_a_link(text: str, target: str) -> None:
    assert re.findall(r"\]\((.*?)\)", with_source_links(text, OWN)) == [target]


def test_each_number_of_a_list_is_a_link() -> None:
    linked = with_source_links("NVIDIA/nccl issues 302,\n588 and 1591.", OWN)
    assert re.findall(r"/issues/(\d+)\)", linked) == ["302", "588", "1591"]
    assert re.sub(r"\[(\d+)\]\([^)]*\)", r"\1", linked) == "NVIDIA/nccl issues 302,\n588 and 1591."


@pytest.mark.parametrize(
    "text",
    ["and/or", "bytes/s at 3", "`NVIDIA/nccl@1a2b3c4`", "[NVIDIA/nccl#3](https://example.org)", "data/tensor ranks"],
)
def test_other_words_are_kept(text: str) -> None:
    assert with_source_links(text, OWN) == text


def test_an_address_is_a_link() -> None:
    assert with_source_links("https://yaml.org/type/int.html; more", OWN) == "<https://yaml.org/type/int.html>; more"


def test_sources_of_requirements_are_links() -> None:
    why = [str(entry["why"]) for entry in requirements(ROOT)]
    argued = re.compile(r"arithmetic|the meaning of the key|a choice of this specification")
    sources = [text.split("Source:")[-1] for text in why]
    linked = [with_source_links(text, OWN) for text in sources]
    assert [text for text in linked if not ("](" in text or "<http" in text or argued.search(text))] == []
