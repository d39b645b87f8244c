"""A reader looks at manifests, WALs and the base table in an order in which no row can slip past it.

Each case lets rows travel on at the worst moment. With the rule that guards it the reader sees them;
with the rule switched off, the negative control, it does not.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from memwal_core.base_table import BaseTable, TableReader, TableState
from memwal_core.errors import DamagedError, UnavailableError
from memwal_core.format.paths import wal_directory, wal_entry_path
from memwal_core.ids import IdSource
from memwal_core.jobs.gc import survey as gc_survey
from memwal_core.jobs.gc.request import GcRequest
from memwal_core.jobs.merge.request import MergeRequest
from memwal_core.reader import Consistency
from memwal_core.reader.merged import MergedReader
from memwal_core.reader.plan.survey import Survey, Surveyor
from memwal_core.region import ManifestStore, RegionStatus
from memwal_core.region.changes import raise_wal_hint
from memwal_core.settings import GcSettings, Settings, WalCollection
from memwal_core.storage import open_store
from memwal_core.table import Table
from memwal_core.writer import RegionWriter
from testkit.faults.faulty_store import FaultyStore, Moment, Rule
from testkit.tables.garbage import drop_old_versions
from testkit.tables.people import make_people_table, people
from testkit.tables.readable import as_model
from testkit.tables.regions import FAST_STORAGE, create_region, writer_settings

AT_ONCE = Settings(
    storage=FAST_STORAGE,
    gc=GcSettings(
        grace_s=0,
        collect_wal=WalCollection.ALL,
        wal_min_age_s=0,
        wal_epoch_checks=0,
        orphan_age_s=0,
        allow_unsafe_retention=True,
    ),
)
KEYS = range(1, 5)
EVERYTHING = {key: f"p{key}" for key in KEYS}


def collect(table: BaseTable) -> None:
    Table.open(table.uri, settings=AT_ONCE).run(GcRequest(dry_run=False))


def read_while(table: BaseTable, happening: Callable[[], object], path: str, moment: Moment) -> dict[int, str]:
    """Read everything durable; at the first look at a path of some kind, let something happen."""
    store = FaultyStore(open_store(table.uri))
    rule = store.add(Rule(lambda _: happening(), moment, frozenset({"head"}), lambda found: path in found))
    reader = MergedReader(TableReader(store, settings=table.settings), consistency=Consistency.DURABLE)
    rows = as_model(reader.to_arrow())
    assert rule.matched > 0
    return rows


def written(tmp_path: Path, status: RegionStatus) -> tuple[BaseTable, RegionWriter]:
    table = make_people_table(str(tmp_path / "t"))
    writer = RegionWriter.open(table.with_settings(writer_settings()), create_region(table, status))
    for key in KEYS:
        writer.put(people(key))
    return table, writer


@pytest.mark.req("RD-10", "RD-13", "GC-10")
@pytest.mark.parametrize("moment", Moment)
@pytest.mark.parametrize("status", RegionStatus)
def test_rows_flushed_and_collected_before_the_wal_is_read_are_seen(
    tmp_path: Path, status: RegionStatus, moment: Moment
) -> None:
    table, writer = written(tmp_path, status)
    wal = wal_directory(writer.region_id)
    before = len(list(table.store.list_objects(wal)))

    def flush_and_collect() -> None:
        writer.flush()
        collect(table)

    assert read_while(table, flush_and_collect, "/wal/", moment) == EVERYTHING
    assert len(list(table.store.list_objects(wal))) < before


@pytest.mark.req("RD-13", "GC-10")
def test_without_the_second_look_at_the_manifest_collected_entries_are_missed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Negative control."""
    table, writer = written(tmp_path, RegionStatus.ACTIVE)
    monkeypatch.setattr(ManifestStore, "is_newest", lambda self, manifest: True)

    def flush_and_collect() -> None:
        writer.flush()
        collect(table)

    assert read_while(table, flush_and_collect, "/wal/", Moment.BEFORE) == {}


def merge_and_drain(table: BaseTable, writer: RegionWriter) -> None:
    writer.flush()
    Table.open(table.uri, settings=AT_ONCE).run(MergeRequest())
    drop_old_versions(table.uri)
    collect(table)


@pytest.mark.req("RD-13", "RD-15")
@pytest.mark.parametrize("status", RegionStatus)
def test_rows_merged_and_drained_before_the_manifest_is_read_are_seen(tmp_path: Path, status: RegionStatus) -> None:
    table, writer = written(tmp_path, status)

    rows = read_while(table, lambda: merge_and_drain(table, writer), "/manifest/", Moment.BEFORE)

    assert rows == EVERYTHING


@pytest.mark.req("RD-13", "RD-15")
def test_reader_that_looks_at_the_base_table_first_misses_merged_and_drained_rows(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Negative control of the order: manifests and WALs first, merge progress last."""
    table, writer = written(tmp_path, RegionStatus.SEALED)
    look = Surveyor.survey

    def base_first(
        self: Surveyor, consistency: Consistency, version: int | None = None, needs: object = None
    ) -> Survey:
        state = self._table.state()
        seen = look(self, consistency, version)
        return Survey(state, seen.regions, seen.asked, seen.achieved, seen.taken)

    def merge_and_drain_but_keep_versions() -> None:
        writer.flush()
        Table.open(table.uri, settings=AT_ONCE).run(MergeRequest())
        collect(table)

    monkeypatch.setattr(Surveyor, "survey", base_first)
    # Otherwise the old version that this reader uses would keep the generation where it is.
    monkeypatch.setattr(gc_survey, "retained_versions", lambda table, concurrency, **_: ())
    assert read_while(table, merge_and_drain_but_keep_versions, "/manifest/", Moment.BEFORE) == {}


class Overtaken(TableReader):
    """A base table that changes right before a reader asks for its newest version."""

    def __init__(self, table: BaseTable, happening: Callable[[], object]) -> None:
        super().__init__(table.store, settings=table.settings)
        self._happening: Callable[[], object] | None = happening

    def state(self, version: int | None = None) -> TableState:
        happening, self._happening = self._happening, None
        if happening is not None:
            happening()
        return super().state(version)


@pytest.mark.req("RD-13", "RD-15")
@pytest.mark.parametrize("status", RegionStatus)
def test_rows_flushed_and_merged_after_the_wal_was_read_are_seen(tmp_path: Path, status: RegionStatus) -> None:
    """The unflushed rows that were read are older than the base table's by then; the reader looks again."""
    table, writer = written(tmp_path, status)

    def overtake() -> None:
        writer.flush()
        writer.put(people(*KEYS, name="newer"))
        merge_and_drain(table, writer)

    reader = MergedReader(Overtaken(table, overtake), consistency=Consistency.DURABLE)

    assert as_model(reader.to_arrow()) == dict.fromkeys(KEYS, "newer")


class OvertakenEachTime(Overtaken):
    """The same at every look."""

    def state(self, version: int | None = None) -> TableState:
        happening = self._happening
        state = super().state(version)
        self._happening = happening
        return state


def test_region_that_is_flushed_and_merged_during_each_look_is_not_called_damaged(tmp_path: Path) -> None:
    """The read was refused for good, with the advice to freeze the table."""
    table, writer = written(tmp_path, RegionStatus.SEALED)

    def overtake() -> None:
        writer.put(people(*KEYS, name="newer"))
        writer.flush()
        Table.open(table.uri, settings=AT_ONCE).run(MergeRequest())

    reader = MergedReader(OvertakenEachTime(table, overtake), consistency=Consistency.DURABLE)

    with pytest.raises(UnavailableError, match="faster than they could be read"):
        reader.to_arrow()


@pytest.mark.req("MEM-41", "D-04")
def test_read_of_a_wal_that_lost_several_entries_is_refused_and_no_row_lost(tmp_path: Path) -> None:
    """One missing entry shows because the next one exists; only the manifest tells that more are missing."""
    table, writer = written(tmp_path, RegionStatus.SEALED)
    ManifestStore(table.store, IdSource()).update(writer.region_id, lambda stored: raise_wal_hint(stored, len(KEYS)))
    for missing in (2, 3):
        table.store.delete(wal_entry_path(writer.region_id, missing, ".lance"))

    with pytest.raises(DamagedError, match="hole"):
        MergedReader(TableReader.open(table.uri), consistency=Consistency.DURABLE).to_arrow()


def test_read_of_a_wal_that_another_codec_goes_on_with_is_refused_and_no_row_lost(tmp_path: Path) -> None:
    table, writer = written(tmp_path, RegionStatus.SEALED)
    table.store.put(wal_entry_path(writer.region_id, len(KEYS) + 1, ".arrow"), b"rows of a writer that sees no .lance")

    with pytest.raises(DamagedError, match="two codecs"):
        MergedReader(TableReader.open(table.uri), consistency=Consistency.DURABLE).to_arrow()
