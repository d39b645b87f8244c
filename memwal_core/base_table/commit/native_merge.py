"""Merging rows with pylance's own merge_insert: one pass of upserts or deletes, one commit.

Always without a key index and with an in-memory table: the only path that detects a concurrent insert
of the same key, bounded in memory, and nearly always the fastest. Lance's memory pool is set by its
environment variable ``LANCE_MEM_POOL_SIZE`` (bytes), which the entry points export.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

import lance
import pyarrow as pa
from lance.mem_wal import CompactedSsTable

from memwal_core.base_table.translate import translated
from memwal_core.deduplicate import last_row_per_key
from memwal_core.errors import InvalidRequestError
from memwal_core.ids import RegionId
from memwal_core.native.casting import compact

DEFAULT_RETRY_TIMEOUT = timedelta(minutes=10)
"""pylance's own limit of 30 seconds ends the retries of any merge whose first attempt took longer."""


@dataclass(frozen=True, slots=True)
class CommitResult:
    """What one merge commit did; row counts are None if unknown.

    Attributes:
        version: The version it made; with ``settled``, the version its marks were found in.
        settled: The reply was lost, and the commit was found by reading the table.
    """

    version: int
    rows_inserted: int | None
    rows_updated: int | None
    rows_deleted: int | None
    settled: bool = False


@dataclass(frozen=True, slots=True)
class Retries:
    """How a merge answers conflicts with other commits.

    Attributes:
        conflicts: How often pylance re-runs the merge on the newest version. 0 pins it to the version
            it was planned on, which delete passes need: re-run on a newer version they delete keys
            that a newer generation brought back.
        timeout: After this time no further attempt begins.
    """

    conflicts: int
    timeout: timedelta = DEFAULT_RETRY_TIMEOUT


PINNED = Retries(conflicts=0)
UNPINNED = Retries(conflicts=10)


def upsert(
    dataset: lance.LanceDataset, key: Sequence[str], rows: pa.Table, marks: Mapping[RegionId, int], retries: Retries
) -> CommitResult:
    """Insert rows of new keys and replace rows of known keys, recording merge progress with them.

    ``rows`` has one row per key, or none if there are marks (region -> highest generation in ``rows``).
    ``StaleMergeError``, ``ConflictError`` and ``InvalidRequestError`` mean that nothing was written; after
    ``CommitUnknownError``, read progress before another attempt.
    """
    check_unique_keys(rows, key)
    builder = dataset.merge_insert(list(key)).when_matched_update_all().when_not_matched_insert_all()
    return _execute(dataset, builder, rows, marks, retries)


def delete(
    dataset: lance.LanceDataset, key: Sequence[str], keys: pa.Table, marks: Mapping[RegionId, int], retries: Retries
) -> CommitResult:
    """Delete the rows of some keys, recording merge progress with it; unknown keys are not an error.

    ``dataset`` is the version at which merge progress was checked. Marks belong here only if this pass
    is the last of the merge. Errors as for ``upsert``.
    """
    check_unique_keys(keys, key)
    builder = dataset.merge_insert(list(key)).when_matched_delete()
    return _execute(dataset, builder, keys.select(list(key)), marks, retries)


def check_unique_keys(rows: pa.Table, key: Sequence[str]) -> None:
    """Check that no key occurs twice; pylance would insert both rows of a new key silently."""
    missing = [name for name in key if name not in rows.column_names]
    if missing:
        raise InvalidRequestError(
            "the rows lack primary key columns", remedy="pass all key columns", missing=missing, found=rows.column_names
        )
    distinct = len(last_row_per_key(rows, key))
    if distinct != rows.num_rows:
        raise InvalidRequestError(
            "a key occurs more than once among the rows to merge",
            remedy="keep the newest row of each key and drop the others",
            key=list(key),
            rows=rows.num_rows,
            distinct_keys=distinct,
        )


def _execute(
    dataset: lance.LanceDataset,
    builder: Any,  # noqa: ANN401 - pylance ships no types
    source: pa.Table,
    marks: Mapping[RegionId, int],
    retries: Retries,
) -> CommitResult:
    builder = builder.use_index(False).conflict_retries(retries.conflicts).retry_timeout(retries.timeout)
    if marks:
        builder = builder.mark_sstables_as_compacted(
            [CompactedSsTable(str(region_id), generation) for region_id, generation in marks.items()]
        )
    with translated("merge rows", dataset.uri, read_version=dataset.version, rows=source.num_rows):
        counts = builder.execute(compact(source))
        version = dataset.version
    return CommitResult(
        version=version,
        rows_inserted=counts["num_inserted_rows"],
        rows_updated=counts["num_updated_rows"],
        rows_deleted=counts["num_deleted_rows"],
    )
