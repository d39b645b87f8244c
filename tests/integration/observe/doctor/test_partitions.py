"""Partition sizes of a real vector index."""

from __future__ import annotations

import lance
import pytest

from memwal_core.base_table import BaseTable
from memwal_core.base_table.indexes.partitions import partition_sizes
from testkit.tables.articles import articles, make_articles_table


@pytest.mark.req("LEASE-39")
def test_sizes_of_all_partitions_add_up_to_the_rows_and_appended_segments_count(tmp_path):
    table = make_articles_table(str(tmp_path / "t"))
    rows = table.dataset().count_rows()
    ((name, sizes),) = [(each.name, each.sizes) for each in partition_sizes(table)]
    assert name in {index.name for index in table.indexes()}
    assert sum(sizes) == rows
    lance.write_dataset(articles(1_000_000, 40), table.uri, mode="append")
    lance.dataset(table.uri).optimize.optimize_indices(num_indices_to_merge=0)
    ((_, grown),) = [(each.name, each.sizes) for each in partition_sizes(BaseTable.open(table.uri))]
    assert (len(grown), sum(grown)) == (len(sizes), rows + 40)
