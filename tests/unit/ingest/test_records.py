"""What is durably known about batches."""

from __future__ import annotations

from pathlib import Path

import pytest

from memwal_core.errors import CorruptionError, InvalidRequestError
from memwal_core.format.paths import BATCHES_DIRECTORY, batch_directory
from memwal_core.ingest.batch import BatchId, RegionRows
from memwal_core.ingest.records import KEPT_NUMBERED, BatchRecords, ShareDone
from memwal_core.storage import ObjectStore, open_store
from testkit.clock import ManualClock

BATCH = BatchId("source", "2026-11-21T00:00:00+00:00/a b")
ROWS = {"{}": RegionRows(3, "abc"), "other": RegionRows(1, "d")}


@pytest.fixture
def store(tmp_path: Path) -> ObjectStore:
    return open_store(str(tmp_path))


@pytest.fixture
def records(store: ObjectStore) -> BatchRecords:
    return BatchRecords(store, ManualClock())


def _share(value: str, rows: int = 3, attempt: str = "1") -> ShareDone:
    return ShareDone(value, f"region of {value}", rows, 0, 7, attempt)


def _run(records: BatchRecords, batch: BatchId) -> None:
    records.begin(batch, {"{}": RegionRows(1)})
    records.record_share(batch, _share("{}", 1))
    records.finish(batch)


def test_a_batch_that_was_never_begun_is_not_done(records: BatchRecords) -> None:
    assert records.done(BATCH) is None
    assert records.shares(BATCH) == {}
    assert records.settled(BATCH, "{}") is None


def test_the_faster_attempt_is_the_one_that_is_recorded(records: BatchRecords) -> None:
    assert records.record_share(BATCH, _share("{}", attempt="2")).attempt == "2"
    assert records.record_share(BATCH, _share("{}", attempt="1")).attempt == "2"
    assert records.shares(BATCH) == {"{}": _share("{}", attempt="2")}


def test_the_same_rows_may_begin_again_and_others_may_not(records: BatchRecords) -> None:
    records.begin(BATCH, ROWS, "a.csv")
    records.begin(BATCH, ROWS, "a.csv")

    for other in ({"{}": RegionRows(3, "abc")}, {**ROWS, "other": RegionRows(1, "e")}):
        with pytest.raises(InvalidRequestError) as caught:
            records.begin(BATCH, other, "b.csv")
        assert caught.value.facts["source_then"] == "a.csv"


def test_a_batch_with_a_missing_share_cannot_be_finished(records: BatchRecords) -> None:
    records.begin(BATCH, ROWS)
    records.record_share(BATCH, _share("{}"))

    with pytest.raises(InvalidRequestError) as caught:
        records.finish(BATCH)
    assert caught.value.facts["missing"] == ["other"]
    records.record_share(BATCH, _share("other", 1))
    done = records.finish(BATCH, "a.csv")

    assert (done.rows, done.regions, done.source) == (4, 2, "a.csv")
    assert records.finish(BATCH) == done
    assert records.settled(BATCH, "{}") == done


def test_batches_are_kept_apart_by_stream_and_id(records: BatchRecords) -> None:
    _run(records, BatchId("a", "b"))

    assert records.done(BatchId("a", "b"))
    assert [records.done(BatchId(*other)) for other in (("a", "c"), ("b", "b"), ("ab", "b"))] == [None] * 3


def test_old_batches_of_a_numbered_stream_are_removed_and_still_count_as_done(
    records: BatchRecords, store: ObjectStore
) -> None:
    last = KEPT_NUMBERED + 5
    for number in range(last + 1):
        _run(records, BatchId.numbered("query", number))

    kept = [info for info in store.list_objects(BATCHES_DIRECTORY) if info.path.endswith("done.json")]
    assert len(kept) == KEPT_NUMBERED
    assert all(records.done(BatchId.numbered("query", number)) for number in range(last + 1))
    assert records.done(BatchId.numbered("query", last + 1)) is None
    assert records.done(BatchId.numbered("query", 2)).rows is None  # type: ignore[union-attr]
    assert records.done(BatchId.numbered("another", 2)) is None


def test_a_record_that_cannot_be_read_stops_everything(records: BatchRecords, store: ObjectStore) -> None:
    store.put(f"{batch_directory(BATCH.stream, BATCH.batch)}/done.json", b"[]")

    with pytest.raises(CorruptionError):
        records.done(BATCH)


@pytest.mark.parametrize(("stream", "batch"), [("", "1"), ("a", "")])
def test_a_batch_without_a_name_is_refused(stream: str, batch: str) -> None:
    with pytest.raises(InvalidRequestError):
        BatchId(stream, batch)
