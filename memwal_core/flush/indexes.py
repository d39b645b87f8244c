"""The maintained indexes of a flushed MemTable."""

from __future__ import annotations

import logging
from collections.abc import Sequence

import lance

from memwal_core.base_table.index_recipes import IndexRecipe, build_index, has_values
from memwal_core.flush.places import Reach, nowhere

_log = logging.getLogger(__name__)


def build_maintained_indexes(
    table: lance.LanceDataset, recipes: Sequence[IndexRecipe], reach: Reach = nowhere
) -> list[str]:
    """Build indexes on a flushed MemTable, before it is recorded, so that no reader finds it without them.

    Columns are found by field id, since the base table may have renamed them. A column without any
    value, as in a MemTable of tombstones, needs no index: it can add nothing to an answer.

    Args:
        table: The flushed MemTable; changed in place.
        recipes: What to build.
        reach: See ``places``.

    Returns:
        Names of the indexes built.
    """
    names = {field.id(): field.name() for field in table.lance_schema.fields()}
    built = []
    for recipe in recipes:
        column = names.get(recipe.field_id)
        if column is None or not has_values(table, column):
            _log.debug("index not needed in this generation [index=%s]", recipe.name)
            continue
        reach("flush.index")
        build_index(table, recipe, column)
        reach("flush.index.done")
        built.append(recipe.name)
    return built
