"""What each consistency sees, and what happens when the table changes under a reader."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from memwal_core.base_table import BaseTable
from memwal_core.errors import CorruptionError, InvalidRequestError
from memwal_core.format.paths import region_directory
from memwal_core.ids import RegionId
from memwal_core.jobs.merge.request import MergeRequest
from memwal_core.jobs.snapshot.request import SnapshotRequest
from memwal_core.reader import Consistency, Survey, Surveyor
from memwal_core.reader.history import NOTHING_REMEMBERED
from memwal_core.reader.merged import MergedReader
from memwal_core.reader.opened import GenerationGoneError
from memwal_core.region import ManifestStore, drain
from memwal_core.settings import Settings, WriterSettings
from memwal_core.table import Table
from memwal_core.writer.table_writer import TableWriter
from testkit.tables.native_regions import Put, native_region_id, native_scan, write_native_generations
from testkit.tables.people import make_people_table, people
from testkit.tables.readable import as_model, keys_of, read_with

BUFFERED = Settings(writer=WriterSettings(durable_write=False, background_flush=False))


def _generation_directories(uri: str) -> list[Path]:
    return sorted(Path(uri).glob("_mem_wal/*/*_gen_*"))


@pytest.mark.req("RD-07", "RD-08", "RD-09", "RD-10", "RD-14", "LEG-28")
def test_each_consistency_sees_what_it_promises(tmp_path: Path) -> None:
    uri = str(tmp_path / "t")
    with TableWriter.open(make_people_table(uri, buckets=1, settings=BUFFERED)) as writer:
        writer.put(people(1))
        writer.flush()
        Table.open(uri).run(SnapshotRequest())
        writer.put(people(2))
        writer.flush()
        (region,) = writer.writers.values()
        writer.put(people(3))
        region.sync()
        writer.put(people(4))
        table = read_with(uri, writer.writers.values())
        seen = {each: set(as_model(table.to_arrow(consistency=each))) for each in Consistency}
        stated = {each: table.view(each).freshness.achieved for each in Consistency}
        looked_up = table.lookup(keys_of(1, 2, 3, 4), consistency=Consistency.IN_PROCESS).num_rows

    assert seen == {
        Consistency.SNAPSHOT: {1},
        Consistency.LATEST: {1, 2},
        Consistency.DURABLE: {1, 2, 3},
        Consistency.IN_PROCESS: {1, 2, 3, 4},
    }
    assert looked_up == 4
    assert stated == {each: each for each in Consistency}


@pytest.mark.req("RD-10")
def test_in_process_without_a_writer_is_refused(tmp_path: Path) -> None:
    uri = str(tmp_path / "t")
    make_people_table(uri)

    with pytest.raises(InvalidRequestError):
        Table.open(uri).view(Consistency.IN_PROCESS)


@pytest.mark.req("RD-10")
def test_in_process_with_regions_written_elsewhere_states_durable(tmp_path: Path) -> None:
    uri = str(tmp_path / "t")
    with TableWriter.open(make_people_table(uri, buckets=2)) as writer:
        writer.put(people(*range(20)))
        own = list(writer.writers.values())[:1]
        view = read_with(uri, own).view(Consistency.IN_PROCESS)

        assert (view.freshness.achieved, view.freshness.regions_in_memory) == (Consistency.DURABLE, 1)
        assert set(as_model(view.scan().to_arrow())) == set(range(20))


@pytest.mark.req("RD-08")
def test_rows_of_a_successor_are_seen_although_the_fenced_writer_is_given(tmp_path: Path) -> None:
    uri = str(tmp_path / "t")
    table = make_people_table(uri, buckets=1)
    fenced = TableWriter.open(table)
    fenced.put(people(1))
    reader = read_with(uri, fenced.writers.values())
    with TableWriter.open(table, takeover="fence") as successor:
        successor.put(people(2))
        rows = reader.to_arrow(consistency=Consistency.IN_PROCESS)
    fenced.close()

    assert set(as_model(rows)) == {1, 2}


@pytest.mark.req("RD-11", "RD-12", "RD-13")
def test_collected_generation_that_is_still_in_the_snapshot_is_skipped(tmp_path: Path) -> None:
    uri = str(tmp_path / "t")
    with TableWriter.open(make_people_table(uri, buckets=1)) as writer:
        writer.put(people(1, 2))
        writer.flush()
    admin = Table.open(uri)
    admin.run(SnapshotRequest())
    admin.run(MergeRequest())
    table = Table.open(uri)
    before = as_model(table.to_arrow(consistency=Consistency.SNAPSHOT))
    for directory in _generation_directories(uri):
        shutil.rmtree(directory)

    assert before == as_model(table.to_arrow(consistency=Consistency.SNAPSHOT)) == {1: "p1", 2: "p2"}
    assert table.lookup(keys_of(1), consistency=Consistency.SNAPSHOT).num_rows == 1


@pytest.mark.req("RD-13")
@pytest.mark.parametrize("query", ["scan", "lookup"])
def test_missing_unmerged_generation_is_an_error(tmp_path: Path, query: str) -> None:
    uri = str(tmp_path / "t")
    with TableWriter.open(make_people_table(uri, buckets=1)) as writer:
        writer.put(people(1, 2))
        writer.flush()
    shutil.rmtree(_generation_directories(uri)[0])
    table = Table.open(uri)

    with pytest.raises(CorruptionError) as caught:
        table.to_arrow() if query == "scan" else table.lookup(keys_of(1))
    assert caught.value.facts["generation"] == 1


class _Interrupted(BaseTable):
    """Lets something happen between looking at the regions and at the base table."""

    between: Callable[[], object] = staticmethod(lambda: None)

    def state(self, version: int | None = None):
        happening, self.between = self.between, lambda: None
        happening()
        return super().state(version)


@pytest.mark.req("RD-13", "RD-15")
@pytest.mark.parametrize("consistency", [Consistency.LATEST, Consistency.DURABLE, Consistency.SNAPSHOT])
def test_merge_and_collection_during_planning_lose_and_double_nothing(tmp_path: Path, consistency: Consistency) -> None:
    uri = str(tmp_path / "t")
    with TableWriter.open(make_people_table(uri, rows=people(1, 2, 3), buckets=1)) as writer:
        writer.put(people(2, 4, name="new"))
        writer.flush()
        Table.open(uri).run(SnapshotRequest())
        writer.put(people(5))

        def merge_and_collect() -> None:
            writer.put(people(5, name="newer"))
            writer.flush()
            Table.open(uri).run(MergeRequest())
            for directory in _generation_directories(uri):
                shutil.rmtree(directory)

        base = _Interrupted.open(uri)
        base.between = merge_and_collect
        model = as_model(MergedReader(base).to_arrow(consistency=consistency))

    assert model == {1: "p1", 2: "new", 3: "p3", 4: "new", 5: "newer"}


class _BaseFirst(Surveyor):
    """Looks at the base table before it looks at the regions: the wrong order."""

    def survey(self, consistency: Consistency, version: int | None = None, needs: object = None) -> Survey:
        assert (version, needs) == (None, None)
        state = self._table.state()
        regions, _, achieved = self._observe(consistency, NOTHING_REMEMBERED, None)
        return Survey(state, regions, consistency, achieved, state.timestamp)


@pytest.mark.req("RD-15")
@pytest.mark.parametrize("order", ["regions first", "base first"])
def test_reading_the_base_table_first_would_lose_rows(tmp_path: Path, order: str) -> None:
    """Negative control: with the order of the survey turned around, the same history loses rows."""
    uri = str(tmp_path / "t")
    with TableWriter.open(make_people_table(uri, rows=people(1, 2), buckets=1)) as writer:
        writer.put(people(2, 3, name="new"))
        writer.flush()
    admin = Table.open(uri)
    base = _Interrupted.open(uri)
    table = MergedReader(base)

    def merge_and_drain() -> None:
        admin.run(MergeRequest())
        (region,) = admin.opened.manifests.region_ids()
        admin.opened.manifests.update(region, lambda stored: drain(stored, {1}))

    if order == "regions first":
        base.between = merge_and_drain
    else:
        table._surveyor = _BaseFirst(base, _Delayed(admin.opened.manifests, merge_and_drain))
    model = as_model(table.to_arrow())

    assert model == ({1: "p1", 2: "new", 3: "new"} if order == "regions first" else {1: "p1", 2: "p2"})


class _Delayed(ManifestStore):
    """Lets something happen just before the regions are looked at."""

    def __init__(self, store: ManifestStore, before: Callable[[], object]) -> None:
        self.__dict__.update(store.__dict__)
        self._before = before

    def region_ids(self) -> list[RegionId]:
        self._before()
        return super().region_ids()


@pytest.mark.req("RD-13")
def test_generation_that_vanishes_under_a_view_asks_for_a_new_one(tmp_path: Path) -> None:
    uri = str(tmp_path / "t")
    with TableWriter.open(make_people_table(uri, buckets=1)) as writer:
        writer.put(people(1))
        writer.flush()
    table = Table.open(uri)
    view = table.view()
    Table.open(uri).run(MergeRequest())
    shutil.rmtree(_generation_directories(uri)[0])

    with pytest.raises(GenerationGoneError):
        view.scan().to_arrow()
    assert as_model(table.to_arrow()) == {1: "p1"}
    tries = iter([view, table.view()])
    assert as_model(table.read(lambda _: next(tries).scan().to_arrow())) == {1: "p1"}


@pytest.mark.req("RD-14", "RD-16")
def test_old_version_is_read_with_its_own_snapshot(tmp_path: Path) -> None:
    uri = str(tmp_path / "t")
    base = make_people_table(uri, rows=people(1, 2), buckets=1)
    bare = base.state().version
    with TableWriter.open(base) as writer:
        writer.put(people(2, 3, name="new"))
        writer.flush()
        Table.open(uri).run(SnapshotRequest())
        old = base.state().version
        writer.put(people(3, 4, name="later"))
        writer.flush()
        Table.open(uri).run(MergeRequest())
    table = Table.open(uri)

    assert as_model(table.to_arrow(version=old)) == {1: "p1", 2: "new", 3: "new"}
    assert as_model(table.to_arrow(version=bare)) == {1: "p1", 2: "p2"}
    assert as_model(table.to_arrow()) == {1: "p1", 2: "new", 3: "later", 4: "later"}
    assert table.view(version=old).freshness.is_time_travel
    with pytest.raises(InvalidRequestError):
        table.view(Consistency.LATEST, version=old)


@pytest.mark.req("RD-06")
def test_tables_written_by_pylance_read_as_pylance_reads_them(tmp_path: Path) -> None:
    uri = str(tmp_path / "t")
    base = make_people_table(uri, rows=people(*range(20)), buckets=1)
    region = native_region_id(1)
    write_native_generations(
        uri, region, [[Put(people(1, 2, 2, 30, name="a"))], [Put(people(2, 3, name="b")), Put(people(3, name="c"))]]
    )
    table = Table.open(uri)
    manifests = [each.manifest for each in table.view().scan().plan.regions]
    native = native_scan(uri, manifests, ["id", "name"], "id")

    assert as_model(table.to_arrow()) == as_model(native)
    assert table.lookup(keys_of(2, 3, 30, 5), ["name"]).column("name").to_pylist() == ["b", "c", "a", "p5"]
    assert as_model(table.to_arrow(consistency=Consistency.DURABLE)) == as_model(native)
    assert Path(uri, region_directory(region)).is_dir()
    del base
