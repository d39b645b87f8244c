"""Clones: tables of their own, which are never taken for the original (S1, S3)."""

from __future__ import annotations

from pathlib import Path

import pytest

from memwal_core.errors import FencedError, FrozenError
from memwal_core.jobs.backup.request import BackupRequest
from memwal_core.jobs.clone.request import CloneRequest
from memwal_core.jobs.gc.request import GcRequest
from memwal_core.jobs.merge.request import MergeRequest
from memwal_core.jobs.outcome import JobOutcome
from memwal_core.jobs.snapshot.request import SnapshotRequest
from memwal_core.settings import Settings, WriterSettings
from memwal_core.table import Table
from testkit.tables.people import people
from tests.integration.jobs.copies.places import (
    RIGHT,
    Place,
    flushed_and_merged,
    make_place,
    make_table,
    seen,
)


@pytest.fixture(params=["links", "no links"])
def place(request: pytest.FixtureRequest, tmp_path: Path) -> Place:
    return make_place(request.param, tmp_path, None)


def test_clone_has_an_identity_of_its_own_and_goes_its_own_way_at_once(place: Place) -> None:
    table = make_table(place)
    assert table.run(CloneRequest(target=place.uri("clone.lance"))).outcome is JobOutcome.DONE
    clone = place.open("clone.lance")

    first, second = table.base.state(), clone.base.state()
    assert first.entry is not None
    assert second.entry is not None
    assert first.entry.index_id != second.entry.index_id
    record = clone.opened.freezes.load()
    assert record is not None
    assert record.memory.addresses == (clone.uri,)
    for region_id in table.opened.manifests.region_ids():
        before, after = table.opened.manifests.load(region_id), clone.opened.manifests.load(region_id)
        assert after.writer_epoch >= before.writer_epoch + 2**32
        assert after.flushed_generations == before.flushed_generations

    with clone.writer() as writer:  # Not ``fence``: nobody can be there.
        writer.put(people(60, name="of the clone"))
    with table.writer(takeover="fence") as writer:
        writer.put(people(60, name="of the original"))
    assert seen(clone) == RIGHT | {60: "of the clone"}
    assert seen(table) == RIGHT | {60: "of the original"}
    assert flushed_and_merged(clone) == RIGHT | {2: "merged", 60: "of the clone"}
    assert flushed_and_merged(table) == RIGHT | {2: "merged", 60: "of the original"}
    for each in (clone, table):
        assert each.run(SnapshotRequest()).outcome is JobOutcome.DONE
        assert each.run(GcRequest(dry_run=False)).outcome in (JobOutcome.DONE, JobOutcome.NOTHING_TO_DO)


def test_writer_of_the_original_is_fenced_where_the_clone_took_its_place(place: Place) -> None:
    table = make_table(place)
    opened = Table.open(
        table.uri,
        settings=Settings(writer=WriterSettings(background_flush=False, epoch_check_interval_s=0.001)),
    )
    table.run(CloneRequest(target=place.uri("clone.lance")))
    with opened.writer(takeover="fence") as writer:
        writer.put(people(*range(5, 25), name="claims all regions"))
        Path(table.uri).rename(place.uri("aside.lance"))
        Path(place.uri("clone.lance")).rename(table.uri)
        with pytest.raises(FencedError):
            writer.put(people(*range(5, 25), name="lost in the clone"))
    assert "lost in the clone" not in seen(place.open("aside.lance")).values()
    with pytest.raises(FrozenError):
        place.open("people.lance").run(MergeRequest())  # The clone is not at home there.


def test_writer_of_the_original_is_not_fenced_where_a_backup_took_its_place(place: Place) -> None:
    """Negative control of the epochs: a backup is the same table."""
    table = make_table(place)
    table.run(BackupRequest(target=place.uri("copy.lance")))
    assert {each.writer_epoch for each in _manifests(table)} == {
        each.writer_epoch for each in _manifests(place.open("copy.lance"))
    }


def _manifests(table: Table) -> list:  # type: ignore[type-arg]
    return table.opened.manifests.load_many(table.opened.manifests.region_ids())


def test_clone_that_is_copied_or_moved_freezes_as_any_table(place: Place) -> None:
    make_table(place).run(CloneRequest(target=place.uri("clone.lance")))
    place.copy("clone.lance", "again.lance")
    with pytest.raises(FrozenError):
        place.open("again.lance").run(MergeRequest())
