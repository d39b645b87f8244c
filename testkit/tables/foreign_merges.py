"""Merges by pylance alone, as another program makes them: marked, committed and synced by Lance's own code."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import timedelta
from typing import Any

import lance
import pyarrow as pa

from memwal_core.base_table import TableReader
from memwal_core.base_table.translate import translated
from memwal_core.ids import RegionId

_RETRIES = 10


def merge_natively(
    table: TableReader,
    rows: pa.Table,
    marks: Mapping[RegionId, int] | None = None,
    *,
    read_version: int | None = None,
    retries: int = _RETRIES,
) -> int:
    """Insert or replace rows by key and record progress (region -> generation) with them; return the new version."""
    dataset = table.dataset(read_version)
    builder = dataset.merge_insert(list(table.key_columns(dataset)))
    return _execute(
        dataset, builder.when_matched_update_all().when_not_matched_insert_all(), rows, marks or {}, retries
    )


def delete_natively(
    table: TableReader, keys: pa.Table, *, read_version: int | None = None, marks: Mapping[RegionId, int] | None = None
) -> int:
    """Delete rows by key, pinned to a version; return the new version."""
    dataset = table.dataset(read_version)
    builder = dataset.merge_insert(list(table.key_columns(dataset))).when_matched_delete()
    return _execute(dataset, builder, keys, marks or {}, 0)


def _execute(
    dataset: lance.LanceDataset,
    builder: Any,  # noqa: ANN401 - pylance ships no types
    source: pa.Table,
    marks: Mapping[RegionId, int],
    retries: int,
) -> int:
    builder = builder.use_index(False).conflict_retries(retries).retry_timeout(timedelta(minutes=10))
    if marks:
        marked = [lance.mem_wal.CompactedSsTable(str(region), generation) for region, generation in marks.items()]
        builder = builder.mark_sstables_as_compacted(marked)
    with translated("merge natively", dataset.uri):
        builder.execute(source)
        return int(dataset.version)
