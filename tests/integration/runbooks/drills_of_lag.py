"""Drills of what piles up: rows that wait, indexes that lag, jobs that do not get on."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import lance

from memwal_core.coordination.job_key import JobKey
from memwal_core.coordination.ledger import RunOutcome
from memwal_core.format.paths import LANCE_WAL_SUFFIX, wal_entry_path
from memwal_core.jobs.memory import MEMORY_LIMIT_FACT, PEAK_MEMORY_FACT
from memwal_core.jobs.merge.report import MERGED_BYTES_FACT
from memwal_core.settings import Settings, WriterSettings
from memwal_core.writer.table_writer import TableWriter
from testkit.faults.file_damage import damage_file
from testkit.tables.people import people
from tests.integration.runbooks.scene import Scene, drill


def _put_one_by_one(scene: Scene, *ids: int, settings: Settings) -> None:
    """Write rows in puts of one row through a writer with other settings, and remember them."""
    with TableWriter.open(scene.table.base.with_settings(settings)) as writer:
        for key in ids:
            writer.put(people(key, name="one by one"))
        writer.flush()
    scene.rows |= dict.fromkeys(ids, "one by one")


@drill("pending-generations", slow=False)
def merges_did_not_run(scene: Scene) -> Iterator[None]:
    scene.environment["MEMWAL_STATUS__PENDING_GENERATIONS_WARN"] = "2"
    yield
    scene.follow("memwal merge $TABLE")


@drill("pending-generations")
def writer_flushes_tiny_memtables(scene: Scene) -> Iterator[None]:
    _put_one_by_one(scene, *range(10, 18), settings=Settings(writer=WriterSettings(max_memtable_rows=1)))
    yield
    scene.follow("memwal merge $TABLE")
    before = scene.table.opened.manifests.load(scene.region).current_generation
    _put_one_by_one(scene, *range(20, 28), settings=Settings())
    after = scene.table.opened.manifests.load(scene.region).current_generation
    assert after == before + 1, "all rows in one MemTable"


@drill("oldest-unmerged")
def quiet_region_was_forgotten(scene: Scene) -> Iterator[None]:
    scene.age(scene.region_path, hours=2)
    yield
    scene.follow("memwal merge $TABLE --region $REGION")


@drill("oldest-unmerged")
def merges_wait_for_more_than_comes(scene: Scene) -> Iterator[None]:
    scene.environment["MEMWAL_MERGE_TRIGGERS__MAX_AGE_S"] = "864000"
    scene.age(scene.region_path, hours=2)
    scene.run("memwal merge $TABLE --due-only")
    yield
    assert "not due yet" in scene.follow("memwal why $TABLE $REGION")
    del scene.environment["MEMWAL_MERGE_TRIGGERS__MAX_AGE_S"]
    scene.follow("memwal merge $TABLE --due-only")


@drill("oldest-unmerged")
def frozen_table_was_forgotten(scene: Scene) -> Iterator[None]:
    scene.run("memwal freeze $TABLE --reason TEXT")
    scene.age(scene.region_path, hours=2)
    yield
    assert "frozen" in scene.follow("memwal why $TABLE $REGION")
    scene.run("memwal thaw $TABLE --cause by-hand --choice accept --reason TEXT")
    scene.follow("memwal merge $TABLE --region $REGION")


@drill("drain-time")
def merges_were_slow(scene: Scene) -> Iterator[None]:
    scene.run("memwal merge $TABLE")
    scene.put(*range(100, 300), name="backlog")
    scene.ran("merge", hours=9, facts={MERGED_BYTES_FACT: 50})
    yield
    scene.follow("memwal compact $TABLE")
    scene.follow("memwal merge $TABLE")


@drill("drain-time")
def each_generation_is_a_pass_of_its_own(scene: Scene) -> Iterator[None]:
    scene.environment |= {"MEMWAL_MERGE__MAX_BYTES": "1", "MEMWAL_STATUS__DRAIN_TIME_WARN_S": "0.001"}
    before = scene.table.base.dataset().version
    scene.run("memwal merge $TABLE")
    assert scene.table.base.dataset().version == before + 2, "the limit bites"
    for key in range(100, 103):
        scene.put(key, name="backlog")
    yield
    del scene.environment["MEMWAL_MERGE__MAX_BYTES"]
    before = scene.table.base.dataset().version
    scene.follow("memwal merge $TABLE")
    assert scene.table.base.dataset().version == before + 1


@drill("wal-lag")
def writer_died(scene: Scene) -> Iterator[None]:
    writer = TableWriter.open(scene.table.base)
    writer.put(people(5, 6, name="tail"))
    died = scene.path.with_name("died")
    scene.path.rename(died)
    scene.rows |= {5: "tail", 6: "tail"}
    scene.uri = str(died)
    scene.age(scene.region_path, hours=2)
    yield
    scene.follow("memwal flush $TABLE --region $REGION --fence")
    scene.follow("memwal merge $TABLE")


@drill("wal-lag")
def disk_lost_an_entry(scene: Scene) -> Iterator[None]:
    scene.put(5, name="lost", flush=False)
    lost = scene.vandal.wal_ids(scene.region, LANCE_WAL_SUFFIX)[-1]
    scene.put(6, name="tail", flush=False)
    damage_file(scene.path / wal_entry_path(scene.region, lost, LANCE_WAL_SUFFIX), "zeroed")
    scene.age(scene.region_path, hours=2)
    yield
    scene.follow("memwal repair $TABLE --dry-run", ends=5)
    scene.values["REGION:wal-ENTRY"] = f"{scene.region}:wal-{lost}"
    scene.follow("memwal repair $TABLE --accept-loss REGION:wal-ENTRY")
    del scene.rows[5]
    scene.follow("memwal flush $TABLE")
    scene.follow("memwal merge $TABLE")


@drill("epoch-changes")
def two_writers_fight(scene: Scene) -> Iterator[None]:
    fenced = []
    for key in range(10, 14):
        fenced.append(TableWriter.open(scene.table.base, takeover="fence"))
        fenced[-1].put(people(key, name="fought"))
        scene.rows[key] = "fought"
    yield
    fenced.pop().close()
    for writer in fenced:
        writer.close()
    scene.age(scene.region_path / "manifest", hours=2)


@drill("epoch-changes")
def writer_restarts_in_a_loop(scene: Scene) -> Iterator[None]:
    died = []
    for key in range(10, 14):
        died.append(TableWriter.open(scene.table.base, takeover="fence"))  # As its unit does after each death.
        died[-1].put(people(key, name="before the end"))
        scene.rows[key] = "before the end"
        moved = scene.path.with_name(f"died{key}")
        scene.path.rename(moved)  # What is left of the process reaches the table no more.
        scene.uri = str(moved)
    yield
    with TableWriter.open(scene.table.base, takeover="fence") as mended:
        mended.put(people(14, name="mended"))
    scene.rows[14] = "mended"
    scene.age(scene.region_path / "manifest", hours=2)


@drill("index-lag")
def catch_up_does_not_run(scene: Scene) -> Iterator[None]:
    scene.environment |= {"MEMWAL_STATUS__INDEX_LAG_WARN": "2"}
    lance.dataset(scene.uri).create_scalar_index("id", "BTREE", name="id_idx")
    scene.run("memwal merge $TABLE")
    yield
    scene.values["NAME"] = "id_idx"
    scene.follow("memwal catchup $TABLE --index NAME")
    scene.follow("memwal catchup $TABLE", ends=3)


@drill("index-lag")
def other_program_compacted(scene: Scene) -> Iterator[None]:
    scene.environment |= {"MEMWAL_STATUS__INDEX_LAG_WARN": "2"}
    lance.dataset(scene.uri).create_scalar_index("id", "BTREE", name="id_idx")
    scene.run("memwal merge $TABLE")
    scene.run("memwal catchup $TABLE")
    lance.dataset(scene.uri).optimize.compact_files()
    yield
    scene.follow("memwal catchup $TABLE")


def _make_snapshot_old(scene: Scene) -> None:
    scene.run("memwal snapshot $TABLE")
    scene.vandal.details(lambda details: replace(details, snapshot_ts_millis=details.snapshot_ts_millis - 9_000_000))
    scene.put(5, name="later")
    scene.age(scene.region_path / "manifest", hours=2)
    scene.run("memwal merge $TABLE")


@drill("snapshot-age")
def snapshot_is_not_built(scene: Scene) -> Iterator[None]:
    _make_snapshot_old(scene)
    yield
    scene.follow("memwal snapshot $TABLE")


@drill("snapshot-age")
def builds_of_it_kept_failing(scene: Scene) -> Iterator[None]:
    _make_snapshot_old(scene)
    for _ in range(3):
        scene.ran("snapshot", outcome=RunOutcome.FAILED, error="UnavailableError")
    scene.run("memwal maintain $TABLE")
    yield
    scene.follow("memwal history $TABLE --job snapshot")
    scene.follow("memwal snapshot $TABLE")


@drill("job-failures")
def store_was_away(scene: Scene) -> Iterator[None]:
    for _ in range(3):
        scene.ran("merge", outcome=RunOutcome.FAILED, error="UnavailableError")
    yield
    scene.follow("memwal merge $TABLE")


@drill("job-failures")
def cycle_goes_on_although_a_job_pauses(scene: Scene) -> Iterator[None]:
    for _ in range(3):
        scene.ran("merge", outcome=RunOutcome.FAILED, error="UnavailableError")
    yield
    scene.follow("memwal maintain $TABLE --ignore-pauses")


@drill("job-failures")
def its_process_died_each_time(scene: Scene) -> Iterator[None]:
    for minutes in (90, 60, 30):
        opened = scene.past(minutes=minutes).opened
        opened.leases.acquire(JobKey("merge"), f"a process that died {minutes}")
        opened.ledger.begin(opened.new_run(JobKey("merge"), "elsewhere"))
    yield
    scene.follow("memwal merge $TABLE")


@drill("stuck-job")
def job_died_with_its_lease(scene: Scene) -> Iterator[None]:
    scene.past(minutes=20).opened.leases.acquire(JobKey("merge"), "a machine that is gone")
    scene.age(scene.path / "_mem_wal" / "_leases", minutes=20)
    yield
    scene.follow("memwal merge $TABLE")


@drill("stuck-job")
def its_clock_was_ahead(scene: Scene) -> Iterator[None]:
    scene.past(days=-1).opened.leases.acquire(JobKey("merge"), "a machine whose clock is wrong")
    scene.age(scene.path / "_mem_wal" / "_leases", hours=1)
    yield
    assert "a machine whose clock is wrong holds its lease until" in scene.follow("memwal why $TABLE $REGION")
    scene.follow("memwal merge $TABLE")


@drill("peak-memory")
def pass_was_too_large(scene: Scene) -> Iterator[None]:
    scene.ran("merge", facts={PEAK_MEMORY_FACT: 95, MEMORY_LIMIT_FACT: 100})
    yield
    scene.values["N"] = "1000000"
    scene.follow("memwal merge $TABLE --max-bytes N")


@drill("peak-memory")
def compaction_was_too_large(scene: Scene) -> Iterator[None]:
    scene.run("memwal merge $TABLE")
    scene.ran("compact", facts={PEAK_MEMORY_FACT: 95, MEMORY_LIMIT_FACT: 100})
    yield
    scene.environment |= {"MEMWAL_COMPACT__MAX_SOURCE_FRAGMENTS": "2", "MEMWAL_COMPACT__BATCH_ROWS": "1024"}
    scene.follow("memwal compact $TABLE --force")
