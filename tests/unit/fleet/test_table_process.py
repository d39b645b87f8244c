"""A process that works on one table after another."""

from __future__ import annotations

import io
import json
import queue
from pathlib import Path

import pytest

from memwal_core.fleet import table_process
from memwal_core.fleet.table_process import _Ending, _serve


@pytest.mark.parametrize(("limit_bytes", "answered"), [(1, 1), (1 << 60, 2)], ids=["much", "little"])
def test_process_that_held_much_memory_works_on_no_other_table(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, limit_bytes: int, answered: int
) -> None:
    """Each small table after a large one paged for the memory that the large one had taken."""
    monkeypatch.setattr(table_process, "memory_limit_bytes", lambda: limit_bytes)
    asked: queue.SimpleQueue[str] = queue.SimpleQueue()
    for name in ("large", "small"):
        asked.put(json.dumps({"name": name, "uri": str(tmp_path / name), "storage_options": {}, "request": {}}))
    asked.put("")
    answers = io.StringIO()

    _serve(asked, answers, _Ending())

    told = [json.loads(line)["table"] for line in answers.getvalue().splitlines()]
    assert told == ["large", "small"][:answered]
