"""Indexes whose segments hold values that rows do not have any more, under ids that the rows have kept.

With stable row ids, Lance's merge-insert and update move a row with its id into a new fragment. Once a segment covers
that fragment, queries believe whatever any segment says of the id. Seen with pylance 14.0.2 for some kinds of indexes,
if the new rows get a segment of their own; where all segments become one, Lance leaves the old values out.
"""

from __future__ import annotations

import lance

from memwal_core.base_table.indexes.coverage import IndexCoverage, TableCoverage
from memwal_core.base_table.indexes.text_index import TEXT_INDEX
from memwal_core.base_table.keys.copies import has_stable_row_ids
from memwal_core.base_table.reading.fragments import fragments_of
from memwal_core.base_table.translate import translated
from memwal_core.format.columns import CREATED_AT, UPDATED_AT

_KINDS = frozenset({"Bitmap", "LabelList", TEXT_INDEX})


def outdated_indexes(dataset: lance.LanceDataset, coverage: TableCoverage) -> frozenset[str]:
    """Return the indexes that must not get a segment beside the others, because unindexed rows have kept their ids.

    Asks only tables with stable row ids, and there for when the unindexed rows were written.
    """
    if not has_stable_row_ids(dataset):
        return frozenset()
    asked = {index.unindexed_fragments for index in coverage.indexes if _may_be_outdated(index)}
    moved = {fragments for fragments in asked if _any_kept_its_id(dataset, fragments)}
    return frozenset(
        index.name for index in coverage.indexes if index.unindexed_fragments in moved and _may_be_outdated(index)
    )


def _may_be_outdated(index: IndexCoverage) -> bool:
    return bool(index.kind in _KINDS and index.segments and index.unindexed_fragments)


def _any_kept_its_id(dataset: lance.LanceDataset, fragments: tuple[int, ...]) -> bool:
    with translated("read when rows were written", dataset.uri, version=dataset.version):
        found = dataset.scanner(
            columns=[],
            filter=f"{CREATED_AT} < {UPDATED_AT}",
            with_row_address=True,
            fragments=fragments_of(dataset, fragments),
            limit=1,
        ).to_table()
    return bool(found.num_rows)
