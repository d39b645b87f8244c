"""Errors between a WAL entry's landing and its note in the MemTable: nobody is told what is not so, nothing is lost."""

from __future__ import annotations

from contextlib import nullcontext
from itertools import count
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from memwal_core.base_table import BaseTable
from memwal_core.errors import CommitUnknownError, InvalidRequestError
from memwal_core.memtable import MemTable, MemTableQueue
from memwal_core.table import Table
from memwal_core.wal import WalAppender
from memwal_core.writer import RegionWriter
from memwal_core.writer.claim.ownership import Ownership
from memwal_core.writer.query.indexes import MemTableIndexes
from memwal_core.writer.stats import WriterMeters
from testkit.faults.faulty_store import FaultyStore
from testkit.tables.people import make_people_table, people, reopened
from testkit.tables.regions import create_region, writer_settings

SETTINGS = writer_settings()
WITH_THREADS = writer_settings(background_flush=True)
AFTER_LANDING: list[tuple[type, str, bool]] = [
    (WalAppender, "append", False),
    (MemTable, "mark_flushed", True),
    (MemTable, "mark_flushed", False),
    (MemTableQueue, "open_ranges", True),
    (WriterMeters, "record", True),
    (Ownership, "verify_if_due", True),
]
"""What a writer calls once the entry is on the store, and whether it fails before its effect."""
ERRORS = [
    RuntimeError("can't start new thread"),
    pa.ArrowInvalid("no such buffer"),
    InvalidRequestError("the batch does not fit", remedy="correct it"),
]


@pytest.fixture
def table(tmp_path: Path) -> BaseTable:
    return make_people_table(str(tmp_path / "people.lance"), settings=SETTINGS)


def fail_once(monkeypatch: pytest.MonkeyPatch, owner: type, name: str, error: BaseException, *, before: bool) -> None:
    """Let one call of a method fail, before or after its effect."""
    real, calls = getattr(owner, name), count()

    def failing(*args: Any, **options: Any) -> Any:
        fails = next(calls) == 0
        if fails and before:
            raise error
        result = real(*args, **options)
        if fails:
            raise error
        return result

    monkeypatch.setattr(owner, name, failing)


def ids(table: BaseTable) -> list[int]:
    return sorted(Table.open(table.store.uri).to_arrow(consistency="durable")["id"].to_pylist())


@pytest.mark.parametrize(
    ("owner", "name", "before", "error"),
    [(*place, MemoryError()) for place in AFTER_LANDING] + [(*AFTER_LANDING[1], error) for error in ERRORS],
)
def test_error_after_an_entry_landed_leaves_a_writer_that_has_its_rows_and_goes_on(
    table: BaseTable, monkeypatch: pytest.MonkeyPatch, owner: type, name: str, before: bool, error: BaseException
) -> None:
    """The next put found a hole in the MemTable's WAL entries, and the writer stopped for good."""
    with RegionWriter.open(table, create_region(table)) as writer:
        assert writer.put(people(1)).durable
        fail_once(monkeypatch, owner, name, error, before=before)
        with pytest.raises(CommitUnknownError):
            writer.put(people(2))
        assert writer.lookup(people(2).select(["id"])).num_rows == 1
        assert writer.put(people(3)).durable
        writer.flush()
        assert writer.put(people(4)).durable
    assert ids(table) == [1, 2, 3, 4]


def test_error_while_the_entry_of_a_lost_reply_is_read_back_loses_none_of_its_rows(
    table: BaseTable, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = FaultyStore(table.store)
    with RegionWriter.open(reopened(table, store, SETTINGS), create_region(table)) as writer:
        store.lose_reply("put_parts_if_absent")
        with pytest.raises(CommitUnknownError):
            writer.put(people(1))
        fail_once(monkeypatch, MemTable, "add_replayed", MemoryError(), before=True)
        for number in (2, 3):
            with pytest.raises(CommitUnknownError) if number == 2 else nullcontext():
                writer.put(people(number))
        writer.flush()
    assert ids(table) == [1, 2, 3]


def test_rows_that_cannot_be_indexed_are_durable_and_found_all_the_same(
    table: BaseTable, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The put raised the error of the index, and its rows were written with the next one."""
    settings = writer_settings(indexed_write=True)
    with RegionWriter.open(table.with_settings(settings), create_region(table)) as writer:
        fail_once(monkeypatch, MemTableIndexes, "refreshed", MemoryError(), before=True)
        assert writer.put(people(1)).durable
        assert writer.lookup(people(1).select(["id"])).num_rows == 1
    assert ids(table) == [1]


def test_error_that_nobody_knows_leaves_the_thread_that_writes(
    table: BaseTable, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The thread ended, and no later future was ever settled."""
    with RegionWriter.open(table.with_settings(WITH_THREADS), create_region(table)) as writer:
        fail_once(monkeypatch, MemTable, "mark_flushed", RuntimeError("no thread"), before=True)
        with pytest.raises(CommitUnknownError, match="no thread"):
            writer.put_async(people(1)).result(60)
        assert writer.put_async(people(2)).result(60).durable
    assert ids(table) == [1, 2]
