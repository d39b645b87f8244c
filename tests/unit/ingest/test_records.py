"""What is durably known about batches."""

from __future__ import annotations

from functools import partial
from pathlib import Path

import pytest

from memwal_core.errors import CorruptionError, InvalidRequestError
from memwal_core.format.paths import BATCHES_DIRECTORY, batch_claim_path, batch_directory, batch_share_path
from memwal_core.ids import IdSource
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


class _Overtaking:
    """A store in which another process raises the floor just before this one does."""

    def __init__(self, store: ObjectStore, rival: BatchRecords, times: int) -> None:
        self._store = store
        self._rival: BatchRecords | None = rival
        self._times = times

    def __getattr__(self, name: str) -> object:
        if name in {"put", "put_if_absent"}:
            return partial(self._write, name)
        return getattr(self._store, name)

    def _write(self, name: str, path: str, data: bytes) -> object:
        if "/floor" in path and self._rival is not None:
            rival, self._rival = self._rival, None
            for number in range(self._times):
                _run(rival, BatchId.numbered("query", KEPT_NUMBERED + 3 + number))
        return getattr(self._store, name)(path, data)


@pytest.mark.parametrize("times", [1, 8])
def test_the_floor_of_a_stream_never_falls(store: ObjectStore, records: BatchRecords, times: int) -> None:
    """It was read and then put: a slow process lowered it, and a batch without a record would be written again.

    So did one that found the place of the first floor free again, because five others had gone by.
    """
    for number in range(KEPT_NUMBERED):
        _run(records, BatchId.numbered("query", number))
    slow = BatchRecords(_Overtaking(store, records, times), ManualClock())  # type: ignore[arg-type]
    _run(slow, BatchId.numbered("query", KEPT_NUMBERED + 1))
    assert [records.done(BatchId.numbered("query", number)) is not None for number in range(6)] == [True] * 6


class _Counting:
    """A store that lets few objects be deleted."""

    def __init__(self, store: ObjectStore, most: int) -> None:
        self._store = store
        self._left = most

    def __getattr__(self, name: str) -> object:
        return getattr(self._store, name)

    def delete(self, path: str) -> None:
        self._left -= 1
        assert self._left >= 0, "this goes on for ever"
        self._store.delete(path)


@pytest.mark.parametrize("far", [KEPT_NUMBERED + 200, 2**70])
def test_a_number_far_away_costs_what_is_recorded(store: ObjectStore, far: int) -> None:
    """Every number up to the floor was deleted, one after another."""
    records = BatchRecords(_Counting(store, 2 * 8 + 6), ManualClock())  # type: ignore[arg-type]
    for number in range(6):
        _run(records, BatchId.numbered("query", number))
    other = BatchId("query", "without a number")
    records.begin(other, {})
    records.finish(other)
    _run(records, BatchId.numbered("query", far))

    kept = [info for info in store.list_objects(BATCHES_DIRECTORY) if info.path.endswith("done.json")]
    assert len(kept) == 2
    assert [records.done(BatchId.numbered("query", number)) is not None for number in (0, 5, far)] == [True] * 3
    assert records.done(other).rows == 0  # type: ignore[union-attr]


def test_a_batch_that_was_never_begun_cannot_be_finished(records: BatchRecords) -> None:
    """It was recorded as done with no rows, so that its rows were never written."""
    with pytest.raises(InvalidRequestError, match="never begun"):
        records.finish(BATCH)
    assert records.done(BATCH) is None


@pytest.mark.parametrize(
    "content", [b"{}", b'{"rows": 1, "rows_begun": 1, "regions": 5, "finished_at": "", "source": ""}']
)
def test_a_record_without_its_fields_is_named(records: BatchRecords, store: ObjectStore, content: bytes) -> None:
    """It ended with a KeyError."""
    path = f"{batch_directory(BATCH.stream, BATCH.batch)}/done.json"
    store.put(path, content)
    with pytest.raises(CorruptionError) as caught:
        records.done(BATCH)
    assert caught.value.facts["path"] == path
    store.put(batch_share_path(BATCH.stream, BATCH.batch, "{}"), b"{}")
    with pytest.raises(CorruptionError):
        records.share(BATCH, "{}")
    with pytest.raises(CorruptionError):
        records.shares(BATCH)


@pytest.mark.parametrize(
    "content",
    [b"{}", b'{"regions": 3, "begun_at": "", "source": ""}', b'{"regions": {"x": 1}, "begun_at": "", "source": ""}'],
)
def test_a_record_of_what_a_batch_began_with_that_lacks_its_fields_is_named(
    records: BatchRecords, store: ObjectStore, content: bytes
) -> None:
    path = f"{batch_directory(BATCH.stream, BATCH.batch)}/begun.json"
    store.put(path, content)

    with pytest.raises(CorruptionError, match="lacks a field") as caught:
        records.begin(BATCH, ROWS)
    assert caught.value.facts["path"] == path


@pytest.mark.parametrize("content", [b"{}", b'{"regions": 3}'])
def test_a_batch_whose_beginning_lacks_its_fields_is_not_finished(
    records: BatchRecords, store: ObjectStore, content: bytes
) -> None:
    store.put(f"{batch_directory(BATCH.stream, BATCH.batch)}/begun.json", content)

    with pytest.raises(CorruptionError, match="lacks a field"):
        records.finish(BATCH)


@pytest.mark.parametrize("torn", [b"", bytes(60), b"{}", b"[1]"])
def test_power_cut_that_tears_the_note_of_a_claim_stops_no_later_batch(
    records: BatchRecords, store: ObjectStore, torn: bytes
) -> None:
    """S5: the note is replaced in place, so that a cut may leave its name and none of its bytes."""
    batch, region_id = BatchId("flights", "1", None), IdSource().region_id()
    records.note_claim(batch, region_id, 3)
    assert records.claimant(batch, region_id, 3) == batch
    store.put(batch_claim_path(batch.stream, region_id), torn)
    assert records.claimant(batch, region_id, 3) is None
    records.note_claim(batch, region_id, 4)
    assert records.claimant(batch, region_id, 4) == batch
