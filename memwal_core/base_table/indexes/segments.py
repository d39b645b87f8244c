"""Extending an index by segments that are built apart and published together.

Lance adds rows to an index in one process. Its public parts allow more: any process builds a segment over some
fragments and commits nothing, one process makes one segment of all of them and publishes it beside those that the
index has.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import lance

from memwal_core.base_table.indexes.recipes import IndexRecipe, index_recipes
from memwal_core.base_table.reading.fragments import fragments_of
from memwal_core.base_table.reading.table_reader import TableReader
from memwal_core.base_table.table import BaseTable
from memwal_core.base_table.translate import translated
from memwal_core.format.memwal_index import MemWalIndexDetails


@dataclass(frozen=True, slots=True)
class SegmentBuild:
    """How to build segments of one index that compare with those that it has.

    Attributes:
        version: The table version whose fragments are indexed.
    """

    version: int
    column: str
    recipe: IndexRecipe


def segment_build(table: TableReader, version: int, name: str, kind: str) -> SegmentBuild | None:
    """Return how to build segments of an index; None if only Lance itself can extend it.

    Scalar and RaBitQ quantizers cannot be handed on, so segments of theirs would be trained anew.
    """
    recipe = next(iter(index_recipes(table, version, [name])), None)
    if recipe is None or (recipe.is_vector and recipe.kind != kind):
        return None
    fields = {field.id(): field.name() for field in table.dataset(version).lance_schema.fields()}
    return SegmentBuild(version, fields[recipe.field_id], recipe)


def build_segment(table: TableReader, build: SegmentBuild, fragments: Sequence[int]) -> lance.Index | None:
    """Index some fragments, committing nothing; None if they have no value, of which no segment can be built.

    Doing it again writes other files; those that are not used are removed with old versions.
    """
    dataset = table.dataset(build.version)
    recipe = build.recipe
    kind: Any = recipe.kind  # pylance types it as a choice of literals.
    with translated("build an index segment", table.uri, index=recipe.name, version=build.version):
        chosen = dataset.scanner(
            columns=[build.column],
            filter=f"`{build.column}` IS NOT NULL",
            limit=1,
            fragments=fragments_of(dataset, fragments),
        )
        if not chosen.to_table().num_rows:
            return None
        return dataset.create_index_uncommitted(
            build.column, kind, name=recipe.name, fragment_ids=list(fragments), replace=True, **recipe.parameters
        )


def join_segments(table: TableReader, build: SegmentBuild, segments: Sequence[lance.Index]) -> lance.Index:
    """Make one segment of several, committing nothing.

    Also where there is one: a text segment is searched only after this step.
    """
    with translated("merge index segments", table.uri, index=build.recipe.name, version=build.version):
        return table.dataset(build.version).merge_existing_index_segments(list(segments))


def publish_segments(table: BaseTable, version: int, segments: Mapping[str, lance.Index]) -> int:
    """Publish segments in the version after the one that was indexed.

    Only there is it certain that the indexes cover what catch-up is recorded for.

    Args:
        table: Its base table.
        version: The version that was indexed.
        segments: One of each index, by the names of the indexes.

    Returns:
        The version that has the segments.

    Raises:
        ConflictError: Another commit came first. Build again.
        CommitUnknownError: Read the table before trying again.
    """
    operation = lance.LanceOperation.CreateIndex(new_indices=list(segments.values()), removed_indices=[])
    message = f"extend the index {', '.join(segments)}"
    return table.strict_commit(operation, read=table.state(version), change=_unchanged, message=message).version


def _unchanged(details: MemWalIndexDetails) -> MemWalIndexDetails:
    return details
