"""Creating the directory of a flushed MemTable."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager

import lance
import pyarrow as pa
from lance.fragment import FragmentMetadata

from memwal_core.errors import InternalError, UnavailableError
from memwal_core.failpoints import NO_FAILPOINTS, Failpoint, Failpoints
from memwal_core.flushed.wal_files import wal_base, wal_digest
from memwal_core.flushed.write.fields import FieldLayout
from memwal_core.flushed.write.files import hide_rows, link_entries, wal_fragments, write_packed
from memwal_core.flushed.write.flush_plan import FlushPlan
from memwal_core.format.lance_field import column_ids, numbered_schema
from memwal_core.format.lance_file.whole import require_written
from memwal_core.format.paths import generation_path, wal_directory
from memwal_core.format.region_manifest.model import FlushedGeneration
from memwal_core.memtable import MemTable
from memwal_core.native.panics import panics_raised
from memwal_core.storage.protocol import ObjectStore

Complete = Callable[[lance.LanceDataset], None]

FLUSH_COMMIT = Failpoint("flush.commit")
FLUSH_NUMBER = Failpoint("flush.number")

_NO_COLUMN = pa.schema([pa.field("__memwal_none", pa.null())])
"""What a table begins with that gets its columns by its second commit; Lance commits none without any."""


def write_flushed_memtable(  # noqa: PLR0913  (what is written, from where, and the failpoints)
    store: ObjectStore,
    plan: FlushPlan,
    layout: FieldLayout,
    suffix: str,
    memtable: MemTable,
    complete: Complete,
    failpoints: Failpoints = NO_FAILPOINTS,
) -> FlushedGeneration:
    """Create the flushed MemTable's table; it is durable when this returns its manifest record.

    WAL entries that it shares become its own files by links. Where the store has none, the table names them by the
    address of the region's WAL, and the record has their digest. Nothing refers to the table until the region
    manifest records it. After a failure the directory is left to garbage collection, and a new attempt uses a new one.

    Args:
        store: The table's store.
        plan: What to write.
        layout: The layout of columns and field ids.
        suffix: Of the WAL entries.
        memtable: The rows, for those that are written again.
        complete: Adds what belongs to the table (indexes, filters) before it is made durable.
        failpoints: Hit around each call of Lance.

    Returns:
        The record for the region manifest.

    Raises:
        UnavailableError: Storage failed. Plan again with a new directory.
        InternalError: The table came out with other field ids than the base table's.
    """
    with _writing(plan):
        is_own = link_entries(store, plan, suffix)
        write_packed(store, plan, layout, memtable, failpoints)
        fragments = wal_fragments(store, plan, layout, suffix, is_own=is_own)
        bases = [] if is_own else [wal_base(store.uri_of(wal_directory(plan.region_id)))]
        table = hide_rows(store, plan, _commit(store, plan, layout, fragments, bases, failpoints), failpoints)
    _check(table, plan, layout)
    with _writing(plan):
        complete(table)
    root = generation_path(plan.region_id, plan.directory)
    require_written(store, store.list_objects(root))
    store.sync_directory(root)
    return FlushedGeneration(
        generation=plan.generation,
        path=plan.directory,
        in_memory_bytes=plan.in_memory_bytes,
        physical_rows=plan.physical_rows,
        wal_digest=None if is_own else wal_digest(entry.attempt for entry in plan.shared),
    )


@contextmanager
def _writing(plan: FlushPlan) -> Iterator[None]:
    """Translate the errors that Lance raises while the table is written."""
    try:
        with panics_raised():
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


def _commit(
    store: ObjectStore,
    plan: FlushPlan,
    layout: FieldLayout,
    fragments: list[FragmentMetadata],
    bases: list[lance.lance.DatasetBasePath],
    failpoints: Failpoints,
) -> lance.LanceDataset:
    uri = store.uri_of(generation_path(plan.region_id, plan.directory))
    options = dict(store.storage_options) or None
    if layout.has_first_ids:
        with failpoints.around(FLUSH_COMMIT):
            return lance.LanceDataset.commit(
                uri,
                lance.LanceOperation.Overwrite(layout.schema, fragments, initial_bases=bases or None),
                storage_options=options,
                enable_v2_manifest_paths=True,
            )
    major, minor = layout.file_version
    with failpoints.around(FLUSH_COMMIT):
        table = lance.write_dataset(
            _NO_COLUMN.empty_table(),
            uri,
            data_storage_version=f"{major}.{minor}",  # type: ignore[arg-type]  # the stub knows some versions
            initial_bases=bases or None,
            storage_options=options,
            enable_v2_manifest_paths=True,
        )
    with failpoints.around(FLUSH_NUMBER):
        return lance.LanceDataset.commit(
            table,
            lance.LanceOperation.Merge(fragments, numbered_schema(layout.schema, layout.all_ids)),
            read_version=table.version,
            max_retries=0,
        )


def _check(table: lance.LanceDataset, plan: FlushPlan, layout: FieldLayout) -> None:
    found = tuple(column_ids(table.lance_schema.fields()).items())
    if found != layout.column_ids:
        raise InternalError(
            "a flushed MemTable was written with wrong field ids",
            remedy="report this with the base table's schema; the rows are safe in the WAL",
            region_id=str(plan.region_id),
            generation=plan.generation,
            expected=layout.column_ids,
            found=found,
        )
