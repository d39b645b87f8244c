"""Look at a table's indexes and choose how to find the rows of some keys."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence

import lance

from memwal_core.base_table.keys.key_index import column_sizes, key_indexes, read_key_index
from memwal_core.base_table.keys.primary_key import primary_key_of
from memwal_core.base_table.keys.search_plan import SearchChoice, SearchFacts, Way, choose_way, only_scan, scan_way
from memwal_core.base_table.keys.spans import Spans
from memwal_core.base_table.reading.table_reader import TableReader
from memwal_core.errors import CorruptionError, ObjectNotFoundError
from memwal_core.settings import MergeSettings
from memwal_core.storage import StoreKind

_log = logging.getLogger(__name__)

_SAMPLED_FILES = 4

SpansOf = Callable[[str], Spans]
"""Returns the values that a key column has in the wanted keys."""


def forecast_scan(table: TableReader, dataset: lance.LanceDataset) -> Way | None:
    """Forecast what reading all keys of a version costs; None without a primary key, or with an index on one.

    Raises:
        CorruptionError: A data file is not what the table says.
    """
    key = primary_key_of(dataset.lance_schema.fields()).columns
    if not key or key_indexes(dataset, key):
        return None
    rows = {fragment.fragment_id: fragment.physical_rows for fragment in dataset.get_fragments()}
    is_local = table.store.kind is StoreKind.LOCAL
    sizes = column_sizes(dataset, key, table.storage_options, is_local=is_local, sample=_SAMPLED_FILES)
    return scan_way(SearchFacts(rows, sizes, len(key)))


def choose_search(
    table: TableReader,
    dataset: lance.LanceDataset,
    rows: Mapping[int, int],
    key: Sequence[str],
    spans_of: SpansOf,
    settings: MergeSettings,
) -> SearchChoice:
    """Choose how to find the rows of some keys in fragments of a version.

    Without an index on a key column there is no choice, and nothing is read.

    Args:
        table: The table.
        dataset: The version.
        rows: Fragment -> physical rows, of the fragments to search.
        key: Primary key columns.
        spans_of: What is wanted.
        settings: Whether indexes may be used, and what a request costs.
    """
    if settings.search == "scan":
        return only_scan("the setting merge.search is scan")
    if not key or not rows:
        return only_scan("there is nothing to search")
    try:
        indexes = key_indexes(dataset, key)
        if not indexes:
            return only_scan("no key column has a zone map or a BTREE")
        options, is_local = table.storage_options, table.store.kind is StoreKind.LOCAL
        sizes = column_sizes(dataset, key, options, is_local=is_local, sample=_SAMPLED_FILES)
        read = [
            (read_key_index(dataset, column, index, options, is_local=is_local), spans_of(column))
            for column, index in indexes.items()
        ]
        return choose_way(SearchFacts(rows, sizes, len(key)), read, settings.request_bytes)
    except (CorruptionError, ObjectNotFoundError) as error:
        _log.warning("an index on the key cannot be used, all keys are read [table=%s, reason=%s]", table.uri, error)
        return only_scan(f"an index on the key cannot be read: {error}")
