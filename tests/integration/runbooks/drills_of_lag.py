"""Drills of what piles up: rows that wait, indexes that lag, bytes that stay, jobs that do not get on."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from datetime import timedelta

import lance

from memwal_core.coordination.job_key import JobKey
from memwal_core.coordination.ledger import RunEnd, RunOutcome
from memwal_core.format.paths import LANCE_WAL_SUFFIX, wal_entry_path
from memwal_core.jobs.memory import MEMORY_LIMIT_FACT, PEAK_MEMORY_FACT
from memwal_core.jobs.merge.report import MERGED_BYTES_FACT
from memwal_core.writer.table_writer import TableWriter
from testkit.faults.file_damage import damage_file
from testkit.tables.people import people
from tests.integration.runbooks.scene import Scene, drill


def _ran(scene: Scene, job: str, *, hours: float = 0.0, **end: object) -> None:
    """Record a run that ended now, as a job in another process would."""
    opened = scene.past(hours=hours).opened
    run = opened.new_run(JobKey(job), "elsewhere")
    ended = run.started + timedelta(hours=hours or 0.001)
    opened.ledger.end(run, RunEnd(ended, **{"outcome": RunOutcome.DONE, **end}))  # type: ignore[arg-type]


def _collect(scene: Scene) -> None:
    scene.follow("memwal gc $TABLE --yes")
    scene.age(scene.path, hours=2)
    scene.follow("memwal gc $TABLE --yes")


@drill("pending-generations", slow=False)
def merges_did_not_run(scene: Scene) -> Iterator[None]:
    scene.environment["MEMWAL_STATUS__PENDING_GENERATIONS_WARN"] = "2"
    yield
    scene.follow("memwal merge $TABLE")


@drill("oldest-unmerged")
def quiet_region_was_forgotten(scene: Scene) -> Iterator[None]:
    scene.age(scene.region_path, hours=2)
    yield
    scene.follow("memwal merge $TABLE --region $REGION")


@drill("drain-time")
def merges_were_slow(scene: Scene) -> Iterator[None]:
    scene.run("memwal merge $TABLE")
    scene.put(*range(100, 300), name="backlog")
    _ran(scene, "merge", hours=9, facts={MERGED_BYTES_FACT: 50})
    yield
    scene.follow("memwal compact $TABLE")
    scene.follow("memwal merge $TABLE")


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


@drill("garbage")
def nothing_collects(scene: Scene) -> Iterator[None]:
    scene.environment["MEMWAL_COMPACT__KEEP_VERSIONS"] = "1"
    scene.run("memwal merge $TABLE")
    scene.age(scene.path, days=30)
    scene.run("memwal compact $TABLE --remove-versions --force")
    scene.age(scene.path, days=30)
    yield
    scene.environment.clear()
    _collect(scene)


@drill("kept")
def tag_needs_what_was_merged(scene: Scene) -> Iterator[None]:
    lance.dataset(scene.uri).tags.create("before", scene.table.base.dataset().version)
    scene.run("memwal merge $TABLE")
    scene.age(scene.path, days=30)
    yield
    lance.dataset(scene.uri).tags.delete("before")
    scene.follow("memwal compact $TABLE --remove-versions")
    scene.follow("memwal gc $TABLE --yes")


@drill("kept")
def index_has_not_caught_up(scene: Scene) -> Iterator[None]:
    lance.dataset(scene.uri).create_scalar_index("id", "BTREE", name="id_idx")
    scene.run("memwal merge $TABLE")
    scene.age(scene.path, days=30)
    yield
    scene.follow("memwal catchup $TABLE")


@drill("base-fragments")
def every_merge_adds_one(scene: Scene) -> Iterator[None]:
    scene.environment |= {"MEMWAL_STATUS__BASE_FRAGMENTS_WARN": "2"}
    scene.run("memwal merge $TABLE")
    yield
    scene.follow("memwal compact $TABLE")


@drill("base-versions")
def nothing_removes_versions(scene: Scene) -> Iterator[None]:
    scene.environment["MEMWAL_COMPACT__KEEP_VERSIONS"] = "2"
    for key in range(2):
        scene.put(20 + key, name="later")
        scene.run("memwal merge $TABLE")
    scene.age(scene.path / "_versions", days=30)
    yield
    scene.follow("memwal compact $TABLE --remove-versions")
    _collect(scene)


@drill("snapshot-age")
def snapshot_is_not_built(scene: Scene) -> Iterator[None]:
    scene.run("memwal snapshot $TABLE")
    scene.vandal.details(lambda details: replace(details, snapshot_ts_millis=details.snapshot_ts_millis - 9_000_000))
    scene.put(5, name="later")
    scene.age(scene.region_path / "manifest", hours=2)
    scene.run("memwal merge $TABLE")
    yield
    scene.follow("memwal snapshot $TABLE")


@drill("job-failures")
def store_was_away(scene: Scene) -> Iterator[None]:
    for _ in range(3):
        _ran(scene, "merge", outcome=RunOutcome.FAILED, error="UnavailableError")
    yield
    scene.follow("memwal merge $TABLE")


@drill("job-failures")
def cycle_goes_on_although_a_job_pauses(scene: Scene) -> Iterator[None]:
    for _ in range(3):
        _ran(scene, "merge", outcome=RunOutcome.FAILED, error="UnavailableError")
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


@drill("peak-memory")
def pass_was_too_large(scene: Scene) -> Iterator[None]:
    _ran(scene, "merge", facts={PEAK_MEMORY_FACT: 95, MEMORY_LIMIT_FACT: 100})
    yield
    scene.values["N"] = "1000000"
    scene.follow("memwal merge $TABLE --max-bytes N")
