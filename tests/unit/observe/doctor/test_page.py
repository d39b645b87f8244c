"""The page of findings lists what the checks can find."""

from __future__ import annotations

import re
from pathlib import Path

ROOT = Path(__file__).resolve().parents[4]


def test_page_lists_exactly_the_findings_of_the_checks():
    checks = (ROOT / "memwal_core" / "observe" / "doctor" / "checks").glob("*.py")
    found = {name for path in checks for name in re.findall(r'Finding\(\s*"([a-z-]+)"', path.read_text())}
    listed = re.findall(r"^\| `([a-z-]+)` \|", (ROOT / "docs" / "doctor.md").read_text(), re.M)
    assert sorted(listed) == sorted(found)
    assert len(found) > 20
