"""What the indexes of a base table cover, extending one, and recording how far they have caught up."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from types import MappingProxyType

import lance

from memwal_core.base_table.indexes.inventory import is_vector_index
from memwal_core.base_table.indexes.text_index import TEXT_INDEX
from memwal_core.base_table.indexes.untrained import is_trained, vectors_missing
from memwal_core.base_table.reading.table_reader import TableReader
from memwal_core.base_table.state import TableState
from memwal_core.base_table.table import BaseTable
from memwal_core.base_table.translate import translated
from memwal_core.errors import ConflictError
from memwal_core.format.lance_field import field_path
from memwal_core.format.memwal_index import MemWalIndexDetails, is_internal_index
from memwal_core.ids import RegionId


@dataclass(frozen=True, slots=True)
class IndexCoverage:
    """How much of one table version one index covers.

    Attributes:
        kind: What Lance calls its type, for example ``BTree`` or ``IVF_PQ``.
        segments: Parts that queries search one after another.
        unindexed_rows: Live rows of the fragments that no segment covers.
        is_trained: Whether it has a model that the next extension keeps.
        vectors_missing: Vectors that the table lacks before Lance can train it.
        takes_segments: Whether Lance can add a segment beside the others.
    """

    name: str
    kind: str
    segments: int
    unindexed_fragments: tuple[int, ...]
    unindexed_rows: int
    is_trained: bool = True
    vectors_missing: int = 0
    takes_segments: bool = True

    @property
    def is_vector(self) -> bool:
        """Whether it has centroids, which must not change."""
        return is_vector_index(self.kind)


@dataclass(frozen=True, slots=True)
class TableCoverage:
    """The indexes of one table version, ordered by name and without Lance's own."""

    fragments: frozenset[int]
    indexes: tuple[IndexCoverage, ...]

    def named(self, name: str) -> IndexCoverage | None:
        """Return the index of a name, or None."""
        return next((index for index in self.indexes if index.name == name), None)


def read_coverage(table: TableReader, version: int) -> TableCoverage:
    """Return what the indexes of a version cover, from its metadata.

    Rows are read only for an untrained vector index: as many as would train it.
    """
    dataset = table.dataset(version)
    with translated("read index coverage", table.uri, version=version):
        rows = {fragment.fragment_id: _live_rows(fragment.metadata) for fragment in dataset.get_fragments()}
        described = [index for index in dataset.describe_indices() if not is_internal_index(index.name)]
        indexes = sorted((_coverage(table, dataset, index, rows) for index in described), key=lambda each: each.name)
    return TableCoverage(frozenset(rows), tuple(indexes))


def _coverage(
    table: TableReader, dataset: lance.LanceDataset, index: lance.IndexDescription, rows: Mapping[int, int]
) -> IndexCoverage:
    covered = {fragment for segment in index.segments for fragment in segment.fragment_ids}
    unindexed = sorted(rows.keys() - covered)
    trained = is_trained(table.store, index, rows.keys())
    return IndexCoverage(
        name=index.name,
        kind=str(index.index_type),
        segments=len(index.segments),
        unindexed_fragments=tuple(unindexed),
        unindexed_rows=sum(rows[fragment] for fragment in unindexed),
        is_trained=trained,
        vectors_missing=0 if trained else vectors_missing(dataset, index),
        takes_segments=_takes_segments(dataset, index),
    )


def _takes_segments(dataset: lance.LanceDataset, index: lance.IndexDescription) -> bool:
    """Return whether Lance can add a segment to an index; seen with pylance 14.0.2.

    For a new segment of a scalar index over a field inside of a column it looks for a column of the field's own name,
    and refuses if there is none. It does not where segments become one.
    """
    kind = str(index.index_type)
    if is_vector_index(kind) or kind == TEXT_INDEX:
        return True
    columns = dataset.lance_schema.fields()
    paths = (field_path(columns, int(number)) for number in index.fields)
    return {path[-1] for path in paths if len(path) > 1} <= set(dataset.schema.names)


def _live_rows(fragment: lance.FragmentMetadata) -> int:
    deleted = fragment.deletion_file.num_deleted_rows if fragment.deletion_file is not None else 0
    return max(0, (fragment.physical_rows or 0) - (deleted or 0))


def extend_index(table: BaseTable, name: str, *, read_version: int, segments_to_merge: int) -> int:
    """Let Lance add the unindexed rows of a version to an index, and return a version in which it has them.

    ``segments_to_merge`` newest segments become one with the new rows; 0 adds a segment. The number is
    always given: left to itself, Lance splits and joins the partitions of a vector index while it extends
    it, which changes the centroids that MemTables inherited. Catch-up is credited to ``read_version``.
    """
    with (
        table.committing(read_version) as dataset,
        translated("extend an index", table.uri, index=name, read_version=read_version),
    ):
        dataset.optimize.optimize_indices(index_names=[name], num_indices_to_merge=segments_to_merge)
        return int(dataset.version)


def record_catchup(table: BaseTable, read: TableState, caught_up: Mapping[str, Mapping[RegionId, int]]) -> TableState:
    """Record catch-up (index -> region -> generation) in exactly the version after the one that was examined.

    Entries of other indexes stay. A ``ConflictError`` means that the table has moved on: examine the
    newest version, because it may hold rows that the indexes lack.
    """

    def change(details: MemWalIndexDetails) -> MemWalIndexDetails:
        if details is not read.details:
            # A later version may hold rows that the index lacks, or another index of this name.
            raise ConflictError(
                "the table moved on before catch-up could be recorded",
                remedy="run `memwal catchup` again, which examines the newest version",
                table=table.uri,
                version=read.version,
            )
        entries = {**details.index_catchup, **{name: MappingProxyType(dict(at)) for name, at in caught_up.items()}}
        return replace(details, index_catchup=MappingProxyType(entries))

    return table.update_details(change, read=read, message="record index catch-up")
