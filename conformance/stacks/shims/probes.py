"""Answers the probes of the suite for third-party stacks: `probes.py STACK IN OUT`."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import shards
import updates

OPERATIONS = {"update": updates.answer, "shards": shards.answer}


def main(stack: str, source: str, target: str) -> None:
    """Answer the question in a file."""
    question = json.loads(Path(source).read_text(encoding="utf-8"))
    found = OPERATIONS[question["operation"]](stack, question)
    Path(target).write_text(json.dumps({"operation": question["operation"], **found}), encoding="utf-8")


if __name__ == "__main__":
    main(*sys.argv[1:])
