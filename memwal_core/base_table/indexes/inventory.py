"""The indexes of a base table, as far as MemWAL must know them. Unknown kinds are listed like others."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence, Set
from dataclasses import dataclass

import lance
import pyarrow as pa

from memwal_core.base_table.keys.primary_key import PrimaryKey
from memwal_core.base_table.translate import translated
from memwal_core.format.memwal_index.configure import check_maintained_indexes
from memwal_core.format.memwal_index.details import is_internal_index

_BTREE = "BTree"
_IVF_PREFIX = "IVF"
_MOVED_ROWS = "__lance_frag_reuse"
"""Lance's own index of what compactions with ``defer_index_remap`` moved."""


@dataclass(frozen=True, slots=True)
class IndexFacts:
    """One index of the base table.

    Attributes:
        kind: What Lance calls its type, for example ``BTree`` or ``IVF_PQ``.
        is_trained: Whether queries can use it; on a table with too few vectors, a vector index is only
            defined.
    """

    name: str
    kind: str
    field_ids: tuple[int, ...]
    is_trained: bool = True


def list_indexes(
    dataset: lance.LanceDataset, is_trained: Callable[[lance.IndexDescription], bool] = lambda _: True
) -> tuple[IndexFacts, ...]:
    """Return the indexes of a table version, sorted by name; ``is_trained`` tells whether queries can use one."""
    with translated("list indexes", dataset.uri, version=dataset.version):
        found = dataset.describe_indices()
        facts = [
            IndexFacts(index.name, str(index.index_type), tuple(index.fields), is_trained(index)) for index in found
        ]
    return tuple(sorted(facts, key=lambda index: index.name))


def may_have_moved_rows(dataset: lance.LanceDataset) -> bool:
    """Tell whether indexes may have row ids from before a compaction, which readers have to translate."""
    with translated("list indexes", dataset.uri, version=dataset.version):
        return any(index.name == _MOVED_ROWS for index in dataset.describe_indices())


def may_filter_by_index(dataset: lance.LanceDataset, fragments: Set[int]) -> bool:
    """Tell whether a fast search, which reads only what its index covers, may let scalar indexes filter.

    Of a fragment that one of them lacks, Lance would find no row.
    """
    with translated("list what indexes cover", dataset.uri, version=dataset.version):
        searched = fragments & set(dataset.fragment_ids())
        return all(
            searched <= {fragment for segment in index.segments for fragment in segment.fragment_ids}
            for index in dataset.describe_indices()
            if not is_internal_index(index.name)
        )


def check_maintained(names: Sequence[str], indexes: Sequence[IndexFacts], key: PrimaryKey) -> None:
    """Refuse names that are unknown, internal, listed twice, or those of the primary key's own index."""
    key_indexes = [index.name for index in indexes if index.kind == _BTREE and index.field_ids == key.field_ids]
    check_maintained_indexes(names, existing=[index.name for index in indexes], key_indexes=key_indexes)


def vector_columns_without_ivf(
    schema: pa.Schema, fields: Mapping[str, int], indexes: Sequence[IndexFacts]
) -> list[str]:
    """Return the vector columns that no IVF index covers.

    MemTables take centroids and quantization from the base table's index, so it must exist before
    MemWAL is enabled; otherwise distances in MemTables and base table do not compare.
    """
    covered = {field_id for index in indexes if is_vector_index(index.kind) for field_id in index.field_ids}
    return [field.name for field in schema if _is_vector(field.type) and fields[field.name] not in covered]


def is_vector_index(kind: str) -> bool:
    """Return whether indexes of a kind have centroids."""
    return kind.upper().startswith(_IVF_PREFIX)


def _is_vector(data_type: pa.DataType) -> bool:
    return bool(pa.types.is_fixed_size_list(data_type) and pa.types.is_floating(data_type.value_type))
