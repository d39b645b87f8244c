"""The README's example is run as it stands."""

from __future__ import annotations

import re
from pathlib import Path

import lance
import pytest

README = Path(__file__).resolve().parents[2] / "README.md"


def test_example_of_the_readme_runs_and_the_last_write_wins(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    [example] = re.findall(r"^```python\n(.*?)^```$", README.read_text(), re.M | re.S)
    monkeypatch.chdir(tmp_path)

    exec(compile(example, str(README), "exec"), {})

    rows = lance.dataset("people.lance").to_table().sort_by("id").to_pydict()
    assert rows == {"id": [1, 2], "name": ["Ann", "Rob"]}
