"""The table that every drill begins with."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from testkit.tables.garbage import write_generations
from testkit.tables.people import make_people_table, people


@pytest.fixture(scope="module")
def template(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("template") / "t"
    made = make_people_table(str(path), rows=people(1, 2), buckets=1)
    write_generations(made, [1, 3], [4], name="new", owned=True)
    return path


@pytest.fixture
def place(template: Path, tmp_path: Path) -> str:
    """Two rows in the base table and two generations that wait, so that readers see ``ROWS``."""
    return str(shutil.copytree(template, tmp_path / "t"))
