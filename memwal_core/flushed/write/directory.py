"""Creating the directory of a flushed MemTable."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager

import lance
import pyarrow as pa
from lance.file import LanceFileWriter
from lance.fragment import DataFile, FragmentMetadata

from memwal_core.errors import InternalError, UnavailableError
from memwal_core.failpoints import NO_FAILPOINTS, Failpoint, Failpoints
from memwal_core.flushed.write.fields import FieldLayout
from memwal_core.flushed.write.flush_plan import FlushPlan
from memwal_core.format.paths import generation_path, wal_directory, wal_entry_name
from memwal_core.format.region_manifest.model import FlushedGeneration
from memwal_core.storage.protocol import ObjectStore
from memwal_core.wal import WalCodec

Complete = Callable[[lance.LanceDataset], None]

_WAL_BASE_ID = 1
_DATA_DIRECTORY = "data"

FLUSH_ROWS = Failpoint("flush.rows")
FLUSH_COMMIT = Failpoint("flush.commit")
FLUSH_DROP = Failpoint("flush.drop")
FLUSH_HIDE = Failpoint("flush.hide")


def write_flushed_memtable(
    store: ObjectStore,
    plan: FlushPlan,
    layout: FieldLayout,
    codec: WalCodec,
    complete: Complete,
    failpoints: Failpoints = NO_FAILPOINTS,
) -> FlushedGeneration:
    """Create the flushed MemTable's table over the WAL files; it is durable when this returns its manifest record.

    Nothing refers to it until the region manifest records it. After a failure the directory is left to garbage
    collection and a new attempt uses a new one.

    Args:
        store: The table's store.
        plan: What to write.
        layout: The layout of columns and field ids.
        codec: The codec that wrote the WAL entries.
        complete: Adds what belongs to the table (indexes, filters) before it is made durable.
        failpoints: Hit around each call of Lance.

    Returns:
        The record for the region manifest.

    Raises:
        UnavailableError: Storage failed. Plan again with a new directory.
        InternalError: The table came out with other field ids than the base table's.
    """
    wal = lance.lance.DatasetBasePath(
        store.uri_of(wal_directory(plan.region_id)), name="wal", is_dataset_root=False, id=_WAL_BASE_ID
    )
    with _writing(plan):
        table = _commit(store, plan, layout, _wal_fragments(plan, layout, codec), [wal], failpoints)
        if len(plan.superseded):
            with failpoints.around(FLUSH_HIDE):
                table.delete(f"_rowaddr IN ({','.join(map(str, plan.superseded.tolist()))})")
    return _finished(store, plan, layout, table, complete)


def rewrite_memtable(
    store: ObjectStore,
    plan: FlushPlan,
    layout: FieldLayout,
    rows: pa.Table,
    complete: Complete,
    failpoints: Failpoints = NO_FAILPOINTS,
) -> FlushedGeneration:
    """Create the flushed MemTable's table with its own data file, for WAL codecs whose entries are not Lance files.

    For WAL codecs whose entries are no Lance files.

    Args:
        store: The table's store.
        plan: What to write.
        layout: How columns and field ids are laid out.
        rows: The newest row of each key, in the MemTable schema.
        complete: As for ``write_flushed_memtable``.
        failpoints: Hit around each call of Lance.

    Returns:
        The record for the region manifest.

    Raises:
        UnavailableError: Storage failed. Plan again with a new directory.
        InternalError: The table came out with other field ids than the base table's.
    """
    name = f"{plan.directory}.lance"
    path = f"{generation_path(plan.region_id, plan.directory)}/{_DATA_DIRECTORY}/{name}"
    options = dict(store.storage_options) or None
    with _writing(plan):
        with (
            failpoints.around(FLUSH_ROWS),
            LanceFileWriter(
                store.uri_of(path),
                rows.schema,
                version=f"{layout.file_version[0]}.{layout.file_version[1]}",
                storage_options=options,
            ) as writer,
        ):
            for batch in rows.to_batches():
                writer.write_batch(batch)
        fragment = _fragment(0, name, _size(store, path), rows.num_rows, layout)
        table = _commit(store, plan, layout, [fragment], [], failpoints)
    return _finished(store, plan, layout, table, complete)


def _finished(
    store: ObjectStore, plan: FlushPlan, layout: FieldLayout, table: lance.LanceDataset, complete: Complete
) -> FlushedGeneration:
    _check(table, plan, layout)
    with _writing(plan):
        complete(table)
    store.sync_directory(generation_path(plan.region_id, plan.directory))
    return FlushedGeneration(
        generation=plan.generation,
        path=plan.directory,
        in_memory_bytes=plan.in_memory_bytes,
        physical_rows=sum(fragment.physical_rows for fragment in table.get_fragments()),
    )


@contextmanager
def _writing(plan: FlushPlan) -> Iterator[None]:
    """Translate the errors that Lance raises while the table is written."""
    try:
        yield
    except (OSError, RuntimeError, ValueError) as error:
        raise UnavailableError(
            "a flushed MemTable could not be written",
            remedy="flush again; the rows are safe in the WAL",
            region_id=str(plan.region_id),
            generation=plan.generation,
            path=plan.directory,
            cause=str(error),
        ) from error


def _size(store: ObjectStore, path: str) -> int | None:
    info = store.head(path)
    return info.size_bytes if info is not None else None


def _fragment(
    number: int, name: str, size_bytes: int | None, rows: int, layout: FieldLayout, base_id: int | None = None
) -> FragmentMetadata:
    major, minor = layout.file_version
    file = DataFile(
        name, list(layout.file_fields), list(layout.file_columns), major, minor, size_bytes, base_id=base_id
    )
    return FragmentMetadata(id=number, files=[file], physical_rows=rows)


def _wal_fragments(plan: FlushPlan, layout: FieldLayout, codec: WalCodec) -> list[FragmentMetadata]:
    return [
        _fragment(
            number, wal_entry_name(entry.wal_id, codec.suffix), entry.size_bytes, entry.rows, layout, _WAL_BASE_ID
        )
        for number, entry in enumerate(plan.entries)
    ]


def _commit(
    store: ObjectStore,
    plan: FlushPlan,
    layout: FieldLayout,
    fragments: list[FragmentMetadata],
    bases: list[lance.lance.DatasetBasePath],
    failpoints: Failpoints,
) -> lance.LanceDataset:
    with failpoints.around(FLUSH_COMMIT):
        table = lance.LanceDataset.commit(
            store.uri_of(generation_path(plan.region_id, plan.directory)),
            lance.LanceOperation.Overwrite(layout.table_schema, fragments, initial_bases=bases or None),
            storage_options=dict(store.storage_options) or None,
            enable_v2_manifest_paths=True,
        )
    if layout.placeholders:
        with failpoints.around(FLUSH_DROP):
            table.drop_columns(list(layout.placeholders))
    return table


def _check(table: lance.LanceDataset, plan: FlushPlan, layout: FieldLayout) -> None:
    found = tuple((field.name(), field.id()) for field in table.lance_schema.fields())
    if found != layout.field_ids:
        raise InternalError(
            "a flushed MemTable was written with wrong field ids",
            remedy="report this with the base table's schema; the rows are safe in the WAL",
            region_id=str(plan.region_id),
            generation=plan.generation,
            expected=layout.field_ids,
            found=found,
        )
