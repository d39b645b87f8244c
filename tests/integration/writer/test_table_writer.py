"""Routing batches to regions, and the creation of regions when writers race."""

import threading
from concurrent.futures import ThreadPoolExecutor, wait
from contextlib import nullcontext
from pathlib import Path

import pyarrow as pa
import pytest

from memwal_core.base_table import BaseTable
from memwal_core.errors import (
    CommitUnknownError,
    ConflictError,
    CorruptionError,
    DamagedError,
    FencedError,
    InvalidRequestError,
)
from memwal_core.format.paths import manifest_directory, manifest_path, region_reservation_path
from memwal_core.ids import IdSource
from memwal_core.reader import Consistency
from memwal_core.reader.merged import MergedReader
from memwal_core.region import ManifestStore, RegionStatus
from memwal_core.region.spec import RegionRouter, encode_region_value
from memwal_core.settings import Settings, StorageSettings, WriterSettings
from memwal_core.writer import RegionWriter, TableWriter
from memwal_core.writer.region_directory import RegionDirectory
from testkit.clock import ManualClock
from testkit.faults.faulty_store import Call, FaultyStore, Moment, Rule
from testkit.tables.native_regions import make_table_divided_by
from testkit.tables.people import make_people_table, people, reopened, with_clock
from testkit.tables.regions import blocking

FAST = Settings(storage=StorageSettings(fsync=False, retry_wait_s=0))


@pytest.fixture
def table(tmp_path: Path):
    return make_people_table(str(tmp_path / "people.lance"), settings=FAST)


def _manifests(table) -> ManifestStore:
    return ManifestStore(table.store, IdSource(), settings=FAST.storage)


def _spec(table):
    return table.state().details.region_specs[0]


@pytest.mark.req("SPEC-03", "SPEC-30", "SPEC-37", "FMT-01", "FMT-45")
def test_a_batch_creates_one_region_per_value_and_every_row_reaches_its_own(table) -> None:
    with TableWriter.open(table) as writer:
        receipt = writer.put(people(*range(100)))
    assert (receipt.rows, receipt.rows_left, len(receipt.regions)) == (100, 0, 4)
    router = RegionRouter(_spec(table), table.state().field_ids)
    seen = []
    for value, region in writer.writers.items():
        rows = region.memtable.to_table().drop_columns(["_tombstone"])
        assert set(router.values(rows)) == {value}
        seen += rows.column("id").to_pylist()
    assert sorted(seen) == list(range(100))
    manifests = _manifests(table).load_many(_manifests(table).region_ids(), 4)
    assert {m.region_spec_id for m in manifests} == {1}
    assert {m.status for m in manifests} == {RegionStatus.SEALED}
    assert {m.region_id.version for m in manifests} == {4}


def test_a_writer_has_the_settings_of_its_table(table) -> None:
    """It had those of the environment, whatever the table was opened with."""
    settings = FAST.model_copy(update={"writer": WriterSettings(durable_write=False)})
    buffered = BaseTable.open(table.uri, settings=settings)
    with TableWriter.open(buffered) as writer:
        ((region_id, receipt),) = writer.put(people(1)).regions.items()
        assert not receipt.durable
    with RegionWriter.open(buffered, region_id) as writer:
        assert not writer.put(people(1)).durable


@pytest.mark.req("SPEC-32")
def test_a_key_stays_in_its_region_over_writers(table) -> None:
    for name in ("first", "second"):
        with TableWriter.open(table) as writer:
            writer.put(people(7, name=name))
            holders = [w for w in writer.writers.values() if w.memtable.num_rows]
            assert len(holders) == 1
    assert holders[0].memtable.to_table(["name"]).column("name").to_pylist() == ["first", "second"]
    assert len(_manifests(table).region_ids()) == 1


@pytest.mark.req("SPEC-37")
def test_eight_writers_that_meet_a_new_value_create_one_region(table) -> None:
    spec, found, barrier = _spec(table), [], threading.Barrier(8)

    def create() -> None:
        directory = RegionDirectory(table.store, spec, _manifests(table), IdSource(), 4)
        barrier.wait()
        found.append(directory.ensure_all([(2,)])[(2,)])

    threads = [threading.Thread(target=create) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(found) == 8
    assert len(set(found)) == 1
    assert _manifests(table).region_ids() == sorted(set(found))


def test_a_new_region_value_reads_no_manifest_of_a_region_that_is_known(table) -> None:
    """Each put with a new value read the manifests of all regions."""
    store = FaultyStore(table.store)
    manifests = ManifestStore(store, IdSource(), settings=FAST.storage)
    directory = RegionDirectory(store, _spec(table), manifests, IdSource(), 4)
    known = directory.ensure_all([(0,), (1,)])
    directory.refresh()
    encoded = encode_region_value(_spec(table), (2,))
    by_hand = _manifests(table).create(
        IdSource().region_id(), region_spec_id=1, region_field_values=encoded, status=RegionStatus.SEALED
    )
    store.calls.clear()

    found = directory.ensure_all([(2,)])
    created = directory.ensure_all([(3,)])

    assert found == {(2,): by_hand.region_id}, "what another writer made without a reservation is found"
    assert directory.known == known | found | created
    assert not [call.path for call in store.calls for each in known.values() if manifest_directory(each) in call.path]


@pytest.mark.req("SPEC-37")
def test_a_creator_that_died_after_its_reservation_is_finished_by_the_next(table) -> None:
    faulty = FaultyStore(table.store)
    faulty.fail("put_if_absent", path=lambda path: "/manifest/" in path, times=None)
    broken = RegionDirectory(
        faulty, _spec(table), ManifestStore(faulty, IdSource(), settings=FAST.storage), IdSource(), 4
    )
    with pytest.raises(CommitUnknownError):
        broken.ensure_all([(1,)])
    reserved = [info.path for info in table.store.list_objects("_mem_wal") if info.path.endswith(".json")]
    assert len(reserved) == 1
    region_id = RegionDirectory(table.store, _spec(table), _manifests(table), IdSource(), 4).ensure_all([(1,)])[(1,)]
    assert str(region_id) in table.store.get(reserved[0]).decode()


@pytest.mark.parametrize("keeps", ["its reservation", "nothing"])
def test_damaged_region_costs_its_own_rows_unless_nothing_else_tells_which_they_are(table, keeps: str) -> None:
    """No other region could be written either, whichever of them was damaged."""
    with TableWriter.open(table) as writer:
        writer.put(people(*range(100)))
        regions = {value: region.region_id for value, region in writer.writers.items()}
    hurt = regions[2,]
    damaged = manifest_path(hurt, _manifests(table).load(hurt).version)
    table.store.put(damaged, bytes(100))
    if keeps == "nothing":
        table.store.delete(region_reservation_path(1, encode_region_value(_spec(table), (2,))))
        with pytest.raises(DamagedError):
            TableWriter.open(table)
        return

    router, refused = RegionRouter(_spec(table), table.state().field_ids), set()
    with TableWriter.open(table) as writer:
        for value, rows in router.route(people(*range(100, 200))):
            try:
                writer.put(rows)
            except DamagedError as error:
                refused.add((value, error.facts["region_id"]))

    assert refused == {((2,), str(hurt))}
    assert _manifests(table).region_ids() == sorted(regions.values())


def test_two_regions_of_one_value_stop_the_writer(table) -> None:
    manifests = _manifests(table)
    for _ in range(2):
        manifests.create(
            IdSource().region_id(),
            region_spec_id=1,
            region_field_values=encode_region_value(_spec(table), (3,)),
            status=RegionStatus.SEALED,
        )
    with pytest.raises(CorruptionError, match="two regions"):
        TableWriter.open(table)


@pytest.mark.req("WRT-27")
def test_a_bad_row_anywhere_refuses_the_batch_before_any_region_sees_it(table) -> None:
    bad = pa.table({"id": pa.array([1, 2, None], pa.int64()), "name": ["a", "b", "c"], "score": [1.0, 2.0, 3.0]})
    with TableWriter.open(table) as writer:
        with pytest.raises(InvalidRequestError):
            writer.put(bad)
        assert writer.writers == {}


def test_a_writer_leaves_the_regions_of_others_alone(table) -> None:
    with TableWriter.open(table, accept=lambda value: value == (0,)) as writer:
        receipt = writer.put(people(*range(100)))
        assert list(writer.writers) == [(0,)]
    assert receipt.rows + receipt.rows_left == 100
    assert receipt.rows_left > 0


@pytest.mark.req("SPEC-01")
def test_an_unknown_spec_id_is_refused_with_the_known_ones(table) -> None:
    with pytest.raises(InvalidRequestError) as caught:
        TableWriter.open(table, spec_id=9)
    assert caught.value.facts == {"spec_id": 9, "known": [1]}


def test_flush_records_one_generation_for_every_region_with_rows(table) -> None:
    with TableWriter.open(table) as writer:
        writer.put(people(*range(100)))
        assert sorted(record.generation for record in writer.flush().values()) == [1, 1, 1, 1]
        assert writer.flush() == {}


def test_reopened_table_shares_the_store(table) -> None:
    recorder = FaultyStore(table.store)
    with TableWriter.open(reopened(table, recorder, FAST)) as writer:
        writer.put(people(1))
    assert recorder.count("put_parts_if_absent") == 1


@pytest.mark.req("WRT-34", "MEM-18")
def test_concurrent_callers_share_wal_entries_and_lose_nothing(table) -> None:
    store = FaultyStore(table.store)
    with TableWriter.open(reopened(table, store, FAST)) as writer:
        writer.put(people(*range(100)))
        before = store.count("put_parts_if_absent")
        with blocking(store, "put_parts_if_absent") as blocked, ThreadPoolExecutor(2) as pool:
            first = pool.submit(writer.put, people(*range(100), name="first"))
            assert blocked.reached.wait(60)
            second = pool.submit(writer.put, people(*range(100), name="second"))
            # The second caller gets its rows in while the first is held up in the store.
            while sum(region.memtable.num_rows for region in writer.writers.values()) < 300:
                wait([second], timeout=0.001)
            blocked.release.set()
            assert [future.result(60).rows for future in (first, second)] == [100, 100]
        assert store.count("put_parts_if_absent") - before <= 8
        rows = [region.lookup(people(*range(100)).select(["id"])) for region in writer.writers.values()]
        assert sum(found.num_rows for found in rows) == 100


@pytest.mark.req("WRT-87")
def test_a_close_that_failed_can_be_repeated_and_then_everything_is_durable(table) -> None:
    faulty = FaultyStore(table.store)
    settings = FAST.model_copy(update={"writer": WriterSettings(durable_write=False, background_flush=False)})
    writer = TableWriter.open(reopened(table, faulty, settings))
    writer.put(people(*range(20)))
    faulty.fail("put_parts_if_absent", times=None)

    with pytest.raises(CommitUnknownError):
        writer.close()
    assert not writer.is_closed
    faulty.heal()
    writer.close()
    writer.close()

    assert writer.is_closed
    assert MergedReader(table, consistency=Consistency.DURABLE).count() == 20


@pytest.mark.parametrize("call", ["put", "delete", "flush"])
def test_a_writer_whose_close_failed_takes_only_another_close(table, call: str) -> None:
    """One region was closed, the other was not: a batch was refused or written by the regions that it had rows for."""
    faulty = FaultyStore(table.store)
    settings = FAST.model_copy(update={"writer": WriterSettings(durable_write=False, background_flush=False)})
    writer = TableWriter.open(reopened(table, faulty, settings))
    writer.put(people(*range(20)))
    faulty.fail("put_parts_if_absent")
    with pytest.raises(CommitUnknownError):
        writer.close()
    calls = {
        "put": lambda: writer.put(people(*range(20), name="late")),
        "delete": lambda: writer.delete(people(*range(20)).select(["id"])),
        "flush": writer.flush,
    }

    with pytest.raises(InvalidRequestError, match="the writer is being closed") as refused:
        calls[call]()

    assert refused.value.remedy == "call close again, and open a new writer for more rows"
    writer.close()
    found = MergedReader(table, consistency=Consistency.DURABLE).to_arrow().sort_by("id")
    assert found["name"].equals(people(*range(20))["name"])


def test_a_close_during_a_put_gives_up_the_region_that_the_put_claims(table) -> None:
    """The put ended with a RuntimeError of the thread pool, and its region seemed to have a live writer."""
    store = FaultyStore(table.store)
    writer = TableWriter.open(reopened(table, store, FAST))
    with blocking(store, "put_if_absent") as blocked, ThreadPoolExecutor(2) as pool:
        put = pool.submit(writer.put, people(1))
        assert blocked.reached.wait(60)
        close = pool.submit(writer.close)
        wait([close], timeout=0.2)
        blocked.release.set()
        close.result(60)
        assert put.exception(60) is None or "the writer is closed" in str(put.exception())

    with TableWriter.open(table) as successor:
        successor.put(people(1, name="later"))
        assert successor.flush()


@pytest.mark.req("WRT-87")
@pytest.mark.parametrize("fenced", [0, 3])
def test_a_repeated_close_still_tells_that_a_region_was_taken_over_before_its_rows_were_durable(
    table, fenced: int
) -> None:
    """It ended without an error, as if the rows of all regions were durable."""
    faulty = FaultyStore(table.store)
    settings = FAST.model_copy(update={"writer": WriterSettings(durable_write=False, background_flush=False)})
    writer = TableWriter.open(reopened(table, faulty, settings))
    writer.put(people(*range(40)))
    taken = list(writer.writers)[fenced]
    with TableWriter.open(table, takeover="fence", accept=lambda value: value == taken) as rival:
        rival.put(people(*range(40), name="rival"))
    other = str(list(writer.writers.values())[1].region_id)
    faulty.fail("put_parts_if_absent", path=lambda path: other in path)

    with pytest.raises(CommitUnknownError):
        writer.close()
    assert not writer.is_closed
    with pytest.raises(FencedError):
        writer.close()

    assert writer.is_closed
    found = MergedReader(table, consistency=Consistency.DURABLE).to_arrow()
    routed = dict(RegionRouter(_spec(table), table.state().field_ids).route(people(*range(40))))
    assert (found.num_rows, found["name"].to_pylist().count("rival")) == (40, routed[taken].num_rows)


def test_each_close_tells_of_rows_that_a_conflict_lost_and_the_end_of_a_with_does_not_repeat_it(table) -> None:
    """Conflicts seemed to pass, so that the next close ended without an error, as if the rows were durable."""
    faulty = FaultyStore(table.store)
    settings = FAST.model_copy(update={"writer": WriterSettings(durable_write=False, background_flush=False)})

    def conflict(call: Call) -> None:
        raise ConflictError("a fenced predecessor wrote late", remedy="open the region again", path=call.path)

    with TableWriter.open(reopened(table, faulty, settings)) as writer:
        writer.put(people(*range(40)))
        lost = str(next(iter(writer.writers.values())).region_id)
        faulty.add(Rule(conflict, Moment.BEFORE, frozenset(["put_parts_if_absent"]), path=lambda path: lost in path))
        for _ in range(3):
            with pytest.raises(ConflictError, match="wrote late"):
                writer.close()
            assert writer.is_closed

    assert 0 < MergedReader(table, consistency=Consistency.DURABLE).count() < 40


class _Interrupted(ThreadPoolExecutor):
    """Whoever waits for what is submitted next is interrupted, once."""

    is_due = False

    def submit(self, fn, /, *args, **kwargs):
        future = super().submit(fn, *args, **kwargs)
        if self.is_due:
            self.is_due = False

            def interrupted(timeout: float | None = None) -> None:
                raise KeyboardInterrupt

            future.exception = interrupted
        return future


@pytest.mark.parametrize(("is_fenced", "error"), [(True, FencedError), (False, CommitUnknownError)])
def test_what_a_close_met_after_its_caller_was_interrupted_is_told_by_the_next(table, is_fenced: bool, error) -> None:
    """The next close ended without an error, and the buffered rows of the region were lost."""
    faulty, pool = FaultyStore(table.store), _Interrupted(2)
    settings = FAST.model_copy(update={"writer": WriterSettings(durable_write=False, background_flush=False)})
    writer = TableWriter.open(reopened(table, faulty, settings), executor=pool)
    writer.put(people(1))
    if is_fenced:
        with TableWriter.open(table.with_settings(FAST), takeover="fence") as rival:
            rival.put(people(1, name="rival"))
    with blocking(faulty, "put_parts_if_absent") as blocked:
        if not is_fenced:
            faulty.fail("put_parts_if_absent", times=2)
        pool.is_due = True
        with pytest.raises(KeyboardInterrupt):
            writer.close()
        assert blocked.reached.wait(60)
        blocked.release.set()

    with pytest.raises(error):
        writer.close()
    with pytest.raises(error) if is_fenced else nullcontext():  # What is lost stays lost.
        writer.close()

    assert writer.is_closed
    found = MergedReader(table, consistency=Consistency.DURABLE).to_arrow()
    assert found["name"].to_pylist() == ["rival" if is_fenced else "p1"]


class _InterruptedAtItsEnd(ThreadPoolExecutor):
    """Whoever ends it is interrupted, once."""

    is_due = True

    def shutdown(self, wait: bool = True, *, cancel_futures: bool = False) -> None:
        super().shutdown(wait=wait, cancel_futures=cancel_futures)
        if self.is_due:
            self.is_due = False
            raise KeyboardInterrupt


def test_a_close_that_was_interrupted_while_its_threads_ended_is_done_by_the_next(table) -> None:
    """Each further close failed, because an executor that was shut down takes no work."""
    writer = TableWriter.open(table.with_settings(FAST), executor=_InterruptedAtItsEnd(2))
    writer.put(people(1))
    with pytest.raises(KeyboardInterrupt):
        writer.close()

    writer.close()

    assert writer.is_closed


@pytest.mark.parametrize("content", [b'{"region_id": "abc"}', b'{"region_id": 5}', b"[]", b"no json"])
def test_a_damaged_reservation_of_a_region_value_is_corruption(table, content: bytes) -> None:
    """A text that is no region id blamed the caller's request."""
    spec = _spec(table)
    path = region_reservation_path(spec.spec_id, encode_region_value(spec, (2,)))
    table.store.put(path, content)
    with pytest.raises(CorruptionError) as caught:
        RegionDirectory(table.store, spec, _manifests(table), IdSource(), 4).ensure_all([(2,)])
    assert caught.value.facts["path"] == path


def test_deletes_by_key_say_what_to_do_where_other_columns_decide_the_region(tmp_path: Path) -> None:
    """The error asked for the column that a delete refuses."""
    table = make_table_divided_by("tenant", str(tmp_path / "t"), pa.schema([("tenant", pa.string())]))
    with table.writer() as writer:
        writer.put(pa.table({"id": [1, 2], "tenant": ["a", None]}))
        with pytest.raises(InvalidRequestError, match="call delete of the region's own writer") as refused:
            writer.delete(pa.table({"id": [1]}))
        assert refused.value.facts["columns"] == ["tenant"]
        writer.writers[("a",)].delete(pa.table({"id": [1]}))
        assert table.to_arrow().column("id").to_pylist() == [2]


def test_rows_whose_write_was_not_answered_become_durable_by_the_sync_that_the_error_names(table) -> None:
    """A table writer had no ``sync``."""
    faulty = FaultyStore(table.store)
    writer = TableWriter.open(reopened(table, faulty, FAST))
    writer.put(people(*range(40)))
    faulty.fail("put_parts_if_absent", times=1)
    with pytest.raises(CommitUnknownError) as caught:
        writer.put(people(*range(40), name="again"))
    assert "put the same rows again, or call sync()" in caught.value.remedy

    writer.sync()

    assert {stats.pending_puts for stats in writer.stats().values()} == {0}
    found = MergedReader(table, consistency=Consistency.DURABLE).to_arrow()
    assert found["name"].to_pylist() == ["again"] * 40
    writer.close()
    with pytest.raises(InvalidRequestError, match="the writer is closed"):
        writer.sync()


def test_a_loop_of_the_application_flushes_what_is_due_in_all_regions(table) -> None:
    settings = FAST.model_copy(update={"writer": WriterSettings(background_flush=False, max_memtable_age_s=1)})
    clock = ManualClock()
    with TableWriter.open(with_clock(table.with_settings(settings), clock)) as writer:
        writer.put(people(*range(40)))
        clock.advance(2)

        writer.run_due()

        assert [stats.active_rows for stats in writer.stats().values()] == [0] * 4
        assert MergedReader(table, consistency=Consistency.LATEST).count() == 40
