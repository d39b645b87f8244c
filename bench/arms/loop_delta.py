"""The whole loop as Delta Lake's Python package does it; see ``bench.arms.loop``."""

from __future__ import annotations

import time

import deltalake

from bench.arms.loop import Values, read_batches


def delta_merge(uri: str, batches: str, count: int, memtable_rows: int) -> Values:
    """Commit one Delta merge per batch."""
    del memtable_rows
    given = read_batches(batches, count)
    table = deltalake.DeltaTable(uri)
    start = time.perf_counter()
    for batch in given:
        merge = table.merge(source=batch, predicate="t.id = s.id", source_alias="s", target_alias="t")
        merge.when_matched_update_all().when_not_matched_insert_all().execute()
    done = time.perf_counter() - start
    return {"durable": done, "seconds": done}
