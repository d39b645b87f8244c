"""What the rows of a damaged flushed MemTable can be made from: WAL entries of its range, or its own data files."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from types import MappingProxyType

import pyarrow as pa

from memwal_core.base_table import BaseTable, TableState, decoding, open_file
from memwal_core.deduplicate import last_row_per_key
from memwal_core.errors import (
    CorruptionError,
    InvalidRequestError,
    MemwalError,
    ObjectNotFoundError,
)
from memwal_core.format.columns import TOMBSTONE_COLUMN
from memwal_core.format.paths import LANCE_WAL_SUFFIX, generation_path, parse_numbered_name, wal_entry_path
from memwal_core.ids import RegionId
from memwal_core.native.casting import no_rows
from memwal_core.region import FlushedGeneration, ManifestStore, RegionManifest
from memwal_core.storage.concurrent import map_concurrently
from memwal_core.wal import WalCodec, WalEntry, codec_of_region, noted_column_ids
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
    """

    wal: WalRange | None
    rows: pa.Table | None = field(repr=False)
    layout: TableLayout | None = field(repr=False)
    is_complete: bool
    evidence: str
    lost: Mapping[int, str] = field(default_factory=lambda: MappingProxyType({}))


class SourceFinder:
    """Looks for the rows of generations of one table. Reads only."""

    def __init__(
        self,
        table: BaseTable,
        manifests: ManifestStore,
        layout: TableLayout,
        column_ids: Mapping[str, tuple[int, ...]],
        concurrency: int,
    ) -> None:
        """Keep the parts; nothing is read."""
        self._table = table
        self._store = table.store
        self._manifests = manifests
        self._layout = layout
        self._column_ids = column_ids
        self._concurrency = concurrency

    def find(self, manifest: RegionManifest, generation: int) -> RowSources:
        """Read everything that is left of a flushed generation; as much memory as its rows take."""
        recorded = next((each for each in manifest.flushed_generations if each.generation == generation), None)
        wal = self._range_of(manifest, generation)
        from_wal = self._from_wal(manifest, wal, recorded) if wal is not None else None
        if from_wal is not None and from_wal.is_complete:
            return from_wal
        own = self._from_data_files(manifest, recorded) if recorded is not None else None
        if own is not None and own.is_complete:
            return own
        left = [each for each in (from_wal, own) if each is not None and each.rows is not None]
        if left:
            return max(left, key=lambda each: each.rows.num_rows if each.rows is not None else 0)
        tried = [each.evidence for each in (from_wal, own) if each is not None]
        nothing = "; ".join(tried) or "nothing tells its WAL range, and it has no directory"
        return from_wal or RowSources(None, None, None, is_complete=False, evidence=nothing)

    def _range_of(self, manifest: RegionManifest, generation: int) -> WalRange | None:
        """Find the WAL range of a generation in the history of the region manifest."""
        history = _history(self._manifests, manifest)
        for old, new in pairwise(history):
            if old.current_generation == generation and new.current_generation == generation + 1:
                evidence = f"versions {old.version} and {new.version} of the region manifest"
                return WalRange(old.replay_after_wal_id + 1, new.replay_after_wal_id, evidence)
        return None

    def _from_wal(self, manifest: RegionManifest, wal: WalRange, recorded: FlushedGeneration | None) -> RowSources:
        codec = codec_of_region(manifest, self._column_ids)

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
        return layout, pa.concat_tables([no_rows(layout.memtable_schema), *rows])

    def _from_data_files(self, manifest: RegionManifest, recorded: FlushedGeneration) -> RowSources:
        """Read the generation's own data files, as far as their order is known.

        Ours are named after WAL entries, or by the place that their rows have among the fragments. Of another
        program's, one file with each key once needs no order.
        """
        directory = f"{generation_path(manifest.region_id, recorded.path)}/{_DATA}"
        names = [info.path.removeprefix(f"{directory}/") for info in self._store.list_objects(directory)]
        ordered = in_write_order([name for name in names if name.endswith(_LANCE)], recorded.path)
        codec = codec_of_region(manifest, self._column_ids)
        found = [self._own_rows(manifest.region_id, codec, f"{directory}/{name}") for name in ordered]
        parts = [rows for rows in found if rows is not None]
        layout = self._layout_of(parts) if parts else self._layout
        if layout is None:
            evidence = "its own data files do not tell which columns of the table theirs are"
            return RowSources(None, None, None, is_complete=False, evidence=evidence)
        parts = [rows for part in parts if (rows := _in_layout(part, layout)) is not None]
        if not parts:
            return RowSources(None, None, None, is_complete=False, evidence="its own data files cannot be read")
        rows = pa.concat_tables(parts)
        key = layout.key
        repeats = bool(key) and len(last_row_per_key(rows.select(list(key)), key)) != rows.num_rows
        if repeats and is_foreign(names, recorded.path):
            evidence = "its data file has keys twice, and nothing tells which row is newer"
            return RowSources(None, None, None, is_complete=False, evidence=evidence)
        complete = rows.num_rows == recorded.physical_rows
        evidence = f"its own data files, which have {rows.num_rows} of {recorded.physical_rows} recorded rows"
        return RowSources(None, rows, layout, complete, evidence)

    def _layout_of(self, parts: Sequence[pa.Table]) -> TableLayout | None:
        """Return the layout of rows of data files, of which WAL entries alone note field ids; None if it is unknown."""
        noted = next((each.schema for each in parts if noted_column_ids(each.schema)), None)
        if noted is not None:
            return layout_of_rows(self._table, self._layout, noted)
        columns, known = _columns(parts[0].schema), dict[object, TableState]()
        for entry in self._table.dataset().versions():
            state = self._table.state(entry["version"])
            if _columns(state.schema) == columns:
                known[tuple(state.column_ids.items())] = state
        return TableLayout.of(*known.values()) if len(known) == 1 else None

    def _own_rows(self, region_id: RegionId, codec: WalCodec, path: str) -> pa.Table | None:
        uri = self._store.uri_of(path)
        try:
            wal_id = wal_id_of(path.rpartition("/")[2])
            if wal_id is not None:
                return codec.decode(self._store, region_id, wal_id, self._store.get(path)).rows
            reader = open_file(uri, self._store.storage_options)
            with decoding(uri):
                return reader.read_all().to_table()
        except CorruptionError:
            return None


def _columns(schema: pa.Schema) -> list[tuple[str, pa.DataType]]:
    return [(each.name, each.type) for each in schema if each.name != TOMBSTONE_COLUMN]


def _in_layout(rows: pa.Table, layout: TableLayout) -> pa.Table | None:
    """Return rows in a layout; None if they have other columns."""
    schema = layout.memtable_schema
    if noted_column_ids(rows.schema) and not layout.entry_shape.fits(rows.schema):
        return None
    same = {field.name: field.type for field in rows.schema} == {field.name: field.type for field in schema}
    return pa.Table.from_arrays([rows.column(name) for name in schema.names], schema=schema) if same else None


def in_write_order(names: Sequence[str], directory: str) -> list[str]:
    """Return the data files of a flushed MemTable in the order of their rows, the oldest first.

    A file that is numbered has that place among the fragments; files that are WAL entries take the others, in the
    order of the WAL. Files of other programs have no order, so that they are returned only if there is one.
    """
    if is_foreign(names, directory):
        return list(names) if len(names) == 1 else []
    numbered = {place: name for name in names if (place := _place_of(name, directory)) is not None}
    by_wal_id = {wal_id: name for name in names if (wal_id := wal_id_of(name)) is not None}
    entries = iter([by_wal_id[wal_id] for wal_id in sorted(by_wal_id)])
    places = max([len(names), *(place + 1 for place in numbered)])
    filled = (numbered[place] if place in numbered else next(entries, None) for place in range(places))
    return [name for name in filled if name is not None]


def is_foreign(names: Sequence[str], directory: str) -> bool:
    """Return whether some file has a name that this project does not give."""
    return any(wal_id_of(name) is None and _place_of(name, directory) is None for name in names)


def wal_id_of(name: str) -> int | None:
    """Return the WAL entry that a data file is; None if it is not one."""
    try:
        return parse_numbered_name(name, LANCE_WAL_SUFFIX)
    except InvalidRequestError:
        return None


def _place_of(name: str, directory: str) -> int | None:
    number = name.removeprefix(f"{directory}_").removesuffix(_LANCE)
    return int(number) if name == f"{directory}_{number}{_LANCE}" and number.isdecimal() else None


def _history(manifests: ManifestStore, newest: RegionManifest) -> list[RegionManifest]:
    """Return the versions of a region manifest that can be read, ascending."""
    found = []
    for version in manifests.versions(newest.region_id):
        try:
            found.append(manifests.load_version(newest.region_id, version))
        except (CorruptionError, ObjectNotFoundError):
            continue  # An old version that is damaged tells nothing.
    return found
