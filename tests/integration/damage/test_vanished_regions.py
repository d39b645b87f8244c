"""A region whose directory is gone is an error for readers and is parked by jobs, never a table with fewer rows."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterable
from pathlib import Path

import pyarrow as pa
import pytest

from memwal_core.coordination.freeze import Choice, FreezeCause
from memwal_core.coordination.freeze.watch import foreseen
from memwal_core.errors import ConflictError, DamagedError
from memwal_core.format.paths import RESERVATIONS_DIRECTORY, manifest_path, region_directory
from memwal_core.ids import RegionId
from memwal_core.jobs.cycle.request import MaintainRequest
from memwal_core.jobs.merge.plan import Verdict
from memwal_core.jobs.merge.request import MergeRequest
from memwal_core.jobs.outcome import JobOutcome
from memwal_core.jobs.snapshot.request import SnapshotRequest
from memwal_core.jobs.thaw.run import Decision
from memwal_core.observe.signals.signal import Signal
from memwal_core.reader.scan.scan import ScanRequest
from memwal_core.region.quarantine import Quarantined, QuarantineStore
from memwal_core.table import Table
from memwal_core.writer.claim.takeover import read_releases
from testkit.faults.damage import Vandal
from testkit.tables.people import make_people_table, people
from testkit.tables.readable import as_model, keys_of


@pytest.fixture
def table(tmp_path: Path) -> Table:
    """70 rows: 30 in the base table, 40 flushed in two regions."""
    uri = str(tmp_path / "people")
    make_people_table(uri, rows=people(*range(30)), buckets=2)
    made = Table.open(uri)
    with made.writer() as writer:
        writer.put(people(*range(100, 140)))
        writer.flush()
    return Table.open(uri)


def _forget_births(table: Table) -> None:
    shutil.rmtree(Path(table.uri) / RESERVATIONS_DIRECTORY)


@pytest.mark.parametrize("witness", ["birth mark", "merge progress", "snapshot"])
def test_read_of_a_table_with_a_vanished_region_is_refused(table: Table, witness: str) -> None:
    """Before, 40 of 70 rows were returned without an error."""
    assert table.count() == 70
    hurt = table.opened.manifests.region_ids()[0]
    if witness == "snapshot":
        table.run(SnapshotRequest())
    if witness == "merge progress":
        table.run(MergeRequest())
    if witness != "birth mark":
        _forget_births(table)
    shutil.rmtree(Path(table.uri) / region_directory(hurt))
    for consistency in ("latest", "durable"):
        with pytest.raises(DamagedError) as refused:
            Table.open(table.uri).count(consistency=consistency)
        assert refused.value.facts["region_id"] == str(hurt)
        assert refused.value.facts["path"] == region_directory(hurt)
        assert "memwal repair" in refused.value.remedy
    status = table.status()
    assert list(status.damaged) == [hurt]
    report = table.run(MergeRequest())
    assert report.outcome is JobOutcome.PARTIAL
    assert {each.verdict for each in report.regions if each.region_id == hurt} == {Verdict.DAMAGED}
    assert [each.region_id for each in table.status().frozen] == [hurt]


def _answered(read: Callable[[int], pa.Table], keys: Iterable[int], hurt: RegionId) -> int:
    """Read key by key; return how many were answered. Each answer is right, and each refusal names the region."""
    answered = 0
    for key in keys:
        try:
            found = read(key)
        except DamagedError as error:
            named = error.facts["region_id"]
        else:
            named = str(hurt)
            answered += 1
            assert as_model(found) == {key: f"p{key}"}
        assert named == str(hurt)
    return answered


def test_keys_of_other_regions_are_found_while_one_is_gone(table: Table) -> None:
    hurt, healthy = table.opened.manifests.region_ids()
    shutil.rmtree(Path(table.uri) / region_directory(hurt))
    reader = Table.open(table.uri)
    answered = _answered(lambda key: reader.lookup(keys_of(key)), range(100, 140), hurt)
    assert 0 < answered < 40
    assert healthy in {each.region_id for each in reader.status().regions}


def test_scan_answers_where_its_filter_excludes_the_damaged_region(table: Table) -> None:
    hurt = table.opened.manifests.region_ids()[0]
    Vandal(table.base).garble_manifest(hurt)
    reader = Table.open(table.uri)
    answered = _answered(lambda key: reader.to_arrow(ScanRequest(filter_sql=f"id = {key}")), range(100, 116), hurt)
    assert 0 < answered < 16
    with pytest.raises(DamagedError):
        reader.to_arrow(ScanRequest(filter_sql="score > 0"))


def test_newest_manifest_that_was_deleted_is_noticed_by_its_hint(table: Table) -> None:
    hurt = table.opened.manifests.load(table.opened.manifests.region_ids()[0])
    (Path(table.uri) / manifest_path(hurt.region_id, hurt.version)).unlink()
    with pytest.raises(DamagedError, match="version hint names it"):
        Table.open(table.uri).count()


def test_damaged_region_pages_once_and_ends_with_its_repair(table: Table) -> None:
    hurt = table.opened.manifests.load(table.opened.manifests.region_ids()[0])
    generation = Path(table.uri) / region_directory(hurt.region_id) / hurt.flushed_generations[0].path
    kept = generation.with_name("kept")
    shutil.copytree(generation, kept)
    for file in (generation / "data").iterdir():
        file.unlink()
    for _ in range(4):
        cycle = Table.open(table.uri).run(MaintainRequest())
        assert cycle.outcome is JobOutcome.PARTIAL
        assert not [each for each in cycle.steps if each.end.value in {"paused", "not_reached"}]

    def pages() -> list[float]:
        readings = Table.open(table.uri).health().signals
        named = [each for each in readings if each.signal in {Signal.CORRUPT_MANIFEST, Signal.JOB_FAILURES}]
        return [each.value for each in named if each.value]

    assert pages() == [1]
    shutil.rmtree(generation)
    kept.rename(generation)
    Table.open(table.uri).run(MaintainRequest())
    assert pages() == []
    assert Table.open(table.uri).count() == 70


def test_writer_does_not_make_a_lost_region_anew(table: Table) -> None:
    """A new region in its place would hide that rows are missing."""
    lost, kept = sorted(table.opened.manifests.region_ids())
    shutil.rmtree(Path(table.uri) / region_directory(lost))

    with Table.open(table.uri).writer() as writer, pytest.raises(DamagedError) as refused:
        writer.put(people(*range(200, 240)))

    assert refused.value.facts["region_id"] == str(lost)
    assert table.opened.manifests.region_ids() == [kept]
    with pytest.raises(DamagedError):
        Table.open(table.uri).count()


def test_region_made_anew_after_it_was_given_up_has_nothing_of_the_former_one(table: Table) -> None:
    """Its live writer passed for one that had given the region back, and its first generation for one in quarantine."""
    (lost, _), store = sorted(table.opened.manifests.region_ids()), table.opened.base.store
    quarantine = QuarantineStore(store)
    table.run(MergeRequest())
    for generation in (1, 2):
        quarantine.add(Quarantined(lost, generation, ("a check failed",), "2026-01-01T00:00:00+00:00"))
    quarantine.release(lost, 2, table.opened.clock.now())
    assert read_releases(store, lost).newest == 1
    shutil.rmtree(Path(table.uri) / region_directory(lost))
    assert table.run(MergeRequest()).outcome is JobOutcome.PARTIAL
    assert Table.open(table.uri).thaw(Decision(Choice.ACCEPT, "someone")).outcome is JobOutcome.DONE

    with Table.open(table.uri).writer() as writer:
        writer.put(people(*range(200, 240)))
        with Table.open(table.uri).writer() as second, pytest.raises(ConflictError, match="live writer"):
            second.put(people(*range(200, 240)))
        writer.put(people(*range(200, 240), name="again"))
        writer.flush()
    with Table.open(table.uri).writer() as writer:
        writer.put(people(*range(240, 260)))

    assert not quarantine.load()
    assert not quarantine.released()
    assert Table.open(table.uri).run(MergeRequest()).outcome is JobOutcome.DONE


def test_region_that_vanished_before_any_job_saw_it_can_be_given_up(table: Table) -> None:
    """Only the mark of its creation named it: it was parked without a freeze, and reads were refused for ever."""
    lost, kept = sorted(table.opened.manifests.region_ids())
    assert foreseen(table.opened.base, table.opened.manifests, table.opened.freezes) == ()
    shutil.rmtree(Path(table.uri) / region_directory(lost))

    (told,) = foreseen(table.opened.base, table.opened.manifests, table.opened.freezes)
    assert (told.cause, told.region_id) == (FreezeCause.REGION_VANISHED, lost)
    assert table.run(MergeRequest()).outcome is JobOutcome.PARTIAL
    assert foreseen(table.opened.base, table.opened.manifests, table.opened.freezes) == ()
    (freeze,) = Table.open(table.uri).status().frozen
    assert (freeze.cause, freeze.region_id) == (FreezeCause.REGION_VANISHED, lost)
    assert Table.open(table.uri).thaw(Decision(Choice.ACCEPT, "someone")).outcome is JobOutcome.DONE

    again = Table.open(table.uri)
    assert again.run(MergeRequest()).outcome is JobOutcome.NOTHING_TO_DO
    assert 30 < again.count() < 70
    assert again.opened.manifests.region_ids() == [kept]


def test_region_that_was_put_back_before_any_job_saw_it_goes_on(table: Table) -> None:
    lost, _ = sorted(table.opened.manifests.region_ids())
    directory = Path(table.uri) / region_directory(lost)
    shutil.move(directory, Path(table.uri).with_name("moved"))
    assert table.run(MergeRequest()).outcome is JobOutcome.PARTIAL

    shutil.move(Path(table.uri).with_name("moved"), directory)
    assert Table.open(table.uri).run(MergeRequest()).outcome is JobOutcome.DONE
    assert Table.open(table.uri).count() == 70
