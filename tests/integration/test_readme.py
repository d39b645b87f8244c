"""Examples in the documents are run as they stand, and print what their comments say."""

from __future__ import annotations

import contextlib
import io
import re
from pathlib import Path

import lance
import pytest

from memwal_core.table import Table

ROOT = Path(__file__).resolve().parents[2]


def _run_example(page: str, directory: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Run the one example of a page; each `print(...)  # output` must print that."""
    [example] = re.findall(r"^```python\n(.*?)^```$", (ROOT / page).read_text(), re.M | re.S)
    monkeypatch.chdir(directory)
    printed = io.StringIO()
    with contextlib.redirect_stdout(printed):
        exec(compile(example, page, "exec"), {})
    promised = re.findall(r"print\(.*\)  # (.+)$", example, re.M)
    assert promised
    assert [line for line in promised if line not in printed.getvalue().splitlines()] == []


@pytest.mark.parametrize("page", ["README.md", "docs/index.md"])
def test_first_example_runs_and_the_last_write_wins(page: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    _run_example(page, tmp_path, monkeypatch)

    rows = lance.dataset("people.lance").to_table().sort_by("id").to_pydict()
    assert rows == {"id": [1, 2], "name": ["Ann", "Rob"]}


def test_example_of_writing_runs_and_leaves_its_rows_readable(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    _run_example("docs/writing.md", tmp_path, monkeypatch)

    rows = Table.open("people.lance").to_arrow().sort_by("id").to_pydict()
    assert rows == {"id": [1, 2], "name": ["Ann", "Rob"]}
