"""What the rows of a damaged flushed MemTable can be made from: WAL entries of its range, or its own data files."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from types import MappingProxyType

import pyarrow as pa
from lance.file import LanceFileReader

from memwal_core.base_table import BaseTable, decoding
from memwal_core.deduplicate import last_row_per_key
from memwal_core.errors import CorruptionError, InvalidRequestError, MemwalError, ObjectNotFoundError
from memwal_core.format.paths import generation_path, wal_entry_path
from memwal_core.ids import RegionId
from memwal_core.region import FlushedGeneration, ManifestStore, RegionManifest
from memwal_core.storage.concurrent import map_concurrently
from memwal_core.wal import WalCodec, WalEntry
from memwal_core.writer.claim.opening import codec_of_region
from memwal_core.writer.layout import TableLayout, layout_of_rows
from memwal_core.writer.log.replay import rows_of_entry

_DATA = "data"
_LANCE = ".lance"


@dataclass(frozen=True, slots=True)
class WalRange:
    """The WAL entries whose rows a generation has.

    Attributes:
        first: The first entry.
        last: The last one.
        evidence: What says so.
    """

    first: int
    last: int
    evidence: str

    @property
    def entries(self) -> range:
        """The entries' numbers."""
        return range(self.first, self.last + 1)


@dataclass(frozen=True, slots=True)
class RowSources:
    """What is left of a generation's rows.

    Attributes:
        wal: Its WAL range; None if nothing tells it.
        lost: WAL entry -> why it cannot be read, in its range.
        rows: All rows that can be read, in write order, tombstones included.
        layout: Their columns; None if there are no rows.
        is_complete: Whether these are all rows that the generation had.
        evidence: What says so, or what is missing.
    """

    wal: WalRange | None
    rows: pa.Table | None = field(repr=False)
    layout: TableLayout | None = field(repr=False)
    is_complete: bool
    evidence: str
    lost: Mapping[int, str] = field(default_factory=lambda: MappingProxyType({}))


class SourceFinder:
    """Looks for the rows of generations of one table. Reads only.

    Args:
        table: The base table.
        manifests: Its region manifests.
        layout: Of the table's newest version.
        field_ids: Its top-level field ids.
        concurrency: Requests under way at once.
    """

    def __init__(
        self,
        table: BaseTable,
        manifests: ManifestStore,
        layout: TableLayout,
        field_ids: Mapping[str, int],
        concurrency: int,
    ) -> None:
        """Keep the parts; nothing is read."""
        self._table = table
        self._store = table.store
        self._manifests = manifests
        self._layout = layout
        self._field_ids = field_ids
        self._concurrency = concurrency

    def find(self, manifest: RegionManifest, generation: int) -> RowSources:
        """Read everything that is left of a flushed generation; as much memory as its rows take.

        Raises:
            UnavailableError: Storage failed.
        """
        recorded = next((each for each in manifest.flushed_generations if each.generation == generation), None)
        wal = self._range_of(manifest, generation)
        from_wal = self._from_wal(manifest, wal, recorded) if wal is not None else None
        if from_wal is not None and from_wal.is_complete:
            return from_wal
        whole = self._from_data_file(manifest.region_id, recorded) if recorded is not None else None
        if whole is not None:
            return whole
        return from_wal if from_wal is not None else RowSources(None, None, None, False, "nothing tells its WAL range")

    def _range_of(self, manifest: RegionManifest, generation: int) -> WalRange | None:
        """Find the WAL range of a generation in the history of the region manifest."""
        history = _history(self._manifests, manifest)
        for old, new in pairwise(history):
            if old.current_generation == generation and new.current_generation == generation + 1:
                evidence = f"versions {old.version} and {new.version} of the region manifest"
                return WalRange(old.replay_after_wal_id + 1, new.replay_after_wal_id, evidence)
        return None

    def _from_wal(self, manifest: RegionManifest, wal: WalRange, recorded: FlushedGeneration | None) -> RowSources:
        codec = codec_of_region(manifest, self._field_ids)

        def read(wal_id: int) -> WalEntry | MemwalError:
            try:
                return self._entry(manifest.region_id, codec, wal_id, recorded)
            except (CorruptionError, InvalidRequestError) as error:
                return error

        found = map_concurrently(read, wal.entries, self._concurrency)
        lost = {
            wal_id: str(each.facts.get("cause", each.what))
            for wal_id, each in zip(wal.entries, found, strict=True)
            if isinstance(each, MemwalError)
        }
        entries = [each for each in found if isinstance(each, WalEntry) and not each.is_fence]
        layout, rows = self._rows(manifest.region_id, entries)
        complete = not lost
        evidence = f"WAL entries {wal.first} to {wal.last}, by {wal.evidence}"
        if lost:
            evidence = f"{len(lost)} of the {evidence}, cannot be read"
        return RowSources(wal, rows, layout, complete, evidence, MappingProxyType(lost))

    def _entry(self, region_id: RegionId, codec: WalCodec, wal_id: int, recorded: FlushedGeneration | None) -> WalEntry:
        """Read an entry from the WAL, or from the link to it that the generation has."""
        try:
            return codec.decode(
                self._store, region_id, wal_id, self._store.get(wal_entry_path(region_id, wal_id, codec.suffix))
            )
        except (CorruptionError, ObjectNotFoundError) as error:
            if recorded is None:
                raise
            name = wal_entry_path(region_id, wal_id, codec.suffix).rpartition("/")[2]
            try:
                data = self._store.get(f"{generation_path(region_id, recorded.path)}/{_DATA}/{name}")
            except ObjectNotFoundError:
                raise error from None
            return codec.decode(self._store, region_id, wal_id, data)

    def _rows(self, region_id: RegionId, entries: Sequence[WalEntry]) -> tuple[TableLayout | None, pa.Table | None]:
        if not entries:
            return None, None
        layout = layout_of_rows(self._table, self._layout, entries[0].rows.schema)
        rows = [rows_of_entry(entry, layout.entry_shape, region_id) for entry in entries]
        return layout, pa.concat_tables([layout.memtable_schema.empty_table(), *rows])

    def _from_data_file(self, region_id: RegionId, recorded: FlushedGeneration) -> RowSources | None:
        """Read the generation's own data file, if it has exactly one that has all rows, and each key once.

        Several files have no order among them, and neither have rows of one key in a file of another program's.
        """
        directory = f"{generation_path(region_id, recorded.path)}/{_DATA}"
        files = [info.path for info in self._store.list_objects(directory) if info.path.endswith(_LANCE)]
        if len(files) != 1 or recorded.physical_rows is None:
            return None
        [path] = files
        rows = self._own_rows(path)
        if rows is None or rows.num_rows != recorded.physical_rows:
            return None
        key = self._layout.key
        if len(last_row_per_key(rows.select(list(key)), key)) != rows.num_rows:
            return None
        evidence = f"its data file {path.rpartition('/')[2]}, which has the recorded {rows.num_rows} rows"
        return RowSources(None, rows, self._layout, True, evidence)

    def _own_rows(self, path: str) -> pa.Table | None:
        uri, schema = self._store.uri_of(path), self._layout.memtable_schema
        try:
            with decoding(uri):
                reader = LanceFileReader(uri, storage_options=dict(self._store.storage_options) or None)
                found = reader.read_all().to_table()
        except CorruptionError:
            return None
        same = {field.name: field.type for field in found.schema} == {field.name: field.type for field in schema}
        return pa.Table.from_arrays([found.column(name) for name in schema.names], schema=schema) if same else None


def _history(manifests: ManifestStore, newest: RegionManifest) -> list[RegionManifest]:
    """Return the versions of a region manifest that can be read, ascending."""
    found = []
    for version in manifests.versions(newest.region_id):
        try:
            found.append(manifests.load_version(newest.region_id, version))
        except (CorruptionError, ObjectNotFoundError):
            continue  # An old version that is damaged tells nothing.
    return found
