"""A batch that was written before a copy was made is not written again to the copy, and one that was not is (S1)."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest

from memwal_core.ingest.batch import BatchId
from memwal_core.ingest.records import KEPT_NUMBERED, BatchRecords
from memwal_core.jobs.backup.request import BackupRequest
from memwal_core.jobs.clone.request import CloneRequest
from memwal_core.jobs.ingest.request import IngestRequest
from memwal_core.jobs.outcome import JobOutcome
from memwal_core.jobs.relocate.request import RelocateRequest
from memwal_core.region.census import Census, CensusTaker
from memwal_core.table import Table
from testkit.tables.people import make_people_table, people

ALL = tuple(range(20))


def make_table(tmp_path: Path) -> Table:
    uri = str(tmp_path / "people.lance")
    make_people_table(uri, buckets=2)
    return Table.open(uri)


def ingest(table: Table, directory: Path, name: str, *ids: int) -> int:
    """Ingest a batch and return how many rows were written."""
    source = directory / f"{name}.parquet"
    pq.write_table(people(*ids, name=name), source)
    report = Table.open(table.uri).run(IngestRequest(sources=(str(source),), batch=name))
    return int(report.rows_written)


def copied(table: Table, directory: Path, kind: type[BackupRequest | CloneRequest]) -> Table:
    """Copy a table, and make the copy usable where it is."""
    target = str(directory / "copy.lance")
    assert table.run(kind(target=target)).outcome is JobOutcome.DONE
    Table.open(target).run(RelocateRequest())
    return Table.open(target)


def names(table: Table) -> dict[int, str]:
    rows = Table.open(table.uri, consistency="durable").scan().to_arrow()
    return dict(zip(rows["id"].to_pylist(), rows["name"].to_pylist(), strict=True))


@pytest.mark.parametrize("kind", [BackupRequest, CloneRequest])
def test_batch_that_was_done_before_a_copy_leaves_newer_rows_of_the_copy_alone(
    tmp_path: Path, kind: type[BackupRequest | CloneRequest]
) -> None:
    table = make_table(tmp_path)
    ingest(table, tmp_path, "old", *ALL)
    ingest(table, tmp_path, "new", *ALL)
    copy = copied(table, tmp_path, kind)

    assert ingest(copy, tmp_path, "old", *ALL) == 0

    assert names(copy) == dict.fromkeys(ALL, "new")


def test_numbered_batch_whose_record_went_below_the_floor_is_done_in_a_copy_too(tmp_path: Path) -> None:
    table = make_table(tmp_path)
    records = BatchRecords(table.base.store, table.opened.clock)
    for number in range(KEPT_NUMBERED + 2):
        batch = BatchId.numbered("query", number)
        records.begin(batch, {})
        records.finish(batch)
    copy = copied(table, tmp_path, BackupRequest)

    records = BatchRecords(copy.base.store, table.opened.clock)

    assert all(records.done(BatchId.numbered("query", number)) for number in range(KEPT_NUMBERED + 2))
    assert records.done(BatchId.numbered("query", KEPT_NUMBERED + 2)) is None


def test_batch_that_began_after_the_regions_were_listed_is_written_to_a_copy_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its regions are not in the copy, or its rows were left out of them: a record would hide that."""
    table = make_table(tmp_path)
    original = CensusTaker.take

    def take(taker: CensusTaker, *given: Any) -> Census:
        census = original(taker, *given)
        monkeypatch.undo()
        monkeypatch.setattr(BatchRecords, "finish", _killed)
        with pytest.raises(KeyboardInterrupt):
            ingest(table, tmp_path, "late", *ALL)
        monkeypatch.undo()
        return census

    monkeypatch.setattr(CensusTaker, "take", take)
    copy = copied(table, tmp_path, BackupRequest)

    ingest(copy, tmp_path, "late", *ALL)

    assert names(copy) == dict.fromkeys(ALL, "late")


def _killed(*_: object) -> None:
    raise KeyboardInterrupt
