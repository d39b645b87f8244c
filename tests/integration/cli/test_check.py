"""`memwal status --check` on real tables: which signal, which code, which page."""

from __future__ import annotations

import json
import os
import time
from collections.abc import Mapping
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import lance
import pytest
from typer.testing import CliRunner

from memwal_core.base_table import BaseTable
from memwal_core.cli.app import app
from memwal_core.coordination.job_key import JobKey
from memwal_core.coordination.ledger import RunEnd, RunOutcome
from memwal_core.errors import CorruptionError, InvalidRequestError
from memwal_core.format.paths import manifest_directory, manifest_path, quality_result_path
from memwal_core.jobs.catchup.request import CatchupRequest
from memwal_core.jobs.context import JobContext
from memwal_core.jobs.gc.request import GcRequest
from memwal_core.jobs.merge.job import MergeJob
from memwal_core.jobs.merge.request import MergeRequest
from memwal_core.jobs.outcome import JobOutcome
from memwal_core.jobs.snapshot.request import SnapshotRequest
from memwal_core.observe.signals import Signal
from memwal_core.region.quarantine import Quarantined, QuarantineStore
from memwal_core.table import Table
from memwal_core.writer.table_writer import TableWriter
from testkit.clock import ManualClock
from testkit.faults.damage import Vandal
from testkit.tables.foreign_merges import merge_natively
from testkit.tables.garbage import drop_old_versions, write_generations
from testkit.tables.people import PEOPLE, make_people_table, people


@pytest.fixture
def table(tmp_path: Path) -> BaseTable:
    made = make_people_table(str(tmp_path / "t"), rows=people(1, 2), buckets=1)
    write_generations(made, [1, 3], [4], name="new")
    return made


def check(table: BaseTable, **environment: str) -> tuple[int, dict[str, Mapping[str, Any]]]:
    result = CliRunner().invoke(app, ["status", table.uri, "--check", "--json"], env=environment)
    signals = json.loads(result.stdout)["signals"]
    return result.exit_code, {each["signal"]: each for each in signals}


def only_region(table: BaseTable):
    [region_id] = Table.open(table.uri).opened.manifests.region_ids()
    return region_id


def test_healthy_table_ends_with_zero_and_shows_every_signal(table):
    code, signals = check(table)

    assert code == 0, signals
    assert signals["pending_generations"]["value"] == 2
    unknown = {name for name, each in signals.items() if each["level"] == "unknown"}
    assert unknown == {"drain_time", "check_failed", "duplicate_keys", "snapshot_age", "peak_memory"}
    assert {each["value"] for name, each in signals.items() if name in unknown} == {None}
    assert {each["level"] for name, each in signals.items() if name not in unknown} == {"ok"}
    assert all((Path(__file__).parents[3] / each["runbook"]).is_file() for each in signals.values())


@pytest.mark.parametrize(("page", "code", "level"), [("9", 6, "warn"), ("2", 7, "page")])
def test_threshold_of_the_environment_decides_the_code(table, page, code, level):
    found, signals = check(
        table, MEMWAL_STATUS__PENDING_GENERATIONS_WARN="2", MEMWAL_STATUS__PENDING_GENERATIONS_PAGE=page
    )

    assert found == code
    assert signals["pending_generations"]["level"] == level
    assert str(only_region(table)) in signals["pending_generations"]["subject"]


def test_text_names_the_runbook(table):
    result = CliRunner().invoke(app, ["status", table.uri, "--check"], env={"COLUMNS": "300"})

    assert result.exit_code == 0
    assert "docs/runbooks/pending-generations.md" in result.stdout


def test_old_generation_and_old_wal_entry_are_measured_from_their_files(table):
    with TableWriter.open(table) as writer:
        writer.put(people(9))
    ages = {
        f"MEMWAL_STATUS__{name}_{level}_S": "0.0001"
        for name in ("OLDEST_UNMERGED", "WAL_LAG")
        for level in ("WARN", "PAGE")
    }

    code, signals = check(table, **ages)

    assert code == 7
    assert "generation 1" in signals["oldest_unmerged"]["subject"]
    assert "WAL entry 3" in signals["wal_lag"]["subject"]


def test_claims_of_regions_that_were_given_back_are_no_fight(table):
    """A stream of small batches claims a region once per batch, and it looked like two writers in a fight."""
    for key in range(9):
        with TableWriter.open(table) as writer:
            writer.put(people(key))

    code, signals = check(table)

    assert Table.open(table.uri).opened.manifests.load(only_region(table)).writer_epoch > 9
    assert (code, signals["epoch_changes"]["value"]) == (0, 0)


def test_claims_that_took_a_region_from_its_writer_are_counted(table):
    fenced = []
    for key in range(4):
        fenced.append(TableWriter.open(table, takeover="fence"))
        fenced[-1].put(people(key))
        with TableWriter.open(table, takeover="fence") as between:
            between.put(people(10 + key))
    for writer in fenced:
        # They learn of it only now, if at all, and have nothing left to give back.
        writer.close()

    _, signals = check(table)

    assert signals["epoch_changes"]["value"] == 4
    assert signals["epoch_changes"]["level"] == "warn"


def test_claims_before_the_hour_are_not_counted(table):
    writers = [TableWriter.open(table, takeover="fence") for _ in range(3)]
    for key, writer in enumerate(writers):
        writer.put(people(key))
    for path in (Path(table.uri) / manifest_directory(only_region(table))).iterdir():
        os.utime(path, (0, 0))

    assert check(table)[1]["epoch_changes"]["value"] == 0
    with TableWriter.open(table, takeover="fence") as writer:
        writer.put(people(9))
    assert check(table)[1]["epoch_changes"]["value"] == 1


def test_held_generation_warns(table):
    QuarantineStore(table.store).add(Quarantined(only_region(table), 2, ("bad",), ""))

    code, signals = check(table)

    assert code == 6
    assert signals["quarantined_generations"]["value"] == 1


def test_progress_ahead_of_a_region_pages(table):
    merge_natively(table, PEOPLE.empty_table(), {only_region(table): 7})

    code, signals = check(table)

    assert (code, signals["progress_lost"]["level"]) == (7, "page")


def test_index_that_is_gone_while_regions_exist_pages(table):
    lance.write_dataset(people(1), table.uri, mode="overwrite")

    code, signals = check(table)

    assert (code, signals["progress_lost"]["level"]) == (7, "page")


def test_table_without_mem_wal_is_an_error_and_no_signal(tmp_path):
    lance.write_dataset(people(1), str(tmp_path / "plain"))

    result = CliRunner().invoke(app, ["status", str(tmp_path / "plain"), "--check"])

    assert isinstance(result.exception, InvalidRequestError)


def test_damaged_manifest_pages(table):
    region_id = only_region(table)
    newest = Table.open(table.uri).opened.manifests.versions(region_id)[-1]
    (Path(table.uri) / manifest_path(region_id, newest)).write_bytes(b"\xff\xff")

    code, signals = check(table)

    assert (code, signals["corrupt_manifest"]["level"]) == (7, "page")


@pytest.mark.parametrize(
    ("report", "level"),
    [
        (b'{"failed": 0, "version": 1, "ended_at": "2026-01-01T00:00:00+00:00", "results": []}', "ok"),
        (b'{"failed": 0}', "page"),
        (b"no json", "page"),
    ],
)
def test_newest_report_of_the_checks_counts(table, report, level):
    table.store.put(quality_result_path("after"), report)

    assert check(table)[1]["check_failed"]["level"] == level


def test_index_that_lags_is_named(table):
    lance.dataset(table.uri).create_scalar_index("id", "BTREE", name="id_idx")
    Table.open(table.uri).run(MergeRequest())

    _, signals = check(table)

    assert signals["index_lag"]["value"] == 2
    assert "id_idx" in signals["index_lag"]["subject"]


def record(table, key, ended_after_s, **facts):
    """Record a run that took some seconds and ended just now."""
    insight = Table.open(table.uri).opened
    run = insight.new_run(key, "a test")
    began = replace(run, started=run.started - timedelta(seconds=ended_after_s))
    insight.ledger.begin(began)
    insight.ledger.end(began, RunEnd(run.started, RunOutcome.DONE, facts))


def test_waiting_bytes_are_compared_with_what_merges_take_on(table):
    assert check(table)[1]["drain_time"]["value"] is None
    waiting = Table.open(table.uri).status().merge_lag_bytes
    record(table, JobKey("merge"), 10, bytes=waiting)

    code, signals = check(table, MEMWAL_STATUS__DRAIN_TIME_WARN_S="9", MEMWAL_STATUS__DRAIN_TIME_PAGE_S="11")

    assert (code, signals["drain_time"]["level"]) == (6, "warn")
    assert signals["drain_time"]["value"] == pytest.approx(10)


def test_merge_task_records_what_drain_time_and_peak_memory_need(table):
    admin = Table.open(table.uri)
    admin.run(MergeRequest(), holder="a test")

    [run] = admin.opened.ledger.runs("merge")
    _, signals = check(table)

    assert run.facts["bytes"] > 0
    assert signals["drain_time"]["value"] == 0
    assert 0 < signals["peak_memory"]["value"] < 1


def test_memory_close_to_the_limit_pages(table):
    record(table, JobKey("compact"), 1, peak_memory_bytes=95, memory_limit_bytes=100)

    code, signals = check(table)

    assert (code, signals["peak_memory"]["level"]) == (7, "page")
    assert signals["peak_memory"]["subject"] == "compact/table"


def test_lease_that_nobody_renews_is_a_stuck_job_until_it_is_given_back(table):
    insight = Table.open(table.uri).opened
    lease = insight.leases.acquire(JobKey("merge"), "sleeper")
    limits = {f"MEMWAL_STATUS__STUCK_JOB_{level}_S": "0.0001" for level in ("WARN", "PAGE")}

    code, signals = check(table, **limits)

    assert (code, signals["stuck_job"]["level"]) == (7, "page")
    assert signals["stuck_job"]["subject"] == "merge/table of sleeper"
    lease.release()
    assert check(table, **limits)[1]["stuck_job"]["value"] == 0


@pytest.mark.parametrize("hours", [-24, 24])
def test_stuck_job_is_told_by_the_stores_clock_whatever_its_holders_said(table, hours):
    """One whose clock was ahead read 0 however long it was dead; one whose clock was behind read stuck at once."""
    wrong = Table.open(table.uri, clock=ManualClock(datetime.now(tz=UTC) + timedelta(hours=hours))).opened
    wrong.leases.acquire(JobKey("merge"), "sleeper")
    fresh = check(table)[1]["stuck_job"]
    for each in (Path(table.uri) / "_mem_wal" / "_leases").rglob("*.json"):
        os.utime(each, (time.time() - 3600,) * 2)
    late = check(table)[1]["stuck_job"]

    assert (fresh["level"], late["level"]) == ("ok", "page")
    assert 3600 <= late["value"] < 4500


@pytest.mark.parametrize("outcome", [RunOutcome.DONE, RunOutcome.NOTHING_TO_DO])
def test_lease_of_a_run_that_ended_is_no_stuck_job(table, outcome):
    """One whose release failed after it had found nothing to do paged until the job ran again, on idle tables never."""
    insight = Table.open(table.uri).opened
    lease = insight.leases.acquire(JobKey("gc"), "ended")
    with insight.ledger.run(insight.new_run(JobKey("gc"), "ended", lease.ticket.fencing_token)) as run:
        run.outcome = outcome

    assert check(table)[1]["stuck_job"]["value"] == 0


def age_leases(table: BaseTable, seconds: float) -> None:
    for each in (Path(table.uri) / "_mem_wal" / "_leases").rglob("*.json"):
        os.utime(each, (time.time() - seconds,) * 2)


def test_lease_of_a_run_that_vanished_before_any_work_is_no_stuck_job_for_ever(table):
    """A deleted run of Airflow left what its task `hold` had taken, and paged on a table that was never due again."""
    past = Table.open(table.uri, clock=ManualClock(datetime.now(tz=UTC) - timedelta(hours=26))).opened
    lease = past.leases.acquire(JobKey("merge"), "a run that was deleted")
    age_leases(table, 23 * 3600)
    young = check(table)[1]["stuck_job"]
    age_leases(table, 26 * 3600)
    old = check(table)[1]["stuck_job"]
    past.ledger.begin(past.new_run(JobKey("merge"), "a run that was deleted", lease.ticket.fencing_token))
    died = check(table)[1]["stuck_job"]

    assert (young["level"], old["value"], died["level"]) == ("page", 0, "page")


@pytest.mark.parametrize(("hours", "is_over"), [(1, True), (0, False)])
def test_lease_that_is_over_is_told_from_one_that_is_held(table, hours, is_over):
    past = Table.open(table.uri, clock=ManualClock(datetime.now(tz=UTC) - timedelta(hours=hours))).opened
    past.leases.acquire(JobKey("merge"), "a run that was deleted")
    age_leases(table, 3600)

    [found] = [each for each in Table.open(table.uri).health().signals if each.signal is Signal.STUCK_JOB]

    assert found.reading is not None
    assert found.reading.evidence == {"lease": "over" if is_over else "held", "run": "none began"}
    assert ("the next run of the job takes it" in found.reading.remedy) is is_over


def test_second_piece_of_work_under_a_lease_is_a_stuck_job_although_the_first_one_ended(table):
    """Of a merge in several tasks, only the first was ever told."""
    insight = Table.open(table.uri).opened
    key = JobKey("merge")
    lease = insight.leases.acquire(key, "a run")
    with insight.ledger.run(insight.new_run(key, "a run", lease.ticket.fencing_token)):
        pass
    insight.ledger.begin(insight.new_run(key, "a run", lease.ticket.fencing_token))

    assert check(table)[1]["stuck_job"]["value"] > 0


def test_indexes_of_an_empty_table_lag_behind_nothing(tmp_path: Path):
    """A queue whose rows were deleted before their merge paged after 48 of them; no catch-up could mend it."""
    table = make_people_table(str(tmp_path / "queue"), buckets=1)
    lance.dataset(table.uri).create_scalar_index("name", "BTREE", name="name_idx")
    with TableWriter.open(table) as writer:
        writer.put(people(1))
        writer.delete(people(1).select(["id"]))
        writer.flush()
    Table.open(table.uri).run(MergeRequest())

    assert Table.open(table.uri).run(CatchupRequest()).outcome is JobOutcome.NOTHING_TO_DO
    assert check(table)[1]["index_lag"]["value"] == 0


def test_fragments_that_end_for_their_size_are_not_small(table):
    """A table of wide rows warned and paged for ever, and the remedy, a compaction, had nothing to do."""
    limits = {"MEMWAL_COMPACT__MAX_FILE_BYTES": str(2**20), "MEMWAL_COMPACT__MIN_FRAGMENTS": "2"}
    small = check(table, **limits)[1]["base_fragments"]["value"]
    for number in (100, 101):
        lance.write_dataset(people(number, name=os.urandom(2**20).hex()), table.uri, mode="append")

    assert check(table, **limits)[1]["base_fragments"]["value"] == small == 1
    planned = CliRunner().invoke(app, ["compact", table.uri, "--dry-run", "--force"], env=limits)
    assert (planned.exit_code, "no fragment is small" in planned.output) == (3, True)


def test_garbage_is_measured_as_a_share_unless_it_is_switched_off(table):
    Table.open(table.uri).run(MergeRequest())
    drop_old_versions(table.uri)

    code, signals = check(table)

    assert (code, signals["garbage"]["level"]) == (7, "page")
    assert 0.4 < signals["garbage"]["value"] < 1
    unmeasured = check(table, MEMWAL_STATUS__MEASURE_GARBAGE="false")[1]["garbage"]
    assert (unmeasured["level"], unmeasured["value"]) == ("unknown", None)


def test_garbage_in_its_grace_period_calls_nobody_and_is_told(table):
    """Right after a clean cycle the signal paged for a collection that had to wait and did nothing."""
    Table.open(table.uri).run(MergeRequest())
    drop_old_versions(table.uri)
    Table.open(table.uri).run(GcRequest(dry_run=False))

    code, signals = check(table)

    assert (code, signals["garbage"]["level"], signals["garbage"]["value"]) == (0, "ok", 0)
    assert "in the grace period" in signals["garbage"]["subject"]
    age(table, days=1)
    assert check(table)[1]["garbage"]["level"] == "page", "a collection deletes it now"


def test_bytes_that_a_tag_or_a_setting_keeps_are_told_with_the_reason(table):
    """O3: 28 KB of rows became 11 MB, and no signal said so."""
    lance.dataset(table.uri).tags.create("quarter", table.dataset().version)
    Table.open(table.uri).run(MergeRequest())
    assert check(table)[1]["kept"]["value"] == 0
    age(table, days=7)

    code, signals = check(table, MEMWAL_STATUS__KEPT_WARN="0.1", MEMWAL_STATUS__KEPT_PAGE="1")

    assert {name for name, each in signals.items() if each["level"] in {"warn", "page"}} == {"kept"}
    assert (code, signals["kept"]["level"]) == (6, "warn")
    assert "a tag or a branch" in signals["kept"]["subject"]
    lance.dataset(table.uri).tags.delete("quarter")
    assert check(table)[1]["kept"]["value"] == 0


def age(table: BaseTable, *, days: int) -> None:
    """Let every file have been written some days ago."""
    for path in Path(table.uri).rglob("*"):
        if path.is_file():
            moment = path.stat().st_mtime - days * 86_400
            os.utime(path, (moment, moment))


def test_duplicate_found_by_the_proof_of_a_merge_pages_until_a_later_one_passes(table):
    merge, context = MergeJob(), JobContext(Table.open(table.uri).opened, holder="a test")
    pieces = merge.divide(context, MergeRequest()).pieces
    Table.open(table.uri).run(MergeRequest())
    good = lance.dataset(table.uri).version
    lance.write_dataset(people(1), table.uri, mode="append")
    with pytest.raises(CorruptionError, match="more than once"):
        merge.verify(context, pieces, [])

    code, signals = check(table)

    assert (code, signals["duplicate_keys"]["level"], signals["duplicate_keys"]["value"]) == (7, "page", 1)
    lance.dataset(table.uri, version=good).restore()
    merge.verify(context, pieces, [])
    assert check(table)[1]["duplicate_keys"]["value"] == 0


def test_duplicate_found_by_the_check_pages(table):
    report = {"failed": 1, "version": 3, "ended_at": "2026-01-01T00:00:00+00:00"}
    report |= {
        "basis": "",
        "results": [{"check": "key_unique", "result": "failed", "failure": "key_unique", "count": 4}],
    }
    table.store.put(quality_result_path("after"), json.dumps(report).encode())

    code, signals = check(table)

    assert (code, signals["duplicate_keys"]["value"]) == (7, 4)


@pytest.mark.parametrize("is_copied", [False, True], ids=["as it was", "copied"])
def test_old_snapshot_of_a_table_at_rest_is_right_and_calls_nobody(table, is_copied):
    """A table that nobody wrote for a day paged, and the job that its runbook names had nothing to do; so did one whose
    files had been copied since.
    """
    Table.open(table.uri).run(MergeRequest())
    Table.open(table.uri).run(SnapshotRequest())
    Vandal(table).details(lambda old: replace(old, snapshot_ts_millis=old.snapshot_ts_millis - 200_000_000))
    for path in (Path(table.uri) / manifest_directory(only_region(table))).iterdir():
        os.utime(path, None if is_copied else (0, 0))

    assert (check(table)[0], check(table)[1]["snapshot_age"]["value"]) == (0, 0)

    write_generations(table, [7], name="later")
    later = check(table)[1]["snapshot_age"]
    assert (later["level"], str(only_region(table)) in later["subject"]) == ("ok", True)
