"""States for garbage collection planners, and a real table to collect from."""

from __future__ import annotations

import uuid
from collections.abc import Iterable, Mapping, Sequence
from datetime import UTC, datetime, timedelta

import lance

from memwal_core.base_table import BaseTable, RetainedVersion, Sources
from memwal_core.clock import Clock
from memwal_core.errors import InternalError
from memwal_core.format.memwal_index import MemWalIndexDetails
from memwal_core.format.paths import LANCE_WAL_SUFFIX, manifest_path, wal_entry_path
from memwal_core.ids import RegionId
from memwal_core.jobs.context import OpenTable
from memwal_core.jobs.gc.policy import Policy
from memwal_core.jobs.gc.report import GcReport
from memwal_core.jobs.gc.request import GcRequest
from memwal_core.jobs.gc.state import BaseState, DirectoryState, GcRegionState, GcState, NumberedObject
from memwal_core.jobs.merge.request import MergeRequest
from memwal_core.region import FlushedGeneration, RegionManifest
from memwal_core.settings import DAY_S, GcSettings, Settings, WalCollection, WriterSettings
from memwal_core.storage import ObjectStore
from memwal_core.storage.protocol import ObjectInfo
from memwal_core.table import Table
from memwal_core.writer.table_writer import TableWriter
from testkit.clock import ManualClock
from testkit.faults.faulty_store import FaultyStore
from testkit.rng import seeded_rng
from testkit.tables.people import make_people_table, people, reopened

REGION = RegionId(uuid.UUID("6f9619ff-8b86-4011-b42d-00c04fc964ff"))
NOW = datetime(2026, 6, 1, tzinfo=UTC)
OLD_S = 30 * DAY_S
"""Older than every default retention."""


def policy(settings: GcSettings | None = None) -> Policy:
    """Return the policy of some settings at ``NOW``; the defaults with WAL collection if None."""
    return Policy.of(Settings(gc=settings if settings is not None else GcSettings(collect_wal=WalCollection.ALL)), NOW)


def stored(path: str, age_s: float = OLD_S, size_bytes: int = 10) -> ObjectInfo:
    """Return an object of some age at ``NOW``."""
    return ObjectInfo(path, size_bytes, NOW - timedelta(seconds=age_s), None)


def directory(generation: int, *, age_s: float = OLD_S, wal_ids: Iterable[int] | None = ()) -> DirectoryState:
    """Return the directory of a generation, named as in ``region``.

    Args:
        generation: From 1.
        age_s: Since its newest object was written.
        wal_ids: WAL entries it consists of; None if they cannot be read.
    """
    return DirectoryState(
        name=f"{generation:08x}_gen_{generation}",
        generation=generation,
        objects=3,
        size_bytes=300,
        modified=NOW - timedelta(seconds=age_s),
        wal_ids=None if wal_ids is None else frozenset(wal_ids),
        problem="unreadable" if wal_ids is None else "",
    )


def region(
    recorded: Sequence[int] = (),
    *,
    current: int | None = None,
    replay: int = 0,
    wal: Mapping[int, float] | None = None,
    directories: Sequence[DirectoryState] | None = None,
    epoch: int = 1,
) -> GcRegionState:
    """Return a region.

    Args:
        recorded: Generations that its manifest records.
        current: Current generation; the one after the recorded by default.
        replay: Replay pointer.
        wal: WAL id -> age in seconds.
        directories: What is there; one per recorded generation by default.
        epoch: Writer epoch.
    """
    found = [directory(number) for number in recorded] if directories is None else directories
    manifest = RegionManifest(
        region_id=REGION,
        version=7,
        writer_epoch=epoch,
        replay_after_wal_id=replay,
        wal_id_last_seen=replay,
        current_generation=current if current is not None else max(recorded, default=0) + 1,
        flushed_generations=tuple(FlushedGeneration(each, directory(each).name) for each in recorded),
    )
    entries = tuple(
        NumberedObject(number, stored(wal_entry_path(REGION, number, LANCE_WAL_SUFFIX), age))
        for number, age in sorted((wal or {}).items())
    )
    suffixes = frozenset({LANCE_WAL_SUFFIX}) if entries else frozenset()
    return GcRegionState(
        REGION, manifest, settled_wal_id=replay, directories=tuple(found), wal=entries, wal_suffixes=suffixes
    )


def versions(ages_s: Mapping[int, float]) -> tuple[NumberedObject, ...]:
    """Return manifest versions of some ages."""
    return tuple(
        NumberedObject(number, stored(manifest_path(REGION, number), age)) for number, age in sorted(ages_s.items())
    )


def base(
    merged: int,
    *,
    catchup: Mapping[str, int] | None = None,
    maintained: Sequence[str] = (),
    index_names: Sequence[str] = (),
    retained: Sequence[RetainedVersion] = (),
    num_rows: int = 1,
) -> BaseState:
    """Return a base table.

    Args:
        merged: Merge progress of ``REGION``.
        catchup: Index -> generation it has caught up to.
        maintained: Indexes that MemTables maintain.
        index_names: Indexes that exist.
        retained: Versions that can be opened.
        num_rows: Live rows.
    """
    details = MemWalIndexDetails(
        maintained_indexes=tuple(maintained),
        merged_generations={REGION: merged} if merged else {},
        index_catchup={name: {REGION: generation} for name, generation in (catchup or {}).items()},
    )
    return BaseState(12, num_rows, details, tuple(index_names), tuple(retained))


def table(base_state: BaseState, *regions: GcRegionState) -> GcState:
    """Return a table."""
    return GcState("memory://table", base_state, regions)


def later(seconds: float) -> ManualClock:
    """Return a clock that is ahead of the system's, so that what was written just now looks old."""
    return ManualClock(datetime.now(tz=UTC) + timedelta(seconds=seconds))  # noqa: TID251 - files have system times


def gc_admin(
    uri: str, *, settings: GcSettings | None = None, clock: Clock | None = None, store: ObjectStore | None = None
) -> Table:
    """Open a real table for garbage collection.

    Args:
        uri: The table.
        settings: What to keep; WAL collection and no grace period by default.
        clock: A month ahead by default.
        store: For faults; one opened from the address by default.
    """
    chosen = Settings(gc=settings if settings is not None else GcSettings(collect_wal=WalCollection.ALL, grace_s=0))
    sources = Sources(clock if clock is not None else later(OLD_S), seeded_rng(1))
    return Table(OpenTable.of(BaseTable.open(uri, store=store, settings=chosen, sources=sources)))


def collect(admin: Table) -> GcReport:
    """Collect garbage for real."""
    report: GcReport = admin.run(GcRequest(dry_run=False))
    return report


SHARING = Settings(writer=WriterSettings(pack_below_bytes=0))
"""For writers that share every WAL entry with a flushed MemTable."""


def without_links(table: BaseTable) -> BaseTable:
    """Return the same table over a store without links, where a flushed MemTable names the WAL entries."""
    store = FaultyStore(table.store)
    store.has_links = False
    return reopened(table, store, SHARING)


def write_generations(table: BaseTable, *generations: Sequence[int], name: str, owned: bool = False) -> None:
    """Write people with some ids and one name, one WAL entry and one flushed MemTable per sequence.

    Each flushed MemTable consists of its WAL entry, as on a store without links, unless ``owned`` says that it shall
    own its files.
    """
    with TableWriter.open((table if owned else without_links(table)).with_settings(SHARING)) as writer:
        for ids in generations:
            writer.put(people(*ids, name=name))
            writer.flush()


def make_merged_table(uri: str, *, owned: bool = False) -> BaseTable:
    """Make a table with one region: WAL entries 1 to 3, generations 1 to 3, merged, no old versions.

    A reader must see what ``MERGED_ROWS`` says; for ``owned`` see ``write_generations``.
    """
    made = make_people_table(uri, rows=people(1, 2), buckets=1)
    write_generations(made, [1, 5], [6], [5, 7], name="a", owned=owned)
    Table.open(uri).run(MergeRequest())
    drop_old_versions(uri)
    return made


MERGED_ROWS = {1: "a", 2: "p2", 5: "a", 6: "a", 7: "a"}
"""What a reader must see of ``make_merged_table``: id -> name."""


def merged_table_of_garbage(uri: str) -> BaseTable:
    """Make a table with two flushed MemTables that are merged and that nothing needs."""
    made = make_people_table(uri, rows=people(1, 2), buckets=1)
    with TableWriter.open(made) as writer:
        for number in (3, 4):
            writer.put(people(number))
            writer.flush()
    Table.open(made.uri).run(MergeRequest())
    drop_old_versions(made.uri)
    return made


def drop_old_versions(uri: str, storage_options: Mapping[str, str] | None = None) -> None:
    """Give up all versions of a base table but the newest and tagged ones."""
    dataset = lance.dataset(uri, storage_options=dict(storage_options or {}) or None)
    dataset.cleanup_old_versions(older_than=timedelta(0), delete_unverified=True, error_if_tagged_old_versions=False)


def only_region(admin: Table) -> RegionId:
    """Return the region of a table that has one.

    Raises:
        InternalError: It has none or several.
    """
    found = admin.opened.manifests.region_ids()
    if len(found) != 1:
        raise InternalError("the table does not have one region", remedy="correct the test", regions=len(found))
    return found[0]
