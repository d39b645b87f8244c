"""What people do to a table by hand never brings old rows back, and never loses new ones (S2, S3, S7)."""

from __future__ import annotations

import os
import shutil
from contextlib import suppress
from datetime import timedelta
from pathlib import Path

import lance
import pytest

from memwal_core.clock import SystemClock
from memwal_core.coordination.freeze import Choice, FreezeCause
from memwal_core.errors import DamagedError, FrozenError
from memwal_core.jobs.catchup.request import CatchupRequest
from memwal_core.jobs.compact.request import CompactRequest
from memwal_core.jobs.cycle.request import MaintainRequest
from memwal_core.jobs.gc.request import GcRequest
from memwal_core.jobs.merge.request import MergeRequest
from memwal_core.jobs.outcome import JobOutcome
from memwal_core.jobs.request import JobRequest
from memwal_core.jobs.snapshot.request import SnapshotRequest
from memwal_core.jobs.thaw.report import ThawReport
from memwal_core.jobs.thaw.run import Decision
from memwal_core.observe.findings import Level
from memwal_core.settings import CompactSettings, Settings
from memwal_core.table import Table
from testkit.clock import ManualClock
from testkit.tables.native_regions import Put, native_region_id, write_native_generations
from testkit.tables.people import people
from tests.integration.jobs.freeze.histories import (
    CLIENTS,
    LANCEDB,
    OURS,
    PYLANCE,
    Client,
    lancedb_table,
    overwrite,
    region_of,
    region_path,
    rows_of,
)


@pytest.fixture
def uri(tmp_path: Path) -> str:
    return str(tmp_path / "t.lance")


def merge(uri: str) -> JobOutcome:
    outcome: JobOutcome = Table.open(uri).run(MergeRequest()).outcome
    return outcome


def merged(uri: str, client: Client) -> None:
    """Make a table of which one generation is merged."""
    client.make(uri)
    client.write(uri, [1, 2, 3], "old")
    assert merge(uri) is JobOutcome.DONE
    assert rows_of(uri) == {1: "old", 2: "old", 3: "old"}


def frozen_by(uri: str, request: JobRequest | None = None) -> list[str]:
    """Return the causes that a new process finds, and what it says when asked again."""
    with pytest.raises(FrozenError) as caught:
        Table.open(uri).run(request or MergeRequest())
    with pytest.raises(FrozenError) as again:
        Table.open(uri).run(request or MergeRequest())
    assert again.value.facts["causes"] == caught.value.facts["causes"]
    return list(caught.value.facts["causes"])  # type: ignore[call-overload]


def thaw(uri: str, choice: Choice, cause: FreezeCause | None = None) -> ThawReport:
    return Table.open(uri).thaw(Decision(choice, "someone", cause, "the test says so"))


def overwritten_and_enabled(uri: str, client: Client) -> None:
    overwrite(uri, people(7, name="new"))
    client.enable(uri)


@pytest.mark.parametrize("client", CLIENTS, ids=str)
def test_s2_overwrite_and_new_index_bring_no_overwritten_row_back(uri: str, client: Client) -> None:
    merged(uri, client)
    overwritten_and_enabled(uri, client)

    assert frozen_by(uri) == [client.freezes_as]
    assert rows_of(uri) == {7: "new"}

    assert thaw(uri, Choice.DISCARD_GENERATIONS).outcome is JobOutcome.DONE
    client.write(uri, [8], "newer")
    assert merge(uri) is JobOutcome.DONE
    assert rows_of(uri) == {7: "new", 8: "newer"}


@pytest.mark.parametrize("client", CLIENTS, ids=str)
def test_s2_overwrite_of_a_table_with_nothing_merged_brings_no_row_back(uri: str, client: Client) -> None:
    """Progress was nothing before and is nothing after; only the version without an index tells."""
    client.make(uri)
    assert merge(uri) is JobOutcome.NOTHING_TO_DO
    client.write(uri, [1, 2, 3], "old")
    Table.open(uri).run(SnapshotRequest())
    overwritten_and_enabled(uri, client)

    assert frozen_by(uri) == [client.freezes_as]
    assert rows_of(uri) == {7: "new"}


@pytest.mark.parametrize("client", CLIENTS, ids=str)
def test_s2_old_rows_stay_away_when_the_evidence_was_cleaned_up(uri: str, client: Client) -> None:
    merged(uri, client)
    overwritten_and_enabled(uri, client)
    lance.dataset(uri).cleanup_old_versions(older_than=timedelta(0), delete_unverified=True)

    assert frozen_by(uri) == [client.freezes_as]


@pytest.mark.parametrize("client", CLIENTS, ids=str)
def test_s2_restore_and_new_index_can_be_merged_again(uri: str, client: Client) -> None:
    client.make(uri)
    client.write(uri, [1, 2], "old")
    merge(uri)
    client.write(uri, [2, 3], "two")
    merge(uri)
    lance.dataset(uri, version=1).restore()
    client.enable(uri)

    assert frozen_by(uri) == [client.freezes_as]
    assert rows_of(uri) == {}

    report = thaw(uri, Choice.MERGE_AGAIN)
    assert [each.merges for each in report.regions] == [(1, 2)]
    assert merge(uri) is JobOutcome.DONE
    assert rows_of(uri) == {1: "old", 2: "two", 3: "two"}


@pytest.mark.parametrize("client", CLIENTS, ids=str)
def test_s2_restore_to_before_the_first_merge_is_progress_that_went_back(uri: str, client: Client) -> None:
    client.make(uri)
    enabled = lance.dataset(uri).version
    client.write(uri, [1, 2], "old")
    merge(uri)
    lance.dataset(uri, version=enabled).restore()

    assert frozen_by(uri) == ["progress-went-back"]


@pytest.mark.parametrize("client", CLIENTS, ids=str)
def test_s2_progress_that_went_back_freezes_until_a_person_decides(uri: str, client: Client) -> None:
    merged(uri, client)
    before = lance.dataset(uri).version
    client.write(uri, [3, 4], "two")
    merge(uri)
    lance.dataset(uri, version=before).restore()

    assert frozen_by(uri) == ["progress-went-back"]

    assert thaw(uri, Choice.MERGE_AGAIN).outcome is JobOutcome.DONE
    assert merge(uri) is JobOutcome.DONE
    assert rows_of(uri) == {1: "old", 2: "old", 3: "two", 4: "two"}


def test_s2_write_spec_of_lancedb_unset_and_set_again_brings_nothing_back(uri: str) -> None:
    merged(uri, LANCEDB)
    table = lancedb_table(uri)
    table.unset_lsm_write_spec()
    table.update(where="id = 1", values={"name": "changed"})
    table.delete("id = 2")
    LANCEDB.enable(uri)
    LANCEDB.write(uri, [9], "since")

    assert frozen_by(uri) == ["index-made-anew"]
    assert rows_of(uri) == {1: "changed", 3: "old"}

    assert thaw(uri, Choice.RESTORE_PROGRESS).outcome is JobOutcome.DONE
    assert merge(uri) is JobOutcome.DONE
    assert rows_of(uri) == {1: "changed", 3: "old", 9: "since"}


@pytest.mark.parametrize("client", CLIENTS, ids=str)
def test_an_index_that_is_gone_waits_for_its_return(uri: str, client: Client) -> None:
    merged(uri, client)
    good = lance.dataset(uri).version
    overwrite(uri, people(7, name="new"))

    assert frozen_by(uri) == ["index-gone"]
    refused = thaw(uri, Choice.MERGE_AGAIN)
    assert refused.outcome is JobOutcome.BLOCKED
    assert "no MemWAL index" in refused.why()

    lance.dataset(uri, version=good).restore()
    assert thaw(uri, Choice.RESTORE_PROGRESS, FreezeCause.INDEX_GONE).outcome is JobOutcome.DONE
    thaw(uri, Choice.RESTORE_PROGRESS)
    client.write(uri, [4], "later")
    assert merge(uri) is JobOutcome.DONE
    assert rows_of(uri) == {1: "old", 2: "old", 3: "old", 4: "later"}


def test_s3_native_writer_on_a_clone_loses_no_generation(uri: str, tmp_path: Path) -> None:
    PYLANCE.make(uri)
    for number in range(3):
        PYLANCE.write(uri, [number], "original")
    merge(uri)
    clone = str(tmp_path / "clone.lance")
    lance.dataset(uri).shallow_clone(clone, lance.dataset(uri).version)
    PYLANCE.write(clone, [10], "clone")

    assert frozen_by(clone) == ["progress-ahead"]
    for number in range(11, 15):
        PYLANCE.write(clone, [number], "clone")
    assert frozen_by(clone) == ["progress-ahead"], "forgotten once the number had passed"

    assert thaw(clone, Choice.MERGE_AGAIN).outcome is JobOutcome.DONE
    assert merge(clone) is JobOutcome.DONE
    assert set(rows_of(clone)) == {0, 1, 2, 10, 11, 12, 13, 14}
    assert merge(uri) is JobOutcome.NOTHING_TO_DO


def test_s3_reader_of_a_clone_refuses_while_new_rows_hide_behind_the_progress_of_old_ones(
    uri: str, tmp_path: Path
) -> None:
    """They were left out without an error."""
    PYLANCE.make(uri)
    for number in range(3):
        PYLANCE.write(uri, [number], "original")
    merge(uri)
    clone = str(tmp_path / "clone.lance")
    lance.dataset(uri).shallow_clone(clone, lance.dataset(uri).version)
    PYLANCE.write(clone, [10], "clone")
    for consistency in ("latest", "durable"):
        with pytest.raises(DamagedError, match="fewer generations than are recorded as merged"):
            Table.open(clone).to_arrow(consistency=consistency)

    frozen_by(clone)
    thaw(clone, Choice.MERGE_AGAIN)
    assert set(Table.open(clone).to_arrow()["id"].to_pylist()) == {0, 1, 2, 10}


def test_s3_clone_that_passed_its_progress_unseen_is_told_by_its_dates(uri: str, tmp_path: Path) -> None:
    PYLANCE.make(uri)
    PYLANCE.write(uri, [1], "original")
    merge(uri)
    clone = str(tmp_path / "clone.lance")
    lance.dataset(uri).shallow_clone(clone, lance.dataset(uri).version)
    for number in range(10, 13):
        PYLANCE.write(clone, [number], "clone")
    for manifest in (Path(clone) / "_versions").iterdir():
        os.utime(manifest, (1e9, 1e9))

    assert frozen_by(clone) == ["region-began-again"]
    thaw(clone, Choice.MERGE_AGAIN)
    merge(clone)
    assert set(rows_of(clone)) == {1, 10, 11, 12}


@pytest.mark.parametrize("later", [1, 4], ids=["below", "beyond"])
@pytest.mark.parametrize("client", [PYLANCE, LANCEDB], ids=str)
def test_s3_region_that_was_deleted_and_began_again_is_merged_from_its_first(
    uri: str, client: Client, later: int
) -> None:
    client.make(uri)
    client.write(uri, [1], "old")
    client.write(uri, [2], "old")
    merge(uri)
    shutil.rmtree(region_path(uri))
    for number in range(later):
        client.write(uri, [10 + number], "new")

    (cause,) = frozen_by(uri)
    assert cause == "region-began-again"
    thaw(uri, Choice.MERGE_AGAIN)
    assert merge(uri) is JobOutcome.DONE
    assert set(rows_of(uri)) == {1, 2, *range(10, 10 + later)}


@pytest.mark.parametrize("client", CLIENTS, ids=str)
def test_s7_deleted_newest_manifest_of_a_region_freezes(uri: str, client: Client) -> None:
    client.make(uri)
    client.write(uri, [1], "a")
    client.write(uri, [2], "b")
    merge(uri)
    region = region_path(uri)
    newest = max((region / "manifest").glob("*.binpb"), key=lambda each: int(each.stem[::-1], 2))
    newest.unlink()
    (region / "manifest" / "version_hint.json").unlink()

    assert frozen_by(uri)[0] in {"region-went-back", "region-began-again", "progress-ahead"}


@pytest.mark.parametrize("client", CLIENTS, ids=str)
def test_s7_newest_manifest_of_a_region_deleted_while_its_hint_is_there_is_damage(uri: str, client: Client) -> None:
    """The hint proves that a manifest is missing: no rows are left out, and nothing is merged."""
    merged(uri, client)
    client.write(uri, [4], "waits")
    newest = max((region_path(uri) / "manifest").glob("*.binpb"), key=lambda each: int(each.stem[::-1], 2))
    data = newest.read_bytes()
    newest.unlink()

    with pytest.raises(DamagedError, match=r"missing or damaged"):
        Table.open(uri).to_arrow(consistency="durable")
    assert merge(uri) is JobOutcome.PARTIAL
    assert Table.open(uri).doctor().level is Level.PAGE
    assert rows_of(uri) == {1: "old", 2: "old", 3: "old"}

    newest.write_bytes(data)
    assert merge(uri) is JobOutcome.DONE
    assert rows_of(uri) == {1: "old", 2: "old", 3: "old", 4: "waits"}


@pytest.mark.parametrize("client", CLIENTS, ids=str)
def test_branch_keeps_its_rows_and_progress_beside_every_job(uri: str, client: Client) -> None:
    merged(uri, client)
    branch = lance.dataset(uri).create_branch("experiment")
    branch.insert(people(100, name="of the branch"))
    client.write(uri, [3, 4], "two")
    settings = Settings(compact=CompactSettings(min_fragments=2, retention_s=3600, keep_versions=1))
    table = Table.open(uri, settings=settings, clock=ManualClock(SystemClock().now() + timedelta(days=30)))
    for request in (MergeRequest(), *EVERY_JOB):
        table.run(request)

    assert rows_of(uri) == {1: "old", 2: "old", 3: "two", 4: "two"}
    rows = lance.dataset(uri).checkout_version(("experiment", None)).to_table().to_pylist()
    assert {row["id"]: row["name"] for row in rows} == {1: "old", 2: "old", 3: "old", 100: "of the branch"}


@pytest.mark.parametrize("client", CLIENTS, ids=str)
def test_s7_vanished_region_is_parked_remembered_and_can_be_given_up(uri: str, client: Client) -> None:
    merged(uri, client)
    region_id = region_of(uri)
    shutil.rmtree(region_path(uri))

    assert merge(uri) is JobOutcome.PARTIAL
    assert merge(uri) is JobOutcome.PARTIAL
    table = Table.open(uri)
    (freeze,) = table.status().frozen
    assert (freeze.cause, freeze.region_id) == (FreezeCause.REGION_VANISHED, region_id)
    (finding,) = [each for each in table.doctor().findings if each.finding_id == "region-frozen"]
    assert (finding.region_id, finding.command) == (region_id, f"memwal thaw {uri}")
    with pytest.raises(DamagedError):
        table.to_arrow()

    assert table.thaw(Decision(Choice.ACCEPT, "someone")).outcome is JobOutcome.DONE
    assert merge(uri) is JobOutcome.NOTHING_TO_DO
    assert table.to_arrow().num_rows == 3
    Table.open(uri).run(SnapshotRequest(force=True))


def test_region_that_only_the_record_names_costs_itself_and_no_row_silently(uri: str) -> None:
    """Before its first merge nothing else names a region of pylance: reads returned fewer rows."""
    PYLANCE.make(uri)
    hurt, healthy = native_region_id(1), native_region_id(2)
    for region_id, key in ((hurt, 1), (healthy, 2)):
        write_native_generations(uri, region_id, [[Put(people(key, name="kept"))]])
    Table.open(uri).run(GcRequest(dry_run=False))
    shutil.move(Path(uri) / "_mem_wal" / str(hurt), Path(uri).with_name("moved"))

    report = Table.open(uri).run(MergeRequest())
    assert report.outcome is JobOutcome.PARTIAL
    assert rows_of(uri) == {2: "kept"}
    for reader in (Table.open(uri), Table.open(uri)):
        with pytest.raises(DamagedError) as refused:
            reader.to_arrow()
        assert refused.value.facts["region_id"] == str(hurt)
    for request in (GcRequest(dry_run=False), MergeRequest()):
        assert Table.open(uri).run(request).outcome is JobOutcome.PARTIAL

    shutil.move(Path(uri).with_name("moved"), Path(uri) / "_mem_wal" / str(hurt))
    assert merge(uri) is JobOutcome.DONE
    assert rows_of(uri) == {1: "kept", 2: "kept"}
    assert [each.cause for each in Table.open(uri).status().frozen] == [FreezeCause.REGION_VANISHED]
    thaw(uri, Choice.ACCEPT)
    assert merge(uri) is JobOutcome.NOTHING_TO_DO


@pytest.mark.parametrize("client", CLIENTS, ids=str)
def test_deleted_newest_version_of_the_table_freezes(uri: str, client: Client) -> None:
    merged(uri, client)
    min((Path(uri) / "_versions").glob("*.manifest")).unlink()  # Lance counts names down.

    assert "table-went-back" in frozen_by(uri)


@pytest.mark.parametrize("client", CLIENTS, ids=str)
def test_copy_and_moved_table_wait_for_a_decision(uri: str, client: Client, tmp_path: Path) -> None:
    merged(uri, client)
    copy, moved = str(tmp_path / "copy.lance"), str(tmp_path / "moved.lance")
    shutil.copytree(uri, copy)

    assert frozen_by(copy) == ["address-changed"]
    assert merge(uri) is JobOutcome.NOTHING_TO_DO
    thaw(copy, Choice.ACCEPT_COPY)
    assert merge(copy) is JobOutcome.NOTHING_TO_DO

    shutil.move(uri, moved)
    shutil.move(copy, uri)
    assert frozen_by(moved) == ["address-changed"], "swapped"
    assert frozen_by(uri) == ["address-changed"], "swapped"


def test_same_table_under_two_addresses_is_accepted_once(uri: str, tmp_path: Path) -> None:
    merged(uri, OURS)
    mounted = str(tmp_path / "mounted.lance")
    shutil.move(uri, mounted)
    frozen_by(mounted)
    thaw(mounted, Choice.ACCEPT_ADDRESS)
    merge(mounted)
    shutil.move(mounted, uri)
    assert merge(uri) is JobOutcome.NOTHING_TO_DO


def test_link_to_a_table_is_no_other_address(uri: str, tmp_path: Path) -> None:
    merged(uri, OURS)
    link = tmp_path / "link.lance"
    link.symlink_to(uri)
    assert merge(str(link)) is JobOutcome.NOTHING_TO_DO


EVERY_JOB = [
    MergeRequest(),
    CatchupRequest(),
    CompactRequest(force=True, remove_versions=True),
    SnapshotRequest(force=True),
    GcRequest(dry_run=False),
]


@pytest.mark.parametrize("request_", EVERY_JOB, ids=lambda each: each.info.name)
def test_frozen_table_is_left_as_it_is_by_every_job(uri: str, request_: JobRequest) -> None:
    merged(uri, OURS)
    OURS.write(uri, [4], "waits")
    Table.open(uri).freeze("an experiment", by="someone")
    before = sorted((each, each.stat().st_mtime_ns) for each in _files(uri))

    assert frozen_by(uri, request_) == ["by-hand"]

    assert sorted((each, each.stat().st_mtime_ns) for each in _files(uri)) == before
    (run,) = {run.outcome.value for run in Table.open(uri).opened.ledger.runs(request_.info.name)} - {"done"}
    assert run == "frozen"
    assert Table.open(uri).opened.ledger.may_run(request_.key).allowed, "a frozen run is no failure"

    thaw(uri, Choice.ACCEPT)
    Table.open(uri).run(request_)


def test_cycle_of_a_frozen_table_ends_frozen_and_starts_nothing(uri: str) -> None:
    merged(uri, OURS)
    Table.open(uri).freeze("an experiment", by="someone")
    report = Table.open(uri).run(MaintainRequest(delete=True))
    assert report.outcome is JobOutcome.FROZEN
    assert report.outcome.exit_code == 8
    assert [each.end.value for each in report.steps] == ["ran", *["not_reached"] * (len(report.steps) - 1)]


def test_restore_during_a_run_stops_it_before_its_next_write(uri: str) -> None:
    """What a run reads later is compared, too."""
    merged(uri, OURS)
    before = lance.dataset(uri).version
    OURS.write(uri, [4], "two")
    merge(uri)
    OURS.write(uri, [5], "three")

    def restore(_stage: str, _done: int, _total: int | None) -> None:
        if lance.dataset(uri).version != before and not restored:
            restored.append(True)
            lance.dataset(uri, version=before).restore()

    restored: list[bool] = []
    with suppress(FrozenError):
        Table.open(uri).run(MergeRequest(), progress=restore)
    assert restored
    assert frozen_by(uri) == ["progress-went-back"]
    assert 4 not in rows_of(uri)
    assert 5 not in rows_of(uri)


def test_run_that_removes_the_remembered_version_itself_does_not_freeze(uri: str) -> None:
    """It had compared that version with the newest one before."""
    PYLANCE.make(uri)
    enabled = lance.dataset(uri).version
    Table.open(uri).run(SnapshotRequest(force=True))
    lance.dataset(uri, version=enabled).restore()
    settings = Settings(compact=CompactSettings(retention_s=3600, keep_versions=1))
    later = ManualClock(SystemClock().now() + timedelta(days=1))
    table = Table.open(uri, settings=settings, clock=later)
    table.run(CompactRequest(force=True, remove_versions=True))
    assert len(lance.dataset(uri).versions()) == 1
    assert table.run(MergeRequest()).outcome is JobOutcome.NOTHING_TO_DO


def _files(uri: str) -> list[Path]:
    """Return all files but those of leases, the ledger and the record."""
    own = ("_leases", "_ledger", "_record")
    return [each for each in Path(uri).rglob("*") if each.is_file() and not any(part in own for part in each.parts)]
