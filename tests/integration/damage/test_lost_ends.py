"""A disk that fills up with the last bytes of a file: Lance drops them and reports no error, so we look."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from memwal_core.errors import UnavailableError
from memwal_core.flushed.write.key_index import write_key_index
from memwal_core.jobs.compact.request import CompactRequest
from memwal_core.jobs.flush_idle.request import FlushRequest
from memwal_core.jobs.merge.request import MergeRequest
from memwal_core.jobs.outcome import JobOutcome
from memwal_core.storage import open_store
from memwal_core.table import Table
from testkit.faults.process_limits import largest_file
from testkit.tables.people import make_people_table, people

ROWS = 3000
LOST_BYTES = 100


def _flush(table: Table) -> object:
    return table.run(FlushRequest())


def _merge(table: Table) -> object:
    return table.run(MergeRequest())


def _compact(table: Table) -> object:
    return table.run(CompactRequest(force=True))


STEPS = (_flush, _merge, _compact)


def _made(uri: str, step: Callable[..., Any]) -> str:
    """Make a table with some rows, of which others wait for a step."""
    make_people_table(uri, buckets=1)
    _put(uri, range(1000))
    _flush(Table.open(uri))
    _merge(Table.open(uri))
    _put(uri, range(1000, 2000), range(2000, ROWS))
    for earlier in STEPS[: STEPS.index(step)]:
        earlier(Table.open(uri))
    return uri


def _put(uri: str, *batches: range) -> None:
    with Table.open(uri).writer() as writer:
        for batch in batches:
            writer.put(people(*batch))


def _sizes(uri: str) -> dict[Path, int]:
    return {path: path.stat().st_size for path in Path(uri).rglob("*.lance")}


def _ids(uri: str) -> list[int]:
    return sorted(Table.open(uri).to_arrow(consistency="durable")["id"].to_pylist())


@pytest.mark.parametrize("step", STEPS)
def test_job_whose_file_lost_its_end_changes_nothing_and_can_be_repeated(
    tmp_path: Path, step: Callable[..., Any]
) -> None:
    """The job succeeded, the file was recorded, and what its rows came from was collected."""
    uri, twin = _made(str(tmp_path / "people.lance"), step), _made(str(tmp_path / "twin.lance"), step)
    before = _sizes(twin)
    step(Table.open(twin))
    largest = max(size for path, size in _sizes(twin).items() if path not in before)

    with largest_file(largest - LOST_BYTES), suppress(UnavailableError):
        assert step(Table.open(uri)).outcome is not JobOutcome.DONE
    assert _ids(uri) == list(range(ROWS))

    assert step(Table.open(uri)).outcome is JobOutcome.DONE
    assert _ids(uri) == list(range(ROWS))


def test_key_index_that_lost_its_end_on_this_machine_is_not_put_into_a_store_elsewhere() -> None:
    """Nothing looks for the end there: a store takes an object whole or not at all."""
    keys = pa.table({"id": [f"key {number}" for number in range(ROWS)]})
    whole, full = open_store("memory:///whole"), open_store("memory:///full")
    write_key_index(whole, "flushed", keys, ["id"])
    largest = max(whole.list_objects("flushed"), key=lambda file: file.size_bytes)

    with largest_file(largest.size_bytes - LOST_BYTES), pytest.raises(OSError, match="No space left"):
        write_key_index(full, "flushed", keys, ["id"])
    assert full.head(largest.path) is None
