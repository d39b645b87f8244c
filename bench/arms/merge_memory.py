"""A process that merges all generations of a table in one of two ways and prints its peak memory in MiB."""

from __future__ import annotations

import os
import sys

os.environ.setdefault("LANCE_LOG", "error,lance::index=off")

import lance
import numpy as np
import pyarrow as pa
from lance.mem_wal import CompactedSsTable

from memwal_core.format.paths import generation_path
from memwal_core.jobs.memory import peak_memory_bytes
from memwal_core.jobs.merge.request import MergeRequest
from memwal_core.native.arenas import limit_arenas
from memwal_core.settings import MIB, MergeSettings, Settings
from memwal_core.table import Table


def merge_insert_all(uri: str) -> None:
    """Read all generations, keep the newest row of each key, and merge once."""
    admin = Table.open(uri)
    (region,) = admin.opened.manifests.load_many(list(admin.opened.manifests.region_ids()))
    read = [
        lance.dataset(admin.base.store.uri_of(generation_path(region.region_id, each.path))).to_table(
            columns=["id", "vector"]
        )
        for each in region.flushed_generations
    ]
    rows = pa.concat_tables(read)
    backwards = rows.column("id").to_numpy()[::-1]
    _, first = np.unique(backwards, return_index=True)
    newest = rows.take(pa.array(np.sort(len(backwards) - 1 - first)))
    merge = lance.dataset(uri).merge_insert("id").when_matched_update_all().when_not_matched_insert_all()
    mark = CompactedSsTable(str(region.region_id), region.flushed_generations[-1].generation)
    merge.use_index(False).mark_sstables_as_compacted([mark]).execute(newest)


def main() -> None:
    """Merge, and print."""
    how, uri, max_mib = sys.argv[1:]
    limit_arenas()  # As the command and the Spark application do; it helps the other way as well.
    if how == "merge_insert":
        merge_insert_all(uri)
    else:
        Table.open(uri, settings=Settings(merge=MergeSettings(max_bytes=int(max_mib) * MIB))).run(MergeRequest())
    print(peak_memory_bytes() / MIB)


if __name__ == "__main__":
    main()
