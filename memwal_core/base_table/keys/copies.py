"""Keys with several rows: which they are, and all their rows."""

from __future__ import annotations

from collections.abc import Sequence

import lance
import pyarrow as pa

from memwal_core.base_table.keys.counts import key_groups
from memwal_core.base_table.keys.search import KeySearch
from memwal_core.base_table.reading.read_sizes import KEY_ROWS
from memwal_core.base_table.translate import translated
from memwal_core.deduplicate import last_row_per_key
from memwal_core.errors import DuplicateKeysError
from memwal_core.format.columns import UPDATED_AT
from memwal_core.native.casting import no_rows


def find_repeated_keys(dataset: lance.LanceDataset, key: Sequence[str]) -> pa.Table:
    """Return each key that has several rows once; counted inside Lance's query engine and its memory bound."""
    batches = key_groups(dataset, key, "HAVING COUNT(*) > 1")
    schema = pa.schema([dataset.schema.field(name) for name in key])
    tables = [pa.Table.from_batches([batch]).select(list(key)).cast(schema) for batch in batches]
    return pa.concat_tables([no_rows(schema), *tables])


def copies_of(dataset: lance.LanceDataset, keys: pa.Table, key: Sequence[str]) -> pa.Table:
    """Return all rows of some keys with all columns, their addresses, and when they were written if that is kept.

    Reads the whole version; holds the rows of these keys in memory.
    """
    search = KeySearch(keys, key)
    columns = [*dataset.schema.names, *([UPDATED_AT] if has_stable_row_ids(dataset) else [])]
    parts = []
    with translated("read rows by key", dataset.uri, version=dataset.version):
        scanner = dataset.scanner(columns=columns, with_row_address=True, batch_size=KEY_ROWS)
        for batch in scanner.to_batches():
            rows = pa.Table.from_batches([batch])
            parts.append(rows.filter(pa.array(search.found(rows))))
        return pa.concat_tables(parts) if parts else no_rows(scanner.projected_schema)


def require_single(dataset: lance.LanceDataset, rows: pa.Table, key: Sequence[str]) -> None:
    """Refuse rows of a version several of which have one key, where each key is to have one row.

    Raises:
        DuplicateKeysError: There are such rows; nothing tells which one counts.
    """
    keys = len(last_row_per_key(rows, key))
    if keys < rows.num_rows:
        raise DuplicateKeysError(
            "keys occur more than once in the base table, so it is unknown which row has the values that others lack",
            remedy="start no merge and no garbage collection; follow docs/runbooks/duplicate-keys.md",
            table=dataset.uri,
            version=dataset.version,
            rows=rows.num_rows,
            keys=keys,
        )


def has_stable_row_ids(dataset: lance.LanceDataset) -> bool:
    """Return whether rows keep their ids when they move, and with them when they were written."""
    with translated("read the table", dataset.uri):
        return bool(dataset.has_stable_row_ids)
