"""The data files of a flushed MemTable: linked, named by their address, or written again."""

from __future__ import annotations

import lance
import pyarrow as pa
from lance.file import LanceFileWriter
from lance.fragment import DataFile, DeletionFile, FragmentMetadata

from memwal_core.failpoints import NO_FAILPOINTS, Failpoint, Failpoints
from memwal_core.flushed.wal_files import WAL_BASE_ID
from memwal_core.flushed.write.fields import FieldLayout
from memwal_core.flushed.write.flush_plan import FlushPlan, PlannedFragment
from memwal_core.format.deletion_vector import FILE_TYPE, SUFFIX, encode_deletion_vector
from memwal_core.format.paths import generation_path, wal_entry_name, wal_entry_path
from memwal_core.memtable import MemTable
from memwal_core.native.casting import compact_rows
from memwal_core.storage.concurrent import map_concurrently
from memwal_core.storage.protocol import ObjectStore, StoreKind

_DATA_DIRECTORY = "data"
_REMOTE_REQUESTS = 8

FLUSH_ROWS = Failpoint("flush.rows")
FLUSH_HIDE = Failpoint("flush.hide")


def link_entries(store: ObjectStore, plan: FlushPlan, suffix: str) -> bool:
    """Link the shared WAL entries into the table's own data directory; return whether it now owns all of its files.

    The links are durable after ``sync_directory``.

    Raises:
        ObjectNotFoundError: A WAL entry is gone.
    """
    made: list[str] = []
    for entry in plan.shared:
        path = data_path(plan, wal_entry_name(entry.wal_id, suffix))
        if not store.link(path, wal_entry_path(plan.region_id, entry.wal_id, suffix)):
            for link in made:
                store.delete(link)
            return False
        made.append(path)
    return True


def write_packed(
    store: ObjectStore,
    plan: FlushPlan,
    layout: FieldLayout,
    memtable: MemTable,
    failpoints: Failpoints = NO_FAILPOINTS,
) -> None:
    """Write the rows of small WAL entries, and of those that cannot be shared, to files of the table's own."""
    rows: pa.Table | None = None
    for number, piece in enumerate(plan.pieces):
        if piece.entry is None:
            rows = memtable.to_table() if rows is None else rows
            with failpoints.around(FLUSH_ROWS):
                _write(store, data_path(plan, _packed_name(plan, number)), layout, _rows_of(piece, rows))


def wal_fragments(
    store: ObjectStore, plan: FlushPlan, layout: FieldLayout, suffix: str, *, is_own: bool
) -> list[FragmentMetadata]:
    """Describe the fragments; ``is_own`` says that the shared WAL entries were linked."""
    major, minor = layout.file_version
    fragments = []
    for number, piece in enumerate(plan.pieces):
        entry = piece.entry
        name = _packed_name(plan, number) if entry is None else wal_entry_name(entry.wal_id, suffix)
        size = entry.size_bytes if entry is not None else _size(store, data_path(plan, name))
        base_id = None if is_own or entry is None else WAL_BASE_ID
        fields, columns = list(layout.file_fields), list(layout.file_columns)
        file = DataFile(name, fields, columns, major, minor, size, base_id=base_id)
        fragments.append(FragmentMetadata(id=number, files=[file], physical_rows=piece.physical_rows))
    return fragments


def hide_rows(
    store: ObjectStore, plan: FlushPlan, table: lance.LanceDataset, failpoints: Failpoints = NO_FAILPOINTS
) -> lance.LanceDataset:
    """Hide the rows of shared WAL entries that a later row of their key replaces; return the table's newest version."""
    hiding = {
        number: piece for number, piece in enumerate(plan.pieces) if piece.entry is not None and piece.hidden.any()
    }
    if not hiding:
        return table
    version, attempt = table.version, int(plan.directory[:8], 16)

    def put(number: int) -> None:
        name = f"_deletions/{number}-{version}-{attempt}.{SUFFIX}"
        path = f"{generation_path(plan.region_id, plan.directory)}/{name}"
        store.put(path, encode_deletion_vector(hiding[number].hidden))

    map_concurrently(put, hiding, 1 if store.kind is StoreKind.LOCAL else _REMOTE_REQUESTS)
    changed = []
    for fragment in table.get_fragments():
        piece = hiding.get(fragment.fragment_id)
        if piece is None:
            continue
        metadata = fragment.metadata
        metadata.deletion_file = DeletionFile(
            read_version=version,
            id=attempt,
            file_type=FILE_TYPE,
            num_deleted_rows=int(piece.hidden.sum()),
            base_id=None,
        )
        changed.append(metadata)
    with failpoints.around(FLUSH_HIDE):
        return lance.LanceDataset.commit(
            table, lance.LanceOperation.Delete(changed, [], "superseded"), read_version=version, max_retries=0
        )


def data_path(plan: FlushPlan, name: str) -> str:
    """Return the path of one of the table's own data files."""
    return f"{generation_path(plan.region_id, plan.directory)}/{_DATA_DIRECTORY}/{name}"


def _packed_name(plan: FlushPlan, number: int) -> str:
    return f"{plan.directory}_{number}.lance"


def _rows_of(piece: PlannedFragment, rows: pa.Table) -> pa.Table:
    if not piece.hidden.any():
        return rows.slice(piece.start, len(piece.hidden)).combine_chunks()
    return rows.take(pa.array(piece.start + (~piece.hidden).nonzero()[0])).combine_chunks()


def _write(store: ObjectStore, path: str, layout: FieldLayout, rows: pa.Table) -> None:
    with LanceFileWriter(
        store.uri_of(path),
        rows.schema,
        version=f"{layout.file_version[0]}.{layout.file_version[1]}",
        storage_options=dict(store.storage_options) or None,
    ) as writer:
        for batch in compact_rows(rows).to_batches():
            writer.write_batch(batch)


def _size(store: ObjectStore, path: str) -> int | None:
    info = store.head(path)
    return info.size_bytes if info is not None else None
