"""From active to flushed: rotation, the queue, failing flushes, backpressure and what is counted."""

import logging
import re
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import InMemoryMetricReader

from memwal_core.errors import BackpressureError, CommitUnknownError, FencedError, UnavailableError
from memwal_core.format.paths import wal_directory
from memwal_core.ids import IdSource
from memwal_core.region import ManifestStore
from memwal_core.writer import MemoryBudget, RotationReason, stats
from testkit.clock import ManualClock
from testkit.faults.faulty_store import WRITES, Call, FaultyStore, Moment, Rule
from testkit.tables.people import make_people_table, people, reopened
from testkit.tables.regions import blocking, create_region, flushed_rows, open_writer, writer_settings
from testkit.tables.wal_entries import LANCE_CODEC

MANUAL = writer_settings()
THREADED = writer_settings(background_flush=True, max_memtable_rows=2, max_queued_memtables=2)


@pytest.fixture
def table(tmp_path: Path):
    return make_people_table(str(tmp_path / "people.lance"), settings=MANUAL)


def _manifest(table, region_id):
    return ManifestStore(table.store, IdSource()).load(region_id)


def _in_manifest(path: str) -> bool:
    return "/manifest/" in path


def _ids(memtable) -> list[int]:
    return memtable.to_table(["id"]).column("id").to_pylist()


@pytest.mark.req("WRT-12", "MEM-20", "MEM-21", "MEM-35", "WRT-64", "WRT-09")
def test_writes_and_reads_go_on_while_a_flush_is_blocked(table, faulty, region_id) -> None:
    writer = open_writer(table, region_id, THREADED, faulty)
    with blocking(faulty, "put_if_absent", path=_in_manifest) as blocked:
        writer.put(people(1, 2))
        writer.put(people(3))
        assert blocked.reached.wait(60)
        writer.put(people(4))
        assert [_ids(memtable) for memtable in writer.view().memtables] == [[1, 2], [3, 4]]
        found = writer.stats()
        assert (found.queued, found.flushing, found.active_generation, found.active_rows) == (1, True, 2, 2)
        assert found.counts[stats.FLUSHES] == 0
    record = writer.flush()
    assert record.generation == 2
    first, second = _manifest(table, region_id).flushed_generations
    assert flushed_rows(table, region_id, first) == {1: "p1", 2: "p2"}
    assert flushed_rows(table, region_id, second) == {3: "p3", 4: "p4"}
    assert [_ids(memtable) for memtable in writer.view().memtables] == [[]]
    writer.close()


@pytest.mark.req("MEM-27", "MEM-21")
def test_a_full_queue_holds_writers_until_there_is_room(table, faulty, region_id) -> None:
    writer = open_writer(table, region_id, THREADED, faulty)
    with ThreadPoolExecutor(1) as pool, blocking(faulty, "put_if_absent", path=_in_manifest) as blocked:
        for first in (1, 3, 5):
            writer.put(people(first, first + 1))
        assert [memtable.generation for memtable in writer.view().memtables] == [1, 2, 3]
        waiting = pool.submit(writer.put, people(7))
        while writer.stats().counts[stats.BACKPRESSURE_WAITS] == 0:
            assert not waiting.done()
        assert writer.memtable.num_rows == 2
        blocked.release.set()
        assert waiting.result(60).generation == 4
    writer.close()


@pytest.mark.req("MEM-27", "MEM-37")
def test_a_queue_that_stays_full_refuses_the_put_with_nothing_written(table, faulty, region_id, caplog) -> None:
    clock = ManualClock()
    settings = writer_settings(max_memtable_rows=1, max_queued_memtables=1, stalled_queue_s=60)
    writer = open_writer(table, region_id, settings, faulty, clock=clock)
    writer.put(people(1))
    faulty.fail("sync_directory", times=None)
    writer.put(people(2))
    assert not writer.stats().is_stalled
    clock.advance(61)
    with caplog.at_level(logging.WARNING), pytest.raises(BackpressureError) as caught:
        writer.put(people(3))
    assert isinstance(caught.value, UnavailableError)
    assert caught.value.facts["queued"] == 1
    assert writer.stats().is_stalled
    assert len([record for record in caplog.records if "stalled" in record.message]) == 1
    with caplog.at_level(logging.WARNING):
        assert writer.stats().is_stalled
    assert len([record for record in caplog.records if "stalled" in record.message]) == 1
    assert [_ids(memtable) for memtable in writer.view().memtables] == [[1], [2]]
    faulty.heal()
    writer.put(people(3))
    assert not writer.stats().is_stalled
    assert writer.stats().counts[stats.BACKPRESSURE_ERRORS] == 1


@pytest.mark.req("MEM-22", "WRT-71", "WRT-70")
def test_a_failed_flush_blocks_the_next_and_is_retried_with_a_new_prefix(table, faulty, region_id) -> None:
    writer = open_writer(table, region_id, MANUAL, faulty)
    writer.put(people(1))
    writer.rotate()
    writer.put(people(2))
    faulty.fail("sync_directory", times=2)
    for _ in range(2):
        with pytest.raises(UnavailableError):
            writer.flush()
        assert _manifest(table, region_id).flushed_generations == ()
    assert writer.stats().counts[stats.FLUSH_FAILURES] == 2
    assert writer.stats().last_flush_error is not None
    assert writer.flush().generation == 2
    recorded = [record.path for record in _manifest(table, region_id).flushed_generations]
    made = [name for name in table.store.list_directories(f"_mem_wal/{region_id}") if name.endswith("_gen_1")]
    assert len(made) == 3
    assert len(set(made) & set(recorded)) == 1
    assert writer.stats().last_flush_error is None


@pytest.mark.req("MEM-22")
def test_the_thread_retries_a_failed_flush_by_itself(table, faulty, region_id) -> None:
    settings = writer_settings(background_flush=True, flush_retry_wait_s=0.01)
    writer = open_writer(table, region_id, settings, faulty)
    faulty.fail("sync_directory", times=2)
    writer.put(people(1))
    writer.rotate()
    while writer.stats().queued:
        pass
    assert writer.stats().counts[stats.FLUSH_FAILURES] == 2
    assert len(_manifest(table, region_id).flushed_generations) == 1
    writer.close()


@pytest.mark.req("WRT-70", "MAN-28")
def test_a_record_whose_reply_is_lost_is_found_and_not_repeated(table, faulty, region_id) -> None:
    writer = open_writer(table, region_id, MANUAL, faulty)
    writer.put(people(1))
    faulty.lose_reply("put_if_absent", path=_in_manifest, times=None)
    with pytest.raises(CommitUnknownError):
        writer.flush()
    faulty.heal()
    writer.put(people(2))
    assert writer.flush().generation == 2
    first, second = _manifest(table, region_id).flushed_generations
    assert flushed_rows(table, region_id, first) == {1: "p1"}
    assert flushed_rows(table, region_id, second) == {2: "p2"}


@pytest.mark.req("WRT-70")
def test_a_record_that_lands_while_the_flush_is_repeated_is_the_one_that_counts(table, faulty, region_id) -> None:
    writer = open_writer(table, region_id, MANUAL, faulty)
    writer.put(people(1))
    late: list[tuple[str, bytes]] = []
    original = faulty.inner.put_if_absent

    def never_arrives(path: str, data: bytes) -> None:
        if not _in_manifest(path):
            original(path, data)
            return
        late[:] = [(path, data)]
        raise UnavailableError("the store did not answer (injected)", remedy="try again")

    def arrives(_call: Call) -> None:
        if late:
            original(*late.pop())

    faulty.inner.put_if_absent = never_arrives
    with pytest.raises(CommitUnknownError):
        writer.flush()
    faulty.inner.put_if_absent = original
    # After the flush looked for its first attempt, and wrote the MemTable once more.
    faulty.add(Rule(arrives, Moment.BEFORE, frozenset({"sync_directory"}), times=None))

    record = writer.flush()

    assert late == []
    assert _manifest(table, region_id).flushed_generations == (record,)
    assert writer.view().manifest.flushed_generations == (record,)


@pytest.mark.req("MEM-17", "WRT-75")
def test_rotation_by_age_needs_no_further_put(table, region_id) -> None:
    clock = ManualClock()
    writer = open_writer(table, region_id, writer_settings(max_memtable_age_s=60), clock=clock)
    clock.advance(1000)
    writer.put(people(1))
    clock.advance(59)
    writer.run_due()
    assert writer.memtable.generation == 1
    clock.advance(1)
    writer.run_due()
    assert (writer.memtable.generation, writer.stats().rotations) == (2, {RotationReason.AGE: 1})


@pytest.mark.req("MEM-17", "WRT-75")
def test_memory_pressure_rotates_the_writer_that_holds_most(table) -> None:
    budget = MemoryBudget(400)
    small, large = (open_writer(table, create_region(table), MANUAL, memory=budget) for _ in range(2))
    small.put(people(1))
    large.put(people(*range(20)))
    large.put(people(99))
    assert large.stats().rotations == {RotationReason.MEMORY: 1}
    assert small.stats().rotations == {}


@pytest.mark.req("MEM-17", "WRT-75")
@pytest.mark.parametrize("cause", ["its flushes fail", "it was fenced"])
def test_memory_pressure_passes_over_a_writer_that_cannot_flush(table, cause: str) -> None:
    """It was the largest for ever, so that the others were never asked and grew beyond the bound."""
    budget, store = MemoryBudget(2000), FaultyStore(table.store)
    settings = writer_settings(max_queued_memtables=1)
    stuck_region, region = create_region(table), create_region(table)
    stuck = open_writer(reopened(table, store), stuck_region, settings, memory=budget)
    other = open_writer(table, region, settings, memory=budget)
    stuck.put(people(1))
    if cause == "it was fenced":
        open_writer(table, stuck_region, settings).put(people(2))
        with pytest.raises(FencedError):
            stuck.put(people(*range(200)))
    else:
        store.fail(*WRITES, path=lambda path: "_gen_" in path, times=None)
        assert stuck.rotate()
        stuck.put(people(*range(200)))

    other.put(people(1))
    other.put(people(2))

    assert other.stats().rotations == {RotationReason.MEMORY: 1}


@pytest.mark.req("MEM-17", "WRT-75")
def test_memory_stays_bounded_while_every_flush_fails(table) -> None:
    """Each of three hundred regions filled its own MemTable of 64 MiB: the bound of all held only while flushes did."""
    budget, store = MemoryBudget(2000), FaultyStore(table.store)
    settings = writer_settings(max_queued_memtables=1, backpressure_timeout_s=0)
    writers = [open_writer(table, create_region(table), settings, store, memory=budget) for _ in range(3)]
    store.fail(*WRITES, path=lambda path: "_gen_" in path, times=None)

    refused = taken = 0
    for number in range(300):
        try:
            writers[number % 3].put(people(number))
            taken += 1
        except BackpressureError:
            refused += 1

    largest = max(writer.memtable.size_bytes for writer in writers)
    assert sum(writer.memtable.size_bytes for writer in writers) <= 2000 + largest
    assert (refused > 0, taken + refused) == (True, 300)
    store.heal()
    for writer in writers:
        writer.flush()
        writer.put(people(1))


@pytest.mark.req("MEM-17", "MEM-14")
def test_a_requested_rotation_returns_before_the_flush_and_tags_a_new_range(table, region_id) -> None:
    writer = open_writer(table, region_id)
    assert not writer.rotate()
    writer.put(people(1))
    writer.put(people(2))
    assert writer.rotate()
    writer.put(people(3))
    older, active = writer.view().memtables
    assert (older.generation, older.replay_after_wal_id, older.last_wal_id) == (1, 0, 2)
    assert (active.generation, active.replay_after_wal_id, active.last_wal_id) == (2, 2, 3)
    assert active.wal_mapping() == {0: (1, 0)}


def test_a_requested_rotation_waits_for_room_in_the_queue(table, region_id) -> None:
    writer = open_writer(table, region_id, writer_settings(max_queued_memtables=1))
    writer.put(people(1))
    assert writer.rotate()
    writer.put(people(2))
    assert not writer.rotate()
    assert len(writer.view().memtables) == 2
    writer.flush()
    writer.put(people(3))
    assert writer.rotate()


@pytest.mark.req("WRT-63", "WRT-64", "MEM-14")
def test_rows_frozen_before_they_are_durable_get_an_entry_of_their_own(table, region_id) -> None:
    writer = open_writer(
        table, region_id, writer_settings(durable_write=False, max_memtable_rows=2, max_queued_memtables=9)
    )
    writer.put(people(1, 2))
    writer.rotate()
    writer.put(people(3))
    older, active = writer.view().memtables
    assert active.replay_after_wal_id is None
    assert writer.sync() == 2
    assert (older.last_wal_id, active.replay_after_wal_id, active.last_wal_id) == (1, 1, 2)
    writer.flush()
    first, second = _manifest(table, region_id).flushed_generations
    assert flushed_rows(table, region_id, first) == {1: "p1", 2: "p2"}
    assert flushed_rows(table, region_id, second) == {3: "p3"}


@pytest.mark.req("WRT-63")
def test_a_full_memtable_of_rows_that_wait_for_the_wal_is_stored_by_its_flush(table, region_id) -> None:
    settings = writer_settings(durable_write=False, max_memtable_rows=2)
    writer = open_writer(table, region_id, settings, clock=ManualClock())
    writer.put(people(1, 2))
    writer.put(people(3))
    writer.run_due()
    assert LANCE_CODEC.read(table.store, region_id, 1).rows["id"].to_pylist() == [1, 2]
    (flushed,) = _manifest(table, region_id).flushed_generations
    assert flushed_rows(table, region_id, flushed) == {1: "p1", 2: "p2"}


@pytest.mark.req("MEM-19", "MEM-16")
def test_a_batch_above_the_limit_is_taken_whole_by_an_empty_memtable(table, region_id) -> None:
    writer = open_writer(table, region_id, writer_settings(max_memtable_rows=2))
    assert writer.put(people(*range(10))).generation == 1
    assert writer.put(people(11)).generation == 2


@pytest.mark.req("MEM-36", "MEM-13", "MEM-01", "WRT-26", "MEM-38", "MEM-39")
def test_stats_follow_the_rows(table, region_id) -> None:
    writer = open_writer(table, region_id, clock=ManualClock())
    writer.put(people(1, 2))
    writer.put(people(2))
    before = writer.stats()
    wal_bytes = sum(info.size_bytes for info in table.store.list_objects(wal_directory(region_id)))
    assert (before.wal_bytes, before.wal_entries_since_flush, before.last_wal_id) == (wal_bytes, 2, 2)
    assert before.counts[stats.ROWS] == 3
    assert before.store_kind == "local"
    writer.flush()
    after = writer.stats()
    assert (after.active_bytes, after.wal_bytes, after.wal_entries_since_flush, after.queued) == (0, 0, 0, 0)
    assert after.counts[stats.FLUSHES] == 1
    assert after.last_flush_s is not None
    (discarded,) = after.discarded
    assert (discarded.first_wal_id, discarded.last_wal_id, discarded.rows) == (1, 2, 1)


@pytest.mark.req("MEM-36")
def test_gauges_follow_a_memtable_through_the_queue(table, faulty, region_id, monkeypatch) -> None:
    exported = InMemoryMetricReader()
    monkeypatch.setattr(stats.metrics, "get_meter", MeterProvider([exported]).get_meter)
    clock = ManualClock()
    writer = open_writer(table, region_id, MANUAL, faulty, clock=clock)
    writer.put(people(1, 2))
    full = writer.memtable
    assert writer.stats().active_bytes == full.size_bytes > 0
    writer.rotate()
    clock.advance(7)
    clock.jump_wall_time(-3600)
    waiting = writer.stats()
    assert (waiting.active_bytes, waiting.queued, waiting.queued_bytes) == (0, 1, full.size_bytes)
    assert waiting.oldest_queued_s == 7
    (scope,) = exported.get_metrics_data().resource_metrics[0].scope_metrics
    points = {metric.name: metric.data.data_points for metric in scope.metrics}
    gauges = [points[name][-1].value for name in (stats.ACTIVE_BYTES, stats.QUEUED, stats.QUEUED_BYTES)]
    assert gauges == [0, 1, full.size_bytes]
    faulty.add(Rule(lambda _: clock.advance(2), Moment.BEFORE, frozenset({"put_if_absent"}), _in_manifest))
    writer.flush()
    flushed = writer.stats()
    assert (flushed.queued, flushed.queued_bytes, flushed.oldest_queued_s, flushed.last_flush_s) == (0, 0, 0, 2)


@pytest.mark.req("MEM-43", "MEM-23")
def test_one_flush_id_names_table_wal_range_and_manifest_edit_in_the_log(table, region_id, caplog) -> None:
    writer = open_writer(table, region_id)
    writer.put(people(1))
    with caplog.at_level(logging.INFO, logger="memwal_core.writer"):
        record = writer.flush()
    lines = [line for line in caplog.messages if "flush_id=" in line]
    ids = {re.search(r"flush_id=(\w+)", line)[1] for line in lines}
    assert ids == {record.path.partition("_")[0]}
    assert ["begins" in lines[0], "complete" in lines[1], "recorded" in lines[2]] == [True] * 3
    assert "last_wal_id=1" in lines[0]


@pytest.mark.req("MEM-33", "MEM-20")
def test_a_reader_that_holds_a_memtable_keeps_it_through_its_flush(table, region_id) -> None:
    writer = open_writer(table, region_id)
    writer.put(people(1, 2))
    held = writer.view().memtables[0]
    writer.flush()
    writer.put(people(3))
    assert _ids(held) == [1, 2]


@pytest.mark.req("MEM-25", "MEM-26", "MEM-40")
def test_a_flush_releases_memory_and_pointer_and_deletes_no_wal_file(table, faulty, region_id) -> None:
    writer = open_writer(table, region_id, MANUAL, faulty)
    writer.put(people(1))
    writer.flush()
    assert _manifest(table, region_id).replay_after_wal_id == 1
    assert len(list(table.store.list_objects(wal_directory(region_id)))) == 1
    assert faulty.count("delete", "delete_directory") == 0


@pytest.mark.req("MEM-28", "MEM-39", "WRT-08", "D-35")
def test_three_unflushed_generations_are_replayed_into_one_memtable(table, faulty, region_id) -> None:
    settings = writer_settings(max_queued_memtables=9)
    writer = open_writer(table, region_id, settings, faulty)
    faulty.fail("sync_directory", times=None)
    for i in range(3):
        writer.put(people(i))
        writer.rotate()
    assert writer.memtable.generation == 4
    successor = open_writer(table, region_id)
    assert (successor.memtable.generation, _ids(successor.memtable)) == (1, [0, 1, 2])
    assert successor.stats().replayed_entries == 3


@pytest.mark.req("WRT-23", "WRT-24", "WRT-47", "MEM-28")
def test_after_a_replay_keys_are_found_and_the_mapping_grows_with_the_next_write(table, region_id) -> None:
    crashed = open_writer(table, region_id)
    for i in (1, 2):
        crashed.put(people(i))
    writer = open_writer(table, region_id)
    assert writer.lookup(people(2, 7).select(["id"])).column("id").to_pylist() == [2]
    writer.put(people(3))
    assert writer.memtable.wal_mapping() == {0: (1, 0), 1: (2, 0), 2: (3, 0)}


@pytest.mark.req("WRT-45", "WRT-37")
def test_only_a_flush_raises_the_hint_of_the_last_entry(table, region_id) -> None:
    writer = open_writer(table, region_id)
    for i in range(3):
        writer.put(people(i))
    versions = ManifestStore(table.store, IdSource())
    assert {versions.load_version(region_id, v).wal_id_last_seen for v in versions.versions(region_id)} == {0}
    entry = LANCE_CODEC.read(table.store, region_id, 3)
    assert (entry.writer_epoch, entry.rows.num_rows, len(entry.attempt)) == (writer.writer_epoch, 1, 32)
    writer.flush()
    assert _manifest(table, region_id).wal_id_last_seen == 3
