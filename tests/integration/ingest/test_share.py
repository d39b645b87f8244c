"""One share, many attempts: the same rows as one attempt, and never an old value again."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Iterable
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path

import pyarrow as pa
import pytest

from memwal_core.base_table import BaseTable, Sources
from memwal_core.errors import CommitUnknownError, ConflictError, FencedError, UnavailableError
from memwal_core.format.paths import BATCHES_DIRECTORY
from memwal_core.ids import RegionId
from memwal_core.ingest.admission import RowAdmission
from memwal_core.ingest.batch import BatchId, RegionRows
from memwal_core.ingest.records import BatchRecords
from memwal_core.ingest.share import RegionShare, ShareOutcome, write_share
from memwal_core.reader import Consistency
from memwal_core.reader.merged import MergedReader
from memwal_core.region import ManifestStore
from memwal_core.settings import IngestSettings
from memwal_core.writer import RegionWriter, Takeover
from memwal_core.writer.table_context import TableContext
from testkit.clock import ManualClock
from testkit.faults.faulty_store import Call, FaultyStore, Moment, Rule
from testkit.rng import seeded_rng
from testkit.tables.people import make_people_table, people, reopened
from testkit.tables.regions import blocking, writer_settings

SETTINGS = writer_settings(takeover_quiet_s=300).model_copy(
    # A few rows per WAL entry, so that an attempt can be stopped in the middle.
    update={"ingest": IngestSettings(put_bytes=200, rival_wait_s=0.5)}
)
FIRST = BatchId.numbered("query", 0)
SECOND = BatchId.numbered("query", 1)
ENTRIES = 3
"""Of a rival's, that a waiting attempt sees written one by one, each after ``SLEEPS_PER_ENTRY`` looks."""
SLEEPS_PER_ENTRY = 2


@pytest.fixture
def table(tmp_path: Path) -> BaseTable:
    return make_people_table(str(tmp_path / "people.lance"), settings=SETTINGS, buckets=1)


def _context(table: BaseTable, *ids: int, name: str) -> tuple[str, pa.Table]:
    ((value, rows),) = RowAdmission.of(table).examine(people(*ids, name=name)).parts
    return value, rows


def _region(table: BaseTable, value: str) -> RegionId:
    admission = RowAdmission.of(table)
    directory = TableContext(table, None).load().directory
    (region_id,) = directory.ensure_all([admission.value_of(value)]).values()
    return region_id


def _write(
    table: BaseTable,
    batch: BatchId,
    *ids: int,
    name: str,
    takeover: Takeover = Takeover.FAIL,
    attempt: str = "1",
) -> ShareOutcome:
    value, rows = _context(table, *ids, name=name)
    share = RegionShare(batch, value, _region(table, value), takeover, attempt)
    return write_share(table, share, _pieces(rows))


def _pieces(rows: pa.Table) -> Iterable[pa.Table]:
    return (rows.slice(start, 3) for start in range(0, rows.num_rows, 3))


def _whole_batch(table: BaseTable, batch: BatchId, *ids: int, name: str) -> None:
    """Write a batch of one share, from its beginning to its end."""
    records = BatchRecords(table.store, table.clock)
    value, rows = _context(table, *ids, name=name)
    records.begin(batch, {value: RegionRows(rows.num_rows, name)})
    _write(table, batch, *ids, name=name)
    records.finish(batch)


def _names(table: BaseTable) -> dict[int, str]:
    rows = MergedReader(table, consistency=Consistency.DURABLE).to_arrow()
    assert rows.num_rows == len(set(rows.column("id").to_pylist()))
    return dict(zip(rows.column("id").to_pylist(), rows.column("name").to_pylist(), strict=True))


def _faulty(table: BaseTable) -> tuple[BaseTable, FaultyStore]:
    store = FaultyStore(table.store)
    return reopened(table, store, SETTINGS), store


def _is_wal(path: str) -> bool:
    return "/wal/" in path


class _NthWal:
    """Paths of WAL entries, from the nth that is written on."""

    def __init__(self, nth: int) -> None:
        self._before = nth - 1

    def __call__(self, path: str) -> bool:
        if not _is_wal(path):
            return False
        self._before -= 1
        return self._before < 0


def test_a_share_is_written_and_flushed_once(table: BaseTable) -> None:
    first = _write(table, FIRST, *range(20), name="a")
    again = _write(table, FIRST, *range(20), name="a", attempt="2")

    assert (first.rows, first.written_before) == (20, False)
    assert (again.rows, again.written_before, again.attempt) == (20, True, "1")
    assert _names(table) == dict.fromkeys(range(20), "a")
    (manifest,) = ManifestStore(table.store, table.ids).load_many(ManifestStore(table.store, table.ids).region_ids(), 1)
    assert manifest.writer_epoch == 1
    assert manifest.flushed_generations


def test_a_batch_written_again_after_its_successor_brings_nothing_back(table: BaseTable) -> None:
    for batch, name in ((FIRST, "old"), (SECOND, "new")):
        _whole_batch(table, batch, *range(20), name=name)

    outcome = _write(table, FIRST, *range(20), name="old")

    assert outcome.written_before
    assert _names(table) == dict.fromkeys(range(20), "new")


def test_an_attempt_that_sleeps_before_its_claim_wakes_up_to_nothing(table: BaseTable) -> None:
    """It has seen no record when it began, so only the look after the claim can stop it."""
    slow, store = _faulty(table)
    with ThreadPoolExecutor(1) as pool:
        with blocking(store, "put", path=lambda path: "/claims/" in path) as blocked:
            sleeper = pool.submit(_write, slow, FIRST, *range(20), name="old")
            assert blocked.reached.wait(60)
            for batch, name in ((FIRST, "old"), (SECOND, "new")):
                _whole_batch(table, batch, *range(20), name=name)
        outcome = sleeper.result(60)

    assert outcome.written_before
    assert not [call for call in store.calls if _is_wal(call.path) and call.operation.startswith("put")]
    assert _names(table) == dict.fromkeys(range(20), "new")


@pytest.mark.parametrize("entries_before", [1, 3])
def test_two_attempts_at_once_leave_the_rows_of_one(table: BaseTable, entries_before: int) -> None:
    slow, store = _faulty(table)
    with ThreadPoolExecutor(1) as pool:
        with blocking(store, "put_parts_if_absent", "put_if_absent", path=_NthWal(entries_before)) as blocked:
            sleeper = pool.submit(_write, slow, FIRST, *range(20), name="a", attempt="1")
            assert blocked.reached.wait(60)
            faster = _write(table, FIRST, *range(20), name="a", attempt="2")
        slower = sleeper.result(60)

    assert (faster.written_before, slower.written_before) == (False, True)
    assert slower.attempt == "2"
    assert slower.rows == 20
    assert _names(table) == dict.fromkeys(range(20), "a")


def test_attempts_that_claim_at_the_same_moment_know_each_other(table: BaseTable) -> None:
    """Both expect the same epoch, so one claims another one than it noted."""
    slow, store = _faulty(table)
    quick, log = _faulty(table)
    with ThreadPoolExecutor(2) as pool, blocking(store, "put", path=lambda path: "/claims/" in path) as first:
        sleeper = pool.submit(_write, slow, FIRST, *range(20), name="a", attempt="1")
        assert first.reached.wait(60)
        with blocking(log, "put_parts_if_absent", "put_if_absent", path=_is_wal) as second:
            overtaken = pool.submit(_write, quick, FIRST, *range(20), name="a", attempt="2")
            assert second.reached.wait(60)
            first.release.set()
            winner = sleeper.result(60)
        loser = overtaken.result(60)

    assert (winner.written_before, loser.written_before, loser.attempt) == (False, True, "1")
    assert [call.operation for call in store.calls].count("put") >= 2
    assert _names(table) == dict.fromkeys(range(20), "a")


def test_a_cut_off_attempt_is_repeated_at_once_although_its_claim_looks_alive(table: BaseTable) -> None:
    dying, store = _faulty(table)
    store.fail("put_parts_if_absent", "put_if_absent", path=_is_wal, nth=3, times=None)
    with pytest.raises(Exception, match=r"injected|did not answer"):
        _write(dying, FIRST, *range(20), name="a")
    assert 0 < len(_names(table)) < 20

    outcome = _write(table, FIRST, *range(20), name="a", attempt="2")

    assert (outcome.rows, outcome.written_before) == (20, False)
    assert _names(table) == dict.fromkeys(range(20), "a")


def test_an_attempt_that_died_between_its_note_and_its_claim_is_repeated_at_once(table: BaseTable) -> None:
    """The note names an epoch that nobody has; the writer before it looks alive and was an attempt of this batch."""
    for part in (_is_wal, lambda path: "/manifest/" in path):
        dying, store = _faulty(table)
        store.fail("put_parts_if_absent", "put_if_absent", path=part, nth=3 if part is _is_wal else 1, times=None)
        with pytest.raises(CommitUnknownError):
            _write(dying, FIRST, *range(20), name="a")

    outcome = _write(table, FIRST, *range(20), name="a", attempt="3")

    assert (outcome.rows, outcome.written_before) == (20, False)
    assert _names(table) == dict.fromkeys(range(20), "a")


class _WhileOthersNote(ManualClock):
    """A clock on which whoever sleeps sees another attempt note its claim."""

    def __init__(self, note: Callable[[], None]) -> None:
        super().__init__()
        self._note = note

    def sleep(self, seconds: float) -> None:
        super().sleep(seconds)
        self._note()


def test_an_attempt_waits_for_the_note_that_a_slower_one_has_replaced(table: BaseTable) -> None:
    dying, store = _faulty(table)
    store.fail("put_parts_if_absent", "put_if_absent", path=_is_wal, nth=3, times=None)
    with pytest.raises(Exception, match=r"injected|did not answer"):
        _write(dying, FIRST, *range(20), name="a")
    records, region_id = BatchRecords(table.store, table.clock), _region(table, _context(table, 1, name="a")[0])
    records.note_claim(FIRST, region_id, 0)
    clock = _WhileOthersNote(lambda: records.note_claim(FIRST, region_id, 1))
    waiting = BaseTable(table.store, settings=SETTINGS, sources=Sources(clock, seeded_rng(1)))

    outcome = _write(waiting, FIRST, *range(20), name="a", attempt="2")

    assert (outcome.rows, outcome.written_before, len(clock.sleeps)) == (20, False, 1)


def test_note_of_another_unfinished_batch_stops_no_live_writer(table: BaseTable) -> None:
    value, _ = _context(table, 1, name="a")
    region_id = _region(table, value)
    with RegionWriter.open(table, region_id) as other:
        other.put(people(1, name="other"))
        BatchRecords(table.store, table.clock).note_claim(SECOND, region_id, other.writer_epoch + 1)
        with pytest.raises(ConflictError, match="live writer"):
            _write(table, FIRST, *range(5), name="a")
        other.put(people(2, name="other"))
    assert _names(table) == {1: "other", 2: "other"}


def test_another_live_writer_is_left_alone_unless_fencing_is_asked_for(table: BaseTable) -> None:
    value, _ = _context(table, 1, name="a")
    with RegionWriter.open(table, _region(table, value)) as other:
        other.put(people(1, name="other"))
        with pytest.raises(ConflictError, match="live writer"):
            _write(table, FIRST, *range(5), name="a")
        other.put(people(2, name="other"))

        _write(table, FIRST, *range(5), name="a", takeover=Takeover.FENCE)

        with pytest.raises(FencedError):
            other.put(people(3, name="other"))
    assert _names(table) == dict.fromkeys(range(5), "a")


def test_an_attempt_fenced_by_a_writer_of_others_says_so(table: BaseTable) -> None:
    slow, store = _faulty(table)
    value, _ = _context(table, 1, name="a")
    region_id = _region(table, value)
    with ThreadPoolExecutor(1) as pool:
        with blocking(store, "put_parts_if_absent", "put_if_absent", path=_is_wal) as blocked:
            sleeper = pool.submit(_write, slow, FIRST, *range(20), name="a")
            assert blocked.reached.wait(60)
            other = RegionWriter.open(table, region_id)
            other.put(people(99, name="other"))
        with pytest.raises(FencedError):
            sleeper.result(60)
    other.close()
    assert BatchRecords(table.store, table.clock).shares(FIRST) == {}


def test_an_attempt_overtaken_by_one_that_dies_asks_to_be_repeated(table: BaseTable) -> None:
    slow, store = _faulty(table)
    dying, broken = _faulty(table)
    broken.fail("put_parts_if_absent", "put_if_absent", path=_is_wal, nth=3, times=None)
    with ThreadPoolExecutor(1) as pool:
        with blocking(store, "put_parts_if_absent", "put_if_absent", path=_is_wal) as blocked:
            sleeper = pool.submit(_write, slow, FIRST, *range(20), name="a")
            assert blocked.reached.wait(60)
            with pytest.raises(Exception, match=r"injected|did not answer"):
                _write(dying, FIRST, *range(20), name="a")
        with pytest.raises(UnavailableError, match="write the share again"):
            sleeper.result(60)

    _write(table, FIRST, *range(20), name="a")

    assert _names(table) == dict.fromkeys(range(20), "a")


class _WhileOthersWork(ManualClock):
    """A clock on which whoever sleeps sees another attempt go on: one WAL entry at a time, and then to its end."""

    def __init__(self, directory: Path, entries: int) -> None:
        super().__init__()
        self._directory, self._left = directory, entries
        self._sleeps = 0
        self._turns, self._written = threading.Semaphore(1), threading.Semaphore(0)
        self.rival: Future[ShareOutcome] | None = None

    def before_entry(self, _call: Call) -> None:
        assert not self._left or self._turns.acquire(timeout=60)

    def after_entry(self, call: Call) -> None:
        # A clock as coarse as a store's may be: it dates all entries alike.
        os.utime(self._directory / call.path, (0, 0))
        self._written.release()

    def wait_for_entry(self) -> None:
        assert self._written.acquire(timeout=60)

    def sleep(self, seconds: float) -> None:
        super().sleep(seconds)
        if self.rival is None:
            return
        self._sleeps += 1
        if not self._left:
            self.rival.result(60)
        elif self._sleeps % SLEEPS_PER_ENTRY == 0:
            self._left -= 1
            self._turns.release()
            self.wait_for_entry()


def test_an_attempt_waits_for_a_rival_that_is_slow_as_long_as_it_goes_on(table: BaseTable, tmp_path: Path) -> None:
    clock = _WhileOthersWork(tmp_path / "people.lance", ENTRIES)
    waiting, store = _faulty(table)
    waiting = BaseTable(waiting.store, settings=SETTINGS, sources=Sources(clock, seeded_rng(1)))
    working, slow = _faulty(table)
    with ThreadPoolExecutor(2) as pool:
        with blocking(store, "put_parts_if_absent", "put_if_absent", path=_is_wal) as blocked:
            overtaken = pool.submit(_write, waiting, FIRST, *range(60), name="a", attempt="1")
            assert blocked.reached.wait(60)
            for moment, act in ((Moment.BEFORE, clock.before_entry), (Moment.AFTER, clock.after_entry)):
                slow.add(Rule(act, moment, frozenset({"put_parts_if_absent", "put_if_absent"}), _is_wal, times=None))
            clock.rival = pool.submit(_write, working, FIRST, *range(60), name="a", attempt="2")
            clock.wait_for_entry()
        outcome = overtaken.result(60)

    assert (outcome.written_before, outcome.attempt) == (True, "2")
    assert clock.monotonic() > 2 * SETTINGS.ingest.rival_wait_s
    assert _names(table) == dict.fromkeys(range(60), "a")


def test_deletes_of_a_batch_are_tombstones(table: BaseTable) -> None:
    _write(table, FIRST, *range(6), name="a")
    admission = RowAdmission.of(table, delete_column="gone")
    rows = people(1, 1, 2, 3, 7, name="b").append_column("gone", pa.array([True, False, None, True, True]))
    ((value, part),) = admission.examine(rows).parts

    outcome = write_share(table, RegionShare(SECOND, value, _region(table, value)), _pieces(part))

    assert (outcome.rows, outcome.deletes) == (5, 3)
    assert _names(table) == {0: "a", 1: "b", 2: "b", 4: "a", 5: "a"}


def test_a_batch_is_done_when_all_its_shares_are(table: BaseTable) -> None:
    records = BatchRecords(table.store, table.clock)
    value, _ = _context(table, 1, name="a")
    records.begin(FIRST, {value: RegionRows(5, "x")}, "somewhere")
    _write(table, FIRST, *range(5), name="a")

    done = records.finish(FIRST, "somewhere")

    assert (done.rows, done.regions, done.source) == (5, 1, "somewhere")
    left = [info.path.rpartition("/")[2] for info in table.store.list_objects(BATCHES_DIRECTORY)]
    assert sorted(name for name in left if len(name) < 20) == ["done.json"]
