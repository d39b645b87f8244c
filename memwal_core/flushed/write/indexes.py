"""The maintained indexes of a flushed MemTable."""

from __future__ import annotations

import logging
from collections.abc import Sequence

import lance

from memwal_core.base_table.indexes.recipes import IndexRecipe, build_index, has_values
from memwal_core.failpoints import NO_FAILPOINTS, Failpoint, Failpoints

_log = logging.getLogger(__name__)

FLUSH_INDEX = Failpoint("flush.index")


def build_maintained_indexes(
    table: lance.LanceDataset, recipes: Sequence[IndexRecipe], failpoints: Failpoints = NO_FAILPOINTS
) -> list[str]:
    """Build indexes on a flushed MemTable, in place, before it is recorded: no reader finds it without them.

    Columns are found by field id, since the base table may have renamed them. A column without any
    value, as in a MemTable of tombstones, needs no index: it can add nothing to an answer.

    Returns:
        Names of the indexes built.
    """
    names = {field.id(): field.name() for field in table.lance_schema.fields()}
    built = []
    for recipe in recipes:
        column = names.get(recipe.field_id)
        if column is None or not has_values(table, column):
            _log.debug("index skipped, its column has no values [index=%s]", recipe.name)
            continue
        with failpoints.around(FLUSH_INDEX):
            build_index(table, recipe, column)
        built.append(recipe.name)
    return built
