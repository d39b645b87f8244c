"""How evenly the vectors of an IVF index are spread over its partitions."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from memwal_core.base_table.indexes.inventory import is_vector_index, list_indexes
from memwal_core.base_table.reading.table_reader import TableReader
from memwal_core.base_table.translate import translated


@dataclass(frozen=True, slots=True)
class PartitionSizes:
    """One IVF index: vectors per partition, over all its segments."""

    name: str
    sizes: tuple[int, ...]

    @property
    def imbalance(self) -> float:
        """Largest partition over smallest; see ``imbalance``."""
        return imbalance(self.sizes)


def imbalance(sizes: Sequence[int]) -> float:
    """Return the largest size over the smallest; infinite if one is 0, 1 if all are or there is none."""
    largest, smallest = max(sizes, default=0), min(sizes, default=0)
    if not largest:
        return 1.0
    return largest / smallest if smallest else math.inf


def partition_sizes(table: TableReader, version: int | None = None) -> tuple[PartitionSizes, ...]:
    """Read the partition sizes of all IVF indexes of a version (default: newest), ordered by index name."""
    dataset = table.dataset(version)
    found = []
    for index in list_indexes(dataset):
        if not is_vector_index(index.kind):
            continue
        with translated("read index statistics", table.uri, index=index.name):
            segments = dataset.stats.index_stats(index.name)["indices"]
        # Segments share their centroids, so partition n of one belongs with partition n of the next.
        columns = [[int(each["size"]) for each in segment.get("partitions", ())] for segment in segments]
        width = max(map(len, columns), default=0)
        sizes = tuple(sum(column[n] for column in columns if n < len(column)) for n in range(width))
        found.append(PartitionSizes(index.name, sizes))
    return tuple(found)
