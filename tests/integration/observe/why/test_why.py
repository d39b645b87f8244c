"""For one region, every job says whether it would act, and why."""

from __future__ import annotations

import shutil
import uuid
from datetime import UTC, datetime, timedelta

import pytest

from memwal_core.coordination.job_key import JobKey
from memwal_core.coordination.ledger import RunEnd, RunOutcome
from memwal_core.errors import FrozenError, ObjectNotFoundError
from memwal_core.format.paths import region_directory
from memwal_core.ids import RegionId
from memwal_core.jobs.gc.request import GcRequest
from memwal_core.jobs.merge.request import MergeRequest
from memwal_core.jobs.outcome import JobOutcome
from memwal_core.jobs.snapshot.plan import SnapshotReason
from memwal_core.jobs.snapshot.request import SnapshotRequest
from memwal_core.settings import GcSettings, IndexSettings, MergeTriggerSettings, Settings
from memwal_core.table import Table
from testkit.clock import ManualClock
from testkit.faults.damage import Vandal
from testkit.tables.garbage import drop_old_versions
from testkit.tables.native_regions import Put, native_region_id, write_native_generations
from testkit.tables.people import make_people_table, people

REGION = native_region_id(1)
OTHER = native_region_id(2)


@pytest.fixture
def uri(tmp_path):
    uri = str(tmp_path / "t")
    make_people_table(uri, rows=people(*range(5)))
    write_native_generations(uri, REGION, [[Put(people(1, 2))], [Put(people(3))]])
    return uri


def ask(uri, later_s=0.0, **settings):
    clock = ManualClock(datetime.now(tz=UTC) + timedelta(seconds=later_s))
    admin = Table.open(uri, settings=Settings(**settings), clock=clock)
    answer = admin.why(REGION)
    assert answer.to_dict()["region_id"] == str(REGION)
    return admin, {verdict.job: verdict for verdict in answer.verdicts}


def test_young_region_with_few_generations_is_not_due_and_tells_the_distances(uri):
    _, answers = ask(uri)
    assert not answers["merge"].acts
    assert answers["merge"].reason.startswith("not due yet: generations 2 of 8, bytes")
    assert answers["gc"].reason == ("keeps 2 flushed MemTables, generation 1 because: not merged (merge progress is 0)")


def test_one_flushed_memtable_is_told_in_the_singular(tmp_path):
    uri = str(tmp_path / "t")
    make_people_table(uri, rows=people(*range(5)))
    write_native_generations(uri, REGION, [[Put(people(1, 2))]])
    assert ask(uri)[1]["gc"].reason.startswith("keeps 1 flushed MemTable, generation 1")
    Table.open(uri).run(MergeRequest())
    drop_old_versions(uri)
    _, answers = ask(uri, later_s=700, gc=GcSettings(open_writer_s=0))
    assert answers["gc"].reason == "collects 1 flushed MemTable"


def test_quiet_region_becomes_due_by_age_alone(uri):
    """Two generations never reach a count of eight; their age makes them due (bug 36)."""
    _, answers = ask(uri, later_s=700)
    assert answers["merge"].acts
    assert "age" in answers["merge"].reason
    assert "generations" not in answers["merge"].reason


def test_count_alone_makes_due(uri):
    _, answers = ask(uri, merge_triggers=MergeTriggerSettings(generations=2))
    assert answers["merge"].acts


def test_after_the_merge_nothing_waits_and_garbage_is_free(uri):
    Table.open(uri).run(MergeRequest())
    drop_old_versions(uri)
    _, answers = ask(uri, later_s=700, gc=GcSettings(open_writer_s=0))
    assert answers["merge"].reason == "nothing waits for a merge"
    assert answers["gc"].acts
    assert answers["gc"].reason.startswith("collects 2 flushed MemTables")
    assert answers["gc"].facts["free_through"] == 2


@pytest.mark.req("GC-17")
def test_retained_version_that_needs_the_garbage_is_the_reason_why_it_stays(uri):
    """The answer is the plan of the collection: what a version or tag still needs is not called free."""
    admin = Table.open(uri)
    before = admin.base.state().version
    admin.run(MergeRequest())
    admin.base.dataset().tags.create("audit", before)
    drop_old_versions(uri)

    _, answers = ask(uri, later_s=700)

    verdict = answers["gc"]
    assert not verdict.acts
    assert verdict.reason == (
        "keeps 2 flushed MemTables, generation 1 because: a retained version needs it "
        f"(version {before} (tagged audit) had merged 0)"
    )
    assert verdict.facts["kept"] == {"flushed_memtable": {"a retained version needs it": 2}, **kept_registers(verdict)}
    assert not [item for item in admin.run(GcRequest()).plan.free if item.region_id == REGION]
    admin.base.dataset().tags.delete("audit")
    drop_old_versions(uri)
    admin, answers = ask(uri, later_s=700, gc=GcSettings(open_writer_s=0))
    assert answers["gc"].acts
    assert [item.number for item in admin.run(GcRequest()).plan.free if item.region_id == REGION] == [1, 2]


def test_merged_garbage_stays_for_open_writers_of_other_programs(uri):
    Table.open(uri).run(MergeRequest())
    drop_old_versions(uri)
    _, answers = ask(uri, later_s=700)
    assert not answers["gc"].acts
    assert "an open writer of another program may still read it" in answers["gc"].reason


def test_frozen_table_gets_no_work_from_any_job_and_says_why(uri):
    admin = Table.open(uri)
    before = admin.base.state().version
    admin.run(MergeRequest())
    admin.base.dataset(before).restore()
    _, answers = ask(uri, later_s=700)
    assert {verdict.acts for verdict in answers.values()} == {False}
    assert {verdict.reason.partition(" back")[0] for verdict in answers.values()} == {"frozen: merge progress went"}
    (frozen,) = answers["gc"].facts["frozen"]
    assert (frozen["evidence"]["merged_before"], frozen["evidence"]["merged"]) == (2, 0)

    with pytest.raises(FrozenError):
        admin.run(GcRequest(dry_run=False))
    _, later = ask(uri, later_s=700)
    assert [each["cause"] for each in later["merge"].facts["frozen"]] == [frozen["cause"]]


def test_region_that_vanished_freezes_no_other_region(uri):
    write_native_generations(uri, OTHER, [[Put(people(4))]])
    Table.open(uri).run(SnapshotRequest())
    shutil.rmtree(f"{uri}/{region_directory(OTHER)}")
    due = MergeTriggerSettings(generations=2)
    assert ask(uri, merge_triggers=due)[1]["merge"].acts  # The next run parks what is gone, and goes on.
    assert Table.open(uri).run(SnapshotRequest()).outcome is JobOutcome.PARTIAL

    answers = ask(uri, merge_triggers=due)[1]

    assert answers["merge"].acts
    assert not any("frozen" in answer.reason for answer in answers.values())


def test_snapshot_is_due_if_the_region_has_changed_and_the_last_one_is_old_enough(uri):
    interval = IndexSettings(snapshot_interval_s=60)

    def snapshot(later_s):
        admin, answers = ask(uri, later_s=later_s, index=interval)
        answer = answers["snapshot"]
        assert answer.acts == (admin.run(SnapshotRequest(dry_run=True)).outcome is JobOutcome.PLANNED)
        return answer.acts, answer.reason.partition(": ")[2]

    assert snapshot(0) == (True, SnapshotReason.FIRST)
    Table.open(uri).run(SnapshotRequest())
    assert snapshot(3600) == (False, SnapshotReason.UNCHANGED)
    write_native_generations(uri, REGION, [[Put(people(3))]])
    assert snapshot(0) == (False, SnapshotReason.FRESH)
    assert snapshot(3600) == (True, SnapshotReason.CHANGED)


def test_unsafe_retention_is_the_reason_why_nothing_is_collected(uri):
    Table.open(uri).run(MergeRequest())
    _, answers = ask(uri, later_s=700, gc=GcSettings(orphan_age_s=60))
    assert not answers["gc"].acts
    assert "allow_unsafe_retention" in answers["gc"].reason


def kept_registers(verdict) -> dict:
    """What a collection keeps of any region, young or old."""
    return {kind: gates for kind, gates in verdict.facts["kept"].items() if kind != "flushed_memtable"}


def test_index_that_lags_holds_garbage_back_by_name(uri):
    table = Table.open(uri).base
    table.dataset().create_scalar_index("score", "BTREE", name="score_idx")
    Table.open(uri).run(MergeRequest())
    _, answers = ask(uri)
    assert answers["catchup"].acts
    assert answers["catchup"].reason == "index score_idx covers generation 0 of 2 merged ones"


def test_hole_stops_the_merge_and_is_the_reason(uri):
    vandal = Vandal(Table.open(uri).base)
    vandal.manifest(REGION, flushed_generations=vandal.manifests.load(REGION).flushed_generations[1:])
    _, answers = ask(uri, later_s=700)
    assert not answers["merge"].acts
    assert answers["merge"].reason.startswith("blocked: hole: generation 1 is next")


def test_pause_after_failures_is_a_reason(uri):
    admin, _ = ask(uri)
    for _ in range(3):
        run = admin.opened.new_run(JobKey("merge"), "airflow")
        admin.opened.ledger.end(run, RunEnd(run.started, RunOutcome.FAILED, error="UnavailableError"))
    _, answers = ask(uri, merge_triggers=MergeTriggerSettings(generations=2))
    assert not answers["merge"].acts
    assert "paused: 3 failures in a row" in answers["merge"].reason


def test_lease_of_somebody_else_is_named(uri):
    admin, _ = ask(uri)
    admin.opened.leases.acquire(JobKey("merge"), "airflow-run-7")
    _, answers = ask(uri)
    assert "airflow-run-7 holds its lease until" in answers["merge"].reason


def test_writer_alone_can_flush_a_waiting_wal(uri):
    table = Table.open(uri).base
    vandal = Vandal(table)
    last = vandal.wal_ids(REGION, ".arrow")[-1]
    vandal.copy_wal_entry(REGION, (last, ".arrow"), (last + 1, ".arrow"))
    _, answers = ask(uri)
    assert not answers["flush"].acts
    assert answers["flush"].reason.startswith("waiting: 1 WAL entry; the writer flushes")


def test_region_that_does_not_exist_is_refused(uri):
    with pytest.raises(ObjectNotFoundError):
        Table.open(uri).why(RegionId(uuid.UUID(int=1 << 127)))
