"""SECURITY.md lists every limit on untrusted input, with the value that the code has, and no other."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
_ROW = re.compile(r"^\| ([^|]+) \| ([0-9,]+) \| ([^|]+) \|$", re.MULTILINE)
_DECLARED = """
import json, sys
sys.path.insert(0, sys.argv[1] + "/tools")
import limit_table
from pathlib import Path
print(json.dumps([(one.input, f"{one.most:,}", one.unit) for one in limit_table.limits(Path(sys.argv[1]))]))
"""


def test_the_table_of_security_has_every_limit_and_no_other() -> None:
    done = subprocess.run([sys.executable, "-c", _DECLARED, str(ROOT)], capture_output=True, check=True)
    declared = [tuple(entry) for entry in json.loads(done.stdout)]
    table = (ROOT / "SECURITY.md").read_text(encoding="utf-8").partition("## Limits\n")[2].partition("\n## ")[0]
    assert _ROW.findall(table) == declared
    assert len(declared) > 20
    assert {"the history of a trial", "a checkpoint", "a document", "a settings file", "a stream"} <= {
        one for one, _, _ in declared
    }
