"""Creating the directory of a flushed MemTable."""

from __future__ import annotations

import lance
from lance.fragment import DataFile, FragmentMetadata

from memwal_core.errors import InternalError, UnavailableError
from memwal_core.flush.fields import FieldLayout
from memwal_core.flush.plan import FlushPlan
from memwal_core.manifest.model import FlushedGeneration
from memwal_core.storage.layout import generation_path, wal_directory, wal_entry_name
from memwal_core.storage.protocol import ObjectStore
from memwal_core.wal import WalCodec

_WAL_BASE_ID = 1


def write_flushed_memtable(
    store: ObjectStore, plan: FlushPlan, layout: FieldLayout, codec: WalCodec
) -> FlushedGeneration:
    """Create the flushed MemTable's table, durable when this returns.

    Nothing refers to it until the region manifest records it; after a failure the directory is
    left to the garbage collector and a new attempt uses a new one.

    Args:
        store: The table's store.
        plan: What to write.
        layout: How columns and field ids are laid out.
        codec: The codec that wrote the WAL entries.

    Returns:
        The record for the region manifest.

    Raises:
        UnavailableError: Storage failed. Plan again with a new directory.
        InternalError: The table came out with other field ids than the base table's.
    """
    path = generation_path(plan.region_id, plan.directory)
    try:
        table = _commit(store, plan, layout, codec)
    except (OSError, RuntimeError, ValueError) as error:
        raise UnavailableError(
            "a flushed MemTable could not be written",
            remedy="flush again; its rows are safe in the WAL",
            region_id=str(plan.region_id),
            generation=plan.generation,
            path=path,
            cause=str(error),
        ) from error
    _check(table, plan, layout)
    store.sync_directory(path)
    return FlushedGeneration(
        generation=plan.generation,
        path=plan.directory,
        in_memory_bytes=plan.in_memory_bytes,
        physical_rows=plan.physical_rows,
    )


def _commit(store: ObjectStore, plan: FlushPlan, layout: FieldLayout, codec: WalCodec) -> lance.LanceDataset:
    options = dict(store.storage_options) or None
    major, minor = layout.file_version
    fragments = [
        FragmentMetadata(
            id=number,
            files=[
                DataFile(
                    wal_entry_name(entry.wal_id, codec.suffix),
                    list(layout.file_fields),
                    list(layout.file_columns),
                    major,
                    minor,
                    entry.size_bytes,
                    base_id=_WAL_BASE_ID,
                )
            ],
            physical_rows=entry.rows,
        )
        for number, entry in enumerate(plan.entries)
    ]
    wal = lance.lance.DatasetBasePath(
        store.uri_of(wal_directory(plan.region_id)), name="wal", is_dataset_root=False, id=_WAL_BASE_ID
    )
    table = lance.LanceDataset.commit(
        store.uri_of(generation_path(plan.region_id, plan.directory)),
        lance.LanceOperation.Overwrite(layout.table_schema, fragments, initial_bases=[wal]),
        storage_options=options,
        enable_v2_manifest_paths=True,
    )
    if layout.placeholders:
        table.drop_columns(list(layout.placeholders))
    if len(plan.superseded):
        table.delete(f"_rowaddr IN ({','.join(map(str, plan.superseded.tolist()))})")
    return table


def _check(table: lance.LanceDataset, plan: FlushPlan, layout: FieldLayout) -> None:
    found = tuple((field.name(), field.id()) for field in table.lance_schema.fields())
    if found != layout.field_ids:
        raise InternalError(
            "a flushed MemTable came out with wrong field ids",
            remedy="report this with the base table's schema; the rows are safe in the WAL",
            region_id=str(plan.region_id),
            generation=plan.generation,
            expected=layout.field_ids,
            found=found,
        )
