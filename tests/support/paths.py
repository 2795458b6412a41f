"""The folders of the repository and of its tests."""

import re
from pathlib import Path

TESTS = Path(__file__).resolve().parents[1]
ROOT = TESTS.parent
CONSTRAINTS = (ROOT / "constraints/tested.txt").read_text(encoding="utf-8")
PINNED = re.search(r"^transformers==(\S+)", CONSTRAINTS, re.M)[1]
