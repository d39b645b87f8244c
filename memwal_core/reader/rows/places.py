"""Where the rows with some keys are: the first half of a lookup, which reads nothing but key columns or an index.

Taking other columns only of rows that were found keeps the cost of a lookup with its keys: one pass for both would read
every column of every row that no index covers.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from weakref import WeakKeyDictionary

import lance
import numpy as np
import numpy.typing as npt
import pyarrow as pa

from memwal_core.base_table import translated
from memwal_core.base_table.keys.search import KeySearch
from memwal_core.base_table.reading.read_sizes import PREFETCH_BYTES
from memwal_core.format.columns import ROW_ADDRESS, ROW_ID
from memwal_core.native.casting import no_rows
from memwal_core.reader.rows.key_condition import condition_on

_MAX_VALUES = 10_000
_MAX_TERMS = 1000
"""More keys of one column, or terms of which each is looked at (keys of several columns, or those that a zone map is
asked for), make an SQL text that takes longer than the key columns to read."""

_BTREE_SHARE = 2_000
_BTREE_SHARE_REMOTE = 10_000
"""A BTREE reads a page of some 4,000 keys for each key asked for. For more than one key in so many rows, the key
columns are read sooner: on a local disk even if the pages are in memory, elsewhere where each page is a request.
Opening a fragment costs as many requests as looking for one key.
"""


def find_places(
    dataset: lance.LanceDataset, keys: pa.Table, own: Sequence[str], *, with_keys: bool = False
) -> tuple[pa.Table, npt.NDArray[np.uint64]]:
    """Find every row with one of the keys, several of one key included.

    A few keys go to an index on the key's first column if there is one; otherwise one scan reads the key columns.

    Args:
        dataset: A base version or a flushed MemTable.
        keys: Distinct keys, at least one, not NULL.
        own: The dataset's names of the key columns, in their order.
        with_keys: Whether to return the keys of the rows.

    Returns:
        The keys under the dataset's names, no column unless asked for; and the ids (``ROW_ID``). Both in write order.
    """
    with translated("find rows by key", dataset.uri):
        if asks_index(dataset, keys, own):
            condition = condition_on(keys, own)
            columns = list(own) if with_keys else []
            rows = dataset.scanner(
                columns=columns, filter=condition, with_row_id=True, with_row_address=True
            ).to_table()
        else:
            rows = _scanned(dataset, keys, own)
    rows = rows.sort_by(ROW_ADDRESS)
    return rows.select(list(own) if with_keys else []), rows.column(ROW_ID).to_numpy()


def asks_index(dataset: lance.LanceDataset, keys: pa.Table, own: Sequence[str]) -> bool:
    """Tell whether an index on the key finds some keys with less than a scan of the key columns reads."""
    if keys.num_rows > (_MAX_VALUES if len(own) == 1 else _MAX_TERMS):
        return False
    facts = _facts_of(dataset, own[0])
    share = _BTREE_SHARE_REMOTE if "://" in dataset.uri else _BTREE_SHARE
    few = max(facts.rows // share, facts.fragments)
    return ("ZoneMap" in facts.kinds and keys.num_rows <= _MAX_TERMS) or (
        "BTree" in facts.kinds and keys.num_rows <= few
    )


def index_names_rows(dataset: lance.LanceDataset, keys: pa.Table, own: Sequence[str]) -> bool:
    """Tell whether an index on the key names exactly the rows of some keys, so that Lance reads only those rows."""
    return len(own) == 1 and asks_index(dataset, keys, own) and _facts_of(dataset, own[0]).is_exact


@dataclass(frozen=True, slots=True)
class _Facts:
    """What decides how rows are found in a version.

    Attributes:
        kinds: Of the indexes on the key's first column.
        is_exact: Whether the only one is a BTREE that covers all fragments.
    """

    kinds: frozenset[str]
    is_exact: bool
    rows: int
    fragments: int


_known: WeakKeyDictionary[lance.LanceDataset, dict[tuple[int, str], _Facts]] = WeakKeyDictionary()
"""A version never changes; listing its indexes takes as long as half of a lookup of one key."""


def _facts_of(dataset: lance.LanceDataset, column: str) -> _Facts:
    known = _known.setdefault(dataset, {})
    name = (dataset.version, column)
    facts = known.get(name)
    if facts is None:
        indexes = [index for index in dataset.describe_indices() if list(index.field_names) == [column]]
        kinds = frozenset(str(index.index_type) for index in indexes)
        fragments = frozenset(dataset.fragment_ids())
        covered = {each for index in indexes for segment in index.segments for each in segment.fragment_ids}
        is_exact = len(indexes) == 1 and kinds == {"BTree"} and fragments <= covered
        facts = known[name] = _Facts(kinds, is_exact, dataset.count_rows(), len(fragments))
    return facts


def _scanned(dataset: lance.LanceDataset, keys: pa.Table, own: Sequence[str]) -> pa.Table:
    schema = pa.schema([pa.field(name, field.type) for name, field in zip(own, keys.schema, strict=True)])
    search = KeySearch(keys.rename_columns(list(own)), own)
    scanner = dataset.scanner(columns=list(own), with_row_id=True, with_row_address=True, io_buffer_size=PREFETCH_BYTES)
    found = [no_rows(scanner.projected_schema)]
    for batch in scanner.to_batches():
        rows = pa.Table.from_batches([batch])
        is_hit = search.found(rows.select(list(own)).cast(schema))
        if is_hit.any():
            found.append(rows.filter(pa.array(is_hit)))
    return pa.concat_tables(found)
